//! Schedules that were read or written lately, as they are on disk, so that those that fire often are not read again
//! each time.

use rustc_hash::FxHashMap;
use tidewheel_core::schedule::Next;
use tidewheel_core::time::Timestamp;

use crate::place::ScheduleTag;
use crate::schedule_record::Stored;

/// Schedules of one generation, of which there are two.
const GENERATION_COUNT_MAX: usize = 8_192;
/// What they may take together.
const GENERATION_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A schedule is kept if it fires within this.
const FIRES_SOON_MS: i64 = 60_000;

/// Two generations: what is used goes into the young one; when that is full, it becomes the old one, and what the
/// old one held and nobody asked for since is forgotten.
#[derive(Default)]
pub(crate) struct Known {
    young: FxHashMap<ScheduleTag, Stored>,
    old: FxHashMap<ScheduleTag, Stored>,
    young_bytes: usize,
}

impl Known {
    pub(super) fn get(&self, tag: ScheduleTag) -> Option<&Stored> {
        self.young.get(&tag).or_else(|| self.old.get(&tag))
    }

    /// Notes a schedule as it was read or written. Of those that do not fire soon nobody will ask soon.
    pub(super) fn note(&mut self, tag: ScheduleTag, stored: Stored, now: Timestamp, has_changed: bool) {
        let fires_soon = |next: Next| next.run_at.since_ms(now) < FIRES_SOON_MS;
        if !stored.schedule.next.is_some_and(fires_soon) {
            self.remove(tag);
        } else if has_changed || !self.young.contains_key(&tag) {
            self.put(tag, stored);
        }
    }

    fn put(&mut self, tag: ScheduleTag, stored: Stored) {
        self.young_bytes += stored.size_bytes();
        if let Some(before) = self.young.insert(tag, stored) {
            self.young_bytes -= before.size_bytes();
        }
        if self.young.len() > GENERATION_COUNT_MAX || self.young_bytes > GENERATION_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }

    pub(super) fn remove(&mut self, tag: ScheduleTag) {
        if let Some(before) = self.young.remove(&tag) {
            self.young_bytes -= before.size_bytes();
        }
        self.old.remove(&tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use bytes::Bytes;
    use tidewheel_core::id::JobId;
    use tidewheel_core::names::Tenant;
    use tidewheel_core::schedule::{NewSchedule, Schedule, ScheduleId, create};

    use crate::definition::tests::definition;
    use crate::sheet::Sheet;

    fn stored(n: u16) -> (ScheduleTag, Stored) {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        let (id, tenant) = (ScheduleId::from_bytes(bytes), Tenant::default());
        let mut definition = definition();
        definition.template.payload = Bytes::from(vec![0; 4_096]);
        let new = NewSchedule { id, tenant: tenant.clone(), name: None, definition, paused: true };
        let schedule = Arc::new(create(new, None, Timestamp::from_ms(0)).schedule);
        (ScheduleTag::new(&tenant, id), Stored { schedule, first_entry: 0, sheet: Sheet::default() })
    }

    #[test]
    fn what_fires_late_is_not_kept() {
        let (mut known, now) = (Known::default(), Timestamp::from_ms(0));
        let (key, paused) = stored(1);
        let mut firing = Schedule::clone(&paused.schedule);
        let mut firing_in = |ms| {
            let run_at = now.plus_ms(ms);
            let job_id = JobId::new(run_at, 1);
            firing.next =
                Some(Next { fire_at: run_at, run_at, job_id, catch_up: false, covers_until: run_at });
            Stored { schedule: Arc::new(firing.clone()), first_entry: 0, sheet: Sheet::default() }
        };
        known.note(key, firing_in(1_000), now, true);
        assert!(known.get(key).is_some());
        known.note(key, firing_in(FIRES_SOON_MS), now, true);
        assert!(known.get(key).is_none(), "not even as it was");
        known.note(key, firing_in(1_000), now, false);
        known.note(key, paused, now, true);
        assert!(known.get(key).is_none());
    }

    #[test]
    fn it_stays_small_and_keeps_what_is_used() {
        let mut known = Known::default();
        let (kept, value) = stored(60_000);
        for n in 0..20_000 {
            known.put(kept, value.clone());
            let (key, value) = stored(n);
            known.put(key, value);
        }
        assert!(known.get(kept).is_some());
        assert!(known.get(stored(19_999).0).is_some());
        assert!(known.get(stored(0).0).is_none());
        assert!((known.young.len() + known.old.len()) * 4_096 <= 2 * GENERATION_BYTES_MAX + 2 * 4_096);
        known.remove(kept);
        assert!(known.get(kept).is_none());
    }
}
