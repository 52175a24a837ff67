//! What a user asks of a schedule: when it fires ([`Rule`]), what it fires ([`Template`]), and what it does
//! when an instant is missed or the run before is not over.

use std::sync::Arc;

use bytes::Bytes;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::exclude::Exclude;
use crate::cron::{Cron, Dst, LastSpan, Span, Spans, UnknownZone, zone_in};
use crate::job::{Destination, Priority};
use crate::limits::{MISFIRE_CAP_COUNT_DEFAULT, MISFIRE_GRACE_MS_DEFAULT};
use crate::retry::RetryPolicy;
use crate::time::Timestamp;

/// All that a user says of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// When it fires. Shared with the ledger, whose ranges keep the rule they were made by.
    pub rule: Arc<Rule>,
    /// An occurrence starts within this of its nominal time; nought is at once.
    pub window_ms: i64,
    /// What becomes of instants that nobody was there to fire.
    pub misfire: Misfire,
    /// What becomes of an instant that comes while an earlier run is not over.
    pub overlap: Overlap,
    /// The job each occurrence is.
    pub template: Template,
    /// What the keys of its occurrences begin with; without one, its id.
    pub idempotency_key: Option<Arc<str>>,
    /// The user's words.
    pub note: Option<Box<str>>,
}

/// When a schedule fires: all that decides its nominal instants, save the dates of a named calendar.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The beat.
    pub timing: Timing,
    /// Where the wall clock hangs: for cron, and for what date an instant is on.
    pub zone: Zone,
    /// What a fixed time does when that clock is moved.
    pub dst: Dst,
    /// No fire before it.
    pub start_at: Option<Timestamp>,
    /// No fire after it.
    pub end_at: Option<Timestamp>,
    /// Dates it does not fire on.
    pub exclude: Exclude,
}

/// The beat of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub enum Timing {
    /// Whenever the wall clock shows it.
    Cron(Box<Cron>),
    /// At `anchor` and every whole number of intervals after it. The anchor is the rule's `start_at` or, without one,
    /// the moment the interval was asked for: [`super::create`] and [`super::update`] see to that, whatever it is
    /// given as. Each time the clock is set back it gets a millisecond more ([`super::set_back`]). Whoever previews a
    /// rule sets it by hand.
    Every {
        /// From one fire to the next.
        interval_ms: i64,
        /// Where counting begins.
        anchor: Timestamp,
    },
}

/// A time zone: its name, and the rules it has now. Two are equal when their names are, so that new rules
/// make no edit.
#[derive(Debug, Clone)]
pub struct Zone {
    name: Box<str>,
    rules: TimeZone,
    last_span: Arc<LastSpan>,
}

impl Zone {
    /// UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self::with_rules("UTC", TimeZone::UTC)
    }

    /// The zone of that exact name, by the rules in `database`.
    ///
    /// # Errors
    /// When there is none, with the name that looks most like it.
    pub fn named(database: &TimeZoneDatabase, name: &str) -> Result<Self, UnknownZone> {
        Ok(Self::with_rules(name, zone_in(database, name)?))
    }

    /// The zone of that name with these rules.
    #[must_use]
    pub fn with_rules(name: &str, rules: TimeZone) -> Self {
        Self { name: name.into(), rules, last_span: Arc::default() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its rules.
    #[must_use]
    pub const fn rules(&self) -> &TimeZone {
        &self.rules
    }
}

impl Spans for Zone {
    fn span_at(&self, second: i64) -> Option<Span> {
        self.last_span.span_at(&self.rules, second)
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

/// What becomes of instants that nobody was there to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfire {
    /// What to do about them.
    pub policy: MisfirePolicy,
    /// How late, after its window, an occurrence may start and still count as on time.
    pub grace_ms: i64,
}

impl Default for Misfire {
    fn default() -> Self {
        Self { policy: MisfirePolicy::default(), grace_ms: MISFIRE_GRACE_MS_DEFAULT }
    }
}

/// What to do about missed instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MisfirePolicy {
    /// Fire the newest `cap` of them, oldest first; the older ones are missed.
    FireAll {
        /// How many.
        cap: u32,
    },
    /// Fire the newest of them; the others are coalesced into it.
    #[default]
    FireLatest,
    /// Fire none of them.
    Skip,
}

impl MisfirePolicy {
    /// Fire all, up to the usual cap.
    pub const FIRE_ALL: Self = Self::FireAll { cap: MISFIRE_CAP_COUNT_DEFAULT };

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FireAll { .. } => "fire_all",
            Self::FireLatest => "fire_latest",
            Self::Skip => "skip",
        }
    }
}

/// What becomes of an instant that comes while an earlier run is not over (running, or waiting for another
/// attempt). Runs asked for by hand count; backfilled ones do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Overlap {
    /// It fires all the same.
    #[default]
    Allow,
    /// It is skipped.
    Skip,
    /// One waits until the earlier run is over; further ones are skipped.
    BufferOne,
    /// It fires, and the earlier run is cancelled.
    CancelRunning,
}

impl Overlap {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Allow, Self::Skip, Self::BufferOne, Self::CancelRunning];

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::BufferOne => "buffer_one",
            Self::CancelRunning => "cancel_running",
        }
    }

    /// The policy of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|overlap| overlap.as_str() == name)
    }
}

/// The job each occurrence is.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// The job's type.
    pub kind: Arc<str>,
    /// Opaque, kept byte for byte.
    pub payload: Bytes,
    /// Where it goes.
    pub destination: Destination,
    /// How urgent it is among what is due.
    pub priority: Priority,
    /// When to try again.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    pub timeout_ms: i64,
    /// The caller's labels, sorted by key.
    pub labels: Vec<(Box<str>, Box<str>)>,
}

impl Definition {
    /// The last instant that is missed at `now`: those before it, if nothing was decided about them, are
    /// misfires. An instant is on time until its window and its grace are over.
    pub(super) fn missed_before(&self, now: Timestamp) -> Timestamp {
        now.plus_ms(-(self.window_ms.saturating_add(self.misfire.grace_ms)))
    }
}
