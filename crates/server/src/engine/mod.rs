//! The stages a job passes through after it is stored, in a straight line:
//!
//! ```text
//!  store ─► scan ─► wheel ─► lanes ─► claim ─► deliver ─► outcomes ─► store
//!           (which  └──── ready ────┘ (durable, (push, or  (batched;
//!            part to  (bounded)       fenced)    a taker)   a retry is a new timer)
//!            read)
//! ```
//!
//! One task, the `scheduler`, owns everything in memory and takes no lock; reads, claims and outcomes are
//! batches that run beside it and report back. [`Engine`] is the handle the rest of the server holds.

mod claims;
mod config;
mod deliver;
mod demands;
mod endings;
mod governor;
mod handed;
mod host_limits;
mod host_rates;
mod leases;
mod listing;
mod outcomes;
mod ownership;
mod peers;
mod placement;
mod ready;
mod receipts;
mod recheck;
mod relay;
mod repair;
mod scan;
mod scheduler;
mod schedules;
mod sent_bytes;
mod set_back;
mod spread;
mod take;
mod target_answers;
mod territory;
mod tidings;
mod turns;
mod whereabouts;
mod workers;
mod zoning;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, State};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_store::{
    Applied, Error, Held, News, NodeCard, OnConflict, Order, Refusal, Store, Submission, Submitted,
};
use tokio::sync::{mpsc, oneshot, watch};

pub use config::{Config, FairBy};
pub use deliver::{Deliver, Report, Reports};
pub use host_limits::{HostLimits, WrittenLimit};
pub use host_rates::{HostRate, HostRates, WrittenRate};
pub(crate) use ready::origin_of;
pub use ready::{Allotment, BreakerView, Interest, LaneView, Tenants};
pub(crate) use spread::sub_shards;
pub use take::Take;
pub use tidings::Tiding;
pub use whereabouts::Whereabouts;
pub use workers::{Push, Pushes, Refused, Resume, Stop, Subscription, Welcome, WorkerLink, WorkerView};

use crate::clock::Clock;
use crate::metrics::{Endings, Metrics};
use crate::random::Random;
use crate::traces::Traces;
use endings::Ends;
use leases::Renewal;
use ownership::Ownership;
use scheduler::{Message, Scheduler};
pub(crate) use sent_bytes::sent_bytes;
use set_back::SetBack;
use territory::Territory;
use tidings::Tidings;

/// What the engine is made of.
#[expect(missing_debug_implementations, reason = "made of trait objects")]
pub struct Parts {
    /// Where jobs are kept.
    pub store: Arc<dyn Store>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Ids and jitter.
    pub random: Arc<dyn Random>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Who delivers pushed jobs.
    pub deliverer: Arc<dyn Deliver>,
    /// The rules of time zones: those the store goes by.
    pub zones: Zones,
}

/// What the engine's tasks share.
struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: Arc<Metrics>,
    traces: Traces,
    /// The rules of time zones: those the store goes by.
    zones: Zones,
    started_at: Timestamp,
    /// What it serves.
    territory: Territory,
    /// Who it is among the nodes that share the store.
    node: Option<NodeCard>,
    /// News for other nodes.
    relay: Option<mpsc::Sender<News>>,
    /// Other nodes that are alive.
    peers_count: AtomicUsize,
    /// What is asked for of limits that the nodes share.
    demands: demands::Demands,
    /// Says to leave the cluster.
    leave: Mutex<Option<oneshot::Sender<oneshot::Sender<()>>>>,
    stopping: watch::Sender<bool>,
    /// How long the oldest due job has waited for room in memory.
    lag_ms: AtomicI64,
    messages: mpsc::UnboundedSender<Message>,
    /// Numbers those who ask for jobs once.
    tickets: AtomicU64,
    /// Jobs on their way to the scheduler as hints.
    hinted: AtomicUsize,
    /// Everything due up to here has been asked of the store; what is stored later must be announced.
    horizon_ms: AtomicI64,
    /// Buckets up to here have been opened; what is stored beyond needs no announcement.
    opened_ms: AtomicI64,
    /// A hint was dropped for want of room: read everything due again.
    hint_lost: AtomicBool,
    /// The wall clock was set back.
    set_back: Arc<SetBack>,
    draining: AtomicBool,
    /// Why the store takes nothing any more until a restart.
    poisoned: OnceLock<Error>,
    /// Targets whose failures are remembered: while there are none, nobody needs to hear of success.
    watched_targets: AtomicUsize,
    tidings: Tidings,
}

