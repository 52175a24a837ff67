//! Serving those who do not run everything: entries that do not match are passed over and keep their place.

use super::{Claim, Entry, Lane, PerPriority, Standing, tenant::Tenant};
use crate::job::Priority;

impl<T> Lane<T> {
    /// Takes the entry to run next among those for which `matches` holds, of tenants for which `eligible` does. An
    /// entry behind others counts as urgent as the head of its lot.
    ///
    /// Linear in the entries passed over.
    pub fn pop_matching(
        &mut self,
        now_ms: i64,
        mut eligible: impl FnMut(&str) -> bool,
        mut matches: impl FnMut(&Entry<T>) -> bool,
    ) -> Option<Entry<T>> {
        self.now_ms = now_ms;
        self.raise_aged();
        let quantum = u64::from(self.config.quantum.max(1));
        let mut barred = PerPriority::<bool>::default();
        loop {
            let class =
                self.shares.next(|class| match (self.rotations[class].is_empty(), barred[class]) {
                    (true, _) => Standing::Idle,
                    (false, true) => Standing::Barred,
                    (false, false) => Standing::Ready,
                })?;
            let mut found = None;
            let served = self.rotations[class].next(|key| {
                let tenant = self.tenants.get(key).filter(|tenant| eligible(&tenant.name))?;
                let (priority, index) = tenant.first_in(class, &mut matches)?;
                found = Some((priority, index));
                let cost = tenant.charge(tenant.lots[priority].entries.get(index)?);
                Some(Claim { cost, quantum: quantum * u64::from(tenant.weight) })
            });
            if let Some(key) = served {
                self.shares.served(class);
                let (priority, index) = found?;
                let entry = self.tenants.get_mut(key)?.lots[priority].entries.remove(index)?;
                self.depths[priority] -= 1;
                if index == 0 {
                    self.settle(key, priority);
                }
                self.forget_if_idle(key);
                return Some(entry);
            }
            barred[class] = true;
        }
    }

    /// Puts an entry that was just taken back before its tenant's others, whatever the bound of its lot.
    pub fn put_back(&mut self, entry: Entry<T>) {
        let key = match self.keys.get(&entry.tenant) {
            Some(key) => *key,
            None => self.admit(&entry.tenant),
        };
        let priority = entry.priority;
        if let Some(tenant) = self.tenants.get_mut(key) {
            tenant.lots[priority].entries.push_front(entry);
            self.depths[priority] += 1;
            self.settle(key, priority);
        }
    }
}

impl<T> Tenant<T> {
    /// Where the longest waiting entry is that matches, among the lots that compete in `class`.
    fn first_in(
        &self,
        class: Priority,
        matches: &mut impl FnMut(&Entry<T>) -> bool,
    ) -> Option<(Priority, usize)> {
        let mut first: Option<(i64, Priority, usize)> = None;
        for priority in Priority::ALL {
            let lot = &self.lots[priority];
            if lot.class != Some(class) {
                continue;
            }
            if let Some((index, entry)) = lot.entries.iter().enumerate().find(|(_, entry)| matches(entry))
                && first.is_none_or(|(ready_at_ms, _, _)| entry.ready_at_ms < ready_at_ms)
            {
                first = Some((entry.ready_at_ms, priority, index));
            }
        }
        first.map(|(_, priority, index)| (priority, index))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::job::Priority;
    use crate::lanes::{Entry, Lane, LaneConfig};

    fn lane(entries: &[(&str, Priority, u32)]) -> Lane<u32> {
        let mut lane = Lane::new(LaneConfig::default());
        for (tenant, priority, item) in entries {
            let entry = Entry {
                tenant: Arc::from(*tenant),
                priority: *priority,
                ready_at_ms: 0,
                cost: 1,
                item: *item,
            };
            assert!(lane.push(entry).is_ok());
        }
        lane
    }

    fn even(entry: &Entry<u32>) -> bool {
        entry.item.is_multiple_of(2)
    }

    #[test]
    fn entries_that_do_not_match_keep_their_place() {
        use Priority::{High, Normal};
        let mut lane = lane(&[("a", Normal, 1), ("a", Normal, 2), ("b", High, 3), ("a", Normal, 4)]);
        let popped: Vec<u32> =
            std::iter::from_fn(|| lane.pop_matching(0, |_| true, even)).map(|entry| entry.item).collect();
        assert_eq!(popped, [2, 4]);
        assert_eq!((lane.len(), lane.depth(Normal), lane.depth(High)), (2, 1, 1));
        assert_eq!(lane.pop(0, |_| true).map(|entry| entry.item), Some(3));
        assert_eq!(lane.pop(0, |_| true).map(|entry| entry.item), Some(1));
        assert!(lane.is_empty());
    }

    #[test]
    fn only_eligible_tenants_are_served() {
        let mut lane = lane(&[("a", Priority::Normal, 2), ("b", Priority::Normal, 4)]);
        assert_eq!(lane.pop_matching(0, |tenant| tenant == "b", even).map(|entry| entry.item), Some(4));
        assert!(lane.pop_matching(0, |tenant| tenant == "b", even).is_none());
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut lane = lane(&[("a", Priority::Normal, 1), ("a", Priority::Normal, 2)]);
        let first = lane.pop(0, |_| true).unwrap_or_else(|| unreachable!("two wait"));
        lane.put_back(first);
        assert_eq!(lane.len(), 2);
        assert_eq!(lane.pop(0, |_| true).map(|entry| entry.item), Some(1));
    }
}
