//! What can be said of what is in memory: for `explain`, gauges and checkpoints.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Priority};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::{Ready, Stage, SubscriberId};

/// What of a tenant waits in memory for one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// The queue, or scheme, host and port of the targets.
    pub name: Arc<str>,
    /// Whether it is a queue.
    pub is_queue: bool,
    /// How many wait in memory.
    pub depth: usize,
    /// Whether more are due that stay in the store until there is room.
    pub more: bool,
    /// Since when the longest waiting has been due.
    pub oldest: Timestamp,
    /// Why it does not move, if it does not.
    pub reason: Option<&'static str>,
}

impl Ready {
    /// The lanes in which jobs of a tenant wait, deepest first, at most so many.
    pub(in crate::engine) fn lanes_of(&self, tenant: &Tenant, count_max: usize) -> Vec<LaneView> {
        let slots = self.lanes.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.as_ref()?)));
        let mut lanes: Vec<LaneView> = slots
            .filter_map(|(index, slot)| {
                let (depth, oldest_ms) = slot.lane.waiting_of(tenant.as_str())?;
                Some(LaneView {
                    name: Arc::clone(&slot.name),
                    is_queue: slot.is_queue,
                    depth,
                    more: slot.overflows.keys().any(|lot| lot.tenant == *tenant),
                    oldest: Timestamp::from_ms(oldest_ms),
                    reason: self.lane_state(index, tenant.as_str()).and_then(|(_, reason)| reason),
                })
            })
            .collect();
        lanes.sort_unstable_by(|a, b| b.depth.cmp(&a.depth).then_with(|| a.name.cmp(&b.name)));
        lanes.truncate(count_max);
        lanes
    }

    /// Where a job is, and how many stand before it in its lane.
    pub(in crate::engine) fn stage(&self, id: &JobId) -> Option<Stage> {
        self.held.get(id).map(|held| held.stage)
    }

    /// The time a job in memory waits for, if it waits.
    pub(in crate::engine) fn waits_for(&self, id: &JobId) -> Option<Timestamp> {
        let held = self.held.get(id)?;
        matches!(held.stage, Stage::Wheel | Stage::Lane(_)).then_some(held.due_at)
    }

    /// Whether a job waits in memory for another time than this.
    pub(in crate::engine) fn waits_for_another_time(&self, job: &Job) -> bool {
        self.held.get(&job.id).is_some_and(|held| {
            matches!(held.stage, Stage::Wheel | Stage::Lane(_)) && held.due_at != job.status.due_at
        })
    }

    /// Why a lane does not move for a tenant, and how deep it is.
    pub(in crate::engine) fn lane_state(
        &self,
        index: usize,
        tenant: &str,
    ) -> Option<(usize, Option<&'static str>)> {
        let slot = self.lanes.get(index).and_then(Option::as_ref)?;
        let reason = if slot.is_queue {
            match (slot.seats.is_empty(), self.subscribers.serve(&slot.name)) {
                (true, true) => Some("workers_busy"),
                (true, false) => Some("no_worker"),
                (false, _) => None,
            }
        } else if self.paces.waits(&slot.name) {
            Some("host_rate")
        } else if slot.in_flight >= slot.in_flight_max {
            Some("host_limit")
        } else if self.lacks_slot(tenant) {
            Some("push_limit")
        } else {
            None
        };
        Some((slot.lane.len(), reason))
    }

    /// Somebody without work who would take such a job, while nothing waits in its queue, and how many it would take.
    pub(in crate::engine) fn idle_for(
        &self,
        queue: &str,
        tenant: &str,
        (priority, kind): (Priority, &str),
    ) -> Option<(SubscriberId, usize)> {
        let slot = self.lanes.get(*self.queues.get(queue)?)?.as_ref()?;
        if !slot.lane.is_empty() {
            return None;
        }
        let seat = slot.seats.best(tenant, priority, kind)?;
        let subscriber = self.subscribers.get(seat.id).filter(|subscriber| subscriber.in_flight == 0)?;
        if self.is_peer(seat.id) {
            return None;
        }
        Some((seat.id, subscriber.credits))
    }

    /// Whether a lot of this destination keeps its backlog in the store.
    pub(in crate::engine) fn overflowed(&self, job: &Job) -> bool {
        self.known_lane(&job.spec.destination)
            .and_then(|index| self.lanes.get(index))
            .and_then(Option::as_ref)
            .is_some_and(|slot| slot.overflows.contains_key(&self.lot_key(job)))
    }

    /// Jobs ready in each lane: name, whether it is a queue, depth, whether there are more in the store, oldest.
    pub(in crate::engine) fn depths(&self) -> impl Iterator<Item = (&str, bool, usize, bool, Option<i64>)> {
        self.lanes.iter().flatten().map(|slot| {
            let more = !slot.overflows.is_empty();
            (&*slot.name, slot.is_queue, slot.lane.len(), more, slot.lane.oldest_ready_at())
        })
    }

    /// Where overflowed lots go on reading.
    pub(in crate::engine) fn oldest_overflow(&self) -> Option<Timestamp> {
        self.lanes
            .iter()
            .flatten()
            .flat_map(|slot| slot.overflows.values())
            .map(|o| o.after.at.plus_ms(1))
            .min()
    }

    /// The same of those that wait for room, and not for their target.
    pub(in crate::engine) fn oldest_crowded_out(&self) -> Option<Timestamp> {
        let slots = self.lanes.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.as_ref()?)));
        let lots = slots.flat_map(|(index, slot)| slot.overflows.iter().map(move |(key, o)| (index, key, o)));
        let crowded_out = lots.filter(|(index, key, _)| !self.holds_back(*index, key.tenant.as_str()));
        crowded_out.map(|(_, _, o)| o.after.at.plus_ms(1)).min()
    }

    /// Jobs in the wheel and the lanes.
    pub(in crate::engine) fn waiting(&self) -> usize {
        self.waiting_count
    }

    /// The earliest time of anything in memory.
    pub(in crate::engine) fn oldest_due(&self) -> Option<Timestamp> {
        self.held.values().map(|held| held.due_at).min()
    }

    /// Pushes under way. Pulled jobs are not among them: their workers outlive this server.
    pub(in crate::engine) fn pushes(&self) -> usize {
        self.push_slots.under_way()
    }

    /// Deliveries and claims under way.
    pub(in crate::engine) fn in_flight(&self) -> usize {
        self.lanes.iter().flatten().map(|slot| slot.in_flight).sum()
    }
}
