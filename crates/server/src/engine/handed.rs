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
use super::recheck::get_readable;
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

/// Those of a tenant's attempts that are still under way. What could not be read is handed back.
async fn read_of(shared: &Arc<Shared>, tenant: Tenant, attempts: Vec<(JobId, Token)>) -> Vec<Arc<Job>> {
    let ids: Vec<JobId> = attempts.iter().map(|(id, _)| *id).collect();
    let found = look_up(shared, &tenant, &ids).await.unwrap_or_else(|| vec![None; ids.len()]);
    let unread = found.iter().zip(&attempts).filter(|(job, _)| job.is_none());
    let unread: Vec<Attempt> = unread.map(|(_, (id, token))| (tenant.clone(), *id, *token)).collect();
    if !unread.is_empty() {
        let count = unread.len();
        tracing::debug!(%tenant, count, "attempts handed on by another node could not be read");
        let shared = Arc::clone(shared);
        tokio::spawn(async move { give_back(&shared, unread).await });
    }
    under_way(found, attempts.into_iter().map(|(_, token)| token))
}

/// A tenant's jobs as they are now; none if the store does not say so in time.
async fn look_up(shared: &Shared, tenant: &Tenant, ids: &[JobId]) -> Option<Vec<Option<Job>>> {
    for _ in 0..TRIES_MAX {
        let asked_ms = shared.clock.monotonic_ms();
        match get_readable(&*shared.store, tenant, ids.to_vec()).await {
            Ok(_) if shared.clock.monotonic_ms().saturating_sub(asked_ms) > ANSWER_MS_MAX => {}
            Ok(found) => return Some(found),
            Err(error) if error.is_retryable() => {
                shared.clock.sleep(Duration::from_millis(RETRY_WAIT_MS)).await;
            }
            Err(_) => return None,
        }
    }
    None
}

/// Hands attempts back that are known never to reach a worker, at no cost.
pub(super) async fn give_back(shared: &Shared, jobs: Vec<Attempt>) {
    let order = |(tenant, id, token)| Order { tenant, id, command: Command::Release { token }, key: None };
    outcomes::write(shared, jobs.into_iter().map(order).collect()).await;
}
