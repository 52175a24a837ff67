//! Tenants whose jobs are spread over several shards, and so over several nodes: which shards these are, and what part of
//! a tenant's caps is this node's.
//!
//! A cap is split over the tenant's shards once and for all, and whoever serves a shard has its part. So the parts add up
//! to the cap at every moment, whatever nodes come and go, without anybody asking anybody.

use std::collections::BTreeMap;

use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Shard, SubShard};
use tidewheel_store::Store;

use super::ready::Allotment;
use super::territory::Territory;

/// The sub-shards of a tenant that is spread over so many, its home first. They are such that one batch can be stored in
/// all of them; if there are fewer of these, then fewer.
pub(crate) fn sub_shards(store: &dyn Store, tenant: &Tenant, count: u8) -> Vec<SubShard> {
    let shards = store.layout().shards;
    let home = Shard::of(tenant, shards);
    let joins = |sub: &SubShard| store.joins(home, Shard::of_sub_shard(tenant, *sub, shards));
    SubShard::all().filter(joins).take(usize::from(count.max(1))).collect()
}

/// What of a tenant a node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Serves {
    /// All its shards.
    All,
    /// Some of them: others serve the rest.
    Some,
    /// None.
    None,
}

/// The tenants that are spread, each with its shards.
#[derive(Debug, Default)]
pub(super) struct Spreads {
    shards: BTreeMap<Tenant, Vec<Shard>>,
}

impl Spreads {
    pub(super) fn of(all: &[Allotment], store: &dyn Store) -> Self {
        let count = store.layout().shards;
        let spread = all.iter().filter(|allotment| allotment.spread > 1);
        let shards = spread.map(|Allotment { tenant, spread, .. }| {
            let subs = sub_shards(store, tenant, *spread).into_iter();
            (tenant.clone(), subs.map(|sub| Shard::of_sub_shard(tenant, sub, count)).collect())
        });
        Self { shards: shards.collect() }
    }

    pub(super) fn serves(&self, tenant: &Tenant, territory: &Territory) -> Serves {
        let Some(shards) = self.shards.get(tenant) else {
            return if territory.holds(territory.home_of(tenant)) { Serves::All } else { Serves::None };
        };
        let held = shards.iter().filter(|shard| territory.holds(**shard)).count();
        match held {
            0 => Serves::None,
            held if held == shards.len() => Serves::All,
            _ => Serves::Some,
        }
    }

    /// What is this node's of what tenants are allotted.
    pub(super) fn parts(&self, all: &[Allotment], territory: &Territory) -> Vec<Allotment> {
        let part = |allotment: &Allotment| {
            let Some(shards) = self.shards.get(&allotment.tenant) else { return allotment.clone() };
            let held: Vec<bool> = shards.iter().map(|shard| territory.holds(*shard)).collect();
            let part = |max: Option<u32>| max.map(|max| part_of(max, &held));
            Allotment {
                running_count_max: part(allotment.running_count_max),
                queue_running_count_max: part(allotment.queue_running_count_max),
                starts_per_s: part(allotment.starts_per_s),
                ..allotment.clone()
            }
        };
        all.iter().map(part).collect()
    }

    /// For each spread tenant of which this node serves some shards, how many of how many.
    pub(super) fn held(&self, territory: &Territory) -> BTreeMap<Tenant, (usize, usize)> {
        let held = |shards: &Vec<Shard>| shards.iter().filter(|shard| territory.holds(**shard)).count();
        let each = self.shards.iter().map(|(tenant, shards)| (tenant.clone(), (held(shards), shards.len())));
        each.filter(|(_, (held, all))| held < all).collect()
    }
}

/// What of `max` belongs to the shards that are held: the parts of all shards add up to it. Never nothing, so that what a node
/// has of a tenant by mistake does not wait for ever.
fn part_of(max: u32, held: &[bool]) -> u32 {
    let count = u64::try_from(held.len().max(1)).unwrap_or(u64::MAX);
    let up_to = |number: u64| u64::from(max) * number / count;
    let parts = (0..).zip(held).filter(|(_, is_held)| **is_held).map(|(n, _)| up_to(n + 1) - up_to(n));
    u32::try_from(parts.sum::<u64>()).unwrap_or(max).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewheel_store::{Held, Layout};
    use tidewheel_store_testkit::memory::MemoryStore;

    const SHARDS: u16 = 64;

    fn allotment(name: &str, spread: u8) -> Allotment {
        Allotment {
            tenant: Tenant::new(name).unwrap(),
            weight: 1,
            running_count_max: Some(10),
            queue_running_count_max: None,
            starts_per_s: Some(103),
            spread,
        }
    }

    #[test]
    fn parts_add_up_to_the_cap_wherever_the_shards_are() {
        for max in [4_u32, 5, 10, 103, 1_000_000_000] {
            for owners in 0..3_usize.pow(4) {
                let owner = |shard: u32| owners / 3_usize.pow(shard) % 3;
                let parts = (0..3_usize).map(|node| {
                    let held: Vec<bool> = (0..4).map(|shard| owner(shard) == node).collect();
                    if held.contains(&true) { part_of(max, &held) } else { 0 }
                });
                assert_eq!(parts.sum::<u32>(), max, "owners {owners} of {max}");
            }
        }
        assert_eq!(part_of(3, &[true, false, false, false]), 1, "never nothing");
    }

    #[test]
    fn a_node_has_the_part_of_the_shards_it_serves() {
        let store = MemoryStore::new(Layout { shards: SHARDS });
        let all = [allotment("hot", 4), allotment("plain", 1)];
        let hot = &all[0].tenant;
        let spreads = Spreads::of(&all, &store);
        let shards = &spreads.shards[hot];
        assert_eq!((shards.len(), shards[0]), (4, Shard::of(hot, SHARDS)));
        let territory = Territory::new(SHARDS, true);
        assert_eq!(spreads.serves(hot, &territory), Serves::None);
        for shard in &shards[..3] {
            territory.take(Held { shard: *shard, epoch: 1 });
        }
        assert_eq!(spreads.serves(hot, &territory), Serves::Some);
        assert_eq!(spreads.held(&territory)[hot], (3, 4));
        let parts = spreads.parts(&all, &territory);
        assert_eq!((parts[0].running_count_max, parts[0].starts_per_s), (Some(7), Some(77)));
        assert_eq!(parts[1], all[1], "who is not spread is served by one alone");
        territory.take_all(1);
        assert_eq!(spreads.serves(hot, &territory), Serves::All);
        assert_eq!(spreads.parts(&all, &territory), all);
        assert!(spreads.held(&territory).is_empty());
    }
}
