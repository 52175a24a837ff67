//! What comes of offering a job to memory, and when a reader that found no room comes back.

use tidewheel_core::job::Priority;

/// The time over which it is counted how many jobs a lane moves.
pub(super) const WINDOW_MS: i64 = 100;
/// When a reader comes back that found no room, at least.
pub(super) const NO_ROOM_MS_MIN: i64 = 2;
/// When a reader comes back that found no room for a job not yet due, at most; when half of the time until then has passed, if
/// that is sooner.
pub(super) const NO_ROOM_AHEAD_MS_MAX: i64 = 500;

/// For what the bearer of a job for which there is no room would come back, rather than leave it to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum MayWait {
    /// For nothing.
    No,
    /// For a lane that moves fast.
    IfMoving,
    /// Also for one that is about to: somebody has room for its jobs.
    ForTakers,
}

/// What became of a job offered to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Offer {
    /// It is in the wheel or a lane, or was there already.
    Held,
    /// It is not near yet.
    Later,
    /// It stays in the store; its lot will read it when there is room.
    Overflowed,
    /// There is no room now, but there will be shortly: for a read that is worth it in about so many milliseconds. If it is
    /// its lane that is full of such jobs, that is told, too.
    NoRoom { wait_ms: i64, crowded: Option<Crowded> },
}

/// A lane that has as many jobs of one priority of a tenant as there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct Crowded {
    pub(super) lane: usize,
    pub(super) priority: Priority,
}

/// How long a lane takes for `count` jobs that moves `picked` in a window; at most a window, after which it may be
/// another number. What is read and then finds no room was read for nothing, so a reader waits for plenty.
pub(super) fn time_for(count: usize, picked: usize) -> i64 {
    let [count, picked] = [count, picked.max(1)].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    (count.saturating_mul(WINDOW_MS) / picked).clamp(NO_ROOM_MS_MIN, WINDOW_MS)
}
