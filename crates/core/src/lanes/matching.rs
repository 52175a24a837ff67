//! Serving those who do not run everything: entries that do not match are passed over and keep their place.

use super::{Aging, Claim, Entry, Lane};

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
        let aging = Aging { step_ms: self.config.aging_ms };
        let quantum = u64::from(self.config.quantum.max(1));
        // The last one asked is the one served.
        let mut last = None;
        let key = self.rotation.next(|key| {
            let tenant = self.tenants.get_mut(key).filter(|tenant| eligible(&tenant.name))?;
            let found = tenant.next(aging, now_ms, &mut matches)?;
            last = Some(found);
            let cost = tenant.charge(tenant.lots[found.priority].entries.get(found.index)?);
            Some(Claim { cost, quantum: quantum * u64::from(tenant.weight) })
        })?;
        let found = last?;
        let tenant = self.tenants.get_mut(key)?;
        tenant.shares.served(found.class);
        let entry = tenant.lots[found.priority].entries.remove(found.index)?;
        self.depths[found.priority] -= 1;
        self.forget_if_idle(key);
        Some(entry)
    }

    /// Puts an entry that was just taken back before its tenant's others, whatever the bound of its lot.
    pub fn put_back(&mut self, entry: Entry<T>) {
        let key = match self.keys.get(&entry.tenant) {
            Some(key) => *key,
            None => self.admit(&entry.tenant),
        };
        let (priority, alone) = (entry.priority, entry.alone);
        if let Some(tenant) = self.tenants.get_mut(key) {
            tenant.lots[priority].of_its_kind(alone).push_front(entry);
            self.depths[priority] += 1;
            self.alone_count += usize::from(alone);
        }
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
                alone: false,
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
