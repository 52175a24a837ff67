//! The audit trail: who asked for what, from where. What became of jobs is recorded by the store itself, with the change.
//!
//! | file | what it holds |
//! |---|---|
//! | `trail` | what of each call is recorded, read off the table of calls |
//! | `act` | recording one call: from the request, and from the answer |
//! | `sums` | calls that are too many for a record each |
//!
//! A call that changes something is answered after it is recorded. One that is recorded twice, because the answer to the
//! store's write was lost, is there twice with one request id.

mod act;
mod sums;
mod trail;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidewheel_api::wire::audit::Act;
use tidewheel_core::names::Tenant;
use tidewheel_store::{Error, NewAct, Store};

pub(crate) use self::act::{Fields, Told, refused, served, sum_up};
use self::sums::Sums;
pub(crate) use self::trail::{Trail, trail_of};
use crate::access::Identity;
use crate::clock::Clock;

/// How often a record is tried again that the store did not take.
const TRIES_MAX: usize = 2;

/// Records what was asked for.
pub(crate) struct Auditor {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Whether calls of the jobs' own path are summed up, or left to what becomes of the jobs.
    sums_calls: bool,
    sums: Mutex<Sums>,
}

impl Auditor {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, sums_calls: true, sums: Mutex::default() }
    }

    /// Sums up calls of the jobs' own path, or does not.
    pub(crate) fn summing_calls(mut self, sums_calls: bool) -> Self {
        self.sums_calls = sums_calls;
        self
    }

    pub(crate) const fn sums_calls(&self) -> bool {
        self.sums_calls
    }

    /// Records an act.
    async fn record(&self, act: &Act) -> Result<(), Error> {
        let new = || vec![new_act(act)];
        for _ in 1..TRIES_MAX {
            match self.store.append_acts(self.clock.now(), new()).await {
                Err(error) if error.is_retryable() => {}
                settled => return settled,
            }
        }
        self.store.append_acts(self.clock.now(), new()).await
    }

    /// Records what was summed up so far.
    pub(crate) async fn flush(&self) -> Result<(), Error> {
        let acts = self.sums().take();
        self.record_sums(acts).await
    }

    async fn record_sums(&self, acts: Vec<Act>) -> Result<(), Error> {
        if acts.is_empty() {
            return Ok(());
        }
        self.store.append_acts(self.clock.now(), acts.iter().map(new_act).collect()).await
    }

    fn sums(&self) -> std::sync::MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_act(act: &Act) -> NewAct {
    // An act names a tenant that was let through as one.
    let tenant = Tenant::new(&act.tenant).unwrap_or_default();
    NewAct { tenant, content: Bytes::from(act.content()) }
}

/// Who asks, as the trail names them.
pub(crate) fn actor(identity: &Identity) -> &str {
    match identity {
        Identity::Anyone => "anonymous",
        Identity::Key(key) => &key.id,
    }
}
