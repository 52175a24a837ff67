//! The store: what the contract asks for jobs, each call handed to the file it belongs to.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Applied, Checkpoint, Counts, Cursor, Database as StoreDatabase, Due, DuePage, Error, Health, HeldKey,
    IdempotencyClaim, KeyClaimed, Layout, Leases, ListQuery, News, OnConflict, Order, Page, Refusal, Store,
    Submission, Submitted, TenantDue,
};

use crate::connections::{Connections, Lane};
use crate::desk::{Found, JobKey, StoredJob};
use crate::fault::Trouble;
use crate::history::MOVED_COUNT_MAX;
use crate::load::{find_jobs, find_keys, shard_column};
use crate::recall::Recall;
use crate::record::rule::Rules;
use crate::record::{self, Unreadable};
use crate::sql;
use crate::submit::{Submissions, Submitting};

/// The lease of whoever owns all shards at once.
pub(crate) const OWNERSHIP: &str = "all";

/// Jobs and schedules in PostgreSQL.
pub struct PostgresStore {
    pub(crate) database: Arc<Database>,
    pub(crate) submissions: Submissions,
    /// Ends with the store.
    pub(crate) upkeep: tokio::task::JoinHandle<()>,
}

/// What every call works with.
pub(crate) struct Database {
    pub(crate) connections: Arc<Connections>,
    pub(crate) rules: Rules,
    pub(crate) shards: u16,
    /// Jobs as they were last seen.
    pub(crate) recall: Arc<Recall>,
    /// Whether keys of submissions were in use when they were last looked at: then they are looked
    /// at first.
    pub(crate) keys_repeat: AtomicBool,
    /// Whether the audit trail has what became of every job.
    pub(crate) audit_changes: bool,
    /// The schema the tables stand in.
    pub(crate) schema: String,
    /// When days were last gone through that much outlives, by the day and how much may be moved out of one.
    pub(crate) kept_days: std::sync::Mutex<std::collections::BTreeMap<(i64, i64), Timestamp>>,
    /// What other nodes said.
    pub(crate) news: tokio::sync::Mutex<tokio::sync::mpsc::Receiver<Vec<News>>>,
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.upkeep.abort();
    }
}

/// For calls that write nothing that could be overtaken.
pub(crate) fn plain(trouble: Trouble) -> Error {
    match trouble {
        Trouble::Failed(error) | Trouble::Own(error) => error,
        Trouble::Raced => Error::Unavailable("another was faster; try again".to_owned()),
    }
}

#[derive(Serialize, Deserialize)]
struct CheckpointRecord {
    frontier: u32,
    cursors: Vec<(u32, String, i64, [u8; 16])>,
}

impl Database {
    async fn open_epoch_now(&self) -> Result<u64, Trouble> {
        let transaction = self.connections.begin(Lane::Scheduler).await?;
        let outcome = async {
            let client = transaction.client()?;
            let statement = client.prepare_cached(sql::OPEN_EPOCH).await?;
            let epoch: i64 = client.query_one(&statement, &[&OWNERSHIP]).await?.try_get(0)?;
            u64::try_from(epoch).map_err(|_| Unreadable::Nonsense("an epoch").into())
        }
        .await;
        transaction.end(outcome).await
    }

    async fn get_now(&self, tenant: &Tenant, ids: Vec<JobId>) -> Result<Vec<Option<Job>>, Trouble> {
        let keys: Vec<_> = ids.into_iter().map(|id| (tenant.clone(), id)).collect();
        let found = self.find_now(&keys).await?;
        Ok(found.into_iter().map(|found| found.map(|stored| Arc::unwrap_or_clone(stored.job))).collect())
    }

    async fn get_each_now(&self, now: Timestamp, keys: Vec<JobKey>) -> Result<Vec<Option<Job>>, Trouble> {
        let found = self.find_now(&keys).await?;
        let is_running = |stored: &&StoredJob| stored.job.status.running.is_some();
        let seen = keys.into_iter().zip(&found).filter_map(|(key, found)| {
            let running = found.as_ref().filter(is_running)?;
            Some((key, Some(running.clone())))
        });
        self.recall.note_written(now, seen.collect());
        Ok(found.into_iter().map(|found| found.map(|stored| Job::clone(&stored.job))).collect())
    }

    async fn find_now(&self, keys: &[JobKey]) -> Result<Vec<Option<StoredJob>>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let stored = |found| match found {
            Some(Found::Stored(stored)) => Ok(Some(stored)),
            Some(Found::Unreadable(reason)) => Err(Trouble::Own(Error::Corrupt(reason))),
            Some(Found::Removed(_)) | None => Ok(None),
        };
        find_jobs(&client, keys).await?.into_iter().map(stored).collect()
    }

    async fn find_key_now(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        key: &str,
    ) -> Result<Option<HeldKey>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let found = find_keys(&client, &[(tenant.clone(), Arc::from(key))]).await?;
        Ok(found.into_iter().flatten().find(|stored| now < stored.until).map(|stored| stored.held))
    }

    async fn save_checkpoints_now(&self, checkpoints: &[Checkpoint]) -> Result<(), Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        let shards: Vec<i16> = checkpoints.iter().map(|checkpoint| shard_column(checkpoint.shard)).collect();
        let records: Vec<Vec<u8>> = checkpoints.iter().map(encode_checkpoint).collect();
        let statement = client.prepare_cached(sql::SAVE_CHECKPOINTS).await?;
        client.execute(&statement, &[&shards, &records]).await?;
        Ok(())
    }

    async fn checkpoints_now(&self) -> Result<Vec<Checkpoint>, Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        let rows = client.query("SELECT shard, record FROM checkpoints ORDER BY shard", &[]).await?;
        rows.iter().map(|row| read_checkpoint(row.try_get(0)?, row.try_get(1)?)).collect()
    }
}

