//! Jobs whose time is over while they wait in a lane, for a worker or for room at their target: they are ended by themselves, whether
//! anybody takes jobs or not. Only what is in lanes is watched, so it is bounded as they are; what is left in the store for want of room there
//! is looked at when it is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::{Held, Ready, Stage};

/// How soon lanes are gone through again for what has expired: each time costs as much as they are long.
const PAUSE_MS: i64 = 20;

/// When the jobs in lanes expire.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    all: BTreeMap<(Timestamp, JobId), Tenant>,
    /// Not before then are the lanes gone through again.
    pause_until_ms: i64,
}

impl Expiries {
    /// A job came into its lane; says when it is to be ended there.
    pub(super) fn watch(&mut self, job: &Job) -> Option<Timestamp> {
        let expires_at = job.spec.expires_at?;
        self.all.insert((expires_at, job.id), job.tenant.clone());
        Some(expires_at)
    }

    /// A job left its lane.
    pub(super) fn forget(&mut self, id: JobId, held: &Held) {
        if let Some(expires_at) = held.expires_at {
            self.all.remove(&(expires_at, id));
        }
    }
}

impl Ready {
    /// In how many milliseconds something in a lane is to be ended.
    pub(in crate::engine) fn next_expired_ms(&self, now: Timestamp, monotonic_ms: i64) -> Option<i64> {
        let ((at, _), _) = self.expiries.all.first_key_value()?;
        Some(at.since_ms(now).max(self.expiries.pause_until_ms - monotonic_ms))
    }

    /// Picks up to `count_max` jobs whose time is over; `None` when there are none.
    pub(in crate::engine) fn pick_expired(
        &mut self,
        now: Timestamp,
        count_max: usize,
    ) -> Option<Vec<Arc<Job>>> {
        if self.next_expired_ms(now, self.monotonic_ms).is_none_or(|ms| ms > 0) {
            return None;
        }
        let mut over: BTreeMap<(usize, Tenant), FxHashSet<JobId>> = BTreeMap::new();
        for _ in 0..count_max {
            let Some(first) = self.expiries.all.first_entry().filter(|first| first.key().0 <= now) else {
                break;
            };
            let ((_, id), tenant) = first.remove_entry();
            if let Some(Stage::Lane(lane)) = self.stage(&id) {
                over.entry((lane, tenant)).or_default().insert(id);
            }
        }
        let mut picks = Vec::new();
        for ((lane, tenant), ids) in over {
            let Some(slot) = self.lanes.get_mut(lane).and_then(Option::as_mut) else { continue };
            let before = picks.len();
            for entry in slot.lane.remove(tenant.as_str(), |job| ids.contains(&job.id)) {
                picks.push(self.picked(lane, entry, now));
            }
            self.read_on(lane, picks.get(before..).unwrap_or_default());
        }
        if picks.len() < count_max {
            self.expiries.pause_until_ms = self.monotonic_ms + PAUSE_MS;
        }
        (!picks.is_empty()).then_some(picks)
    }
}
