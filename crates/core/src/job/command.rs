//! Everything that can be asked of a job once it exists.

use std::sync::Arc;

use bytes::Bytes;

use super::{Priority, Target, Token};
use crate::time::Timestamp;

/// A wish to change a job. [`super::transition`] says whether it is granted.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Start an attempt. Granted only when the job is due.
    Claim {
        /// The owner's epoch.
        epoch: u64,
        /// Who will run it.
        worker: Arc<str>,
        /// How long it is safe from others.
        lease_ms: i64,
        /// The runner reports by itself and outlives this server.
        detached: bool,
    },
    /// The attempt is alive: extend its lease.
    Heartbeat {
        /// Which attempt.
        token: Token,
        /// From now on, how long.
        extend_ms: i64,
        /// What it says of its progress, as JSON.
        progress: Option<Bytes>,
    },
    /// The target took the job over and will report by itself.
    Detach {
        /// Which attempt.
        token: Token,
        /// From now on, how long it is safe from others.
        lease_ms: i64,
    },
    /// The attempt did what it should.
    Succeed {
        /// Which attempt.
        token: Token,
        /// What came of it.
        finding: Finding,
    },
    /// The attempt failed.
    Fail {
        /// Which attempt.
        token: Token,
        /// How.
        failure: Failure,
    },
    /// The attempt asks to be run again later; costs nothing.
    Snooze {
        /// Which attempt.
        token: Token,
        /// How much later.
        delay_ms: i64,
    },
    /// The attempt never started: hand it back. Its number and token are used up, but the policy counts nothing.
    Release {
        /// Which attempt.
        token: Token,
    },
    /// The runner gave the job up as called off.
    Abandon {
        /// Which attempt.
        token: Token,
        /// What it said.
        finding: Finding,
    },
    /// The lease ran out, as measured by whoever watches it on a clock that is never set. Granted only if it is still
    /// the lease that was watched.
    LeaseOver {
        /// Which attempt.
        token: Token,
        /// The end of the lease that was watched; every extension gives it another.
        lease_until: Timestamp,
        /// Any random number, for the retry's wait.
        jitter: u32,
    },
    /// The server died with the attempt in its hands: try again at once.
    Lost {
        /// Which attempt.
        token: Token,
    },
    /// The worker died, or was not heard of, with the attempt in its hands: counts as a failure, so that a job that
    /// brings its workers down ends, and is tried again at once.
    WorkerGone {
        /// Which attempt.
        token: Token,
    },
    /// Call the job off.
    Cancel,
    /// Start it now instead of later.
    RunNow,
    /// Give it another time or priority.
    Amend {
        /// The new time.
        run_at: Option<Timestamp>,
        /// The new priority.
        priority: Option<Priority>,
    },
    /// Run a finished job again.
    Rerun {
        /// When.
        run_at: Timestamp,
    },
    /// Run a dead job again, perhaps changed.
    Replay {
        /// When.
        run_at: Timestamp,
        /// Another payload.
        payload: Option<Bytes>,
        /// Another target.
        target: Option<Arc<Target>>,
        /// Another time that one attempt may take.
        timeout_ms: Option<i64>,
    },
    /// Drop a dead job.
    Discard,
}

impl Command {
    /// Which attempt it speaks of, if it says what became of one, or that it goes on.
    #[must_use]
    pub const fn token(&self) -> Option<Token> {
        match self {
            Self::Heartbeat { token, .. }
            | Self::Detach { token, .. }
            | Self::Succeed { token, .. }
            | Self::Fail { token, .. }
            | Self::Snooze { token, .. }
            | Self::Release { token }
            | Self::Abandon { token, .. }
            | Self::LeaseOver { token, .. }
            | Self::Lost { token }
            | Self::WorkerGone { token } => Some(*token),
            Self::Claim { .. }
            | Self::Cancel
            | Self::RunNow
            | Self::Amend { .. }
            | Self::Rerun { .. }
            | Self::Replay { .. }
            | Self::Discard => None,
        }
    }
}

/// What a runner says of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Finding {
    /// The target's answer, for a push.
    pub status_code: Option<u16>,
    /// An excerpt of the answer, the result or the error.
    pub detail: Box<str>,
}

/// How an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What the runner says of it.
    pub finding: Finding,
    /// Whether another attempt could help.
    pub retryable: bool,
    /// It took too long, rather than failed.
    pub timed_out: bool,
    /// Not before this has passed.
    pub retry_after_ms: Option<i64>,
    /// Any random number, for the retry's wait.
    pub jitter: u32,
}
