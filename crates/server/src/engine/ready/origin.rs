//! What limits, lanes and breakers of targets go by.

use tidewheel_core::job::Target;

/// `scheme://host:port` of a target: what limits and lanes go by.
pub(in crate::engine) fn host_of(target: &Target) -> &str {
    origin_of(&target.url)
}

/// `scheme://host:port` of a URL.
pub(crate) fn origin_of(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(start..).unwrap_or_default();
    let len = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    url.get(..start + len).unwrap_or(url)
}
