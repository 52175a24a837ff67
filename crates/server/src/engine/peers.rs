//! Other nodes as subscribers of this one: a node is a worker of its peers. Each says, through the store, what its own workers
//! have room for; whoever serves a shard starts attempts for them and says so the same way. Nothing but the store lies
//! between two nodes, so nodes that cannot reach each other work together all the same.
//!
//! What is said can be lost: a want that is not repeated ends, and an attempt that nobody heard of ends with its lease, or
//! sooner and at no cost where its node has said that it will not start ([`super::receipts`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::limits::{MINUTE_MS, SECOND_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Receipt, Want};

use super::ready::{SubscriberId, Wish};
use super::receipts::{Attempt, Received, Sent};

/// How soon after one word on its workers' room a node may say the next.
pub(super) const WANTS_PAUSE_MS: i64 = 20;
/// How often a node repeats what its workers have room for.
pub(super) const WANTS_REPEAT_MS: i64 = 2 * SECOND_MS;
/// Silence after which a want is over.
pub(super) const WANT_SILENCE_MS: i64 = 3 * WANTS_REPEAT_MS;
/// What was handed on and not heard of for so long was lost, and counts no more.
const UNHEARD_MS: i64 = 2 * SECOND_MS;
/// Wants told of in one go; workers of what is more are fed by their own node alone.
pub(super) const WANTS_COUNT_MAX: usize = 1_000;
/// Attempts that wait here for workers that are busy; what is more is handed back.
pub(super) const GUESTS_COUNT_MAX: usize = 256;
/// Which part of its lease an attempt may wait for a worker.
const GUEST_LEASE_PART: i64 = 4;
/// Wants of other nodes, all together; what is more is not served.
const SERVED_COUNT_MAX: usize = 20_000;

/// The part of its lease in which an attempt that is handed on must start.
const START_LEASE_PART: i64 = 2;
/// However long its lease is, it has no longer to start.
const START_MS_MAX: i64 = MINUTE_MS;

/// What the names of workers begin with that are other nodes.
const NAME_PREFIX: &str = "via:";

/// The name under which attempts are started for a node's workers.
pub(super) fn name_of(node: &str) -> Arc<str> {
    Arc::from(format!("{NAME_PREFIX}{node}"))
}

/// Whether an attempt runs, or ran, at a worker of another node than the one that started it.
pub(super) fn is_name(worker: &str) -> bool {
    worker.starts_with(NAME_PREFIX)
}

/// What a running job's lease was when it started.
pub(super) fn lease_ms(job: &Job) -> i64 {
    job.status.running.as_ref().map_or(0, |running| running.lease_until.since_ms(running.started_at))
}

/// How long attempts that are handed on have to start.
pub(super) fn start_within_ms(jobs: &[Arc<Job>]) -> i64 {
    let lease_ms = jobs.iter().map(|job| lease_ms(job)).min().unwrap_or(0);
    (lease_ms / START_LEASE_PART).min(START_MS_MAX)
}

/// What the scheduler hears of other nodes.
pub(super) enum PeerMessage {
    /// A node's workers have room.
    Wanted { node: Arc<str>, said_ms: i64, heard: Vec<Receipt>, wants: Vec<Want> },
    /// Attempts were started elsewhere for this node's workers.
    Handed { from: Arc<str>, number: u64, start_by_ms: i64, jobs: Vec<Arc<Job>> },
    /// Jobs that others serve were changed.
    Changed(Vec<(Tenant, JobId)>),
    /// Attempts that other nodes' workers have ended for good.
    Ended(Vec<Attempt>),
    /// These nodes are no longer there.
    Gone(Vec<Arc<str>>),
}

/// Attempts that were handed on.
#[derive(Debug)]
struct Unheard {
    number: u64,
    count: usize,
    at_ms: i64,
}

/// One want of another node.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) subscriber: SubscriberId,
    heard_ms: i64,
    /// Handed on since what it last said, as far as it is known.
    unheard: VecDeque<Unheard>,
}

impl Peer {
    /// It was heard of; it had taken everything up to `number` into account. Says how much it had not.
    pub(super) fn heard(&mut self, number: u64, now_ms: i64) -> usize {
        self.heard_ms = now_ms;
        self.unheard.retain(|it| it.number > number && it.at_ms.saturating_add(UNHEARD_MS) > now_ms);
        self.unheard.iter().map(|it| it.count).sum()
    }
}

/// An attempt that was started for a worker of this node, and waits until it has room.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) job: Arc<Job>,
    /// From when it no longer waits for a worker with empty hands, if it does.
    pub(super) waited_at_ms: i64,
    pub(super) until_ms: i64,
}

impl Guest {
    /// None if too little is left of its lease: it would only be started when another node gives it to others.
    pub(super) fn new(job: &Arc<Job>, now: Timestamp, now_ms: i64, start_by_ms: i64) -> Option<Self> {
        let part_ms = lease_ms(job) / GUEST_LEASE_PART;
        let left_ms = job.status.running.as_ref().map_or(0, |running| running.lease_until.since_ms(now));
        let until_ms = now_ms.saturating_add(part_ms.min(left_ms - part_ms)).min(start_by_ms);
        let waited_at_ms = now_ms.midpoint(until_ms);
        (left_ms > part_ms).then(|| Self { job: Arc::clone(job), waited_at_ms, until_ms })
    }

