//! Jobs that may bring down whoever runs them: their worker was lost together with them, twice in a row, or once and another
//! time would be the last. Each is handed out alone to somebody with empty hands, who then gets nothing else for a while, so
//! that it takes no other job along.
//!
//! Of a queue's workers one at a time is kept apart like that, and none for as long after one that was for long: others have to
//! run, too. For the same reason suspects beyond so many run as others do.
//!
//! Where everybody is busy, the least busy is fed no more until its hands are empty. What it runs may take long: it is not
//! waited for without end. Those who ask once are known by nothing but their call, so for them, and for other nodes, alone
//! means alone in what they are handed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_core::job::{Attempt, Ending, Job};
use tidewheel_core::limits::{SECOND_MS, WORKER_DEAD_MS};
use tidewheel_core::time::Timestamp;

use super::Ready;
use super::lane_slots::LaneSlot;
use super::pick::{Recipient, Taker};
use super::subscribers::{Outlet, SubscriberId};

/// How long a suspect waits, at most, for a worker's hands to be empty.
const EMPTIED_MS_MAX: i64 = 30 * SECOND_MS;
/// How long whoever runs a suspect gets nothing else, at most.
const ALONE_MS_MAX: i64 = 30 * SECOND_MS;
/// How long a lane is not looked through again for suspects after nobody took any.
const UNWANTED_MS: i64 = SECOND_MS;
/// Suspects that wait in one lane; when memory is full they may use half of what a lot has then.
pub(super) const SUSPECTS_COUNT_MAX: usize = 1_000;

const _: () =
    assert!(ALONE_MS_MAX > WORKER_DEAD_MS, "a worker that was brought down is known to be, by then");

/// Whether a job may bring down whoever runs it.
pub(super) fn is_suspect(job: &Job) -> bool {
    let is_lost = |attempt: &Attempt| matches!(attempt.ending, Ending::Lost | Ending::LeaseExpired);
    // One that was handed back before it started says nothing.
    let made = job.status.attempts.iter().rev().filter(|attempt| attempt.ending != Ending::Released);
    let lost_in_a_row = made.take_while(|attempt| is_lost(attempt)).take(2).count();
    let is_last_chance = job.status.failures.saturating_add(1) >= job.spec.retry.max_attempts;
    lost_in_a_row == 2 || (lost_in_a_row == 1 && is_last_chance)
}

/// Who gets nothing but a suspect.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// For queues in which one waits: whose hands are being emptied, and until when that is waited for.
    emptied: BTreeMap<Arc<str>, (SubscriberId, i64)>,
    /// For queues of which one runs: who runs it, and nothing else.
    alone: BTreeMap<Arc<str>, Apart>,
    /// Queues of which none is handed out until then.
    rests: BTreeMap<Arc<str>, i64>,
}

/// Somebody who runs a suspect.
#[derive(Debug)]
struct Apart {
    id: SubscriberId,
    since_ms: i64,
}

impl Suspects {
    /// Whether a subscriber is fed nothing else.
    pub(super) fn keep_apart(&self, id: SubscriberId) -> bool {
        self.alone.values().any(|apart| apart.id == id)
            || self.emptied.values().any(|(emptied, _)| *emptied == id)
    }

    /// Whether none of a queue is handed out now.
    fn are_held_back(&self, queue: &Arc<str>, monotonic_ms: i64) -> bool {
        self.emptied.contains_key(queue)
            || self.alone.contains_key(queue)
            || self.rests.get(queue).is_some_and(|until_ms| *until_ms > monotonic_ms)
    }
}

impl Ready {
    /// Whether it is the turn of a lane's suspects: every other time, so that neither they nor the others wait for ever.
    pub(super) fn is_turn_of_suspects(&mut self, index: usize) -> bool {
        let slot = self.lanes.get_mut(index).and_then(Option::as_mut);
        let Some(slot) = slot.filter(|slot| slot.lane.alone_len() > 0) else { return false };
        slot.suspects_first = !slot.suspects_first;
        slot.suspects_first
    }

