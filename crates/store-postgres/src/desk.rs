//! What a transaction has read, and what its orders make of that: the books that orders are evaluated against
//! ([`tidewheel_store::evaluate`]). Evaluation cannot wait for the database, so something that has not been read yet is
//! noted as missing, and everything is evaluated again once it has: nothing is written before nothing is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Status};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Entry, Overlap, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_store::evaluate::{Books, Changes, JobChange, ScheduleChange};
use tidewheel_store::{Error, HeldKey, IdempotencyClaim, KeyUse};

pub(crate) type JobKey = (Tenant, JobId);
pub(crate) type ScheduleKey = (Tenant, ScheduleId);
/// A name, or a key, of a tenant.
pub(crate) type Named = (Tenant, Arc<str>);

/// A job as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredJob {
    pub(crate) job: Arc<Job>,
    pub(crate) mark: JobMark,
}

/// How far a job's events have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobMark {
    /// The number of the last event; 0 of a job nothing has happened to.
    pub(crate) seq: i32,
    /// The event that says what is asked for since it was changed.
    pub(crate) body_seq: Option<i32>,
    /// The shard it was put into.
    pub(crate) shard: i16,
}

impl JobMark {
    /// That of the next event, which may say anew what is asked for.
    pub(crate) fn next(self, is_amended: bool) -> Self {
        let seq = self.seq.saturating_add(1);
        Self { seq, body_seq: if is_amended { Some(seq) } else { self.body_seq }, ..self }
    }
}

/// Whether nothing has happened to a job yet.
pub(crate) fn is_fresh(job: &Job) -> bool {
    job.status == Status::scheduled(job.id.run_at())
}

/// What a look for a job found.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    Stored(StoredJob),
    /// It was taken out; made again, it goes on from there.
    Removed(JobMark),
    /// It is there, and cannot be read for this reason, which names it.
    Unreadable(String),
}

#[derive(Default)]
pub(crate) struct JobSlot {
    pub(crate) stored: Option<StoredJob>,
    /// Of a job that was taken out before.
    pub(crate) removed: Option<JobMark>,
    /// Of a job that is there, why it cannot be read: nothing is made of it.
    unreadable: Option<String>,
    pub(crate) now: Option<Arc<Job>>,
    pub(crate) changed: bool,
}

/// A schedule as it is stored.
pub(crate) enum StoredSchedule {
    Sound { schedule: Box<Schedule>, revision: i64 },
    Unreadable(String),
}

#[derive(Default)]
pub(crate) struct ScheduleSlot {
    pub(crate) stored: Option<StoredSchedule>,
    pub(crate) now: Option<Arc<Schedule>>,
    pub(crate) changed: bool,
    /// It was deleted, if perhaps made anew: its ledger goes.
    pub(crate) wiped: bool,
}

/// An idempotency key as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredKey {
    pub(crate) held: HeldKey,
    pub(crate) until: Timestamp,
}

#[derive(Default)]
pub(crate) struct KeySlot {
    pub(crate) stored: Option<StoredKey>,
    pub(crate) now: Option<StoredKey>,
}

/// What has to be read before the orders can be evaluated.
#[derive(Default)]
pub(crate) struct Missing {
    pub(crate) jobs: BTreeSet<JobKey>,
    pub(crate) schedules: BTreeSet<ScheduleKey>,
    pub(crate) names: BTreeSet<Named>,
    pub(crate) keys: BTreeSet<Named>,
    pub(crate) calendars: BTreeSet<Named>,
}

impl Missing {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
            && self.schedules.is_empty()
            && self.names.is_empty()
            && self.keys.is_empty()
            && self.calendars.is_empty()
    }
}

/// Sorted by key, so that all transactions touch what they share in the same order.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) jobs: BTreeMap<JobKey, JobSlot>,
    /// Some job that was read cannot be.
    has_unreadable: bool,
    pub(crate) schedules: BTreeMap<ScheduleKey, ScheduleSlot>,
    pub(crate) keys: BTreeMap<Named, KeySlot>,
    names: BTreeMap<Named, Option<ScheduleId>>,
    /// Names that orders have given or taken away.
    names_now: BTreeMap<Named, Option<ScheduleId>>,
    calendars: BTreeMap<Named, Option<Arc<Dates>>>,
    pub(crate) entries: Vec<(ScheduleKey, Entry)>,
    pub(crate) missing: Missing,
    /// Jobs that are made now are looked for, too: one of them was taken out before under the same id.
    looks_for_new: bool,
    /// Jobs that were not read, but are as they were last seen.
    recalled: BTreeSet<JobKey>,
}

fn not_read_yet() -> Error {
    Error::Unavailable("something has not been read yet".to_owned())
}

impl Desk {
    /// For the first round of a batch, or one that begins again.
    pub(crate) fn of_round(round: usize) -> Self {
        Self { looks_for_new: round > 0, ..Self::default() }
    }

