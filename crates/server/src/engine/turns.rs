//! Whose turn it is to be read: tenants are served by what they have had for their weight, least first. It is deficit
//! round robin made smooth: what a turn brought is charged afterwards, by how much it was, so that a tenant of three
//! times the weight is read three times as much, and never three times in a row while another waits.
//!
//! Who was idle joins where the others are: idleness earns no credit.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::names::Tenant;

/// What one job costs a tenant of weight 1.
const JOB_COST: u64 = 1 << 20;
/// Tenants that are remembered for what they have had. Beyond it the half that has had less is forgotten, and joins where
/// that half ends.
const HAD_COUNT_MAX: usize = 4_096;

/// Things that wait for a turn, each for a tenant.
#[derive(Debug)]
pub(super) struct Turns<T> {
    /// By what their tenants have had, then in the order they came.
    waiting: BTreeMap<(u64, u64), T>,
    number: u64,
    /// What whoever was last served had had.
    clock: u64,
    /// By tenant, what it has had; only if that is more than the clock says.
    had: FxHashMap<Tenant, u64>,
    weights: FxHashMap<Arc<str>, u32>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            number: 0,
            clock: 0,
            had: FxHashMap::default(),
            weights: FxHashMap::default(),
        }
    }
}

impl<T> Turns<T> {
    /// Goes by these weights from now on, and by 1 for everybody else.
    pub(super) fn set_weights<'a>(&mut self, weights: impl Iterator<Item = (&'a Arc<str>, u32)>) {
        self.weights = weights.map(|(tenant, weight)| (Arc::clone(tenant), weight)).collect();
    }

    pub(super) fn push(&mut self, tenant: &Tenant, item: T) {
        let had = self.had.get(tenant).copied().unwrap_or(0).max(self.clock);
        self.number += 1;
        self.waiting.insert((had, self.number), item);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let ((had, _), item) = self.waiting.pop_first()?;
        self.clock = self.clock.max(had);
        Some(item)
    }

    /// The tenant's turn brought so many jobs.
    pub(super) fn charge(&mut self, tenant: &Tenant, jobs: usize) {
        let weight = self.weights.get(tenant.as_str()).copied().unwrap_or(1).max(1);
        let cost =
            u64::try_from(jobs.max(1)).unwrap_or(u64::MAX).saturating_mul(JOB_COST) / u64::from(weight);
        let had = self.had.get(tenant).copied().unwrap_or(0).max(self.clock).saturating_add(cost);
        self.had.insert(tenant.clone(), had);
        if self.had.len() > HAD_COUNT_MAX {
            let mut all: Vec<u64> = self.had.values().copied().collect();
            let (_, middle, _) = all.select_nth_unstable(HAD_COUNT_MAX / 2);
            self.clock = self.clock.max(*middle);
            let clock = self.clock;
            self.had.retain(|_, had| *had > clock);
        }
    }

    pub(super) fn retain(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        self.waiting.retain(|_, item| wanted(item));
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    /// Who is served, when everybody who was comes back at once and each turn brings so many jobs.
    fn serve(turns: &mut Turns<Tenant>, count: usize, jobs: impl Fn(&Tenant) -> usize) -> Vec<Tenant> {
        let mut served = Vec::new();
        for _ in 0..count {
            let next = turns.pop().unwrap();
            turns.charge(&next, jobs(&next));
            turns.push(&next, next.clone());
            served.push(next);
        }
        served
    }

    fn share(served: &[Tenant], name: &str) -> usize {
        served.iter().filter(|tenant| tenant.as_str() == name).count()
    }

    #[test]
    fn turns_are_shared_by_weight_and_never_long_in_a_row() {
        let mut turns = Turns::default();
        let three: Arc<str> = Arc::from("three");
        turns.set_weights([(&three, 3)].into_iter());
        for name in ["one", "three"] {
            turns.push(&tenant(name), tenant(name));
        }
        let served = serve(&mut turns, 400, |_| 100);
        assert!((295..=305).contains(&share(&served, "three")), "{}", share(&served, "three"));
        let alone = served.windows(5).filter(|five| share(five, "one") == 0).count();
        assert_eq!(alone, 0, "about one of four, all along");
    }

    #[test]
    fn what_counts_is_how_much_a_turn_brought() {
        let mut turns = Turns::default();
        for name in ["little", "much"] {
            turns.push(&tenant(name), tenant(name));
        }
        let served = serve(&mut turns, 1_100, |it| if it.as_str() == "much" { 1_000 } else { 100 });
        assert!((990..=1_010).contains(&share(&served, "little")), "{}", share(&served, "little"));
    }

    #[test]
    fn who_comes_late_is_next_and_has_no_credit() {
        let mut turns = Turns::default();
        turns.push(&tenant("flood"), tenant("flood"));
        serve(&mut turns, 1_000, |_| 2_048);
        turns.push(&tenant("late"), tenant("late"));
        let served = serve(&mut turns, 20, |_| 2_048);
        assert!(served[..2].contains(&tenant("late")), "{served:?}");
        assert!((9..=11).contains(&share(&served, "late")), "{served:?}");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut turns = Turns::default();
        turns.charge(&tenant("much"), 1_000);
        for n in 0..20 * HAD_COUNT_MAX {
            let name = tenant(&format!("t{n}"));
            turns.push(&name, name.clone());
            let next = turns.pop().unwrap();
            turns.charge(&next, n % 7);
        }
        assert!(turns.had.len() <= HAD_COUNT_MAX + 1, "{}", turns.had.len());
    }
}
