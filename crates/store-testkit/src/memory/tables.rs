//! What the model keeps of jobs, and beside them only what is derived from them. Every change of a job goes
//! through [`Tables::replace`], so the derived tables cannot disagree with it. Schedules are in [`Plans`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, State};
use tidewheel_core::limits::LIST_SCAN_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::time::Timestamp;

use super::audit::Trail;
use super::documents::Shelf;
use super::leases::LeaseTable;
use super::plans::Plans;
use tidewheel_store::evaluate::{self, Changes, JobChange};
use tidewheel_store::{
    Applied, Checkpoint, Counts, Due, DuePage, Edited, Error, HeldKey, IdempotencyClaim, KeyClaimed, KeyUse,
    Layout, ListQuery, OnConflict, Order, Page, PageCursor, Refusal, ScheduleOrder, ScheduleRefusal,
    Submission, Submitted, TenantDue,
};

pub(super) struct Tables {
    layout: Layout,
    pub(super) leases: LeaseTable,
    /// The newest epoch of all shards.
    epoch: u64,
    jobs: BTreeMap<Tenant, BTreeMap<JobId, Job>>,
    /// What each tenant's keys were used for. A key outlives its job: it is there to refuse a second one.
    keys: BTreeMap<Tenant, BTreeMap<Arc<str>, Pointer>>,
    checkpoints: BTreeMap<Shard, Checkpoint>,
    pub(super) plans: Plans,
    pub(super) shelf: Shelf,
    pub(super) trail: Trail,
    /// Derived: the waiting jobs.
    armed: BTreeMap<(Shard, Bucket), BTreeMap<Tenant, BTreeSet<Position>>>,
    /// Derived: the running jobs.
    running: BTreeSet<(Tenant, JobId)>,
    /// Derived.
    counts: BTreeMap<Tenant, Counts>,
}

#[derive(Clone, Copy)]
struct Pointer {
    held: HeldKey,
    until: Timestamp,
}

/// How to take a submission back.
struct Undo {
    tenant: Tenant,
    id: JobId,
    key: Option<(Arc<str>, Option<Pointer>)>,
}

impl Tables {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            leases: LeaseTable::default(),
            epoch: 0,
            jobs: BTreeMap::new(),
            keys: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            plans: Plans::default(),
            shelf: Shelf::default(),
            trail: Trail::default(),
            armed: BTreeMap::new(),
            running: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    pub(super) fn open_epoch(&mut self) -> u64 {
        self.epoch = self.leases.open_epoch();
        self.epoch
    }

    pub(super) fn job(&self, tenant: &Tenant, id: JobId) -> Option<&Job> {
        self.jobs.get(tenant)?.get(&id)
    }

    pub(super) fn submit(
        &mut self,
        now: Timestamp,
        jobs: Vec<Submission>,
        on_conflict: OnConflict,
    ) -> Vec<Submitted> {
        let mut undos = Vec::new();
        let answers: Vec<_> =
            jobs.into_iter().map(|submission| self.take_in(now, submission, &mut undos)).collect();
        let conflicted = answers.iter().any(|answer| matches!(answer, Submitted::Conflict(_)));
        if conflicted && on_conflict == OnConflict::KeepNone {
            for undo in undos.into_iter().rev() {
                self.take_back(undo);
            }
        }
        answers
    }

    fn take_in(&mut self, now: Timestamp, submission: Submission, undos: &mut Vec<Undo>) -> Submitted {
        let Submission { job, key, .. } = submission;
        if self.job(&job.tenant, job.id).is_some() {
            return Submitted::New;
        }
        let mut undo = Undo { tenant: job.tenant.clone(), id: job.id, key: None };
        if let Some(IdempotencyClaim { key, fingerprint, until }) = key {
            match self.held(now, &job.tenant, &key) {
                Some(HeldKey { used_for: KeyUse::Job(id), fingerprint: first }) if first == fingerprint => {
                    return Submitted::Duplicate(id);
                }
                Some(there) => return Submitted::Conflict(there.used_for),
                None => {}
            }
            let held = HeldKey { used_for: KeyUse::Job(job.id), fingerprint };
            let keys = self.keys.entry(job.tenant.clone()).or_default();
            let before = keys.insert(Arc::clone(&key), Pointer { held, until });
            undo.key = Some((key, before));
        }
        self.replace(None, Some(job));
        undos.push(undo);
        Submitted::New
    }

