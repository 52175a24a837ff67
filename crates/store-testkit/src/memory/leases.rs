//! Leases in the model. Unless it was given a clock, a lease is over when the caller's says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;

use super::{Call, MemoryStore, Written};
use tidewheel_store::{Error, Held, Leases, News, Node, NodeCard, ShardLease};

/// What the model keeps of nodes and their leases.
#[derive(Default)]
pub(super) struct LeaseTable {
    epoch: u64,
    nodes: BTreeMap<Arc<str>, (NodeCard, Timestamp, Timestamp)>,
    shards: BTreeMap<Shard, Lease>,
    named: BTreeMap<Arc<str>, Lease>,
}

#[derive(Clone)]
struct Lease {
    epoch: u64,
    node: Option<Arc<str>>,
    until: Timestamp,
}

impl Lease {
    fn is_of(&self, node: &str) -> bool {
        self.node.as_deref() == Some(node)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.until <= now
    }
}

impl LeaseTable {
    /// A new epoch, for all shards.
    pub(super) fn open_epoch(&mut self) -> u64 {
        self.epoch += 1;
        for lease in self.shards.values_mut() {
            *lease = Lease { epoch: self.epoch, node: None, until: Timestamp::MAX };
        }
        self.epoch
    }

    /// Whether a claim under `epoch` may be granted in that shard.
    pub(super) fn allows(&self, now: Timestamp, shard: Shard, epoch: u64) -> bool {
        self.shards.get(&shard).is_none_or(|lease| lease.epoch == epoch && !lease.is_over(now))
    }

    fn take(
        leases: &mut BTreeMap<Shard, Lease>,
        epoch: u64,
        shard: Shard,
        (now, node, until): (Timestamp, &str, Timestamp),
    ) -> Option<Held> {
        let lease = leases.entry(shard).or_insert(Lease { epoch: 0, node: None, until: now });
        if lease.is_of(node) && !lease.is_over(now) {
            lease.until = until;
        } else if lease.node.is_none() || lease.is_over(now) {
            *lease = Lease { epoch, node: Some(Arc::from(node)), until };
        } else {
            return None;
        }
        Some(Held { shard, epoch: lease.epoch })
    }

    /// Frees the shards that are wanted; returns them.
    fn release(&mut self, now: Timestamp, wanted: impl Fn(Shard, &Lease) -> bool) -> Vec<Shard> {
        let mut released = Vec::new();
        for (shard, lease) in &mut self.shards {
            if wanted(*shard, lease) {
                (lease.node, lease.until) = (None, now);
                released.push(*shard);
            }
        }
        released
    }

    fn hold_named(&mut self, now: Timestamp, node: &str, name: &str, until: Timestamp) -> Option<u64> {
        let next = self.epoch + 1;
        let fresh = Lease { epoch: next, node: Some(Arc::from(node)), until };
        let lease = self.named.entry(Arc::from(name)).or_insert_with(|| fresh.clone());
        if lease.is_of(node) && !lease.is_over(now) {
            lease.until = until;
        } else if lease.is_over(now) {
            *lease = fresh;
        } else {
            return None;
        }
        self.epoch = self.epoch.max(lease.epoch);
        Some(lease.epoch)
    }
}

impl MemoryStore {
    fn witness_leased(&self, node: &str, held: &[Held], until: Timestamp) {
        let leased = |held: &Held| Written::Leased { node: Arc::from(node), held: *held, until };
        self.witness(held.iter().map(leased));
    }

    fn witness_released(&self, shards: Vec<Shard>) {
        self.witness(shards.into_iter().map(|shard| Written::Released { shard }));
    }
}

#[async_trait]
impl Leases for MemoryStore {
    async fn announce(&self, now: Timestamp, card: &NodeCard, ttl_ms: i64) -> Result<(), Error> {
        self.call(Call::Announce, |tables| {
            let now = self.lease_time(now);
            let nodes = &mut tables.leases.nodes;
            let started_at = nodes.get(&card.id).map_or(now, |(_, started_at, _)| *started_at);
            nodes.insert(Arc::clone(&card.id), (card.clone(), started_at, now.plus_ms(ttl_ms)));
            Ok(())
        })
        .await
    }

