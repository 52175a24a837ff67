//! Workers of other nodes wait while those of this one take jobs by the hundred, as fast as they can be started and ended:
//! what all are waiting for then is the store, and a job that goes to another node costs it more.

use std::collections::BTreeMap;

use tidewheel_core::job::Job;

use super::Ready;
use super::pick::{Recipient, Taker};

/// Jobs in one go by which workers are known to keep up with the store.
pub(in crate::engine) const TURN_COUNT: usize = 512;
/// How long other nodes wait after such a turn: long enough for its jobs to run, where they are short, and to be reported.
const WAIT_MS: i64 = 250;

/// How own workers move, and what waits for them.
#[derive(Debug, Default)]
pub(super) struct OwnFirst {
    /// Many jobs of theirs are being started or ended this moment.
    is_moving: bool,
    /// When that was last so.
    moved_ms: Option<i64>,
    /// Lanes that only other nodes have room for, and when that is looked at again.
    waiting: BTreeMap<usize, i64>,
}

impl Ready {
    /// Says whether many jobs of own workers are being started or ended this moment.
    pub(in crate::engine) const fn own_are_moving(&mut self, are_moving: bool) {
        self.own_first.is_moving = are_moving;
        if are_moving {
            self.own_first.moved_ms = Some(self.monotonic_ms);
        }
    }

    /// How many of the jobs picked for them are for own workers.
    pub(in crate::engine) fn for_own(&self, takers: &[(Taker, usize)]) -> usize {
        let is_own = |taker: &Taker| match taker.recipient {
            Recipient::Once(_) => true,
            Recipient::Connected(id) => !self.is_peer(id),
        };
        takers.iter().filter(|(taker, _)| is_own(taker)).map(|(_, count)| count).sum()
    }

    /// Notes that so many jobs were handed to own workers, or ended by them.
    pub(in crate::engine) const fn own_moved(&mut self, count: usize) {
        if count >= TURN_COUNT {
            self.own_first.moved_ms = Some(self.monotonic_ms);
        }
    }

    /// Whether a job that only other nodes have room for waits for own workers, and its lane with it.
    pub(super) fn waits_for_own(&mut self, index: usize, job: &Job) -> bool {
        let now_ms = self.monotonic_ms;
        let moved_until_ms = self.own_first.moved_ms.map_or(i64::MIN, |at_ms| at_ms.saturating_add(WAIT_MS));
        let waits = (self.own_first.is_moving || moved_until_ms > now_ms) && self.would_take(job);
        if waits {
            self.own_first.waiting.insert(index, moved_until_ms.max(now_ms + 1));
        }
        waits
    }

    /// Offers other nodes what own workers have had their time for.
    pub(super) fn offer_to_peers(&mut self) {
        let now_ms = self.monotonic_ms;
        let waiting = self.own_first.waiting.iter().filter(|(_, until_ms)| **until_ms <= now_ms);
        let over: Vec<usize> = waiting.map(|(index, _)| *index).collect();
        self.own_first.waiting.retain(|_, until_ms| *until_ms > now_ms);
        over.into_iter().for_each(|index| self.activate(index));
    }

    /// When that is worth doing.
    pub(super) fn next_offer_ms(&self) -> Option<i64> {
        self.own_first.waiting.values().copied().min()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use std::sync::Arc;

    use bytes::Bytes;
    use tidewheel_core::job::{Destination, Priority, Spec};
    use tidewheel_core::names::Tenant;
    use tidewheel_core::retry::RetryPolicy;
    use tidewheel_core::time::Timestamp;

    use super::*;
    use crate::engine::config::Config;
    use crate::engine::governor::MadeUp;
    use crate::engine::ready::{Interest, Outlet, Picked, Subscriber, SubscriberId};

    const NOW: Timestamp = Timestamp::from_ms(1_000_000);

    fn job(tail: u128) -> Arc<Job> {
        let spec = Spec {
            kind: "t".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Queue("q".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: 30_000,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            trace: None,
            created_at: NOW,
        };
        Arc::new(Job::new(Tenant::default(), spec, NOW, tail << 24))
    }

    fn subscribe(ready: &mut Ready, credits: usize, outlet: Outlet) -> SubscriberId {
        ready.subscribe(Subscriber {
            worker: "w".into(),
            queues: Arc::from([Arc::from("q")]),
            interest: Arc::new(Interest::of_tenant(Tenant::default())),
            lease_ms: 30_000,
            credits,
            in_flight: 0,
            lags: false,
            outlet,
        })
    }

    /// A node with jobs, a worker of its own with so much room, and another node with plenty.
    fn node(own_room: usize) -> (Ready, SubscriberId, SubscriberId) {
        let mut ready =
            Ready::new(Config::default(), 1, MadeUp { missed_before: Timestamp::from_ms(0) }, NOW);
        ready.watch_demand();
        for tail in 1..=3_000 {
            ready.offer(job(tail), NOW, NOW, false);
        }
        let own = subscribe(&mut ready, own_room, Outlet::Stream(Arc::default()));
        let peer = subscribe(&mut ready, 2_000, Outlet::Peer);
        (ready, own, peer)
    }

    fn at(ready: &mut Ready, monotonic_ms: i64) {
        ready.tend_targets(monotonic_ms);
        ready.tick(monotonic_ms);
    }

    /// Who is given how many.
    fn given(ready: &mut Ready) -> Vec<(SubscriberId, usize)> {
        let Some(picked) = ready.pick(NOW, 2_048) else { return Vec::new() };
        let Picked::Take(_, takers) = picked else { panic!("nothing is pushed") };
        let id = |taker: &Taker| match taker.recipient {
            Recipient::Connected(id) => id,
            Recipient::Once(_) => panic!("nobody asks once"),
        };
        takers.iter().map(|(taker, count)| (id(taker), *count)).collect()
    }

    #[test]
    fn another_node_waits_while_own_workers_take_jobs_by_the_hundred() {
        let (mut ready, own, peer) = node(TURN_COUNT);
        at(&mut ready, 1_000);
        assert_eq!(given(&mut ready), [(own, TURN_COUNT)]);
        assert_eq!(given(&mut ready), []);
        at(&mut ready, 1_000 + WAIT_MS - 1);
        assert_eq!((given(&mut ready), ready.next_offer_ms()), (Vec::new(), Some(1_000 + WAIT_MS)));
        ready.add_credits(own, 5);
        assert_eq!(given(&mut ready), [(own, 5)], "they come first all the same");
        ready.own_are_moving(true);
        at(&mut ready, 1_000 + 10 * WAIT_MS);
        assert_eq!(given(&mut ready), [], "jobs are being ended");
        ready.own_are_moving(false);
        at(&mut ready, 1_000 + 11 * WAIT_MS);
        assert_eq!(given(&mut ready).first().map(|(id, _)| *id), Some(peer), "they have stopped");
    }

    #[test]
    fn another_node_does_not_wait_for_workers_that_are_slow_or_gone() {
        let (mut ready, own, peer) = node(10);
        at(&mut ready, 1_000);
        assert_eq!(given(&mut ready).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [own, peer]);
        let (mut ready, own, peer) = node(TURN_COUNT);
        at(&mut ready, 1_000);
        assert_eq!(given(&mut ready), [(own, TURN_COUNT)]);
        ready.unsubscribe(own);
        ready.own_are_moving(true);
        at(&mut ready, 1_000 + WAIT_MS);
        assert_eq!(given(&mut ready).first().map(|(id, _)| *id), Some(peer));
    }
}
