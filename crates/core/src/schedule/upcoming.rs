//! An occurrence that nobody has made a job of yet. Those of a herd are all stored when the ones before them are claimed, and
//! are looked at by nobody for an hour: all that a job would say of them is what their schedule says.

use std::sync::Arc;

use super::occurrence::occurrence_job;
use super::{Next, Schedule};
use crate::job::Job;
use crate::time::Timestamp;

/// The occurrence a schedule waits for, as a job that is made at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Upcoming {
    /// It waits for something.
    schedule: Arc<Schedule>,
    created_at: Timestamp,
}

impl Upcoming {
    /// What the schedule waits for, if it does, as a job that is made at `created_at`.
    #[must_use]
    pub fn of(schedule: &Arc<Schedule>, created_at: Timestamp) -> Option<Self> {
        schedule.next.map(|_| Self { schedule: Arc::clone(schedule), created_at })
    }

    /// Which occurrence.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        self.schedule.next
    }

    /// Whose it is, and what it asks for.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// When its job is made.
    #[must_use]
    pub const fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> Option<Job> {
        self.schedule.next_job(self.created_at)
    }
}

impl Schedule {
    /// The job of the occurrence it waits for, as one that is made at `created_at`.
    #[must_use]
    pub fn next_job(&self, created_at: Timestamp) -> Option<Job> {
        let Next { fire_at, run_at, catch_up, .. } = self.next?;
        Some(occurrence_job(self, fire_at, run_at, catch_up, created_at))
    }
}