    fn take_back(&mut self, undo: Undo) {
        let Undo { tenant, id, key } = undo;
        if let Some(job) = self.job(&tenant, id).cloned() {
            self.replace(Some(&job), None);
        }
        if let Some((key, before)) = key {
            let keys = self.keys.entry(tenant).or_default();
            match before {
                Some(before) => keys.insert(key, before),
                None => keys.remove(&key),
            };
        }
    }

    /// Applies orders; whether a lease is over is asked of `lease_time`, and without it of nobody. What `is_unreadable` is
    /// refused.
    pub(super) fn apply(
        &mut self,
        now: Timestamp,
        epoch: Option<u64>,
        orders: &[Order],
        lease_time: Option<Timestamp>,
        is_unreadable: impl Fn(&Order) -> bool,
    ) -> Result<Vec<Result<Applied, Refusal>>, Error> {
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Err(Error::Fenced);
        }
        let each = orders.iter().map(|order| {
            if is_unreadable(order) {
                Ok(Err(Refusal::Unreadable))
            } else {
                self.apply_one(now, order, lease_time)
            }
        });
        each.collect()
    }

    fn apply_one(
        &mut self,
        now: Timestamp,
        order: &Order,
        lease_time: Option<Timestamp>,
    ) -> Result<Result<Applied, Refusal>, Error> {
        if let Some(claim) = &order.key {
            let (answer, changes) = evaluate::obey_once(self, now, order, claim)?;
            self.carry_out(&order.tenant, changes);
            return Ok(answer);
        }
        if let (Command::Claim { epoch, .. }, Some(lease_time)) = (&order.command, lease_time)
            && !self.leases.allows(
                lease_time,
                Shard::of_job(&order.tenant, order.id, self.layout.shards),
                *epoch,
            )
        {
            return Ok(Err(Refusal::Fenced));
        }
        let Some(job) = self.job(&order.tenant, order.id).cloned().map(Arc::new) else {
            return Ok(Err(Refusal::NotFound));
        };
        let (answer, changes) = evaluate::obey(self, now, &job, &order.command)?;
        self.carry_out(&order.tenant, changes);
        Ok(answer)
    }

    pub(super) fn edit_schedules(
        &mut self,
        now: Timestamp,
        orders: Vec<ScheduleOrder>,
    ) -> Result<Vec<Result<Edited, ScheduleRefusal>>, Error> {
        orders
            .into_iter()
            .map(|order| {
                let tenant = order.tenant.clone();
                let (answer, changes) = evaluate::edit(self, now, order)?;
                self.carry_out(&tenant, changes);
                Ok(answer)
            })
            .collect()
    }

    pub(super) fn claim_key(
        &mut self,
        now: Timestamp,
        tenant: &Tenant,
        claim: IdempotencyClaim,
    ) -> Result<KeyClaimed, Error> {
        let (answer, changes) = evaluate::claim_key(self, now, tenant, claim)?;
        self.carry_out(tenant, changes);
        Ok(answer)
    }

    fn carry_out(&mut self, tenant: &Tenant, mut changes: Changes) {
        changes.make_next();
        for change in changes.jobs {
            let old = self.job(tenant, change.id()).cloned();
            debug_assert!(old.is_none() || !matches!(change, JobChange::New(_)), "{change:?} is not new");
            let new = match change {
                JobChange::Put(job) | JobChange::New(job) => Some(Job::clone(&job)),
                JobChange::Removed(_) => None,
            };
            self.replace(old.as_ref(), new);
        }
        self.plans.carry_out(tenant, changes.schedule, changes.entries.into_vec());
        if let Some((used_for, IdempotencyClaim { key, fingerprint, until })) = changes.key {
            let held = HeldKey { used_for, fingerprint };
            self.keys.entry(tenant.clone()).or_default().insert(key, Pointer { held, until });
        }
    }

    /// The one place where jobs change. `old` is what is there now.
    fn replace(&mut self, old: Option<&Job>, new: Option<Job>) {
        self.trail.note(old, new.as_ref());
        if let Some(old) = old {
            self.forget(old);
        }
        if let Some(new) = new {
            self.note(new);
        }
    }

    fn forget(&mut self, job: &Job) {
        if let Some(at) = job.armed_at() {
            let place = (Shard::of_job(&job.tenant, job.id, self.layout.shards), Bucket::of(at));
            let tenants = self.armed.entry(place).or_default();
            let positions = tenants.entry(job.tenant.clone()).or_default();
            positions.remove(&Position { at, id: job.id });
            if positions.is_empty() {
                tenants.remove(&job.tenant);
            }
            if tenants.is_empty() {
                self.armed.remove(&place);
            }
        }
        self.running.remove(&(job.tenant.clone(), job.id));
        if let Some(count) = self.count_mut(&job.tenant, job.status.state) {
            *count -= 1;
        }
        if let Some(jobs) = self.jobs.get_mut(&job.tenant) {
            jobs.remove(&job.id);
        }
    }

    fn note(&mut self, job: Job) {
        if let Some(at) = job.armed_at() {
            let place = (Shard::of_job(&job.tenant, job.id, self.layout.shards), Bucket::of(at));
            let tenants = self.armed.entry(place).or_default();
            tenants.entry(job.tenant.clone()).or_default().insert(Position { at, id: job.id });
        }
        if job.status.state == State::Running {
            self.running.insert((job.tenant.clone(), job.id));
        }
        if let Some(count) = self.count_mut(&job.tenant, job.status.state) {
            *count += 1;
        }
        self.jobs.entry(job.tenant.clone()).or_default().insert(job.id, job);
    }

    fn count_mut(&mut self, tenant: &Tenant, state: State) -> Option<&mut u64> {
        self.counts.entry(tenant.clone()).or_default().0.get_mut(state.index())
    }

    pub(super) fn next_bucket(&self, shard: Shard, from: Bucket, until: Bucket) -> Option<Bucket> {
        let ((of_shard, bucket), _) = self.armed.range((shard, from)..).next()?;
        (*of_shard == shard && *bucket <= until).then_some(*bucket)
    }

    pub(super) fn due_tenants(
        &self,
        shard: Shard,
        bucket: Bucket,
        after: Option<Tenant>,
        count_max: usize,
    ) -> Vec<TenantDue> {
        let Some(tenants) = self.armed.get(&(shard, bucket)) else { return Vec::new() };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        tenants
            .range((from, Bound::Unbounded))
            .filter_map(|(tenant, positions)| {
                let first_at = positions.first()?.at;
                Some(TenantDue { tenant: tenant.clone(), first_at })
            })
            .take(count_max)
            .collect()
    }

    pub(super) fn due(&self, due: &Due) -> DuePage {
        let mut page = DuePage::default();
        let mut bytes = 0;
        let from = due.after.map_or(Bound::Unbounded, Bound::Excluded);
        let tenants = self.armed.get(&(due.shard, due.bucket));
        let positions = tenants.and_then(|tenants| tenants.get(&due.tenant));
        for position in positions.into_iter().flat_map(|positions| positions.range((from, Bound::Unbounded)))
        {
            if position.at > due.until {
                page.next_at = Some(position.at);
                break;
            }
            let Some(job) = self.job(&due.tenant, position.id) else { continue };
            bytes += job.size_bytes();
            let full = page.jobs.len() >= due.count_max || bytes > due.bytes_max;
            if let Some(last) = page.jobs.last().filter(|_| full) {
                page.resume = Some(last.position());
                break;
            }
            page.jobs.push(Arc::new(job.clone()));
        }
        page
    }

    pub(super) fn running(&self) -> Vec<Job> {
        self.running
            .iter()
            .filter_map(|(tenant, id)| Some(self.job(tenant, *id)?.without_payload()))
            .collect()
    }

    pub(super) fn find_key(&self, now: Timestamp, tenant: &Tenant, key: &str) -> Option<HeldKey> {
        let there = self.keys.get(tenant)?.get(key)?;
        (now < there.until).then_some(there.held)
    }

    /// A key that is not free.
    fn held(&self, now: Timestamp, tenant: &Tenant, key: &str) -> Option<HeldKey> {
        self.find_key(now, tenant, key).filter(|held| match held.used_for {
            KeyUse::NewSchedule(id) => self.plans.schedule(tenant, id).is_some(),
            KeyUse::Job(_) | KeyUse::Schedule(_) | KeyUse::Call => true,
        })
    }

    pub(super) fn list(&self, query: &ListQuery) -> Page {
        let mut page = Page::default();
        let below = query.after.map_or(Bound::Unbounded, |cursor| Bound::Excluded(cursor.0));
        let mut last = None;
        let jobs = self.jobs.get(&query.tenant);
        let jobs = jobs.into_iter().flat_map(|jobs| jobs.range((Bound::Unbounded, below)).rev());
        let is_passed_over = |job: &Job| {
            let is_later = query.filter.due_by.is_some_and(|by| by < job.id.run_at());
            let is_home = job.status.due_at == job.id.run_at();
            (job.status.state == State::Scheduled && !query.filter.wants_state(State::Scheduled))
                || (is_later && is_home)
        };
        for (id, job) in jobs.filter(|(_, job)| !is_passed_over(job)) {
            if page.jobs.len() >= query.count_max || page.looked >= LIST_SCAN_COUNT_MAX {
                page.next = last;
                break;
            }
            last = Some(PageCursor(*id));
            page.looked += 1;
            if query.filter.matches(job) {
                page.jobs.push(job.clone());
            }
        }
        page
    }

    pub(super) fn counts(&self, tenant: Option<&Tenant>) -> Counts {
        if let Some(tenant) = tenant {
            return self.counts.get(tenant).copied().unwrap_or_default();
        }
        let mut sum = Counts::default();
        for counts in self.counts.values() {
            sum.0.iter_mut().zip(counts.0).for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    pub(super) fn busiest(&self, count_max: usize) -> Vec<(Tenant, Counts)> {
        Counts::busiest(self.counts.iter().map(|(tenant, counts)| (tenant.clone(), *counts)), count_max)
    }

    pub(super) fn save_checkpoints(&mut self, checkpoints: Vec<Checkpoint>) {
        self.checkpoints.extend(checkpoints.into_iter().map(|checkpoint| (checkpoint.shard, checkpoint)));
    }

    pub(super) fn checkpoints(&self) -> Vec<Checkpoint> {
        self.checkpoints.values().cloned().collect()
    }

    pub(super) fn drop_history(&mut self, now: Timestamp, before: Timestamp) -> u64 {
        let is_over = |job: &&Job| {
            let status = &job.status;
            let ended_before = status.finished_at.is_some_and(|finished_at| finished_at < before);
            status.state.is_finished() && status.state != State::Dead && ended_before
        };
        let over: Vec<_> = self.jobs.values().flat_map(BTreeMap::values).filter(is_over).cloned().collect();
        for job in &over {
            self.forget(job);
        }
        for keys in self.keys.values_mut() {
            keys.retain(|_, there| now < there.until);
        }
        self.plans.drop_history(before);
        u64::try_from(over.len()).unwrap_or(u64::MAX)
    }
}