    async fn leave(&self, now: Timestamp, node: &str) -> Result<(), Error> {
        self.call(Call::Leave, |tables| {
            self.witness_released(tables.leases.release(self.lease_time(now), |_, lease| lease.is_of(node)));
            tables.leases.named.retain(|_, lease| !lease.is_of(node));
            tables.leases.nodes.remove(node);
            Ok(())
        })
        .await
    }

    async fn nodes(&self, now: Timestamp) -> Result<Vec<Node>, Error> {
        self.call(Call::Nodes, |tables| {
            let now = self.lease_time(now);
            let node = |(card, started_at, until): &(NodeCard, Timestamp, Timestamp)| Node {
                card: card.clone(),
                started_at: *started_at,
                is_alive: now < *until,
            };
            Ok(tables.leases.nodes.values().map(node).collect())
        })
        .await
    }

    async fn hold(
        &self,
        now: Timestamp,
        node: &str,
        shards: Vec<Shard>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error> {
        self.call(Call::Hold, |tables| {
            let (table, now) = (&mut tables.leases, self.lease_time(now));
            let (epoch, until) = (table.epoch + 1, now.plus_ms(ttl_ms));
            let take = |shard| LeaseTable::take(&mut table.shards, epoch, shard, (now, node, until));
            let held: Vec<Held> = shards.into_iter().filter_map(take).collect();
            table.epoch = held.iter().map(|held| held.epoch).fold(table.epoch, u64::max);
            self.witness_leased(node, &held, until);
            Ok(held)
        })
        .await
    }

    async fn renew(
        &self,
        now: Timestamp,
        node: &str,
        held: Vec<Held>,
        ttl_ms: i64,
    ) -> Result<Vec<Held>, Error> {
        self.call(Call::Renew, |tables| {
            let (shards, now) = (&mut tables.leases.shards, self.lease_time(now));
            let until = now.plus_ms(ttl_ms);
            let renewed = held.into_iter().filter(|held| {
                let lease = shards.get_mut(&held.shard);
                let lease = lease
                    .filter(|lease| lease.is_of(node) && lease.epoch == held.epoch && !lease.is_over(now));
                lease.map(|lease| lease.until = until).is_some()
            });
            let renewed: Vec<Held> = renewed.collect();
            self.witness_leased(node, &renewed, until);
            Ok(renewed)
        })
        .await
    }

    async fn release(&self, now: Timestamp, node: &str, held: Vec<Held>) -> Result<(), Error> {
        self.call(Call::Release, |tables| {
            let released = tables.leases.release(self.lease_time(now), |shard, lease| {
                lease.is_of(node) && held.contains(&Held { shard, epoch: lease.epoch })
            });
            self.witness_released(released);
            Ok(())
        })
        .await
    }

    async fn shard_leases(&self, now: Timestamp) -> Result<Vec<ShardLease>, Error> {
        self.call(Call::ShardLeases, |tables| {
            let now = self.lease_time(now);
            let lease = |(shard, lease): (&Shard, &Lease)| ShardLease {
                held: Held { shard: *shard, epoch: lease.epoch },
                node: lease.node.clone(),
                is_over: lease.is_over(now),
            };
            Ok(tables.leases.shards.iter().map(lease).collect())
        })
        .await
    }

    async fn hold_named(
        &self,
        now: Timestamp,
        node: &str,
        name: &str,
        ttl_ms: i64,
    ) -> Result<Option<u64>, Error> {
        self.call(Call::HoldNamed, |tables| {
            let now = self.lease_time(now);
            Ok(tables.leases.hold_named(now, node, name, now.plus_ms(ttl_ms)))
        })
        .await
    }

    async fn tell(&self, news: Vec<News>) -> Result<(), Error> {
        self.pass_on(news).await
    }

    async fn hear(&self) -> Vec<News> {
        self.next_news().await
    }
}
