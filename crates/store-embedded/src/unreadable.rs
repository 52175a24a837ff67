//! Jobs whose records cannot be read: damaged, or written by a later version. Where many are read, such a one is passed over, and
//! the log is told: it costs no other job anything, and is there again once it can be read.

use std::fmt::Display;

use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_store::Error;

/// So many are told of one by one in a read; of those beyond, how many they are.
const TOLD_COUNT_MAX: usize = 20;

/// The error of whoever asks for this very job.
pub(crate) fn unreadable_job(tenant: &Tenant, id: JobId, reason: impl Display) -> Error {
    Error::Corrupt(format!("job {id} of tenant {tenant}: {reason}"))
}

/// What the log was told of in one read.
#[derive(Default)]
pub(crate) struct Told {
    count: usize,
}

impl Told {
    pub(crate) fn tell(&mut self, tenant: &Tenant, id: JobId, reason: &str) {
        self.count += 1;
        if self.count <= TOLD_COUNT_MAX {
            tracing::error!(%tenant, job_id = %id, reason, "a job cannot be read, and is passed over");
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let left = self.count.saturating_sub(TOLD_COUNT_MAX);
        if left > 0 {
            tracing::error!(count = left, "more jobs cannot be read, and are passed over");
        }
    }
}