fn encode_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    let cursors = checkpoint.cursors.iter().map(|cursor| {
        let Cursor { bucket, tenant, position } = cursor;
        (bucket.0, tenant.as_str().to_owned(), position.at.as_ms(), *position.id.as_bytes())
    });
    record::encode(&CheckpointRecord { frontier: checkpoint.frontier.0, cursors: cursors.collect() })
}

fn read_checkpoint(shard: i16, bytes: &[u8]) -> Result<Checkpoint, Trouble> {
    let nonsense = Unreadable::Nonsense("a checkpoint");
    let record: CheckpointRecord = record::decode(bytes, "a checkpoint")?;
    let cursors = record.cursors.into_iter().map(|(bucket, tenant, at, id)| {
        let tenant = Tenant::new(&tenant).map_err(|_| nonsense.clone())?;
        let position = Position { at: Timestamp::from_ms(at), id: JobId::from_bytes(id) };
        Ok(Cursor { bucket: Bucket(bucket), tenant, position })
    });
    let cursors = cursors.collect::<Result<Vec<_>, Unreadable>>()?;
    let shard = Shard(u16::try_from(shard).map_err(|_| nonsense)?);
    Ok(Checkpoint { shard, frontier: Bucket(record.frontier), cursors })
}

#[async_trait]
impl Store for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn layout(&self) -> Layout {
        Layout { shards: self.database.shards }
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn databases(&self) -> Vec<StoreDatabase> {
        let shards = StoreDatabase::shards_of(0, 1, self.database.shards);
        vec![StoreDatabase { index: 0, shards, is_reachable: true, health: self.health() }]
    }

    async fn open_epoch(&self) -> Result<u64, Error> {
        self.database.connections.bounded(self.database.open_epoch_now()).await
    }

    async fn submit(
        &self,
        now: Timestamp,
        jobs: Vec<Submission>,
        on_conflict: OnConflict,
    ) -> Result<Vec<Submitted>, Error> {
        // Whatever it met with was noted where the transaction was made, which it may share with others.
        let submitted = async {
            self.submissions.submit(Submitting { now, jobs, on_conflict }).await.map_err(Trouble::Own)
        };
        self.database.connections.bounded(submitted).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        epoch: Option<u64>,
        orders: Vec<Order>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Error> {
        self.database.connections.bounded(self.database.apply_batch(now, epoch, &orders)).await
    }

    async fn next_bucket(&self, shard: Shard, from: Bucket, until: Bucket) -> Result<Option<Bucket>, Error> {
        self.database.connections.bounded(self.database.next_bucket_now(shard, from, until)).await
    }

    async fn due_tenants(
        &self,
        shard: Shard,
        bucket: Bucket,
        after: Option<Tenant>,
        count_max: usize,
    ) -> Result<Vec<TenantDue>, Error> {
        let read = self.database.due_tenants_now(shard, bucket, after.as_ref(), count_max);
        self.database.connections.bounded(read).await
    }

    async fn due(&self, due: Due) -> Result<DuePage, Error> {
        self.database.connections.bounded(self.database.due_now(&due)).await
    }

    async fn running(&self) -> Result<Vec<Job>, Error> {
        self.database.connections.bounded(self.database.running_now()).await
    }

    async fn get(&self, tenant: &Tenant, ids: Vec<JobId>) -> Result<Vec<Option<Job>>, Error> {
        self.database.connections.bounded(self.database.get_now(tenant, ids)).await
    }

    async fn get_each(&self, now: Timestamp, jobs: Vec<(Tenant, JobId)>) -> Result<Vec<Option<Job>>, Error> {
        self.database.connections.bounded(self.database.get_each_now(now, jobs)).await
    }

    async fn find_key(&self, now: Timestamp, tenant: &Tenant, key: &str) -> Result<Option<HeldKey>, Error> {
        self.database.connections.bounded(self.database.find_key_now(now, tenant, key)).await
    }

    async fn claim_key(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        claim: IdempotencyClaim,
    ) -> Result<KeyClaimed, Error> {
        self.database.connections.bounded(self.database.claim_one_key(now, tenant, &claim)).await
    }

    async fn list(&self, query: ListQuery) -> Result<Page, Error> {
        self.database.connections.bounded(self.database.list_now(&query)).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        self.database.connections.bounded(self.database.counts_now(tenant)).await
    }

    async fn busiest(&self, count_max: usize) -> Result<Vec<(Tenant, Counts)>, Error> {
        self.database.connections.bounded(self.database.busiest_now(count_max)).await
    }

    async fn save_checkpoints(&self, checkpoints: Vec<Checkpoint>) -> Result<(), Error> {
        self.database.connections.bounded(self.database.save_checkpoints_now(&checkpoints)).await
    }

    async fn checkpoints(&self) -> Result<Vec<Checkpoint>, Error> {
        self.database.connections.bounded(self.database.checkpoints_now()).await
    }

    async fn drop_history(&self, now: Timestamp, before: Timestamp) -> Result<u64, Error> {
        self.drop_history_moving(now, before, MOVED_COUNT_MAX).await
    }

    fn health(&self) -> Health {
        self.database.connections.health()
    }

    async fn close(&self) -> Result<(), Error> {
        if self.database.connections.is_closed() {
            return Err(Error::Closed);
        }
        self.database.connections.close();
        self.upkeep.abort();
        Ok(())
    }
}
