//! For what this node's own subscribers have room, summed up for the nodes that serve other shards. Kept up to date seat by
//! seat, so that telling of a change looks at what changed alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewheel_core::job::{Destination, Job};
use tidewheel_store::Want;

use super::Ready;
use super::interest::{Interest, Tenants};
use super::subscribers::{Outlet, Subscriber};

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

    fn with_room(&self, room: usize) -> Want {
        Want {
            queue: Arc::clone(&self.queue),
            tenants: match self.interest.tenants() {
                Tenants::All => None,
                Tenants::Only(names) => Some(names.clone()),
            },
            kinds: self.interest.kinds().to_vec(),
            priority_min: self.interest.priority_min(),
            lease_ms: self.lease_ms,
            room,
        }
    }
}

/// The room of all local subscribers.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// Somebody asks for it.
    is_watched: bool,
    room: BTreeMap<Wish, usize>,
    /// Connected workers, whether they have room or not.
    connected: BTreeMap<Wish, usize>,
    changed: BTreeSet<Wish>,
}

impl Demand {
    /// A subscriber was seated.
    pub(super) fn add(&mut self, subscriber: &Subscriber) {
        self.change(subscriber, |room, credits| room.saturating_add(credits));
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

    /// What a subscriber wants; nothing if it is a peer, whose wants are its own to tell.
    fn wishes<'a>(&self, subscriber: &'a Subscriber) -> impl Iterator<Item = Wish> + use<'a> {
        let is_counted = self.is_watched && !matches!(subscriber.outlet, Outlet::Peer);
        let wish = |queue: &Arc<str>| Wish {
            queue: Arc::clone(queue),
            interest: Arc::clone(&subscriber.interest),
            lease_ms: subscriber.lease_ms,
        };
        subscriber.queues.iter().filter(move |_| is_counted).map(wish)
    }

    fn change(&mut self, subscriber: &Subscriber, by: impl Fn(usize, usize) -> usize) {
        for wish in self.wishes(subscriber) {
            let room = by(self.room.get(&wish).copied().unwrap_or(0), subscriber.credits);
            if room == 0 {
                self.room.remove(&wish);
            } else {
                self.room.insert(wish.clone(), room);
            }
            self.changed.insert(wish);
        }
    }
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
        let room = |wish: &Wish| free(wish).unwrap_or_else(|| busy(wish));
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
        let Destination::Queue(queue) = &job.spec.destination else { return false };
        self.demand.connected.keys().any(|wish| {
            wish.queue == *queue
                && wish.interest.covers(job.tenant.as_str())
                && wish.interest.admits(job.spec.priority, &job.spec.kind)
        })
    }
}

#[cfg(test)]
mod tests {
    use tidewheel_core::names::Tenant;

    use super::*;

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
        demand.add(&subscriber(50, Outlet::Peer));
        demand.connect(&subscriber(50, Outlet::Peer));
        assert!(demand.connected.is_empty());
        assert_eq!(demand.room.values().copied().collect::<Vec<_>>(), [7, 7]);
        assert_eq!(demand.changed.len(), 2);
        demand.changed.clear();
        demand.subtract(&first);
        demand.subtract(&second);
        assert!(demand.room.is_empty() && demand.changed.len() == 2, "that there is no room is news");
        for wish in &demand.changed {
            assert_eq!(&Wish::of(wish.with_room(0)), wish);
        }
    }
}
