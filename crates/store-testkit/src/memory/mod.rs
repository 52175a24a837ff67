//! The in-memory model of the contract: plain tables behind one lock, no threads, no clock of its own. It
//! shows what the other stores must do, and is the store of the simulator, whose nodes ([`MemoryStore::share`]), crashes
//! ([`MemoryStore::reopen`]) and faults ([`MemoryStore::with_faults`]) it knows.

mod audit;
mod books;
mod documents;
mod faults;
mod leases;
mod news;
mod plans;
mod schedules;
mod tables;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;

pub use faults::{Call, Failure, Fault, Faults, Passage, Wait, Written};

use news::Inbox;
use tables::Tables;
use tidewheel_store::{
    Applied, Checkpoint, Counts, Due, DuePage, Error, Health, HeldKey, IdempotencyClaim, KeyClaimed, Layout,
    Leases, ListQuery, OnConflict, Order, Page, Refusal, Store, Submission, Submitted, TenantDue,
};

/// What tells the time by which leases end.
type LeaseClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A handle on jobs kept in memory. The jobs outlive the handle: see [`Self::reopen`].
pub struct MemoryStore {
    layout: Layout,
    data: Arc<Mutex<Data>>,
    handle: u64,
    /// Whose handle it is, where several nodes share the jobs.
    node: u64,
    faults: Option<Arc<dyn Faults>>,
    clock: Option<LeaseClock>,
}

struct Data {
    /// The handles that are open, each with the news on their way to it.
    open: BTreeMap<u64, Inbox>,
    newest_handle: u64,
    tables: Tables,
}

impl Data {
    fn open_handle(&mut self) -> u64 {
        self.newest_handle += 1;
        self.open.insert(self.newest_handle, Inbox::default());
        self.newest_handle
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        let mut data = Data { open: BTreeMap::new(), newest_handle: 0, tables: Tables::new(layout) };
        let handle = data.open_handle();
        Self { layout, data: Arc::new(Mutex::new(data)), handle, node: 0, faults: None, clock: None }
    }

    /// The same store, asking `faults` about every call from now on, also after [`Self::reopen`].
    #[must_use]
    pub fn with_faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// The same store with a clock of its own, by which leases end for all its nodes.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// A handle for another node, beside this one, without faults.
    #[must_use]
    pub fn share(&self, node: u64) -> Self {
        Self { node, faults: None, ..self.beside(self.lock().open_handle()) }
    }

