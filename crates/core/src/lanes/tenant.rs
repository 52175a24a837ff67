//! What one tenant has waiting in a lane: a lot per priority, first in, first out.

use std::{collections::VecDeque, sync::Arc};

use super::{Entry, per_priority::PerPriority};
use crate::job::Priority;

#[derive(Debug)]
pub(super) struct Tenant<T> {
    pub(super) name: Arc<str>,
    pub(super) weight: u32,
    /// What one of its entries is charged, times what the entry says.
    pub(super) cost: u32,
    pub(super) lots: PerPriority<Lot<T>>,
}

#[derive(Debug)]
pub(super) struct Lot<T> {
    pub(super) entries: VecDeque<Entry<T>>,
    /// The priority whose share this lot competes for: that of its head, counting its age. Absent when empty.
    pub(super) class: Option<Priority>,
}

impl<T> Tenant<T> {
    pub(super) fn new(name: Arc<str>, weight: u32, cost: u32) -> Self {
        let lots = PerPriority::from_fn(|_| Lot { entries: VecDeque::new(), class: None });
        Self { name, weight, cost, lots }
    }

    /// What an entry takes from its turn.
    pub(super) fn charge(&self, entry: &Entry<T>) -> u64 {
        u64::from(entry.cost.max(1)) * u64::from(self.cost)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.lots.iter().all(|lot| lot.entries.is_empty())
    }

    pub(super) fn competes_in(&self, class: Priority) -> bool {
        self.lots.iter().any(|lot| lot.class == Some(class))
    }

    /// The entry to serve when the tenant has its turn in `class`: the longest waiting of the heads that compete there.
    pub(super) fn head_in(&self, class: Priority) -> Option<&Entry<T>> {
        let heads =
            self.lots.iter().filter(|lot| lot.class == Some(class)).filter_map(|lot| lot.entries.front());
        heads.min_by_key(|head| head.ready_at_ms)
    }
}

impl<T> Lot<T> {
    /// Moves the entries that match to the end of `removed`; the others stay in order.
    pub(super) fn extract(&mut self, mut matches: impl FnMut(&T) -> bool, removed: &mut Vec<Entry<T>>) {
        for _ in 0..self.entries.len() {
            let Some(entry) = self.entries.pop_front() else { return };
            if matches(&entry.item) {
                removed.push(entry);
            } else {
                self.entries.push_back(entry);
            }
        }
    }
}
