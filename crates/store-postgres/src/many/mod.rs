//! Several databases as one store: the shards are dealt out over them, and every call goes to the database that has the shard.
//!
//! | file | what it is for |
//! |---|---|
//! | `seat` | what a database is among the others: fixed when it is made, checked whenever it is opened |
//! | `open` | opening and migrating all of them |
//! | `part` | one of them: asked while it answers, refused for at once while it does not |
//! | `watch` | finding out whether it answers, and opening it late |
//! | `route` | cutting batches apart, putting answers back in order |
//! | `merge` | pages of several databases as one |
//! | `store`, `schedules`, `shared`, `leases` | the contract |
//!
//! A shard's jobs, keys, schedules, ledger, audit chain and lease are in one database, so no transaction spans two. Nodes say
//! in each database that they are there, and share out its shards by what that database says: one that is away takes
//! only its own shards with it. Small documents and leases by name are in the first.

mod leases;
mod merge;
mod open;
mod part;
mod route;
mod schedules;
mod seat;
mod shared;
mod store;
mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_store::Error;
use tokio::task::JoinHandle;

pub use open::{SpreadError, migrate_all, open_all};
pub use seat::Seat;

use part::Part;

/// Jobs and schedules in several PostgreSQL databases.
pub struct Spread {
    /// By index; never empty.
    parts: Vec<Arc<Part>>,
    shards: u16,
    is_closed: AtomicBool,
    /// They end with the store.
    watches: Vec<JoinHandle<()>>,
}

impl Drop for Spread {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

impl Spread {
    /// The index of the database that has a shard.
    fn home_of_shard(&self, shard: Shard) -> usize {
        usize::from(shard.0) % self.parts.len().max(1)
    }

    /// The index of the database with what a tenant has only once: schedules, keys, its chain of the audit trail.
    fn home(&self, tenant: &Tenant) -> usize {
        self.home_of_shard(Shard::of(tenant, self.shards))
    }

    /// The index of the database that has a job.
    fn home_of_job(&self, tenant: &Tenant, _id: JobId) -> usize {
        self.home(tenant)
    }

    /// The databases that may have jobs of a tenant, in order. What asks them goes by there being several.
    fn homes(&self, tenant: &Tenant) -> Vec<&Part> {
        self.parts.get(self.home(tenant)).map(|part| &**part).into_iter().collect()
    }

    fn part(&self, index: usize) -> Result<&Part, Error> {
        self.parts.get(index).map(|part| &**part).ok_or(Error::Closed)
    }

    /// The one with documents and leases by name.
    fn first(&self) -> Result<&Part, Error> {
        self.part(0)
    }
}
