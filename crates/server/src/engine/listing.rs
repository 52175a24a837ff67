//! Finds the tenants with work in a range of buckets, and tells the scheduler as it goes.

use std::sync::Arc;

use tidewheel_core::place::{Bucket, Shard};
use tidewheel_store::Error;

use super::Shared;
use super::scan::TenantShard;
use super::scheduler::Message;

/// Tenants in one message.
const PAGE_COUNT: usize = 1_000;

/// Lists the buckets from `from` to `until`, both included, of these shards.
pub(super) async fn run(shared: Arc<Shared>, shards: Vec<Shard>, from: Bucket, until: Bucket) {
    let mut failed = None;
    if let Err(error) = list(&shared, shards, from, until).await {
        tracing::warn!(%error, "buckets could not be listed; trying again");
        failed = Some(from);
    }
    shared.tell(Message::ListingDone { failed });
}

async fn list(shared: &Shared, shards: Vec<Shard>, from: Bucket, until: Bucket) -> Result<(), Error> {
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
                    shared.tell(Message::Listed(listed.collect()));
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