    /// A new handle on the same jobs, as after a crash: this one, and calls under way on it, answer
    /// [`Error::Closed`] from now on and change nothing any more. Those of other nodes stay as they are.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let mut data = self.lock();
        data.open.remove(&self.handle);
        let handle = data.open_handle();
        drop(data);
        self.beside(handle)
    }

    fn beside(&self, handle: u64) -> Self {
        Self {
            layout: self.layout,
            data: Arc::clone(&self.data),
            handle,
            node: self.node,
            faults: self.faults.clone(),
            clock: self.clock.clone(),
        }
    }

    /// By which leases end.
    fn lease_time(&self, now: Timestamp) -> Timestamp {
        self.clock.as_ref().map_or(now, |clock| clock())
    }

    /// Tells whoever looks on what was done.
    fn witness(&self, deeds: impl IntoIterator<Item = Written>) {
        if let Some(faults) = &self.faults {
            deeds.into_iter().for_each(|deed| faults.witness(deed));
        }
    }

    /// A call that may change jobs, and adds what it did to the audit trail.
    async fn change<T: Send>(
        &self,
        call: Call,
        now: Timestamp,
        act: impl FnOnce(&mut Tables, bool) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let shards = self.layout.shards;
        let sealed = |data: &mut Data, unfenced| {
            let answer = act(&mut data.tables, unfenced);
            data.tables.trail.seal(now, shards);
            answer
        };
        self.call_data(call, sealed).await
    }

    async fn call<T: Send>(
        &self,
        call: Call,
        act: impl FnOnce(&mut Tables) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        self.call_data(call, |data, _| act(&mut data.tables)).await
    }

    /// A call. What acts is told whether it is to mind fences.
    async fn call_data<T: Send>(
        &self,
        call: Call,
        act: impl FnOnce(&mut Data, bool) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        drop(self.open()?);
        let fault = self.faults.as_ref().map(|faults| faults.before(call)).unwrap_or_default();
        if let Some(wait) = fault.wait_before {
            wait.await;
        }
        if let Some(Failure::Before(error)) = fault.failure {
            return Err(error);
        }
        let answer = act(&mut *self.open()?, fault.unfenced);
        if let Some(wait) = fault.wait_after {
            wait.await;
        }
        drop(self.open()?);
        match fault.failure {
            Some(Failure::After(error)) => Err(error),
            Some(Failure::Before(_)) | None => answer,
        }
    }

    fn open(&self) -> Result<MutexGuard<'_, Data>, Error> {
        let data = self.lock();
        if data.open.contains_key(&self.handle) { Ok(data) } else { Err(Error::Closed) }
    }

    fn lock(&self) -> MutexGuard<'_, Data> {
        // No code that runs under the lock leaves the tables half changed.
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    async fn open_epoch(&self) -> Result<u64, Error> {
        self.call(Call::OpenEpoch, |tables| Ok(tables.open_epoch())).await
    }

    async fn submit(
        &self,
        now: Timestamp,
        jobs: Vec<Submission>,
        on_conflict: OnConflict,
    ) -> Result<Vec<Submitted>, Error> {
        self.change(Call::Submit, now, |tables, _| Ok(tables.submit(now, jobs, on_conflict))).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        epoch: Option<u64>,
        orders: Vec<Order>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Error> {
        self.change(Call::Apply, now, |tables, unfenced| {
            let lease_time = (!unfenced).then(|| self.lease_time(now));
            let is_unreadable =
                |order: &Order| self.faults.as_ref().is_some_and(|faults| faults.is_unreadable(order));
            let answers = tables.apply(now, epoch, &orders, lease_time, is_unreadable);
            let granted = orders.iter().zip(answers.iter().flatten());
            let deed = |(order, answer): (_, &Result<Applied, Refusal>)| {
                Written::of(order, answer.as_ref().ok()?, self.layout.shards)
            };
            self.witness(granted.filter_map(deed));
            answers
        })
        .await
    }

    async fn next_bucket(&self, shard: Shard, from: Bucket, until: Bucket) -> Result<Option<Bucket>, Error> {
        self.call(Call::NextBucket, |tables| Ok(tables.next_bucket(shard, from, until))).await
    }

    async fn due_tenants(
        &self,
        shard: Shard,
        bucket: Bucket,
        after: Option<Tenant>,
        count_max: usize,
    ) -> Result<Vec<TenantDue>, Error> {
        self.call(Call::DueTenants, |tables| Ok(tables.due_tenants(shard, bucket, after, count_max))).await
    }

    async fn due(&self, due: Due) -> Result<DuePage, Error> {
        self.call(Call::Due, |tables| Ok(tables.due(&due))).await
    }

    async fn running(&self) -> Result<Vec<Job>, Error> {
        self.call(Call::Running, |tables| Ok(tables.running())).await
    }

    async fn get(&self, tenant: &Tenant, ids: Vec<JobId>) -> Result<Vec<Option<Job>>, Error> {
        let is_damaged = |id: &JobId| self.faults.as_ref().is_some_and(|faults| faults.is_damaged(*id));
        let damaged = ids.iter().copied().find(is_damaged);
        self.call(Call::Get, |tables| match damaged {
            Some(id) => Err(Error::Corrupt(format!("job {id} of tenant {tenant}"))),
            None => Ok(ids.into_iter().map(|id| tables.job(tenant, id).cloned()).collect()),
        })
        .await
    }

    async fn find_key(&self, now: Timestamp, tenant: &Tenant, key: &str) -> Result<Option<HeldKey>, Error> {
        self.call(Call::FindKey, |tables| Ok(tables.find_key(now, tenant, key))).await
    }

    async fn claim_key(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        claim: IdempotencyClaim,
    ) -> Result<KeyClaimed, Error> {
        self.call(Call::ClaimKey, |tables| tables.claim_key(now, tenant, claim)).await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, Error> {
        self.call(Call::List, |tables| Ok(tables.list(&query))).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        self.call(Call::Counts, |tables| Ok(tables.counts(tenant))).await
    }

    async fn busiest(&self, count_max: usize) -> Result<Vec<(Tenant, Counts)>, Error> {
        self.call(Call::Counts, |tables| Ok(tables.busiest(count_max))).await
    }

    async fn save_checkpoints(&self, checkpoints: Vec<Checkpoint>) -> Result<(), Error> {
        self.call(Call::SaveCheckpoints, |tables| {
            tables.save_checkpoints(checkpoints);
            Ok(())
        })
        .await
    }

    async fn checkpoints(&self) -> Result<Vec<Checkpoint>, Error> {
        self.call(Call::Checkpoints, |tables| Ok(tables.checkpoints())).await
    }

    async fn drop_history(&self, now: Timestamp, before: Timestamp) -> Result<u64, Error> {
        self.call(Call::DropHistory, |tables| Ok(tables.drop_history(now, before))).await
    }

    fn health(&self) -> Health {
        self.faults.as_ref().map_or(Health::Ready, |faults| faults.health())
    }

    async fn close(&self) -> Result<(), Error> {
        self.call(Call::Close, |_| Ok(())).await?;
        self.open()?.open.remove(&self.handle);
        Ok(())
    }
}
