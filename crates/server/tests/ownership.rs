//! Which node has which shard: shared out evenly, handed over at once, lost in time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::ownership::{Moved, Ownership, SHARD_LEASE_MS, SHARD_RENEW_MS};
use tidewheel_store::memory::{Call, Failure, Fault, Faults, MemoryStore};
use tidewheel_store::{Error, Layout, NodeCard, Store};

const SHARDS: u16 = 64;

/// Stands still until it is turned.
#[derive(Default)]
struct HandClock(AtomicI64);

impl HandClock {
    fn turn(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(1_800_000_000_000 + self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

/// A store that can be out of reach.
#[derive(Default)]
struct Outage(AtomicBool);

impl Faults for Outage {
    fn before(&self, _: Call) -> Fault {
        let is_out = self.0.load(Ordering::SeqCst);
        let failure = is_out.then(|| Failure::Before(Error::Unavailable("out of reach".to_owned())));
        Fault { failure, ..Fault::default() }
    }
}

struct Cluster {
    store: Arc<dyn Store>,
    clock: Arc<HandClock>,
    outage: Arc<Outage>,
}

impl Cluster {
    fn new() -> Self {
        let outage = Arc::<Outage>::default();
        let store =
            MemoryStore::new(Layout { shards: SHARDS }).with_faults(Arc::clone(&outage) as Arc<dyn Faults>);
        Self { store: Arc::new(store), clock: Arc::default(), outage }
    }

    fn node(&self, id: &str) -> Ownership {
        let card = NodeCard { id: Arc::from(id), address: Arc::from("127.0.0.1:1"), version: Arc::from("1") };
        Ownership::new(Arc::clone(&self.store), Arc::clone(&self.clock) as Arc<dyn Clock>, card).unwrap()
    }
}

/// Who has each shard; fails if two have one.
fn owners(nodes: &[&Ownership]) -> BTreeMap<Shard, usize> {
    let mut owners = BTreeMap::new();
    for (number, node) in nodes.iter().enumerate() {
        for held in node.held() {
            assert_eq!(owners.insert(held.shard, number), None, "{:?} has two owners", held.shard);
        }
    }
    owners
}

#[tokio::test]
async fn shards_are_shared_out_and_only_membership_moves_them() {
    let cluster = Cluster::new();
    let (mut a, mut b) = (cluster.node("a"), cluster.node("b"));
    assert_eq!(a.beat().await.begin.len(), usize::from(SHARDS), "alone, it has all");
    assert_eq!(b.beat().await, Moved::default(), "nothing is free yet");
    let handed = a.beat().await;
    assert!(handed.begin.is_empty() && handed.stop.len() > 10 && handed.stop.len() < 54, "{handed:?}");
    let taken = b.beat().await;
    assert_eq!(taken.begin.len(), handed.stop.len());
    assert!(
        taken
            .begin
            .iter()
            .zip(&handed.stop)
            .all(|(new, old)| new.shard == old.shard && new.epoch > old.epoch)
    );
    assert_eq!(owners(&[&a, &b]).len(), usize::from(SHARDS));
    for _ in 0..10 {
        cluster.clock.turn(SHARD_RENEW_MS);
        assert_eq!((a.beat().await, b.beat().await), (Moved::default(), Moved::default()));
    }
}

#[tokio::test]
async fn a_node_that_leaves_hands_over_at_once() {
    let cluster = Cluster::new();
    let (mut a, mut b) = (cluster.node("a"), cluster.node("b"));
    for _ in 0..2 {
        a.beat().await;
        b.beat().await;
    }
    a.leave().await.unwrap();
    b.beat().await;
    assert_eq!(owners(&[&a, &b]).len(), usize::from(SHARDS));
    assert_eq!(b.held().len(), usize::from(SHARDS));
}

#[tokio::test]
async fn a_silent_node_stops_before_others_begin() {
    let cluster = Cluster::new();
    let (mut a, mut b) = (cluster.node("a"), cluster.node("b"));
    for _ in 0..2 {
        a.beat().await;
        b.beat().await;
    }
    let part = a.held().len();
    // The store is out of reach for the one, while the other goes on; then for neither.
    for _ in 0..SHARD_LEASE_MS / SHARD_RENEW_MS {
        cluster.clock.turn(SHARD_RENEW_MS);
        b.beat().await;
        cluster.outage.0.store(true, Ordering::SeqCst);
        a.beat().await;
        cluster.outage.0.store(false, Ordering::SeqCst);
        owners(&[&a, &b]);
    }
    assert_eq!(a.held().len(), 0, "it has given up its {part}");
    b.beat().await;
    assert_eq!(b.held().len(), usize::from(SHARDS));
    assert!(a.beat().await.begin.is_empty(), "what another has is not taken back");
    b.beat().await;
    assert_eq!(a.beat().await.begin.len(), part, "until it is handed over");
    assert_eq!(owners(&[&a, &b]).len(), usize::from(SHARDS));
}
