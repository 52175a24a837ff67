//! Cron expressions on civil time: what an expression means, when it fires next, and when it last did.
//!
//! An expression is five fields (minute, hour, day of month, month, day of week), or six with seconds first.
//! It says what a wall clock must show; a zone says when, if ever, that clock shows it. The two meet in
//! [`Cron::next_after`] and [`Cron::prev_before`], which are pure: the same arguments always give the same
//! answer, and the work they do is bounded.
//!
//! | file | what it holds |
//! |---|---|
//! | `parse` | text to fields, and what is refused |
//! | `error` | what a refusal says |
//! | `fields` | the fields as bit sets, and the search through the calendar |
//! | `min_gap` | how close together an expression can fire |
//! | `search` | the walk through a zone's changes, with the rules for gaps and folds |
//! | `span` | the stretches between those changes |
//! | `zone` | zone names, exactly as the time zone database spells them |

mod error;
mod fields;
mod min_gap;
mod parse;
mod search;
mod span;
#[cfg(test)]
mod tests;
mod zone;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use error::{Field, ParseError};
use fields::Fields;
pub use parse::EXPRESSION_BYTES_MAX;
pub use span::{LastSpan, Span, Spans};
pub(crate) use zone::nearest_zone;
pub use zone::{UnknownZone, zone, zone_in};

/// A cron expression that has been understood, and that does come due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: Box<str>,
    fields: Fields,
}

/// One instant at which a schedule fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fire {
    /// When, to the second.
    pub at: Timestamp,
    /// What a zone change has to do with it, if anything.
    pub note: Option<Note>,
}

/// Why a fire is not where, or not as often as, the expression alone would have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// Local times that a gap skipped run here, at the first instant after it.
    DstGap,
    /// The local time of this instant comes twice; this is one of the two passes.
    DstFold,
}

/// What a schedule does when its zone's clock is moved.
///
/// Both rules are about schedules with a fixed time: neither the minute nor the hour field begins with `*`.
/// The others follow real minutes whatever these say: a skipped time is skipped, a repeated one runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dst {
    /// When the clock is moved forward over the schedule's time.
    pub gap: Gap,
    /// When the clock is moved back and the schedule's time comes twice.
    pub fold: Fold,
}

/// A fixed time that falls in a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// Runs once right after the gap, however many of its times were skipped. A gap of three hours or more
    /// (a move across the date line) is not a daylight saving change, and is skipped all the same.
    #[default]
    NextValid,
    /// Does not run.
    Skip,
}

/// A fixed time that falls in a fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// Runs on the first pass only.
    #[default]
    First,
    /// Runs on both passes.
    Both,
}

impl Cron {
    /// Reads an expression. One whose dates never come (`0 0 30 2 *`) is refused like any other mistake.
    pub fn parse(expr: &str) -> Result<Cron, ParseError> {
        let fields = parse::fields(expr)?;
        Ok(Cron { text: expr.into(), fields })
    }

    /// Whether it means a time of the wall clock: neither the minute nor the hour begins with `*`.
    pub(crate) fn is_fixed_time(&self) -> bool {
        self.fields.fixed_time
    }

    /// The first fire strictly after `after`; none if there is none within the search's horizon of decades,
    /// which only a schedule whose every time falls in a skipped gap can bring about.
    pub fn next_after(&self, after: Timestamp, zone: &impl Spans, dst: Dst) -> Option<Fire> {
        search::next_after(&self.fields, after, zone, dst)
    }

    /// The last fire strictly before `before`: the inverse of [`Cron::next_after`], over the same fires.
    pub fn prev_before(&self, before: Timestamp, zone: &impl Spans, dst: Dst) -> Option<Fire> {
        search::prev_before(&self.fields, before, zone, dst)
    }

    /// The shortest time between two fires, as a wall clock that is never moved shows them. At most a year:
    /// what is rarer is not worth telling apart.
    pub fn min_gap_seconds(&self) -> u64 {
        min_gap::seconds(&self.fields)
    }
}

/// The expression as it was written.
impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
