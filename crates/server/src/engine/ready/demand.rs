//! For what this node's own subscribers have room, summed up for the nodes that serve other shards. Kept up to date seat by
//! seat, so that telling of a change looks at what changed alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewheel_core::job::{Destination, Job};
use tidewheel_core::limits::SECOND_MS;
use tidewheel_store::Want;

use super::Ready;
use super::interest::{Interest, Tenants};
use super::subscribers::{Outlet, Subscriber};

/// How long one who asked once is likely to ask again.
const ASKS_AGAIN_MS: i64 = SECOND_MS;
/// Wishes of such that are remembered.
const ASKED_COUNT_MAX: usize = 1_000;

/// For what there is room: what subscribers who may stand in for each other have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct Wish {
    pub(in crate::engine) queue: Arc<str>,
    pub(in crate::engine) interest: Arc<Interest>,
    pub(in crate::engine) lease_ms: i64,
}

impl Wish {
    /// What another node says its workers have room for.
    pub(in crate::engine) fn of(want: Want) -> Self {
        let tenants = want.tenants.map_or(Tenants::All, Tenants::Only);
        let interest = Arc::new(Interest::new(tenants, want.kinds, want.priority_min));
        Self { queue: want.queue, interest, lease_ms: want.lease_ms }
    }

    fn takes(&self, job: &Job) -> bool {
        matches!(&job.spec.destination, Destination::Queue(queue) if *queue == self.queue)
            && self.interest.covers(job.tenant.as_str())
            && self.interest.admits(job.spec.priority, &job.spec.kind)
    }

    fn with_room(&self, Room { jobs, calls }: Room) -> Want {
        Want {
            queue: Arc::clone(&self.queue),
            tenants: match self.interest.tenants() {
                Tenants::All => None,
                Tenants::Only(names) => Some(names.clone()),
            },
            kinds: self.interest.kinds().to_vec(),
            priority_min: self.interest.priority_min(),
            lease_ms: self.lease_ms,
            room: jobs,
            asks_once: calls > 0,
        }
    }
}

/// What subscribers with one wish have room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Room {
    jobs: usize,
    /// How many of them ask once.
    calls: usize,
}

impl Room {
    fn of(subscriber: &Subscriber) -> Self {
        let calls = usize::from(matches!(subscriber.outlet, Outlet::Once(_)));
        Self { jobs: subscriber.credits, calls }
    }
}

/// The room of all local subscribers.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// Somebody asks for it.
    is_watched: bool,
    room: BTreeMap<Wish, Room>,
    /// Connected workers, whether they have room or not.
    connected: BTreeMap<Wish, usize>,
    /// Those who asked once and are gone, and when they went.
    asked: BTreeMap<Wish, i64>,
    changed: BTreeSet<Wish>,
}

impl Demand {
    /// A subscriber was seated.
    pub(super) fn add(&mut self, subscriber: &Subscriber) {
        self.change(subscriber, usize::saturating_add);
    }

    /// A subscriber rose, with the credits it was seated with.
    pub(super) fn subtract(&mut self, subscriber: &Subscriber) {
        self.change(subscriber, usize::saturating_sub);
    }

    /// A worker is connected.
    pub(super) fn connect(&mut self, subscriber: &Subscriber) {
        for wish in self.wishes(subscriber).filter(|_| matches!(subscriber.outlet, Outlet::Stream(_))) {
            *self.connected.entry(wish).or_default() += 1;
        }
    }

    /// A worker is no longer connected.
    pub(super) fn disconnect(&mut self, subscriber: &Subscriber) {
        for wish in self.wishes(subscriber).filter(|_| matches!(subscriber.outlet, Outlet::Stream(_))) {
            let left = self.connected.remove(&wish).map_or(0, |count| count.saturating_sub(1));
            if left > 0 {
                self.connected.insert(wish, left);
            }
        }
    }

    /// One who asked once is gone.
    pub(super) fn note_asked(&mut self, subscriber: &Subscriber, now_ms: i64) {
        if !self.is_watched {
            return;
        }
        if self.asked.len() >= ASKED_COUNT_MAX {
            self.asked.retain(|_, at_ms| at_ms.saturating_add(ASKS_AGAIN_MS) > now_ms);
        }
        for wish in wishes_of(subscriber) {
            if self.asked.len() < ASKED_COUNT_MAX || self.asked.contains_key(&wish) {
                self.asked.insert(wish, now_ms);
            }
        }
    }

    /// What a subscriber wants of other nodes; nothing if it is a peer, whose wants are its own to tell, or is about to leave.
    fn wishes<'a>(&self, subscriber: &'a Subscriber) -> impl Iterator<Item = Wish> + use<'a> {
        let is_told = match &subscriber.outlet {
            Outlet::Once(reply) => !reply.is_retracted(),
            Outlet::Stream(_) => true,
            Outlet::Peer { .. } => false,
        };
        let is_counted = self.is_watched && is_told;
        wishes_of(subscriber).filter(move |_| is_counted)
    }

    fn change(&mut self, subscriber: &Subscriber, by: impl Fn(usize, usize) -> usize) {
        for wish in self.wishes(subscriber) {
            let (before, own) = (self.room.get(&wish).copied().unwrap_or_default(), Room::of(subscriber));
            let room = Room { jobs: by(before.jobs, own.jobs), calls: by(before.calls, own.calls) };
            if room.jobs == 0 {
                self.room.remove(&wish);
            } else {
                self.room.insert(wish.clone(), room);
            }
            self.changed.insert(wish);
        }
    }
}

