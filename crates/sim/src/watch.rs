//! Who looks on while a run goes: at what servers hold in memory, and at the shards they say they serve.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidewheel_core::job::Priority;
use tidewheel_core::limits::SECOND_MS;

use crate::clock::NodeClock;
use crate::history::Event;
use crate::world::World;

/// Lanes that can be under way: hosts and queues.
const LANES: usize = 6;
/// A node that stood still has so long to notice what it lost.
const WAKING_MS: i64 = 100;
/// How often shards are looked at.
const SHARDS_MS: i64 = 300;

/// Notes how much the servers hold in memory.
pub async fn memory(world: Arc<World>) {
    let config = &world.plan.config;
    let lots = LANES * world.plan.tenants * Priority::ALL.len();
    let bound = config.held_count_max + lots * config.lot_count_min;
    // Asking costs much; of several nodes each is asked less often.
    let often_ms = if world.plan.nodes > 1 { 9 * SECOND_MS } else { 2 * SECOND_MS };
    loop {
        world.sleep_ms(if world.is_calm() { 10 * SECOND_MS } else { often_ms }).await;
        for (_, engine) in world.engines() {
            if let Some(count) = held_jobs(&engine.metrics().render()) {
                world.history.note(Event::Held { count, bound });
            }
        }
    }
}

/// The gauge of jobs in memory, out of the metrics' text.
#[must_use]
pub fn held_jobs(metrics: &str) -> Option<usize> {
    let line = metrics.lines().find(|line| line.starts_with("tidewheel_held_jobs "))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Notes shards that two nodes serve at a time.
pub async fn shards(world: Arc<World>) {
    loop {
        world.sleep_ms(if world.is_calm() { 10 * SHARDS_MS } else { SHARDS_MS }).await;
        let mut served = BTreeSet::new();
        for (node, engine) in world.engines() {
            let clock: Option<&NodeClock> = world.node_clock(node);
            if !clock.is_some_and(|clock| clock.is_awake_since(WAKING_MS)) {
                continue;
            }
            for held in engine.held() {
                if !served.insert(held.shard) {
                    world.history.note(Event::ServedTwice { shard: held.shard.0 });
                }
            }
        }
    }
}

/// Notes how the shards of a cluster are shared out in the end.
pub fn note_shares(world: &World) {
    if world.plan.nodes > 1 {
        let counts = world.engines().map(|(_, engine)| engine.held().len()).collect();
        world.history.note(Event::Served { shards: usize::from(world.plan.shards), counts });
    }
}
