//! Where a job stands in the one order all stores keep: (bucket, shard, tenant, time, tail). Due work of one
//! tenant is then one contiguous range, and nobody reads past a neighbour's backlog.

use crate::id::JobId;
use crate::limits::BUCKET_MS;
use crate::names::Tenant;
use crate::time::Timestamp;

/// A slice of the tenants, owned by one node at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

impl Shard {
    /// The shard of `tenant` among `count`. Stable for ever: it is part of every key on disk.
    #[must_use]
    pub fn of(tenant: &Tenant, count: u16) -> Self {
        let count = u64::from(count.max(1));
        Self(u16::try_from(tenant.digest() % count).unwrap_or(0))
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
    fn buckets_tile_time() {
        let at = Timestamp::from_ms(1_796_118_896_123);
        let bucket = Bucket::of(at);
        assert!(bucket.start() <= at && at < bucket.end());
        assert_eq!(bucket.end(), bucket.next().start());
        assert_eq!(Bucket::of(bucket.end()), bucket.next());
    }
}
