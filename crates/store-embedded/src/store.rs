//! The store itself: hands writes to the commit thread and reads to the blocking pool.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Applied, Checkpoint, Counts, Due, DuePage, Error, Health, HeldKey, IdempotencyClaim, KeyClaimed, Layout,
    ListQuery, OnConflict, Order, Page, Refusal, Store, Submission, Submitted, TenantDue,
};
use tokio::sync::{mpsc, oneshot};

use crate::commit::{Arrival, Committer, Disk, Known, QUEUE_COUNT_MAX, Reply, Request, Writer};
use crate::fjall_kv::FjallKv;
use crate::kv::{Durability, Kv};
use crate::options::{OpenError, Options};
use crate::place::{JobKey, JobTag};
use crate::read::{Reader, read_ahead};
use crate::record;
use crate::rules::Rules;
use crate::shared::{Shared, read_error};
use crate::view::Published;

/// Claims of at least so many jobs of schedules read these before they queue for the commit thread.
const LOOK_AHEAD_COUNT_MIN: usize = 16;
/// Of so many claims it is asked first whether their schedules have been read: what is claimed together was mostly read
/// together.
const LOOK_AHEAD_SAMPLE_COUNT: usize = 16;

/// Jobs in one folder, for one process.
pub struct EmbeddedStore {
    pub(crate) shared: Arc<Shared>,
    requests: Option<mpsc::Sender<Request>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens the store in a folder, making it if it is not there.
    ///
    /// # Errors
    /// When another process has it open, it was made with other settings, or it is damaged.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let kv = FjallKv::open(&options.path, options.cache_bytes)
            .map_err(|error| OpenError::from_kv(options.path.clone(), error))?;
        Self::open_on(Arc::new(kv), options)
    }

    /// Opens the store on an engine of the caller's choice; `options.path` is then only named in errors.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(kv: Arc<dyn Kv>, options: Options) -> Result<Self, OpenError> {
        let found = crate::open::open(&kv, &options.path, options.shards)?;
        let shared = Arc::new(Shared::new(
            options.shards,
            Arc::clone(&kv),
            Rules::new(options.zones),
            found.remembered,
        ));
        shared.view.publish(Published { running: found.running, ..Published::default() });
        let durability = if options.danger_no_sync { Durability::Buffered } else { Durability::Synced };
        let disk = Disk { shared: Arc::clone(&shared), kv, durability, on_commit: options.on_commit };
        let not_started =
            |error: std::io::Error| OpenError::Io { path: options.path.clone(), reason: error.to_string() };
        let committer = Committer {
            writer: Writer::start(disk.clone()).map_err(not_started)?,
            disk,
            writing: VecDeque::new(),
            epoch: found.epoch,
            spare: Vec::new(),
            scratch: Vec::new(),
            next_claim: found.next_claim,
            retrying_at_home: found.retrying_at_home,
            claims: found.claims,
            holding: found.holding,
            next_entry: found.next_entry,
            document_change: found.document_change,
            trail: found.trail.recording(options.audit_changes),
            known: Known::default(),
            calendars: FxHashMap::default(),
        };
        let (sender, receiver) = mpsc::channel(QUEUE_COUNT_MAX);
        let thread = std::thread::Builder::new()
            .name("tidewheel-commit".to_owned())
            .spawn(move || committer.run(receiver))
            .map_err(not_started)?;
        Ok(Self { shared, requests: Some(sender), thread: Mutex::new(Some(thread)) })
    }

    /// Bytes taken on disk.
    ///
    /// # Errors
    /// When the store is closed or the engine cannot tell.
    pub fn disk_bytes(&self) -> Result<u64, Error> {
        self.shared.kv()?.disk_bytes().map_err(read_error)
    }

    pub(crate) async fn request<T>(&self, make: impl FnOnce(Reply<T>) -> Request) -> Result<T, Error> {
        drop(self.shared.kv()?);
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or(Error::Closed)?;
        requests.send(make(reply)).await.map_err(|_| self.gone())?;
        answer.await.map_err(|_| self.gone())?
    }

    /// Reads the schedules that many claims will ask for, beside the commit thread.
    async fn look_ahead(&self, orders: &[Order]) -> Result<(), Error> {
        let claims = orders.iter().filter(|order| matches!(order.command, Command::Claim { .. }));
        let count = claims.clone().count();
        if count < LOOK_AHEAD_COUNT_MIN {
            return Ok(());
        }
        let Shared { view, ahead, .. } = &*self.shared;
        let tags = claims.map(|order| JobTag::new(&order.tenant, order.id));
        let sample = tags.clone().step_by(count.div_ceil(LOOK_AHEAD_SAMPLE_COUNT));
        if ahead.lacking(view.schedules_of(sample)).is_empty() {
            return Ok(());
        }
        let schedules = ahead.lacking(view.schedules_of(tags));
        if schedules.len() < LOOK_AHEAD_COUNT_MIN {
            return Ok(());
        }
        let (shared, kv) = (Arc::clone(&self.shared), self.shared.kv()?);
        let task = tokio::task::spawn_blocking(move || read_ahead(&shared, &*kv, schedules));
        task.await.map_err(|error| Error::Unavailable(format!("a read was interrupted: {error}")))
    }

    /// Why the commit thread does not answer.
    fn gone(&self) -> Error {
        match self.shared.kv() {
            Err(error) => error,
            Ok(_) => Error::Poisoned("the commit thread has stopped".to_owned()),
        }
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Reader<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.read_with(move |shared, kv| act(&Reader::begin(shared, kv))).await
    }

    async fn read_with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Shared, &dyn Kv) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = Arc::clone(&self.shared);
        let kv = shared.kv()?;
        let task = tokio::task::spawn_blocking(move || act(&shared, &*kv));
        task.await.map_err(|error| Error::Unavailable(format!("a read was interrupted: {error}")))?
    }
}

