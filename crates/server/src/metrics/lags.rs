//! How late the jobs of one claim started. Gathered first, so that what is shared is touched once for a claim and not
//! once for a job.

use tidewheel_core::job::{Job, Priority};
use tidewheel_core::names::Tenant;

/// Most claims are of few tenants, taking turns.
const TENANTS_LOOKED_AT_COUNT: usize = 8;

/// How late the jobs of one claim started.
#[derive(Debug, Default)]
pub(crate) struct Lags {
    /// A tenant may be in it more than once.
    pub(super) by_tenant: Vec<(Tenant, Vec<i64>)>,
    /// Jobs, and milliseconds over all of them; in the order of [`Priority::ALL`].
    pub(super) by_priority: [(u64, u64); Priority::ALL.len()],
}

impl Lags {
    pub(crate) fn note(&mut self, job: &Job, lag_ms: i64) {
        let lag_ms = lag_ms.max(0);
        if let Some((jobs, sum_ms)) = self.by_priority.get_mut(job.spec.priority.index()) {
            *jobs += 1;
            *sum_ms = sum_ms.saturating_add(lag_ms.unsigned_abs());
        }
        let mut recent = self.by_tenant.iter_mut().rev().take(TENANTS_LOOKED_AT_COUNT);
        match recent.find(|(tenant, _)| *tenant == job.tenant) {
            Some((_, lags)) => lags.push(lag_ms),
            None => self.by_tenant.push((job.tenant.clone(), vec![lag_ms])),
        }
    }
}
