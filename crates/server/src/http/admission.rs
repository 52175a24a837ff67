//! What a tenant may submit: how fast, how much may wait, how large, and by which key. What is refused here was never
//! stored; what is taken counts, whoever submits it and over which API.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tidewheel_api::wire::fault::Code;
use tidewheel_core::job::{Destination, State};
use tidewheel_core::names::Tenant;

use super::app::App;
use super::problem::Problem;
use crate::access::Identity;
use crate::directory::TenantSettings;

/// Tenants with limits that are remembered; those that have had their fill of everything are forgotten first.
const TENANTS_COUNT_MAX: usize = 65_536;
/// When to come back while nothing of what waits is being done.
const WAIT_S_DEFAULT: u32 = 30;
const WAIT_S_MAX: u32 = 3_600;
/// How long it is watched how fast waiting jobs are done, before it is said.
const WATCHED_MS_MIN: i64 = 1_000;

/// What a tenant has left.
#[derive(Debug, Clone, Copy)]
struct Account {
    /// Jobs it may submit at once; below nought after a batch larger than the burst.
    left: f64,
    at_ms: i64,
    /// Jobs admitted and not yet stored.
    pending: u64,
    /// Jobs that waited when this was last looked at, and those admitted since.
    watched: Option<Watched>,
    /// Calls that were refused.
    refused: u64,
}

#[derive(Debug, Clone, Copy)]
struct Watched {
    at_ms: i64,
    waiting: u64,
    admitted: u64,
}

/// The accounts of all tenants that have limits.
#[derive(Default)]
pub(super) struct Admission {
    accounts: Mutex<FxHashMap<Tenant, Account>>,
}

/// Jobs that may be stored. They count as waiting until this is dropped, by when the store knows them.
pub(super) struct Admitted {
    app: Option<Arc<App>>,
    tenant: Tenant,
    count: u64,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(app) = &self.app
            && let Some(account) = app.admission.lock().get_mut(&self.tenant)
        {
            account.pending = account.pending.saturating_sub(self.count);
        }
    }
}

/// Admits jobs of a tenant, or says when to come back.
pub(super) async fn admit(app: &Arc<App>, tenant: &Tenant, count: usize) -> Result<Admitted, Problem> {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    let settings = app.access.directory().tenant(tenant).settings;
    let mut admitted = Admitted { app: None, tenant: tenant.clone(), count };
    if settings.submit_per_s.is_none() && settings.waiting_count_max.is_none() {
        return Ok(admitted);
    }
    let waiting = match settings.waiting_count_max {
        Some(max) => {
            let counts = app.engine.store().counts(Some(tenant)).await?;
            Some((counts.of(State::Scheduled) + counts.of(State::Retrying), max))
        }
        None => None,
    };
    let now_ms = app.engine.clock().monotonic_ms();
    app.admission.take(tenant, &settings, count, waiting, now_ms)?;
    admitted.app = Some(Arc::clone(app));
    Ok(admitted)
}

impl Admission {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Tenant, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of the tenant's submissions were refused for their number, since the server started.
    pub(super) fn refused(&self, tenant: &Tenant) -> u64 {
        self.lock().get(tenant).map_or(0, |account| account.refused)
    }

    /// `waiting` is how many wait, as the store says, and how many may.
    fn take(
        &self,
        tenant: &Tenant,
        settings: &TenantSettings,
        count: u64,
        waiting: Option<(u64, u64)>,
        now_ms: i64,
    ) -> Result<(), Problem> {
        let mut accounts = self.lock();
        if accounts.len() >= TENANTS_COUNT_MAX && !accounts.contains_key(tenant) {
            accounts.retain(|_, account| account.pending > 0);
        }
        let burst = f64::from(settings.burst().unwrap_or(0));
        let fresh = Account { left: burst, at_ms: now_ms, pending: 0, watched: None, refused: 0 };
        let account = accounts.entry(tenant.clone()).or_insert(fresh);
        let checked = match waiting {
            Some((waiting, max)) => account.check_waiting(waiting, max, count, now_ms),
            None => Ok(()),
        };
        let checked = checked.and_then(|()| match settings.submit_per_s {
            Some(rate) => account.check_rate(f64::from(rate), burst, as_number(count), now_ms),
            None => Ok(()),
        });
        if checked.is_err() {
            account.refused = account.refused.saturating_add(1);
            return checked;
        }
        account.pending = account.pending.saturating_add(count);
        if let Some(watched) = &mut account.watched {
            watched.admitted = watched.admitted.saturating_add(count);
        }
        Ok(())
    }
}

impl Account {
    /// A batch larger than the burst is taken when the burst is whole, and then paid off.
    fn check_rate(&mut self, rate: f64, burst: f64, count: f64, now_ms: i64) -> Result<(), Problem> {
        let passed_ms = u32::try_from(now_ms.saturating_sub(self.at_ms)).unwrap_or(u32::MAX);
        self.left = (self.left + f64::from(passed_ms) / 1_000.0 * rate).min(burst);
        self.at_ms = now_ms;
        let needed = count.min(burst);
        if self.left >= needed {
            self.left -= count;
            return Ok(());
        }
        let wait_s = seconds((needed - self.left) / rate);
        let detail =
            format!("the tenant may submit {rate} jobs per second, {burst} at once; try again later");
        Err(Problem::new(Code::RateLimited, detail).retry_after(wait_s))
    }

