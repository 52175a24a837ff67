//! What a tenant may submit: how fast, how much may wait, how large, and by which key. What is refused here was never
//! stored; what is taken counts, whoever submits it and over which API.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tidewheel_api::wire::fault::Code;
use tidewheel_core::job::{Destination, Priority};
use tidewheel_core::names::Tenant;
use tidewheel_store::Submission;

use super::app::App;
use super::overload::Storing;
use super::problem::Problem;
use super::reservations::{Fit, Reserved};
use crate::access::Identity;
use crate::directory::TenantSettings;

/// Tenants with limits that are remembered. Whoever has its whole burst again is forgotten first, for that is what it
/// would begin with; while all have less, nobody new is taken.
const TENANTS_COUNT_MAX: usize = 65_536;
/// How often it is looked for tenants to forget, at most: it takes a while.
const FORGET_MS: i64 = 250;
/// When to come back while nothing of what waits is being done.
const WAIT_S_DEFAULT: u32 = 30;
/// When to come back while only those who are on their way take up the room.
const WAIT_S_SHORT: u32 = 1;
const WAIT_S_MAX: u32 = 86_400;
/// What rounding may take from a bucket.
const ROUNDING: f64 = 1e-6;
/// How long it is watched how fast waiting jobs are done, before it is said.
const WATCHED_MS_MIN: i64 = 1_000;

/// What a tenant has left.
#[derive(Debug, Clone, Copy)]
struct Account {
    /// Jobs it may submit at once; below nought after a batch larger than the burst.
    left: f64,
    at_ms: i64,
    /// What it was last measured by; nought without a limit.
    rate: f64,
    burst: f64,
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
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    by_tenant: FxHashMap<Tenant, Account>,
    forget_at_ms: i64,
}

impl Accounts {
    /// Makes room for one more, if somebody can be forgotten; says whether there is some.
    fn make_room(&mut self, now_ms: i64) -> bool {
        if self.by_tenant.len() < TENANTS_COUNT_MAX {
            return true;
        }
        if now_ms >= self.forget_at_ms {
            self.forget_at_ms = now_ms.saturating_add(FORGET_MS);
            self.by_tenant.retain(|_, account| !account.is_idle(now_ms));
        }
        self.by_tenant.len() < TENANTS_COUNT_MAX
    }
}

/// Jobs that may be stored. They count as waiting until this is dropped, by when the store knows them.
pub(super) struct Admitted {
    app: Arc<App>,
    tenant: Tenant,
    _reserved: Option<Reserved>,
    _storing: Storing,
}

/// What is asked for: so many jobs of one fate, of which this is the least urgent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) count: usize,
    pub(super) least: Priority,
}

/// What became of jobs that are answered for one by one: which of their priorities are not taken now.
pub(super) struct AdmittedSome {
    pub(super) admitted: Admitted,
    pub(super) shed: Vec<Priority>,
}

impl Asked {
    pub(super) const fn one(priority: Priority) -> Self {
        Self { count: 1, least: priority }
    }

    pub(super) fn all(jobs: &[Submission]) -> Self {
        let least = jobs.iter().map(|submission| submission.job.spec.priority).max_by_key(|it| it.index());
        Self { count: jobs.len(), least: least.unwrap_or(Priority::Critical) }
    }
}

impl Admitted {
    /// So many were there already, or could not be: what they were charged is given back.
    pub(super) fn give_back(&self, jobs_count: usize) {
        if jobs_count > 0 {
            self.app.admission.give_back(&self.tenant, u64::try_from(jobs_count).unwrap_or(u64::MAX));
        }
    }
}

/// Admits jobs of a tenant, or says when to come back.
pub(super) async fn admit(app: &Arc<App>, tenant: &Tenant, asked: Asked) -> Result<Admitted, Problem> {
    let storing = app.overload.enter(asked.count, asked.least)?;
    admit_stored(app, tenant, asked.count, storing).await
}

/// Admits those jobs of a tenant that are urgent enough, each by its own priority.
pub(super) async fn admit_each(
    app: &Arc<App>,
    tenant: &Tenant,
    jobs: &[Submission],
) -> Result<AdmittedSome, Problem> {
    let of = |priority| jobs.iter().filter(|submission| submission.job.spec.priority == priority).count();
    let counts = Priority::ALL.map(|priority| (priority, of(priority)));
    let (storing, shed) = app.overload.enter_each(counts)?;
    let count = counts.iter().filter(|(priority, _)| !shed.contains(priority)).map(|(_, count)| count).sum();
    Ok(AdmittedSome { admitted: admit_stored(app, tenant, count, storing).await?, shed })
}

