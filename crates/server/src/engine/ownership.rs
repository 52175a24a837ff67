//! Keeping the shards that are this node's: leases taken, extended and handed back, as nodes come and go. Alone with the
//! store there is nothing of it.
//!
//! The node trusts its leases for less time than the store keeps them, counted from before each call, and stops serving
//! on its own when it could not extend them in time. What it wrote under an old epoch is refused in any case.
//!
//! Where the store is spread over several databases, each has an [`Ownership`] of its own, which goes by what that
//! database says of nodes and leases and waits for no other: one that is away takes only its own shards with it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tidewheel_core::job::Job;
use tidewheel_core::limits::{SHARD_LEASE_MS, SHARD_RENEW_MS, SHARD_TRUST_MS};
use tidewheel_core::place::Shard;
use tidewheel_store::{Error, Held, Leases, NodeCard};
use tokio::sync::oneshot;

use super::peers::PeerMessage;
use super::scheduler::Message;
use super::{Shared, ZONES_MS, placement, zoning};
use crate::clock::Clock;

/// How often the list of nodes is looked at: shards of a node that left wait no longer than this.
const LOOK_MS: i64 = 400;

/// Told to leave, and whom to tell when that is done.
pub(super) type Leave = oneshot::Receiver<oneshot::Sender<()>>;

/// The other nodes, as each database has them.
struct Neighbours(Mutex<Vec<Vec<Arc<str>>>>);

impl Neighbours {
    /// Notes what one database says; answers with how many there are, and with those that are in none any more.
    fn note(&self, database: u16, others: Vec<Arc<str>>) -> (usize, Vec<Arc<str>>) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lists.get_mut(usize::from(database)).map(|list| std::mem::replace(list, others));
        let mut all: Vec<&Arc<str>> = lists.iter().flatten().collect();
        all.sort();
        all.dedup();
        let mut gone = before.unwrap_or_default();
        gone.retain(|id| all.binary_search(&id).is_err());
        (all.len(), gone)
    }
}

/// One node's part in the cluster, in one database.
pub(super) struct Ownership {
    shared: Arc<Shared>,
    card: NodeCard,
    database: u16,
    /// Those the database keeps, in order.
    shards: Vec<Shard>,
    neighbours: Arc<Neighbours>,
    /// On the monotonic clock, like the next.
    trusted_until_ms: i64,
    renew_at_ms: i64,
    /// Given up without the store's knowing. Handed back before they are taken again, so that what was under way under
    /// their epochs has ended by then.
    untold: Vec<Held>,
    was_away: bool,
}

impl Ownership {
    /// Joins the cluster and takes what is free of this node's share, in each database.
    ///
    /// # Errors
    /// When the store fails: every database of it.
    pub(super) async fn join(shared: &Arc<Shared>, card: &NodeCard) -> Result<Vec<Self>, Error> {
        let databases = shared.store.databases();
        let shards: Vec<Vec<Shard>> = if databases.is_empty() {
            vec![(0..shared.store.layout().shards).map(Shard).collect()]
        } else {
            databases.into_iter().map(|database| database.shards).collect()
        };
        let neighbours = Arc::new(Neighbours(Mutex::new(vec![Vec::new(); shards.len()])));
        let mut all: Vec<Self> = (0..)
            .zip(shards)
            .map(|(database, shards)| Self {
                shared: Arc::clone(shared),
                card: card.clone(),
                database,
                shards,
                neighbours: Arc::clone(&neighbours),
                trusted_until_ms: i64::MIN,
                renew_at_ms: i64::MIN,
                untold: Vec::new(),
                was_away: false,
            })
            .collect();
        let looked = join_all(all.iter_mut().map(Self::look_or_note)).await;
        let is_anywhere = looked.iter().any(Result::is_ok);
        looked.into_iter().filter_map(Result::err).find(|_| !is_anywhere).map_or(Ok(all), Err)
    }

    /// Keeps the node's shards until it is told to leave.
    pub(super) async fn run_all(all: Vec<Self>, leave: Leave) {
        let (tell, running): (Vec<_>, Vec<_>) = all
            .into_iter()
            .map(|ownership| {
                let (tell, told) = oneshot::channel();
                (tell, tokio::spawn(ownership.run(told)))
            })
            .unzip();
        let told = leave.await;
        drop(tell);
        for ended in join_all(running).await {
            if let Err(error) = ended {
                tracing::error!(%error, "what keeps a node's shards has stopped");
            }
        }
        told.ok().and_then(|done| done.send(()).ok());
    }

