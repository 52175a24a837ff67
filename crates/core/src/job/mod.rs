//! A job: what was asked for ([`Spec`]), where it stands ([`Status`]), and the one function that moves it
//! ([`transition`]).
//!
//! ```text
//!  scheduled ──claim──► running ──succeed──► succeeded
//!      ▲  │                │ └──fail, out of attempts──► dead ──replay──► scheduled
//!      │  └─claim, too late─┼─► expired
//!      │                   └──fail, lease over, snooze──► retrying ──claim──► running
//!      └── rerun ── any end          cancel: from scheduled, running or retrying ──► cancelled
//! ```
//!
//! `ready` (due, not yet delivered) is derived from the clock and never stored.

mod command;
mod transition;

use std::sync::Arc;

use bytes::Bytes;

pub use command::{Command, Failure, Finding};
pub use transition::{Change, Rejection, transition};

use crate::id::JobId;
use crate::names::Tenant;
use crate::place::Position;
use crate::retry::RetryPolicy;
use crate::schedule::ScheduleId;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// One logical execution at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its id, which with the tenant is its whole key.
    pub id: JobId,
    /// Whose it is.
    pub tenant: Tenant,
    /// What was asked for.
    pub spec: Arc<Spec>,
    /// Where it stands.
    pub status: Status,
}

/// What was asked for. Changed only by a user's hand (a new priority, an edited replay).
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The job's type, which a worker or target knows how to handle.
    pub kind: Arc<str>,
    /// Opaque, kept byte for byte.
    pub payload: Bytes,
    /// Where it goes.
    pub destination: Destination,
    /// How urgent it is among what is due.
    pub priority: Priority,
    /// When to try again.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    pub timeout_ms: i64,
    /// When it is no longer worth starting.
    pub expires_at: Option<Timestamp>,
    /// The caller's key. Without one a schedule's job goes by its schedule and instant, any other by its id.
    pub idempotency_key: Option<Arc<str>>,
    /// The caller's labels, sorted by key.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// The schedule it came from.
    pub occurrence: Option<Occurrence>,
    /// The trace it was submitted in.
    pub trace: Option<Box<TraceContext>>,
    /// When it was taken in.
    pub created_at: Timestamp,
}

/// Where a job goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Waits for workers that pull from this queue.
    Queue(Arc<str>),
    /// Is pushed to this target.
    Target(Arc<Target>),
}

impl Destination {
    /// Whether the two are one and the same in memory. Others may be equal all the same.
    #[must_use]
    pub fn is_shared_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Queue(one), Self::Queue(another)) => Arc::ptr_eq(one, another),
            (Self::Target(one), Self::Target(another)) => Arc::ptr_eq(one, another),
            (Self::Queue(_), Self::Target(_)) | (Self::Target(_), Self::Queue(_)) => false,
        }
    }
}

/// An HTTP target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Absolute, `http` or `https`.
    pub url: Box<str>,
    /// The request's method.
    pub method: Box<str>,
    /// Headers the caller adds.
    pub headers: Vec<(Box<str>, Box<str>)>,
}

/// The schedule a job came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurrence {
    /// The schedule's id.
    pub schedule_id: ScheduleId,
    /// Its nominal time.
    pub fire_at: Timestamp,
    /// Fired late, to make up for a missed time.
    pub catch_up: bool,
}

/// Urgency among what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Priority {
    /// Before everything else.
    Critical,
    /// Before normal work.
    High,
    /// The usual.
    #[default]
    Normal,
    /// When there is room; never starved.
    Low,
}

impl Priority {
    /// All, most urgent first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    /// Its place in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    /// The priority of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.as_str() == name)
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// Waiting for its time.
    Scheduled,
    /// An attempt is under way.
    Running,
    /// Waiting for another attempt.
    Retrying,
    /// Done.
    Succeeded,
    /// Given up; kept until replayed or discarded.
    Dead,
    /// Called off.
    Cancelled,
    /// Not fired, by policy.
    Skipped,
    /// Its time was over before it could start.
    Expired,
}

impl State {
    /// All, in the order of a job's life.
    pub const ALL: [Self; 8] = [
        Self::Scheduled,
        Self::Running,
        Self::Retrying,
        Self::Succeeded,
        Self::Dead,
        Self::Cancelled,
        Self::Skipped,
        Self::Expired,
    ];

    /// Its place in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
            Self::Expired => "expired",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether nothing more happens by itself.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Running | Self::Retrying)
    }
}

/// Proof of the newest claim: rises with every attempt of a job, so whoever holds an older one is refused.
/// The owner's epoch stands above the attempt number; 53 bits in all, so it survives every JSON reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Token(u64);

const TOKEN_ATTEMPT_BITS: u32 = 20;

