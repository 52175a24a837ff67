//! Which jobs start next: lanes take turns, pushes within their limits, queues for whoever waits for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidewheel_core::job::{Destination, Job};
use tidewheel_core::lanes::Lane;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tokio::sync::oneshot;

use super::refill::{LotKey, Overflow};
use super::{Ready, Stage};

/// Where a taker's jobs go.
pub(in crate::engine) type TakeReply = oneshot::Sender<Vec<Job>>;

/// Somebody waiting for jobs of a queue.
#[derive(Debug)]
pub(in crate::engine) struct Taker {
    pub(in crate::engine) queue: Arc<str>,
    pub(in crate::engine) tenant: Tenant,
    pub(in crate::engine) worker: Arc<str>,
    pub(in crate::engine) count_max: usize,
    pub(in crate::engine) lease_ms: i64,
    pub(in crate::engine) reply: TakeReply,
}

/// What a dispatch round picked.
#[derive(Debug)]
pub(in crate::engine) enum Picked {
    /// For the pusher.
    Push(Vec<Arc<Job>>),
    /// For one taker.
    Take(Taker, Vec<Arc<Job>>),
}

#[derive(Debug)]
pub(super) struct LaneSlot {
    pub(super) is_queue: bool,
    pub(super) name: Arc<str>,
    pub(super) lane: Lane<Arc<Job>>,
    pub(super) in_flight: usize,
    pub(super) active: bool,
    pub(super) takers: VecDeque<Taker>,
    pub(super) overflows: BTreeMap<LotKey, Overflow>,
    /// Jobs picked in the current and the last window, to tell a lane that moves from one that does not.
    pub(super) picked_now: usize,
    pub(super) picked_before: usize,
}

/// Jobs picked from one lane before the next lane has its turn.
const LANE_TURN: usize = 64;

impl Ready {
    /// Lets somebody wait for jobs of a queue.
    pub(in crate::engine) fn add_taker(&mut self, queue: &Arc<str>, taker: Taker) {
        let index = self.lane_of(&Destination::Queue(Arc::clone(queue)));
        if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
            slot.takers.push_back(taker);
        }
        self.activate(index);
    }

    /// Drops takers that no longer wait.
    pub(in crate::engine) fn drop_gone_takers(&mut self) {
        for index in 0..self.lanes.len() {
            if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
                slot.takers.retain(|taker| !taker.reply.is_closed());
            }
            self.tidy(index);
        }
    }

    /// Sends everybody away who waits.
    pub(in crate::engine) fn drop_takers(&mut self) {
        for index in 0..self.lanes.len() {
            if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
                slot.takers.clear();
            }
            self.tidy(index);
        }
    }

    /// Picks up to `count_max` jobs that may start now, of one lane's turn; `None` when nothing can move.
    pub(in crate::engine) fn pick(&mut self, now: Timestamp, count_max: usize) -> Option<Picked> {
        self.queues_first = !self.queues_first;
        if self.queues_first {
            let take = self.pick_take(now);
            if take.is_some() { take } else { self.pick_push(now, count_max) }
        } else {
            let push = self.pick_push(now, count_max);
            if push.is_some() { push } else { self.pick_take(now) }
        }
    }

    fn pick_take(&mut self, now: Timestamp) -> Option<Picked> {
        while let Some(index) = self.active_queues.pop_front() {
            if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
                slot.active = false;
            }
            if let Some((taker, picks)) = self.pick_for_taker(index, now) {
                return Some(Picked::Take(taker, picks));
            }
        }
        None
    }

    fn pick_push(&mut self, now: Timestamp, count_max: usize) -> Option<Picked> {
        let mut push = Vec::new();
        while push.len() < count_max && self.push_in_flight < self.config.push_max {
            let Some(index) = self.active_hosts.pop_front() else { break };
            let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            slot.active = false;
            let room = self.config.push_per_host_max.saturating_sub(slot.in_flight);
            let global = self.config.push_max.saturating_sub(self.push_in_flight);
            let count = room.min(global).min(LANE_TURN).min(count_max - push.len());
            let before = push.len();
            self.pop_into(index, now, count, |_| true, &mut push);
            self.push_in_flight += push.len() - before;
            self.activate(index);
        }
        if push.is_empty() { None } else { Some(Picked::Push(push)) }
    }

    pub(super) fn pick_for_taker(&mut self, index: usize, now: Timestamp) -> Option<(Taker, Vec<Arc<Job>>)> {
        let slot = self.lanes.get_mut(index).and_then(Option::as_mut)?;
        for _ in 0..slot.takers.len() {
            let slot = self.lanes.get_mut(index).and_then(Option::as_mut)?;
            let taker = slot.takers.pop_front()?;
            if taker.reply.is_closed() {
                continue;
            }
            let mut picks = Vec::new();
            let tenant = taker.tenant.shared();
            self.pop_into(index, now, taker.count_max, |name| *name == *tenant, &mut picks);
            if !picks.is_empty() {
                self.activate(index);
                return Some((taker, picks));
            }
            // Nothing for this tenant: it keeps waiting, behind the others.
            if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
                slot.takers.push_back(taker);
            }
        }
        None
    }

    pub(super) fn pop_into(
        &mut self,
        index: usize,
        now: Timestamp,
        count: usize,
        eligible: impl Fn(&str) -> bool,
        picks: &mut Vec<Arc<Job>>,
    ) {
        for _ in 0..count {
            let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) else { return };
            let Some(entry) = slot.lane.pop(now.as_ms(), &eligible) else { return };
            slot.in_flight += 1;
            slot.picked_now += 1;
            self.queue_refills(index, &entry.item.tenant, entry.priority);
            if let Some(held) = self.held.get_mut(&entry.item.id) {
                self.waiting_count = self.waiting_count.saturating_sub(1);
                self.waiting_bytes = self.waiting_bytes.saturating_sub(held.bytes);
                held.stage = Stage::Claiming { lane: index, called_off: false };
            }
            picks.push(entry.item);
        }
    }
}
