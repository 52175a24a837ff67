//! Ready lanes: what may run now, and in which order.
//!
//! A [`Lane`] belongs to one destination. It decides in two steps: `rotation` picks a tenant (deficit round robin by
//! weight), then that tenant's `shares` pick a priority (8 : 4 : 2 : 1 while all are busy). In this order, because a
//! tenant says itself how urgent its entries are: that orders its own, and takes nothing from others. A tenant's entries
//! of one priority form a lot, bounded and first in, first out. Waiting raises the head of a lot to higher priorities
//! (`aging`). Entries that must run with nothing beside them wait apart, and are asked for by themselves (`alone`).
//!
//! Pure: the time and who may be served are arguments, and the same calls give the same order.

mod aging;
mod alone;
mod costs;
mod matching;
mod per_priority;
mod rotation;
mod shares;
mod tenant;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use slab::Slab;

use self::{
    aging::Aging,
    costs::Costs,
    per_priority::PerPriority,
    rotation::{Claim, Rotation, TenantKey},
    tenant::{Lot, Tenant},
};
use crate::job::Priority;

/// The bounds and pace of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneConfig {
    /// How many entries one tenant may have waiting in one priority.
    pub lot_count_max: usize,
    /// How long an entry waits before it counts as one priority higher; again for each further level. Below 1, never.
    pub aging_ms: i64,
    /// What a turn of a tenant of weight 1 is worth, in the unit of [`Entry::cost`]. Zero counts as 1.
    pub quantum: u32,
}

impl LaneConfig {
    /// Default of [`LaneConfig::lot_count_max`].
    pub const LOT_COUNT_MAX: usize = 1_000;
    /// Default of [`LaneConfig::aging_ms`].
    pub const AGING_MS: i64 = 30_000;
    /// Default of [`LaneConfig::quantum`].
    pub const QUANTUM: u32 = 1;
}

impl Default for LaneConfig {
    fn default() -> Self {
        Self { lot_count_max: Self::LOT_COUNT_MAX, aging_ms: Self::AGING_MS, quantum: Self::QUANTUM }
    }
}

/// Something ready to run, and what is needed to order it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<T> {
    /// Whose it is.
    pub tenant: Arc<str>,
    /// How urgent it was declared to be.
    pub priority: Priority,
    /// Since when it could have run.
    pub ready_at_ms: i64,
    /// What it takes from its tenant's turn; 1 is usual, zero counts as 1.
    pub cost: u32,
    /// It must run with nothing beside it: only [`Lane::pop_alone`] takes it.
    pub alone: bool,
    /// The work itself.
    pub item: T,
}

/// The ready entries of one destination.
#[derive(Debug)]
pub struct Lane<T> {
    config: LaneConfig,
    /// Only tenants with something waiting.
    tenants: Slab<Tenant<T>>,
    keys: FxHashMap<Arc<str>, TenantKey>,
    /// Only weights other than the default; they outlive the tenant's record above.
    weights: FxHashMap<Arc<str>, u32>,
    costs: Costs,
    /// Exactly the tenants with something waiting.
    rotation: Rotation,
    depths: PerPriority<usize>,
    /// How many of them must run alone.
    alone_count: usize,
}

const DEFAULT_WEIGHT: u32 = 1;

/// The number of tenants whose bookkeeping an empty lane keeps allocated.
const TENANTS_KEPT: usize = 64;

impl<T> Lane<T> {
    /// An empty lane.
    #[must_use]
    pub fn new(config: LaneConfig) -> Self {
        Self {
            config,
            tenants: Slab::new(),
            keys: FxHashMap::default(),
            weights: FxHashMap::default(),
            costs: Costs::default(),
            rotation: Rotation::default(),
            depths: PerPriority::default(),
            alone_count: 0,
        }
    }

    /// Adds an entry behind its tenant's others of the same priority.
    ///
    /// # Errors
    /// Gives the entry back when that lot is full.
    pub fn push(&mut self, entry: Entry<T>) -> Result<(), Entry<T>> {
        if self.config.lot_count_max == 0 {
            return Err(entry);
        }
        let key = match self.keys.get(&entry.tenant) {
            Some(key) => *key,
            None => self.admit(&entry.tenant),
        };
        let Some(tenant) = self.tenants.get_mut(key) else { return Err(entry) };
        let (priority, alone) = (entry.priority, entry.alone);
        let lot = &mut tenant.lots[priority];
        if lot.len() >= self.config.lot_count_max {
            return Err(entry);
        }
        lot.of_its_kind(alone).push_back(entry);
        self.depths[priority] += 1;
        self.alone_count += usize::from(alone);
        Ok(())
    }

