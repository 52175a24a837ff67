//! Where a job stands in the one order all stores keep: (bucket, shard, tenant, time, tail). Due work of one
//! tenant is then one contiguous range, and nobody reads past a neighbour's backlog.

use crate::id::JobId;
use crate::limits::{BUCKET_MS, SUB_SHARDS_COUNT_MAX};
use crate::names::Tenant;
use crate::time::Timestamp;

/// A slice of the tenants, owned by one node at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

impl Shard {
    /// The home shard of `tenant` among `count`. Stable for ever: it is part of every key on disk.
    #[must_use]
    pub fn of(tenant: &Tenant, count: u16) -> Self {
        let count = u64::from(count.max(1));
        Self(u16::try_from(tenant.digest() % count).unwrap_or(0))
    }

    /// The shard of a job of `tenant` among `count`: its home, unless the id says otherwise. As stable.
    #[must_use]
    pub fn of_job(tenant: &Tenant, id: JobId, count: u16) -> Self {
        Self::of_sub_shard(tenant, id.sub_shard(), count)
    }

    /// The shard of one of a tenant's sub-shards among `count`. As stable.
    #[must_use]
    pub fn of_sub_shard(tenant: &Tenant, sub_shard: SubShard, count: u16) -> Self {
        let home = Self::of(tenant, count);
        if sub_shard == SubShard::HOME {
            return home;
        }
        let count = u32::from(count.max(1));
        let offset = u32::from(sub_shard.0) * count / u32::from(SUB_SHARDS_COUNT_MAX);
        Self(u16::try_from((u32::from(home.0) + offset) % count).unwrap_or(0))
    }
}

/// One of the places that a tenant's jobs can be spread over; they lie evenly around the circle of all shards, beginning at
/// the tenant's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubShard(u8);

impl SubShard {
    /// The tenant's home shard, where all its jobs are unless it is spread.
    pub const HOME: Self = Self(0);

    /// In which order they are taken into use: always halfway between those that are in use, so that those of a tenant spread
    /// over few are among those of one spread over more.
    const ORDER: [u8; 16] = [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15];

    /// The one of that number, below [`SUB_SHARDS_COUNT_MAX`].
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number < SUB_SHARDS_COUNT_MAX { Some(Self(number)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// All of them, by their numbers.
    #[must_use]
    pub fn by_number() -> [Self; 16] {
        let mut all = Self::ORDER;
        all.sort_unstable();
        all.map(Self)
    }

    /// All of them, in the order they are taken into use: a tenant spread over `k` shards has the first `k`.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        Self::ORDER.into_iter().map(Self)
    }
}

/// A stretch of time, [`BUCKET_MS`] wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(pub u32);

impl Bucket {
    /// The bucket `at` falls into.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        Self(u32::try_from(at.as_ms().max(0) / BUCKET_MS).unwrap_or(u32::MAX))
    }

    /// Its first instant.
    #[must_use]
    pub fn start(self) -> Timestamp {
        Timestamp::from_ms(i64::from(self.0) * BUCKET_MS)
    }

    /// The first instant after it.
    #[must_use]
    pub fn end(self) -> Timestamp {
        Timestamp::from_ms((i64::from(self.0) + 1) * BUCKET_MS)
    }

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A place in one tenant's order: when a job is due, and which one. A job that was moved or is being retried
/// stands at its new time under its old id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// When the job is due.
    pub at: Timestamp,
    /// Which job.
    pub id: JobId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_tenant_never_changes() {
        // Changing any of these moves existing jobs out of sight.
        let shard = |name| Shard::of(&Tenant::new(name).unwrap(), 64).0;
        insta::assert_debug_snapshot!([shard("default"), shard("acme"), shard("tenant_enterprise_77")]);
    }

    #[test]
    fn sub_shards_lie_apart_and_never_change() {
        let tenant = Tenant::new("acme").unwrap();
        let of = |k: usize, count: u16| -> Vec<u16> {
            SubShard::all().take(k).map(|sub| Shard::of_sub_shard(&tenant, sub, count).0).collect()
        };
        // Changing any of these moves existing jobs out of sight.
        insta::assert_debug_snapshot!(
            [of(1, 64), of(2, 64), of(4, 64), of(16, 64), of(4, 10)].map(|all| format!("{all:?}"))
        );
        for count in [2_u16, 3, 5, 8, 16, 17, 64, 100, 4_096] {
            for k in [1_usize, 2, 4, 8, 16].into_iter().filter(|k| *k <= usize::from(count)) {
                let mut all = of(k, count);
                assert_eq!(all.first(), Some(&Shard::of(&tenant, count).0));
                all.sort_unstable();
                all.dedup();
                assert!(all.len() == k && all.iter().all(|shard| *shard < count), "{k} of {count}: {all:?}");
            }
        }
    }

    #[test]
    fn buckets_tile_time() {
        let at = Timestamp::from_ms(1_796_118_896_123);
        let bucket = Bucket::of(at);
        assert!(bucket.start() <= at && at < bucket.end());
        assert_eq!(bucket.end(), bucket.next().start());
        assert_eq!(Bucket::of(bucket.end()), bucket.next());
    }
}
