//! What an entry takes from its tenant's turn: one each, unless it is learned from how the tenant's entries went. A
//! tenant of whom nothing is known yet costs what is usual in the lane.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Lane;

/// Tenants whose costs are remembered; beyond it all begin at what is usual again.
const TENANTS_LEARNED_COUNT_MAX: usize = 4_096;
/// The mean follows what is new by this part.
const MEAN_DIVISOR: u64 = 8;
/// Means are kept in parts of the unit, or small ones would never move.
const PARTS: u64 = 256;

/// What has been learned. Empty, and without a cost, while every entry counts the same.
#[derive(Debug, Default)]
pub(super) struct Costs {
    by_tenant: FxHashMap<Arc<str>, u64>,
    usual: Option<u64>,
}

impl Costs {
    /// What an entry of the tenant costs, in the unit that was learned; at least 1.
    pub(super) fn of(&self, tenant: &str) -> u32 {
        let Some(usual) = self.usual else { return 1 };
        let parts = self.by_tenant.get(tenant).copied().unwrap_or(usual);
        u32::try_from(parts / PARTS).unwrap_or(u32::MAX).max(1)
    }

    fn learn(&mut self, tenant: &str, cost: u32) {
        let parts = u64::from(cost) * PARTS;
        self.usual = Some(self.usual.map_or(parts, |mean| drawn_to(mean, parts)));
        if let Some(mean) = self.by_tenant.get_mut(tenant) {
            *mean = drawn_to(*mean, parts);
            return;
        }
        if self.by_tenant.len() >= TENANTS_LEARNED_COUNT_MAX {
            self.by_tenant.clear();
        }
        self.by_tenant.insert(Arc::from(tenant), parts);
    }
}

const fn drawn_to(mean: u64, new: u64) -> u64 {
    mean - mean / MEAN_DIVISOR + new / MEAN_DIVISOR
}

impl<T> Lane<T> {
    /// An entry of the tenant turned out to cost that much: what it still has waiting is charged by the mean of what was
    /// learned. Whoever calls this does so for all tenants, in the same unit.
    pub fn learn_cost(&mut self, tenant: &str, cost: u32) {
        self.costs.learn(tenant, cost);
        let cost = self.costs.of(tenant);
        if let Some(waiting) = self.keys.get(tenant).and_then(|key| self.tenants.get_mut(*key)) {
            waiting.cost = cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Priority;
    use crate::lanes::{Entry, LaneConfig};

    fn fill(lane: &mut Lane<u32>, tenant: &str) {
        while lane
            .push(Entry {
                tenant: Arc::from(tenant),
                priority: Priority::Normal,
                ready_at_ms: 0,
                cost: 1,
                alone: false,
                item: 0,
            })
            .is_ok()
        {}
    }

    #[test]
    fn tenants_share_by_what_their_entries_cost() {
        let mut lane = Lane::new(LaneConfig { lot_count_max: 1_000, ..LaneConfig::default() });
        fill(&mut lane, "slow");
        fill(&mut lane, "quick");
        let mut spent = [0_u32; 2];
        for _ in 0..600 {
            let entry = lane.pop(0, |_| true).unwrap();
            let (index, cost) = if &*entry.tenant == "slow" { (0, 40) } else { (1, 10) };
            spent[index] += cost;
            lane.learn_cost(&entry.tenant, cost);
        }
        let [slow, quick] = spent;
        assert!(slow.abs_diff(quick) * 20 <= slow + quick, "{slow} and {quick} should be alike");
        lane.set_weight("slow", 3);
        let mut spent = [0_u32; 2];
        for _ in 0..600 {
            let entry = lane.pop(0, |_| true).unwrap();
            let (index, cost) = if &*entry.tenant == "slow" { (0, 40) } else { (1, 10) };
            spent[index] += cost;
            lane.learn_cost(&entry.tenant, cost);
        }
        let [slow, quick] = spent;
        assert!((3 * quick).abs_diff(slow) * 20 <= 3 * quick + slow, "{slow} and {quick} should be 3 to 1");
    }

    #[test]
    fn what_is_not_known_costs_what_is_usual_and_what_is_remembered_is_bounded() {
        let mut costs = Costs::default();
        assert_eq!(costs.of("a"), 1);
        costs.learn("a", 100);
        assert_eq!((costs.of("a"), costs.of("b")), (100, 100));
        (0..100).for_each(|_| costs.learn("a", 0));
        assert_eq!(costs.of("a"), 1, "never nothing");
        for n in 0..2 * TENANTS_LEARNED_COUNT_MAX {
            costs.learn(&format!("t{n}"), 5);
        }
        assert!(costs.by_tenant.len() <= TENANTS_LEARNED_COUNT_MAX);
    }
}
