//! How fast a tenant's work is made up for. What was missed while the server was down, missed occurrences of
//! schedules, backfills and replays all draw from one bucket per tenant, so that together they keep to the
//! tenant's rate; and all tenants together keep to the node's.
//!
//! The node's rate is shared out evenly among the tenants that draw, by how fast their buckets fill: a tenant with
//! a long backlog cannot empty its neighbour's. Time is monotonic.

use std::collections::BTreeMap;

use tidewheel_core::job::{Job, State};
use tidewheel_core::limits::GOVERNED_TENANTS_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::expected_start;

/// Whether a job asks to be started although its time, or its first life, is over: an occurrence that makes up
/// for a missed instant, or a job that has run before and was asked for again. A retry is not one: its policy
/// spaces it.
fn is_asked_for_again(job: &Job) -> bool {
    let is_late = || job.spec.occurrence.as_ref().is_some_and(|occurrence| occurrence.catch_up);
    job.status.state == State::Scheduled && (job.status.attempt > 0 || is_late())
}

/// Which jobs are made up for, and so governed.
#[derive(Debug, Clone, Copy)]
pub(super) struct MadeUp {
    /// Jobs due before this instant were missed while the server was down.
    pub(super) missed_before: Timestamp,
}

impl MadeUp {
    /// Whether a job is one of them wherever it is met, not only when it is read after a start.
    pub(super) fn is_marked(job: &Job) -> bool {
        is_asked_for_again(job)
    }

    /// Whether a job is one of them. One that was submitted since, for a time long past, was not missed.
    pub(super) fn has(self, job: &Job) -> bool {
        expected_start(job) < self.missed_before || is_asked_for_again(job)
    }
}

/// Millionths of a job, so that a small share of a small rate is still a number.
const SCALE: i64 = 1_000_000;
/// A bucket holds this part of a second's worth.
const BURST_DIVISOR: i64 = 10;

/// What may be started now.
#[derive(Debug)]
pub(super) struct Bucket {
    tokens: i64,
    filled_ms: i64,
}

/// What a bucket is filled by, and how far: so that no second, wherever it begins, sees more than the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    /// Millionths of a job per millisecond.
    per_ms: i64,
    burst: i64,
}

impl Rate {
    pub(super) fn per_second(count: u32) -> Self {
        let count = i64::from(count.max(1));
        let burst = (count / BURST_DIVISOR).max(1);
        // A second may begin with a full bucket.
        Self { per_ms: (count + 1 - burst) * (SCALE / 1_000), burst: burst * SCALE }
    }
}

impl Bucket {
    pub(super) fn full(rate: Rate, monotonic_ms: i64) -> Self {
        Self { tokens: rate.burst, filled_ms: monotonic_ms }
    }

    pub(super) fn fill(&mut self, rate: Rate, monotonic_ms: i64) {
        let passed_ms = monotonic_ms.saturating_sub(self.filled_ms).max(0);
        self.filled_ms = self.filled_ms.max(monotonic_ms);
        self.tokens = self.tokens.saturating_add(passed_ms.saturating_mul(rate.per_ms)).min(rate.burst);
    }

    pub(super) fn whole(&self) -> usize {
        usize::try_from(self.tokens / SCALE).unwrap_or(0)
    }

    /// Takes one out.
    pub(super) fn draw(&mut self) {
        self.take(1);
    }

    /// Takes out so many.
    pub(super) fn take(&mut self, count: usize) {
        self.tokens -= i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(SCALE);
    }

    /// How long until there is a whole one.
    pub(super) fn whole_in_ms(&self, rate: Rate) -> i64 {
        let missing = (SCALE - self.tokens).max(0);
        missing.saturating_add(rate.per_ms - 1) / rate.per_ms.max(1)
    }

    /// When it holds one again, if it does not.
    pub(super) fn next_ms(&self, rate: Rate) -> Option<i64> {
        let wait_ms = self.whole_in_ms(rate);
        (wait_ms > 0).then(|| self.filled_ms.saturating_add(wait_ms))
    }