    fn check_waiting(&mut self, waiting: u64, max: u64, count: u64, now_ms: i64) -> Result<(), Problem> {
        let wanted = waiting.saturating_add(self.pending).saturating_add(count);
        let fresh = Watched { at_ms: now_ms, waiting, admitted: 0 };
        let watched = *self.watched.get_or_insert(fresh);
        let watched_ms = now_ms.saturating_sub(watched.at_ms);
        if watched_ms >= WATCHED_MS_MIN {
            self.watched = Some(fresh);
        }
        if wanted <= max {
            return Ok(());
        }
        let done = (watched.waiting + watched.admitted).saturating_sub(waiting);
        let wait_s = if done > 0 && watched_ms >= WATCHED_MS_MIN {
            let per_s = as_number(done) / (as_number(watched_ms.unsigned_abs()) / 1_000.0);
            seconds(as_number(wanted - max) / per_s)
        } else {
            WAIT_S_DEFAULT
        };
        let detail =
            format!("{waiting} jobs of the tenant wait, and {max} may; try again when some are done");
        Err(Problem::new(Code::TooManyWaiting, detail).retry_after(wait_s))
    }
}

/// Whole seconds, at least one: whoever comes back after them comes late enough.
fn seconds(wait_s: f64) -> u32 {
    (1..WAIT_S_MAX).find(|seconds| f64::from(*seconds) >= wait_s).unwrap_or(WAIT_S_MAX)
}

/// Counts here are far below what a float cannot tell apart.
fn as_number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// What the caller's key and the tenant's limits have against a job: the code, the field, and why.
pub(super) fn objection(
    identity: &Identity,
    settings: &TenantSettings,
    kind: &str,
    destination: &Destination,
    payload_bytes: usize,
) -> Option<(Code, &'static str, String)> {
    let refused = |field| move |problem: Problem| (problem.code(), field, problem.detail().to_owned());
    let by_type = identity.check_type(kind).map_err(refused("type"));
    let by_place = match destination {
        Destination::Queue(queue) => identity.check_queue(queue).map_err(refused("queue")),
        Destination::Target(_) => identity.check_push().map_err(refused("target")),
    };
    if let Err(objection) = by_type.and(by_place) {
        return Some(objection);
    }
    let max = settings.payload_bytes_max?;
    let is_over = u64::try_from(payload_bytes).is_ok_and(|bytes| bytes > u64::from(max));
    is_over.then(|| {
        let detail = format!("the payload has {payload_bytes} bytes; the tenant's jobs may have {max}");
        (Code::PayloadTooLarge, "payload", detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn rated(rate: u32, burst: u32) -> TenantSettings {
        TenantSettings { submit_per_s: Some(rate), submit_burst: Some(burst), ..TenantSettings::default() }
    }

    fn wait_s(answer: Result<(), Problem>) -> Option<u32> {
        answer.err().map(|problem| problem.retry_after_s().unwrap())
    }

    #[test]
    fn a_tenant_submits_its_burst_and_then_at_its_rate() {
        let (admission, acme, settings) = (Admission::default(), tenant("acme"), rated(10, 20));
        let take = |count, now_ms| wait_s(admission.take(&acme, &settings, count, None, now_ms));
        assert_eq!(take(20, 0), None);
        assert_eq!(take(1, 0), Some(1));
        assert_eq!(take(10, 1_000), None);
        assert_eq!(take(15, 1_000), Some(2), "1.5 s are rounded up");
        assert_eq!(take(15, 3_000), None, "what was promised holds");
        assert_eq!(wait_s(admission.take(&tenant("other"), &settings, 20, None, 3_000)), None);
    }

    #[test]
    fn who_waits_as_long_as_told_is_taken() {
        let settings = rated(7, 3);
        for count in 1..40 {
            let (admission, acme) = (Admission::default(), tenant("acme"));
            let take = |now_ms| wait_s(admission.take(&acme, &settings, count, None, now_ms));
            assert_eq!(take(0), None, "a whole burst takes even a batch larger than it");
            let wait = std::iter::from_fn(|| Some(take(0))).find_map(|wait| wait).unwrap();
            assert_eq!(take(i64::from(wait) * 1_000), None, "{count}");
        }
    }

    #[test]
    fn over_time_no_more_is_taken_than_the_rate_allows() {
        let (admission, acme, settings) = (Admission::default(), tenant("acme"), rated(100, 50));
        let mut taken = 0;
        for step in 0..10_000_i64 {
            let count = u64::try_from(step % 7 + 1).unwrap();
            if admission.take(&acme, &settings, count, None, step).is_ok() {
                taken += count;
            }
        }
        assert!((1_000..=1_057).contains(&taken), "{taken} in ten seconds");
    }

    #[test]
    fn a_limit_that_was_changed_holds_at_once() {
        let (admission, acme) = (Admission::default(), tenant("acme"));
        assert!(admission.take(&acme, &rated(1_000, 1_000), 10, None, 0).is_ok());
        assert!(admission.take(&acme, &rated(1, 1), 1, None, 0).is_ok());
        assert!(admission.take(&acme, &rated(1, 1), 1, None, 0).is_err());
    }

    #[test]
    fn what_waits_is_capped_and_what_is_on_its_way_counts() {
        let (admission, acme) = (Admission::default(), tenant("acme"));
        let settings = TenantSettings { waiting_count_max: Some(10), ..TenantSettings::default() };
        let take = |count, waiting, now_ms| {
            wait_s(admission.take(&acme, &settings, count, Some((waiting, 10)), now_ms))
        };
        assert_eq!(take(6, 0, 0), None);
        assert_eq!(take(5, 0, 0), Some(WAIT_S_DEFAULT), "six are on their way");
        admission.lock().get_mut(&acme).unwrap().pending = 0;
        assert_eq!(take(5, 6, 500), Some(WAIT_S_DEFAULT));
        // Six were admitted; two seconds later two of them are done: one a second.
        assert_eq!(take(9, 4, 2_000), Some(3));
        assert_eq!(take(6, 4, 5_000), None);
    }
}
