//! Who wants jobs: connected workers with their credits, and those who ask once over HTTP. One with room has a seat at
//! every lane it names; one without costs nothing until it says otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::job::Destination;
use tidewheel_core::limits::WORKER_CREDITS_COUNT_MAX;

use super::Ready;
use super::interest::Interest;
use super::seats::Seat;
use super::takers::{TakeReply, Ticket};
use crate::engine::workers::Unsent;

/// A subscriber's number; never used twice.
pub(in crate::engine) type SubscriberId = u64;

/// How finely loads are told apart.
const LOAD_SCALE: usize = 1_024;

/// One who wants jobs.
#[derive(Debug)]
pub(in crate::engine) struct Subscriber {
    pub(in crate::engine) worker: Arc<str>,
    pub(in crate::engine) queues: Arc<[Arc<str>]>,
    pub(in crate::engine) interest: Arc<Interest>,
    pub(in crate::engine) lease_ms: i64,
    /// Jobs it has room for.
    pub(in crate::engine) credits: usize,
    /// Jobs it works on.
    pub(in crate::engine) in_flight: usize,
    /// It sits on jobs without starting them, whatever room it says it has: others come first.
    pub(in crate::engine) lags: bool,
    pub(in crate::engine) outlet: Outlet,
}

/// How jobs reach a subscriber.
#[derive(Debug)]
pub(in crate::engine) enum Outlet {
    /// Once, and then it is gone.
    Once(TakeReply),
    /// Over a stream, as long as it is read.
    Stream(Arc<Unsent>),
    /// Over another node, whose workers have room.
    Peer {
        /// Some of them ask once: what comes first is their answer, and nobody waits for what comes after it.
        asks_once: bool,
    },
}

impl Outlet {
    /// Nothing may be sent this moment.
    fn is_shut(&self) -> bool {
        match self {
            Self::Once(reply) => reply.is_closed(),
            Self::Stream(unsent) => unsent.is_stalled(),
            Self::Peer { .. } => false,
        }
    }
}

impl Subscriber {
    /// How busy it is, of all it can do. A job goes to another node only if nobody here has room for it.
    fn load(&self) -> u32 {
        if matches!(self.outlet, Outlet::Peer { .. }) {
            return u32::MAX;
        }
        let capacity = (self.in_flight + self.credits).max(1);
        let behind = if self.lags { LOAD_SCALE } else { 0 };
        // Rounded up: one with a single job of many is not idle.
        u32::try_from((self.in_flight * LOAD_SCALE).div_ceil(capacity) + behind).unwrap_or(u32::MAX)
    }
}

/// All who want jobs.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    all: FxHashMap<SubscriberId, (Subscriber, Option<Seat>)>,
    /// Those who ask once; they go without saying so.
    once: BTreeMap<Ticket, SubscriberId>,
    /// Connected workers for each queue, whether they have room or not.
    connected: FxHashMap<Arc<str>, usize>,
    next: u64,
}

impl Subscribers {
    pub(super) fn get(&self, id: SubscriberId) -> Option<&Subscriber> {
        self.all.get(&id).map(|(subscriber, _)| subscriber)
    }

    pub(super) fn outlet_mut(&mut self, id: SubscriberId) -> Option<&mut Outlet> {
        self.all.get_mut(&id).map(|(subscriber, _)| &mut subscriber.outlet)
    }

    /// Whether workers are connected for a queue.
    pub(super) fn serve(&self, queue: &str) -> bool {
        self.connected.contains_key(queue)
    }

    /// One who asks once, unless something is being claimed for it.
    pub(super) fn taker(&self, ticket: Ticket) -> Option<SubscriberId> {
        self.once.get(&ticket).copied()
    }

