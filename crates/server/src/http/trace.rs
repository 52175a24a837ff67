//! The trace a request comes from, as its headers say.

use http::{HeaderMap, HeaderValue};
use tidewheel_core::trace::TraceContext;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// The trace context in the headers. What is not well formed is left aside; two parents are none.
pub(super) fn header_trace(headers: &HeaderMap) -> Option<Box<TraceContext>> {
    let mut parents = headers.get_all(PARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    // A list may be spread over several headers.
    let states: Option<Vec<&str>> = headers.get_all(STATE).iter().map(text).collect();
    TraceContext::read(text(parent)?, &states.unwrap_or_default().join(",")).map(Box::new)
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn one_parent_counts_and_states_are_one_list() {
        let mut headers = HeaderMap::new();
        assert_eq!(header_trace(&headers), None);
        headers.append(STATE, HeaderValue::from_static("a=1"));
        headers.append(STATE, HeaderValue::from_static("b=2"));
        assert_eq!(header_trace(&headers), None);
        headers.append(PARENT, HeaderValue::from_static(ONE));
        let trace = header_trace(&headers).unwrap();
        assert_eq!((trace.parent().as_str(), trace.state()), (ONE, "a=1,b=2"));
        headers.append(PARENT, HeaderValue::from_static(ONE));
        assert_eq!(header_trace(&headers), None);
    }
}
