//! What happens to a worker that its operator may want to know.

use std::time::Duration;

use super::error::Error;

/// Something happened. A worker goes on after each of these.
#[derive(Debug, Clone)]
pub enum Event {
    /// It is connected.
    Connected {
        /// Its id, as `GET /v1/workers` shows it.
        worker_id: String,
        /// Whether the session goes on that it had before.
        resumed: bool,
    },
    /// It is not, and tries again after that long.
    Disconnected {
        /// Why.
        error: Error,
        /// How long it waits.
        retry_in: Duration,
    },
    /// What it reported of a job was not taken: the attempt is over, something else came first, or it cannot be meant. In
    /// the last case the attempt is reported as failed for good, with that reason.
    ReportRefused {
        /// The job.
        id: String,
        /// The stable code.
        code: String,
        /// The same in words.
        detail: String,
    },
}