/// What a subscriber wants.
fn wishes_of(subscriber: &Subscriber) -> impl Iterator<Item = Wish> {
    subscriber.queues.iter().map(|queue| Wish {
        queue: Arc::clone(queue),
        interest: Arc::clone(&subscriber.interest),
        lease_ms: subscriber.lease_ms,
    })
}

impl Ready {
    /// Keeps account of the room of subscribers from now on.
    pub(in crate::engine) fn watch_demand(&mut self) {
        self.demand.is_watched = true;
    }

    /// Whether the room of subscribers is another than when it was last asked for.
    pub(in crate::engine) fn demand_changed(&self) -> bool {
        !self.demand.changed.is_empty()
    }

    /// For what there is room: what changed since it was last asked for, also to no room; or all. Of wishes for which
    /// `wanted` does not hold nothing is said.
    ///
    /// Workers that are busy have room for one, unless `is_late`: where the jobs of this node leave no room for long, those
    /// of others get their turn so. If `all_busy`, the room there is will be filled by jobs of this node, which others
    /// need not send, and it is told of later if it is left.
    pub(in crate::engine) fn demand(
        &mut self,
        all: bool,
        all_busy: bool,
        wanted: impl Fn(&Wish) -> bool,
        is_late: impl Fn(&Wish) -> bool,
    ) -> Vec<Want> {
        let mut wishes = std::mem::take(&mut self.demand.changed);
        if all {
            wishes.extend(self.demand.room.keys().cloned());
            wishes.extend(self.demand.connected.keys().cloned());
        }
        let busy = |wish: &Wish| usize::from(self.demand.connected.contains_key(wish) && !is_late(wish));
        let free = |wish: &Wish| self.demand.room.get(wish).copied().filter(|_| !all_busy);
        let room = |wish: &Wish| free(wish).unwrap_or_else(|| Room { jobs: busy(wish), calls: 0 });
        let wants =
            wishes.iter().filter(|wish| wanted(wish)).map(|wish| wish.with_room(room(wish))).collect();
        if all_busy {
            wishes.retain(|wish| self.demand.room.contains_key(wish));
            self.demand.changed = wishes;
        }
        wants
    }

    /// Whether a connected worker of this node takes such a job, when it has room.
    pub(in crate::engine) fn would_take(&self, job: &Job) -> bool {
        self.demand.connected.keys().any(|wish| wish.takes(job))
    }

    /// Until when one who asked once, and is gone, is likely to come back for such a job; none if nobody is.
    pub(in crate::engine) fn may_be_asked_until(&self, job: &Job, now_ms: i64) -> Option<i64> {
        let asked = self.demand.asked.iter().filter(|(wish, _)| wish.takes(job));
        let until_ms = asked.map(|(_, at_ms)| at_ms.saturating_add(ASKS_AGAIN_MS)).max();
        until_ms.filter(|until_ms| *until_ms > now_ms)
    }
}

#[cfg(test)]
mod tests {
    use tidewheel_core::names::Tenant;

    use super::*;
    use crate::engine::ready::TakeReply;

    fn subscriber(credits: usize, outlet: Outlet) -> Subscriber {
        Subscriber {
            worker: Arc::from("w"),
            queues: Arc::from([Arc::from("q1"), Arc::from("q2")]),
            interest: Arc::new(Interest::of_tenant(Tenant::default())),
            lease_ms: 1_000,
            credits,
            in_flight: 0,
            lags: false,
            outlet,
        }
    }

    #[test]
    fn room_is_summed_up_by_what_it_is_for_and_peers_have_none() {
        let mut demand = Demand { is_watched: true, ..Demand::default() };
        let stream = || Outlet::Stream(Arc::default());
        let (first, second) = (subscriber(3, stream()), subscriber(4, stream()));
        demand.add(&first);
        demand.add(&second);
        let peer = || Outlet::Peer { asks_once: false };
        demand.add(&subscriber(50, peer()));
        demand.connect(&subscriber(50, peer()));
        assert!(demand.connected.is_empty());
        let room = Room { jobs: 7, calls: 0 };
        assert_eq!(demand.room.values().copied().collect::<Vec<_>>(), [room, room]);
        assert_eq!(demand.changed.len(), 2);
        demand.changed.clear();
        demand.subtract(&first);
        demand.subtract(&second);
        assert!(demand.room.is_empty() && demand.changed.len() == 2, "that there is no room is news");
        for wish in &demand.changed {
            assert_eq!(&Wish::of(wish.with_room(Room::default())), wish);
        }
    }

    #[test]
    fn one_who_asked_once_is_remembered_for_a_while() {
        let mut demand = Demand { is_watched: true, ..Demand::default() };
        let (reply, _, _answer) = TakeReply::new(1);
        let one = subscriber(1, Outlet::Once(reply));
        demand.add(&one);
        let wants: Vec<_> = demand.room.iter().map(|(wish, room)| wish.with_room(*room)).collect();
        assert!(wants.iter().all(|want| want.asks_once && want.room == 1));
        demand.subtract(&one);
        assert!(demand.room.is_empty());
        demand.note_asked(&one, 5);
        assert_eq!(demand.asked.values().copied().collect::<Vec<_>>(), [5, 5]);
        for lease_ms in 0..2 * i64::try_from(ASKED_COUNT_MAX).unwrap() {
            demand.note_asked(&Subscriber { lease_ms, ..subscriber(1, Outlet::Stream(Arc::default())) }, 6);
        }
        assert_eq!(demand.asked.len(), ASKED_COUNT_MAX);
        demand.note_asked(&one, 5 + ASKS_AGAIN_MS);
        demand.note_asked(&one, 6 + ASKS_AGAIN_MS);
        assert_eq!(demand.asked.len(), 2, "the others are long gone");
    }
}
