//! What a client wants done with a schedule, and what the server told it.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Definition, Schedule, ScheduleId};

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Make it.
    Create,
    /// Give it another definition.
    Update,
    /// Stop firing.
    Pause,
    /// Fire again.
    Resume,
    /// Remove it.
    Delete,
    /// Fire once, now.
    Trigger,
    /// Make up for past instants.
    Backfill,
}

/// A client asks for something.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleWish {
    /// Whose schedule.
    pub tenant: Tenant,
    /// Which schedule; for a creation, the id it is offered.
    pub id: ScheduleId,
    /// What.
    pub deed: Deed,
    /// What it is to be from then on.
    pub definition: Option<Arc<Definition>>,
}

/// What the server answered.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleAnswer {
    /// The answer is to this.
    pub deed: Deed,
    /// The schedule as it is now; for [`Deed::Delete`], as it was.
    pub schedule: Schedule,
    /// Whether this very call changed it.
    pub changed: bool,
    /// The jobs that changed with it.
    pub jobs: Vec<JobId>,
}