    /// Those who ask once.
    pub(super) fn takers(&self) -> impl Iterator<Item = SubscriberId> {
        self.once.values().copied()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Ready {
    /// Names each queue that somebody serves, with how many; a queue may come up more than once.
    pub(in crate::engine) fn each_served_queue<'a>(&'a self, mut name: impl FnMut(&'a str, usize)) {
        let subscribers = &self.subscribers;
        subscribers.connected.iter().for_each(|(queue, workers)| name(queue, *workers));
        let once = subscribers.takers().filter_map(|id| subscribers.get(id));
        once.flat_map(|subscriber| &*subscriber.queues).for_each(|queue| name(queue, 1));
    }

    /// Lets somebody wait for jobs.
    pub(in crate::engine) fn subscribe(&mut self, mut subscriber: Subscriber) -> SubscriberId {
        let id = self.subscribers.number();
        match &mut subscriber.outlet {
            Outlet::Once(reply) => {
                reply.look_at_leave();
                self.subscribers.once.insert(reply.ticket(), id);
            }
            Outlet::Stream(_) | Outlet::Peer { .. } => {
                for queue in &*subscriber.queues {
                    *self.subscribers.connected.entry(Arc::clone(queue)).or_default() += 1;
                }
            }
        }
        self.demand.connect(&subscriber);
        self.subscribers.all.insert(id, (subscriber, None));
        self.seat(id);
        id
    }

    /// Forgets a subscriber.
    pub(in crate::engine) fn unsubscribe(&mut self, id: SubscriberId) -> Option<Subscriber> {
        self.unseat(id);
        let (subscriber, _) = self.subscribers.all.remove(&id)?;
        self.demand.disconnect(&subscriber);
        if let Outlet::Once(reply) = &subscriber.outlet {
            self.subscribers.once.remove(&reply.ticket());
            self.demand.note_asked(&subscriber, self.monotonic_ms);
        } else {
            for queue in &*subscriber.queues {
                if let Some(count) = self.subscribers.connected.get_mut(queue) {
                    *count -= 1;
                    if *count == 0 {
                        self.subscribers.connected.remove(queue);
                    }
                }
            }
        }
        Some(subscriber)
    }

    /// A subscriber has room for so many more.
    pub(in crate::engine) fn add_credits(&mut self, id: SubscriberId, credits: usize) {
        self.unseat(id);
        if let Some((subscriber, _)) = self.subscribers.all.get_mut(&id) {
            subscriber.credits = subscriber.credits.saturating_add(credits).min(WORKER_CREDITS_COUNT_MAX);
        }
        self.seat(id);
    }

    /// Another node's workers have room for so many, whatever it said before. If some of them ask once, they get nothing while
    /// something is on its way to them: that may be their answer.
    pub(in crate::engine) fn feed_peer(
        &mut self,
        id: SubscriberId,
        room: usize,
        on_the_way: usize,
        asks_once: bool,
    ) {
        let credits = if asks_once && on_the_way > 0 { 0 } else { room.saturating_sub(on_the_way) };
        if let Some(outlet) = self.subscribers.outlet_mut(id) {
            *outlet = Outlet::Peer { asks_once };
        }
        self.drop_credits(id);
        self.add_credits(id, credits);
    }

    /// A subscriber wants no more.
    pub(in crate::engine) fn drop_credits(&mut self, id: SubscriberId) {
        self.unseat(id);
        if let Some((subscriber, _)) = self.subscribers.all.get_mut(&id) {
            subscriber.credits = 0;
        }
    }

    /// Jobs picked for a subscriber were not granted: its credits are its own again. Not those of another node some of whose
    /// workers ask once: what else was picked for it may be their answer, and they may have gone meanwhile.
    pub(in crate::engine) fn give_back(&mut self, id: SubscriberId, count: usize) {
        if count == 0 {
            return;
        }
        self.finished(id, count);
        let asks_once = |it: &Subscriber| matches!(it.outlet, Outlet::Peer { asks_once: true });
        if !self.subscribers.get(id).is_some_and(asks_once) {
            self.add_credits(id, count);
        }
    }

    /// A subscriber is done with so many. Its place is found anew when it asks for more.
    pub(in crate::engine) fn finished(&mut self, id: SubscriberId, count: usize) {
        if let Some((subscriber, _)) = self.subscribers.all.get_mut(&id) {
            subscriber.in_flight = subscriber.in_flight.saturating_sub(count);
        }
    }

    /// Whether a subscriber stands for another node's workers.
    pub(super) fn is_peer(&self, id: SubscriberId) -> bool {
        self.subscribers.get(id).is_some_and(|subscriber| matches!(subscriber.outlet, Outlet::Peer { .. }))
    }

    /// What is known of a subscriber.
    pub(in crate::engine) fn subscriber(&self, id: SubscriberId) -> Option<&Subscriber> {
        self.subscribers.get(id)
    }

    /// A subscriber sits on its jobs, or no longer does.
    pub(in crate::engine) fn set_lags(&mut self, id: SubscriberId, lags: bool) {
        if let Some((subscriber, _)) = self.subscribers.all.get_mut(&id)
            && subscriber.lags != lags
        {
            subscriber.lags = lags;
            self.reseat(id);
        }
    }

    /// Looks again whether a subscriber may be fed.
    pub(in crate::engine) fn reseat(&mut self, id: SubscriberId) {
        self.unseat(id);
        self.seat(id);
    }

    pub(super) fn seat(&mut self, id: SubscriberId) {
        if self.suspects.keep_apart(id) {
            return;
        }
        let turn = self.subscribers.number();
        let Some((subscriber, seat)) = self.subscribers.all.get_mut(&id) else { return };
        if subscriber.credits == 0 || subscriber.outlet.is_shut() {
            return;
        }
        let place = Seat { load: subscriber.load(), turn, id };
        *seat = Some(place);
        self.demand.add(subscriber);
        let (queues, interest) = (Arc::clone(&subscriber.queues), Arc::clone(&subscriber.interest));
        for queue in &*queues {
            let index = self.lane_of(&Destination::Queue(Arc::clone(queue)));
            if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
                slot.seats.sit(&interest, place);
            }
            self.activate(index);
        }
    }

    pub(super) fn unseat(&mut self, id: SubscriberId) {
        let Some((subscriber, seat)) = self.subscribers.all.get_mut(&id) else { return };
        let Some(place) = seat.take() else { return };
        self.demand.subtract(subscriber);
        let (queues, interest) = (Arc::clone(&subscriber.queues), Arc::clone(&subscriber.interest));
        for queue in &*queues {
            let Some(index) = self.queues.get(queue).copied() else { continue };
            if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
                slot.seats.rise(&interest, &place);
            }
            self.tidy(index);
        }
    }

