//! Taking jobs in one call, as over HTTP: wait for what comes, and then let go. What was picked for a call is handed out by it, even
//! if its claim outlasts the wait: taken back, it would have cost an attempt, and a call that does not wait would never get any.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewheel_core::job::Job;
use tidewheel_core::limits::SECOND_MS;
use tidewheel_store::Error;

use super::ready::TakeReply;
use super::scheduler::Message;
use super::{Engine, Tenants};

/// How long a claim that is under way when the wait is over is waited for. Were it to come later, it is taken back.
const CLAIM_MS_MAX: i64 = 10 * SECOND_MS;
/// How long a call waits at least where other nodes may have the jobs: they have to hear of it, and to answer.
const PEERS_WAIT_MS: i64 = 500;

/// A worker's wish for jobs of a queue.
#[derive(Debug, Clone)]
pub struct Take {
    /// Whose jobs.
    pub tenants: Tenants,
    /// Of which queue.
    pub queue: Arc<str>,
    /// Of which types; none means every type.
    pub kinds: Vec<Arc<str>>,
    /// For whom.
    pub worker: Arc<str>,
    /// How many at most.
    pub count_max: usize,
    /// How long to wait for the first.
    pub wait_ms: i64,
    /// How long the worker has until it must be heard of again.
    pub lease_ms: i64,
}

impl Engine {
    /// Waits for jobs of a queue, claims them and returns them running; empty when the wait is over and there are none.
    /// Without a wait, what is ready now is claimed.
    ///
    /// # Errors
    /// [`Error::Closed`] once the engine stops: at once, whatever the wait, because an empty answer would only be
    /// asked for again. For the same reason [`Error::Poisoned`] once the store takes nothing any more; other failures of the
    /// store as they are met.
    pub async fn take(&self, take: Take) -> Result<Vec<Arc<Job>>, Error> {
        let shared = &self.shared;
        if let Some(error) = shared.poisoned.get() {
            return Err(error.clone());
        }
        let has_peers = shared.peers_count.load(Ordering::SeqCst) > 0;
        let wait_ms = if has_peers { take.wait_ms.max(PEERS_WAIT_MS) } else { take.wait_ms };
        let ticket = shared.tickets.fetch_add(1, Ordering::SeqCst);
        let (reply, withdrawal, mut answer) = TakeReply::new(ticket);
        shared.tell(Message::Take { take, reply });
        tokio::select! {
            biased;
            jobs = &mut answer => return jobs.unwrap_or(Err(Error::Closed)),
            () = shared.clock.sleep(millis(wait_ms)) => {}
        }
        withdrawal.store(true, Ordering::SeqCst);
        shared.tell(Message::Withdraw { ticket });
        tokio::select! {
            biased;
            jobs = &mut answer => return jobs.unwrap_or(Err(Error::Closed)),
            () = shared.clock.sleep(millis(CLAIM_MS_MAX)) => {}
        }
        // What is sent from here on the scheduler takes back itself, because closing makes its send fail. What it sent before
        // is ours.
        answer.close();
        answer.try_recv().unwrap_or_else(|_| Ok(Vec::new()))
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
