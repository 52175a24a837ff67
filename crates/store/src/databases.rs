//! What a store says of the databases it is spread over. Each keeps some of the shards, with all that belongs to them and their
//! leases, so that no change ever spans two of them, and one that is away takes only its own shards with it.

use tidewheel_core::place::Shard;

use crate::Health;

/// One of the databases of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Which, in the order in which they are given: from 0.
    pub index: u16,
    /// The shards it keeps, in order.
    pub shards: Vec<Shard>,
    /// Whether it answers at all. One that does not is asked nothing until it does.
    pub is_reachable: bool,
    /// Whether it takes writes.
    pub health: Health,
}

impl Database {
    /// Whether it is as it should be.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_reachable && self.health == Health::Ready
    }

    /// What is wrong with it, if something is.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        match &self.health {
            Health::Ready => None,
            Health::Full(reason) | Health::ReadOnly(reason) | Health::Away(reason) => Some(reason),
        }
    }

    /// The shards of the database with that index among `databases`: every so many one.
    #[must_use]
    pub fn shards_of(index: u16, databases: u16, shards: u16) -> Vec<Shard> {
        (index..shards).step_by(usize::from(databases.max(1))).map(Shard).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_is_in_one_database() {
        for databases in 1..=5 {
            let mut all: Vec<Shard> =
                (0..databases).flat_map(|index| Database::shards_of(index, databases, 64)).collect();
            all.sort();
            assert_eq!(all, (0..64).map(Shard).collect::<Vec<_>>());
        }
        assert_eq!(Database::shards_of(1, 3, 8), [1, 4, 7].map(Shard));
    }
}
