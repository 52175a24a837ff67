//! A worker's side of its session: what its stream calls, and what it hears.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use tidewheel_core::id::JobId;
use tidewheel_core::job::Token;
use tidewheel_core::names::Tenant;
use tidewheel_store::{Applied, Error, Order, Refusal};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    Hold, Opening, Push, Refused, SessionId, Subscription, Unsent, Welcome, Whose, WorkerMessage, WorkerView,
};
use crate::engine::endings::Ends;
use crate::engine::leases::Renewal;
use crate::engine::scheduler::Message;
use crate::engine::{Engine, Shared, outcomes};
use crate::metrics::Endings;

/// What a worker's stream calls. Cheap to clone.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "made of trait objects")]
pub struct WorkerLink {
    shared: Arc<Shared>,
    session: SessionId,
    heard_ms: Arc<AtomicI64>,
    hold: Hold,
}

/// What a worker's stream hears. Dropping it ends the connection.
#[expect(missing_debug_implementations, reason = "made of trait objects")]
pub struct Pushes {
    shared: Arc<Shared>,
    session: SessionId,
    stream: u64,
    unsent: Arc<Unsent>,
    pushes: mpsc::UnboundedReceiver<Push>,
}

impl Engine {
    /// Lets a worker in.
    ///
    /// # Errors
    /// When the server stops or has too many already.
    pub async fn connect_worker(
        &self,
        subscription: Subscription,
    ) -> Result<(Welcome, WorkerLink, Pushes), Refused> {
        let shared = Arc::clone(&self.shared);
        let (sender, pushes) = mpsc::unbounded_channel();
        let (reply, answer) = oneshot::channel();
        let unsent = Arc::new(Unsent::default());
        let heard_ms = Arc::new(AtomicI64::new(shared.clock.monotonic_ms()));
        let opening =
            Opening { pushes: sender, unsent: Arc::clone(&unsent), heard_ms: Arc::clone(&heard_ms) };
        let subscription = Box::new(subscription);
        shared.tell(Message::Worker(WorkerMessage::Subscribe { subscription, opening, reply }, None));
        let opened = answer.await.unwrap_or(Err(Refused::Draining))?;
        let (session, stream) = (opened.session, opened.stream);
        let link = WorkerLink { shared: Arc::clone(&shared), session, heard_ms, hold: None };
        Ok((opened.welcome, link, Pushes { shared, session, stream, unsent, pushes }))
    }

    /// Connected workers that work for a tenant, those after a place in the list, at most so many.
    pub async fn workers(&self, tenant: Tenant, after: u64, count_max: usize) -> Vec<WorkerView> {
        self.list_workers(Whose::Serving(tenant), after, count_max).await
    }

    /// Those of them that work for nobody else.
    pub async fn own_workers(&self, tenant: Tenant, after: u64, count_max: usize) -> Vec<WorkerView> {
        self.list_workers(Whose::Own(tenant), after, count_max).await
    }

    async fn list_workers(&self, whose: Whose, after: u64, count_max: usize) -> Vec<WorkerView> {
        let (reply, answer) = oneshot::channel();
        self.shared.tell(Message::Worker(WorkerMessage::List { whose, after, count_max, reply }, None));
        answer.await.unwrap_or_default()
    }
}

impl WorkerLink {
    /// The same, for one message: what is held is let go when the scheduler has heard it.
    #[must_use]
    pub fn holding(&self, hold: Arc<OwnedSemaphorePermit>) -> Self {
        Self { hold: Some(hold), ..self.clone() }
    }

    /// The worker said something.
    pub fn heard(&self) {
        self.heard_ms.store(self.shared.clock.monotonic_ms(), Ordering::Relaxed);
    }

    /// It has room for so many more.
    pub fn add_credits(&self, credits: usize) {
        self.tell(WorkerMessage::AddCredits { session: self.session, credits });
    }

    /// Its handlers of these attempts have started.
    pub fn started(&self, jobs: Vec<(JobId, Token)>) {
        self.tell(WorkerMessage::Started { session: self.session, jobs });
    }

