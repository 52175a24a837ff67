//! From local times to instants: the walk through the spans of a zone, in which its offset is constant.
//!
//! Within a span local and real time run side by side, and the search through the fields is all there is.
//! The rules for gaps and folds apply where a span begins. A search that finds nothing in a span goes on to
//! the next, or leaps to just before the span in which the time it found can lie.

use jiff::Timestamp;

use super::fields::{DAY_S, Fields, HORIZON_YEARS, Way};
use super::span::{Span, Spans};
use super::{Dst, Fire, Fold, Gap, Note};

/// A gap of this length or more is a move across the date line, and its times are skipped.
const GAP_RUN_AFTER_S_MAX: i64 = 3 * 3600;

/// More than any zone is off UTC: local times that are further apart than this are in the same order as
/// their instants.
const LEAP_MARGIN_S: i64 = 2 * DAY_S as i64;

const HORIZON_S: i64 = HORIZON_YEARS as i64 * 366 * DAY_S as i64;

pub(super) fn next_after(fields: &Fields, after: Timestamp, zone: &impl Spans, dst: Dst) -> Option<Fire> {
    let search = Search { fields, zone, dst };
    let begin = whole_second_at_or_before(after) + 1;
    let mut from = begin;
    while from - begin <= HORIZON_S {
        let span = search.span_at(from)?;
        if from == span.start && search.owes_gap(&span) {
            return search.fire(&span, from);
        }
        let local = (from + span.offset).max(search.first_local(&span));
        let found = fields.seek(local, Way::Forward)?;
        if found < span.end + span.offset {
            return search.fire(&span, found - span.offset);
        }
        from = span.end;
        if span.end - local >= LEAP_MARGIN_S {
            from = from.max(found - LEAP_MARGIN_S);
        }
    }
    None
}

pub(super) fn prev_before(fields: &Fields, before: Timestamp, zone: &impl Spans, dst: Dst) -> Option<Fire> {
    let search = Search { fields, zone, dst };
    let has_fraction = before.subsec_nanosecond() != 0;
    let begin = whole_second_at_or_before(before) - i64::from(!has_fraction);
    let mut until = begin;
    while begin - until <= HORIZON_S {
        let span = search.span_at(until)?;
        let local = until + span.offset;
        let found = fields.seek(local, Way::Backward)?;
        if found >= search.first_local(&span) {
            return search.fire(&span, found - span.offset);
        }
        if search.owes_gap(&span) {
            return search.fire(&span, span.start);
        }
        until = span.start - 1;
        if local - span.start >= LEAP_MARGIN_S {
            until = until.min(found + LEAP_MARGIN_S);
        }
    }
    None
}

fn whole_second_at_or_before(instant: Timestamp) -> i64 {
    // Before 1970 the fraction is negative and the second is rounded towards it.
    instant.as_second() - i64::from(instant.subsec_nanosecond() < 0)
}

struct Search<'a, Z> {
    fields: &'a Fields,
    zone: &'a Z,
    dst: Dst,
}

impl<Z: Spans> Search<'_, Z> {
    fn span_at(&self, second: i64) -> Option<Span> {
        count_step();
        self.zone.span_at(second)
    }

    /// The first local time in the span that may run there: a fixed time has had its run on the first pass.
    fn first_local(&self, span: &Span) -> i64 {
        let second_pass_is_skipped = self.fields.fixed_time && self.dst.fold == Fold::First;
        let offset = if second_pass_is_skipped { span.offset.max(span.offset_before) } else { span.offset };
        span.start + offset
    }

    /// Whether the gap before the span skipped a time that is to run as soon as the gap is over.
    fn owes_gap(&self, span: &Span) -> bool {
        let gap = span.offset - span.offset_before;
        if !self.fields.fixed_time || self.dst.gap == Gap::Skip || gap <= 0 || gap >= GAP_RUN_AFTER_S_MAX {
            return false;
        }
        let skipped = self.fields.seek(span.start + span.offset_before, Way::Forward);
        skipped.is_some_and(|skipped| skipped < span.start + span.offset)
    }

    fn fire(&self, span: &Span, at: i64) -> Option<Fire> {
        let is_first_pass = at >= span.end - (span.offset - span.offset_after);
        let is_second_pass = at < span.start + (span.offset_before - span.offset);
        let note = if at == span.start && self.owes_gap(span) {
            Some(Note::DstGap)
        } else if is_first_pass || is_second_pass {
            Some(Note::DstFold)
        } else {
            None
        };
        Some(Fire { at: Timestamp::from_second(at).ok()?, note })
    }
}

/// Counts a unit of work, so that a test can bound it; costs nothing otherwise.
pub(super) fn count_step() {
    #[cfg(test)]
    super::tests::STEPS.with(|steps| steps.set(steps.get() + 1));
}
