//! How to open the store, and why it may not open.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::limits::SHARDS_COUNT_DEFAULT;
use tidewheel_core::zones::Zones;

use crate::kv::KvError;

/// Memory for blocks read from disk, unless set otherwise.
pub const CACHE_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;

/// Called after every group commit.
pub type OnCommit = Arc<dyn Fn(CommitReport) + Send + Sync>;

/// How to open the store.
#[derive(Clone)]
pub struct Options {
    /// The folder it lives in; made if it is not there.
    pub path: PathBuf,
    /// Shards, if the store is new; an old one keeps its own and refuses another number.
    pub shards: u16,
    /// Memory for blocks read from disk.
    pub cache_bytes: u64,
    /// Acknowledge without waiting for the disk. A power cut then loses acknowledged jobs; for benchmarks.
    pub danger_no_sync: bool,
    /// Told about every group commit.
    pub on_commit: Option<OnCommit>,
    /// The rules of time zones; those bundled with the program if there are none.
    pub zones: Option<Zones>,
    /// Whether the audit trail has what became of every job, or only what was asked for.
    pub audit_changes: bool,
}

impl Options {
    /// The usual options for a folder.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            shards: SHARDS_COUNT_DEFAULT,
            cache_bytes: CACHE_BYTES_DEFAULT,
            danger_no_sync: false,
            on_commit: None,
            zones: None,
            audit_changes: true,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("path", &self.path)
            .field("shards", &self.shards)
            .field("cache_bytes", &self.cache_bytes)
            .field("danger_no_sync", &self.danger_no_sync)
            .field("audit_changes", &self.audit_changes)
            .field("zones", &self.zones.as_ref().map(Zones::version))
            .finish_non_exhaustive()
    }
}

/// One group commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitReport {
    /// Calls answered by it.
    pub calls: usize,
    /// Jobs it changed.
    pub jobs: usize,
    /// Bytes handed to the engine.
    pub bytes: usize,
    /// How long the engine took to make it durable.
    pub sync_duration: Duration,
}

/// Why the store does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Two processes on one folder would destroy it.
    #[error("{path:?} is in use by another Tidewheel process; stop that one first, or choose another folder")]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// It was made with another number of shards, which are part of every key.
    #[error("{path:?} was made with {found} shards and cannot be opened with {asked}; set shards to {found}")]
    Shards {
        /// The folder.
        path: PathBuf,
        /// What it was made with.
        found: u16,
        /// What was asked for.
        asked: u16,
    },
    /// It was made by a program this one does not understand.
    #[error(
        "{path:?} has {what} {found} and this program needs {known}; open it with the version that made it"
    )]
    Format {
        /// The folder.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// What it has.
        found: i64,
        /// What this program knows.
        known: i64,
    },
    /// What is stored does not make sense.
    #[error("{path:?} holds something unreadable: {reason}")]
    Corrupt {
        /// The folder.
        path: PathBuf,
        /// What.
        reason: String,
    },
    /// The device or the operating system said no.
    #[error("{path:?} cannot be opened: {reason}")]
    Io {
        /// The folder.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
}

impl OpenError {
    pub(crate) fn from_kv(path: PathBuf, error: KvError) -> Self {
        match error {
            KvError::Locked => Self::Locked { path },
            KvError::Corrupt(reason) => Self::Corrupt { path, reason },
            KvError::Io(reason) | KvError::Full(reason) => Self::Io { path, reason },
        }
    }
}
