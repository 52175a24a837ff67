//! The spans of a zone: stretches of real time in which it keeps one offset.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A stretch of real time, in seconds, during which a zone keeps one offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub(super) start: i64,
    /// The first second that is no longer in it.
    pub(super) end: i64,
    pub(super) offset: i64,
    /// The offset of the span before; the same if there is none.
    pub(super) offset_before: i64,
    /// The offset of the span after; the same if there is none.
    pub(super) offset_after: i64,
}

/// Rules of a zone that tell its spans.
pub trait Spans {
    /// The span that a second is in; none if it is further away than any calendar goes.
    fn span_at(&self, second: i64) -> Option<Span>;
}

impl Spans for TimeZone {
    fn span_at(&self, second: i64) -> Option<Span> {
        let at = Timestamp::from_second(second).ok()?;
        let offset = i64::from(self.to_offset(at).seconds());
        let mut span = Span {
            start: Timestamp::MIN.as_second(),
            end: Timestamp::MAX.as_second(),
            offset,
            offset_before: offset,
            offset_after: offset,
        };
        let just_after = Timestamp::from_second(second + 1).ok()?;
        if let Some(change) = self.preceding(just_after).next() {
            span.start = change.timestamp().as_second();
            let before = Timestamp::from_second(span.start - 1).ok()?;
            span.offset_before = i64::from(self.to_offset(before).seconds());
        }
        if let Some(change) = self.following(at).next() {
            span.end = change.timestamp().as_second();
            span.offset_after = i64::from(change.offset().seconds());
        }
        Some(span)
    }
}

/// The span that was asked for last. Schedules look for what comes next, and for months on end that is in one span, which
/// takes longer to find than a time in it.
#[derive(Debug, Default)]
pub struct LastSpan(Mutex<Option<Span>>);

impl LastSpan {
    /// The span that a second is in, by the rules of the one zone this is used for.
    pub fn span_at(&self, rules: &TimeZone, second: i64) -> Option<Span> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(span) = last.filter(|span| (span.start..span.end).contains(&second)) {
            return Some(span);
        }
        *last = rules.span_at(second);
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cron::zone;

    #[test]
    fn what_was_found_last_is_what_would_be_found() {
        let rules = zone("Europe/Berlin").unwrap();
        let last = LastSpan::default();
        let year = 365 * 86_400;
        // Around every change of two years, forth and back, and beyond the calendar.
        let changes: Vec<i64> = rules
            .following(Timestamp::from_second(55 * year).unwrap())
            .map(|change| change.timestamp().as_second())
            .take(4)
            .collect();
        let near = changes.iter().flat_map(|at| [at - 2, at - 1, *at, at + 1, at - 1]);
        for second in near.chain([Timestamp::MIN.as_second(), Timestamp::MAX.as_second(), i64::MAX]) {
            assert_eq!(last.span_at(&rules, second), rules.span_at(second), "{second}");
            assert_eq!(last.span_at(&rules, second), rules.span_at(second), "{second}, asked again");
        }
    }
}
