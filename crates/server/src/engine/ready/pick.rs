//! Which jobs start next: lanes take turns, pushes within their limits, queues for whoever has room for them.

use std::sync::Arc;

use tidewheel_core::glance;
use tidewheel_core::job::Job;
use tidewheel_core::lanes::Entry;
use tidewheel_core::limits::TAKE_BYTES_MAX;
use tidewheel_core::time::Timestamp;

use super::allotments::Allotments;
use super::interest::Interest;
use super::lane_slots::LaneSlot;
use super::push_slots::PushTurn;
use super::subscribers::{Outlet, Subscriber, SubscriberId};
use super::{Ready, Stage};
use crate::engine::sent_bytes;

/// Somebody jobs were picked for.
#[derive(Debug)]
pub(in crate::engine) struct Taker {
    pub(in crate::engine) worker: Arc<str>,
    pub(in crate::engine) lease_ms: i64,
    pub(in crate::engine) recipient: Recipient,
}

/// Where picked jobs go.
#[derive(Debug)]
pub(in crate::engine) enum Recipient {
    /// To one who asks once, and is no longer among the subscribers.
    Once(Box<Subscriber>),
    /// To a connected worker.
    Connected(SubscriberId),
}

/// What a dispatch round picked.
#[derive(Debug)]
pub(in crate::engine) enum Picked {
    /// For the pusher.
    Push(Vec<Arc<Job>>),
    /// For takers, each so many of the jobs, in their order.
    Take(Vec<Arc<Job>>, Vec<(Taker, usize)>),
}

/// Jobs picked from one lane before the next lane has its turn.
const LANE_TURN: usize = 64;

impl Ready {
    /// Picks up to `count_max` jobs that may start now, of one lane's turn; `None` when nothing can move.
    pub(in crate::engine) fn pick(&mut self, now: Timestamp, count_max: usize) -> Option<Picked> {
        self.queues_first = !self.queues_first;
        if self.queues_first {
            let take = self.pick_take(now, count_max);
            if take.is_some() { take } else { self.pick_push(now, count_max) }
        } else {
            let push = self.pick_push(now, count_max);
            if push.is_some() { push } else { self.pick_take(now, count_max) }
        }
    }

