//! What comes of offering a job to memory, and when a reader that found no room comes back.

use tidewheel_core::job::Priority;
use tidewheel_core::time::Timestamp;

use super::lane_slots::LaneSlot;

/// The time over which it is counted how many jobs a lane moves.
pub(super) const WINDOW_MS: i64 = 100;
/// Jobs a lane must have moved in a window for a reader to wait for it rather than pass it over.
const FAST_PICKS: usize = 256;
/// How long a lane counts as fast that was: a machine that stops for a moment is no reason to read a herd twice.
const FAST_MS: i64 = 1_000;
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

impl LaneSlot {
    /// Whether it moves fast, or did until a moment ago.
    pub(super) fn is_fast(&self, now: Timestamp) -> bool {
        let is_lately = |at: Timestamp| (0..FAST_MS).contains(&now.since_ms(at));
        self.picked() >= FAST_PICKS || self.was_fast_at.is_some_and(is_lately)
    }

    /// Jobs it moves in a window.
    pub(super) fn picked(&self) -> usize {
        self.picked_now.max(self.picked_before)
    }

    /// Counts anew.
    pub(super) fn begin_window(&mut self, now: Timestamp) {
        self.picked_before = std::mem::take(&mut self.picked_now);
        if self.picked_before >= FAST_PICKS {
            self.was_fast_at = Some(now);
        }
    }
}

/// How long a lane takes for `count` jobs that moves `picked` in a window; at most a window, after which it may be
/// another number. What is read and then finds no room was read for nothing, so a reader waits for plenty.
pub(super) fn time_for(count: usize, picked: usize) -> i64 {
    let [count, picked] = [count, picked.max(1)].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    (count.saturating_mul(WINDOW_MS) / picked).clamp(NO_ROOM_MS_MIN, WINDOW_MS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::engine::governor::MadeUp;
    use crate::engine::ready::own_first::tests::{NOW, job};
    use crate::engine::ready::{Config, Ready};

    #[test]
    fn a_lane_that_stops_for_a_moment_counts_as_fast_for_a_while() {
        let made_up = MadeUp { missed_before: Timestamp::from_ms(0) };
        let mut ready = Ready::new(Config::default(), 1, made_up, NOW);
        let lane = ready.lane_of(&job(1).spec.destination);
        let slot = ready.lanes.get_mut(lane).unwrap().as_mut().unwrap();
        assert!(!slot.is_fast(NOW));
        slot.picked_now = FAST_PICKS;
        assert!(slot.is_fast(NOW));
        slot.begin_window(NOW);
        slot.begin_window(NOW.plus_ms(WINDOW_MS));
        assert_eq!(slot.picked(), 0);
        assert!(slot.is_fast(NOW.plus_ms(FAST_MS - 1)));
        assert!(!slot.is_fast(NOW.plus_ms(FAST_MS)));
        assert!(!slot.is_fast(NOW.plus_ms(-1)), "the clock was set back");
    }
}
