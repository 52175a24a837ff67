//! Ready lanes: what may run now, and in which order.
//!
//! A [`Lane`] belongs to one destination. It decides in two steps: `shares` picks a priority (8 : 4 : 2 : 1 while all
//! are busy), then that priority's `rotation` picks a tenant (deficit round robin by weight). A tenant's entries of
//! one priority form a lot, bounded and first in, first out. Waiting raises the head of a lot to higher priorities
//! (`aging`); a tenant has one turn in each priority's rotation, however many of its lots compete there.
//!
//! Pure: the time and who may be served are arguments, and the same calls give the same order.

mod aging;
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
    shares::{Shares, Standing},
    tenant::Tenant,
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
    shares: Shares,
    /// Per priority, exactly the tenants with a lot of that class.
    rotations: PerPriority<Rotation>,
    /// Per priority, an instant before which no head leaves its class by age.
    ages_at_ms: PerPriority<i64>,
    depths: PerPriority<usize>,
    /// The time of the last `pop`, by which pushes are classed.
    now_ms: i64,
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
            shares: Shares::default(),
            rotations: PerPriority::default(),
            ages_at_ms: PerPriority::from_fn(|_| i64::MAX),
            depths: PerPriority::default(),
            now_ms: i64::MIN,
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
        let priority = entry.priority;
        let entries = &mut tenant.lots[priority].entries;
        if entries.len() >= self.config.lot_count_max {
            return Err(entry);
        }
        entries.push_back(entry);
        let is_head = entries.len() == 1;
        self.depths[priority] += 1;
        if is_head {
            self.settle(key, priority);
        }
        Ok(())
    }

    /// Takes the entry to run next, among tenants for which `eligible` holds.
    ///
    /// The others keep their turn, and a priority in which nobody is eligible gives its share to the rest. `eligible`
    /// must answer the same for a tenant throughout one call, in which it may be asked several times, and must not
    /// reserve anything: a tenant it admits is not always the one served.
    ///
    /// Constant time typically; linear in the tenants waiting when many of them are not eligible, or have aged.
    pub fn pop(&mut self, now_ms: i64, mut eligible: impl FnMut(&str) -> bool) -> Option<Entry<T>> {
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
            let served = self.rotations[class].next(|key| {
                let tenant = self.tenants.get(key)?;
                let cost = tenant.charge(tenant.head_in(class)?);
                eligible(&tenant.name).then(|| Claim { cost, quantum: quantum * u64::from(tenant.weight) })
            });
            if let Some(key) = served {
                self.shares.served(class);
                return self.take(key, class);
            }
            barred[class] = true;
        }
    }

    /// Takes out every entry of `tenant` whose item matches, most urgent lot first.
    pub fn remove(&mut self, tenant: &str, mut matches: impl FnMut(&T) -> bool) -> Vec<Entry<T>> {
        let mut removed = Vec::new();
        let Some(key) = self.keys.get(tenant).copied() else { return removed };
        for priority in Priority::ALL {
            let Some(tenant) = self.tenants.get_mut(key) else { break };
            let count_before = removed.len();
            tenant.lots[priority].extract(&mut matches, &mut removed);
            if removed.len() > count_before {
                self.depths[priority] -= removed.len() - count_before;
                self.settle(key, priority);
            }
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
        let heads = self.tenants.iter().flat_map(|(_, tenant)| tenant.lots.iter());
        heads.filter_map(|lot| lot.entries.front()).map(|head| head.ready_at_ms).min()
    }

    /// How many entries of a tenant wait, and since when the longest waiting of its lots' heads has been ready.
    #[must_use]
    pub fn waiting_of(&self, tenant: &str) -> Option<(usize, i64)> {
        let lots = &self.tenants.get(*self.keys.get(tenant)?)?.lots;
        let heads = lots.iter().filter_map(|lot| lot.entries.front());
        let oldest = heads.map(|head| head.ready_at_ms).min()?;
        Some((lots.iter().map(|lot| lot.entries.len()).sum(), oldest))
    }

    /// How many more entries of a tenant and priority fit.
    #[must_use]
    pub fn free(&self, tenant: &str, priority: Priority) -> usize {
        let waiting = self.keys.get(tenant).and_then(|key| self.tenants.get(*key));
        let used = waiting.map_or(0, |tenant| tenant.lots[priority].entries.len());
        self.config.lot_count_max.saturating_sub(used)
    }

    fn admit(&mut self, name: &Arc<str>) -> TenantKey {
        let weight = self.weights.get(name).copied().unwrap_or(DEFAULT_WEIGHT);
        let cost = self.costs.of(name);
        let key = self.tenants.insert(Tenant::new(Arc::clone(name), weight, cost));
        self.keys.insert(Arc::clone(name), key);
        key
    }

    /// Frees a tenant's record once nothing of it waits.
    fn forget_if_idle(&mut self, key: TenantKey) {
        if !self.tenants.get(key).is_some_and(Tenant::is_idle) {
            return;
        }
        if let Some(tenant) = self.tenants.try_remove(key) {
            self.keys.remove(&tenant.name);
        }
        if self.tenants.is_empty() && self.tenants.capacity() > TENANTS_KEPT {
            self.tenants = Slab::new();
            self.keys = FxHashMap::default();
            self.rotations = PerPriority::default();
        }
    }

    /// Takes the entry for which `key` was charged in the rotation of `class`.
    fn take(&mut self, key: TenantKey, class: Priority) -> Option<Entry<T>> {
        let tenant = self.tenants.get_mut(key)?;
        let priority = tenant.head_in(class)?.priority;
        let entry = tenant.lots[priority].entries.pop_front()?;
        self.depths[priority] -= 1;
        self.settle(key, priority);
        self.forget_if_idle(key);
        Some(entry)
    }

    /// Classes a lot anew by its head, and keeps the rotations in step. Called whenever a head changes or ages.
    fn settle(&mut self, key: TenantKey, priority: Priority) {
        let aging = Aging { step_ms: self.config.aging_ms };
        let Some(tenant) = self.tenants.get_mut(key) else { return };
        let head_ready_at_ms = tenant.lots[priority].entries.front().map(|head| head.ready_at_ms);
        let before = tenant.lots[priority].class;
        let after = head_ready_at_ms.map(|ready_at_ms| aging.class(priority, ready_at_ms, self.now_ms));
        if before != after {
            let joined = after.filter(|class| !tenant.competes_in(*class));
            tenant.lots[priority].class = after;
            let left = before.filter(|class| !tenant.competes_in(*class));
            if let Some(class) = joined {
                self.rotations[class].join(key);
            }
            if let Some(class) = left {
                self.rotations[class].leave(key);
            }
        }
        if let (Some(class), Some(ready_at_ms)) = (after, head_ready_at_ms) {
            let rises_at_ms = aging.rises_at_ms(priority, ready_at_ms, class);
            self.ages_at_ms[class] = self.ages_at_ms[class].min(rises_at_ms);
        }
    }

    /// Moves up the lots whose heads have waited long enough. Looks at nothing until the first of them may have.
    fn raise_aged(&mut self) {
        for class in Priority::ALL {
            if self.now_ms < self.ages_at_ms[class] {
                continue;
            }
            self.ages_at_ms[class] = i64::MAX;
            let mut rotation = std::mem::take(&mut self.rotations[class]);
            rotation.retain(|key| {
                for priority in Priority::ALL {
                    let lot_class = self.tenants.get(key).and_then(|tenant| tenant.lots[priority].class);
                    if lot_class == Some(class) {
                        self.settle(key, priority);
                    }
                }
                self.tenants.get(key).is_some_and(|tenant| tenant.competes_in(class))
            });
            self.rotations[class] = rotation;
        }
    }
}
