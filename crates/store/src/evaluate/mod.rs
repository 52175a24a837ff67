//! What an order does to a job, its schedule and the jobs beside it, worked out once for all stores.
//!
//! A store lends its [`Books`] to read from, gets the [`Changes`] of one order back, and writes them: all of
//! them in one durable batch, before it evaluates the next order. Nothing is written here, so an order whose
//! evaluation fails leaves no trace.

mod edit;
mod obey;
mod once;

use std::sync::Arc;

use smallvec::SmallVec;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, State, transition};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Definition, Entry, Schedule, ScheduleId, Upcoming};
use tidewheel_core::time::Timestamp;

pub use edit::edit;
pub use obey::obey;
pub use once::{claim_key, obey_once};

use crate::{Error, HeldKey, IdempotencyClaim, KeyUse};

/// What evaluating an order reads. The answers include all that was written by the orders before.
pub trait Books {
    /// A job.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_job(&mut self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, Error>;

    /// A schedule.
    ///
    /// # Errors
    /// When it cannot be read; [`Error::Corrupt`] if that is so for this schedule alone.
    fn read_schedule(&mut self, tenant: &Tenant, id: ScheduleId) -> Result<Option<Arc<Schedule>>, Error>;

    /// Whether an occurrence of the schedule may wait for the end of another, as far as is known without reading the
    /// schedule. If not, the end of a job that has been started is nothing to it.
    fn may_hold(&mut self, tenant: &Tenant, id: ScheduleId) -> bool {
        let _ = (tenant, id);
        true
    }

    /// There is no schedule of that id yet; it is about to be made.
    fn add_schedule(&mut self, tenant: &Tenant, id: ScheduleId);

    /// A calendar.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_calendar(&mut self, tenant: &Tenant, name: &str) -> Result<Option<Arc<Dates>>, Error>;

    /// The schedule of that name.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_name(&mut self, tenant: &Tenant, name: &Arc<str>) -> Result<Option<ScheduleId>, Error>;

    /// What that key was used for, while its time is not over.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_key(&mut self, now: Timestamp, tenant: &Tenant, key: &Arc<str>)
    -> Result<Option<HeldKey>, Error>;
}

/// What one order writes. All of it belongs to one tenant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Jobs as they are now, each once. Nearly always one.
    pub jobs: SmallVec<[JobChange; 1]>,
    /// An occurrence the schedule waits for from now on. Nothing has the id of its job yet, and none of the jobs above.
    pub next: Option<Upcoming>,
    /// The schedule as it is now. A new or lost name follows from it.
    pub schedule: Option<ScheduleChange>,
    /// New entries of its ledger, oldest decision first; never without the schedule.
    pub entries: SmallVec<[Entry; 1]>,
    /// A key that is taken from now on, and what for.
    pub key: Option<(KeyUse, IdempotencyClaim)>,
}

/// A job as it is now.
#[derive(Debug, Clone, PartialEq)]
pub enum JobChange {
    /// Stored, in place of what has its id.
    Put(Arc<Job>),
    /// Stored; nothing has its id.
    New(Arc<Job>),
    /// Gone.
    Removed(JobId),
}

/// A schedule as it is now.
#[derive(Debug, Clone, PartialEq)]
pub enum ScheduleChange {
    /// Stored, in place of what has its id.
    Put(Arc<Schedule>),
    /// Gone, and its ledger with it.
    Removed(ScheduleId),
}

impl JobChange {
    /// Which job.
    #[must_use]
    pub fn id(&self) -> JobId {
        match self {
            Self::Put(job) | Self::New(job) => job.id,
            Self::Removed(id) => *id,
        }
    }
}

impl Changes {
    /// Puts the next occurrence among the jobs, for stores that keep it as they keep others.
    pub fn make_next(&mut self) {
        if let Some(job) = self.next.take().and_then(|next| next.job()) {
            self.jobs.insert(0, JobChange::New(Arc::new(job)));
        }
    }

    fn put(&mut self, job: Arc<Job>) {
        self.note(JobChange::Put(job));
    }

    fn note(&mut self, change: JobChange) {
        match self.jobs.iter_mut().find(|known| known.id() == change.id()) {
            Some(known) => *known = change,
            None => self.jobs.push(change),
        }
    }

    /// A job as this order leaves it.
    fn job(&self, books: &mut impl Books, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, Error> {
        match self.jobs.iter().find(|known| known.id() == id) {
            Some(JobChange::Put(job) | JobChange::New(job)) => Ok(Some(Arc::clone(job))),
            Some(JobChange::Removed(_)) => Ok(None),
            None => books.read_job(tenant, id),
        }
    }

    /// Those of `ids` that are there and have not ended.
    fn unfinished(
        &self,
        books: &mut impl Books,
        tenant: &Tenant,
        ids: &[JobId],
    ) -> Result<Vec<JobId>, Error> {
        let mut unfinished = Vec::new();
        for id in ids {
            let job = self.job(books, tenant, *id)?;
            unfinished.extend(job.filter(|job| !job.status.state.is_finished()).map(|job| job.id));
        }
        Ok(unfinished)
    }

    /// Calls a job off, if it is there and has not ended.
    fn cancel(
        &mut self,
        books: &mut impl Books,
        tenant: &Tenant,
        id: JobId,
        now: Timestamp,
    ) -> Result<Option<Arc<Job>>, Error> {
        let job = self.job(books, tenant, id)?;
        let change = job.and_then(|job| transition(&job, &Command::Cancel, now).ok());
        let Some(tidewheel_core::job::Change::To(cancelled)) = change else { return Ok(None) };
        let cancelled = Arc::new(cancelled);
        self.put(Arc::clone(&cancelled));
        Ok(Some(cancelled))
    }

    /// Takes a waiting job out as if it had never been made; gives it as `cancelled`.
    fn withdraw(
        &mut self,
        books: &mut impl Books,
        tenant: &Tenant,
        id: JobId,
        now: Timestamp,
    ) -> Result<Option<Job>, Error> {
        let job = self.job(books, tenant, id)?;
        let Some(job) = job.filter(|job| job.armed_at().is_some()) else { return Ok(None) };
        let mut job = Job::clone(&job);
        self.note(JobChange::Removed(id));
        job.status.state = State::Cancelled;
        job.status.finished_at = Some(now);
        Ok(Some(job))
    }
}

/// The dates of the calendar a definition names.
fn calendar_of(
    books: &mut impl Books,
    tenant: &Tenant,
    definition: &Definition,
) -> Result<Option<Arc<Dates>>, Error> {
    match &definition.rule.exclude.calendar {
        Some(name) => books.read_calendar(tenant, name),
        None => Ok(None),
    }
}
