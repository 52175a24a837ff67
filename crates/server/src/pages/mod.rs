//! The web pages, in the program: one document (`assets/index.html`) that stands for every page's address, and the
//! scripts and styles it loads. Plain modules as they are written, no build step; the pages go by the same API as
//! everybody else. Nothing is loaded from elsewhere, and the policy sent with them says so.

mod assets;

use std::fmt::Write as _;

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use self::assets::{ASSETS, Asset, SHELL};

/// Addresses of pages; all are answered with the same document, which looks at its address.
const PAGES: &[&str] = &[
    "/",
    "/jobs",
    "/jobs/{id}",
    "/schedules",
    "/schedules/{id}",
    "/dead-letters",
    "/queues",
    "/tenants",
    "/cluster",
    "/sign-in",
];

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// Hexadecimal digits of an entity tag.
const TAG_DIGITS: usize = 32;

/// Adds the pages to what is served. None of their addresses lies under those of the API.
pub(crate) fn add<S: Clone + Send + Sync + 'static>(mut router: Router<S>) -> Router<S> {
    for asset in ASSETS {
        router = router.route(&format!("/assets/{}", asset.name), serve(asset));
    }
    for page in PAGES {
        router = router.route(page, serve(&SHELL));
    }
    router
}

fn serve<S: Clone + Send + Sync + 'static>(asset: &'static Asset) -> axum::routing::MethodRouter<S> {
    let tag = tag_of(asset.bytes);
    get(move |headers: HeaderMap| std::future::ready(answer(asset, &tag, &headers)))
}

/// An entity tag that changes with the content, and only with it.
fn tag_of(bytes: &[u8]) -> HeaderValue {
    let mut tag = String::with_capacity(TAG_DIGITS + 2);
    tag.push('"');
    for byte in blake3::hash(bytes).as_bytes().iter().take(TAG_DIGITS / 2) {
        // Writing into a String cannot fail.
        write!(tag, "{byte:02x}").ok();
    }
    tag.push('"');
    HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"\""))
}

fn answer(asset: &Asset, tag: &HeaderValue, request: &HeaderMap) -> Response {
    let known = request.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known
        .flat_map(|value| value.split(','))
        .any(|value| value.trim().trim_start_matches("W/").as_bytes() == tag.as_bytes());
    let mut response = if is_known {
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        Response::new(Bytes::from_static(asset.bytes).into())
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(ETAG, tag.clone());
    // Kept, but asked for again each time: a newer server must not meet older pages.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests;