impl Shared {
    fn tell(&self, message: Message) {
        // Fails only once the scheduler has stopped, and then nobody needs to know.
        drop(self.messages.send(message));
    }

    /// Remembers that a write failed for good, so that nobody waits for what cannot be claimed.
    fn note_poison(&self, error: &Error) {
        if matches!(error, Error::Poisoned(_)) {
            // The first is enough.
            drop(self.poisoned.set(error.clone()));
        }
    }

    /// A write that failed may have taken effect. What is in a database that is away is read when it is back: until then, reading
    /// the others again and again would be all that comes of it.
    fn may_have_missed(&self) {
        if self.store.databases().iter().all(|database| database.is_reachable) {
            self.hint_lost.store(true, Ordering::SeqCst);
        }
    }
}

/// How long looking through all schedules for another time zone database may take.
const ZONES_MS: i64 = tidewheel_core::limits::MINUTE_MS;
/// Jobs that may be on their way to the scheduler at once; the rest it reads from the store.
const HINTS_COUNT_MAX: usize = 50_000;

/// The handle of a running engine. Cheap to clone.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "made of trait objects")]
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    /// Starts the engine's tasks on the current runtime.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn start(parts: Parts, config: Config) -> Result<Self, Error> {
        Self::open(parts, config, None).await
    }

    /// Starts the engine's tasks as one of several nodes that share the store.
    ///
    /// # Errors
    /// When the store cannot be read or written, or knows of no leases.
    pub async fn join(parts: Parts, config: Config, card: NodeCard) -> Result<Self, Error> {
        if parts.store.leases().is_none() {
            return Err(Error::Unavailable("this store is for one process alone".to_owned()));
        }
        Self::open(parts, config, Some(card)).await
    }

    async fn open(parts: Parts, config: Config, node: Option<NodeCard>) -> Result<Self, Error> {
        if let Some(leases) = parts.store.leases().filter(|_| node.is_some()) {
            ownership::follow_store_time(leases, &*parts.clock).await?;
        }
        let (messages, inbox) = mpsc::unbounded_channel();
        let (reports, reported) = mpsc::unbounded_channel();
        let (relay, news) = mpsc::channel(relay::QUEUE_COUNT_MAX);
        let (leave, told_to_leave) = oneshot::channel();
        let shared = Arc::new(Shared {
            territory: Territory::new(parts.store.layout().shards, node.is_some()),
            relay: node.as_ref().map(|_| relay),
            peers_count: AtomicUsize::new(0),
            demands: demands::Demands::default(),
            leave: Mutex::new(node.as_ref().map(|_| leave)),
            node: node.clone(),
            stopping: watch::Sender::new(false),
            store: parts.store,
            started_at: parts.clock.now(),
            clock: parts.clock,
            random: parts.random,
            metrics: parts.metrics,
            traces: config.traces.clone(),
            zones: parts.zones,
            lag_ms: AtomicI64::new(0),
            messages,
            tickets: AtomicU64::new(0),
            hinted: AtomicUsize::new(0),
            horizon_ms: AtomicI64::new(i64::MIN),
            opened_ms: AtomicI64::new(i64::MIN),
            hint_lost: AtomicBool::new(false),
            set_back: Arc::default(),
            draining: AtomicBool::new(false),
            poisoned: OnceLock::new(),
            watched_targets: AtomicUsize::new(0),
            tidings: Tidings::default(),
        });
        if shared.is_appointed("zones", ZONES_MS).await {
            zoning::bring_in_line(&shared).await?;
        }
        let scheduler =
            Scheduler::open(Arc::clone(&shared), config, parts.deliverer, Reports(reports)).await?;
        // First, since it can fail, and then nothing of the engine is to be left behind.
        let ownerships = match node {
            Some(card) => Some(Ownership::join(&shared, &card).await?),
            None => None,
        };
        tokio::spawn(outcomes::run(Arc::clone(&shared), reported));
        tokio::spawn(scheduler.run(inbox));
        tokio::spawn(repair::run(Arc::downgrade(&shared)));
        if let Some(ownerships) = ownerships {
            tokio::spawn(relay::send(Arc::clone(&shared), news));
            tokio::spawn(relay::receive(Arc::clone(&shared)));
            tokio::spawn(demands::run(Arc::downgrade(&shared)));
            tokio::spawn(Ownership::run_all(ownerships, told_to_leave));
        }
        Ok(Self { shared })
    }

    /// Where jobs are kept.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// What time it is.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Ids and jitter.
    #[must_use]
    pub fn random(&self) -> &Arc<dyn Random> {
        &self.shared.random
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// Who is told what jobs go through.
    #[must_use]
    pub fn traces(&self) -> &Traces {
        &self.shared.traces
    }

    /// The rules of time zones.
    #[must_use]
    pub fn zones(&self) -> &Zones {
        &self.shared.zones
    }

    /// When it was started.
    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        self.shared.started_at
    }

    /// The shards it serves, and since which epochs.
    #[must_use]
    pub fn held(&self) -> Vec<Held> {
        self.shared.territory.held()
    }

    /// Who it is among the nodes that share its store; none where it has that to itself.
    #[must_use]
    pub fn node(&self) -> Option<&NodeCard> {
        self.shared.node.as_ref()
    }

    /// How long the oldest due job has waited for room in memory; measured about once a second.
    #[must_use]
    pub fn lag_ms(&self) -> i64 {
        self.shared.lag_ms.load(Ordering::SeqCst)
    }

    /// Stores jobs, then tells the scheduler about those that are near.
    ///
    /// # Errors
    /// When the store fails; then none is known to be stored.
    pub async fn submit(
        &self,
        jobs: Vec<Submission>,
        on_conflict: OnConflict,
    ) -> Result<Vec<Submitted>, Error> {
        let shared = &self.shared;
        // Jobs far ahead need no copy here: their bucket will be opened in time.
        let opened =
            shared.opened_ms.load(Ordering::SeqCst).saturating_add(tidewheel_core::limits::BUCKET_MS);
        let near: Vec<(usize, Arc<Job>)> = jobs
            .iter()
            .enumerate()
            .filter(|(_, submission)| submission.job.status.due_at.as_ms() < opened)
            .map(|(index, submission)| (index, Arc::new(submission.job.clone())))
            .collect();
        let count = jobs.len();
        let tenant = jobs.first().map(|submission| submission.job.tenant.clone());
        let spans = shared.traces.submitting(&jobs);
        let answers = shared.store.submit(shared.clock.now(), jobs, on_conflict).await;
        let answers = answers.inspect_err(|error| self.may_have_missed(error))?;
        if shared.opened_ms.load(Ordering::SeqCst) > opened {
            // More was opened meanwhile than is covered by the copies made: the wall clock was set ahead.
            shared.hint_lost.store(true, Ordering::SeqCst);
        }
        let stored = |index: usize| answers.get(index) == Some(&Submitted::New);
        let kept_none = on_conflict == OnConflict::KeepNone
            && answers.iter().any(|a| matches!(a, Submitted::Conflict(_)));
        if !kept_none {
            let new = answers.iter().filter(|answer| **answer == Submitted::New).count();
            shared.metrics.submitted(tenant.as_ref(), new, count - new);
            let spans = spans.into_iter().filter(|(index, _)| stored(*index)).map(|(_, span)| span);
            shared.traces.submitted(spans, shared.clock.now());
            self.hint(near.into_iter().filter(|(index, _)| stored(*index)).map(|(_, job)| job).collect());
        }
        Ok(answers)
    }

    /// A write that failed may have taken effect all the same, and then nobody announces what it stored.
    fn may_have_missed(&self, error: &Error) {
        self.shared.note_poison(error);
        if error.is_retryable() {
            self.shared.may_have_missed();
        }
    }

    fn hint(&self, mut jobs: Vec<Arc<Job>>) {
        let shared = &self.shared;
        if shared.territory.is_shared() {
            let others = jobs.extract_if(.., |job| !shared.territory.holds_job(job));
            shared.pass_on_due(others.map(|job| (shared.territory.place_of(&job), job.status.due_at)));
        }
        let opened = shared.opened_ms.load(Ordering::SeqCst);
        jobs.retain(|job| job.status.due_at.as_ms() < opened);
        if jobs.is_empty() {
            return;
        }
        let queued = shared.hinted.fetch_add(jobs.len(), Ordering::SeqCst);
        if queued > HINTS_COUNT_MAX {
            shared.hinted.fetch_sub(jobs.len(), Ordering::SeqCst);
            shared.hint_lost.store(true, Ordering::SeqCst);
            return;
        }
        shared.tell(Message::Waiting(jobs));
    }

    /// Goes by these weights and caps from now on, and by what is usual for every other tenant.
    pub fn allot(&self, all: Vec<Allotment>) {
        self.shared.tell(Message::Allot(all));
    }

    /// Applies users' and workers' commands, then tells the scheduler.
    ///
    /// # Errors
    /// When the store fails; repeating the same orders is safe.
    pub async fn command(&self, orders: Vec<Order>) -> Result<Vec<Result<Applied, Refusal>>, Error> {
        let shared = &self.shared;
        let is_cancel = orders.iter().any(|order| matches!(order.command, Command::Cancel));
        let about: Vec<_> =
            orders.iter().map(|order| (Ends::of(&order.command), Renewal::of(&order.command))).collect();
        let results = shared.store.apply(shared.clock.now(), None, orders).await;
        let results = results.inspect_err(|error| self.may_have_missed(error))?;
        if results.iter().any(|result| matches!(result, Err(Refusal::Away))) {
            shared.may_have_missed();
        }
        let (mut changed, mut renewed) = (Vec::new(), Vec::new());
        let mut endings = Endings::default();
        for (result, (ends, renewal)) in results.iter().zip(about) {
            if let Ok(applied) = result {
                if let Some(by) = renewal {
                    renewed.push((applied.job.clone(), by));
                    continue;
                }
                if ends.attempt_of(applied) {
                    shared.attempt_ended(&applied.job, &mut endings);
                }
                // Also what was so already: the answer that told of the change may have been lost.
                changed.push(Arc::clone(&applied.job));
                changed.extend(applied.beside());
            }
        }
        shared.metrics.ended(&endings);
        if !renewed.is_empty() {
            shared.tell(Message::Renewed(renewed));
        }
        if !changed.is_empty() {
            let (done, seen) = oneshot::channel();
            shared.tell(Message::Changed { jobs: changed, done });
            // An acknowledged cancel means no later start, so the scheduler must have heard of it.
            if is_cancel {
                drop(seen.await);
            }
        }
        Ok(results)
    }

    /// Whether the server is stopping.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::SeqCst)
    }

    /// Stops promoting and claiming, waits for deliveries under way, at most that long, and notes the cursors.
    /// Returns how many deliveries were left.
    pub async fn drain(&self, deadline: Duration) -> usize {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.shared.want_nothing().await;
        self.leave().await;
        self.shared.stopping.send_replace(true);
        let (reply, mut answer) = oneshot::channel();
        self.shared.tell(Message::Drain { reply });
        tokio::select! {
            biased;
            left = &mut answer => return left.unwrap_or(0),
            () = self.shared.clock.sleep(deadline) => {}
        }
        let (reply, answer) = oneshot::channel();
        self.shared.tell(Message::Stop { reply });
        answer.await.unwrap_or(0)
    }
}

impl Engine {
    /// Hands its shards to the other nodes; those go on at once.
    async fn leave(&self) {
        let leave = self.shared.leave.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (done, left) = oneshot::channel();
        if leave.is_some_and(|leave| leave.send(done).is_ok()) {
            drop(left.await);
        }
    }
}

/// Whether a job waits for its time.
const fn is_waiting(job: &Job) -> bool {
    matches!(job.status.state, State::Scheduled | State::Retrying)
}

/// The instant a job's lateness is counted from: its time, or its arrival if that was later.
fn expected_start(job: &Job) -> Timestamp {
    job.status.due_at.max(job.spec.created_at)
}

/// Names a job in a log line.
fn named(id: &JobId) -> tracing::field::DisplayValue<&JobId> {
    tracing::field::display(id)
}