    fn pick_take(&mut self, now: Timestamp, count_max: usize) -> Option<Picked> {
        let (mut picks, mut takers) = (Vec::new(), Vec::new());
        self.pick_for_emptied(now, &mut picks, &mut takers);
        while picks.len() < count_max
            && let Some(index) = self.active_queues.pop_front()
        {
            if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
                slot.active = false;
            }
            let before = picks.len();
            if let Some(taker) = self.pick_for_taker(index, now, count_max - before, &mut picks) {
                takers.push((taker, picks.len() - before));
            }
        }
        if takers.is_empty() { None } else { Some(Picked::Take(picks, takers)) }
    }

    fn pick_push(&mut self, now: Timestamp, count_max: usize) -> Option<Picked> {
        let mut push = Vec::new();
        while push.len() < count_max
            && let Some(turn) = self.next_push_turn()
        {
            let index = turn.lane;
            let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            slot.active = false;
            let paced = self.paces.room(&slot.name, self.monotonic_ms);
            if paced == 0 {
                // It is looked at again when its rate allows.
                continue;
            }
            let room = slot.in_flight_max.saturating_sub(slot.in_flight).min(paced);
            let turn_max = turn.borrower.as_ref().map_or(LANE_TURN, |(_, count)| (*count).min(LANE_TURN));
            let count = room.min(self.push_slots.free()).min(turn_max).min(count_max - push.len());
            let before = push.len();
            self.look_ahead(index, count);
            for _ in 0..count {
                let Some(entry) = self.next_push(&turn, now) else { break };
                push.push(self.picked(index, entry, now));
            }
            if let Some(slot) = self.lanes.get(index).and_then(Option::as_ref) {
                self.paces.took(&slot.name, push.len() - before);
            }
            self.end_push_turn(&turn, push.len() - before);
            self.read_on(index, push.get(before..).unwrap_or_default());
            if count > 0 && push.len() == before {
                // Everybody in it is at their cap: it would be looked at again and again.
                self.allotments.stall(index);
            } else if turn.borrower.is_none() {
                self.activate(index);
            }
        }
        if push.is_empty() { None } else { Some(Picked::Push(push)) }
    }

    /// Takes the next push of a lane that may begin.
    fn next_push(&mut self, turn: &PushTurn, now: Timestamp) -> Option<Entry<Arc<Job>>> {
        let alone = self.is_one_host();
        let (allotments, breakers, slots) = (&self.allotments, &self.breakers, &self.push_slots);
        let LaneSlot { lane, name, .. } = self.lanes.get_mut(turn.lane).and_then(Option::as_mut)?;
        let may = |tenant: &str| {
            allotments.admits(tenant, name)
                && breakers.admits(tenant, name)
                && ((turn.is_of(tenant) && !slots.is_short()) || slots.admits(tenant, alone))
        };
        lane.pop(now.as_ms(), may)
    }

    /// Picks the next job of a lane that anybody takes, finds the least busy who takes it, and more for the same one:
    /// its share of what is there.
    fn pick_for_taker(
        &mut self,
        index: usize,
        now: Timestamp,
        count_max: usize,
        picks: &mut Vec<Arc<Job>>,
    ) -> Option<Taker> {
        let suspects_first = self.is_turn_of_suspects(index);
        if suspects_first && let Some(taker) = self.pick_suspect(index, now, picks) {
            return Some(taker);
        }
        let Some(first) = self.next_for_anybody(index, now) else {
            if !suspects_first && let Some(taker) = self.pick_suspect(index, now, picks) {
                return Some(taker);
            }
            self.allotments.stall(index);
            return None;
        };
        // While nobody is found for it, its lane must not be given up as empty.
        self.lanes.get_mut(index).and_then(Option::as_mut)?.in_flight += 1;
        let found = self.best_taker(index, &first);
        let slot = self.lanes.get_mut(index).and_then(Option::as_mut)?;
        slot.in_flight = slot.in_flight.saturating_sub(1);
        let Some(id) = found else {
            // Whoever would have taken it is gone.
            slot.lane.put_back(first);
            self.activate(index);
            return None;
        };
        let is_peer = self.is_peer(id);
        if is_peer && self.waits_for_own(index, &first.item) {
            self.lanes.get_mut(index).and_then(Option::as_mut)?.lane.put_back(first);
            return None;
        }
        let subscriber = self.subscribers.get(id)?;
        let (credits, interest) = (subscriber.credits, Arc::clone(&subscriber.interest));
        let taker = (Arc::clone(&subscriber.worker), subscriber.lease_ms);
        let once = matches!(subscriber.outlet, Outlet::Once(_));
        let slot = self.lanes.get(index).and_then(Option::as_ref)?;
        let share = (slot.lane.len() + 1).div_ceil(slot.seats.len().max(1));
        let count = credits.min(share).min(count_max);
        let before = picks.len();
        self.look_ahead(index, count.min(LANE_TURN));
        let mut bytes = sent_bytes(&first.item);
        picks.push(self.picked(index, first, now));
        // To one who asks once all goes in one answer; over a stream in as many messages as it takes.
        while picks.len() - before < count && (!once || bytes < TAKE_BYTES_MAX) {
            let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) else { break };
            let Some(entry) = next_for(slot, &interest, &self.allotments, now) else { break };
            bytes += sent_bytes(&entry.item);
            picks.push(self.picked(index, entry, now));
        }
        if !is_peer {
            let one = picks.last().map(Arc::clone);
            self.own_moved(one.as_deref(), picks.len() - before);
        }
        self.read_on(index, picks.get(before..).unwrap_or_default());
        let recipient = if once {
            Recipient::Once(Box::new(self.unsubscribe(id)?))
        } else {
            self.spend(id, picks.len() - before);
            Recipient::Connected(id)
        };
        self.activate(index);
        Some(Taker { worker: taker.0, lease_ms: taker.1, recipient })
    }

    fn next_for_anybody(&mut self, index: usize, now: Timestamp) -> Option<Entry<Arc<Job>>> {
        let allotments = &self.allotments;
        let LaneSlot { lane, name, seats, .. } = self.lanes.get_mut(index).and_then(Option::as_mut)?;
        if seats.is_empty() {
            return None;
        }
        let covered = |tenant: &str| seats.cover(tenant) && allotments.admits(tenant, name);
        if seats.is_plain() {
            return lane.pop(now.as_ms(), covered);
        }
        lane.pop_matching(now.as_ms(), covered, |entry| {
            seats.admit(&entry.tenant, entry.priority, &entry.item.spec.kind)
        })
    }

    pub(super) fn best_taker(&mut self, index: usize, entry: &Entry<Arc<Job>>) -> Option<SubscriberId> {
        loop {
            let slot = self.lanes.get(index).and_then(Option::as_ref)?;
            let seat = slot.seats.best(&entry.tenant, entry.priority, &entry.item.spec.kind)?;
            if self.is_open(seat.id) {
                return Some(seat.id);
            }
        }
    }

    /// Looks at what a lane is about to give.
    fn look_ahead(&self, index: usize, count: usize) {
        let Some(slot) = self.lanes.get(index).and_then(Option::as_ref) else { return };
        glance::over(slot.lane.ahead(count).map(|job| self.glance(&job.id)));
    }

    /// Jobs were picked: what overflowed may have room in their place.
    pub(super) fn read_on(&mut self, index: usize, picked: &[Arc<Job>]) {
        let is_alike = |one: &Arc<Job>, other: &Arc<Job>| {
            one.tenant == other.tenant && one.spec.priority == other.spec.priority
        };
        for job in picked.chunk_by(is_alike).filter_map(<[_]>::first) {
            self.queue_refills(index, &job.tenant, job.spec.priority);
        }
    }

    /// Notes that a job was picked. Whoever has picked enough sees to it that its lot is [read on](Self::read_on).
    pub(super) fn picked(&mut self, index: usize, entry: Entry<Arc<Job>>, now: Timestamp) -> Arc<Job> {
        let (tenant, id) = (&entry.item.tenant, entry.item.id);
        if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
            slot.in_flight += 1;
            slot.picked_now += 1;
            if !slot.is_queue {
                self.breakers.began(tenant, &slot.name, id);
                let allotments = &self.allotments;
                self.push_slots.began(&entry.tenant, || allotments.weight(&entry.tenant));
                if !slot.lane.has(&entry.tenant) {
                    self.push_slots.left(&entry.tenant);
                }
            }
            self.allotments.began(tenant, id, &slot.name);
        }
        self.time_from(tenant.as_str(), id, now);
        if let Some(held) = self.held.get_mut(&entry.item.id) {
            self.waiting_count = self.waiting_count.saturating_sub(1);
            self.waiting_bytes = self.waiting_bytes.saturating_sub(held.bytes);
            self.expiries.forget(id, held);
            held.stage = Stage::Claiming { lane: index, called_off: false };
            held.tenant = Some(entry.tenant);
        }
        entry.item
    }
}

fn next_for(
    LaneSlot { lane, name, .. }: &mut LaneSlot,
    interest: &Interest,
    allotments: &Allotments,
    now: Timestamp,
) -> Option<Entry<Arc<Job>>> {
    let covered = |tenant: &str| interest.covers(tenant) && allotments.admits(tenant, name);
    if interest.is_plain() {
        return lane.pop(now.as_ms(), covered);
    }
    lane.pop_matching(now.as_ms(), covered, |entry| interest.admits(entry.priority, &entry.item.spec.kind))
}