    /// The same, waiting no longer than that.
    pub(super) fn waiting_until(self, until_ms: i64) -> Self {
        let (waited_at_ms, until_ms) = (self.waited_at_ms.min(until_ms), self.until_ms.min(until_ms));
        Self { waited_at_ms, until_ms, ..self }
    }
}

/// All that is known of peers.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// To how many nodes the wants of this one were last told in full.
    pub(super) told_count: usize,
    pub(super) pause_until_ms: i64,
    pub(super) repeat_at_ms: i64,
    pub(super) guests: Vec<Guest>,
    pub(super) sent: Sent,
    pub(super) received: Received,
    served: BTreeMap<(Arc<str>, Wish), Peer>,
    by_subscriber: FxHashMap<SubscriberId, (Arc<str>, Wish)>,
}

impl Peers {
    /// When the first of the attempts that wait here has waited long enough.
    pub(super) fn next_guest_ms(&self) -> Option<i64> {
        self.guests.iter().map(|guest| guest.until_ms).min()
    }

    pub(super) fn get_mut(&mut self, node: &Arc<str>, wish: &Wish) -> Option<&mut Peer> {
        self.served.get_mut(&(Arc::clone(node), wish.clone()))
    }

    pub(super) fn is_full(&self) -> bool {
        self.served.len() >= SERVED_COUNT_MAX
    }

    pub(super) fn add(&mut self, node: Arc<str>, wish: Wish, subscriber: SubscriberId, now_ms: i64) {
        self.by_subscriber.insert(subscriber, (Arc::clone(&node), wish.clone()));
        self.served.insert((node, wish), Peer { subscriber, heard_ms: now_ms, unheard: VecDeque::new() });
    }

    /// So many attempts are handed on for a subscriber: to which node, and under which number; none if it is no peer.
    pub(super) fn hand(&mut self, id: SubscriberId, count: usize, now_ms: i64) -> Option<(Arc<str>, u64)> {
        let place = self.by_subscriber.get(&id)?;
        let peer = self.served.get_mut(place)?;
        let number = self.sent.next_number(&place.0);
        peer.unheard.push_back(Unheard { number, count, at_ms: now_ms });
        Some((Arc::clone(&place.0), number))
    }

    /// Forgets wants that are over, those of one node or those that were not repeated; returns by which subscribers they
    /// were served.
    pub(super) fn forget(&mut self, node: Option<&str>, now_ms: i64) -> Vec<SubscriberId> {
        let is_over = |(of, _): &(Arc<str>, Wish), peer: &Peer| {
            node.map_or(peer.heard_ms + WANT_SILENCE_MS <= now_ms, |node| **of == *node)
        };
        let mut over = Vec::new();
        self.served.retain(|place, peer| {
            let is_over = is_over(place, peer);
            over.extend(is_over.then_some(peer.subscriber));
            !is_over
        });
        over.iter().for_each(|id| drop(self.by_subscriber.remove(id)));
        self.sent.forget(now_ms);
        self.received.forget(now_ms);
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ready::Interest;

    fn wish() -> Wish {
        let interest = Arc::new(Interest::of_tenant(Tenant::default()));
        Wish { queue: Arc::from("q"), interest, lease_ms: 1_000 }
    }

    #[test]
    fn what_a_peer_has_not_heard_of_counts_until_it_has_or_it_is_lost() {
        let (mut peers, node): (Peers, Arc<str>) = (Peers::default(), Arc::from("n"));
        peers.add(Arc::clone(&node), wish(), 7, 0);
        assert_eq!(peers.hand(8, 1, 0), None, "no peer");
        assert_eq!(peers.hand(7, 3, 0), Some((Arc::clone(&node), 1)));
        assert_eq!(peers.hand(7, 4, 100), Some((Arc::clone(&node), 2)));
        let mut unheard = |number, at_ms| peers.get_mut(&node, &wish()).map(|peer| peer.heard(number, at_ms));
        assert_eq!(unheard(0, 100), Some(7));
        assert_eq!(unheard(1, 100), Some(4));
        assert_eq!(unheard(1, 100 + UNHEARD_MS), Some(0));
    }

    #[test]
    fn wants_end_by_silence_and_with_their_node() {
        let mut peers = Peers::default();
        for (node, subscriber) in [("a", 1), ("b", 2), ("c", 3)] {
            peers.add(Arc::from(node), wish(), subscriber, 0);
        }
        assert_eq!(peers.forget(Some("b"), 1), [2]);
        peers.get_mut(&Arc::from("c"), &wish()).map(|peer| peer.heard(0, WANT_SILENCE_MS));
        assert_eq!(peers.forget(None, WANT_SILENCE_MS), [1]);
        assert_eq!(peers.hand(1, 1, 0), None);
        assert!(peers.hand(3, 1, 0).is_some());
    }
}
