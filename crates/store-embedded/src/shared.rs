//! What the commit thread and the readers share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use tidewheel_core::job::Job;
use tidewheel_core::place::Bucket;
use tidewheel_store::{Error, Health};

use crate::ahead::Ahead;
use crate::counters::Counters;
use crate::gaps::Gaps;
use crate::kv::{Day, Keyspace, Kv, KvError, Space};
use crate::lean;
use crate::place::JobKey;
use crate::record::Unreadable;
use crate::rules::Rules;
use crate::schedule_counts::ScheduleCounts;
use crate::spread::Spread;
use crate::view::View;

/// Room kept for outcomes and the engine's own housekeeping when the device fills up: this much, or on a small
/// device a tenth of it.
const RESERVE_BYTES: u64 = 256 * 1024 * 1024;
const RESERVE_SHARE: u64 = 10;

pub(crate) struct Shared {
    pub(crate) shards: u16,
    pub(crate) view: View,
    pub(crate) gaps: Gaps,
    pub(crate) ahead: Ahead,
    pub(crate) spread: Spread,
    pub(crate) rules: Rules,
    counters: Mutex<Counters>,
    schedule_counts: Mutex<ScheduleCounts>,
    days: Mutex<Arc<Days>>,
    kv: RwLock<Option<Arc<dyn Kv>>>,
    poison: Mutex<Option<String>>,
}

/// What an opening found of what is kept in memory.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) counters: Counters,
    pub(crate) schedules: ScheduleCounts,
    pub(crate) days: Days,
    pub(crate) spread: Spread,
}

/// Which dated keyspaces there are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Days {
    /// With the first and the last bucket found in each, so that most lookups need not look.
    pub(crate) history: BTreeMap<Day, (Bucket, Bucket)>,
    pub(crate) keys: BTreeSet<Day>,
    pub(crate) ledger: BTreeSet<Day>,
    /// What was decided before this day is no longer shown, wherever it is kept.
    pub(crate) ledger_from: Day,
    pub(crate) audit: BTreeSet<Day>,
}

impl Shared {
    pub(crate) fn new(shards: u16, kv: Arc<dyn Kv>, rules: Rules, found: Remembered) -> Self {
        let Remembered { counters, schedules, days, spread } = found;
        Self {
            shards,
            view: View::default(),
            gaps: Gaps::default(),
            ahead: Ahead::default(),
            spread,
            rules,
            counters: Mutex::new(counters),
            schedule_counts: Mutex::new(schedules),
            days: Mutex::new(Arc::new(days)),
            kv: RwLock::new(Some(kv)),
            poison: Mutex::default(),
        }
    }

    /// The engine, unless the store was closed.
    pub(crate) fn kv(&self) -> Result<Arc<dyn Kv>, Error> {
        self.kv.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Error::Closed)
    }

    /// Takes the engine away from future calls.
    pub(crate) fn close(&self) {
        self.kv.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn schedule_counts(&self) -> MutexGuard<'_, ScheduleCounts> {
        self.schedule_counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which dated keyspaces there are. A reader asks after it has taken its snapshot: then the answer names
    /// every keyspace the snapshot can have something in.
    pub(crate) fn days(&self) -> Arc<Days> {
        Arc::clone(&self.days.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn change_days(&self, change: impl FnOnce(&mut Days)) {
        let mut days = self.days.lock().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut days));
    }

    pub(crate) fn poison(&self, reason: &str) {
        *self.poison.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }

    pub(crate) fn poisoned(&self) -> Option<Error> {
        self.poison.lock().unwrap_or_else(PoisonError::into_inner).clone().map(Error::Poisoned)
    }

    pub(crate) fn health(&self) -> Health {
        let Ok(kv) = self.kv() else { return Health::ReadOnly(Error::Closed.to_string()) };
        match (self.poisoned(), lacking_room(&*kv)) {
            (Some(error), _) => Health::ReadOnly(error.to_string()),
            (None, Some(reason)) => Health::Full(reason),
            (None, None) => Health::Ready,
        }
    }
}

/// Why nothing new is taken while the device is nearly full: what is under way must still be finished.
pub(crate) fn lacking_room(kv: &dyn Kv) -> Option<String> {
    let Space { free_bytes, total_bytes } = kv.space()?;
    let is_short = free_bytes < RESERVE_BYTES.min(total_bytes / RESERVE_SHARE);
    is_short.then(|| format!("{} MiB of {} MiB are left", free_bytes >> 20, total_bytes >> 20))
}

impl Days {
    pub(crate) fn widen(&mut self, day: Day, bucket: Bucket) {
        let (first, last) = self.history.entry(day).or_insert((bucket, bucket));
        *first = bucket.min(*first);
        *last = bucket.max(*last);
    }

    pub(crate) fn covers(&self, day: Day, bucket: Bucket) -> bool {
        self.history.get(&day).is_some_and(|(first, last)| (*first..=*last).contains(&bucket))
    }
}

/// Finds a job's record, wherever it lies: most likely places first, history newest first.
pub(crate) fn locate(
    get: impl Fn(Keyspace, &[u8]) -> Result<Option<Bytes>, KvError>,
    shards: u16,
    days: &Days,
    key: &JobKey,
) -> Result<Option<Job>, Error> {
    let natural = key.natural(shards);
    let bucket = Bucket::of(key.id.run_at());
    let covering = days.history.keys().rev().filter(|day| days.covers(**day, bucket));
    let places = [Keyspace::Waiting, Keyspace::Parked, Keyspace::Dead];
    for keyspace in places.into_iter().chain(covering.map(|day| Keyspace::History(*day))) {
        if let Some(bytes) = get(keyspace, &natural).map_err(read_error)? {
            return lean::read_job(&get, &key.tenant, key.id, &bytes).map(Some).map_err(read_error);
        }
    }
    Ok(None)
}

/// A failed read; what is stored is not touched by it.
pub(crate) fn read_error(error: KvError) -> Error {
    match error {
        KvError::Corrupt(reason) => Error::Corrupt(reason),
        KvError::Io(reason) | KvError::Full(reason) => Error::Unavailable(reason),
        KvError::Locked => Error::Unavailable(KvError::Locked.to_string()),
    }
}

pub(crate) fn unreadable(reason: Unreadable) -> Error {
    Error::Corrupt(reason.to_string())
}
