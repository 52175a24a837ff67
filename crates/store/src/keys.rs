//! What idempotency keys are used for. All calls of a tenant share one set of keys: a key that was used for one
//! request is a conflict for every other, whatever it asks for.

use std::fmt;

use tidewheel_core::id::JobId;
use tidewheel_core::schedule::ScheduleId;

/// What a key was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// To take this job in, to trigger a schedule that made it, or for an order it was given.
    Job(JobId),
    /// To make this schedule. Such a key is free again once the schedule is gone.
    NewSchedule(ScheduleId),
    /// For an order this schedule was given.
    Schedule(ScheduleId),
    /// For a call that is no single order.
    Call,
}

impl fmt::Display for KeyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(id) => write!(f, "a request about {id}"),
            Self::NewSchedule(id) | Self::Schedule(id) => write!(f, "a request about {id}"),
            Self::Call => f.write_str("a request about many things at once"),
        }
    }
}

/// A key in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldKey {
    /// What for.
    pub used_for: KeyUse,
    /// A digest of the request.
    pub fingerprint: [u8; 16],
}

/// What became of a key that was claimed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyClaimed {
    /// It is taken from now on, durably.
    New,
    /// The same request has it already.
    Repeat,
    /// A different request has it.
    Conflict(KeyUse),
}
