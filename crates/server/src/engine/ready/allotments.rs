//! What each tenant has been allotted: its weight beside others, and how many attempts it may have under way. A tenant at
//! its cap is passed over and keeps its turn; nobody else waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;

use super::Ready;

/// What one tenant has been allotted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allotment {
    /// Who.
    pub tenant: Tenant,
    /// Its share beside others; 1 is usual.
    pub weight: u32,
    /// Attempts it may have under way at a time.
    pub running_count_max: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Cap {
    max: usize,
    under_way: usize,
}

/// All that is allotted. Tenants for whom nothing is set cost nothing here.
#[derive(Debug, Default)]
pub(super) struct Allotments {
    weights: BTreeMap<Arc<str>, u32>,
    caps: FxHashMap<Arc<str>, Cap>,
    /// Jobs under way of tenants with a cap. Those that were before the cap was set do not count.
    under_way: FxHashMap<JobId, Arc<str>>,
    /// Lanes in which nothing moves while those at their cap are.
    stalled: BTreeSet<usize>,
}

impl Allotments {
    /// Weights other than the usual.
    pub(super) fn weights(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.weights.iter().map(|(tenant, weight)| (tenant, *weight))
    }

    /// Whether another attempt of the tenant may begin.
    pub(super) fn admits(&self, tenant: &str) -> bool {
        self.caps.is_empty() || self.caps.get(tenant).is_none_or(|cap| cap.under_way < cap.max)
    }

    /// An attempt is about to begin.
    pub(super) fn began(&mut self, tenant: &Tenant, id: JobId) {
        if !self.caps.is_empty()
            && let Some(cap) = self.caps.get_mut(tenant.as_str())
            && self.under_way.insert(id, tenant.shared()).is_none()
        {
            cap.under_way += 1;
        }
    }

    /// An attempt is over; says whether one that waited for that may begin.
    fn ended(&mut self, id: &JobId) -> bool {
        if self.under_way.is_empty() {
            return false;
        }
        let Some(tenant) = self.under_way.remove(id) else { return false };
        let Some(cap) = self.caps.get_mut(&tenant) else { return true };
        let was_full = cap.under_way >= cap.max;
        cap.under_way = cap.under_way.saturating_sub(1);
        was_full
    }

    /// Nothing of a lane could be picked.
    pub(super) fn stall(&mut self, lane: usize) {
        if !self.caps.is_empty() {
            self.stalled.insert(lane);
        }
    }
}

impl Ready {
    /// Goes by these from now on, and by what is usual for everybody else.
    pub(in crate::engine) fn allot(&mut self, all: Vec<Allotment>) {
        let before = std::mem::take(&mut self.allotments.weights);
        let mut caps = FxHashMap::default();
        for Allotment { tenant, weight, running_count_max } in all {
            if weight > 1 {
                self.allotments.weights.insert(tenant.shared(), weight);
            }
            if let Some(max) = running_count_max {
                let max = usize::try_from(max).unwrap_or(usize::MAX);
                let under_way = self.allotments.caps.get(tenant.as_str()).map_or(0, |cap| cap.under_way);
                caps.insert(tenant.shared(), Cap { max, under_way });
            }
        }
        self.allotments.caps = caps;
        let Self { lanes, allotments, .. } = self;
        for slot in lanes.iter_mut().flatten() {
            for tenant in before.keys().filter(|tenant| !allotments.weights.contains_key(*tenant)) {
                slot.lane.set_weight(tenant, 1);
            }
            for (tenant, weight) in allotments.weights() {
                slot.lane.set_weight(tenant, weight);
            }
        }
        self.wake_stalled();
    }

    /// Whether no further attempt of the tenant may begin now.
    pub(in crate::engine) fn is_at_cap(&self, tenant: &Tenant) -> bool {
        !self.allotments.admits(tenant.as_str())
    }

    /// An attempt is over: whoever waited for that may go on.
    pub(super) fn end_allotted(&mut self, id: &JobId) {
        if self.allotments.ended(id) {
            self.wake_stalled();
        }
    }

    fn wake_stalled(&mut self) {
        for lane in std::mem::take(&mut self.allotments.stalled) {
            self.activate(lane);
        }
    }
}
