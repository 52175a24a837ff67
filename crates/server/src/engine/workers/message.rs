//! What passes between a worker's stream and the scheduler.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Token};
use tidewheel_core::names::Tenant;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{SessionId, Unsent, Whose, WorkerView};
use crate::engine::leases::Renewal;
use crate::engine::ready::Interest;

/// What a worker wants.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// For whom its stream acts.
    pub tenant: Tenant,
    /// Its name.
    pub worker: Arc<str>,
    /// Queues it takes jobs of.
    pub queues: Vec<Arc<str>>,
    /// What of them it runs.
    pub interest: Interest,
    /// How long a job is safe from others.
    pub lease_ms: i64,
    /// Jobs it has room for.
    pub credits: usize,
    /// The session to go on with.
    pub resume: Option<Resume>,
    /// How often it will be heard of while it holds no job, if less often than usual.
    pub idle_heartbeat_ms: Option<i64>,
}

/// A session to go on with.
#[derive(Debug, Clone)]
pub struct Resume {
    /// Its secret.
    pub session: u128,
    /// What the worker still holds.
    pub holding: Vec<(JobId, Token)>,
}

/// The subscription holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The worker's public number.
    pub id: u64,
    /// What the session is resumed with.
    pub session: u128,
    /// It is the session that was to be resumed.
    pub resumed: bool,
    /// Silence after which the worker is taken for dead.
    pub dead_ms: i64,
    /// How long after a lost connection the session can be resumed.
    pub resume_ms: i64,
    /// The same silence while it holds no job.
    pub idle_dead_ms: i64,
}

/// Why a worker was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The server is stopping.
    Draining,
    /// There are as many workers as there may be.
    TooMany,
}

/// What a worker is told.
#[derive(Debug)]
pub enum Push {
    /// Jobs to run.
    Jobs {
        /// Which.
        jobs: Vec<Arc<Job>>,
        /// About how much they are in a message.
        bytes: usize,
    },
    /// An attempt to stop: it no longer counts.
    Stop(Stop),
    /// Jobs to hand back, if they have not started.
    TakeBack(Vec<(JobId, Token)>),
    /// The server is stopping.
    GoAway,
    /// Nothing was heard of it for too long.
    Silent,
    /// Its session goes on over another stream.
    Replaced,
}

/// An attempt to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Of which job.
    pub id: JobId,
    /// Which attempt.
    pub token: Token,
    /// Somebody called the job off; if not, it was not heard of in time.
    pub cancelled: bool,
}

/// The stream's end of a new subscription, as the scheduler keeps it.
#[derive(Debug)]
pub(in crate::engine) struct Opening {
    pub(in crate::engine) pushes: mpsc::UnboundedSender<Push>,
    pub(in crate::engine) unsent: Arc<Unsent>,
    pub(in crate::engine) heard_ms: Arc<AtomicI64>,
}

/// A subscription that was let in.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Opened {
    pub(in crate::engine) session: SessionId,
    /// Which of the session's streams, in turn, this is.
    pub(in crate::engine) stream: u64,
    pub(in crate::engine) welcome: Welcome,
}

/// Kept until the scheduler has heard a message, so that a worker is held up that says more than is heard.
pub(in crate::engine) type Hold = Option<Arc<OwnedSemaphorePermit>>;

/// What the scheduler hears of workers.
pub(in crate::engine) enum WorkerMessage {
    /// A worker wants in.
    Subscribe {
        subscription: Box<Subscription>,
        opening: Opening,
        reply: oneshot::Sender<Result<Opened, Refused>>,
    },
    /// It has room for more.
    AddCredits { session: SessionId, credits: usize },
    /// It reads on.
    ReadsOn { session: SessionId },
    /// Handlers have started.
    Started { session: SessionId, jobs: Vec<(JobId, Token)> },
    /// It wants no more.
    Drain { session: SessionId },
    /// It starts nothing more.
    HandsBack { session: SessionId },
    /// It reported of jobs, which are now so. What it said of these attempts was refused.
    Reported { session: SessionId, jobs: Vec<(Arc<Job>, Option<Renewal>)>, refused: Vec<(JobId, Token)> },
    /// Its stream is gone. These jobs were never sent.
    Disconnected { session: SessionId, stream: u64, unsent: Vec<(JobId, Token)> },
    /// Somebody asks who is connected that works for a tenant.
    List { whose: Whose, after: u64, count_max: usize, reply: oneshot::Sender<Vec<WorkerView>> },
}