    /// Takes so many of a subscriber's credits.
    pub(super) fn spend(&mut self, id: SubscriberId, count: usize) {
        self.unseat(id);
        if let Some((subscriber, _)) = self.subscribers.all.get_mut(&id) {
            let is_answered = matches!(subscriber.outlet, Outlet::Peer { asks_once: true });
            // Until it is heard of again.
            subscriber.credits = if is_answered { 0 } else { subscriber.credits.saturating_sub(count) };
            subscriber.in_flight += count;
        }
        self.seat(id);
    }

    /// Whether a seated subscriber may be fed this moment; if not, it loses its seat.
    pub(super) fn is_open(&mut self, id: SubscriberId) -> bool {
        let Some(subscriber) = self.subscribers.get(id) else { return false };
        let once = matches!(subscriber.outlet, Outlet::Once(_));
        if !subscriber.outlet.is_shut() {
            return true;
        }
        if once {
            self.unsubscribe(id);
        } else {
            self.unseat(id);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use tidewheel_core::names::Tenant;
    use tidewheel_core::time::Timestamp;

    use super::*;
    use crate::engine::config::Config;
    use crate::engine::governor::MadeUp;

    fn peer(ready: &mut Ready, asks_once: bool) -> SubscriberId {
        ready.subscribe(Subscriber {
            worker: "via:other".into(),
            queues: Arc::from([Arc::from("q")]),
            interest: Arc::new(Interest::of_tenant(Tenant::default())),
            lease_ms: 30_000,
            credits: 5,
            in_flight: 0,
            lags: false,
            outlet: Outlet::Peer { asks_once },
        })
    }

    fn credits(ready: &Ready, id: SubscriberId) -> (usize, usize) {
        ready.subscriber(id).map(|it| (it.credits, it.in_flight)).unwrap()
    }

    #[test]
    fn a_node_whose_workers_ask_once_has_no_room_after_a_refused_claim_until_it_says_so() {
        let now = Timestamp::from_ms(1_000);
        let mut ready = Ready::new(Config::default(), 1, MadeUp { missed_before: now }, now);
        let once = peer(&mut ready, true);
        ready.spend(once, 3);
        assert_eq!(credits(&ready, once), (0, 3));
        ready.give_back(once, 2);
        assert_eq!(credits(&ready, once), (0, 1), "the third may be what they waited for");
        ready.give_back(once, 1);
        assert_eq!(credits(&ready, once), (0, 0));
        ready.feed_peer(once, 4, 0, true);
        assert_eq!(credits(&ready, once), (4, 0));
        let connected = peer(&mut ready, false);
        ready.spend(connected, 3);
        ready.give_back(connected, 2);
        assert_eq!(credits(&ready, connected), (4, 1), "workers that stay have their room back");
    }
}
