//! A few nodes on one store under virtual time, and what most jobs ask for.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::{Destination, Priority, Spec};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Config, Deliver, Engine, Parts};
use tidewheel_server::metrics::Metrics;
use tidewheel_sim::clock::SimClock;
use tidewheel_sim::dice::Dice;
use tidewheel_store::{Layout, NodeCard};
use tidewheel_store_testkit::memory::{Faults, MemoryStore};

pub(crate) const SHARDS: u16 = 64;

/// A node's line to the store, and whom it pushes to.
pub(crate) type Own = (Arc<dyn Faults>, Arc<dyn Deliver>);

/// Starts so many nodes, and waits until all have shards and know of each other.
pub(crate) async fn start(
    clock: &Arc<SimClock>,
    dice: &Dice,
    count: u64,
    own: impl Fn(u64) -> Own,
) -> Vec<Engine> {
    let store = MemoryStore::new(Layout { shards: SHARDS });
    let mut nodes: Vec<Engine> = Vec::new();
    for node in 0..count {
        let (faults, deliverer) = own(node);
        let parts = Parts {
            store: Arc::new(store.share(node).with_faults(faults)),
            clock: Arc::clone(clock) as Arc<dyn Clock>,
            random: Arc::new(dice.fork()),
            metrics: Arc::new(Metrics::new()),
            deliverer,
            zones: Zones::bundled(),
        };
        let name: Arc<str> = Arc::from(format!("node-{node}"));
        let card = NodeCard { id: Arc::clone(&name), address: name, version: Arc::from("1") };
        nodes.push(Engine::join(parts, Config::default(), card).await.unwrap());
    }
    let is_shared = || {
        let held = || nodes.iter().map(|node| node.held().len());
        held().sum::<usize>() == usize::from(SHARDS) && held().all(|held| held > 0)
    };
    while !is_shared() {
        clock.sleep_ms(100).await;
    }
    // All know of each other, and have said what there is to say.
    clock.sleep_ms(5_000).await;
    nodes
}

/// A tenant whose jobs that node serves.
pub(crate) fn tenant_of(node: &Engine) -> Tenant {
    let held = node.held();
    let is_there = |tenant: &Tenant| held.iter().any(|held| held.shard == Shard::of(tenant, SHARDS));
    (0..).map(|n| Tenant::new(&format!("tenant-{n}")).unwrap()).find(is_there).unwrap()
}

/// What a job asks for that has nothing special.
pub(crate) fn spec(destination: Destination, created_at: Timestamp) -> Spec {
    Spec {
        kind: Arc::from("t"),
        payload: Bytes::new(),
        destination,
        priority: Priority::Normal,
        retry: RetryPolicy::default(),
        timeout_ms: 60_000,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at,
    }
}
