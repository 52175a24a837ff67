//! Which shards this node has. Every few seconds it says that it is there, extends what it holds, works out from the
//! list of live nodes what is its own, hands back what is not, and takes what is and is free. What comes of it is told
//! to whoever runs the shards: which to begin, which to stop.
//!
//! A node that cannot reach the store trusts its leases for less time than the store does, counted on a clock that is
//! never set, and stops before anybody else begins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::place::Shard;
use tidewheel_core::placement::owner_of;
use tidewheel_store::{Error, Held, Leases, NodeCard, Store};
use tokio::sync::mpsc;

use crate::clock::Clock;

/// How long a shard is a node's without another word from it.
pub const SHARD_LEASE_MS: i64 = 15 * SECOND_MS;
/// How often a lease is extended.
pub const SHARD_RENEW_MS: i64 = 5 * SECOND_MS;
/// How much sooner than the store the holder takes its lease for over.
pub const SHARD_TRUST_MARGIN_MS: i64 = 3 * SECOND_MS;
/// How soon a node looks again that got less than its part, because another has not let go yet.
const SHARD_RETRY_MS: i64 = SECOND_MS / 2;

const _: () = assert!(2 * SHARD_RENEW_MS + SHARD_TRUST_MARGIN_MS < SHARD_LEASE_MS);

/// What has changed about the shards of this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moved {
    /// These are its own from now on; their claims carry the epoch.
    pub begin: Vec<Held>,
    /// These are no longer.
    pub stop: Vec<Held>,
}

/// What this node holds.
pub struct Ownership {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    card: NodeCard,
    held: BTreeMap<Shard, u64>,
    /// Until when, by the monotonic clock, what is held may be trusted.
    trusted_until_ms: i64,
    /// Something of its own is still another's.
    is_short: bool,
}

impl Ownership {
    /// A node that holds nothing yet. None for a store that one process has to itself.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, card: NodeCard) -> Option<Self> {
        store.leases()?;
        Some(Self { store, clock, card, held: BTreeMap::new(), trusted_until_ms: 0, is_short: false })
    }

    /// What it holds.
    #[must_use]
    pub fn held(&self) -> Vec<Held> {
        self.held.iter().map(|(shard, epoch)| Held { shard: *shard, epoch: *epoch }).collect()
    }

    /// Goes on until nobody listens any more, or `stop` is done; then hands everything back.
    pub async fn run(mut self, moves: mpsc::Sender<Moved>, stop: impl Future<Output = ()> + Send) {
        tokio::pin!(stop);
        loop {
            let moved = self.beat().await;
            if moved != Moved::default() && moves.send(moved).await.is_err() {
                break;
            }
            let wait_ms = if self.is_short { SHARD_RETRY_MS } else { SHARD_RENEW_MS };
            let wait = self.clock.sleep(Duration::from_millis(wait_ms.unsigned_abs()));
            tokio::select! {
                () = wait => {}
                () = &mut stop => break,
            }
        }
        // Nobody need hear of it: who stops has stopped all its shards before.
        drop(self.leave().await);
    }

    /// One round. What the store does not answer in time is given up.
    pub async fn beat(&mut self) -> Moved {
        let before = self.held.clone();
        let asked_ms = self.clock.monotonic_ms();
        match self.ask().await {
            // Counted from before the question: the store began to count after it.
            Ok(()) => self.trusted_until_ms = asked_ms + SHARD_LEASE_MS - SHARD_TRUST_MARGIN_MS,
            Err(error) => tracing::warn!(%error, "leases of shards could not be extended"),
        }
        if self.clock.monotonic_ms() >= self.trusted_until_ms && !self.held.is_empty() {
            tracing::warn!(shards = self.held.len(), "the leases of shards were lost; stopping work on them");
            self.held.clear();
        }
        let gone = before.iter().filter(|(shard, epoch)| self.held.get(shard) != Some(epoch));
        let new = self.held.iter().filter(|(shard, epoch)| before.get(shard) != Some(epoch));
        let held = |(shard, epoch): (&Shard, &u64)| Held { shard: *shard, epoch: *epoch };
        Moved { stop: gone.map(held).collect(), begin: new.map(held).collect() }
    }

    /// Hands everything back, so that others need not wait.
    ///
    /// # Errors
    /// When the store does not answer; the leases run out by themselves.
    pub async fn leave(&mut self) -> Result<(), Error> {
        self.held.clear();
        let now = self.clock.now();
        self.leases()?.leave(now, &self.card.id).await
    }

    async fn ask(&mut self) -> Result<(), Error> {
        let (now, node) = (self.clock.now(), Arc::clone(&self.card.id));
        let leases = self.leases()?;
        leases.announce(now, &self.card, SHARD_LEASE_MS).await?;
        let kept = leases.renew(now, &node, self.held(), SHARD_LEASE_MS).await?;
        let nodes = leases.nodes(now).await?;
        let alive = || nodes.iter().filter(|node| node.is_alive).map(|node| &*node.card.id);
        let is_own = |shard: Shard| owner_of(shard, alive()) == Some(&*node);
        let (own, strange): (Vec<Held>, Vec<Held>) = kept.into_iter().partition(|held| is_own(held.shard));
        if !strange.is_empty() {
            leases.release(now, &node, strange).await?;
        }
        let mut held: BTreeMap<Shard, u64> = own.iter().map(|held| (held.shard, held.epoch)).collect();
        let shards = (0..self.store.layout().shards).map(Shard);
        let wanted: Vec<Shard> = shards.filter(|shard| is_own(*shard) && !held.contains_key(shard)).collect();
        let wanted_count = wanted.len();
        if wanted_count > 0 {
            let taken = leases.hold(now, &node, wanted, SHARD_LEASE_MS).await?;
            self.is_short = taken.len() < wanted_count;
            held.extend(taken.into_iter().map(|held| (held.shard, held.epoch)));
        } else {
            self.is_short = false;
        }
        self.held = held;
        Ok(())
    }

    fn leases(&self) -> Result<&dyn Leases, Error> {
        self.store.leases().ok_or(Error::Closed)
    }
}
