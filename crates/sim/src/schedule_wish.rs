//! What a client wants done with a schedule, and what the server told it.

use std::fmt;
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Definition, Schedule, ScheduleId, Timing};

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
#[derive(Clone, PartialEq)]
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
#[derive(Clone, PartialEq)]
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

/// Short, for a record that is read by people.
impl fmt::Debug for ScheduleWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.deed, self.id)?;
        self.definition.as_ref().map_or(Ok(()), |definition| write_definition(f, definition))
    }
}

/// Short, for a record that is read by people.
impl fmt::Debug for ScheduleAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deed, schedule, changed, jobs } = self;
        let (state, decided_until) = (schedule.state, schedule.decided_until.as_ms());
        write!(f, "{deed:?} {} changed {changed}: {state:?}, decided until {decided_until}", schedule.id)?;
        if let Some(next) = schedule.next {
            let times = [next.fire_at, next.run_at, next.covers_until].map(|at| at.as_ms());
            write!(f, ", next {} fires, runs, covers {times:?}", next.job_id)?;
        }
        write!(f, ", jobs {jobs:?}")?;
        write_definition(f, &schedule.definition)
    }
}

fn write_definition(f: &mut fmt::Formatter<'_>, definition: &Definition) -> fmt::Result {
    let Definition { rule, window_ms, misfire, overlap, .. } = definition;
    match &rule.timing {
        Timing::Cron(cron) => write!(f, ", cron {cron} in {}", rule.zone.name())?,
        Timing::Every { interval_ms, anchor } => write!(f, ", every {interval_ms} from {}", anchor.as_ms())?,
    }
    let ends = [rule.start_at, rule.end_at].map(|at| at.map(|at| at.as_ms()));
    write!(f, ", {:?}, from and until {ends:?}, {:?}", rule.dst, rule.exclude)?;
    write!(f, ", window {window_ms}, {misfire:?}, {overlap:?}")
}
