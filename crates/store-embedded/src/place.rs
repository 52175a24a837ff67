//! Where a job's record lies, which follows from the job alone.

use std::hash::{Hash, Hasher};

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{ScheduleId, Upcoming};
use tidewheel_core::time::Timestamp;

use crate::keys;
use crate::kv::{Batch, Day, Keyspace, Slice};

/// Which job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobKey {
    pub(crate) id: JobId,
    pub(crate) tenant: Tenant,
}

impl JobKey {
    pub(crate) fn of(job: &Job) -> Self {
        Self { id: job.id, tenant: job.tenant.clone() }
    }

    pub(crate) fn tag(&self) -> JobTag {
        self.lent().tag()
    }

    pub(crate) fn natural(&self, shards: u16) -> Vec<u8> {
        self.lent().natural(shards)
    }

    pub(crate) fn lent(&self) -> LentKey<'_> {
        LentKey { id: self.id, tenant: &self.tenant }
    }
}

/// The same, as a part of something else: the count of a tenant's name is not touched for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LentKey<'a> {
    pub(crate) id: JobId,
    pub(crate) tenant: &'a Tenant,
}

impl<'a> LentKey<'a> {
    pub(crate) fn of(job: &'a Job) -> Self {
        Self { id: job.id, tenant: &job.tenant }
    }

    pub(crate) fn of_upcoming(upcoming: &'a Upcoming) -> Option<Self> {
        let schedule = upcoming.schedule();
        schedule.next.map(|next| Self { id: next.job_id, tenant: &schedule.tenant })
    }

    pub(crate) fn tag(self) -> JobTag {
        JobTag::new(self.tenant, self.id)
    }

    pub(crate) fn natural(self, shards: u16) -> Vec<u8> {
        keys::job(shards, self.tenant, self.id)
    }

    /// The same, put together in `scratch`.
    fn natural_slice(self, shards: u16, scratch: &mut Vec<u8>) -> Slice {
        keys::job_slice(shards, self.tenant, self.id, scratch)
    }
}

/// Tells jobs apart in memory. Copied freely, where copying a key would touch the count of a tenant's name, which
/// all threads share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobTag {
    id: JobId,
    tenant: u64,
}

impl JobTag {
    pub(crate) fn new(tenant: &Tenant, id: JobId) -> Self {
        Self { id, tenant: tenant.digest() }
    }

    pub(crate) fn of(job: &Job) -> Self {
        Self::new(&job.tenant, job.id)
    }
}

/// The id's tail is random enough for a hash; equality looks at the tenant too.
impl Hash for JobTag {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.id.spread());
    }
}

/// Which schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScheduleKey {
    pub(crate) tenant: Tenant,
    pub(crate) id: ScheduleId,
}

impl ScheduleKey {
    /// The schedule a job came from.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        let id = job.spec.occurrence.as_ref()?.schedule_id;
        Some(Self { tenant: job.tenant.clone(), id })
    }

    pub(crate) fn tag(&self) -> ScheduleTag {
        ScheduleTag::new(&self.tenant, self.id)
    }
}

/// Tells schedules apart in memory; like [`JobTag`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScheduleTag {
    id: ScheduleId,
    tenant: u64,
}

impl ScheduleTag {
    pub(crate) fn new(tenant: &Tenant, id: ScheduleId) -> Self {
        Self { id, tenant: tenant.digest() }
    }

    /// The schedule a job came from.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        let id = job.spec.occurrence.as_ref()?.schedule_id;
        Some(Self::new(&job.tenant, id))
    }
}

/// The id is random enough for a hash; equality looks at the tenant too.
impl Hash for ScheduleTag {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = *self.id.as_bytes();
        state.write_u64(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    }
}

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In `waiting`, under its natural key.
    Home,
    /// In `parked`, with a timer entry in `waiting`.
    Parked(Timestamp),
    /// In `dead`.
    Dead,
    /// In the history of a day.
    History(Day),
}

impl Place {
    /// A running job's record stays where it waited.
    pub(crate) fn of(job: &Job) -> Self {
        let status = &job.status;
        match status.state {
            State::Scheduled | State::Retrying | State::Running if keys::is_home(status.due_at, job.id) => {
                Self::Home
            }
            State::Scheduled | State::Retrying | State::Running => Self::Parked(status.due_at),
            State::Dead => Self::Dead,
            State::Succeeded | State::Cancelled | State::Skipped | State::Expired => {
                Self::History(Day::of(status.finished_at.unwrap_or(status.due_at)))
            }
        }
    }

    pub(crate) fn day(self) -> Option<Day> {
        match self {
            Self::History(day) => Some(day),
            Self::Home | Self::Parked(_) | Self::Dead => None,
        }
    }

    fn keyspace(self) -> Keyspace {
        match self {
            Self::Home => Keyspace::Waiting,
            Self::Parked(_) => Keyspace::Parked,
            Self::Dead => Keyspace::Dead,
            Self::History(day) => Keyspace::History(day),
        }
    }

    fn timer(self, key: LentKey<'_>, shards: u16) -> Option<Vec<u8>> {
        match self {
            Self::Parked(at) => Some(keys::timer(shards, key.tenant, at, key.id)),
            Self::Home | Self::Dead | Self::History(_) => None,
        }
    }
}

/// Writes what it takes to move a record from one place to another, changed or not.
pub(crate) fn write_move(
    batch: &mut Batch,
    scratch: &mut Vec<u8>,
    (shards, key): (u16, LentKey<'_>),
    from: Option<Place>,
    to: Option<(Place, Slice)>,
) {
    let natural = key.natural_slice(shards, scratch);
    let old_timer = from.and_then(|from| from.timer(key, shards));
    let new_timer = to.as_ref().and_then(|(to, _)| to.timer(key, shards));
    if let Some(old) = old_timer.as_ref().filter(|old| Some(*old) != new_timer.as_ref()) {
        batch.delete(Keyspace::Waiting, old.clone());
    }
    if let Some(new) = new_timer.filter(|new| Some(new) != old_timer.as_ref()) {
        batch.put(Keyspace::Waiting, new, Slice::empty());
    }
    let new_keyspace = to.as_ref().map(|(to, _)| to.keyspace());
    if let Some(old) = from.map(Place::keyspace).filter(|old| Some(*old) != new_keyspace) {
        batch.delete(old, natural.clone());
    }
    if let Some((to, record)) = to {
        batch.put(to.keyspace(), natural, record);
    }
}
