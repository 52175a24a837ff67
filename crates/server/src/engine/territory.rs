//! Which shards this engine serves, and under which epochs its claims are fenced. All of them, on a store that it has to
//! itself; in a cluster, those it has a lease of.

use std::sync::atomic::{AtomicU64, Ordering};

use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_store::Held;

use super::scan::TenantShard;

/// No shard is held under this epoch.
const NOT_HELD: u64 = 0;

#[derive(Debug)]
pub(super) struct Territory {
    /// By shard.
    epochs: Box<[AtomicU64]>,
    /// Other engines serve the rest of the store.
    is_shared: bool,
}

impl Territory {
    /// Without a shard.
    pub(super) fn new(shards: u16, is_shared: bool) -> Self {
        let epochs = std::iter::repeat_with(|| AtomicU64::new(NOT_HELD)).take(usize::from(shards)).collect();
        Self { epochs, is_shared }
    }

    pub(super) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Takes all shards, under one epoch.
    pub(super) fn take_all(&self, epoch: u64) {
        self.epochs.iter().for_each(|held| held.store(epoch, Ordering::SeqCst));
    }

    pub(super) fn take(&self, held: Held) {
        self.set(held.shard, held.epoch);
    }

    pub(super) fn give_up(&self, shard: Shard) {
        self.set(shard, NOT_HELD);
    }

    fn set(&self, shard: Shard, epoch: u64) {
        if let Some(held) = self.epochs.get(usize::from(shard.0)) {
            held.store(epoch, Ordering::SeqCst);
        }
    }

    fn count(&self) -> u16 {
        u16::try_from(self.epochs.len()).unwrap_or(u16::MAX)
    }

    /// The shard a tenant's jobs are in, unless their ids say otherwise.
    pub(super) fn home_of(&self, tenant: &Tenant) -> Shard {
        Shard::of(tenant, self.count())
    }

    /// The shard a job is in.
    pub(super) fn shard_of(&self, tenant: &Tenant, id: JobId) -> Shard {
        Shard::of_job(tenant, id, self.count())
    }

    /// The epoch claims of jobs in a shard carry; none while others serve it.
    pub(super) fn epoch_of(&self, shard: Shard) -> Option<u64> {
        let held = self.epochs.get(usize::from(shard.0))?;
        Some(held.load(Ordering::SeqCst)).filter(|epoch| *epoch != NOT_HELD)
    }

    pub(super) fn holds(&self, shard: Shard) -> bool {
        self.epoch_of(shard).is_some()
    }

    /// Whose and in which shard a job is.
    pub(super) fn place_of(&self, job: &Job) -> TenantShard {
        TenantShard { tenant: job.tenant.clone(), shard: self.shard_of(&job.tenant, job.id) }
    }

    pub(super) fn holds_job(&self, job: &Job) -> bool {
        self.holds(self.shard_of(&job.tenant, job.id))
    }

    /// What is held, in order of the shards.
    pub(super) fn held(&self) -> Vec<Held> {
        let epochs = (0..self.count()).zip(&self.epochs);
        epochs
            .map(|(shard, held)| Held { shard: Shard(shard), epoch: held.load(Ordering::SeqCst) })
            .filter(|held| held.epoch != NOT_HELD)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_served_and_nothing_else() {
        let territory = Territory::new(4, true);
        let tenants: Vec<Tenant> = (0..32).map(|n| Tenant::new(&format!("t{n}")).unwrap()).collect();
        assert!(tenants.iter().all(|tenant| !territory.holds(territory.home_of(tenant))));
        let held = [Held { shard: Shard(1), epoch: 7 }, Held { shard: Shard(3), epoch: 9 }];
        held.into_iter().for_each(|held| territory.take(held));
        assert_eq!(territory.held(), held);
        for tenant in &tenants {
            let epoch = match territory.home_of(tenant) {
                Shard(1) => Some(7),
                Shard(3) => Some(9),
                Shard(_) => None,
            };
            assert_eq!(territory.epoch_of(territory.home_of(tenant)), epoch);
        }
        territory.give_up(Shard(1));
        assert_eq!(territory.held(), held[1..]);
        territory.take_all(11);
        assert!((0..4).all(|shard| territory.epoch_of(Shard(shard)) == Some(11)));
    }
}
