//! What was seen, in the order in which it was seen, stamped by one observer's clock. Written as JSON, one line an entry, so
//! that other checkers can read it. The fields are described in `docs/nemesis.md`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::clock;

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Load, and nothing is broken yet.
    Calm,
    /// Things are broken.
    Faults,
    /// Nothing is broken any more.
    Healed,
    /// The nodes are stopped and started one after the other.
    Rolling,
    /// No more load; what is left ends.
    Ending,
}

/// What came of a report of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Taken.
    Accepted,
    /// Refused: the token is stale, or the job has ended.
    Refused,
    /// No answer, or one that says to try again: it may have been taken.
    Unclear,
}

/// One thing that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are described in docs/nemesis.md, for all who read them")]
pub enum Event {
    /// A part of the run begins.
    Phase { phase: Phase },
    /// A client sends a job, for the first time.
    Submitting { tenant: String, key: String, run_at_ms: i64, to: String },
    /// A node says that it has it.
    Submitted { tenant: String, key: String, id: String },
    /// The client gave up: it may or may not have been taken.
    GivenUp { tenant: String, key: String, status: Option<u16> },
    /// A schedule was made: it fires at `first_ms`, and every `every_ms` from there.
    Schedule { tenant: String, id: String, first_ms: i64, every_ms: i64 },
    /// An attempt reached a worker or the target.
    Started {
        tenant: String,
        id: String,
        run_key: String,
        attempt: u32,
        token: u64,
        fire_at_ms: Option<i64>,
        at: String,
    },
    /// A worker tells a node how its attempt ended.
    Reporting { id: String, token: u64, status: String },
    /// What came of that.
    Reported { id: String, token: u64, status: String, verdict: Verdict },
    /// Something is broken.
    Fault { fault: String, on: String },
    /// And works again.
    Mended { fault: String, on: String },
    /// A node that served ended by itself.
    NodeDied { node: usize, code: Option<i32> },
    /// A node was told to stop, and did.
    NodeStopped { node: usize, code: Option<i32> },
    /// All nodes serve, each its share.
    Shared {},
    /// A schedule is about to be paused.
    Pausing { id: String },
    /// It was.
    Paused { id: String },
    /// In the end: an entry of a schedule's ledger.
    Firing { schedule: String, fire_at_ms: i64, outcome: String, job_id: Option<String> },
    /// In the end: a job, as a node has it; no state if it has none.
    Job { tenant: String, id: String, state: Option<String> },
}

/// An event, and when it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What the observer's clock showed, in milliseconds.
    pub at_ms: i64,
    /// What was seen.
    #[serde(flatten)]
    pub event: Event,
}

/// All that was seen.
#[derive(Debug, Default)]
pub struct History {
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    entries: Vec<Entry>,
    file: Option<BufWriter<File>>,
}

impl History {
    /// Nothing yet; written to `file` as well, if there is one.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn new(file: Option<&Path>) -> anyhow::Result<Self> {
        let file = match file {
            Some(path) => {
                let made = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
                Some(BufWriter::new(made))
            }
            None => None,
        };
        Ok(Self { written: Mutex::new(Written { entries: Vec::new(), file }) })
    }

    /// Notes what is seen now.
    pub fn note(&self, event: Event) {
        let mut written = self.lock();
        // Stamped with the lock held, so that the order is that of the stamps.
        let entry = Entry { at_ms: clock::now_ms(), event };
        if let Some(file) = &mut written.file
            && let Ok(line) = serde_json::to_string(&entry)
        {
            // The file is for others; the check goes by what is in memory.
            writeln!(file, "{line}").and_then(|()| file.flush()).ok();
        }
        written.entries.push(entry);
    }

    /// All of it so far.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
