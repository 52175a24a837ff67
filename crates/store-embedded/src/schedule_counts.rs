//! How many schedules each tenant has. Kept in memory, written with every group that changes it, read back on
//! opening.

use std::collections::BTreeMap;
use std::ops::Bound;

use tidewheel_core::names::Tenant;

use crate::keys;
use crate::kv::{Batch, Keyspace};
use crate::record::Unreadable;

/// By tenant; those without schedules are not there.
#[derive(Debug, Default)]
pub(crate) struct ScheduleCounts(BTreeMap<Tenant, u64>);

/// By how much the counts change.
pub(crate) type ScheduleDeltas = BTreeMap<Tenant, i64>;

impl ScheduleCounts {
    pub(crate) fn of(&self, tenant: &Tenant) -> u64 {
        self.0.get(tenant).copied().unwrap_or(0)
    }

    pub(crate) fn tenants(&self, after: Option<Tenant>, count_max: usize) -> Vec<Tenant> {
        let above = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.0.range((above, Bound::Unbounded)).map(|(tenant, _)| tenant.clone()).take(count_max).collect()
    }

    /// Writes the counts as they will be after `deltas`.
    pub(crate) fn write(&self, deltas: &ScheduleDeltas, batch: &mut Batch) {
        for (tenant, by) in deltas.iter().filter(|(_, by)| **by != 0) {
            let key = keys::meta::schedules(tenant);
            match self.of(tenant).saturating_add_signed(*by) {
                0 => batch.delete(Keyspace::Meta, key),
                count => batch.put(Keyspace::Meta, key, count.to_be_bytes().to_vec()),
            }
        }
    }

    pub(crate) fn apply(&mut self, deltas: ScheduleDeltas) {
        for (tenant, by) in deltas {
            match self.of(&tenant).saturating_add_signed(by) {
                0 => self.0.remove(&tenant),
                count => self.0.insert(tenant, count),
            };
        }
    }

    /// Reads a record of `meta` back.
    pub(crate) fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Unreadable> {
        let nonsense = || Unreadable::Nonsense("how many schedules a tenant has");
        let name = key.get(1..).and_then(|name| std::str::from_utf8(name).ok()).ok_or_else(nonsense)?;
        let tenant = Tenant::new(name).map_err(|_| nonsense())?;
        let count = <[u8; 8]>::try_from(value).map_err(|_| nonsense())?;
        self.0.insert(tenant, u64::from_be_bytes(count));
        Ok(())
    }
}
