//! Reads the attempts that other nodes started for this one's workers, and gives them to the scheduler, in the order in which
//! they were handed on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, Token};
use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::names::Tenant;
use tidewheel_store::Order;
use tokio::sync::mpsc;

use super::leases::Over;
use super::peers::PeerMessage;
use super::scheduler::Message;
use super::{Shared, outcomes};

/// News of attempts that wait to be read; what is more is handed back.
pub(super) const QUEUE_COUNT_MAX: usize = 1_000;
/// How often a read is tried before an attempt is handed back.
const TRIES_MAX: usize = 20;
/// Wait before a failed read is tried again.
const RETRY_WAIT_MS: u64 = 100;
/// What was read so long ago may have ended since, and been given to others.
const ANSWER_MS_MAX: i64 = SECOND_MS;

/// Attempts handed on by another node.
pub(super) struct Handed {
    pub(super) from: Arc<str>,
    pub(super) number: u64,
    pub(super) jobs: Vec<(Tenant, JobId, Token)>,
}

/// Runs until nobody hears news any more.
pub(super) async fn run(shared: Arc<Shared>, mut queue: mpsc::Receiver<Handed>) {
    while let Some(handed) = queue.recv().await {
        let mut tenants: BTreeMap<Tenant, Vec<(JobId, Token)>> = BTreeMap::new();
        for (tenant, id, token) in handed.jobs {
            tenants.entry(tenant).or_default().push((id, token));
        }
        let reads = tenants.into_iter().map(|(tenant, attempts)| read(&shared, tenant, attempts));
        let jobs = join_all(reads).await.into_iter().flatten().collect();
        let Handed { from, number, .. } = handed;
        shared.tell(Message::Peer(PeerMessage::Handed { from, number, jobs }));
    }
}

/// Those of a tenant's attempts that are still under way.
async fn read(shared: &Arc<Shared>, tenant: Tenant, attempts: Vec<(JobId, Token)>) -> Vec<Arc<Job>> {
    let ids: Vec<JobId> = attempts.iter().map(|(id, _)| *id).collect();
    for _ in 0..TRIES_MAX {
        let asked_ms = shared.clock.monotonic_ms();
        match shared.store.get(&tenant, ids.clone()).await {
            Ok(_) if shared.clock.monotonic_ms().saturating_sub(asked_ms) > ANSWER_MS_MAX => {}
            Ok(found) => {
                let is_it = |job: &Job, token| job.status.running.is_some() && job.status.token == token;
                let pairs = found.into_iter().zip(attempts);
                return pairs
                    .filter_map(|(job, (_, token))| job.filter(|job| is_it(job, token)).map(Arc::new))
                    .collect();
            }
            Err(error) if error.is_retryable() => {
                shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
            }
            Err(_) => break,
        }
    }
    tracing::debug!(%tenant, count = ids.len(), "attempts handed on by another node could not be read");
    let jobs = attempts.into_iter().map(|(id, token)| (tenant.clone(), id, token)).collect();
    let shared = Arc::clone(shared);
    tokio::spawn(async move { give_back(&shared, jobs).await });
    Vec::new()
}

/// Takes attempts back whose leases ran out, and that are known not to have reached the node they were handed to: at no cost,
/// unless a worker was heard of all the same.
pub(super) async fn take_back(shared: Arc<Shared>, over: Vec<Over>) {
    let mut orders = Vec::with_capacity(over.len());
    for Over { tenant, id, token, lease_until, .. } in over {
        let found = loop {
            match shared.store.get(&tenant, vec![id]).await {
                Ok(mut found) => break found.pop().flatten(),
                Err(error) if error.is_retryable() => {
                    shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
                }
                Err(_) => return,
            }
        };
        let running = found.filter(|job| job.status.token == token).and_then(|job| job.status.running);
        let command = if running.is_some_and(|running| running.lease_until == lease_until) {
            Command::Release { token }
        } else {
            Command::LeaseOver { token, lease_until, jitter: shared.random.jitter() }
        };
        orders.push(Order { tenant, id, command, key: None });
    }
    outcomes::write(&shared, orders).await;
}

/// Hands attempts back that never reached a worker, at no cost.
pub(super) async fn give_back(shared: &Shared, jobs: Vec<(Tenant, JobId, Token)>) {
    let order = |(tenant, id, token)| Order { tenant, id, command: Command::Release { token }, key: None };
    outcomes::write(shared, jobs.into_iter().map(order).collect()).await;
}
