//! Opening reads what runs, not what waits.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tidewheel_core::job::Command;
use tidewheel_store::{OnConflict, Store};
use tidewheel_store_embedded::faulty::FaultyKv;
use tidewheel_store_embedded::kv::{
    Batch, Direction, Durability, Keyspace, Kv, KvError, Snapshot, Space, Visit,
};
use tidewheel_store_embedded::{EmbeddedStore, Options, bare};

use crate::workload;

/// Counts what is read.
struct CountingKv {
    inner: FaultyKv,
    reads: Arc<AtomicUsize>,
}

struct CountingSnapshot<'a> {
    inner: Box<dyn Snapshot + 'a>,
    reads: &'a AtomicUsize,
}

impl Kv for CountingKv {
    fn create(&self, keyspace: Keyspace) -> Result<(), KvError> {
        self.inner.create(keyspace)
    }
    fn remove(&self, keyspace: Keyspace) -> Result<(), KvError> {
        self.inner.remove(keyspace)
    }
    fn keyspaces(&self) -> Vec<Keyspace> {
        self.inner.keyspaces()
    }
    fn commit(&self, batch: Batch, durability: Durability) -> Result<(), KvError> {
        self.inner.commit(batch, durability)
    }
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.get(keyspace, key)
    }
    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(CountingSnapshot { inner: self.inner.snapshot(), reads: &self.reads })
    }
    fn disk_bytes(&self) -> Result<u64, KvError> {
        self.inner.disk_bytes()
    }
    fn space(&self) -> Option<Space> {
        None
    }
    fn close(&self) -> Result<(), KvError> {
        self.inner.close()
    }
}

impl Snapshot for CountingSnapshot<'_> {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.get(keyspace, key)
    }
    fn scan(
        &self,
        keyspace: Keyspace,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), KvError> {
        self.inner.scan(keyspace, range, direction, &mut |key, value| {
            self.reads.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }
}

/// Reads it takes to open a store with so many jobs, two of them running.
async fn reads_to_open(waiting: u64) -> usize {
    let kv = Arc::new(FaultyKv::default());
    let store = EmbeddedStore::open_on(kv.clone(), Options::new("memory")).unwrap();
    let jobs: Vec<_> = (0..waiting).map(|n| bare::sample(n, 16)).collect();
    let now = jobs[0].id.run_at().max(jobs[1].id.run_at());
    for batch in jobs.chunks(5_000) {
        let batch = batch
            .iter()
            .map(|job| tidewheel_store::Submission { job: job.clone(), key: None, fresh: false })
            .collect();
        store.submit(now, batch, OnConflict::KeepOthers).await.unwrap();
    }
    let claim = Command::Claim { epoch: 1, worker: "w".into(), lease_ms: 5_000, detached: false };
    let orders = jobs[..2].iter().map(|job| workload::order(job, claim.clone())).collect();
    store.apply(now, None, orders).await.unwrap();
    let reads = Arc::new(AtomicUsize::new(0));
    let kv = CountingKv { inner: FaultyKv::reopen(kv.image()), reads: Arc::clone(&reads) };
    let reopened = EmbeddedStore::open_on(Arc::new(kv), Options::new("memory")).unwrap();
    let to_open = reads.load(Ordering::Relaxed);
    assert_eq!(reopened.running().await.unwrap().len(), 2);
    assert_eq!(reopened.counts(None).await.unwrap().0.iter().sum::<u64>(), waiting);
    to_open
}

#[tokio::test]
async fn opening_reads_the_same_however_many_jobs_wait() {
    let few = reads_to_open(100).await;
    assert_eq!(few, reads_to_open(20_000).await);
    assert!(few < 100, "{few}");
}
