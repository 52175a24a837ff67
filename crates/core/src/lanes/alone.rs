//! Entries that must run with nothing beside them. They wait apart from the others of their lot and count among them, but no
//! turn comes to them: whoever can run one alone asks for it.

use super::rotation::TenantKey;
use super::{Entry, Lane};
use crate::job::Priority;

impl<T> Lane<T> {
    /// How many entries wait that must run alone.
    #[must_use]
    pub const fn alone_len(&self) -> usize {
        self.alone_count
    }

    /// The longest waiting entry that must run alone, of those for which `matches` holds.
    ///
    /// Linear in the tenants waiting and the entries passed over, if there are such entries at all.
    #[must_use]
    pub fn first_alone(&self, matches: impl FnMut(&Entry<T>) -> bool) -> Option<&Entry<T>> {
        let (key, priority, index) = self.find_alone(matches)?;
        self.tenants.get(key)?.lots[priority].alone.get(index)
    }

    /// Takes it.
    pub fn pop_alone(&mut self, matches: impl FnMut(&Entry<T>) -> bool) -> Option<Entry<T>> {
        let (key, priority, index) = self.find_alone(matches)?;
        let entry = self.tenants.get_mut(key)?.lots[priority].alone.remove(index)?;
        self.alone_count -= 1;
        self.depths[priority] -= 1;
        self.forget_if_idle(key);
        Some(entry)
    }

    fn find_alone(&self, mut matches: impl FnMut(&Entry<T>) -> bool) -> Option<(TenantKey, Priority, usize)> {
        if self.alone_count == 0 {
            return None;
        }
        let mut first: Option<(i64, (TenantKey, Priority, usize))> = None;
        for (key, tenant) in &self.tenants {
            for priority in Priority::ALL {
                let mut alone = tenant.lots[priority].alone.iter().enumerate();
                if let Some((index, entry)) = alone.find(|(_, entry)| matches(entry))
                    && first.is_none_or(|(ready_at_ms, _)| entry.ready_at_ms < ready_at_ms)
                {
                    first = Some((entry.ready_at_ms, (key, priority, index)));
                }
            }
        }
        first.map(|(_, place)| place)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::job::Priority::{self, High, Normal};
    use crate::lanes::{Entry, Lane, LaneConfig};

    fn entry(tenant: &str, priority: Priority, ready_at_ms: i64, item: u32) -> Entry<u32> {
        // Those that must run alone are even.
        let alone = item.is_multiple_of(2);
        Entry { tenant: Arc::from(tenant), priority, ready_at_ms, cost: 1, alone, item }
    }

    fn lane() -> Lane<u32> {
        let mut lane = Lane::new(LaneConfig { lot_count_max: 3, ..LaneConfig::default() });
        for entry in [
            entry("a", Normal, 5, 2),
            entry("a", Normal, 6, 1),
            entry("a", Normal, 7, 4),
            entry("b", High, 3, 6),
        ] {
            assert!(lane.push(entry).is_ok());
        }
        lane
    }

    #[test]
    fn no_turn_comes_to_them_but_they_count() {
        let mut lane = lane();
        assert_eq!((lane.len(), lane.alone_len(), lane.depth(Normal), lane.depth(High)), (4, 3, 3, 1));
        assert_eq!(
            (lane.free("a", Normal), lane.waiting_of("a"), lane.oldest_ready_at()),
            (0, Some((3, 5)), Some(3))
        );
        assert!(lane.push(entry("a", Normal, 9, 3)).is_err(), "its lot is full");
        assert_eq!(lane.pop(10, |_| true).map(|entry| entry.item), Some(1));
        assert!(lane.pop(10, |_| true).is_none());
        assert_eq!((lane.len(), lane.is_empty()), (3, false));
    }

    #[test]
    fn the_longest_waiting_that_matches_is_taken() {
        let mut lane = lane();
        assert_eq!(lane.first_alone(|_| true).map(|entry| entry.item), Some(6));
        assert_eq!(lane.first_alone(|entry| entry.item == 4).map(|entry| entry.item), Some(4));
        let first = lane.pop_alone(|entry| &*entry.tenant == "a").unwrap_or_else(|| unreachable!("two wait"));
        assert_eq!(first.item, 2);
        lane.put_back(first);
        assert_eq!(lane.alone_len(), 3);
        let popped = std::iter::from_fn(|| lane.pop_alone(|_| true));
        assert_eq!(popped.map(|entry| entry.item).collect::<Vec<_>>(), [6, 2, 4]);
        assert_eq!((lane.alone_len(), lane.len(), lane.has("b")), (0, 1, false));
    }

    #[test]
    fn they_are_removed_with_the_others() {
        let mut lane = lane();
        let removed = lane.remove("a", |item| *item != 4);
        assert_eq!(removed.iter().map(|entry| entry.item).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((lane.alone_len(), lane.len()), (2, 2));
    }
}
