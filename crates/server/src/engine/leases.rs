//! When the attempts under way run out of time. Kept on the monotonic clock, so that a stepped wall clock does not
//! end a lease early. One step does keep a dead one alive: a heartbeat after the clock was set back leaves the
//! store's `lease_until`, a wall time, where it was, and the lease then lasts longer by the size of the step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

#[derive(Debug, Clone)]
struct Lease {
    tenant: Tenant,
    token: Token,
    ends_ms: i64,
    lease_until: Timestamp,
}

/// A lease that ran out.
#[derive(Debug, Clone)]
pub(super) struct Over {
    pub(super) tenant: Tenant,
    pub(super) id: JobId,
    pub(super) token: Token,
    /// What the store holds the lease to end at, by the wall clock of the time it was given.
    pub(super) lease_until: Timestamp,
}

/// Outdated ends that are not worth clearing away.
const ENDS_SLACK: usize = 4_096;

/// All leases of attempts under way.
#[derive(Debug, Default)]
pub(super) struct Leases {
    leases: FxHashMap<JobId, Lease>,
    /// May hold outdated ends; the map has the last word.
    ends: BinaryHeap<Reverse<(i64, JobId)>>,
}

impl Leases {
    /// Notes a running job's lease, new or extended.
    pub(super) fn hold(&mut self, job: &Job, now: Timestamp, monotonic_ms: i64) {
        let Some(running) = &job.status.running else { return };
        let ends_ms = monotonic_ms.saturating_add(running.lease_until.since_ms(now).max(0));
        let lease = Lease {
            tenant: job.tenant.clone(),
            token: job.status.token,
            ends_ms,
            lease_until: running.lease_until,
        };
        self.leases.insert(job.id, lease);
        self.ends.push(Reverse((ends_ms, job.id)));
    }

    /// Forgets a lease; says whether there was one.
    pub(super) fn release(&mut self, id: &JobId) -> bool {
        let held = self.leases.remove(id).is_some();
        // Ends of released leases would otherwise pile up until they pass.
        if self.ends.len() > 2 * self.leases.len() + ENDS_SLACK {
            let leases = &self.leases;
            self.ends.retain(|Reverse((ends_ms, id))| {
                leases.get(id).is_some_and(|lease| lease.ends_ms == *ends_ms)
            });
        }
        held
    }

    /// The token of a job's lease.
    pub(super) fn token(&self, id: &JobId) -> Option<Token> {
        self.leases.get(id).map(|lease| lease.token)
    }

    /// Takes out what has run out.
    pub(super) fn over(&mut self, monotonic_ms: i64) -> Vec<Over> {
        let mut over = Vec::new();
        while let Some(Reverse((ends_ms, id))) = self.ends.peek().copied() {
            if ends_ms > monotonic_ms {
                break;
            }
            self.ends.pop();
            if self.leases.get(&id).is_some_and(|lease| lease.ends_ms <= monotonic_ms)
                && let Some(lease) = self.leases.remove(&id)
            {
                over.push(Over {
                    tenant: lease.tenant,
                    id,
                    token: lease.token,
                    lease_until: lease.lease_until,
                });
            }
        }
        over
    }

    /// When the next one may run out.
    pub(super) fn next_end_ms(&self) -> Option<i64> {
        self.ends.peek().map(|Reverse((ends_ms, _))| *ends_ms)
    }

    /// Attempts under way.
    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }
}
