//! How the attempts ended that one write told of. Gathered first, so that what is shared is touched once for a write and
//! not once for a job.

use tidewheel_core::job::{Ending, Job, State};
use tidewheel_core::names::Tenant;

use super::Doings;

/// Most writes are of few tenants, taking turns.
const TENANTS_LOOKED_AT_COUNT: usize = 8;

/// How the attempts of one write ended.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// A tenant may be in it more than once.
    pub(super) by_tenant: Vec<(Tenant, Doings)>,
    /// In the order of [`Ending::ALL`].
    pub(super) by_ending: [u64; Ending::ALL.len()],
    pub(super) dead: u64,
    pub(super) retries: u64,
}

impl Endings {
    /// Notes how the last attempt of a job ended, if none is under way.
    pub(crate) fn note(&mut self, job: &Job) {
        let last = || job.status.attempts.last().filter(|_| job.status.running.is_none());
        // Most do, and then no attempt need be fetched to know it.
        let has_succeeded = (job.status.state == State::Succeeded).then_some(Ending::Succeeded);
        let Some(ending) = has_succeeded.or_else(|| last().map(|attempt| attempt.ending)) else { return };
        if let Some(count) = self.by_ending.get_mut(ending as usize) {
            *count += 1;
        }
        let mut recent = self.by_tenant.iter_mut().rev().take(TENANTS_LOOKED_AT_COUNT);
        match recent.find(|(tenant, _)| *tenant == job.tenant) {
            Some((_, doings)) => doings.ended(ending == Ending::Succeeded),
            None => {
                let mut doings = Doings::default();
                doings.ended(ending == Ending::Succeeded);
                self.by_tenant.push((job.tenant.clone(), doings));
            }
        }
        self.dead += u64::from(job.status.state == State::Dead);
        self.retries += u64::from(job.status.state == State::Retrying && is_failure(ending));
    }
}

const fn is_failure(ending: Ending) -> bool {
    match ending {
        Ending::Failed | Ending::TimedOut | Ending::LeaseExpired | Ending::Lost => true,
        Ending::Succeeded | Ending::Snoozed | Ending::Cancelled | Ending::Released => false,
    }
}
