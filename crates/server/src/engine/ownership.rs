//! Keeping the shards that are this node's: leases taken, extended and handed back, as nodes come and go. Alone with the
//! store there is nothing of it.
//!
//! The node trusts its leases for less time than the store keeps them, counted from before each call, and stops serving
//! on its own when it could not extend them in time. What it wrote under an old epoch is refused in any case.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewheel_core::limits::{SHARD_LEASE_MS, SHARD_RENEW_MS, SHARD_TRUST_MS};
use tidewheel_core::place::Shard;
use tidewheel_store::{Error, Held, Leases, NodeCard};
use tokio::sync::oneshot;

use super::peers::PeerMessage;
use super::scheduler::Message;
use super::{Shared, placement};

/// How often the list of nodes is looked at: shards of a node that left wait no longer than this.
const LOOK_MS: i64 = 400;

/// Told to leave, and whom to tell when that is done.
pub(super) type Leave = oneshot::Receiver<oneshot::Sender<()>>;

/// One node's part in the cluster.
pub(super) struct Ownership {
    /// The other nodes, when they were last looked at.
    others: Vec<Arc<str>>,
    shared: Arc<Shared>,
    card: NodeCard,
    /// On the monotonic clock, like the next.
    trusted_until_ms: i64,
    renew_at_ms: i64,
}

