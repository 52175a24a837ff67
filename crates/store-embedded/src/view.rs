//! What the store keeps in memory beside the engine, shared by the commit thread and the readers: the attempts
//! under way, and jobs that were just read and are about to be claimed.
//!
//! The engine's snapshot and this table cannot be read in one instant, and need not be. A reader registers here
//! *before* it takes its snapshot; from then on an attempt that ends, or a record that changes, leaves a trace
//! until the reader is done. So a reader whose snapshot still shows a job waiting can always tell that the job
//! was running, or that what it read is stale. An entry holds for a stored record only if its attempt is newer
//! than the record's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tidewheel_core::job::Job;

use crate::place::{JobKey, ScheduleKey};

/// Jobs kept after a due read, so that claiming them reads nothing; by [`Job::size_bytes`].
const RECENT_BYTES_MAX: usize = 48 * 1024 * 1024;

/// An attempt under way.
#[derive(Debug, Clone)]
pub(crate) struct UnderWay {
    /// The job as it is.
    pub(crate) job: Job,
    /// Its record in `claims`.
    pub(crate) claim: u64,
    /// Whether `leases` has a record of it.
    pub(crate) has_lease: bool,
}

/// What one commit changes here.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Attempts that are under way now.
    pub(crate) running: Vec<(JobKey, UnderWay)>,
    /// Attempts that ended.
    pub(crate) ended: Vec<JobKey>,
    /// Jobs whose stored record changed, new ones included.
    pub(crate) changed: Vec<JobKey>,
}

#[derive(Debug, Default)]
pub(crate) struct View(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Counts commits.
    version: u64,
    /// Readers under way, by the version they began at.
    readers: BTreeMap<u64, usize>,
    running: FxHashMap<JobKey, Slot>,
    ended: VecDeque<(u64, JobKey)>,
    changed: FxHashMap<JobKey, u64>,
    changed_order: VecDeque<(u64, JobKey)>,
    recent: FxHashMap<JobKey, Job>,
    recent_order: VecDeque<JobKey>,
    recent_bytes: usize,
}

#[derive(Debug)]
struct Slot {
    under_way: UnderWay,
    /// Since this version it is only a trace for older readers.
    ended_at: Option<u64>,
}

/// A reader's registration; ends when dropped.
pub(crate) struct Reading<'a> {
    view: &'a View,
    version: u64,
}

impl View {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock leaves the tables half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a reader. Take the snapshot after this.
    pub(crate) fn begin(&self) -> Reading<'_> {
        Reading { view: self, version: self.register() }
    }

    /// Registers a reader by hand; answers the version it begins at, which [`Self::deregister`] wants back.
    pub(crate) fn register(&self) -> u64 {
        let mut inner = self.lock();
        let version = inner.version;
        *inner.readers.entry(version).or_default() += 1;
        version
    }

    pub(crate) fn deregister(&self, version: u64) {
        let mut inner = self.lock();
        if let Some(count) = inner.readers.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                inner.readers.remove(&version);
            }
        }
    }

    pub(crate) fn publish(&self, published: Published) {
        let mut inner = self.lock();
        inner.version += 1;
        let version = inner.version;
        let is_read = !inner.readers.is_empty();
        for key in published.changed {
            inner.forget_recent(&key);
            if is_read {
                inner.changed.insert(key.clone(), version);
                inner.changed_order.push_back((version, key));
            }
        }
        for key in published.ended {
            if !is_read {
                inner.running.remove(&key);
            } else if let Some(slot) = inner.running.get_mut(&key) {
                slot.ended_at = Some(version);
                inner.ended.push_back((version, key));
            }
        }
        for (key, under_way) in published.running {
            inner.forget_recent(&key);
            inner.running.insert(key, Slot { under_way, ended_at: None });
        }
        inner.sweep();
    }

    /// The attempts under way.
    pub(crate) fn running(&self) -> Vec<Job> {
        let inner = self.lock();
        let mut jobs: Vec<_> = inner
            .running
            .values()
            .filter(|slot| slot.ended_at.is_none())
            .map(|slot| slot.under_way.job.clone())
            .collect();
        drop(inner);
        jobs.sort_unstable_by(|a, b| (a.id, &a.tenant).cmp(&(b.id, &b.tenant)));
        jobs
    }

    /// Whether a reader is under way.
    pub(crate) fn is_read(&self) -> bool {
        !self.lock().readers.is_empty()
    }

    /// For the commit thread: calls `found` with what is known of each key without reading from disk.
    pub(crate) fn look_up<'k>(
        &self,
        keys: impl Iterator<Item = &'k JobKey>,
        mut found: impl FnMut(&'k JobKey, Known),
    ) {
        let inner = self.lock();
        for key in keys {
            let slot = inner.running.get(key).filter(|slot| slot.ended_at.is_none());
            let known = match slot {
                Some(slot) => Known::UnderWay(slot.under_way.clone()),
                None => inner.recent.get(key).cloned().map_or(Known::Nothing, Known::Waiting),
            };
            found(key, known);
        }
    }
}

