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

use super::peers::PeerMessage;
use super::receipts::{Attempt, Once};
use super::scheduler::Message;
use super::{Shared, outcomes};

/// News of attempts that wait to be read; what is more is as if it had been lost.
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
    pub(super) start_by_ms: i64,
    pub(super) jobs: Vec<Attempt>,
}

/// Runs until nobody hears news any more.
pub(super) async fn run(shared: Arc<Shared>, mut queue: mpsc::Receiver<Handed>) {
    let mut once = Once::default();
    while let Some(mut handed) = queue.recv().await {
        once.sift(&mut handed.jobs, handed.start_by_ms, shared.clock.monotonic_ms());
        if handed.jobs.is_empty() {
            continue;
        }
        let jobs = read(&shared, handed.jobs).await;
        let Handed { from, number, start_by_ms, .. } = handed;
        shared.tell(Message::Peer(PeerMessage::Handed { from, number, start_by_ms, jobs }));
    }
}

/// Those of the attempts that are still under way.
async fn read(shared: &Arc<Shared>, attempts: Vec<Attempt>) -> Vec<Arc<Job>> {
    let keys = attempts.iter().map(|(tenant, id, _)| (tenant.clone(), *id)).collect();
    let asked_ms = shared.clock.monotonic_ms();
    let found = shared.store.get_each(shared.clock.now(), keys).await;
    if let Ok(found) = found
        && shared.clock.monotonic_ms().saturating_sub(asked_ms) <= ANSWER_MS_MAX
    {
        return under_way(found, attempts.into_iter().map(|(_, _, token)| token));
    }
    // Side by side: the database of one may be away.
    let mut tenants: BTreeMap<Tenant, Vec<(JobId, Token)>> = BTreeMap::new();
    for (tenant, id, token) in attempts {
        tenants.entry(tenant).or_default().push((id, token));
    }
    let reads = tenants.into_iter().map(|(tenant, attempts)| read_of(shared, tenant, attempts));
    join_all(reads).await.into_iter().flatten().collect()
}

fn under_way(found: Vec<Option<Job>>, tokens: impl Iterator<Item = Token>) -> Vec<Arc<Job>> {
    let is_it = |job: &Job, token| job.status.running.is_some() && job.status.token == token;
    let pairs = found.into_iter().zip(tokens);
    pairs.filter_map(|(job, token)| job.filter(|job| is_it(job, token)).map(Arc::new)).collect()
}

/// Those of a tenant's attempts that are still under way.
async fn read_of(shared: &Arc<Shared>, tenant: Tenant, attempts: Vec<(JobId, Token)>) -> Vec<Arc<Job>> {
    let ids: Vec<JobId> = attempts.iter().map(|(id, _)| *id).collect();
    for _ in 0..TRIES_MAX {
        let asked_ms = shared.clock.monotonic_ms();
        match shared.store.get(&tenant, ids.clone()).await {
            Ok(_) if shared.clock.monotonic_ms().saturating_sub(asked_ms) > ANSWER_MS_MAX => {}
            Ok(found) => return under_way(found, attempts.into_iter().map(|(_, token)| token)),
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

/// Hands attempts back that are known never to reach a worker, at no cost.
pub(super) async fn give_back(shared: &Shared, jobs: Vec<Attempt>) {
    let order = |(tenant, id, token)| Order { tenant, id, command: Command::Release { token }, key: None };
    outcomes::write(shared, jobs.into_iter().map(order).collect()).await;
}
