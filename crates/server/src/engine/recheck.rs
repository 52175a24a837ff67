//! Reads jobs again about which the scheduler and the store turned out to disagree, and tells the scheduler how
//! they are. What it hears comes in the order of the answers, not of the changes, so it can be behind.

use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;

use super::Shared;
use super::scheduler::Message;

/// Wait before a failed read is tried again.
const RETRY_WAIT_MS: u64 = 100;

pub(super) async fn run(shared: Arc<Shared>, doubtful: Vec<(Tenant, JobId)>) {
    for (tenant, id) in doubtful {
        let job = loop {
            match shared.store.get(&tenant, vec![id]).await {
                Ok(mut found) => break found.pop().flatten(),
                Err(error) if error.is_retryable() => {
                    shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
                }
                Err(_) => return,
            }
        };
        if let Some(job) = job {
            shared.tell(Message::Rechecked(Arc::new(job)));
        }
    }
}
