//! When a tenant that was spread over more shards is done with them. Its jobs of that time stay where they are, and its caps
//! stay split over all these shards, or the nodes that serve them could start nothing. Once nothing is left in the shards
//! that are no longer used, the settings forget them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard, SubShard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Due, Error, Store};

use super::Directory;
use super::tenants::TenantShown;
use crate::engine::sub_shards;

/// How often it is looked. A node that has not heard of the narrower setting by then has long stopped.
const LOOK: Duration = Duration::from_secs(60);

/// Versions of settings that were there when it was last looked, by tenant.
type Seen = FxHashMap<Tenant, u64>;

pub(super) async fn run(directory: Weak<Directory>) {
    let mut seen = Seen::default();
    loop {
        let Some(open) = directory.upgrade() else { return };
        let pause = open.clock.sleep(LOOK);
        drop(open);
        pause.await;
        let Some(open) = directory.upgrade() else { return };
        match look(&open, &mut seen).await {
            Ok(()) => {}
            Err(Error::Closed) => return,
            Err(error) => {
                tracing::debug!(%error, "it could not be seen what is left in shards no longer used")
            }
        }
    }
}

/// Looks once. Settings that changed since the last time wait for the next: jobs may still come by the older ones.
async fn look(directory: &Arc<Directory>, seen: &mut Seen) -> Result<(), Error> {
    let narrowed = directory.narrowed();
    let before: Seen = std::mem::take(seen);
    for (tenant, shown) in narrowed {
        let is_settled = before.get(&tenant) == Some(&shown.version);
        if is_settled && !is_left(&*directory.store, &tenant, &shown).await? {
            tracing::info!(%tenant, "nothing is left in the shards that the tenant was spread over before");
            directory.forget_spread(&tenant, &shown).await?;
        } else {
            seen.insert(tenant, shown.version);
        }
    }
    Ok(())
}

/// Whether a job waits or runs in a shard that the tenant is no longer spread over.
async fn is_left(store: &dyn Store, tenant: &Tenant, shown: &TenantShown) -> Result<bool, Error> {
    let settings = &shown.settings;
    let used = sub_shards(store, tenant, settings.sub_shards);
    let unused: Vec<SubShard> =
        sub_shards(store, tenant, settings.spread()).into_iter().filter(|sub| !used.contains(sub)).collect();
    let is_unused = |sub: SubShard| unused.contains(&sub);
    if store.running().await?.iter().any(|job| job.tenant == *tenant && is_unused(job.id.sub_shard())) {
        return Ok(true);
    }
    for sub in &unused {
        if waits_in(store, tenant, Shard::of_sub_shard(tenant, *sub, store.layout().shards)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn waits_in(store: &dyn Store, tenant: &Tenant, shard: Shard) -> Result<bool, Error> {
    let mut from = Bucket(0);
    while let Some(bucket) = store.next_bucket(shard, from, Bucket(u32::MAX)).await? {
        let due = Due {
            shard,
            bucket,
            tenant: tenant.clone(),
            after: None,
            until: Timestamp::MAX,
            count_max: 1,
            bytes_max: 1,
        };
        let page = store.due(due).await?;
        if !page.jobs.is_empty() || page.unread > 0 || page.next_at.is_some() {
            return Ok(true);
        }
        from = bucket.next();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidewheel_core::id::JobId;
    use tidewheel_core::job::{Command, Destination, Job, Priority, Spec};
    use tidewheel_core::retry::RetryPolicy;
    use tidewheel_store::{IfVersion, Layout, OnConflict, Order, Submission};
    use tidewheel_store_testkit::memory::MemoryStore;

    use super::*;
    use crate::clock::SystemClock;
    use crate::directory::TenantSettings;

    fn job(tenant: &Tenant, sub_shard: SubShard) -> Job {
        let at = Timestamp::from_ms(1_796_118_896_000);
        let spec = Spec {
            kind: "t".into(),
            payload: Bytes::new(),
            destination: Destination::Queue("q".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: 1_000,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            trace: None,
            created_at: at,
        };
        Job::with_id(tenant.clone(), spec, JobId::in_sub_shard(at, 7, sub_shard))
    }

    #[tokio::test]
    async fn a_narrowed_tenant_is_split_as_before_until_nothing_is_left() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Layout { shards: 64 }));
        let directory = Directory::open(Arc::clone(&store), Arc::new(SystemClock::new())).await.unwrap();
        let acme = Tenant::new("acme").unwrap();
        let put = async |sub_shards: u8| {
            let settings = TenantSettings { sub_shards, ..TenantSettings::default() };
            directory.put_tenant(&acme, &settings, IfVersion::Any).await.unwrap().unwrap();
        };
        let spread = || directory.tenant(&acme).settings.spread();
        put(4).await;
        let outside = job(&acme, SubShard::all().nth(3).unwrap());
        let submission = Submission { job: outside.clone(), key: None, fresh: true };
        let now = outside.status.due_at;
        store.submit(now, vec![submission], OnConflict::KeepOthers).await.unwrap();
        put(2).await;
        let mut seen = Seen::default();
        for _ in 0..3 {
            look(&directory, &mut seen).await.unwrap();
            assert_eq!(spread(), 4, "a job waits in a shard that is no longer used");
        }
        let cancel = Order { tenant: acme.clone(), id: outside.id, command: Command::Cancel, key: None };
        store.apply(now, None, vec![cancel]).await.unwrap().remove(0).unwrap();
        put(1).await;
        look(&directory, &mut seen).await.unwrap();
        assert_eq!(spread(), 4, "nodes that have not heard of it may still put jobs there");
        look(&directory, &mut seen).await.unwrap();
        assert_eq!(spread(), 1);
    }
}