    pub(super) const fn is_full(&self, rate: Rate) -> bool {
        self.tokens >= rate.burst
    }
}

/// The buckets of all tenants that draw, and the node's.
#[derive(Debug)]
pub(super) struct Governor {
    node_rate: Rate,
    tenant_rate: Rate,
    node: Bucket,
    tenants: BTreeMap<Tenant, Bucket>,
    /// Of tenants that other nodes serve, too: how many of how many shards are served here.
    parts: BTreeMap<Tenant, (usize, usize)>,
}

impl Governor {
    pub(super) fn new(node_per_second: u32, tenant_per_second: u32, monotonic_ms: i64) -> Self {
        let node_rate = Rate::per_second(node_per_second);
        Self {
            node_rate,
            tenant_rate: Rate::per_second(tenant_per_second),
            node: Bucket::full(node_rate, monotonic_ms),
            tenants: BTreeMap::new(),
            parts: BTreeMap::new(),
        }
    }

    /// Gives these tenants the part of their rate that belongs to so many of so many shards, and all others the whole.
    pub(super) fn set_parts(&mut self, parts: BTreeMap<Tenant, (usize, usize)>) {
        self.parts = parts;
    }

    /// How many jobs of `tenant` may be started now.
    pub(super) fn allowance(&mut self, tenant: &Tenant, monotonic_ms: i64) -> usize {
        let rate = part(self.shared_rate(), self.parts.get(tenant));
        self.node.fill(self.node_rate, monotonic_ms);
        if let Some(bucket) = self.tenants.get_mut(tenant) {
            bucket.fill(rate, monotonic_ms);
            return bucket.whole().min(self.node.whole());
        }
        if self.tenants.len() >= GOVERNED_TENANTS_COUNT_MAX {
            // It waits until others have been made up for.
            return 0;
        }
        let bucket = Bucket::full(rate, monotonic_ms);
        let allowance = bucket.whole().min(self.node.whole());
        self.tenants.insert(tenant.clone(), bucket);
        allowance
    }

    /// Starts one job of `tenant`, if it may be started now.
    pub(super) fn draw(&mut self, tenant: &Tenant, monotonic_ms: i64) -> bool {
        let may = self.allowance(tenant, monotonic_ms) > 0;
        if may && let Some(bucket) = self.tenants.get_mut(tenant) {
            bucket.draw();
            self.node.draw();
        }
        may
    }

    /// A job that drew was not started after all.
    pub(super) fn give_back(&mut self, tenant: &Tenant) {
        if let Some(bucket) = self.tenants.get_mut(tenant) {
            bucket.tokens = bucket.tokens.saturating_add(SCALE).min(self.tenant_rate.burst);
            self.node.tokens = self.node.tokens.saturating_add(SCALE).min(self.node_rate.burst);
        }
    }

    /// Forgets the tenants that have not drawn lately: a full bucket is what they would begin with.
    pub(super) fn forget_idle(&mut self, monotonic_ms: i64) {
        let shared = self.shared_rate();
        let Self { tenants, parts, .. } = self;
        tenants.retain(|tenant, bucket| {
            let rate = part(shared, parts.get(tenant));
            bucket.fill(rate, monotonic_ms);
            bucket.tokens < rate.burst
        });
    }

    /// A tenant's rate, or an even share of the node's if that is less.
    fn shared_rate(&self) -> Rate {
        let tenants = i64::try_from(self.tenants.len().max(1)).unwrap_or(i64::MAX);
        Rate {
            per_ms: self.tenant_rate.per_ms.min(self.node_rate.per_ms / tenants).max(1),
            ..self.tenant_rate
        }
    }
}