    /// It wants no more jobs.
    pub fn drain(&self) {
        self.tell(WorkerMessage::Drain { session: self.session });
    }

    /// It starts nothing more: what it has not said to have started is for others. To be called once all that it said
    /// before is stored, for an outcome says that its job has started.
    pub fn hand_back(&self) {
        self.tell(WorkerMessage::HandsBack { session: self.session });
    }

    /// Applies what it says of its attempts, and answers in that order.
    ///
    /// # Errors
    /// When the store fails; saying the same again is safe.
    pub async fn report(&self, orders: Vec<Order>) -> Result<Vec<Result<Applied, Refusal>>, Error> {
        let shared = &self.shared;
        let about = |order: &Order| {
            let attempt = order.command.token().map(|token| (order.id, token));
            (Ends::of(&order.command), Renewal::of(&order.command), attempt)
        };
        let about: Vec<_> = orders.iter().map(about).collect();
        let is_spread = shared.store.databases().len() > 1;
        let said = if is_spread { orders.clone() } else { Vec::new() };
        let results = match shared.store.apply(shared.clock.now(), None, orders).await {
            // One of several databases is away: no reason to end the stream of a worker that has jobs of the others, too.
            Err(error) if is_spread && error.is_retryable() => vec![Err(Refusal::Away); said.len()],
            results => results.inspect_err(|error| {
                shared.note_poison(error);
                if error.is_retryable() {
                    shared.may_have_missed();
                }
            })?,
        };
        self.keep(said.into_iter().zip(&results));
        let (mut jobs, mut refused) = (Vec::with_capacity(results.len()), Vec::new());
        let mut endings = Endings::default();
        for (result, (ends, renewal, attempt)) in results.iter().zip(about) {
            match result {
                Ok(applied) => {
                    if ends.attempt_of(applied) {
                        shared.attempt_ended(&applied.job, &mut endings);
                    }
                    jobs.push((Arc::clone(&applied.job), renewal));
                }
                Err(Refusal::Away | Refusal::Unreadable) => {}
                Err(_) => refused.extend(attempt),
            }
        }
        shared.metrics.ended(&endings);
        self.tell(WorkerMessage::Reported { session: self.session, jobs, refused });
        // What workers say claims nothing, so no schedule goes on by it but at the end of a job.
        shared.tell_changed(results.iter().flatten().flat_map(|applied| &applied.others));
        Ok(results)
    }

    /// Sees to it that outcomes are written whose database is away.
    fn keep<'r>(&self, said: impl Iterator<Item = (Order, &'r Result<Applied, Refusal>)>) {
        let unwritten =
            said.filter(|(_, result)| matches!(result, Err(Refusal::Away))).map(|(order, _)| order);
        outcomes::keep(
            &self.shared,
            unwritten.filter(|order| Ends::of(&order.command) == Ends::Always).collect(),
        );
    }

    fn tell(&self, message: WorkerMessage) {
        self.shared.tell(Message::Worker(message, self.hold.clone()));
    }
}

impl Pushes {
    /// What comes next; `None` when the server is gone.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Push>> {
        let polled = self.pushes.poll_recv(context);
        if let Poll::Ready(Some(Push::Jobs { bytes, .. })) = &polled
            && self.unsent.sent(*bytes)
        {
            self.shared.tell(Message::Worker(WorkerMessage::ReadsOn { session: self.session }, None));
        }
        polled
    }
}

impl Drop for Pushes {
    fn drop(&mut self) {
        self.pushes.close();
        let mut unsent = Vec::new();
        while let Ok(push) = self.pushes.try_recv() {
            if let Push::Jobs { jobs, .. } = push {
                unsent.extend(jobs.iter().map(|job| (job.id, job.status.token)));
            }
        }
        let (session, stream) = (self.session, self.stream);
        self.shared.tell(Message::Worker(WorkerMessage::Disconnected { session, stream, unsent }, None));
    }
}