impl Drop for EmbeddedStore {
    /// Waits for the commit thread, so that the folder is free afterwards.
    fn drop(&mut self) {
        self.requests.take();
        self.shared.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!("the commit thread panicked");
        }
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn kind(&self) -> &'static str {
        "embedded"
    }

    fn layout(&self) -> Layout {
        Layout { shards: self.shared.shards }
    }

    async fn open_epoch(&self) -> Result<u64, Error> {
        self.request(|reply| Request::OpenEpoch { reply }).await
    }

    async fn submit(
        &self,
        now: Timestamp,
        jobs: Vec<Submission>,
        on_conflict: OnConflict,
    ) -> Result<Vec<Submitted>, Error> {
        let arrivals = jobs.into_iter().map(|Submission { job, key: claim, fresh }| Arrival {
            key: JobKey::of(&job),
            record: record::encode(&job).into(),
            job,
            claim,
            fresh,
        });
        let arrivals = arrivals.collect();
        self.request(|reply| Request::Submit { now, arrivals, on_conflict, reply }).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        epoch: Option<u64>,
        orders: Vec<Order>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Error> {
        self.look_ahead(&orders).await?;
        self.request(|reply| Request::Apply { now, epoch, orders, reply }).await
    }

    async fn next_bucket(&self, shard: Shard, from: Bucket, until: Bucket) -> Result<Option<Bucket>, Error> {
        self.read(move |reader| reader.next_bucket(shard, from, until)).await
    }

    async fn due_tenants(
        &self,
        shard: Shard,
        bucket: Bucket,
        after: Option<Tenant>,
        count_max: usize,
    ) -> Result<Vec<TenantDue>, Error> {
        self.read(move |reader| reader.due_tenants(shard, bucket, after.as_ref(), count_max)).await
    }

    async fn due(&self, due: Due) -> Result<DuePage, Error> {
        self.read_with(move |shared, kv| {
            let looking = shared.ahead.begin();
            Reader::begin(shared, kv).due(&due, &looking)
        })
        .await
    }

    async fn running(&self) -> Result<Vec<Job>, Error> {
        drop(self.shared.kv()?);
        Ok(self.shared.view.running())
    }

    async fn get(&self, tenant: &Tenant, ids: Vec<JobId>) -> Result<Vec<Option<Job>>, Error> {
        let tenant = tenant.clone();
        self.read(move |reader| reader.get(&tenant, &ids)).await
    }

    async fn find_key(&self, now: Timestamp, tenant: &Tenant, key: &str) -> Result<Option<HeldKey>, Error> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.read(move |reader| reader.find_key(now, &tenant, &key)).await
    }

    async fn claim_key(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        claim: IdempotencyClaim,
    ) -> Result<KeyClaimed, Error> {
        let tenant = tenant.clone();
        self.request(|reply| Request::ClaimKey { now, tenant, claim, reply }).await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, Error> {
        self.read(move |reader| reader.list(&query)).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        drop(self.shared.kv()?);
        Ok(self.shared.counters().of(tenant))
    }

    async fn busiest(&self, count_max: usize) -> Result<Vec<(Tenant, Counts)>, Error> {
        drop(self.shared.kv()?);
        Ok(self.shared.counters().busiest(count_max))
    }

    async fn save_checkpoints(&self, checkpoints: Vec<Checkpoint>) -> Result<(), Error> {
        self.request(|reply| Request::SaveCheckpoints { checkpoints, reply }).await
    }

    async fn checkpoints(&self) -> Result<Vec<Checkpoint>, Error> {
        self.read(|reader| reader.checkpoints()).await
    }

    async fn drop_history(&self, now: Timestamp, before: Timestamp) -> Result<u64, Error> {
        self.request(|reply| Request::DropHistory { now, before, reply }).await
    }

    fn health(&self) -> Health {
        self.shared.health()
    }

    async fn close(&self) -> Result<(), Error> {
        self.request(|reply| Request::Close { reply }).await
    }
}
