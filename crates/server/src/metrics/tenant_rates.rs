//! What the jobs of each tenant did lately, for those who may see no more than their own. Bounded: tenants for whom nothing
//! happened are forgotten, and of the others a few samples are kept.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::recent::SAMPLE_MS;

/// Tenants that are counted at a time; of others nothing is known.
const TENANTS_COUNT_MAX: usize = 16_384;
/// Samples of one tenant: a minute, and where it began.
const SAMPLES_COUNT_MAX: usize = 13;

/// How many were counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Doings {
    pub(crate) submitted: u64,
    pub(crate) started: u64,
    pub(crate) succeeded: u64,
    /// Attempts that ended in any other way.
    pub(crate) failed: u64,
}

impl Doings {
    pub(super) const fn ended(&mut self, has_succeeded: bool) {
        if has_succeeded {
            self.succeeded += 1;
        } else {
            self.failed += 1;
        }
    }

    /// Adds attempts that ended.
    pub(super) const fn add_ended(&mut self, more: Self) {
        self.succeeded += more.succeeded;
        self.failed += more.failed;
    }

    const fn since(self, earlier: Self) -> Self {
        Self {
            submitted: self.submitted.saturating_sub(earlier.submitted),
            started: self.started.saturating_sub(earlier.started),
            succeeded: self.succeeded.saturating_sub(earlier.succeeded),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct TenantRates(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_tenant: FxHashMap<Tenant, Counted>,
    sampled_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Counted {
    total: Doings,
    /// Oldest first. The first of all is nothing, at the last time samples were taken.
    samples: VecDeque<(Timestamp, Doings)>,
}

impl TenantRates {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, tenant: &Tenant, add: impl FnOnce(&mut Doings)) {
        let mut table = self.lock();
        if let Some(counted) = table.by_tenant.get_mut(tenant) {
            add(&mut counted.total);
        } else if table.by_tenant.len() < TENANTS_COUNT_MAX {
            let sampled_at = table.sampled_at.unwrap_or(Timestamp::from_ms(0));
            let counted = table.by_tenant.entry(tenant.clone()).or_default();
            counted.samples.push_back((sampled_at, Doings::default()));
            add(&mut counted.total);
        }
    }

    /// Takes samples, if it is time.
    pub(super) fn note(&self, now: Timestamp) {
        let mut table = self.lock();
        // A clock that was set back would have all samples lie ahead.
        let is_back = table.sampled_at.is_some_and(|at| at > now);
        if !is_back && table.sampled_at.is_some_and(|at| now.since_ms(at) < SAMPLE_MS) {
            return;
        }
        table.sampled_at = Some(now);
        table.by_tenant.retain(|_, counted| {
            if is_back {
                counted.samples.clear();
            }
            while counted.samples.len() >= SAMPLES_COUNT_MAX {
                counted.samples.pop_front();
            }
            counted.samples.push_back((now, counted.total));
            let is_still = counted.samples.front().is_some_and(|(_, earlier)| *earlier == counted.total);
            !(is_still && counted.samples.len() >= SAMPLES_COUNT_MAX)
        });
    }

    /// What was counted of a tenant within the window, or since `began`, and over how many milliseconds.
    pub(super) fn within(
        &self,
        tenant: &Tenant,
        (began, now): (Timestamp, Timestamp),
        window_ms: i64,
    ) -> (Doings, i64) {
        let table = self.lock();
        let Some(counted) = table.by_tenant.get(tenant) else { return (Doings::default(), window_ms) };
        let old = counted.samples.iter().rfind(|(at, _)| now.since_ms(*at) >= window_ms);
        let (at, earlier) = old.or(counted.samples.front()).copied().unwrap_or((began, Doings::default()));
        let ms = if earlier == Doings::default() {
            // Whoever is new here did nothing before.
            now.since_ms(began).min(window_ms)
        } else {
            now.since_ms(at)
        };
        (counted.total.since(earlier), ms.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: i64 = 60_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_ms(1_000_000_000 + seconds * 1_000)
    }

    #[test]
    fn each_tenant_is_counted_by_itself_and_forgotten_when_nothing_happens() {
        let rates = TenantRates::default();
        let [acme, other] = ["acme", "other"].map(|name| Tenant::new(name).unwrap());
        let within = |tenant: &Tenant, now: i64| rates.within(tenant, (at(0), at(now)), MINUTE_MS);
        rates.add(&acme, |doings| doings.submitted += 3);
        assert_eq!(
            within(&acme, 2),
            (Doings { submitted: 3, ..Doings::default() }, 2_000),
            "since the start"
        );
        assert_eq!(within(&other, 2).0, Doings::default());
        for second in 5..=70 {
            rates.note(at(second));
        }
        assert_eq!(within(&acme, 70).0, Doings::default(), "longer ago than the window");
        rates.add(&acme, |doings| doings.failed += 1);
        assert_eq!(within(&acme, 71), (Doings { failed: 1, ..Doings::default() }, 60_000));
        rates.add(&other, |doings| doings.started += 2);
        assert_eq!(within(&other, 72), (Doings { started: 2, ..Doings::default() }, 60_000));
        for second in 71..=200 {
            rates.note(at(second));
        }
        assert!(rates.lock().by_tenant.is_empty(), "nothing happened for longer than is looked at");
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_rates_of_the_past() {
        let rates = TenantRates::default();
        let acme = Tenant::new("acme").unwrap();
        rates.note(at(100));
        rates.add(&acme, |doings| doings.submitted += 5);
        rates.note(at(50));
        rates.add(&acme, |doings| doings.submitted += 1);
        let (doings, ms) = rates.within(&acme, (at(0), at(52)), MINUTE_MS);
        assert_eq!((doings.submitted, ms), (1, 2_000));
    }
}