impl View {
    /// The schedules that waiting jobs came from, of those that were read just now.
    pub(crate) fn schedules_of<'k>(&self, keys: impl Iterator<Item = &'k JobKey>) -> Vec<ScheduleKey> {
        let inner = self.lock();
        let schedule_of = |key: &JobKey| {
            let occurrence = inner.recent.get(key)?.spec.occurrence.as_ref()?;
            Some(ScheduleKey { tenant: key.tenant.clone(), id: occurrence.schedule_id.parse().ok()? })
        };
        keys.filter_map(schedule_of).collect()
    }
}

/// What the view knows of a job.
pub(crate) enum Known {
    /// It is running.
    UnderWay(UnderWay),
    /// It waits, and was read just now.
    Waiting(Job),
    /// Nothing; look on disk.
    Nothing,
}

impl Reading<'_> {
    /// The attempt under way that is newer than a stored record with `attempt` attempts.
    pub(crate) fn under_way(&self, key: &JobKey, attempt: u32) -> Option<Job> {
        let inner = self.view.lock();
        let job = &inner.running.get(key)?.under_way.job;
        (job.status.attempt > attempt).then(|| job.clone())
    }

    /// Whether there is such an attempt.
    pub(crate) fn is_under_way(&self, key: &JobKey, attempt: u32) -> bool {
        let inner = self.view.lock();
        inner.running.get(key).is_some_and(|slot| slot.under_way.job.status.attempt > attempt)
    }

    /// Keeps waiting jobs that were just read, except those that changed meanwhile.
    pub(crate) fn remember(&self, jobs: &[Job]) {
        let mut inner = self.view.lock();
        for job in jobs {
            let key = JobKey::of(job);
            let is_stale = inner.changed.get(&key).is_some_and(|changed| *changed > self.version);
            if is_stale || inner.running.contains_key(&key) {
                continue;
            }
            inner.recent_bytes += job.size_bytes();
            if let Some(old) = inner.recent.insert(key.clone(), job.clone()) {
                inner.recent_bytes -= old.size_bytes();
            } else {
                inner.recent_order.push_back(key);
            }
        }
        while inner.recent_bytes > RECENT_BYTES_MAX
            || inner.recent_order.len() > 2 * inner.recent.len() + 1024
        {
            let Some(oldest) = inner.recent_order.pop_front() else { break };
            inner.forget_recent(&oldest);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.view.deregister(self.version);
    }
}

impl Inner {
    fn forget_recent(&mut self, key: &JobKey) {
        if let Some(job) = self.recent.remove(key) {
            self.recent_bytes -= job.size_bytes();
        }
    }

    /// Removes traces no reader needs any more.
    fn sweep(&mut self) {
        let oldest = self.readers.first_key_value().map_or(u64::MAX, |(version, _)| *version);
        while self.ended.front().is_some_and(|(version, _)| *version <= oldest) {
            let Some((version, key)) = self.ended.pop_front() else { break };
            if self.running.get(&key).is_some_and(|slot| slot.ended_at == Some(version)) {
                self.running.remove(&key);
            }
        }
        while self.changed_order.front().is_some_and(|(version, _)| *version <= oldest) {
            let Some((version, key)) = self.changed_order.pop_front() else { break };
            if self.changed.get(&key) == Some(&version) {
                self.changed.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
