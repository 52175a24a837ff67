//! Under which names a server answers that asks for no keys. It listens on this machine only, but a page of any site can have
//! its own name stand for this machine, and then a browser takes the two for one. So it answers to names that no site can
//! have: addresses, and names without a dot or under `localhost`.

use std::net::IpAddr;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, Uri};
use tidewheel_api::wire::fault::Code;

use crate::http::Problem;

/// Refuses a request that asks for a host by a name that a site may have. What is no browser may name none.
pub(super) fn refuse_names_of_sites(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let is_no_site = |authority: &Authority| !may_be_a_site(authority.host());
    let in_headers = headers.get_all(HOST).iter().all(|value| {
        // What nearly everybody asks for needs no reading.
        value.is_empty()
            || is_plainly_here(value.as_bytes())
            || value.to_str().ok().and_then(|text| text.parse().ok()).as_ref().is_some_and(is_no_site)
    });
    // HTTP/2 and gRPC have it here.
    if in_headers && uri.authority().is_none_or(is_no_site) {
        return Ok(());
    }
    let detail = "the server asks for no keys and so answers only as localhost or to an address, not to the host this \
                  request names; have it ask for keys (--admin-key-file) to give it other names";
    Err(Problem::new(Code::CrossSite, detail))
}

/// Whether a host is `localhost` or `127.0.0.1`, with a port or without.
fn is_plainly_here(host: &[u8]) -> bool {
    let rest = host.strip_prefix(b"localhost").or_else(|| host.strip_prefix(b"127.0.0.1"));
    rest.is_some_and(|rest| match rest.split_first() {
        None => true,
        Some((colon, port)) => {
            *colon == b':' && (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit)
        }
    })
}

fn may_be_a_site(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    bare.parse::<IpAddr>().is_err() && name.contains('.') && !name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn is_taken(uri: &'static str, hosts: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, HeaderValue::from_static(host));
        }
        refuse_names_of_sites(&Uri::from_static(uri), &headers).is_ok()
    }

    #[test]
    fn only_names_that_no_site_can_have_are_answered_to() {
        for host in [
            "localhost",
            "LocalHost:7400",
            "localhost.",
            "a.localhost:1",
            "127.0.0.1:7400",
            "127.9.9.9",
            "[::1]:7400",
            "[::ffff:127.0.0.1]",
            "10.0.0.1",
            "tidewheel",
            "",
        ] {
            assert!(is_taken("/v1/jobs", &[host]), "{host}");
        }
        for host in [
            "evil.example:7400",
            "127.0.0.1.evil.example",
            "127.0.0.1:7400@evil.example",
            "localhost.evil.example",
            "evil.example.",
            "a.evillocalhost",
            "localhost@evil.example:",
            "http://localhost",
        ] {
            assert!(!is_taken("/v1/jobs", &[host]), "{host}");
        }
        assert!(is_taken("/v1/jobs", &[]), "no browser");
        assert!(!is_taken("/v1/jobs", &["localhost", "evil.example"]));
        assert!(
            is_taken("http://localhost:7400/v1/jobs", &[]) && !is_taken("http://evil.example/v1/jobs", &[])
        );
        assert!(!is_taken("http://evil.example/v1/jobs", &["localhost"]));
    }
}
