//! What happened in a run, as its clients, workers and targets saw it. The checker judges this and nothing
//! else, so it cannot share the engine's errors.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Ending, Occurrence, State, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;
use tidewheel_server::clock::Clock;
use tidewheel_store_testkit::memory::Written;

use crate::clock::SimClock;
use crate::schedule_wish::{Deed, ScheduleAnswer, ScheduleWish};

/// What a client wants done with a job it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Call it off.
    Cancel,
    /// Start it now.
    RunNow,
    /// Give it another time.
    Amend(Timestamp),
    /// Run it again although it ended.
    Rerun(Timestamp),
    /// Run it again although it is dead.
    Replay(Timestamp),
    /// Drop it, once dead.
    Discard,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A client sends a job.
    Submitting(Asked),
    /// The server says it has it.
    Taken {
        /// Which.
        id: JobId,
    },
    /// The server says it already has it, from an earlier submission under the same key.
    Known {
        /// Whose.
        tenant: Tenant,
        /// Under which key.
        key: Arc<str>,
        /// The job the key points at.
        id: JobId,
    },
    /// No answer: it may or may not have been taken.
    SubmitUnclear {
        /// Which.
        id: JobId,
    },
    /// A client sends a wish.
    Wishing {
        /// For which job.
        id: JobId,
        /// What.
        wish: Wish,
    },
    /// It was granted.
    Granted {
        /// For which job.
        id: JobId,
        /// What.
        wish: Wish,
    },
    /// It was refused.
    Declined {
        /// For which job.
        id: JobId,
        /// What.
        wish: Wish,
    },
    /// A client sends a wish for a schedule.
    ScheduleWishing(Box<ScheduleWish>),
    /// It was granted.
    ScheduleGranted(Box<ScheduleAnswer>),
    /// It was refused.
    ScheduleDeclined {
        /// For which schedule.
        id: ScheduleId,
        /// What.
        deed: Deed,
    },
    /// A runner has an attempt in its hands.
    Started(Start),
    /// A runner tells the server how its attempt ended, or that it is alive.
    Reporting {
        /// Which job.
        id: JobId,
        /// Which attempt.
        token: Token,
        /// How it ended; `None` for a heartbeat.
        ending: Option<Ending>,
    },
    /// The server took the report.
    Accepted {
        /// Which job.
        id: JobId,
        /// Which attempt.
        token: Token,
        /// How it ended; `None` for a heartbeat.
        ending: Option<Ending>,
        /// Whether it was news to the server.
        changed: bool,
    },
    /// The server refused the report.
    Refused {
        /// Which job.
        id: JobId,
        /// Which attempt.
        token: Token,
    },
    /// A server serves.
    ServerUp,
    /// A server is gone, in whatever way; attempts it was delivering are lost.
    ServerGone {
        /// Whether it was asked to go.
        drained: bool,
    },
    /// A node of a cluster did something in the store.
    Witnessed {
        /// Which node.
        node: usize,
        /// What.
        deed: Written,
    },
    /// Two nodes that are awake both say that they serve a shard.
    ServedTwice {
        /// Which.
        shard: u16,
    },
    /// The nodes of a cluster have had time to recover: nothing moves any more.
    Recovered,
    /// How many shards each node of a cluster serves in the end.
    Served {
        /// Shards there are.
        shards: usize,
        /// By node.
        counts: Vec<usize>,
    },
    /// Something was broken on purpose.
    Fault(&'static str, i64),
    /// From here on nothing is broken any more.
    FaultsOver,
    /// Seen after the server had time to recover: a job that should have started, or ended, and has not.
    Overdue {
        /// Which.
        id: JobId,
        /// Its state.
        state: State,
        /// When it was due, or its lease ended.
        since: Timestamp,
    },
    /// What the server says it holds in memory.
    Held {
        /// Jobs in memory.
        count: usize,
        /// At most so many may be.
        bound: usize,
    },
    /// More deliveries under way than allowed.
    TooManyPushes {
        /// How many.
        count: usize,
        /// At most so many may be.
        bound: usize,
    },
}

/// A job as its client asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Whose.
    pub tenant: Tenant,
    /// Its id.
    pub id: JobId,
    /// The client's key.
    pub key: Option<Arc<str>>,
    /// When it may start.
    pub run_at: Timestamp,
    /// When it must not start any more.
    pub expires_at: Option<Timestamp>,
    /// Failures after which it is given up.
    pub max_attempts: u32,
    /// Nobody will ever take it: it is for a queue without workers.
    pub deserted: bool,
}

/// An attempt as its runner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Whose job.
    pub tenant: Tenant,
    /// Which job.
    pub id: JobId,
    /// The attempt's token.
    pub token: Token,
    /// The attempt's number.
    pub attempt: u32,
    /// When it was due.
    pub due_at: Timestamp,
    /// When it was claimed, by the server's wall clock.
    pub claimed_at: Timestamp,
    /// The key that is to stay the same over all attempts.
    pub run_key: String,
    /// The schedule it came from.
    pub occurrence: Option<Occurrence>,
}

/// An event and when it happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Virtual time since the run began.
    pub elapsed_ms: i64,
    /// What the wall clock showed.
    pub wall: Timestamp,
    /// What happened.
    pub event: Event,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9} ms  wall {}  {:?}", self.elapsed_ms, self.wall.as_ms(), self.event)
    }
}

/// Everything that happened, in order.
#[derive(Debug)]
pub struct History {
    clock: Arc<SimClock>,
    entries: Mutex<Vec<Entry>>,
}

impl History {
    /// Nothing yet.
    #[must_use]
    pub fn new(clock: Arc<SimClock>) -> Self {
        Self { clock, entries: Mutex::default() }
    }

    /// Notes what happens now.
    pub fn note(&self, event: Event) {
        let entry = Entry { elapsed_ms: self.clock.monotonic_ms(), wall: self.clock.now(), event };
        self.lock().push(entry);
    }

    /// All of it so far.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