    /// Forgets what orders did; what was read stays.
    pub(crate) fn begin(&mut self) {
        for slot in self.jobs.values_mut() {
            slot.now = slot.stored.as_ref().map(|stored| Arc::clone(&stored.job));
            slot.changed = false;
        }
        for slot in self.schedules.values_mut() {
            slot.now = slot.stored.as_ref().and_then(StoredSchedule::sound).cloned().map(Arc::new);
            slot.changed = false;
            slot.wiped = false;
        }
        for slot in self.keys.values_mut() {
            slot.now = slot.stored;
        }
        self.names_now.clear();
        self.entries.clear();
        self.missing = Missing::default();
    }

    pub(crate) fn add_job(&mut self, key: JobKey, found: Option<Found>) {
        let mut slot = JobSlot::default();
        match found {
            Some(Found::Stored(stored)) => {
                slot.now = Some(Arc::clone(&stored.job));
                slot.stored = Some(stored);
            }
            Some(Found::Removed(mark)) => slot.removed = Some(mark),
            Some(Found::Unreadable(reason)) => {
                slot.unreadable = Some(reason);
                self.has_unreadable = true;
            }
            None => {}
        }
        self.recalled.remove(&key);
        self.jobs.insert(key, slot);
    }

    /// Takes a job as it was last seen.
    pub(crate) fn add_recalled(&mut self, key: JobKey, stored: StoredJob) {
        self.add_job(key.clone(), Some(Found::Stored(stored)));
        self.recalled.insert(key);
    }

    /// Jobs that the orders leave as they were last seen: a change would find out whether that still holds, this must be
    /// read.
    pub(crate) fn doubtful(&self) -> BTreeSet<JobKey> {
        let is_unchanged = |key: &&JobKey| self.jobs.get(*key).is_none_or(|slot| !slot.changed);
        self.recalled.iter().filter(is_unchanged).cloned().collect()
    }

    pub(crate) fn add_schedule_read(&mut self, key: ScheduleKey, stored: Option<StoredSchedule>) {
        let now = stored.as_ref().and_then(StoredSchedule::sound).cloned();
        // Whether an earlier run is over is asked under the schedule's lock: what was read before it is read again.
        if now.as_ref().is_some_and(|schedule| schedule.definition.overlap != Overlap::Allow) {
            self.jobs.retain(|job_key, slot| {
                job_key.0 != key.0 || slot.stored.as_ref().is_none_or(|stored| !is_of(&stored.job, key.1))
            });
        }
        self.schedules
            .insert(key, ScheduleSlot { stored, now: now.map(Arc::new), changed: false, wiped: false });
    }

    pub(crate) fn add_name(&mut self, name: Named, holder: Option<ScheduleId>) {
        self.names.insert(name, holder);
    }

    pub(crate) fn add_key(&mut self, key: Named, stored: Option<StoredKey>) {
        self.keys.insert(key, KeySlot { stored, now: stored });
    }

    pub(crate) fn add_calendar(&mut self, name: Named, dates: Option<Arc<Dates>>) {
        self.calendars.insert(name, dates);
    }

