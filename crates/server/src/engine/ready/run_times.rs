//! How long attempts ran, where tenants share by that and not by how many they start. It is known only at the end, so a
//! start is charged what the tenant's attempts in the lane took lately, and what it took changes what the next is charged.

use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::time::Timestamp;

use super::{Ready, Stage};
use crate::engine::config::FairBy;

/// When attempts under way began; empty while they are charged by their number.
#[derive(Debug, Default)]
pub(super) struct RunTimes {
    began: FxHashMap<JobId, (Box<str>, Timestamp)>,
}

impl Ready {
    /// An attempt is about to begin.
    pub(super) fn time_from(&mut self, tenant: &str, id: JobId, now: Timestamp) {
        if self.config.fair_by == FairBy::RunTime {
            self.run_times.began.insert(id, (tenant.into(), now));
        }
    }

    /// An attempt is over, or did not begin after all: its time is charged.
    pub(super) fn time_until(&mut self, id: &JobId, stage: Stage) {
        let Some((tenant, began)) = self.run_times.began.remove(id) else { return };
        // One that was never under way says nothing of how long they take.
        let Stage::Delivering(lane) = stage else { return };
        let took_ms = self.looked_at.since_ms(began).max(1);
        if let Some(slot) = self.lanes.get_mut(lane).and_then(Option::as_mut) {
            slot.lane.learn_cost(&tenant, u32::try_from(took_ms).unwrap_or(u32::MAX));
        }
    }
}