    /// Takes the entry to run next, among tenants for which `eligible` holds.
    ///
    /// The others keep their turn. `eligible` must answer the same for a tenant throughout one call, in which it may be
    /// asked several times, and must not reserve anything: a tenant it admits is not always the one served.
    ///
    /// Constant time typically; linear in the tenants waiting when many of them are not eligible.
    pub fn pop(&mut self, now_ms: i64, eligible: impl FnMut(&str) -> bool) -> Option<Entry<T>> {
        self.pop_matching(now_ms, eligible, |_| true)
    }

    /// Items that are likely to be taken next, about `count` of them: a guess, for whoever wants to have them at hand.
    pub fn ahead(&self, count: usize) -> impl Iterator<Item = &T> {
        let tenants = self.rotation.tenants();
        let of_each = count.div_ceil(tenants.len().max(1));
        let tenants = tenants.take(count).filter_map(|key| self.tenants.get(key));
        let lots = tenants.flat_map(|tenant| tenant.lots.iter());
        lots.flat_map(move |lot| lot.entries.iter().take(of_each)).map(|entry| &entry.item)
    }

    /// Takes out every entry of `tenant` whose item matches, most urgent lot first.
    pub fn remove(&mut self, tenant: &str, mut matches: impl FnMut(&T) -> bool) -> Vec<Entry<T>> {
        let mut removed = Vec::new();
        let Some(key) = self.keys.get(tenant).copied() else { return removed };
        for priority in Priority::ALL {
            let Some(tenant) = self.tenants.get_mut(key) else { break };
            let count_before = removed.len();
            tenant.lots[priority].extract(&mut matches, &mut removed);
            self.depths[priority] -= removed.len() - count_before;
            self.alone_count -= removed.iter().skip(count_before).filter(|entry| entry.alone).count();
        }
        self.forget_if_idle(key);
        removed
    }

    /// The tenants with something waiting.
    #[must_use]
    pub fn tenants(&self) -> Vec<Arc<str>> {
        self.tenants.iter().map(|(_, tenant)| Arc::clone(&tenant.name)).collect()
    }

    /// Sets how large a tenant's share is relative to others: 1 by default, zero counts as 1. Kept while it is idle.
    pub fn set_weight(&mut self, tenant: &str, weight: u32) {
        let weight = weight.max(1);
        if weight == DEFAULT_WEIGHT {
            self.weights.remove(tenant);
        } else {
            self.weights.insert(Arc::from(tenant), weight);
        }
        if let Some(waiting) = self.keys.get(tenant).and_then(|key| self.tenants.get_mut(*key)) {
            waiting.weight = weight;
        }
    }

    /// How many entries wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.depths.iter().sum()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// How many entries of a declared priority wait.
    #[must_use]
    pub fn depth(&self, priority: Priority) -> usize {
        self.depths[priority]
    }

    /// Since when the longest waiting lot head has been ready. Linear in the tenants waiting.
    #[must_use]
    pub fn oldest_ready_at(&self) -> Option<i64> {
        let lots = self.tenants.iter().flat_map(|(_, tenant)| tenant.lots.iter());
        lots.filter_map(Lot::oldest_ready_at).min()
    }

    /// How many entries of a tenant wait, and since when the longest waiting of its lots' heads has been ready.
    #[must_use]
    pub fn waiting_of(&self, tenant: &str) -> Option<(usize, i64)> {
        let lots = &self.tenants.get(*self.keys.get(tenant)?)?.lots;
        let oldest = lots.iter().filter_map(Lot::oldest_ready_at).min()?;
        Some((lots.iter().map(Lot::len).sum(), oldest))
    }

    /// Whether a tenant has something waiting.
    #[must_use]
    pub fn has(&self, tenant: &str) -> bool {
        self.keys.contains_key(tenant)
    }

    /// How many more entries of a tenant and priority fit.
    #[must_use]
    pub fn free(&self, tenant: &str, priority: Priority) -> usize {
        let waiting = self.keys.get(tenant).and_then(|key| self.tenants.get(*key));
        let used = waiting.map_or(0, |tenant| tenant.lots[priority].len());
        self.config.lot_count_max.saturating_sub(used)
    }

    fn admit(&mut self, name: &Arc<str>) -> TenantKey {
        let weight = self.weights.get(name).copied().unwrap_or(DEFAULT_WEIGHT);
        let cost = self.costs.of(name);
        let key = self.tenants.insert(Tenant::new(Arc::clone(name), weight, cost));
        self.keys.insert(Arc::clone(name), key);
        self.rotation.join(key);
        key
    }

    /// Frees a tenant's record once nothing of it waits.
    fn forget_if_idle(&mut self, key: TenantKey) {
        if !self.tenants.get(key).is_some_and(Tenant::is_idle) {
            return;
        }
        self.rotation.leave(key);
        if let Some(tenant) = self.tenants.try_remove(key) {
            self.keys.remove(&tenant.name);
        }
        if self.tenants.is_empty() && self.tenants.capacity() > TENANTS_KEPT {
            self.tenants = Slab::new();
            self.keys = FxHashMap::default();
            self.rotation = Rotation::default();
        }
    }
}
