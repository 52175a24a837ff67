//! Taking jobs in one call, as over HTTP: wait for what comes, and then let go. What was picked for a call is handed out by it, even
//! if its claim outlasts the wait: taken back, it would have cost an attempt, and a call that does not wait would never get any.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewheel_core::job::Job;
use tidewheel_core::limits::SECOND_MS;
use tidewheel_store::{Error, Health};
use tokio::sync::oneshot;

use super::ready::{Leave, TakeReply, Ticket};
use super::scheduler::Message;
use super::{Engine, Shared, Tenants};

/// How long a claim that is under way when the wait is over is waited for. Were it to come later, it is taken back.
const CLAIM_MS_MAX: i64 = 10 * SECOND_MS;
/// How long a call waits at least where other nodes may have the jobs: they have to hear of it, and to answer.
const PEERS_WAIT_MS: i64 = 500;
/// How long it waits on after they are told that it wants nothing more. Until they hear that, they start attempts for it; were
/// it gone when these arrive, they would have been started for nobody.
const ON_THE_WAY_MS: i64 = 250;

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
    /// asked for again. For the same reason [`Error::Poisoned`] once the store takes nothing any more. [`Error::Unavailable`] in
    /// place of an empty answer while the whole store is away; other failures of the store as they are met.
    pub async fn take(&self, take: Take) -> Result<Vec<Arc<Job>>, Error> {
        let shared = &self.shared;
        if let Some(error) = shared.poisoned.get() {
            return Err(error.clone());
        }
        let has_peers = shared.peers_count.load(Ordering::SeqCst) > 0;
        let wait_ms = if has_peers { take.wait_ms.max(PEERS_WAIT_MS) } else { take.wait_ms };
        let ticket = shared.tickets.fetch_add(1, Ordering::SeqCst);
        let (reply, leave, answer) = TakeReply::new(ticket);
        shared.tell(Message::Take { take, reply });
        let mut call = Call { shared, ticket, has_peers, is_over: false };
        let taken = call.wait(answer, wait_ms, &leave).await;
        call.is_over = true;
        let jobs = taken?;
        if !jobs.is_empty() {
            return Ok(jobs);
        }
        match shared.store.health() {
            // Nobody can know whether there are any.
            Health::Away(reason) => Err(Error::Unavailable(reason)),
            Health::Ready | Health::Full(_) | Health::ReadOnly(_) => Ok(jobs),
        }
    }
}

/// What comes of asking.
type Taken = Result<Vec<Arc<Job>>, Error>;

/// A call that waits. If it is given up before its end, because its caller has hung up, nothing more is to be claimed for it.
struct Call<'a> {
    shared: &'a Shared,
    ticket: Ticket,
    has_peers: bool,
    is_over: bool,
}

impl Call<'_> {
    async fn wait(&self, mut answer: oneshot::Receiver<Taken>, wait_ms: i64, leave: &Leave) -> Taken {
        let ticket = self.ticket;
        if let Some(taken) = self.answered(&mut answer, wait_ms).await {
            return taken;
        }
        if self.has_peers {
            leave.is_near.store(true, Ordering::SeqCst);
            self.shared.tell(Message::Retract { ticket });
            if let Some(taken) = self.answered(&mut answer, ON_THE_WAY_MS).await {
                return taken;
            }
        }
        leave.is_over.store(true, Ordering::SeqCst);
        self.shared.tell(Message::Withdraw { ticket });
        if let Some(taken) = self.answered(&mut answer, CLAIM_MS_MAX).await {
            return taken;
        }
        // What is sent from here on the scheduler takes back itself, because closing makes its send fail. What it sent before
        // is ours.
        answer.close();
        answer.try_recv().unwrap_or_else(|_| Ok(Vec::new()))
    }

    /// The answer, if it comes within that time.
    async fn answered(&self, answer: &mut oneshot::Receiver<Taken>, within_ms: i64) -> Option<Taken> {
        tokio::select! {
            biased;
            taken = answer => Some(taken.unwrap_or(Err(Error::Closed))),
            () = self.shared.clock.sleep(millis(within_ms)) => None,
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.tell(Message::Withdraw { ticket: self.ticket });
        }
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
