//! What has fallen due goes from the wheel into its lane. The rest of a herd, for which a lane has no room that is being
//! emptied, stays in the wheel for a moment: it is in memory already, and would be read once more otherwise.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::job::Job;
use tidewheel_core::time::Timestamp;

use super::offer::{NO_ROOM_MS_MIN, WINDOW_MS};
use super::{Crowded, Held, MayWait, Offer, Ready, Stage};

/// How long after its time a job stays in the wheel at most. Then it makes room for others, who may be faster.
const LATE_MS_MAX: i64 = 2_000;

impl Ready {
    /// Moves what has fallen due from the wheel into the lanes.
    pub(in crate::engine) fn advance(&mut self, now: Timestamp) {
        self.look_at_clock(now);
        let mut fired = std::mem::take(&mut self.fired);
        self.wheel.advance(now.as_ms(), &mut fired);
        let mut left = FxHashMap::default();
        for job in fired.drain(..) {
            // Jobs that were moved or ended since are still in the wheel, but no longer held there.
            if self.waits_in_wheel(&job) {
                self.unhold(&job.id);
                self.fall_due(job, now, &mut left);
            }
        }
        self.fired = fired;
        // The second half is for a wall clock that was set back.
        if now >= self.window_ends || now.plus_ms(WINDOW_MS) < self.window_ends {
            self.begin_window(now);
        }
    }

    /// Puts a job into its lane, or back into the wheel behind others that were left there.
    fn fall_due(&mut self, job: Arc<Job>, now: Timestamp, left: &mut FxHashMap<Crowded, i64>) {
        let latest = job.status.due_at.plus_ms(LATE_MS_MAX);
        let may_wait = if now < latest { MayWait::ForTakers } else { MayWait::No };
        match self.enter_lane(Arc::clone(&job), now, may_wait, false) {
            Offer::NoRoom { wait_ms, crowded: Some(lot) } => {
                // In that time a fast lane takes half a lot. They come back at twice that pace, so that it does not run dry.
                let place = left.entry(lot).or_insert(0_i64);
                *place += 1;
                let lot_max = i64::try_from(self.config.lot_count_max).unwrap_or(i64::MAX).max(1);
                let wait_ms = (wait_ms.saturating_mul(*place) / lot_max).max(NO_ROOM_MS_MIN);
                self.hold_in_wheel(job, now.plus_ms(wait_ms).min(latest));
            }
            // Memory is full: it is not for this one to keep it so.
            Offer::NoRoom { crowded: None, .. } => {
                self.enter_lane(job, now, MayWait::No, false);
            }
            Offer::Held | Offer::Later | Offer::Overflowed => {}
        }
    }

    /// Keeps a job in the wheel until `until`.
    pub(super) fn hold_in_wheel(&mut self, job: Arc<Job>, until: Timestamp) {
        let (due_at, bytes) = (job.status.due_at, job.size_bytes());
        self.hold(job.id, Held { due_at, bytes, stage: Stage::Wheel, tenant: None, expires_at: None });
        self.wheel.insert(until.as_ms(), job);
    }

    /// When the wheel should be turned next.
    pub(in crate::engine) fn next_expiry(&self) -> Option<Timestamp> {
        self.wheel.next_expiry().map(Timestamp::from_ms)
    }

    /// Whether the wheel's entry of a job is the one that counts.
    pub(super) fn waits_in_wheel(&self, job: &Job) -> bool {
        let held = self.held.get(&job.id);
        held.is_some_and(|held| held.stage == Stage::Wheel && held.due_at == job.status.due_at)
    }