impl Token {
    /// The token of an attempt claimed under `epoch`.
    #[must_use]
    pub fn new(epoch: u64, attempt: u32) -> Self {
        Self((epoch << TOKEN_ATTEMPT_BITS) | u64::from(attempt))
    }

    /// A token as it came over the wire.
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// The token as it goes over the wire.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// Where a job stands, in full.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The state.
    pub state: State,
    /// When it starts next, or should have.
    pub due_at: Timestamp,
    /// Attempts started over its whole life.
    pub attempt: u32,
    /// Failures counted against the retry policy since it was last (re)started.
    pub failures: u32,
    /// Attempts lost to the server's own death since then.
    pub lost: u32,
    /// Token of the newest claim.
    pub token: Token,
    /// The attempt under way.
    pub running: Option<Running>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Ended attempts, oldest first, the newest few.
    pub attempts: Vec<Attempt>,
    /// Why it ended as it did, where the last attempt does not say it.
    pub reason: Option<Box<str>>,
}

/// An attempt under way.
#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    /// Who runs it.
    pub worker: Arc<str>,
    /// Since when.
    pub started_at: Timestamp,
    /// Until when it is safe from being given to another.
    pub lease_until: Timestamp,
    /// The runner reports by itself and outlives this server: its lease holds over a restart.
    pub detached: bool,
    /// What it last said of its progress, as JSON.
    pub progress: Option<Bytes>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ending {
    /// Did what it should.
    Succeeded,
    /// Reported a failure, or answered with one.
    Failed,
    /// Took too long.
    TimedOut,
    /// Was not heard of within its lease.
    LeaseExpired,
    /// Was under way when the server died, or its worker.
    Lost,
    /// Asked to be run later.
    Snoozed,
    /// Was called off.
    Cancelled,
    /// Was handed back before it started.
    Released,
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::LeaseExpired,
        Self::Lost,
        Self::Snoozed,
        Self::Cancelled,
        Self::Released,
    ];

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::LeaseExpired => "lease_expired",
            Self::Lost => "lost",
            Self::Snoozed => "snoozed",
            Self::Cancelled => "cancelled",
            Self::Released => "released",
        }
    }
}

/// An ended attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// Its token.
    pub token: Token,
    /// Who ran it.
    pub worker: Arc<str>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
    /// How it ended.
    pub ending: Ending,
    /// The target's answer, for a push.
    pub status_code: Option<u16>,
    /// An excerpt of the answer, the result or the error.
    pub detail: Box<str>,
}

impl Job {
    /// A new job, waiting for `run_at`.
    #[must_use]
    pub fn new(tenant: Tenant, spec: Spec, run_at: Timestamp, tail: u128) -> Self {
        Self::with_id(tenant, spec, JobId::new(run_at, tail))
    }

    /// The same, under an id that was made for it.
    #[must_use]
    pub fn with_id(tenant: Tenant, spec: Spec, id: JobId) -> Self {
        Self { id, tenant, spec: Arc::new(spec), status: Status::scheduled(id.run_at()) }
    }

    /// The same job without its payload, for those who keep many.
    #[must_use]
    pub fn without_payload(&self) -> Self {
        let mut job = self.clone();
        if !job.spec.payload.is_empty() {
            job.spec = Arc::new(Spec { payload: Bytes::new(), ..Spec::clone(&job.spec) });
        }
        job
    }

    /// The instant it is armed for, while it waits for one.
    #[must_use]
    pub const fn armed_at(&self) -> Option<Timestamp> {
        match self.status.state {
            State::Scheduled | State::Retrying => Some(self.status.due_at),
            State::Running
            | State::Succeeded
            | State::Dead
            | State::Cancelled
            | State::Skipped
            | State::Expired => None,
        }
    }

    /// Where it stands in its tenant's order.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position { at: self.status.due_at, id: self.id }
    }

    /// The key that is stable over all its attempts.
    #[must_use]
    pub fn run_key(&self) -> String {
        match (&self.spec.idempotency_key, &self.spec.occurrence) {
            (Some(key), _) => str::to_owned(key),
            (None, Some(origin)) => format!("{}:{}", origin.schedule_id, origin.fire_at),
            (None, None) => self.id.to_string(),
        }
    }

    /// About how much memory it takes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        const FIXED: usize = 512;
        FIXED
            + self.spec.payload.len()
            + self.spec.trace.as_ref().map_or(0, |trace| size_of::<TraceContext>() + trace.state().len())
            + self.status.attempts.iter().map(|a| a.detail.len() + 96).sum::<usize>()
    }
}

impl Status {
    /// The status of a job nothing has happened to yet.
    #[must_use]
    pub const fn scheduled(due_at: Timestamp) -> Self {
        Self {
            state: State::Scheduled,
            due_at,
            attempt: 0,
            failures: 0,
            lost: 0,
            token: Token(0),
            running: None,
            finished_at: None,
            attempts: Vec::new(),
            reason: None,
        }
    }
}
