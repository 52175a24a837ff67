//! Versions of schedules as entity tags: what a caller has read, and what it wants to change.

use axum::response::Response;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue};
use tidewheel_api::wire::fault::Code;
use tidewheel_core::schedule::Schedule;

use crate::http::problem::Problem;

/// Which version a caller means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Whatever is there.
    Any,
    /// Whatever is there, but there must be something.
    Existing,
    /// One of these. A tag that no schedule ever had is none.
    OneOf(Vec<u64>),
}

impl Wanted {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(IF_MATCH) else { return Self::Any };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Self::Existing;
        }
        let tag = |text: &str| text.trim().strip_prefix('"')?.strip_suffix('"')?.parse().ok();
        Self::OneOf(text.split(',').filter_map(tag).collect())
    }

    /// Whether the caller wants a version it has read, so that another one must not be changed in its place.
    pub(super) const fn is_certain(&self) -> bool {
        matches!(self, Self::OneOf(_))
    }

    /// Refuses a schedule that is none of those wanted.
    pub(super) fn check(&self, schedule: &Schedule) -> Result<(), Problem> {
        match self {
            Self::OneOf(versions) if !versions.contains(&schedule.version) => Err(stale(schedule.version)),
            Self::Any | Self::Existing | Self::OneOf(_) => Ok(()),
        }
    }
}

pub(super) fn stale(current: u64) -> Problem {
    let detail = format!("the schedule has version {current} by now; read it again");
    Problem::new(Code::StaleVersion, detail)
}

/// Whether the caller wants to create, and never to change.
pub(crate) fn only_new(headers: &HeaderMap) -> bool {
    headers.get(IF_NONE_MATCH).is_some_and(|value| value == "*")
}

/// The same answer, with the schedule's version in its head.
pub(super) fn tagged(mut response: Response, schedule: &Schedule) -> Response {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", schedule.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_they_are_written() {
        let wanted = |text: &'static str| {
            Wanted::of(&HeaderMap::from_iter([(IF_MATCH, HeaderValue::from_static(text))]))
        };
        assert_eq!(Wanted::of(&HeaderMap::new()), Wanted::Any);
        assert_eq!(wanted("*"), Wanted::Existing);
        assert_eq!(wanted("\"3\""), Wanted::OneOf(vec![3]));
        assert_eq!(wanted("\"3\", \"x\",\"4\""), Wanted::OneOf(vec![3, 4]));
        // Weak tags never match, and what is no tag matches nothing.
        assert_eq!(wanted("W/\"3\""), Wanted::OneOf(vec![]));
        assert_eq!(wanted("3"), Wanted::OneOf(vec![]));
    }
}
