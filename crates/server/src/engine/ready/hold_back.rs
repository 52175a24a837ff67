//! What waits for a target that is not called: in the store, not in memory, and without an attempt. When its breaker opens,
//! the tenant's jobs for that host leave their lane; their lots are read again when a probe may go, one job for that, and
//! as usual once the target works. Lots of other tenants and other destinations are not touched.

use std::sync::Arc;

use tidewheel_core::breaker::{BreakerState, Turn};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::breakers::{BreakerView, Room};
use super::refill::{LotKey, Overflow};
use super::{Ready, Stage, host_of};
use crate::engine::target_answers::Heard;

impl Ready {
    /// A push told something of its target. Says what that changed, and for which host.
    pub(in crate::engine) fn heard(
        &mut self,
        heard: &Heard,
        now: Timestamp,
        monotonic_ms: i64,
    ) -> Option<(Turn, Arc<str>)> {
        let stage = self.held.get(&heard.id)?.stage;
        let (Stage::Delivering(lane) | Stage::Claiming { lane, .. }) = stage else { return None };
        let slot = self.lanes.get(lane).and_then(Option::as_ref).filter(|slot| !slot.is_queue)?;
        let host = Arc::clone(&slot.name);
        let turn = self.breakers.heard(heard, &host, now, monotonic_ms)?;
        match turn {
            Turn::Opened | Turn::Held | Turn::Reopened => self.hold_back(lane, &heard.tenant),
            Turn::Closed => self.let_through(lane, &heard.tenant),
        }
        Some((turn, host))
    }

    /// Lets go on what has waited long enough: probes, and hosts with a rate.
    pub(in crate::engine) fn tend_targets(&mut self, monotonic_ms: i64) {
        self.monotonic_ms = monotonic_ms;
        while let Some((tenant, host)) = self.breakers.cooled(monotonic_ms) {
            self.let_through_host(&host, &tenant);
        }
        while let Some(host) = self.paces.due(monotonic_ms) {
            if let Some(lane) = self.hosts.get(&host).copied() {
                self.activate(lane);
            }
        }
    }

    /// When [`Self::tend_targets`] is worth calling again.
    pub(in crate::engine) fn next_target_ms(&self) -> Option<i64> {
        [self.breakers.next_ms(), self.paces.next_ms()].into_iter().flatten().min()
    }

    /// Forgets targets of which nothing was heard for long, and sees to it that those that wait for a probe get one:
    /// the job that was to be it may have been called off.
    pub(in crate::engine) fn forget_idle_targets(&mut self, monotonic_ms: i64) {
        self.breakers.forget_idle(monotonic_ms);
        self.paces.forget_idle(monotonic_ms);
        for (tenant, host) in self.breakers.unprobed() {
            self.let_through_host(&host, &tenant);
        }
    }

    /// How many targets are watched.
    pub(in crate::engine) const fn watched_targets(&self) -> usize {
        self.breakers.len()
    }

    /// How many breakers are in each state.
    pub(in crate::engine) fn breaker_counts(&self) -> [(BreakerState, usize); 4] {
        self.breakers.counts()
    }

    /// The breaker that keeps a job from starting.
    pub(in crate::engine) fn breaker_of(&self, job: &Job, now: Timestamp) -> Option<BreakerView> {
        let Destination::Target(target) = &job.spec.destination else { return None };
        let view = self.breakers.view(job.tenant.as_str(), host_of(target), now, self.monotonic_ms)?;
        (view.state != BreakerState::Closed).then_some(view)
    }

    /// The breakers of a tenant, by host.
    pub(in crate::engine) fn breakers_of(&self, tenant: &Tenant, now: Timestamp) -> Vec<BreakerView> {
        self.breakers.views(tenant.as_str(), now, self.monotonic_ms)
    }

    /// A push ended: if it was a probe and nothing was heard of its target, another may go.
    pub(super) fn probe_ended(&mut self, id: &JobId) {
        if let Some((tenant, host)) = self.breakers.gave_up(id) {
            self.let_through_host(&host, &tenant);
        }
    }

    /// Whether another job of the tenant must stay in the store because of its target.
    pub(super) fn holds_back(&self, lane: usize, tenant: &str) -> bool {
        let Some(slot) = self.lanes.get(lane).and_then(Option::as_ref).filter(|slot| !slot.is_queue) else {
            return false;
        };
        match self.breakers.room(tenant, &slot.name) {
            Room::Any => false,
            Room::One => slot.lane.waiting_of(tenant).is_some(),
            Room::None => true,
        }
    }

    /// Takes a tenant's jobs out of a lane; the store keeps them.
    fn hold_back(&mut self, lane: usize, tenant: &Tenant) {
        let Some(slot) = self.lanes.get_mut(lane).and_then(Option::as_mut) else { return };
        let removed = slot.lane.remove(tenant.as_str(), |_| true);
        if let Some(first) = removed.first() {
            self.left_lane(lane, &first.tenant);
        }
        for entry in removed {
            let job = &entry.item;
            let key = self.lot_key(job);
            self.unhold(&job.id);
            if let Some(slot) = self.lanes.get_mut(lane).and_then(Option::as_mut) {
                slot.overflows
                    .entry(key)
                    .or_insert_with(|| Overflow::starting_at(job.status.due_at))
                    .turn_away(job.position());
            }
        }
    }

    fn let_through_host(&mut self, host: &str, tenant: &Tenant) {
        if let Some(lane) = self.hosts.get(host).copied() {
            self.let_through(lane, tenant);
        }
    }

    /// Has a tenant's lots in a lane read on.
    fn let_through(&mut self, lane: usize, tenant: &Tenant) {
        let Some(slot) = self.lanes.get(lane).and_then(Option::as_ref) else { return };
        let keys: Vec<LotKey> = slot.overflows.keys().filter(|key| key.tenant == *tenant).cloned().collect();
        for key in keys {
            self.queue_refill(lane, key);
        }
        self.activate(lane);
    }
}