    /// A job as the orders so far leave it.
    pub(crate) fn job(&mut self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, Error> {
        let key = (tenant.clone(), id);
        match self.jobs.get(&key) {
            Some(JobSlot { unreadable: Some(reason), .. }) => Err(Error::Corrupt(reason.clone())),
            Some(slot) => Ok(slot.now.clone()),
            None => {
                self.missing.jobs.insert(key);
                Err(not_read_yet())
            }
        }
    }

    /// Stores a job, or takes it out.
    pub(crate) fn set_job(&mut self, key: JobKey, job: Option<Arc<Job>>) {
        let slot = self.jobs.entry(key).or_default();
        slot.now = job;
        slot.changed = true;
    }

    pub(crate) fn key(&mut self, now: Timestamp, name: &Named) -> Result<Option<HeldKey>, Error> {
        match self.keys.get(name) {
            Some(slot) => Ok(slot.now.filter(|key| now < key.until).map(|key| key.held)),
            None => {
                self.missing.keys.insert(name.clone());
                Err(not_read_yet())
            }
        }
    }

    /// What a key is used for, if it is not free.
    pub(crate) fn held(&mut self, now: Timestamp, name: &Named) -> Result<Option<HeldKey>, Error> {
        let Some(held) = self.key(now, name)? else { return Ok(None) };
        let KeyUse::NewSchedule(id) = held.used_for else { return Ok(Some(held)) };
        match self.read_schedule(&name.0, id) {
            Ok(schedule) => Ok(schedule.map(|_| held)),
            Err(Error::Corrupt(_)) => Ok(Some(held)),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn set_key(&mut self, name: Named, key: Option<StoredKey>) -> Option<StoredKey> {
        std::mem::replace(&mut self.keys.entry(name).or_default().now, key)
    }

    pub(crate) fn take_key(
        &mut self,
        tenant: &Tenant,
        used_for: KeyUse,
        claim: IdempotencyClaim,
    ) -> Option<StoredKey> {
        let IdempotencyClaim { key, fingerprint, until } = claim;
        self.set_key(
            (tenant.clone(), key),
            Some(StoredKey { held: HeldKey { used_for, fingerprint }, until }),
        )
    }

    /// Takes in what one order changes: all of it, or nothing if that would replace a job that cannot be read.
    pub(crate) fn carry_out(&mut self, tenant: &Tenant, mut changes: Changes) -> Result<(), Error> {
        changes.make_next();
        for change in changes.jobs.iter().filter(|_| self.has_unreadable) {
            let slot = self.jobs.get(&(tenant.clone(), change.id()));
            if let Some(reason) = slot.and_then(|slot| slot.unreadable.as_ref()) {
                return Err(Error::Corrupt(reason.clone()));
            }
        }
        for change in changes.jobs {
            let key = (tenant.clone(), change.id());
            let is_looked_for = self.looks_for_new || !matches!(change, JobChange::New(_));
            if is_looked_for && !self.jobs.contains_key(&key) {
                self.missing.jobs.insert(key.clone());
            }
            match change {
                JobChange::Put(job) | JobChange::New(job) => self.set_job(key, Some(job)),
                JobChange::Removed(_) => self.set_job(key, None),
            }
        }
        match changes.schedule {
            None => {}
            Some(ScheduleChange::Removed(id)) => self.remove_schedule((tenant.clone(), id)),
            Some(ScheduleChange::Put(schedule)) => {
                let key = (tenant.clone(), schedule.id);
                self.put_schedule(key.clone(), schedule);
                self.entries.extend(changes.entries.into_iter().map(|entry| (key.clone(), entry)));
            }
        }
        if let Some((used_for, claim)) = changes.key {
            self.take_key(tenant, used_for, claim);
        }
        Ok(())
    }

    fn put_schedule(&mut self, key: ScheduleKey, schedule: Arc<Schedule>) {
        let slot = self.schedules.entry(key.clone()).or_default();
        let old_name = slot.now.as_ref().and_then(|old| old.name.clone());
        if old_name != schedule.name {
            if let Some(name) = old_name {
                self.names_now.insert((key.0.clone(), name), None);
            }
            if let Some(name) = schedule.name.clone() {
                self.names_now.insert((key.0, name), Some(key.1));
            }
        }
        slot.now = Some(schedule);
        slot.changed = true;
    }

    fn remove_schedule(&mut self, key: ScheduleKey) {
        let slot = self.schedules.entry(key.clone()).or_default();
        if let Some(name) = slot.now.take().and_then(|old| old.name.clone()) {
            self.names_now.insert((key.0.clone(), name), None);
        }
        slot.changed = true;
        slot.wiped = true;
        self.entries.retain(|(of, _)| *of != key);
    }
}

impl StoredSchedule {
    fn sound(&self) -> Option<&Schedule> {
        match self {
            Self::Sound { schedule, .. } => Some(schedule),
            Self::Unreadable(_) => None,
        }
    }
}

fn is_of(job: &Job, schedule: ScheduleId) -> bool {
    job.spec.occurrence.is_some_and(|occurrence| occurrence.schedule_id == schedule)
}

impl Books for Desk {
    fn read_job(&mut self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, Error> {
        self.job(tenant, id)
    }

    fn read_schedule(&mut self, tenant: &Tenant, id: ScheduleId) -> Result<Option<Arc<Schedule>>, Error> {
        let key = (tenant.clone(), id);
        match self.schedules.get(&key) {
            None => {
                self.missing.schedules.insert(key);
                Err(not_read_yet())
            }
            Some(ScheduleSlot {
                stored: Some(StoredSchedule::Unreadable(reason)), changed: false, ..
            }) => Err(Error::Corrupt(reason.clone())),
            Some(slot) => Ok(slot.now.clone()),
        }
    }

    fn add_schedule(&mut self, tenant: &Tenant, id: ScheduleId) {
        self.schedules.entry((tenant.clone(), id)).or_default();
    }

    fn read_calendar(&mut self, tenant: &Tenant, name: &str) -> Result<Option<Arc<Dates>>, Error> {
        let name = (tenant.clone(), Arc::from(name));
        match self.calendars.get(&name) {
            Some(dates) => Ok(dates.clone()),
            None => {
                self.missing.calendars.insert(name);
                Err(not_read_yet())
            }
        }
    }

    fn read_name(&mut self, tenant: &Tenant, name: &Arc<str>) -> Result<Option<ScheduleId>, Error> {
        let name = (tenant.clone(), Arc::clone(name));
        match self.names_now.get(&name).or_else(|| self.names.get(&name)) {
            Some(holder) => Ok(*holder),
            None => {
                self.missing.names.insert(name);
                Err(not_read_yet())
            }
        }
    }

    fn read_key(
        &mut self,
        now: Timestamp,
        tenant: &Tenant,
        key: &Arc<str>,
    ) -> Result<Option<HeldKey>, Error> {
        self.key(now, &(tenant.clone(), Arc::clone(key)))
    }
}