    /// Picks a suspect of a lane for the least busy who takes it. If that one's hands are not empty, they are to be.
    pub(super) fn pick_suspect(
        &mut self,
        index: usize,
        now: Timestamp,
        picks: &mut Vec<Arc<Job>>,
    ) -> Option<Taker> {
        let LaneSlot { lane, name, seats, .. } = self.lanes.get(index).and_then(Option::as_ref)?;
        if self.suspects.are_held_back(name, self.monotonic_ms) {
            return None;
        }
        let first = lane.first_alone(|entry| {
            seats.admit(&entry.tenant, entry.priority, &entry.item.spec.kind)
                && self.allotments.admits(&entry.tenant, name)
        });
        let (first, name) = (first.cloned(), Arc::clone(name));
        let Some(id) = first.and_then(|first| self.best_taker(index, &first)) else {
            self.suspects.rests.insert(name, self.monotonic_ms.saturating_add(UNWANTED_MS));
            return None;
        };
        if self.has_empty_hands(id) {
            return self.pick_alone(index, id, now, picks);
        }
        self.unseat(id);
        self.suspects.emptied.insert(name, (id, self.monotonic_ms.saturating_add(EMPTIED_MS_MAX)));
        None
    }

    /// Picks suspects for those whose hands are empty by now, or were waited for long enough.
    pub(super) fn pick_for_emptied(
        &mut self,
        now: Timestamp,
        picks: &mut Vec<Arc<Job>>,
        takers: &mut Vec<(Taker, usize)>,
    ) {
        let is_over =
            |(id, until_ms): (SubscriberId, i64)| until_ms <= self.monotonic_ms || self.has_empty_hands(id);
        let emptied = self.suspects.emptied.iter().filter(|(_, waited)| is_over(**waited));
        let emptied: Vec<(Arc<str>, SubscriberId)> =
            emptied.map(|(queue, (id, _))| (Arc::clone(queue), *id)).collect();
        for (queue, id) in emptied {
            self.suspects.emptied.remove(&queue);
            let index = self.queues.get(&queue).copied();
            match index.and_then(|index| self.pick_alone(index, id, now, picks)) {
                Some(taker) => takers.push((taker, 1)),
                // It was called off meanwhile, or is not for this one; others may wait.
                None => {
                    self.seat(id);
                    index.into_iter().for_each(|index| self.activate(index));
                }
            }
        }
    }

    /// Feeds those again who have run their suspect, or have run it for long, and whose hands need not be empty any more.
    pub(super) fn tend_suspects(&mut self) {
        let now_ms = self.monotonic_ms;
        let is_over = |apart: &Apart| {
            apart.since_ms.saturating_add(ALONE_MS_MAX) <= now_ms || self.has_empty_hands(apart.id)
        };
        let ended = self.suspects.alone.iter().filter(|(_, apart)| is_over(apart));
        let ended: Vec<Arc<str>> = ended.map(|(queue, _)| Arc::clone(queue)).collect();
        let mut over = Vec::new();
        for queue in ended {
            let Some(Apart { id, since_ms }) = self.suspects.alone.remove(&queue) else { continue };
            over.push(id);
            if since_ms.saturating_add(ALONE_MS_MAX) <= now_ms {
                self.suspects.rests.insert(queue, now_ms.saturating_add(ALONE_MS_MAX));
            }
        }
        let mut rested: Vec<Arc<str>> = Vec::new();
        self.suspects.rests.retain(|queue, until_ms| {
            let rests = *until_ms > now_ms;
            rested.extend((!rests).then(|| Arc::clone(queue)));
            rests
        });
        let has_any = |queue: &Arc<str>| {
            let slot =
                self.queues.get(queue).and_then(|index| self.lanes.get(*index)).and_then(Option::as_ref);
            slot.is_some_and(|slot| slot.lane.alone_len() > 0)
        };
        self.suspects.emptied.retain(|queue, (id, _)| {
            let is_needed = has_any(queue);
            over.extend((!is_needed).then_some(*id));
            is_needed
        });
        over.into_iter().for_each(|id| self.seat(id));
        for queue in rested {
            let index = self.queues.get(&queue).copied();
            index.into_iter().for_each(|index| self.activate(index));
        }
    }

    /// Whether a subscriber has nothing in its hands, as far as is known; also if it is gone.
    pub(super) fn has_empty_hands(&self, id: SubscriberId) -> bool {
        self.subscribers.get(id).is_none_or(|subscriber| match subscriber.outlet {
            Outlet::Once(_) | Outlet::Peer { .. } => true,
            Outlet::Stream(_) => subscriber.in_flight == 0,
        })
    }

