//! The audit trail: who asked for what, from where. What became of jobs is recorded by the store itself, with the change.
//!
//! | file | what it holds |
//! |---|---|
//! | `trail` | what of each call is recorded, read off the table of calls |
//! | `act` | recording one call: from the request, and from the answer |
//! | `sums` | calls that are too many for a record each |
//!
//! A call that changes something is answered after it is recorded. One that is recorded twice, because the answer to the
//! store's write was lost, is there twice with one request id; counts are written again as well, and may be too high then.

mod act;
mod sums;
mod trail;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tidewheel_api::wire::audit::Act;
use tidewheel_core::limits::AUDIT_SUM_MS;
use tidewheel_core::names::Tenant;
use tidewheel_store::{Error, NewAct, Store};

pub(crate) use self::act::{Fields, Summed, Told, refused, served, sum_up};
use self::sums::{Counted, Sum, Sums, Then};
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

    /// Counts a call.
    fn count(self: &Arc<Self>, call: Counted) {
        let then = self.sums().count(call);
        self.go_on(then);
    }

    fn go_on(self: &Arc<Self>, then: Then) {
        let auditor = Arc::clone(self);
        // What is not recorded was put back or is lost, and the log says so: nobody waits for it here.
        match then {
            Then::Nothing => {}
            Then::WriteSoon => drop(tokio::spawn(async move {
                auditor.clock.sleep(Duration::from_millis(AUDIT_SUM_MS.unsigned_abs())).await;
                auditor.flush().await.ok();
            })),
            Then::Write(sums) => drop(tokio::spawn(async move { auditor.record_sums(sums).await.ok() })),
        }
    }

    /// Records what was summed up so far.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<(), Error> {
        let sums = self.sums().take();
        self.record_sums(sums).await
    }

    async fn record_sums(self: &Arc<Self>, sums: Vec<Sum>) -> Result<(), Error> {
        if sums.is_empty() {
            return Ok(());
        }
        let acts = sums.iter().map(|sum| new_act(&sums::act(sum))).collect();
        let recorded = self.store.append_acts(self.clock.now(), acts).await;
        match &recorded {
            Ok(()) => {}
            Err(error) if error.is_retryable() => {
                tracing::debug!(%error, "counts of calls could not be recorded yet");
                let (then, dropped) = self.sums().put_back(sums);
                if dropped > 0 {
                    tracing::error!(%error, dropped, "too many counts of calls wait to be recorded");
                }
                self.go_on(then);
            }
            Err(error) => tracing::error!(%error, "calls of the last second could not be recorded"),
        }
        recorded
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
