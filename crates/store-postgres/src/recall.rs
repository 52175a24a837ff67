//! Jobs as they were last read or written here, so that a claim need not read what a due read has just found, nor an
//! outcome what the claim wrote. What is recalled may have been changed by another node meanwhile: a batch that acts on it
//! then finds the next number of the job taken, and begins again with what is there; a batch that would leave the job as
//! it is looks first. So nothing rests on what is recalled but speed.
//!
//! Only jobs that wait or run are kept, for a minute or two: long before they could have ended and been dropped, which
//! would take their numbers along ([`crate::partitions`]).

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tidewheel_core::job::{Job, State};
use tidewheel_core::limits::{MINUTE_MS, SECOND_MS};
use tidewheel_core::time::Timestamp;

use crate::desk::{Desk, JobKey, JobMark, StoredJob, is_fresh};

/// Of what is kept, about half is forgotten when it is more than this. Half of it is more than the jobs a scheduler usually
/// holds, which are the same in memory: what is claimed was read a good while ago where many wait.
const BYTES_MAX: usize = 160 << 20;
/// Jobs that are submitted for soon are kept; others are read when they are due.
const SOON_MS: i64 = 10 * SECOND_MS;
/// An attempt under way that was noted longer ago, by the caller's clock, is not recalled: this process may have stood
/// still.
const NOTED_MS_MAX: i64 = 5 * MINUTE_MS;
/// History younger than this is never dropped.
pub(crate) const HISTORY_MS_MIN: i64 = 10 * MINUTE_MS;

struct Noted {
    stored: StoredJob,
    /// By the clock of whoever wrote it; a due read knows none.
    at: Option<Timestamp>,
}

#[derive(Default)]
struct Generations {
    young: FxHashMap<JobKey, Noted>,
    young_bytes: usize,
    old: FxHashMap<JobKey, Noted>,
}

/// What a batch made of jobs: as they stand now, or nothing worth keeping.
pub(crate) type Outcome = Vec<(JobKey, Option<StoredJob>)>;

/// Jobs as they were last seen here.
#[derive(Default)]
pub(crate) struct Recall(Mutex<Generations>);

impl Recall {
    /// A job as it was last seen, if that is not long ago.
    pub(crate) fn find(&self, now: Timestamp, key: &JobKey) -> Option<StoredJob> {
        let generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = generations.young.get(key).or_else(|| generations.old.get(key))?;
        let is_fit = noted.at.is_none_or(|at| (0..NOTED_MS_MAX).contains(&now.since_ms(at)));
        is_fit.then(|| noted.stored.clone())
    }

    /// Keeps jobs as a read found them.
    pub(crate) fn note_read(&self, jobs: impl Iterator<Item = StoredJob>) {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for stored in jobs {
            generations.note(Noted { stored, at: None });
        }
    }

    /// Keeps jobs as a batch that is committed has left them.
    pub(crate) fn note_written(&self, now: Timestamp, outcome: Outcome) {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, stored) in outcome {
            match stored {
                Some(stored) => generations.note(Noted { stored, at: Some(now) }),
                None => generations.forget(&key),
            }
        }
    }

    /// Forgets jobs about which somebody else knows better.
    pub(crate) fn forget(&self, keys: impl Iterator<Item = JobKey>) {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.for_each(|key| generations.forget(&key));
    }

    /// Forgets what was not seen since the last time.
    pub(crate) fn age(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).age();
    }
}

impl Generations {
    fn note(&mut self, noted: Noted) {
        let job = &noted.stored.job;
        let key = (job.tenant.clone(), job.id);
        let seq = noted.stored.mark.seq;
        // Two may come back from the database in another order than they went.
        let is_newer = |known: &Noted| known.stored.mark.seq > seq;
        if self.young.get(&key).is_some_and(is_newer) || self.old.get(&key).is_some_and(is_newer) {
            return;
        }
        self.young_bytes = self.young_bytes.saturating_add(job.size_bytes());
        if let Some(before) = self.young.insert(key, noted) {
            self.young_bytes = self.young_bytes.saturating_sub(before.stored.job.size_bytes());
        }
        if self.young_bytes > BYTES_MAX / 2 {
            self.age();
        }
    }

    fn forget(&mut self, key: &JobKey) {
        self.young.remove(key);
        self.old.remove(key);
    }

    fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
        self.young_bytes = 0;
    }
}

/// What a batch leaves behind that is worth keeping: what waits at a near time, or runs.
pub(crate) fn outcome_of(desk: &Desk, now: Timestamp, shard_of: impl Fn(&Job) -> i16) -> Outcome {
    let kept = |job: &Arc<Job>| match job.status.state {
        State::Running => true,
        State::Scheduled | State::Retrying => job.status.due_at <= now.plus_ms(SOON_MS),
        State::Succeeded | State::Dead | State::Cancelled | State::Skipped | State::Expired => false,
    };
    let changed = desk.jobs.iter().filter(|(_, slot)| slot.changed);
    let outcome = changed.map(|(key, slot)| {
        let stored = slot.now.as_ref().filter(|job| kept(job)).map(|job| {
            let mark = match (&slot.stored, slot.removed) {
                (Some(stored), _) => stored.mark.next(job.spec != stored.job.spec),
                (None, Some(removed)) => removed.next(true),
                (None, None) if is_fresh(job) => JobMark { seq: 0, body_seq: None, shard: shard_of(job) },
                (None, None) => JobMark { seq: 1, body_seq: None, shard: shard_of(job) },
            };
            StoredJob { job: Arc::clone(job), mark }
        });
        (key.clone(), stored)
    });
    outcome.collect()
}
