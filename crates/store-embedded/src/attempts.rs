//! Records of attempts under way. `claims` has one record for up to [`CLAIMS_PER_RECORD_MAX`] attempts that were
//! claimed together; it goes when the last of them has ended. `leases` has one record per attempt whose lease or
//! progress changed since.
//!
//! ```text
//! claims   u64 → 01 | postcard Vec<Claim>
//! leases   natural key of the job → 01 | postcard Lease
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Running, State, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

/// Attempts in one record of `claims`.
pub(crate) const CLAIMS_PER_RECORD_MAX: usize = 256;

/// An attempt as it was claimed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Claim<'a> {
    tenant: &'a str,
    id: [u8; 16],
    /// Tells the job from a later one under the same id.
    created_at: i64,
    pub(crate) attempt: u32,
    token: u64,
    worker: &'a str,
    started_at: i64,
    lease_until: i64,
    detached: bool,
}

/// What changed about an attempt since it was claimed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    token: u64,
    lease_until: i64,
    detached: bool,
    progress: Option<Vec<u8>>,
}

impl<'a> Claim<'a> {
    /// The claim of the attempt `job` is running.
    pub(crate) fn of(job: &'a Job) -> Option<Self> {
        let running = job.status.running.as_ref()?;
        Some(Self {
            tenant: job.tenant.as_str(),
            id: *job.id.as_bytes(),
            created_at: job.spec.created_at.as_ms(),
            attempt: job.status.attempt,
            token: job.status.token.as_u64(),
            worker: &running.worker,
            started_at: running.started_at.as_ms(),
            lease_until: running.lease_until.as_ms(),
            detached: running.detached,
        })
    }

    pub(crate) fn tenant(&self) -> Option<Tenant> {
        Tenant::new(self.tenant).ok()
    }

    pub(crate) fn id(&self) -> JobId {
        JobId::from_bytes(self.id)
    }

    /// The job with this attempt under way, unless the attempt has ended or the job is another one.
    pub(crate) fn resume(&self, mut job: Job) -> Option<Job> {
        let waits = matches!(job.status.state, State::Scheduled | State::Retrying);
        let same = job.spec.created_at.as_ms() == self.created_at;
        if !waits || !same || job.status.attempt >= self.attempt {
            return None;
        }
        job.status.state = State::Running;
        job.status.attempt = self.attempt;
        job.status.token = Token::from_u64(self.token);
        job.status.running = Some(Running {
            worker: self.worker.into(),
            started_at: Timestamp::from_ms(self.started_at),
            lease_until: Timestamp::from_ms(self.lease_until),
            detached: self.detached,
            progress: None,
        });
        Some(job)
    }
}

impl Lease {
    /// What is to be kept of the attempt `job` is running.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        let running = job.status.running.as_ref()?;
        Some(Self {
            token: job.status.token.as_u64(),
            lease_until: running.lease_until.as_ms(),
            detached: running.detached,
            progress: running.progress.as_ref().map(|progress| progress.to_vec()),
        })
    }

    /// Brings a resumed job up to date; `false` when the lease is of another attempt.
    pub(crate) fn renew(self, job: &mut Job) -> bool {
        let same = job.status.token.as_u64() == self.token;
        if let Some(running) = job.status.running.as_mut().filter(|_| same) {
            running.lease_until = Timestamp::from_ms(self.lease_until);
            running.detached = self.detached;
            running.progress = self.progress.map(Bytes::from);
        }
        same
    }
}
