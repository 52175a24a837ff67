//! What pages of other sites may not do. A page can make a browser send requests anywhere without asking; browsers say
//! whence they come. Changes are taken from the server's own pages only, and from whatever is no browser.

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tidewheel_api::wire::fault::Code;

use crate::http::Problem;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Where a proxy says which host it was asked for. A page cannot send it to another origin without asking first.
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Refuses a change that a page of another origin asks for.
pub(super) fn refuse_other_origins(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if method.is_safe() || is_own(uri, headers) {
        return Ok(());
    }
    Err(Problem::new(Code::CrossSite, "a page of another site may not change anything here"))
}

fn is_own(uri: &Uri, headers: &HeaderMap) -> bool {
    match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
        Some(site) => matches!(site, b"same-origin" | b"none"),
        // Older browsers say only their origin; what is no browser says neither.
        None => headers.get(ORIGIN).is_none_or(|origin| is_ours(origin, uri, headers)),
    }
}

/// Whether an origin names the host that was asked.
fn is_ours(origin: &HeaderValue, uri: &Uri, headers: &HeaderMap) -> bool {
    let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    let Some(host) = host else { return false };
    let asked = [HOST, FORWARDED_HOST].map(|name| headers.get(name).and_then(|value| value.to_str().ok()));
    let asked = asked.into_iter().flatten().chain(uri.authority().map(http::uri::Authority::as_str));
    asked.into_iter().any(|asked| asked.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(method: &Method, pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        refuse_other_origins(method, &Uri::from_static("/v1/jobs"), &headers).is_ok()
    }

    #[test]
    fn changes_are_taken_from_own_pages_and_from_what_is_no_browser() {
        let host = ("host", "tide.example:7400");
        let post = |more: &[(&'static str, &'static str)]| is_taken(&Method::POST, &[&[host], more].concat());
        assert!(post(&[]), "no browser");
        assert!(post(&[("sec-fetch-site", "same-origin"), ("origin", "https://rewritten.example")]));
        assert!(post(&[("origin", "http://Tide.example:7400")]));
        assert!(post(&[("origin", "https://public.example"), ("x-forwarded-host", "public.example")]));
        for site in ["cross-site", "same-site"] {
            assert!(!post(&[("sec-fetch-site", site)]), "{site}");
            assert!(is_taken(&Method::GET, &[host, ("sec-fetch-site", site)]), "looking is free");
        }
        for origin in ["http://tide.example:7401", "http://evil.example", "null", ""] {
            assert!(!post(&[("origin", origin)]), "{origin}");
        }
    }
}
