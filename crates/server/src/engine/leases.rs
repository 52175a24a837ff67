//! When the attempts under way run out of time. Kept on the monotonic clock, and by the lengths that were asked for,
//! so that a stepped wall clock neither ends a lease early nor keeps a dead one alive. The store's `lease_until`, a
//! wall time, tells one lease of an attempt from the next; its length is read off it only where nothing better is
//! known: after a restart.

mod ends;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Job, Token};
use tidewheel_core::limits::{LEASE_MS_MAX, LEASE_MS_MIN};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_core::trace::TraceId;

use self::ends::Ends;

#[derive(Debug, Clone)]
struct Lease {
    tenant: Tenant,
    /// Where it was pulled from, if it was.
    queue: Option<Arc<str>>,
    token: Token,
    ends_ms: i64,
    lease_until: Timestamp,
    trace_id: Option<TraceId>,
    /// Its length was read off the wall clock.
    is_estimate: bool,
}

/// How a running attempt gets another lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It lasts at least this long from now on.
    Extend(i64),
    /// It lasts this long from now on.
    Set(i64),
}

impl Renewal {
    /// What a granted command does to the lease.
    pub(super) const fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Heartbeat { extend_ms, .. } => Some(Self::Extend(*extend_ms)),
            Command::Detach { lease_ms, .. } => Some(Self::Set(*lease_ms)),
            Command::Claim { .. }
            | Command::Succeed { .. }
            | Command::Fail { .. }
            | Command::Snooze { .. }
            | Command::Release { .. }
            | Command::Abandon { .. }
            | Command::LeaseOver { .. }
            | Command::Lost { .. }
            | Command::WorkerGone { .. }
            | Command::Cancel
            | Command::RunNow
            | Command::Amend { .. }
            | Command::Rerun { .. }
            | Command::Replay { .. }
            | Command::Discard => None,
        }
    }
}

/// A lease that ran out.
#[derive(Debug, Clone)]
pub(super) struct Over {
    pub(super) tenant: Tenant,
    pub(super) id: JobId,
    pub(super) token: Token,
    /// What the store holds the lease to end at, by the wall clock of the time it was given.
    pub(super) lease_until: Timestamp,
    /// The trace the job was submitted in.
    pub(super) trace_id: Option<TraceId>,
}

/// All leases of attempts under way.
#[derive(Debug, Default)]
pub(super) struct Leases {
    leases: FxHashMap<JobId, Lease>,
    ends: Ends,
}

impl Leases {
    /// Notes a running job's lease as the store has it. What is known of it already is better.
    pub(super) fn hold(&mut self, job: &Job, now: Timestamp, monotonic_ms: i64) {
        let Some(running) = &job.status.running else { return };
        let is_known =
            |held: &&Lease| held.token == job.status.token && held.lease_until >= running.lease_until;
        if self.leases.get(&job.id).as_ref().is_none_or(|held| !is_known(held)) {
            self.note(job, monotonic_ms.saturating_add(running.lease_until.since_ms(now).max(0)), true);
        }
    }

    /// Notes the lease of an attempt that starts: it has its full length from here, however the wall clock was set
    /// meanwhile. Says whether it is new; one that is known already is left as it is.
    pub(super) fn hold_new(&mut self, job: &Job, monotonic_ms: i64) -> bool {
        let Some(running) = &job.status.running else { return true };
        if self.token(&job.id) == Some(job.status.token) {
            return false;
        }
        let lease_ms = running.lease_until.since_ms(running.started_at).max(0);
        self.note(job, monotonic_ms.saturating_add(lease_ms), false);
        true
    }

    /// Notes another lease of a running attempt.
    pub(super) fn renew(&mut self, job: &Job, by: Renewal, monotonic_ms: i64) {
        let (Renewal::Extend(lease_ms) | Renewal::Set(lease_ms)) = by;
        let ends_ms = monotonic_ms.saturating_add(lease_ms.clamp(LEASE_MS_MIN, LEASE_MS_MAX));
        let is_before = |held: &&Lease| matches!(by, Renewal::Extend(_)) && held.token == job.status.token;
        let before = self.leases.get(&job.id).filter(is_before).cloned();
        let known_ms = before.as_ref().filter(|held| !held.is_estimate).map_or(ends_ms, |held| held.ends_ms);
        self.note(job, known_ms.max(ends_ms), false);
        // News of two extensions may come in the wrong order.
        if let (Some(before), Some(lease)) = (before, self.leases.get_mut(&job.id)) {
            lease.lease_until = lease.lease_until.max(before.lease_until);
        }
    }

    fn note(&mut self, job: &Job, ends_ms: i64, is_estimate: bool) {
        let Some(running) = &job.status.running else { return };
        let lease = Lease {
            tenant: job.tenant.clone(),
            queue: match &job.spec.destination {
                Destination::Queue(name) => Some(Arc::clone(name)),
                Destination::Target(_) => None,
            },
            token: job.status.token,
            ends_ms,
            lease_until: running.lease_until,
            trace_id: job.spec.trace.as_ref().map(|trace| trace.trace_id),
            is_estimate,
        };
        self.ends.add(ends_ms, job.id);
        if let Some(before) = self.leases.insert(job.id, lease) {
            self.ends.remove(before.ends_ms);
        }
    }

    /// Forgets a lease; says whether there was one.
    pub(super) fn release(&mut self, id: &JobId) -> bool {
        let Some(lease) = self.leases.remove(id) else { return false };
        self.ends.remove(lease.ends_ms);
        let leases = &self.leases;
        self.ends.tidy(leases.len(), |id| leases.get(id).map(|lease| lease.ends_ms));
        true
    }

    /// A look at a job's lease.
    pub(super) fn glance(&self, id: &JobId) -> bool {
        self.leases.get(id).is_some_and(|lease| lease.is_estimate)
    }

    /// The token of a job's lease.
    pub(super) fn token(&self, id: &JobId) -> Option<Token> {
        self.leases.get(id).map(|lease| lease.token)
    }

    /// Takes out what has run out.
    pub(super) fn over(&mut self, monotonic_ms: i64) -> Vec<Over> {
        if self.next_end_ms().is_none_or(|next_ms| next_ms > monotonic_ms) {
            return Vec::new();
        }
        let leases = &self.leases;
        let ended = self.ends.over(monotonic_ms, |id| leases.get(id).map(|lease| lease.ends_ms));
        let mut over = Vec::with_capacity(ended.len());
        for id in ended {
            let Some(lease) = self.leases.remove(&id) else { continue };
            self.ends.remove(lease.ends_ms);
            over.push(Over {
                tenant: lease.tenant,
                id,
                token: lease.token,
                lease_until: lease.lease_until,
                trace_id: lease.trace_id,
            });
        }
        over
    }

    /// When the next one may run out.
    pub(super) fn next_end_ms(&self) -> Option<i64> {
        self.ends.next_ms()
    }

    /// The attempts under way: whose, which, and from which queue.
    pub(super) fn each(&self) -> impl Iterator<Item = (&Tenant, JobId, Option<&Arc<str>>)> {
        self.leases.iter().map(|(id, lease)| (&lease.tenant, *id, lease.queue.as_ref()))
    }

    /// Attempts under way.
    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }
}
