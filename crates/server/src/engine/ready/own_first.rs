//! Workers of other nodes wait while those of this one take the jobs of a lane by the hundred, as fast as they can be started
//! and ended: what all are waiting for then is the store, and a job that goes to another node costs it more.

use std::collections::BTreeMap;

use tidewheel_core::job::{Destination, Job};

use super::Ready;

/// Jobs in one go by which workers are known to keep up with the store.
const TURN_COUNT: usize = 512;
/// How long other nodes wait after such a turn: long enough for its jobs to be started, run where they are short, or be
/// ended.
const WAIT_MS: i64 = 250;
/// How long they wait in all. Then they have a turn, whatever own workers do.
const WAIT_MS_MAX: i64 = 1_000;

/// Lanes that only other nodes have room for, and when that is looked at again.
#[derive(Debug, Default)]
pub(super) struct OwnFirst {
    waiting: BTreeMap<usize, i64>,
}

/// How own workers move in a lane.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnMoves {
    /// When they last took many of its jobs, got or ended them.
    moved_ms: Option<i64>,
    /// Since when other nodes wait for them.
    waited_since_ms: Option<i64>,
}

impl Ready {
    /// Notes that so many jobs were picked for own workers, handed to them or ended by them, `one` of them.
    pub(in crate::engine) fn own_moved(&mut self, one: Option<&Job>, count: usize) {
        let queue = one.map(|job| &job.spec.destination);
        if count >= TURN_COUNT
            && let Some(destination @ Destination::Queue(_)) = queue
            && let Some(index) = self.known_lane(destination)
            && let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut)
        {
            slot.own_moves.moved_ms = Some(self.monotonic_ms);
        }
    }

    /// Whether a job that only other nodes have room for waits for own workers, and its lane with it.
    pub(super) fn waits_for_own(&mut self, index: usize, job: &Job) -> bool {
        let (now_ms, would_take) = (self.monotonic_ms, self.would_take(job));
        let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) else { return false };
        let moves = &mut slot.own_moves;
        let moved_until_ms = moves.moved_ms.map_or(i64::MIN, |at_ms| at_ms.saturating_add(WAIT_MS));
        let since_ms = moves.waited_since_ms.unwrap_or(now_ms);
        let until_ms = moved_until_ms.min(since_ms.saturating_add(WAIT_MS_MAX));
        let waits = until_ms > now_ms && would_take;
        moves.waited_since_ms = waits.then_some(since_ms);
        if waits {
            self.own_first.waiting.insert(index, until_ms);
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
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use std::sync::Arc;

    use bytes::Bytes;
    use tidewheel_core::job::{Priority, Spec};
    use tidewheel_core::names::Tenant;
    use tidewheel_core::retry::RetryPolicy;
    use tidewheel_core::time::Timestamp;

    use super::*;
    use crate::engine::config::Config;
    use crate::engine::governor::MadeUp;
    use crate::engine::ready::{
        Interest, MayWait, Outlet, Picked, Recipient, Subscriber, SubscriberId, Taker,
    };

    pub(in crate::engine::ready) const NOW: Timestamp = Timestamp::from_ms(1_000_000);

    pub(in crate::engine::ready) fn job(tail: u128) -> Arc<Job> {
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

    pub(in crate::engine::ready) fn subscribe(
        ready: &mut Ready,
        credits: usize,
        outlet: Outlet,
    ) -> SubscriberId {
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
            ready.offer(job(tail), NOW, NOW, MayWait::No);
        }
        let own = subscribe(&mut ready, own_room, Outlet::Stream(Arc::default()));
        let peer = subscribe(&mut ready, 2_000, Outlet::Peer { asks_once: false });
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
        at(&mut ready, 1_000 + WAIT_MS);
        assert_eq!(given(&mut ready).first().map(|(id, _)| *id), Some(peer), "they have stopped");
        // Once more, and they go on and on.
        let (mut ready, own, peer) = node(TURN_COUNT);
        at(&mut ready, 1_000);
        assert_eq!(given(&mut ready), [(own, TURN_COUNT)]);
        for passed_ms in (100..WAIT_MS_MAX).step_by(100) {
            at(&mut ready, 1_000 + passed_ms);
            assert_eq!(given(&mut ready), [], "{passed_ms}");
            ready.own_moved(Some(&job(1)), TURN_COUNT);
        }
        at(&mut ready, 1_000 + WAIT_MS_MAX);
        assert_eq!(given(&mut ready).first().map(|(id, _)| *id), Some(peer), "it has waited long enough");
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
        ready.own_moved(Some(&job(1)), TURN_COUNT);
        at(&mut ready, 1_000 + WAIT_MS);
        assert_eq!(given(&mut ready).first().map(|(id, _)| *id), Some(peer));
    }
}