/// What is this node's of a tenant's rate, if it serves so many of so many shards.
fn part(rate: Rate, of: Option<&(usize, usize)>) -> Rate {
    let Some((held, all)) = of else { return rate };
    let [held, all] = [*held, *all].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    let part = |whole: i64| whole.saturating_mul(held) / all.max(1);
    Rate { per_ms: part(rate.per_ms).max(1), burst: part(rate.burst).max(SCALE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    /// Draws as often as it may, every millisecond, and says when.
    fn greedy(
        governor: &mut Governor,
        names: &[&str],
        ms: std::ops::Range<i64>,
    ) -> BTreeMap<Tenant, Vec<i64>> {
        let mut drawn: BTreeMap<Tenant, Vec<i64>> = BTreeMap::new();
        for at in ms {
            for name in names {
                while governor.draw(&tenant(name), at) {
                    drawn.entry(tenant(name)).or_default().push(at);
                }
            }
            if at % 1_000 == 0 {
                governor.forget_idle(at);
            }
        }
        drawn
    }

    fn most_in_a_second(drawn: &[i64]) -> usize {
        let in_the_second_from =
            |from: i64| drawn.iter().filter(|at| (from..from + 1_000).contains(at)).count();
        drawn.iter().map(|from| in_the_second_from(*from)).max().unwrap_or(0)
    }

    #[test]
    fn no_second_sees_more_than_the_rate_whatever_it_is() {
        for rate in [1, 2, 9, 10, 11, 100, 1_000] {
            let mut governor = Governor::new(1_000_000, rate, 0);
            let drawn = greedy(&mut governor, &["a"], 0..5_000);
            let (most, all) = (most_in_a_second(&drawn[&tenant("a")]), drawn[&tenant("a")].len());
            let rate = usize::try_from(rate).unwrap();
            assert!(most <= rate, "{most} in a second at {rate}");
            assert!(all >= rate * 5 * 9 / 10, "{all} in five seconds at {rate}");
        }
    }

    #[test]
    fn tenants_share_the_node_evenly_and_together_keep_to_its_rate() {
        let mut governor = Governor::new(100, 1_000, 0);
        let names = ["a", "b", "c", "d"];
        let drawn = greedy(&mut governor, &names, 0..20_000);
        let mut all: Vec<i64> = drawn.values().flatten().copied().collect();
        all.sort_unstable();
        assert!(most_in_a_second(&all) <= 100);
        for name in names {
            let later = drawn[&tenant(name)].iter().filter(|at| **at >= 10_000).count();
            assert!((200..=260).contains(&later), "{name} got {later} of about 230 in ten seconds");
        }
    }

    #[test]
    fn a_tenant_that_others_serve_too_has_its_part() {
        let mut governor = Governor::new(1_000_000, 1_000, 0);
        governor.set_parts(BTreeMap::from([(tenant("spread"), (1, 4))]));
        let drawn = greedy(&mut governor, &["spread", "whole"], 0..5_000);
        let [spread, whole] = ["spread", "whole"].map(|name| drawn[&tenant(name)].len());
        assert!((1_100..=1_250).contains(&spread), "{spread} of 1,250 in five seconds");
        assert!(whole >= 4_500, "{whole} of 5,000 in five seconds");
    }

    #[test]
    fn an_idle_tenant_is_forgotten_and_begins_no_better_off() {
        let mut governor = Governor::new(1_000, 100, 0);
        let drawn = greedy(&mut governor, &["a"], 0..1_000);
        assert!(drawn[&tenant("a")].len() <= 100);
        governor.forget_idle(1_010);
        assert_eq!(governor.tenants.len(), 1, "its bucket is not full yet");
        governor.forget_idle(2_000);
        assert!(governor.tenants.is_empty());
        assert_eq!(governor.allowance(&tenant("a"), 2_000), 10);
    }

    #[test]
    fn more_tenants_than_it_keeps_wait_for_the_others() {
        let mut governor = Governor::new(1_000_000, 1, 0);
        for index in 0..GOVERNED_TENANTS_COUNT_MAX {
            assert!(governor.draw(&tenant(&format!("t{index}")), 0), "{index}");
        }
        assert!(!governor.draw(&tenant("one-more"), 0));
        governor.forget_idle(2_000);
        assert!(governor.draw(&tenant("one-more"), 2_000));
    }
}
