//! Finds the tenants with work in a range of buckets, and tells the scheduler as it goes.

use std::sync::Arc;

use futures_util::future::join_all;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_store::Error;

use super::Shared;
use super::scan::{Look, TenantShard};
use super::scheduler::Message;

/// Tenants in one message.
const PAGE_COUNT: usize = 1_000;

/// Lists the buckets from `from` to `until`, both included, of these shards. Databases are listed side by side: one that is away
/// holds up no other.
pub(super) async fn run(
    shared: Arc<Shared>,
    shards: Vec<Shard>,
    (from, until): (Bucket, Bucket),
    look: Look,
) {
    let mut failed = None;
    let list = |shards| list(&shared, shards, (from, until), look);
    let parts = by_database(&shared, shards).into_iter().map(list);
    for error in join_all(parts).await.into_iter().filter_map(Result::err) {
        tracing::warn!(%error, "buckets could not be listed; trying again");
        failed = Some(look);
    }
    shared.tell(Message::ListingDone { failed });
}

fn by_database(shared: &Shared, shards: Vec<Shard>) -> Vec<Vec<Shard>> {
    let databases = shared.store.databases();
    if databases.len() <= 1 {
        return vec![shards];
    }
    let some = databases.into_iter().map(|database| {
        let is_asked = |shard: &Shard| shards.contains(shard);
        database.shards.into_iter().filter(is_asked).collect()
    });
    some.collect()
}

async fn list(
    shared: &Shared,
    shards: Vec<Shard>,
    (from, until): (Bucket, Bucket),
    look: Look,
) -> Result<(), Error> {
    for shard in shards {
        let mut next = from;
        while let Some(bucket) = shared.store.next_bucket(shard, next, until).await? {
            let mut after = None;
            loop {
                let page = shared.store.due_tenants(shard, bucket, after.take(), PAGE_COUNT).await?;
                let full = page.len() == PAGE_COUNT;
                after = page.last().map(|last| last.tenant.clone());
                if !page.is_empty() {
                    let of = |tenant| TenantShard { tenant, shard };
                    let listed = page.into_iter().map(|due| (of(due.tenant), due.first_at));
                    shared.tell(Message::Listed(look, listed.collect()));
                }
                if !full {
                    break;
                }
            }
            next = bucket.next();
        }
    }
    Ok(())
}