/// Admits jobs that the server has room for, by the tenant's own limits.
async fn admit_stored(
    app: &Arc<App>,
    tenant: &Tenant,
    jobs_count: usize,
    storing: Storing,
) -> Result<Admitted, Problem> {
    let count = u64::try_from(jobs_count).unwrap_or(u64::MAX);
    let settings = app.access.directory().tenant(tenant).settings;
    let admitted = |reserved| {
        Ok(Admitted { app: Arc::clone(app), tenant: tenant.clone(), _reserved: reserved, _storing: storing })
    };
    if settings.submit_per_s.is_none() && settings.waiting_count_max.is_none() {
        return admitted(None);
    }
    let (mut reserved, mut waiting) = (None, None);
    if let Some(max) = settings.waiting_count_max {
        if count > max {
            return Err(never(count, max));
        }
        let place = app.waiting.stand(&app.engine, tenant, count);
        waiting = Some((place.fit(max, count).await?, max));
        reserved = Some(place);
    }
    let share = match settings.submit_per_s {
        Some(rate) => app.engine.submit_share(tenant, rate, jobs_count),
        None => 1.0,
    };
    let now_ms = app.engine.clock().monotonic_ms();
    app.admission.take(tenant, &settings, Wanted { count, waiting, share }, now_ms)?;
    if let Some(reserved) = &mut reserved {
        reserved.take();
    }
    admitted(reserved)
}

/// What a tenant wants, and what of its limits is this server's.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    count: u64,
    /// How many wait, whether there is room for more, and how many may.
    waiting: Option<(Fit, u64)>,
    /// Which part of the rate this server gives out; the others of a cluster give out the rest.
    share: f64,
}

impl Admission {
    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of the tenant's submissions were refused for their number, since the server started.
    pub(super) fn refused(&self, tenant: &Tenant) -> u64 {
        self.lock().by_tenant.get(tenant).map_or(0, |account| account.refused)
    }

    fn take(
        &self,
        tenant: &Tenant,
        settings: &TenantSettings,
        wanted: Wanted,
        now_ms: i64,
    ) -> Result<(), Problem> {
        let Wanted { count, waiting, share } = wanted;
        let mut accounts = self.lock();
        if !accounts.by_tenant.contains_key(tenant) && !accounts.make_room(now_ms) {
            let detail = "more tenants submit at their limits than can be watched; try again";
            return Err(Problem::new(Code::Overloaded, detail).retry_after(1));
        }
        let burst = f64::from(settings.burst().unwrap_or(0)) * share;
        let rate = f64::from(settings.submit_per_s.unwrap_or(0)) * share;
        let fresh = Account { left: burst, at_ms: now_ms, rate, burst, watched: None, refused: 0 };
        let account = accounts.by_tenant.entry(tenant.clone()).or_insert(fresh);
        let checked = match waiting {
            Some((fit, max)) => account.check_waiting(fit, max, count, now_ms),
            None => Ok(()),
        };
        let checked = checked.and_then(|()| match settings.submit_per_s {
            Some(_) => account
                .check_rate(rate, burst, as_number(count), now_ms)
                .map_err(|wait_s| too_fast(settings, wait_s)),
            None => Ok(()),
        });
        if checked.is_err() {
            account.refused = account.refused.saturating_add(1);
            return checked;
        }
        if let Some(watched) = &mut account.watched {
            watched.admitted = watched.admitted.saturating_add(count);
        }
        Ok(())
    }

    fn give_back(&self, tenant: &Tenant, count: u64) {
        let mut accounts = self.lock();
        let Some(account) = accounts.by_tenant.get_mut(tenant) else { return };
        account.left = (account.left + as_number(count)).min(account.burst);
        if let Some(watched) = &mut account.watched {
            watched.admitted = watched.admitted.saturating_sub(count);
        }
    }
}

impl Account {
    fn left_at(&self, now_ms: i64, rate: f64) -> f64 {
        let passed_ms = u32::try_from(now_ms.saturating_sub(self.at_ms)).unwrap_or(0);
        self.left + f64::from(passed_ms) / 1_000.0 * rate
    }

    /// Whether it has all that a new one would have.
    fn is_idle(&self, now_ms: i64) -> bool {
        self.left_at(now_ms, self.rate) + ROUNDING >= self.burst
    }

    /// A batch larger than the burst is taken when the burst is whole, and then paid off. The error is when to come back.
    fn check_rate(&mut self, rate: f64, burst: f64, count: f64, now_ms: i64) -> Result<(), u32> {
        // A rate that was not there before begins with its whole burst.
        self.left = if self.rate > 0.0 { self.left_at(now_ms, rate).min(burst) } else { burst };
        (self.at_ms, self.rate, self.burst) = (now_ms, rate, burst);
        let needed = count.min(burst);
        if self.left + ROUNDING >= needed {
            self.left -= count;
            return Ok(());
        }
        Err(seconds((needed - self.left) / rate))
    }

