//! What one tenant has waiting in a lane: a lot per priority, first in, first out.

use std::{collections::VecDeque, sync::Arc};

use super::{
    Entry,
    aging::Aging,
    per_priority::PerPriority,
    shares::{Shares, Standing},
};
use crate::job::Priority;

#[derive(Debug)]
pub(super) struct Tenant<T> {
    pub(super) name: Arc<str>,
    pub(super) weight: u32,
    /// What one of its entries is charged, times what the entry says.
    pub(super) cost: u32,
    pub(super) lots: PerPriority<Lot<T>>,
    pub(super) shares: Shares,
}

#[derive(Debug)]
pub(super) struct Lot<T> {
    pub(super) entries: VecDeque<Entry<T>>,
    /// Those that must run alone.
    pub(super) alone: VecDeque<Entry<T>>,
}

/// Where the entry is that a tenant runs next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// The priority whose share it uses.
    pub(super) class: Priority,
    /// Its lot.
    pub(super) priority: Priority,
    /// How many are before it there.
    pub(super) index: usize,
    ready_at_ms: i64,
}

impl<T> Tenant<T> {
    pub(super) fn new(name: Arc<str>, weight: u32, cost: u32) -> Self {
        let lots = PerPriority::from_fn(|_| Lot { entries: VecDeque::new(), alone: VecDeque::new() });
        Self { name, weight, cost, lots, shares: Shares::default() }
    }

    /// What an entry takes from its turn.
    pub(super) fn charge(&self, entry: &Entry<T>) -> u64 {
        u64::from(entry.cost.max(1)) * u64::from(self.cost)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.lots.iter().all(|lot| lot.len() == 0)
    }

    /// The priority of all that waits and need not run alone, if it is one.
    fn only_lot(&self) -> Option<Priority> {
        let mut waiting =
            Priority::ALL.into_iter().filter(|priority| !self.lots[*priority].entries.is_empty());
        waiting.next().filter(|_| waiting.next().is_none())
    }

    /// The entry to serve when the tenant has its turn, without taking it: of the priority whose share is due, the longest
    /// waiting that matches. A lot counts as the priority of its head, raised by the head's age.
    pub(super) fn next(
        &mut self,
        aging: Aging,
        now_ms: i64,
        mut matches: impl FnMut(&Entry<T>) -> bool,
    ) -> Option<Found> {
        if let Some(priority) = self.only_lot() {
            // As most tenants have most of the time: there is nothing to be shared.
            let entries = &self.lots[priority].entries;
            let class = aging.class(priority, entries.front()?.ready_at_ms, now_ms);
            self.shares.only(class);
            let (index, entry) = entries.iter().enumerate().find(|(_, entry)| matches(entry))?;
            return Some(Found { class, priority, index, ready_at_ms: entry.ready_at_ms });
        }
        let classes = PerPriority::from_fn(|priority| {
            let head = self.lots[priority].entries.front()?;
            Some(aging.class(priority, head.ready_at_ms, now_ms))
        });
        let mut standing = PerPriority::from_fn(|_| Standing::Idle);
        classes.iter().flatten().for_each(|class| standing[*class] = Standing::Ready);
        // Most entries match, and those of a priority whose share is not due need not be looked at.
        loop {
            let class = self.shares.next(|class| standing[class])?;
            let mut first: Option<Found> = None;
            for priority in Priority::ALL.into_iter().filter(|priority| classes[*priority] == Some(class)) {
                let mut entries = self.lots[priority].entries.iter().enumerate();
                if let Some((index, entry)) = entries.find(|(_, entry)| matches(entry))
                    && first.is_none_or(|first| entry.ready_at_ms < first.ready_at_ms)
                {
                    first = Some(Found { class, priority, index, ready_at_ms: entry.ready_at_ms });
                }
            }
            if first.is_some() {
                return first;
            }
            standing[class] = Standing::Barred;
        }
    }
}

impl<T> Lot<T> {
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.alone.len()
    }

    /// Those that must run alone, or the others.
    pub(super) const fn of_its_kind(&mut self, alone: bool) -> &mut VecDeque<Entry<T>> {
        if alone { &mut self.alone } else { &mut self.entries }
    }

    /// Since when the longer waiting of its two heads has been ready.
    pub(super) fn oldest_ready_at(&self) -> Option<i64> {
        let heads = [self.entries.front(), self.alone.front()];
        heads.into_iter().flatten().map(|head| head.ready_at_ms).min()
    }

    /// Moves the entries that match to the end of `removed`; the others stay in order.
    pub(super) fn extract(&mut self, mut matches: impl FnMut(&T) -> bool, removed: &mut Vec<Entry<T>>) {
        for entries in [&mut self.entries, &mut self.alone] {
            for _ in 0..entries.len() {
                let Some(entry) = entries.pop_front() else { break };
                if matches(&entry.item) {
                    removed.push(entry);
                } else {
                    entries.push_back(entry);
                }
            }
        }
    }
}