impl Ownership {
    /// Joins the cluster and takes what is free of this node's share.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn join(shared: Arc<Shared>, card: NodeCard) -> Result<Self, Error> {
        let mut ownership =
            Self { others: Vec::new(), shared, card, trusted_until_ms: i64::MIN, renew_at_ms: i64::MIN };
        ownership.look().await?;
        Ok(ownership)
    }

    /// Keeps the node's shards until it is told to leave.
    pub(super) async fn run(mut self, mut leave: Leave) {
        let clock = Arc::clone(&self.shared.clock);
        loop {
            let trust = clock.sleep(millis(self.trust_left_ms()));
            let is_distrusted = tokio::select! {
                biased;
                told = &mut leave => {
                    self.leave().await;
                    told.ok().and_then(|done| done.send(()).ok());
                    return;
                }
                () = trust, if self.holds_any() => true,
                outcome = async {
                    clock.sleep(millis(LOOK_MS)).await;
                    self.look().await
                } => {
                    if let Err(error) = outcome {
                        tracing::warn!(%error, "the leases of shards could not be looked after; trying again");
                    }
                    false
                }
            };
            if is_distrusted {
                tracing::error!(
                    "the leases of this node's shards could not be extended in time; others may have them"
                );
                self.stop_serving(self.shared.territory.held()).await;
            }
        }
    }

    fn leases(&self) -> Result<&dyn Leases, Error> {
        self.shared.store.leases().ok_or(Error::Closed)
    }

    fn holds_any(&self) -> bool {
        !self.shared.territory.held().is_empty()
    }

    fn trust_left_ms(&self) -> i64 {
        self.trusted_until_ms.saturating_sub(self.shared.clock.monotonic_ms()).max(0)
    }

    /// Takes note of who else is there; those who left are no longer fed, before anything of theirs is taken over.
    fn note_others(&mut self, others: Vec<Arc<str>>) {
        self.shared.peers_count.store(others.len(), Ordering::SeqCst);
        let before = std::mem::replace(&mut self.others, others);
        let gone: Vec<_> = before.into_iter().filter(|id| !self.others.contains(id)).collect();
        if !gone.is_empty() {
            self.shared.tell(Message::Peer(PeerMessage::Gone(gone)));
        }
    }

    /// Looks who is there, extends what it has, hands back what is others' now, takes what is its own.
    async fn look(&mut self) -> Result<(), Error> {
        let began_ms = self.shared.clock.monotonic_ms();
        let now = self.shared.clock.now();
        if began_ms >= self.renew_at_ms {
            self.leases()?.announce(now, &self.card, SHARD_LEASE_MS).await?;
            self.renew(began_ms).await?;
        }
        let nodes = self.leases()?.nodes(now).await?;
        let alive: Vec<_> = nodes.into_iter().filter(|node| node.is_alive).map(|node| node.card.id).collect();
        self.note_others(alive.iter().filter(|id| **id != self.card.id).cloned().collect());
        let share = placement::shards_of(&self.card.id, &alive, self.shared.store.layout().shards);
        let held = self.shared.territory.held();
        let surplus: Vec<Held> =
            held.iter().copied().filter(|held| share.binary_search(&held.shard).is_err()).collect();
        if !surplus.is_empty() {
            self.stop_serving(surplus.clone()).await;
            self.leases()?.release(now, &self.card.id, surplus).await?;
        }
        let missing: Vec<Shard> =
            share.into_iter().filter(|shard| !held.iter().any(|held| held.shard == *shard)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let is_first = held.is_empty();
        let asked_ms = self.shared.clock.monotonic_ms();
        let taken = self.leases()?.hold(now, &self.card.id, missing, SHARD_LEASE_MS).await?;
        if self.shared.clock.monotonic_ms() >= asked_ms.saturating_add(SHARD_TRUST_MS) {
            // Heard so late, others may have them by now.
            return Ok(());
        }
        if !taken.is_empty() && is_first {
            self.trusted_until_ms = asked_ms.saturating_add(SHARD_TRUST_MS);
        }
        self.start_serving(taken).await
    }

    async fn renew(&mut self, began_ms: i64) -> Result<(), Error> {
        let held = self.shared.territory.held();
        if !held.is_empty() {
            let now = self.shared.clock.now();
            let renewed = self.leases()?.renew(now, &self.card.id, held.clone(), SHARD_LEASE_MS).await?;
            let lost: Vec<Held> = held.into_iter().filter(|held| !renewed.contains(held)).collect();
            if !lost.is_empty() {
                tracing::warn!(count = lost.len(), "leases of shards were lost to other nodes");
                self.stop_serving(lost).await;
            }
            self.trusted_until_ms = began_ms.saturating_add(SHARD_TRUST_MS);
        }
        self.renew_at_ms = began_ms.saturating_add(SHARD_RENEW_MS);
        Ok(())
    }

    /// Begins to serve shards: first what is running there, so that nobody waits for ever for its end.
    async fn start_serving(&self, taken: Vec<Held>) -> Result<(), Error> {
        if taken.is_empty() {
            return Ok(());
        }
        let shared = &self.shared;
        let is_taken = |shard: Shard| taken.iter().any(|held| held.shard == shard);
        let running = shared.store.running().await?;
        let running =
            running.into_iter().filter(|job| is_taken(shared.territory.shard_of(&job.tenant))).collect();
        taken.iter().for_each(|held| shared.territory.take(*held));
        tracing::info!(count = taken.len(), "serving more shards");
        shared.tell(Message::Gained { shards: taken.iter().map(|held| held.shard).collect(), running });
        Ok(())
    }

    /// Stops serving shards; nothing of them is claimed after it.
    async fn stop_serving(&self, held: Vec<Held>) {
        let shards: Vec<Shard> = held.into_iter().map(|held| held.shard).collect();
        shards.iter().for_each(|shard| self.shared.territory.give_up(*shard));
        tracing::info!(count = shards.len(), "serving fewer shards");
        let (done, heard) = oneshot::channel();
        self.shared.tell(Message::Lost { done });
        drop(heard.await);
    }

    /// Hands everything back at once, so that nobody has to wait for leases to run out.
    async fn leave(&self) {
        self.stop_serving(self.shared.territory.held()).await;
        let Ok(leases) = self.leases() else { return };
        if let Err(error) = leases.leave(self.shared.clock.now(), &self.card.id).await {
            tracing::warn!(%error, "the cluster could not be told that this node leaves; its leases run out by themselves");
        }
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl Shared {
    /// Whether this node may do what one node does for all, for that long.
    pub(super) async fn is_appointed(&self, name: &str, ms: i64) -> bool {
        let (Some(node), Some(leases)) = (&self.node, self.store.leases()) else { return true };
        match leases.hold_named(self.clock.now(), &node.id, name, ms).await {
            Ok(epoch) => epoch.is_some(),
            Err(error) => {
                tracing::debug!(%error, name, "no lease could be had");
                false
            }
        }
    }
}
