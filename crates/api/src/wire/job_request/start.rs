//! When a job starts: at an instant, after a delay, or now.

use tidewheel_core::limits::{RUN_AT_AHEAD_MS_MAX, RUN_AT_PAST_MS_MAX};
use tidewheel_core::time::{Timestamp, format_duration};

use crate::wire::fault::{At, Code, Faults};
use crate::wire::read::Field;

/// When a job starts, as it was asked for; the same request sent again compares equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At once.
    Now,
    /// At this instant.
    At(Timestamp),
    /// After so many milliseconds.
    After(i64),
}

impl Start {
    /// The instant meant by a request that arrived at `now`.
    #[must_use]
    pub const fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(time) => time,
            Self::After(ms) => now.plus_ms(ms),
        }
    }
}

/// Reads `run_at` or `delay`; `None` when there is a fault.
pub(crate) fn read_start(
    run_at: Option<Field<'_>>,
    delay: Option<Field<'_>>,
    now: Timestamp,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Start> {
    let (field, start) = match (run_at, delay) {
        (None, None) => return Some(Start::Now),
        (Some(field), None) => (field, Start::At(field.time_to_bound(at, faults)?)),
        (None, Some(field)) => (field, Start::After(field.duration(at, faults)?)),
        (Some(_), Some(field)) => {
            let detail = "`run_at` and `delay` exclude each other; give one of them, or neither for now";
            field.refuse(Code::ConflictingFields, at, faults, detail);
            return None;
        }
    };
    let (first, last) = (now.plus_ms(-RUN_AT_PAST_MS_MAX), now.plus_ms(RUN_AT_AHEAD_MS_MAX));
    if (first..=last).contains(&start.at(now)) {
        return Some(start);
    }
    let [back, ahead] = [RUN_AT_PAST_MS_MAX, RUN_AT_AHEAD_MS_MAX].map(format_duration);
    let detail =
        format!("a job can be set for at most {back} back and {ahead} ahead: from {first} to {last}");
    field.refuse(Code::RunAtOutOfRange, at, faults, detail);
    None
}
