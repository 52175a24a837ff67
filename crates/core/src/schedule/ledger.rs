//! The ledger: what became of each nominal instant. Every one ends in exactly one entry; an entry may cover a
//! whole range of them, so that a year of missed minutes is one entry and not half a million.

use std::fmt;
use std::sync::Arc;

use super::definition::Rule;
use super::exclude::Dates;
use super::nominal::{next_nominal, prev_nominal};
use crate::id::JobId;
use crate::limits::LEDGER_RANGE_COUNT_MAX;
use crate::time::Timestamp;

/// What became of one instant, or of every nominal instant from one to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The first instant.
    pub from: Timestamp,
    /// The last one; the same for a single instant.
    pub to: Timestamp,
    /// How many there are, counted up to [`LEDGER_RANGE_COUNT_MAX`]: a range that says as much may hold more.
    pub count: u32,
    /// What became of them.
    pub outcome: Outcome,
    /// When that was decided.
    pub decided_at: Timestamp,
    /// The rule a range is of; none for a single instant.
    pub rule: Option<Arc<Rule>>,
}

/// What became of an instant. The last two are for jobs outside the chain, whose instants are not nominal or
/// have an entry of their own already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A job was made of it and given to run.
    Fired {
        /// Which.
        job_id: JobId,
        /// Late, to make up for an instant that was missed.
        catch_up: bool,
    },
    /// A later instant was fired for it too.
    Coalesced {
        /// Which.
        into: Timestamp,
    },
    /// Not fired, on purpose.
    Skipped(Reason),
    /// Not fired, for lack of anyone to do it in time.
    Missed,
    /// Asked for by hand.
    Triggered {
        /// The job made of it.
        job_id: JobId,
    },
    /// Made up for, long after, by hand.
    Backfilled {
        /// The job made of it.
        job_id: JobId,
    },
}

impl Outcome {
    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fired { .. } => "fired",
            Self::Coalesced { .. } => "coalesced",
            Self::Skipped(_) => "skipped",
            Self::Missed => "missed",
            Self::Triggered { .. } => "triggered",
            Self::Backfilled { .. } => "backfilled",
        }
    }
}

/// In words, for the record of an occurrence that ends without having run.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fired { .. } | Self::Missed | Self::Triggered { .. } | Self::Backfilled { .. } => {
                f.write_str(self.as_str())
            }
            Self::Coalesced { into } => write!(f, "coalesced into the fire of {into}"),
            Self::Skipped(reason) => write!(f, "skipped: {}", reason.as_str()),
        }
    }
}

/// Why an instant was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// It was missed, and the schedule skips what is missed.
    Misfire,
    /// An earlier run was not over.
    Overlap,
    /// The schedule was paused.
    Paused,
    /// Its job was cancelled before it started.
    Cancelled,
    /// The schedule was deleted.
    Deleted,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Misfire, Self::Overlap, Self::Paused, Self::Cancelled, Self::Deleted];

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Misfire => "misfire",
            Self::Overlap => "overlap",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
            Self::Deleted => "deleted",
        }
    }
}

impl Entry {
    /// What became of a single instant.
    #[must_use]
    pub const fn single(at: Timestamp, outcome: Outcome, decided_at: Timestamp) -> Self {
        Self { from: at, to: at, count: 1, outcome, decided_at, rule: None }
    }

    /// What became of every nominal instant from `from` to `to`, both of which are nominal.
    pub(super) fn range(
        rule: &Arc<Rule>,
        calendar: Option<&Dates>,
        (from, to): (Timestamp, Timestamp),
        outcome: Outcome,
        decided_at: Timestamp,
    ) -> Self {
        if from == to {
            return Self::single(from, outcome, decided_at);
        }
        let mut entry = Self { from, to, count: 0, outcome, decided_at, rule: Some(Arc::clone(rule)) };
        let max = usize::try_from(LEDGER_RANGE_COUNT_MAX).unwrap_or(usize::MAX);
        entry.count =
            u32::try_from(entry.instants(calendar).take(max).count()).unwrap_or(LEDGER_RANGE_COUNT_MAX);
        entry
    }

    /// Whether the range reaches over `at`.
    #[must_use]
    pub fn covers(&self, at: Timestamp) -> bool {
        self.from <= at && at <= self.to
    }

    /// The instants, oldest first, found as they are asked for. A range is unfolded by the rule it was made
    /// by, with the zone's rules and the calendar of today.
    pub fn instants(&self, calendar: Option<&Dates>) -> impl Iterator<Item = Timestamp> {
        std::iter::successors(Some(self.from), move |at| {
            let next = next_nominal(self.rule.as_deref()?, calendar, *at)?.fire_at;
            (next <= self.to).then_some(next)
        })
    }

    /// The instants, newest first, found as they are asked for.
    pub fn instants_newest_first(&self, calendar: Option<&Dates>) -> impl Iterator<Item = Timestamp> {
        std::iter::successors(Some(self.to), move |at| {
            let previous = prev_nominal(self.rule.as_deref()?, calendar, *at)?.fire_at;
            (previous >= self.from).then_some(previous)
        })
    }
}
