//! Reads jobs again about which the scheduler and the store turned out to disagree, and tells the scheduler how
//! they are. What it hears comes in the order of the answers, not of the changes, so it can be behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;

use super::Shared;
use super::scheduler::Message;

/// Wait before a failed read is tried again.
const RETRY_WAIT_MS: u64 = 100;

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
        match shared.store.get(&tenant, ids.clone()).await {
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