    /// A subscriber is about to be handed a suspect.
    pub(super) fn keep_alone(&mut self, id: SubscriberId, queue: &Arc<str>) {
        let subscriber = self.subscribers.get(id);
        if subscriber.is_some_and(|subscriber| matches!(subscriber.outlet, Outlet::Stream(_))) {
            let apart = Apart { id, since_ms: self.monotonic_ms };
            self.suspects.alone.entry(Arc::clone(queue)).or_insert(apart);
        }
    }

    /// Picks the longest waiting suspect of a lane that a subscriber takes, and nothing else.
    fn pick_alone(
        &mut self,
        index: usize,
        id: SubscriberId,
        now: Timestamp,
        picks: &mut Vec<Arc<Job>>,
    ) -> Option<Taker> {
        let subscriber = self.subscribers.get(id).filter(|subscriber| subscriber.credits > 0)?;
        let (worker, lease_ms) = (Arc::clone(&subscriber.worker), subscriber.lease_ms);
        let interest = Arc::clone(&subscriber.interest);
        let once = matches!(subscriber.outlet, Outlet::Once(_));
        let allotments = &self.allotments;
        let LaneSlot { lane, name, .. } = self.lanes.get_mut(index).and_then(Option::as_mut)?;
        let entry = lane.pop_alone(|entry| {
            interest.covers(&entry.tenant)
                && interest.admits(entry.priority, &entry.item.spec.kind)
                && allotments.admits(&entry.tenant, name)
        })?;
        let queue = Arc::clone(name);
        picks.push(self.picked(index, entry, now));
        self.read_on(index, picks.last().map(std::slice::from_ref).unwrap_or_default());
        let recipient = if once {
            Recipient::Once(Box::new(self.unsubscribe(id)?))
        } else {
            self.keep_alone(id, &queue);
            self.spend(id, 1);
            Recipient::Connected(id)
        };
        self.activate(index);
        Some(Taker { worker, lease_ms, recipient })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use bytes::Bytes;
    use tidewheel_core::id::JobId;
    use tidewheel_core::job::{Destination, Priority, Spec, State, Token};
    use tidewheel_core::names::Tenant;
    use tidewheel_core::retry::RetryPolicy;

    use super::*;
    use crate::engine::config::Config;
    use crate::engine::governor::MadeUp;
    use crate::engine::ready::{Interest, MayWait, Picked, Subscriber, TakeReply};

    const NOW: Timestamp = Timestamp::from_ms(1_000_000);
    const START_MS: i64 = 1_000;

    fn ended(endings: &[Ending]) -> Vec<Attempt> {
        let attempt = |ending: &Ending| Attempt {
            number: 1,
            token: Token::default(),
            worker: "w".into(),
            started_at: NOW,
            finished_at: NOW,
            ending: *ending,
            status_code: None,
            detail: "".into(),
        };
        endings.iter().map(attempt).collect()
    }

    fn job(tail: u128, failures: u32, endings: &[Ending]) -> Arc<Job> {
        let spec = Spec {
            kind: "t".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Queue("q".into()),
            priority: Priority::Normal,
            retry: RetryPolicy { max_attempts: 5, ..RetryPolicy::default() },
            timeout_ms: 30_000,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            trace: None,
            created_at: NOW,
        };
        let mut job = Job::new(Tenant::default(), spec, NOW, tail << 24);
        if !endings.is_empty() {
            job.status.state = State::Retrying;
            job.status.failures = failures;
            job.status.attempts = ended(endings);
        }
        Arc::new(job)
    }

    fn innocent(tail: u128) -> Arc<Job> {
        job(tail, 0, &[])
    }

    fn suspect(tail: u128) -> Arc<Job> {
        job(tail, 2, &[Ending::Lost, Ending::Lost])
    }

    fn node(jobs: impl IntoIterator<Item = Arc<Job>>) -> Ready {
        let mut ready =
            Ready::new(Config::default(), 1, MadeUp { missed_before: Timestamp::from_ms(0) }, NOW);
        at(&mut ready, START_MS);
        jobs.into_iter().for_each(|job| enter(&mut ready, job));
        ready
    }

    fn enter(ready: &mut Ready, job: Arc<Job>) {
        ready.offer(job, NOW, NOW, MayWait::No);
    }

    fn at(ready: &mut Ready, monotonic_ms: i64) {
        ready.tend_targets(monotonic_ms);
        ready.tick(monotonic_ms);
    }

    fn subscribe(ready: &mut Ready, outlet: Outlet) -> SubscriberId {
        ready.subscribe(Subscriber {
            worker: "w".into(),
            queues: Arc::from([Arc::from("q")]),
            interest: Arc::new(Interest::of_tenant(Tenant::default())),
            lease_ms: 30_000,
            credits: 10,
            in_flight: 0,
            lags: false,
            outlet,
        })
    }

    fn worker(ready: &mut Ready) -> SubscriberId {
        subscribe(ready, Outlet::Stream(Arc::default()))
    }

    /// What is picked, each taker's by itself; of one who asks once, its ticket.
    fn picked(ready: &mut Ready) -> Vec<(u64, Vec<JobId>)> {
        let Some(picked) = ready.pick(NOW, 2_048) else { return Vec::new() };
        let Picked::Take(picks, takers) = picked else { panic!("nothing is pushed") };
        let mut ids = picks.iter().map(|job| job.id);
        let who = |taker: Taker| match taker.recipient {
            Recipient::Connected(id) => id,
            Recipient::Once(subscriber) => match subscriber.outlet {
                Outlet::Once(reply) => reply.ticket(),
                Outlet::Stream(_) | Outlet::Peer { .. } => panic!("it asked once"),
            },
        };
        takers.into_iter().map(|(taker, count)| (who(taker), ids.by_ref().take(count).collect())).collect()
    }

    fn ids(jobs: &[&Arc<Job>]) -> Vec<JobId> {
        jobs.iter().map(|job| job.id).collect()
    }

    #[test]
    fn a_suspect_was_lost_twice_in_a_row_or_has_one_chance_left() {
        use Ending::{Failed, LeaseExpired, Lost, Released, Snoozed};
        for (failures, endings, wanted) in [
            (0, vec![], false),
            (1, vec![Lost], false),
            (2, vec![Failed, Lost], false),
            (4, vec![Failed, Lost], true),
            (4, vec![Lost, Failed], false),
            (2, vec![Lost, LeaseExpired], true),
            (2, vec![Lost, Released, Lost, Released], true),
            (2, vec![Lost, Lost, Snoozed], false),
            (0, vec![Lost, Lost], true),
        ] {
            assert_eq!(is_suspect(&job(1, failures, &endings)), wanted, "{failures} {endings:?}");
        }
    }

    #[test]
    fn a_suspect_comes_alone_and_nothing_comes_beside_it() {
        let (it, first, second) = (suspect(1), innocent(2), innocent(3));
        let mut ready = node([&it, &first, &second].map(Arc::clone));
        let own = worker(&mut ready);
        assert_eq!(picked(&mut ready), [(own, ids(&[&it]))]);
        ready.add_credits(own, 5);
        at(&mut ready, START_MS + ALONE_MS_MAX - 1);
        assert_eq!(picked(&mut ready), []);
        ready.finished(own, 1);
        at(&mut ready, START_MS + ALONE_MS_MAX - 1);
        assert_eq!(picked(&mut ready), [(own, ids(&[&first, &second]))]);
        // One that runs for long is trusted by and by.
        let mut ready = node([&it, &first].map(Arc::clone));
        let own = worker(&mut ready);
        assert_eq!(picked(&mut ready), [(own, ids(&[&it]))]);
        at(&mut ready, START_MS + ALONE_MS_MAX);
        assert_eq!(picked(&mut ready), [(own, ids(&[&first]))]);
    }

    #[test]
    fn it_goes_to_empty_hands_and_the_others_go_on() {
        let (old, it, new) = (innocent(1), suspect(2), innocent(3));
        let mut ready = node([Arc::clone(&old)]);
        let busy = worker(&mut ready);
        assert_eq!(picked(&mut ready), [(busy, ids(&[&old]))]);
        let idle = worker(&mut ready);
        enter(&mut ready, Arc::clone(&it));
        enter(&mut ready, Arc::clone(&new));
        assert_eq!(picked(&mut ready), [(idle, ids(&[&it])), (busy, ids(&[&new]))]);
    }

    #[test]
    fn a_busy_worker_is_fed_no_more_until_its_hands_are_empty() {
        let (first, second, it, third) = (innocent(1), innocent(2), suspect(3), innocent(4));
        let busy = || {
            let mut ready = node([&first, &second].map(Arc::clone));
            let own = worker(&mut ready);
            assert_eq!(picked(&mut ready), [(own, ids(&[&first, &second]))]);
            enter(&mut ready, Arc::clone(&it));
            enter(&mut ready, Arc::clone(&third));
            assert_eq!(picked(&mut ready), []);
            ready.finished(own, 1);
            at(&mut ready, START_MS + 1);
            assert_eq!(picked(&mut ready), []);
            (ready, own)
        };
        let (mut ready, own) = busy();
        ready.finished(own, 1);
        at(&mut ready, START_MS + 2);
        assert_eq!(picked(&mut ready), [(own, ids(&[&it]))]);
        ready.finished(own, 1);
        at(&mut ready, START_MS + 3);
        assert_eq!(picked(&mut ready), [(own, ids(&[&third]))]);
        // What it runs takes too long.
        let (mut ready, own) = busy();
        at(&mut ready, START_MS + EMPTIED_MS_MAX);
        assert_eq!(picked(&mut ready), [(own, ids(&[&it]))]);
        assert_eq!(picked(&mut ready), []);
        // Nobody waits for its hands any more.
        let (mut ready, own) = busy();
        ready.forget(&it);
        at(&mut ready, START_MS + 2);
        assert_eq!(picked(&mut ready), [(own, ids(&[&third]))]);
        // It is gone, and another comes. It was the turn of suspects before.
        let (mut ready, own) = busy();
        ready.unsubscribe(own);
        let next = worker(&mut ready);
        for wanted in [&third, &it] {
            at(&mut ready, START_MS + 2);
            assert_eq!(picked(&mut ready), [(next, ids(&[wanted]))]);
            ready.finished(next, 1);
        }
    }

    #[test]
    fn suspects_and_others_take_turns() {
        let (one, two) = (suspect(1), suspect(2));
        let (three, four) = (innocent(3), innocent(4));
        let mut ready = node([&one, &two, &three, &four].map(Arc::clone));
        let own = worker(&mut ready);
        for wanted in [ids(&[&one]), ids(&[&three, &four]), ids(&[&two])] {
            at(&mut ready, START_MS);
            assert_eq!(picked(&mut ready), [(own, wanted.clone())]);
            ready.finished(own, wanted.len());
        }
    }

    #[test]
    fn one_worker_at_a_time_is_kept_apart_and_none_for_as_long_after_a_long_run() {
        let (one, two, other) = (suspect(1), suspect(2), innocent(3));
        let mut ready = node([&one, &two].map(Arc::clone));
        let (first, second) = (worker(&mut ready), worker(&mut ready));
        assert_eq!(picked(&mut ready), [(first, ids(&[&one]))]);
        assert_eq!(picked(&mut ready), [], "the other worker is there for others");
        enter(&mut ready, Arc::clone(&other));
        assert_eq!(picked(&mut ready), [(second, ids(&[&other]))]);
        ready.finished(second, 1);
        at(&mut ready, START_MS + ALONE_MS_MAX);
        assert_eq!(picked(&mut ready), [], "the first still runs its own");
        ready.finished(first, 1);
        at(&mut ready, START_MS + 2 * ALONE_MS_MAX - 1);
        assert_eq!(picked(&mut ready), []);
        at(&mut ready, START_MS + 2 * ALONE_MS_MAX);
        let handed: Vec<_> = picked(&mut ready).into_iter().map(|(_, ids)| ids).collect();
        assert_eq!(handed, [ids(&[&two])]);
    }

    #[test]
    fn to_one_who_asks_once_it_comes_alone() {
        let (it, first, second) = (suspect(1), innocent(2), innocent(3));
        let mut ready = node([&it, &first, &second].map(Arc::clone));
        let (reply, _, _waits) = TakeReply::new(7);
        subscribe(&mut ready, Outlet::Once(reply));
        assert_eq!(picked(&mut ready), [(7, ids(&[&it]))]);
        let (reply, _, _waits) = TakeReply::new(8);
        subscribe(&mut ready, Outlet::Once(reply));
        assert_eq!(picked(&mut ready), [(8, ids(&[&first, &second]))]);
    }
}
