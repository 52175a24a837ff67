//! What a worker on a stream has in its hands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidewheel_core::id::JobId;
use tidewheel_core::job::Token;
use tidewheel_core::names::Tenant;

/// An attempt.
pub(super) type Key = (JobId, Token);

#[derive(Debug)]
struct Held {
    tenant: Tenant,
    begun: bool,
    stopped: bool,
}

/// Attempts a worker has, or believes to have.
#[derive(Debug, Default)]
pub(super) struct Hands {
    held: Mutex<BTreeMap<Key, Held>>,
    /// Over, but the server has not answered for their outcome, or will never hear of one.
    owed: Mutex<BTreeSet<Key>>,
}

impl Hands {
    pub(super) fn take(&self, key: Key, tenant: Tenant) {
        self.lock().insert(key, Held { tenant, begun: false, stopped: false });
    }

    /// Its handler starts, unless it was handed back or stopped before.
    pub(super) fn begin(&self, key: Key) -> bool {
        let mut held = self.lock();
        let may_begin = held.get_mut(&key).filter(|held| !held.stopped);
        may_begin.map(|held| held.begun = true).is_some()
    }

    /// The server says that it no longer counts.
    pub(super) fn stop(&self, key: Key) {
        self.settle(key);
        if let Some(held) = self.lock().get_mut(&key) {
            held.stopped = true;
        }
    }

    pub(super) fn is_stopped(&self, key: Key) -> bool {
        self.lock().get(&key).is_none_or(|held| held.stopped)
    }

    /// Gives it up if its handler has not started; says whose it was.
    pub(super) fn hand_back(&self, key: Key) -> Option<Tenant> {
        let mut held = self.lock();
        held.get(&key).filter(|held| !held.begun)?;
        held.remove(&key).map(|held| held.tenant)
    }

    /// It is over; says whether it was still there.
    pub(super) fn put_down(&self, key: Key) -> bool {
        self.lock().remove(&key).is_some()
    }

    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Everything it must name to keep it when it resumes its session.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys = self.owed().clone();
        keys.extend(self.lock().keys());
        keys.into_iter().collect()
    }

    /// An outcome is on its way, or none will ever be.
    pub(super) fn owe(&self, key: Key) {
        self.owed().insert(key);
    }

    /// The server has answered.
    pub(super) fn settle(&self, key: Key) {
        self.owed().remove(&key);
    }

    pub(super) fn unbegun(&self) -> Vec<Key> {
        self.lock().iter().filter(|(_, held)| !held.begun).map(|(key, _)| *key).collect()
    }

    fn owed(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
