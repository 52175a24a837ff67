//! Reads jobs again about which the scheduler and the store turned out to disagree, and tells the scheduler how
//! they are. What it hears comes in the order of the answers, not of the changes, so it can be behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_store::{Error, Store};

use super::Shared;
use super::scheduler::Message;

/// Wait before a failed read is tried again.
const RETRY_WAIT_MS: u64 = 100;
/// Reads after which parts are no longer made smaller: enough to find a few jobs among thousands.
const READS_COUNT_MAX: usize = 64;

pub(super) async fn run(shared: Arc<Shared>, doubtful: Vec<(Tenant, JobId)>) {
    if let Ok(found) = shared.store.get_each(shared.clock.now(), doubtful.clone()).await {
        return tell(&shared, found);
    }
    let mut tenants: BTreeMap<Tenant, Vec<JobId>> = BTreeMap::new();
    for (tenant, id) in doubtful {
        tenants.entry(tenant).or_default().push(id);
    }
    // Side by side: the database of one may be away.
    join_all(tenants.into_iter().map(|(tenant, ids)| read(&shared, tenant, ids))).await;
}

async fn read(shared: &Shared, tenant: Tenant, ids: Vec<JobId>) {
    let found = loop {
        match get_readable(&*shared.store, &tenant, ids.clone()).await {
            Ok(found) => break found,
            Err(error) if error.is_retryable() => {
                shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
            }
            Err(_) => return,
        }
    };
    tell(shared, found);
}

fn tell(shared: &Shared, found: Vec<Option<Job>>) {
    for job in found.into_iter().flatten() {
        shared.tell(Message::Rechecked(Arc::new(job)));
    }
}

/// A tenant's jobs by id. One that cannot be read is as if it were not there, and costs no other anything: what it is among is
/// read in ever smaller parts. Where many cannot be read, so are some of those around them.
pub(super) async fn get_readable(
    store: &dyn Store,
    tenant: &Tenant,
    ids: Vec<JobId>,
) -> Result<Vec<Option<Job>>, Error> {
    let mut found = Vec::with_capacity(ids.len());
    // The last of them is read next.
    let mut parts = vec![ids];
    let mut reads = 0;
    while let Some(mut part) = parts.pop() {
        reads += 1;
        match store.get(tenant, part.clone()).await {
            Ok(jobs) => found.extend(jobs),
            Err(Error::Corrupt(_)) if part.len() > 1 && reads < READS_COUNT_MAX => {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            }
            Err(Error::Corrupt(reason)) => {
                let count = part.len();
                tracing::error!(%tenant, count, %reason, "a job cannot be read, and is passed over");
                found.extend(part.iter().map(|_| None));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
