//! Asking for lists of jobs.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;

/// Which jobs are wanted; an empty filter wants all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// In one of these states.
    pub states: Vec<State>,
    /// Of this type.
    pub kind: Option<Arc<str>>,
    /// For this queue.
    pub queue: Option<Arc<str>>,
    /// Made by this schedule.
    pub schedule: Option<ScheduleId>,
    /// With all of these labels.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// First set for this instant or later.
    pub from: Option<Timestamp>,
    /// First set for before this instant.
    pub to: Option<Timestamp>,
    /// Waiting, for this instant or an earlier one.
    pub due_by: Option<Timestamp>,
}

impl Filter {
    /// Whether `job` is wanted.
    #[must_use]
    pub fn matches(&self, job: &Job) -> bool {
        let first = job.id.run_at();
        self.wants_state(job.status.state)
            && self.kind.as_ref().is_none_or(|kind| *kind == job.spec.kind)
            && self.queue.as_ref().is_none_or(|queue| match &job.spec.destination {
                Destination::Queue(name) => name == queue,
                Destination::Target(_) => false,
            })
            && self.schedule.is_none_or(|id| job.spec.occurrence.is_some_and(|of| of.schedule_id == id))
            && self.labels.iter().all(|label| job.spec.labels.contains(label))
            && self.from.is_none_or(|from| from <= first)
            && self.to.is_none_or(|to| first < to)
            && self.due_by.is_none_or(|by| job.armed_at().is_some_and(|at| at <= by))
    }

    /// Whether jobs in `state` are wanted.
    #[must_use]
    pub fn wants_state(&self, state: State) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }
}

/// A question for a page of jobs.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// Whose jobs.
    pub tenant: Tenant,
    /// Which of them.
    pub filter: Filter,
    /// Where the last page ended.
    pub after: Option<PageCursor>,
    /// How many at most.
    pub count_max: usize,
}

/// Where a page ended: the last job looked at. The next page goes on below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCursor(pub JobId);

/// A page of jobs.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The jobs, latest first. May be short of the asked number, even empty, with a cursor to go on from.
    pub jobs: Vec<Job>,
    /// Where to go on; `None` at the end.
    pub next: Option<PageCursor>,
    /// How many records were looked at.
    pub looked: usize,
}
