//! The in-memory model of the contract: plain tables behind one lock, no threads, no clock of its own. It
//! shows what the other stores must do, and is the store of the simulator, whose crashes ([`MemoryStore::reopen`])
//! and faults ([`MemoryStore::with_faults`]) it knows.

mod audit;
mod books;
mod documents;
mod faults;
mod leases;
mod plans;
mod schedules;
mod tables;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;

pub use faults::{Call, Failure, Fault, Faults, Wait};

use crate::{
    Applied, Checkpoint, Counts, Due, DuePage, Error, Health, HeldKey, IdempotencyClaim, KeyClaimed, Layout,
    Leases, ListQuery, OnConflict, Order, Page, Refusal, Store, Submission, Submitted, TenantDue,
};
use tables::Tables;

/// A handle on jobs kept in memory. The jobs outlive the handle: see [`Self::reopen`].
pub struct MemoryStore {
    layout: Layout,
    data: Arc<Mutex<Data>>,
    handle: u64,
    faults: Option<Arc<dyn Faults>>,
}

struct Data {
    /// The one handle that is open; all others are closed.
    open_handle: u64,
    tables: Tables,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        let data = Data { open_handle: 0, tables: Tables::new(layout) };
        Self { layout, data: Arc::new(Mutex::new(data)), handle: 0, faults: None }
    }

    /// The same store, asking `faults` about every call from now on, also after [`Self::reopen`].
    #[must_use]
    pub fn with_faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// A new handle on the same jobs, as after a crash: this one, and calls under way on it, answer
    /// [`Error::Closed`] from now on and change nothing any more.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let mut data = self.lock();
        data.open_handle += 1;
        Self {
            layout: self.layout,
            data: Arc::clone(&self.data),
            handle: data.open_handle,
            faults: self.faults.clone(),
        }
    }

    /// A call that may change jobs, and adds what it did to the audit trail.
    async fn change<T: Send>(
        &self,
        call: Call,
        now: Timestamp,
        act: impl FnOnce(&mut Tables) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let shards = self.layout.shards;
        let sealed = |tables: &mut Tables| {
            let answer = act(tables);
            tables.trail.seal(now, shards);
            answer
        };
        self.call(call, sealed).await
    }

    async fn call<T: Send>(
        &self,
        call: Call,
        act: impl FnOnce(&mut Tables) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        drop(self.open()?);
        let fault = self.faults.as_ref().map(|faults| faults.before(call)).unwrap_or_default();
        if let Some(wait) = fault.wait_before {
            wait.await;
        }
        if let Some(Failure::Before(error)) = fault.failure {
            return Err(error);
        }
        let answer = act(&mut self.open()?.tables);
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
        if data.open_handle == self.handle { Ok(data) } else { Err(Error::Closed) }
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
        self.change(Call::Submit, now, |tables| Ok(tables.submit(now, jobs, on_conflict))).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        epoch: Option<u64>,
        orders: Vec<Order>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Error> {
        self.change(Call::Apply, now, |tables| tables.apply(now, epoch, orders)).await
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
        self.call(Call::Get, |tables| Ok(ids.into_iter().map(|id| tables.job(tenant, id).cloned()).collect()))
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
        Health::Ready
    }

    async fn close(&self) -> Result<(), Error> {
        self.call(Call::Close, |_| Ok(())).await?;
        self.open()?.open_handle += 1;
        Ok(())
    }
}
