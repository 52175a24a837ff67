//! Other nodes as subscribers of this one: a node is a worker of its peers. Each says, through the store, what its own workers
//! have room for; whoever serves a shard starts attempts for them and says so the same way. Nothing but the store lies
//! between two nodes, so nodes that cannot reach each other work together all the same.
//!
//! What is said can be lost: a want that is not repeated ends, and an attempt that nobody heard of ends with its lease, and
//! costs nothing if that is known of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Token};
use tidewheel_core::limits::{LEASE_MS_MAX, SECOND_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Want;

use super::ready::{SubscriberId, Wish};

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

/// Batches of attempts handed on that are remembered until they are heard of.
const UNANSWERED_COUNT_MAX: usize = 10_000;

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

/// What the scheduler hears of other nodes.
pub(super) enum PeerMessage {
    /// A node's workers have room.
    Wanted { node: Arc<str>, heard: Vec<(Arc<str>, u64)>, wants: Vec<Want> },
    /// Attempts were started elsewhere for this node's workers.
    Handed { from: Arc<str>, number: u64, jobs: Vec<Arc<Job>> },
    /// Jobs that others serve were changed.
    Changed(Vec<(Tenant, JobId)>),
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

/// Attempts that were handed on together, and that the other node has not said it heard of.
#[derive(Debug)]
struct Unanswered {
    jobs: Vec<(JobId, Token)>,
    at_ms: i64,
    /// It was heard of long after, and did not know of them.
    is_lost: bool,
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
    pub(super) until_ms: i64,
}

impl Guest {
    /// None if too little is left of its lease: it would only be started when another node gives it to others.
    pub(super) fn new(job: &Arc<Job>, now: Timestamp, now_ms: i64) -> Option<Self> {
        let part_ms = lease_ms(job) / GUEST_LEASE_PART;
        let left_ms = job.status.running.as_ref().map_or(0, |running| running.lease_until.since_ms(now));
        let until_ms = now_ms.saturating_add(part_ms.min(left_ms - part_ms));
        (left_ms > part_ms).then(|| Self { job: Arc::clone(job), until_ms })
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
    /// By node, the number of the newest attempts that it handed on, and when that was heard.
    heard: BTreeMap<Arc<str>, (u64, i64)>,
    served: BTreeMap<(Arc<str>, Wish), Peer>,
    by_subscriber: FxHashMap<SubscriberId, (Arc<str>, Wish)>,
    /// By node and number.
    unanswered: BTreeMap<(Arc<str>, u64), Unanswered>,
    /// The number of what was last handed on.
    handed: u64,
}

impl Peers {
    /// Takes note of attempts that another node handed on.
    pub(super) fn note(&mut self, from: Arc<str>, number: u64, now_ms: i64) {
        let newest = self.heard.entry(from).or_insert((number, now_ms));
        *newest = (newest.0.max(number), now_ms);
    }

    /// By node, what was taken into account of what it handed on lately.
    pub(super) fn noted(&self) -> Vec<(Arc<str>, u64)> {
        self.heard.iter().map(|(node, (number, _))| (Arc::clone(node), *number)).collect()
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
        self.handed += 1;
        peer.unheard.push_back(Unheard { number: self.handed, count, at_ms: now_ms });
        Some((Arc::clone(&place.0), self.handed))
    }

    /// Remembers what was handed on to a node under a number.
    pub(super) fn handed(&mut self, to: &Arc<str>, number: u64, jobs: Vec<(JobId, Token)>, at_ms: i64) {
        self.unanswered.insert((Arc::clone(to), number), Unanswered { jobs, at_ms, is_lost: false });
        if self.unanswered.len() > UNANSWERED_COUNT_MAX {
            self.unanswered.pop_first();
        }
    }

    /// A node says that it has heard of everything up to that number. That it passes over one that was lost before cannot be
    /// seen; then that one counts.
    pub(super) fn answered(&mut self, node: &Arc<str>, number: u64, now_ms: i64) {
        let heard = (Arc::clone(node), 0)..=(Arc::clone(node), number);
        let keys: Vec<_> = self.unanswered.range(heard).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| drop(self.unanswered.remove(key)));
        let later = (Arc::clone(node), 0)..=(Arc::clone(node), u64::MAX);
        for (_, unanswered) in self.unanswered.range_mut(later) {
            unanswered.is_lost |= unanswered.at_ms.saturating_add(WANTS_REPEAT_MS) <= now_ms;
        }
    }

    /// Whether an attempt that was handed on is known to have been lost on the way.
    pub(super) fn is_lost(&self, id: &JobId, token: Token) -> bool {
        self.unanswered.values().any(|it| it.is_lost && it.jobs.contains(&(*id, token)))
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
        self.unanswered.retain(|_, it| it.at_ms + LEASE_MS_MAX > now_ms);
        // Whoever it was has long heard that it was heard.
        self.heard.retain(|_, (_, at_ms)| *at_ms + WANT_SILENCE_MS > now_ms);
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
    fn what_was_handed_on_is_lost_if_its_node_is_heard_of_long_after_and_did_not_hear_of_it() {
        let (mut peers, node): (Peers, Arc<str>) = (Peers::default(), Arc::from("n"));
        let attempt = |n| (JobId::from_bytes([n; 16]), Token::new(1, 1));
        let is_lost = |peers: &Peers, n| peers.is_lost(&attempt(n).0, attempt(n).1);
        peers.handed(&node, 1, vec![attempt(1)], 0);
        peers.handed(&node, 2, vec![attempt(2)], 0);
        assert!(!is_lost(&peers, 1) && !is_lost(&peers, 2), "silence says nothing");
        peers.answered(&Arc::from("m"), 9, WANTS_REPEAT_MS);
        peers.answered(&node, 0, WANTS_REPEAT_MS - 1);
        assert!(!is_lost(&peers, 2), "it may be on its way");
        peers.answered(&node, 1, WANTS_REPEAT_MS);
        assert!(!is_lost(&peers, 1) && is_lost(&peers, 2));
        assert!(!peers.is_lost(&attempt(2).0, Token::new(1, 2)), "another attempt");
        peers.answered(&node, 2, WANTS_REPEAT_MS + 1);
        assert!(!is_lost(&peers, 2), "it was late, no more");
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