    fn check_waiting(&mut self, fit: Fit, max: u64, count: u64, now_ms: i64) -> Result<(), Problem> {
        let waiting = fit.there;
        let fresh = Watched { at_ms: now_ms, waiting, admitted: 0 };
        let watched = *self.watched.get_or_insert(fresh);
        let watched_ms = now_ms.saturating_sub(watched.at_ms);
        if watched_ms >= WATCHED_MS_MIN {
            self.watched = Some(fresh);
        }
        if fit.room >= count {
            return Ok(());
        }
        let over = waiting.saturating_add(count).saturating_sub(max);
        if over == 0 {
            let detail = format!(
                "{waiting} jobs of the tenant wait, {max} may, and others are on their way; try again"
            );
            return Err(Problem::new(Code::TooManyWaiting, detail).retry_after(WAIT_S_SHORT));
        }
        let done = (watched.waiting + watched.admitted).saturating_sub(waiting);
        let wait_s = if done > 0 && watched_ms >= WATCHED_MS_MIN {
            let per_s = as_number(done) / (as_number(watched_ms.unsigned_abs()) / 1_000.0);
            seconds(as_number(over) / per_s)
        } else {
            WAIT_S_DEFAULT
        };
        let detail =
            format!("{waiting} jobs of the tenant wait, and {max} may; try again when some are done");
        Err(Problem::new(Code::TooManyWaiting, detail).retry_after(wait_s))
    }
}

/// More at once than may ever wait: trying again is no use.
fn never(count: u64, max: u64) -> Problem {
    let detail =
        format!("{count} jobs are more than may ever wait of the tenant, which is {max}; send fewer at once");
    Problem::new(Code::BatchOverLimit, detail)
}

fn too_fast(settings: &TenantSettings, wait_s: u32) -> Problem {
    let [rate, burst] = [settings.submit_per_s, settings.burst()].map(Option::unwrap_or_default);
    let detail = format!("the tenant may submit {rate} jobs per second, {burst} at once; try again later");
    Problem::new(Code::RateLimited, detail).retry_after(wait_s)
}