    /// Counts anew what lanes move, and tries what could not be read once more.
    fn begin_window(&mut self, now: Timestamp) {
        self.window_ends = now.plus_ms(WINDOW_MS);
        for slot in self.lanes.iter_mut().flatten() {
            slot.picked_before = std::mem::take(&mut slot.picked_now);
        }
        for lot in std::mem::take(&mut self.failed_refills) {
            if let Some(overflow) = self.overflow_mut(&lot) {
                overflow.queued = false;
            }
            self.queue_refill(lot.lane, lot.key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]

    use super::*;
    use crate::engine::config::Config;
    use crate::engine::governor::MadeUp;
    use crate::engine::ready::own_first::tests::{NOW, job, subscribe};
    use crate::engine::ready::{Outlet, Picked};

    const HERD: u128 = 10;
    const LOT: usize = 4;

    /// More jobs of one instant than their lane has room for, at that instant.
    fn herd(takers: impl FnOnce(&mut Ready)) -> Ready {
        herd_in(Config { lot_count_max: LOT, ..Config::default() }, takers)
    }

    fn herd_in(config: Config, takers: impl FnOnce(&mut Ready)) -> Ready {
        let before = NOW.plus_ms(-10);
        let mut ready = Ready::new(config, 1, MadeUp { missed_before: Timestamp::from_ms(0) }, before);
        takers(&mut ready);
        for tail in 1..=HERD {
            assert_eq!(ready.offer(job(tail), before, NOW, MayWait::No), Offer::Held);
        }
        ready.advance(NOW);
        ready
    }

    fn worker(ready: &mut Ready) {
        subscribe(ready, 100, Outlet::Stream(Arc::default()));
    }

    fn picked(ready: &mut Ready, now: Timestamp) -> usize {
        match ready.pick(now, 100) {
            Some(Picked::Take(picks, _)) => picks.len(),
            None => 0,
            Some(Picked::Push(_)) => panic!("nothing is pushed"),
        }
    }

    fn in_wheel(ready: &Ready) -> usize {
        (1..=HERD).filter(|tail| ready.waits_in_wheel(&job(*tail))).count()
    }

    #[test]
    fn a_herd_stays_in_memory_while_its_lane_is_emptied() {
        let mut ready = herd(worker);
        assert_eq!((ready.waiting(), in_wheel(&ready)), (10, 6), "what finds no room waits in the wheel");
        let mut got = Vec::new();
        for passed_ms in (0..LATE_MS_MAX).step_by(50) {
            let now = NOW.plus_ms(passed_ms);
            ready.advance(now);
            got.extend(Some(picked(&mut ready, now)).filter(|count| *count > 0));
            assert!(!ready.overflowed(&job(1)), "nothing is left to be read again");
        }
        assert_eq!(got, [4, 2, 2, 2], "in their order, as there is room");
        assert_eq!((ready.waiting(), ready.next_expiry()), (0, None));
    }

    #[test]
    fn a_herd_in_a_full_memory_makes_room_for_others() {
        let full = Config { held_bytes_max: 1, lot_count_min: 2, ..Config::default() };
        let before = Config { held_bytes_max: usize::MAX, ..full.clone() };
        let mut ready = herd_in(before, worker);
        assert_eq!((ready.waiting(), in_wheel(&ready)), (10, 0), "there was room");
        ready.config = full;
        ready.hold_in_wheel(job(HERD + 1), NOW.plus_ms(1));
        ready.advance(NOW.plus_ms(1));
        assert_eq!(ready.waiting(), 10);
        assert!(ready.overflowed(&job(1)));
    }

    #[test]
    fn little_is_read_for_a_lot_that_is_full() {
        let mut ready = herd(worker);
        let tenant = job(1).tenant.clone();
        ready.config.quantum = LOT;
        let offered = ready.offer(job(HERD + 1), NOW, NOW, MayWait::ForTakers);
        let Offer::NoRoom { crowded: Some(lot), .. } = offered else { panic!("{offered:?}") };
        let worth = |ready: &Ready| ready.worth_reading(&tenant, true, Some(lot));
        assert_eq!((worth(&ready), ready.worth_reading(&tenant, true, None)), (LOT / 2, LOT));
        picked(&mut ready, NOW);
        assert_eq!(worth(&ready), LOT);
    }

    #[test]
    fn a_herd_that_nobody_takes_makes_room_for_others() {
        let ready = herd(|_| {});
        assert_eq!((ready.waiting(), in_wheel(&ready)), (LOT, 0));
        assert!(ready.overflowed(&job(1)));
        // One that is taken, but does not go on, after a while.
        let mut ready = herd(worker);
        ready.advance(NOW.plus_ms(LATE_MS_MAX - 1));
        assert!(!ready.overflowed(&job(1)));
        assert_eq!(in_wheel(&ready), 6);
        ready.advance(NOW.plus_ms(2 * LATE_MS_MAX));
        assert_eq!((ready.waiting(), in_wheel(&ready)), (LOT, 0));
        assert!(ready.overflowed(&job(1)));
    }
}
