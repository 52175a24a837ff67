//! The lanes of memory, one for each queue and each host: made when first needed, given up when nothing is left of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_core::job::{Destination, Job};
use tidewheel_core::lanes::{Lane, LaneConfig};
use tidewheel_core::time::Timestamp;

use super::Ready;
use super::origin::host_of;
use super::own_first::OwnMoves;
use super::refill::{LotKey, Overflow};
use super::seats::Seats;

#[derive(Debug)]
pub(super) struct LaneSlot {
    pub(super) is_queue: bool,
    pub(super) name: Arc<str>,
    pub(super) lane: Lane<Arc<Job>>,
    pub(super) in_flight: usize,
    /// Pushes that may be under way, for a host.
    pub(super) in_flight_max: usize,
    pub(super) active: bool,
    pub(super) seats: Seats,
    pub(super) overflows: BTreeMap<LotKey, Overflow>,
    /// Jobs picked in the current and the last window, to tell a lane that moves from one that does not.
    pub(super) picked_now: usize,
    pub(super) picked_before: usize,
    /// When the last window ended in which it moved fast.
    pub(super) was_fast_at: Option<Timestamp>,
    pub(super) own_moves: OwnMoves,
    /// Whether its suspects came first, the last time that there were any.
    pub(super) suspects_first: bool,
}

impl Ready {
    /// The lane of a destination, if there is one. Neighbours mostly share theirs, which then need not be looked for by name.
    pub(super) fn known_lane(&self, destination: &Destination) -> Option<usize> {
        if let Some((latest, index)) = &self.latest_lane
            && latest.is_shared_with(destination)
        {
            return Some(*index);
        }
        match destination {
            Destination::Queue(name) => self.queues.get(name),
            Destination::Target(target) => self.hosts.get(host_of(target)),
        }
        .copied()
    }

    /// The lane of a destination, which is made if there is none.
    pub(super) fn lane_of(&mut self, destination: &Destination) -> usize {
        let index = self.known_lane(destination).unwrap_or_else(|| self.new_lane(destination));
        if !self.latest_lane.as_ref().is_some_and(|(latest, _)| latest.is_shared_with(destination)) {
            self.latest_lane = Some((destination.clone(), index));
        }
        index
    }

    fn new_lane(&mut self, destination: &Destination) -> usize {
        let (is_queue, name): (bool, &str) = match destination {
            Destination::Queue(name) => (true, name),
            Destination::Target(target) => (false, host_of(target)),
        };
        let name: Arc<str> = Arc::from(name);
        let config = LaneConfig {
            lot_count_max: self.config.lot_count_max,
            aging_ms: self.config.aging_ms,
            ..LaneConfig::default()
        };
        let mut lane = Lane::new(config);
        for (tenant, weight) in self.allotments.weights() {
            lane.set_weight(tenant, weight);
        }
        let named_max = self.config.push_per_host_named.of(&name).filter(|_| !is_queue);
        let slot = LaneSlot {
            in_flight_max: named_max.unwrap_or(self.config.push_per_host_max),
            is_queue,
            name: Arc::clone(&name),
            lane,
            in_flight: 0,
            active: false,
            seats: Seats::default(),
            overflows: BTreeMap::new(),
            picked_now: 0,
            picked_before: 0,
            was_fast_at: None,
            own_moves: OwnMoves::default(),
            suspects_first: false,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() - 1
        });
        if let Some(place) = self.lanes.get_mut(index) {
            *place = Some(slot);
        }
        if is_queue {
            self.queues.insert(name, index)
        } else {
            self.hosts.insert(name, index)
        };
        index
    }

    pub(super) fn activate(&mut self, index: usize) {
        let slot = self.lanes.get_mut(index).and_then(Option::as_mut);
        if let Some(slot) = slot.filter(|slot| !slot.active && !slot.lane.is_empty()) {
            let can_move = if slot.is_queue {
                !slot.seats.is_empty()
            } else {
                slot.in_flight < slot.in_flight_max && !self.paces.waits(&slot.name)
            };
            if can_move {
                slot.active = true;
                let active = if slot.is_queue { &mut self.active_queues } else { &mut self.active_hosts };
                active.push_back(index);
            }
        }
    }

    pub(super) fn vacate(&mut self, index: usize, tenant: Option<&Arc<str>>) {
        if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
            slot.in_flight = slot.in_flight.saturating_sub(1);
            if !slot.is_queue
                && let Some(tenant) = tenant
            {
                self.push_slots.ended(tenant);
            }
        }
        self.activate(index);
        self.tidy(index);
    }

    /// Gives up an idle lane, so that names once used cost nothing for ever.
    pub(super) fn tidy(&mut self, index: usize) {
        let Some(place) = self.lanes.get_mut(index) else { return };
        let idle = place.as_ref().is_some_and(|slot| {
            slot.lane.is_empty() && slot.in_flight == 0 && slot.seats.is_empty() && slot.overflows.is_empty()
        });
        // A lane still in the rotation is given up when its turn finds it empty.
        if idle && let Some(slot) = place.take() {
            self.latest_lane = None;
            if slot.is_queue {
                self.queues.remove(&slot.name)
            } else {
                self.hosts.remove(&slot.name)
            };
            let active = if slot.is_queue { &mut self.active_queues } else { &mut self.active_hosts };
            active.retain(|other| *other != index);
            self.free.push(index);
        }
    }
}