/// Whole seconds, at least one: whoever comes back after them comes late enough.
fn seconds(wait_s: f64) -> u32 {
    let (mut enough, mut too_few) = (WAIT_S_MAX, 0);
    while enough - too_few > 1 {
        let middle = too_few.midpoint(enough);
        if f64::from(middle) >= wait_s {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    enough
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
    too_large(settings, payload_bytes).map(|detail| (Code::PayloadTooLarge, "payload", detail))
}

/// Why a payload is too large for the tenant, if it is.
pub(super) fn too_large(settings: &TenantSettings, payload_bytes: usize) -> Option<String> {
    let max = settings.payload_bytes_max?;
    let is_over = u64::try_from(payload_bytes).is_ok_and(|bytes| bytes > u64::from(max));
    is_over.then(|| format!("the payload has {payload_bytes} bytes; the tenant's jobs may have {max}"))
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

    fn wanted(count: u64) -> Wanted {
        Wanted { count, waiting: None, share: 1.0 }
    }

    fn wait_s(answer: Result<(), Problem>) -> Option<u32> {
        answer.err().map(|problem| problem.retry_after_s().unwrap())
    }

    #[test]
    fn a_tenant_submits_its_burst_and_then_at_its_rate() {
        let (admission, acme, settings) = (Admission::default(), tenant("acme"), rated(10, 20));
        let take = |count, now_ms| wait_s(admission.take(&acme, &settings, wanted(count), now_ms));
        assert_eq!(take(20, 0), None);
        assert_eq!(take(1, 0), Some(1));
        assert_eq!(take(10, 1_000), None);
        assert_eq!(take(15, 1_000), Some(2), "1.5 s are rounded up");
        assert_eq!(take(15, 3_000), None, "what was promised holds");
        assert_eq!(wait_s(admission.take(&tenant("other"), &settings, wanted(20), 3_000)), None);
    }

    #[test]
    fn who_waits_as_long_as_told_is_taken() {
        let settings = rated(7, 3);
        for count in 1..40 {
            let (admission, acme) = (Admission::default(), tenant("acme"));
            let take = |now_ms| wait_s(admission.take(&acme, &settings, wanted(count), now_ms));
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
            if admission.take(&acme, &settings, wanted(count), step).is_ok() {
                taken += count;
            }
        }
        assert!((1_000..=1_057).contains(&taken), "{taken} in ten seconds");
    }

    #[test]
    fn a_limit_that_was_changed_holds_at_once() {
        let (admission, acme) = (Admission::default(), tenant("acme"));
        assert!(admission.take(&acme, &rated(1_000, 1_000), wanted(10), 0).is_ok());
        assert!(admission.take(&acme, &rated(1, 1), wanted(1), 0).is_ok());
        assert!(admission.take(&acme, &rated(1, 1), wanted(1), 0).is_err());
    }

    #[test]
    fn a_rate_that_is_set_later_begins_with_its_burst() {
        let (admission, acme) = (Admission::default(), tenant("acme"));
        let capped = TenantSettings { waiting_count_max: Some(10), ..TenantSettings::default() };
        let one = Wanted { waiting: Some((Fit { there: 0, room: 10 }, 10)), ..wanted(1) };
        assert!(admission.take(&acme, &capped, one, 0).is_ok());
        assert!(admission.take(&acme, &rated(1, 5), wanted(5), 0).is_ok());
        assert!(admission.take(&acme, &rated(1, 5), wanted(1), 0).is_err());
    }

    #[test]
    fn what_waits_is_capped_and_what_is_on_its_way_counts() {
        let (admission, acme) = (Admission::default(), tenant("acme"));
        let settings = TenantSettings { waiting_count_max: Some(10), ..TenantSettings::default() };
        let take = |count, there, ahead, now_ms| {
            let fit = Fit { there, room: 10_u64.saturating_sub(there + ahead) };
            let wanted = Wanted { waiting: Some((fit, 10)), ..wanted(count) };
            wait_s(admission.take(&acme, &settings, wanted, now_ms))
        };
        assert_eq!(take(6, 0, 0, 0), None);
        assert_eq!(take(5, 0, 6, 0), Some(WAIT_S_SHORT), "six are on their way");
        assert_eq!(take(5, 6, 0, 500), Some(WAIT_S_DEFAULT));
        // Six were admitted; two seconds later two of them are done: one a second.
        assert_eq!(take(9, 4, 0, 2_000), Some(3));
        assert_eq!(take(6, 4, 0, 5_000), None);
    }

    #[test]
    fn what_was_charged_for_nothing_is_given_back() {
        let (admission, acme, settings) = (Admission::default(), tenant("acme"), rated(1, 3));
        let take = |count| wait_s(admission.take(&acme, &settings, wanted(count), 0));
        assert_eq!(take(3), None);
        assert_eq!(take(1), Some(1));
        admission.give_back(&acme, 1);
        assert_eq!((take(1), take(1)), (None, Some(1)));
        admission.give_back(&acme, 100);
        assert_eq!((take(3), take(1)), (None, Some(1)), "never more than the burst");
    }

    #[test]
    fn only_who_has_its_whole_burst_again_is_forgotten() {
        let (admission, settings) = (Admission::default(), rated(1, 2));
        let take = |name: &str, now_ms| wait_s(admission.take(&tenant(name), &settings, wanted(2), now_ms));
        for n in 0..TENANTS_COUNT_MAX {
            assert_eq!(take(&format!("t{n}"), 0), None);
        }
        assert_eq!(take("one-more", 0), Some(1), "all have less than their burst");
        assert_eq!(take("t0", 0), Some(2), "nobody got a burst anew");
        assert_eq!(take("t0", 1_999), Some(1));
        assert_eq!(take("one-more", 2_000), None, "all have their burst again");
        assert!(admission.lock().by_tenant.len() < 3, "and are forgotten");
        assert_eq!(take("one-more", 2_000), Some(2));
    }

    #[test]
    fn a_part_of_the_rate_is_a_part_of_the_burst_too() {
        let (admission, acme, settings) = (Admission::default(), tenant("acme"), rated(100, 100));
        let take = |count, share, now_ms| {
            wait_s(admission.take(&acme, &settings, Wanted { share, ..wanted(count) }, now_ms))
        };
        assert_eq!(take(25, 0.25, 0), None);
        assert_eq!(take(1, 0.25, 0), Some(1));
        assert_eq!(take(25, 0.25, 1_000), None);
        assert_eq!(take(100, 1.0, 2_000), None, "the others have none of it now");
    }

    #[test]
    fn long_waits_are_told_as_they_are() {
        assert_eq!((seconds(0.0), seconds(0.2), seconds(1.0), seconds(1.01)), (1, 1, 1, 2));
        assert_eq!((seconds(19_999.5), seconds(1e12)), (20_000, WAIT_S_MAX));
    }
}
