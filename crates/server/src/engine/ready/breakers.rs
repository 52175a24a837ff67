//! The breakers of all tenants, one for each host a tenant's pushes fail at. Those that have nothing to remember are not
//! kept, and their number is bounded: a tenant can fill up its own share only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewheel_core::breaker::{Answer, Breaker, BreakerConfig, BreakerState, Turn};
use tidewheel_core::id::JobId;
use tidewheel_core::limits::{BREAKER_IDLE_MS, BREAKERS_COUNT_MAX, BREAKERS_TENANT_COUNT_MAX, SECOND_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use crate::engine::target_answers::Heard;

/// How one tenant's breaker for one host stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerView {
    /// Scheme, host and port.
    pub host: Arc<str>,
    /// How it stands.
    pub state: BreakerState,
    /// Since when the target has not been as it should.
    pub since: Timestamp,
    /// Failures in a row, or lately if they opened it.
    pub failures: u32,
    /// What the last failure was.
    pub reason: Arc<str>,
    /// When the next push goes there to see; `None` while it is closed or one is under way.
    pub next_probe_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Kept {
    breaker: Breaker,
    since: Timestamp,
    why: Arc<str>,
    heard_ms: i64,
}

#[derive(Debug)]
struct OfTenant {
    tenant: Tenant,
    hosts: BTreeMap<Arc<str>, Kept>,
}

/// Whether a lane may hold jobs of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// As many as it has room for.
    Any,
    /// One, to be the probe.
    One,
    /// None.
    None,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Breakers {
    config: BreakerConfig,
    tenants: BTreeMap<Arc<str>, OfTenant>,
    count: usize,
    /// When open ones let a probe go: time, tenant, host.
    wakes: BTreeSet<(i64, Arc<str>, Arc<str>)>,
    probes: BTreeMap<JobId, (Arc<str>, Arc<str>)>,
    /// There was no room; it is not looked for again before this.
    full_until_ms: i64,
}

impl Breakers {
    pub(super) fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            tenants: BTreeMap::new(),
            count: 0,
            wakes: BTreeSet::new(),
            probes: BTreeMap::new(),
            full_until_ms: i64::MIN,
        }
    }

    /// How many are kept.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    fn get(&self, tenant: &str, host: &str) -> Option<&Kept> {
        self.tenants.get(tenant)?.hosts.get(host)
    }

    fn get_mut(&mut self, tenant: &str, host: &str) -> Option<&mut Kept> {
        self.tenants.get_mut(tenant)?.hosts.get_mut(host)
    }

    /// Whether another push of the tenant to the host may begin.
    pub(super) fn admits(&self, tenant: &str, host: &str) -> bool {
        self.count == 0 || self.get(tenant, host).is_none_or(|kept| kept.breaker.admits())
    }

    /// How many of the tenant's jobs for the host may wait in memory.
    pub(super) fn room(&self, tenant: &str, host: &str) -> Room {
        if self.count == 0 {
            return Room::Any;
        }
        match self.get(tenant, host).map(|kept| (kept.breaker.state(), kept.breaker.admits())) {
            None | Some((BreakerState::Closed, _)) => Room::Any,
            Some((BreakerState::HalfOpen, true)) => Room::One,
            Some((BreakerState::HalfOpen | BreakerState::Open | BreakerState::Held, _)) => Room::None,
        }
    }

    /// A push begins.
    pub(super) fn began(&mut self, tenant: &Tenant, host: &Arc<str>, id: JobId) {
        if self.count > 0
            && let Some(kept) = self.get_mut(tenant.as_str(), host)
            && kept.breaker.began(id)
        {
            self.probes.insert(id, (tenant.shared(), Arc::clone(host)));
        }
    }

    /// A push ended. If it was a probe of which nothing was heard, says whose, and where: another may go.
    pub(super) fn gave_up(&mut self, id: &JobId) -> Option<(Tenant, Arc<str>)> {
        let (name, host) = self.probes.remove(id)?;
        let of = self.tenants.get_mut(&name)?;
        let kept = of.hosts.get_mut(&host)?;
        kept.breaker.gave_up(id).then(|| (of.tenant.clone(), host))
    }

    /// What came of a push.
    pub(super) fn heard(
        &mut self,
        heard: &Heard,
        host: &Arc<str>,
        now: Timestamp,
        monotonic_ms: i64,
    ) -> Option<Turn> {
        let name = heard.tenant.as_str();
        if self.get(name, host).is_none()
            && (heard.answer == Answer::Fine || !self.keep_new(heard, host, now, monotonic_ms))
        {
            return None;
        }
        self.probes.remove(&heard.id);
        let config = self.config;
        let kept = self.get_mut(name, host)?;
        let before_ms = kept.breaker.open_until_ms();
        let turn = kept.breaker.heard(&config, &heard.id, heard.answer, monotonic_ms);
        kept.heard_ms = monotonic_ms;
        if heard.answer != Answer::Fine {
            kept.why = Arc::from(&*heard.why);
        }
        if matches!(turn, Some(Turn::Opened | Turn::Held)) {
            kept.since = now;
        }
        let (after_ms, is_blank) = (kept.breaker.open_until_ms(), kept.breaker.is_blank());
        if before_ms != after_ms {
            let wake = |at_ms| (at_ms, heard.tenant.shared(), Arc::clone(host));
            before_ms.map(|at_ms| self.wakes.remove(&wake(at_ms)));
            self.wakes.extend(after_ms.map(wake));
        }
        if is_blank {
            self.forget(name, host);
        }
        turn
    }

    fn keep_new(&mut self, heard: &Heard, host: &Arc<str>, now: Timestamp, monotonic_ms: i64) -> bool {
        if self.config.is_off() || !self.make_room(heard.tenant.as_str(), monotonic_ms) {
            return false;
        }
        let kept =
            Kept { breaker: Breaker::default(), since: now, why: Arc::from(""), heard_ms: monotonic_ms };
        let fresh = || OfTenant { tenant: heard.tenant.clone(), hosts: BTreeMap::new() };
        let of = self.tenants.entry(heard.tenant.shared()).or_insert_with(fresh);
        of.hosts.insert(Arc::clone(host), kept);
        self.count += 1;
        true
    }

    /// Makes room for one more of a tenant, by forgetting closed ones.
    fn make_room(&mut self, tenant: &str, monotonic_ms: i64) -> bool {
        let own = |this: &Self| this.tenants.get(tenant).map_or(0, |of| of.hosts.len());
        if own(self) >= BREAKERS_TENANT_COUNT_MAX {
            self.retain(|name, kept| &**name != tenant || kept.breaker.state() != BreakerState::Closed);
        }
        if self.count >= BREAKERS_COUNT_MAX && monotonic_ms >= self.full_until_ms {
            self.retain(|_, kept| kept.breaker.state() != BreakerState::Closed);
            self.full_until_ms = monotonic_ms.saturating_add(SECOND_MS);
        }
        own(self) < BREAKERS_TENANT_COUNT_MAX && self.count < BREAKERS_COUNT_MAX
    }

    fn forget(&mut self, tenant: &str, host: &str) {
        if let Some(of) = self.tenants.get_mut(tenant) {
            self.count -= usize::from(of.hosts.remove(host).is_some());
            if of.hosts.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }

    fn retain(&mut self, wanted: impl Fn(&Arc<str>, &Kept) -> bool) {
        let mut count = 0;
        self.tenants.retain(|name, of| {
            of.hosts.retain(|_, kept| wanted(name, kept));
            count += of.hosts.len();
            !of.hosts.is_empty()
        });
        self.count = count;
    }

    /// Forgets those of tenants for which `wanted` does not hold.
    pub(super) fn keep(&mut self, wanted: impl Fn(&Tenant) -> bool) {
        self.tenants.retain(|_, of| wanted(&of.tenant));
        self.count = self.tenants.values().map(|of| of.hosts.len()).sum();
    }

    /// Forgets those nothing was heard of for long.
    pub(super) fn forget_idle(&mut self, monotonic_ms: i64) {
        let is_idle = |kept: &Kept| {
            let silent_ms = monotonic_ms.saturating_sub(kept.heard_ms);
            silent_ms > BREAKER_IDLE_MS && kept.breaker.admits()
        };
        self.retain(|_, kept| !is_idle(kept));
    }

    /// When the next lets a probe go.
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.wakes.first().map(|(at_ms, _, _)| *at_ms)
    }

    /// One that lets a probe go from now on: whose, and where.
    pub(super) fn cooled(&mut self, monotonic_ms: i64) -> Option<(Tenant, Arc<str>)> {
        loop {
            self.wakes.first().filter(|(at_ms, _, _)| *at_ms <= monotonic_ms)?;
            let (_, tenant, host) = self.wakes.pop_first()?;
            if let Some(of) = self.tenants.get_mut(&tenant)
                && of.hosts.get_mut(&host).is_some_and(|kept| kept.breaker.cool(monotonic_ms))
            {
                return Some((of.tenant.clone(), host));
            }
        }
    }

    /// Those that wait for a probe.
    pub(super) fn unprobed(&self) -> Vec<(Tenant, Arc<str>)> {
        let each =
            self.tenants.values().flat_map(|of| of.hosts.iter().map(move |(host, kept)| (of, host, kept)));
        let waiting = each
            .filter(|(_, _, kept)| kept.breaker.state() == BreakerState::HalfOpen && kept.breaker.admits());
        waiting.map(|(of, host, _)| (of.tenant.clone(), Arc::clone(host))).collect()
    }

    /// How many are in each state.
    pub(super) fn counts(&self) -> [(BreakerState, usize); 4] {
        let mut counts = BreakerState::ALL.map(|state| (state, 0));
        for kept in self.tenants.values().flat_map(|of| of.hosts.values()) {
            let state = kept.breaker.state();
            counts.iter_mut().filter(|(counted, _)| *counted == state).for_each(|(_, count)| *count += 1);
        }
        counts
    }

    /// How a tenant's breaker for a host stands; `None` while nothing speaks against it.
    pub(super) fn view(
        &self,
        tenant: &str,
        host: &str,
        now: Timestamp,
        monotonic_ms: i64,
    ) -> Option<BreakerView> {
        let (host, kept) = self.tenants.get(tenant)?.hosts.get_key_value(host)?;
        Some(kept.view(host, now, monotonic_ms))
    }

    /// All of a tenant, by host.
    pub(super) fn views(&self, tenant: &str, now: Timestamp, monotonic_ms: i64) -> Vec<BreakerView> {
        let hosts = self.tenants.get(tenant).map(|of| &of.hosts);
        let each = hosts.into_iter().flatten();
        each.map(|(host, kept)| kept.view(host, now, monotonic_ms)).collect()
    }
}