    /// The same, in one database, until nobody keeps the other end any more.
    async fn run(mut self, mut leave: oneshot::Receiver<()>) {
        let clock = Arc::clone(&self.shared.clock);
        loop {
            let trust = clock.sleep(millis(self.trust_left_ms()));
            let is_distrusted = tokio::select! {
                biased;
                _ = &mut leave => {
                    self.leave().await;
                    return;
                }
                () = trust, if self.holds_any() => true,
                outcome = async {
                    clock.sleep(millis(LOOK_MS)).await;
                    self.look_or_note().await
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
                self.give_up().await;
            } else if self.was_away && self.holds_any() {
                // Whatever is asked of it fails: what is in memory of it would only be in the way of others.
                self.give_up().await;
            }
        }
    }

    fn leases(&self) -> Result<&dyn Leases, Error> {
        self.shared.store.leases_in(self.database).ok_or(Error::Closed)
    }

    fn held(&self) -> Vec<Held> {
        let is_here = |held: &Held| self.shards.binary_search(&held.shard).is_ok();
        self.shared.territory.held().into_iter().filter(is_here).collect()
    }

    fn holds_any(&self) -> bool {
        !self.held().is_empty()
    }

    fn trust_left_ms(&self) -> i64 {
        self.trusted_until_ms.saturating_sub(self.shared.clock.monotonic_ms()).max(0)
    }

    /// Whether the database answers at all.
    fn is_reachable(&self) -> bool {
        let databases = self.shared.store.databases();
        databases.get(usize::from(self.database)).is_none_or(|database| database.is_reachable)
    }

    /// Takes note of who else is there; those who left are no longer fed, before anything of theirs is taken over.
    fn note_others(&self, others: Vec<Arc<str>>) {
        let (count, gone) = self.neighbours.note(self.database, others);
        self.shared.peers_count.store(count, Ordering::SeqCst);
        if !gone.is_empty() {
            self.shared.tell(Message::Peer(PeerMessage::Gone(gone)));
        }
    }

    /// Looks, and takes note of a database that is away, and of one that is back.
    async fn look_or_note(&mut self) -> Result<(), Error> {
        let looked = self.look().await;
        if looked.is_err() && !self.is_reachable() {
            if !self.was_away {
                self.was_away = true;
                // It says nothing of them any more; where they are alive, other databases do.
                self.note_others(Vec::new());
                return looked;
            }
            // Said once, and told by the store when it ends.
            return Ok(());
        }
        if looked.is_ok() && std::mem::take(&mut self.was_away) {
            tokio::spawn(bring_in_line(Arc::clone(&self.shared)));
        }
        looked
    }

    /// Looks who is there, extends what it has, hands back what is others' now, takes what is its own.
    async fn look(&mut self) -> Result<(), Error> {
        let began_ms = self.shared.clock.monotonic_ms();
        let now = self.shared.clock.now();
        if !self.untold.is_empty() {
            self.leases()?.release(now, &self.card.id, self.untold.clone()).await?;
            self.untold.clear();
        }
        if began_ms >= self.renew_at_ms {
            // Databases may show different times; one is enough to go by.
            if self.database == 0 {
                follow_store_time(self.leases()?, &*self.shared.clock).await?;
            }
            self.leases()?.announce(now, &self.card, SHARD_LEASE_MS).await?;
            self.renew(began_ms).await?;
        }
        let nodes = self.leases()?.nodes(now).await?;
        let alive: Vec<_> = nodes.into_iter().filter(|node| node.is_alive).map(|node| node.card.id).collect();
        self.note_others(alive.iter().filter(|id| **id != self.card.id).cloned().collect());
        let share = placement::shards_of(&self.card.id, &alive, &self.shards);
        let held = self.held();
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
        let held = self.held();
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
        let shards: Vec<Shard> = taken.iter().map(|held| held.shard).collect();
        let running = shared.store.running_in(&shards).await?;
        let shard_of = |job: &Job| shared.territory.shard_of(&job.tenant, job.id);
        let running = running.into_iter().filter(|job| shards.contains(&shard_of(job))).collect();
        taken.iter().for_each(|held| shared.territory.take(*held));
        tracing::info!(count = taken.len(), "serving more shards");
        shared.tell(Message::Gained { shards, running });
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

    /// Stops serving what it has here, without being able to say so.
    async fn give_up(&mut self) {
        let held = self.held();
        self.untold.extend(held.iter().copied());
        self.renew_at_ms = i64::MIN;
        self.stop_serving(held).await;
    }

    /// Hands everything back at once, so that nobody has to wait for leases to run out.
    async fn leave(&self) {
        self.stop_serving(self.held()).await;
        let Ok(leases) = self.leases() else { return };
        if let Err(error) = leases.leave(self.shared.clock.now(), &self.card.id).await {
            tracing::warn!(%error, "the cluster could not be told that this node leaves; its leases run out by themselves");
        }
    }
}

/// Goes by the store's clock, if it has one: then all nodes agree on what is due.
///
/// # Errors
/// When the store fails.
pub(super) async fn follow_store_time(leases: &dyn Leases, clock: &dyn Clock) -> Result<(), Error> {
    let asked_ms = clock.monotonic_ms();
    if let Some(shown) = leases.time().await? {
        clock.follow(shown, asked_ms);
    }
    Ok(())
}

/// A database that was away may have missed that the rules of time zones are others now.
async fn bring_in_line(shared: Arc<Shared>) {
    if !shared.is_appointed("zones", ZONES_MS).await {
        return;
    }
    if let Err(error) = zoning::bring_in_line(&shared).await {
        tracing::warn!(%error, "occurrences could not be brought in line with the tz database");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_gone_once_no_database_has_it() {
        let names = |ids: &[&str]| ids.iter().map(|id| Arc::from(*id)).collect::<Vec<Arc<str>>>();
        let neighbours = Neighbours(Mutex::new(vec![Vec::new(); 2]));
        assert_eq!(neighbours.note(0, names(&["a", "b"])), (2, Vec::new()));
        assert_eq!(neighbours.note(1, names(&["b", "c"])), (3, Vec::new()));
        assert_eq!(neighbours.note(0, names(&[])), (2, names(&["a"])), "the other has b");
        assert_eq!(neighbours.note(1, names(&["c"])), (1, names(&["b"])));
    }
}
