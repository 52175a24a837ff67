//! Schedules read ahead of the commit thread: reading what is due reads the schedules of what is found, and a call with
//! many claims those that are still missing, while the thread is busy with others. What is here is as it is on disk: a
//! reader registers before it takes its snapshot, and what was committed since is not kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tidewheel_core::glance;
use tidewheel_core::job::Job;

use crate::place::{ScheduleKey, ScheduleTag};
use crate::schedule_record::Stored;

/// Schedules of one generation, of which there are two.
const GENERATION_COUNT_MAX: usize = 65_536;
/// What was put into one generation, by [`Stored::size_bytes`].
const GENERATION_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Changes remembered for readers; beyond, those who began before the last of them keep nothing.
const CHANGED_COUNT_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct Ahead(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Counts commits.
    version: u64,
    /// Readers under way, by the version they began at.
    readers: BTreeMap<u64, usize>,
    /// What changed, and when, while somebody reads.
    changed: FxHashMap<ScheduleTag, u64>,
    /// What changed up to here is no longer known in detail.
    forgotten_until: u64,
    /// Two generations: when the young one is full, it becomes the old one, and what nobody asked for is forgotten.
    young: FxHashMap<ScheduleTag, Stored>,
    /// What was put into it; what was taken out counts, too.
    young_bytes: usize,
    old: FxHashMap<ScheduleTag, Stored>,
}

impl Inner {
    /// Takes it out of both: what the old one has may be older.
    fn take(&mut self, tag: ScheduleTag) -> Option<Stored> {
        let old = if self.old.is_empty() { None } else { self.old.remove(&tag) };
        self.young.remove(&tag).or(old)
    }
}

/// A reader's registration; ends when dropped.
pub(crate) struct Looking<'a> {
    ahead: &'a Ahead,
    version: u64,
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock leaves the tables half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a reader. Take the snapshot after this.
    pub(crate) fn begin(&self) -> Looking<'_> {
        let mut inner = self.lock();
        let version = inner.version;
        *inner.readers.entry(version).or_default() += 1;
        drop(inner);
        Looking { ahead: self, version }
    }

    /// Notes that these schedules have been committed anew.
    pub(crate) fn publish(&self, changed: impl Iterator<Item = ScheduleTag>) {
        let mut inner = self.lock();
        inner.version += 1;
        let version = inner.version;
        if inner.readers.is_empty() {
            inner.changed.clear();
        }
        for tag in changed {
            inner.take(tag);
            if !inner.readers.is_empty() {
                inner.changed.insert(tag, version);
            }
        }
        if inner.changed.len() > CHANGED_COUNT_MAX {
            let oldest = inner.readers.first_key_value().map_or(version, |(version, _)| *version);
            inner.changed.retain(|_, changed| *changed > oldest);
        }
        if inner.changed.len() > CHANGED_COUNT_MAX {
            inner.changed.clear();
            inner.forgotten_until = version;
        }
    }

    /// Those of which nothing was read.
    pub(crate) fn lacking(&self, mut schedules: Vec<ScheduleKey>) -> Vec<ScheduleKey> {
        let inner = self.lock();
        schedules.retain(|key| {
            let tag = key.tag();
            !inner.young.contains_key(&tag) && !inner.old.contains_key(&tag)
        });
        schedules
    }

    /// Looks at the schedules that these jobs came from.
    pub(crate) fn glance<'j>(&self, jobs: impl Iterator<Item = &'j Arc<Job>>) {
        let mut tags = jobs.filter_map(|job| ScheduleTag::of(job)).peekable();
        if tags.peek().is_some() {
            let inner = self.lock();
            glance::over(tags.map(|tag| inner.young.get(&tag).is_some_and(Stored::glance)));
        }
    }

    /// Hands over what was read of a schedule.
    pub(crate) fn take(&self, tag: ScheduleTag) -> Option<Stored> {
        self.lock().take(tag)
    }
}

impl Looking<'_> {
    /// Keeps what was read, except what changed meanwhile.
    pub(crate) fn keep(&self, found: impl Iterator<Item = (ScheduleTag, Stored)>) {
        let mut inner = self.ahead.lock();
        if self.version < inner.forgotten_until {
            return;
        }
        for (tag, stored) in found {
            if inner.changed.get(&tag).is_some_and(|changed| *changed > self.version) {
                continue;
            }
            if inner.young.len() >= GENERATION_COUNT_MAX || inner.young_bytes >= GENERATION_BYTES_MAX {
                inner.old = std::mem::take(&mut inner.young);
                inner.young_bytes = 0;
            }
            inner.young_bytes += stored.size_bytes();
            inner.young.insert(tag, stored);
        }
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let mut inner = self.ahead.lock();
        if let Some(count) = inner.readers.get_mut(&self.version) {
            *count -= 1;
            if *count == 0 {
                inner.readers.remove(&self.version);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tidewheel_core::names::Tenant;
    use tidewheel_core::schedule::{NewSchedule, ScheduleId, create};
    use tidewheel_core::time::Timestamp;

    use crate::definition::tests::definition;
    use crate::sheet::Sheet;

    fn stored() -> (ScheduleTag, Stored) {
        let (id, tenant) = (ScheduleId::from_bytes([1; 16]), Tenant::default());
        let new =
            NewSchedule { id, tenant: tenant.clone(), name: None, definition: definition(), paused: true };
        let schedule = create(new, None, Timestamp::from_ms(0)).schedule;
        (
            ScheduleTag::new(&tenant, id),
            Stored { schedule: Arc::new(schedule), first_entry: 0, sheet: Sheet::default() },
        )
    }

    #[test]
    fn what_changed_since_the_reader_began_is_not_kept() {
        let ahead = Ahead::default();
        let (key, value) = stored();
        let keep = |looking: &Looking<'_>| looking.keep(std::iter::once((key, value.clone())));
        let change = || ahead.publish(std::iter::once(key));
        change();
        let before = ahead.begin();
        keep(&before);
        assert!(ahead.take(key).is_some());
        assert!(ahead.take(key).is_none(), "handed over");
        keep(&before);
        change();
        assert!(ahead.take(key).is_none(), "it changed after it was read");
        keep(&before);
        assert!(ahead.take(key).is_none(), "it changed while it was read");
        let after = ahead.begin();
        drop(before);
        ahead.publish(std::iter::empty());
        keep(&after);
        assert!(ahead.take(key).is_some());
        let others = (0..=CHANGED_COUNT_MAX).map(|n| {
            let id = ScheduleId::from_bytes((n as u128).wrapping_mul(u128::MAX / 0x9E37_79B9).to_be_bytes());
            ScheduleTag::new(&Tenant::default(), id)
        });
        ahead.publish(others);
        keep(&after);
        assert!(ahead.take(key).is_none(), "nobody knows any more whether it changed");
    }
}