impl Kept {
    fn view(&self, host: &Arc<str>, now: Timestamp, monotonic_ms: i64) -> BreakerView {
        let state = self.breaker.state();
        let next_probe_at = match self.breaker.open_until_ms() {
            Some(until_ms) => Some(now.plus_ms(until_ms.saturating_sub(monotonic_ms).max(0))),
            None => Some(now).filter(|_| state == BreakerState::HalfOpen && self.breaker.admits()),
        };
        BreakerView {
            host: Arc::clone(host),
            state,
            since: self.since,
            failures: self.breaker.failures(),
            reason: Arc::clone(&self.why),
            next_probe_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(tenant: &str, number: u128, answer: Answer) -> Heard {
        let id = JobId::new(Timestamp::from_ms(0), number);
        Heard { tenant: Tenant::new(tenant).unwrap(), id, answer, why: "down".into() }
    }

    fn host(number: usize) -> Arc<str> {
        Arc::from(format!("http://h{number}"))
    }

    fn breakers(failures: u32) -> Breakers {
        Breakers::new(BreakerConfig {
            failures,
            cooldown_ms: 100,
            cooldown_ms_max: 1_000,
            ..BreakerConfig::default()
        })
    }

    const NOW: Timestamp = Timestamp::from_ms(1_000_000);

    #[test]
    fn each_pair_of_tenant_and_host_has_its_own() {
        let mut breakers = breakers(1);
        assert_eq!(breakers.heard(&failed("a", 1, Answer::Failed), &host(1), NOW, 0), Some(Turn::Opened));
        assert!(!breakers.admits("a", &host(1)));
        assert!(breakers.admits("a", &host(2)) && breakers.admits("b", &host(1)));
        assert_eq!(breakers.room("a", &host(1)), Room::None);
        let view = breakers.view("a", &host(1), NOW, 40).unwrap();
        assert_eq!((view.state, view.next_probe_at), (BreakerState::Open, Some(NOW.plus_ms(60))));
        assert_eq!((&*view.reason, view.since), ("down", NOW));
        assert_eq!((breakers.next_ms(), breakers.cooled(99)), (Some(100), None));
        assert!(breakers.cooled(100).is_some());
        assert_eq!((breakers.next_ms(), breakers.room("a", &host(1))), (None, Room::One));
    }

    #[test]
    fn one_that_works_again_is_forgotten() {
        let mut breakers = breakers(2);
        breakers.heard(&failed("a", 1, Answer::Failed), &host(1), NOW, 0);
        assert_eq!(breakers.len(), 1);
        breakers.heard(&failed("a", 2, Answer::Fine), &host(1), NOW, 0);
        assert_eq!((breakers.len(), breakers.tenants.len()), (0, 0));
        breakers.heard(&failed("a", 3, Answer::Fine), &host(1), NOW, 0);
        assert_eq!(breakers.len(), 0, "one that works is not remembered");
    }

    #[test]
    fn a_probe_nobody_answers_for_is_given_back_and_idle_ones_are_forgotten() {
        let mut breakers = breakers(1);
        breakers.heard(&failed("a", 1, Answer::Failed), &host(1), NOW, 0);
        breakers.cooled(100).unwrap();
        let probe = JobId::new(Timestamp::from_ms(0), 9);
        breakers.began(&Tenant::new("a").unwrap(), &host(1), probe);
        assert!(!breakers.admits("a", &host(1)) && breakers.unprobed().is_empty());
        assert!(breakers.gave_up(&probe).is_some());
        assert!(breakers.gave_up(&probe).is_none());
        assert_eq!(breakers.unprobed().len(), 1);
        breakers.forget_idle(BREAKER_IDLE_MS);
        assert_eq!(breakers.len(), 1);
        breakers.forget_idle(BREAKER_IDLE_MS + 1_000);
        assert_eq!(breakers.len(), 0);
    }

    #[test]
    fn their_number_is_bounded_for_a_tenant_and_closed_ones_go_first() {
        let mut breakers = breakers(2);
        for n in 0..BREAKERS_TENANT_COUNT_MAX {
            breakers.heard(&failed("a", 1, Answer::Failed), &host(n), NOW, 0);
        }
        breakers.heard(&failed("a", 1, Answer::Failed), &host(0), NOW, 0);
        assert_eq!(breakers.counts()[2], (BreakerState::Open, 1));
        breakers.heard(&failed("a", 1, Answer::Failed), &host(BREAKERS_TENANT_COUNT_MAX), NOW, 0);
        assert_eq!(breakers.len(), 2, "the open one and the new one");
        for n in 1..2 * BREAKERS_TENANT_COUNT_MAX {
            for number in 1..=2 {
                breakers.heard(&failed("a", number, Answer::Wait { ms: 1_000 }), &host(n), NOW, 0);
            }
        }
        assert_eq!(breakers.len(), BREAKERS_TENANT_COUNT_MAX);
        breakers.heard(&failed("b", 1, Answer::Failed), &host(1), NOW, 0);
        assert_eq!(breakers.len(), BREAKERS_TENANT_COUNT_MAX + 1, "another tenant has its own share");
        breakers.keep(|tenant| tenant.as_str() == "b");
        assert_eq!(breakers.len(), 1);
    }
}
