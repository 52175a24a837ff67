//! Schedules that were read or written lately, as they are on disk, so that those that fire often, or whose job
//! ends soon after it started, are not read again each time.

use rustc_hash::FxHashMap;

use crate::place::ScheduleKey;
use crate::schedule_record::Stored;

/// Schedules of one generation, of which there are two.
const GENERATION_COUNT_MAX: usize = 8_192;
/// What their definitions may take together.
const GENERATION_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Two generations: what is used goes into the young one; when that is full, it becomes the old one, and what the
/// old one held and nobody asked for since is forgotten.
#[derive(Default)]
pub(crate) struct Known {
    young: FxHashMap<ScheduleKey, Stored>,
    old: FxHashMap<ScheduleKey, Stored>,
    young_bytes: usize,
}

impl Known {
    pub(super) fn get(&self, key: &ScheduleKey) -> Option<&Stored> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub(super) fn put(&mut self, key: ScheduleKey, stored: Stored) {
        self.young_bytes += stored.size_bytes();
        if let Some(before) = self.young.insert(key, stored) {
            self.young_bytes -= before.size_bytes();
        }
        if self.young.len() > GENERATION_COUNT_MAX || self.young_bytes > GENERATION_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }

    /// Keeps what was read, if it is not among the young already.
    pub(super) fn keep(&mut self, key: ScheduleKey, stored: Stored) {
        if !self.young.contains_key(&key) {
            self.put(key, stored);
        }
    }

    pub(super) fn remove(&mut self, key: &ScheduleKey) {
        if let Some(before) = self.young.remove(key) {
            self.young_bytes -= before.size_bytes();
        }
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use bytes::Bytes;
    use tidewheel_core::names::Tenant;
    use tidewheel_core::schedule::{NewSchedule, ScheduleId, create};

    use crate::definition::tests::definition;

    fn stored(n: u16) -> (ScheduleKey, Stored) {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        let (id, tenant) = (ScheduleId::from_bytes(bytes), Tenant::default());
        let mut definition = definition();
        definition.template.payload = Bytes::from(vec![0; 4_096]);
        let new = NewSchedule { id, tenant: tenant.clone(), name: None, definition, paused: true };
        let schedule = Arc::new(create(new, None, tidewheel_core::time::Timestamp::from_ms(0)).schedule);
        (ScheduleKey { tenant, id }, Stored { schedule, first_entry: 0 })
    }

    #[test]
    fn it_stays_small_and_keeps_what_is_used() {
        let mut known = Known::default();
        let (kept, value) = stored(60_000);
        for n in 0..20_000 {
            known.put(kept.clone(), value.clone());
            let (key, value) = stored(n);
            known.put(key, value);
        }
        assert!(known.get(&kept).is_some());
        assert!(known.get(&stored(19_999).0).is_some());
        assert!(known.get(&stored(0).0).is_none());
        assert!((known.young.len() + known.old.len()) * 4_096 <= 2 * GENERATION_BYTES_MAX + 2 * 4_096);
        known.remove(&kept);
        assert!(known.get(&kept).is_none());
    }
}
