//! What has fallen due goes from the wheel into its lane. The rest of a herd, for which a lane has no room that is being
//! emptied, stays in memory for a moment: it would be read once more otherwise.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::offer::WINDOW_MS;
use super::{Crowded, Held, MayWait, Offer, Ready, Stage};

/// How long after its time a job stays in the wheel or a crowd whose lane does not move fast. Then it makes room for others, who
/// may be faster.
const LATE_MS_MAX: i64 = 2_000;
/// How long one stays whose lane does.
const LATE_FAST_MS_MAX: i64 = 10_000;

/// The rest of herds, in the order they fell due. Each job counts as one that is still in the wheel.
pub(super) type Crowds = BTreeMap<(Crowded, Tenant), VecDeque<Arc<Job>>>;

impl Ready {
    /// Moves what has fallen due into the lanes: who has waited for room first, then what the wheel has.
    pub(in crate::engine) fn advance(&mut self, now: Timestamp) {
        self.look_at_clock(now);
        if !self.crowds.is_empty() {
            self.let_crowds_in(now);
        }
        let mut fired = std::mem::take(&mut self.fired);
        self.wheel.advance(now.as_ms(), &mut fired);
        for job in fired.drain(..) {
            if let Some(lot) = self.fall_due(&job, now) {
                self.crowds.entry((lot, job.tenant.clone())).or_default().push_back(job);
            }
        }
        self.fired = fired;
        // The second half is for a wall clock that was set back.
        if now >= self.window_ends || now.plus_ms(WINDOW_MS) < self.window_ends {
            self.begin_window(now);
        }
    }

    /// What fell due in memory since the last turn goes first: it was there before, and may be a herd that fills the memory. A job
    /// that went in before it would be one too many, and the first of the herd would have to make room.
    pub(super) fn let_due_go_first(&mut self, now: Timestamp) {
        if self.wheel.next_expiry().is_some_and(|at_ms| at_ms <= now.as_ms()) {
            self.advance(now);
        }
    }

    /// Moves as many as there is room for.
    fn let_crowds_in(&mut self, now: Timestamp) {
        for (lot, mut crowd) in std::mem::take(&mut self.crowds) {
            while let Some(job) = crowd.pop_front() {
                if self.fall_due(&job, now).is_some() {
                    crowd.push_front(job);
                    break;
                }
            }
            if !crowd.is_empty() {
                self.crowds.insert(lot, crowd);
            }
        }
    }

    /// Puts a job into its lane. If that has no room now, but is being emptied, it goes on waiting for that; the lane is
    /// told then.
    fn fall_due(&mut self, job: &Arc<Job>, now: Timestamp) -> Option<Crowded> {
        // Jobs that were moved or ended since are still in the wheel, but no longer held there.
        if !self.waits_in_wheel(job) {
            return None;
        }
        self.unhold(&job.id);
        let may_wait = match now.since_ms(job.status.due_at) {
            ..LATE_MS_MAX => MayWait::ForTakers,
            LATE_MS_MAX..LATE_FAST_MS_MAX => MayWait::IfMoving,
            LATE_FAST_MS_MAX.. => MayWait::No,
        };
        match self.enter_lane(Arc::clone(job), now, may_wait, false) {
            Offer::NoRoom { crowded: Some(lot), .. } => {
                self.hold_waiting(job);
                Some(lot)
            }
            // Memory is full: it is not for this one to keep it so.
            Offer::NoRoom { crowded: None, .. } => {
                self.enter_lane(Arc::clone(job), now, MayWait::No, false);
                None
            }
            Offer::Held | Offer::Later | Offer::Overflowed => None,
        }
    }

    /// Puts a due job behind the herd that waits for its lane, if there is one and memory has room. Were it turned away, its
    /// lot would count as overflowed, and all of the herd would be read again.
    pub(super) fn joins_crowd(&mut self, job: &Arc<Job>) -> bool {
        if self.crowds.is_empty() || self.is_full() {
            return false;
        }
        let lot = Crowded { lane: self.lane_of(&job.spec.destination), priority: job.spec.priority };
        let Some(crowd) = self.crowds.get_mut(&(lot, job.tenant.clone())) else { return false };
        crowd.push_back(Arc::clone(job));
        self.hold_waiting(job);
        true
    }

    /// Keeps a job in the wheel until its time.
    pub(super) fn hold_in_wheel(&mut self, job: Arc<Job>) {
        self.hold_waiting(&job);
        self.wheel.insert(job.status.due_at.as_ms(), job);
    }

    fn hold_waiting(&mut self, job: &Job) {
        let (due_at, bytes) = (job.status.due_at, job.size_bytes());
        self.hold(job.id, Held { due_at, bytes, stage: Stage::Wheel, tenant: None, expires_at: None });
    }

    /// Forgets those for which `is_wanted` does not hold.
    pub(super) fn keep_crowds(&mut self, is_wanted: impl Fn(&Job) -> bool) {
        for (lot, crowd) in std::mem::take(&mut self.crowds) {
            let mut kept = VecDeque::with_capacity(crowd.len());
            for job in crowd {
                if is_wanted(&job) {
                    kept.push_back(job);
                } else if self.waits_in_wheel(&job) {
                    self.unhold(&job.id);
                }
            }
            if !kept.is_empty() {
                self.crowds.insert(lot, kept);
            }
        }
    }

    /// When there is something to be moved, at the latest.
    pub(in crate::engine) fn next_expiry(&self) -> Option<Timestamp> {
        let crowds = self.crowds.values().filter_map(VecDeque::front);
        let given_up = |job: &Arc<Job>| {
            let times = [LATE_MS_MAX, LATE_FAST_MS_MAX].map(|late_ms| job.status.due_at.plus_ms(late_ms));
            times.into_iter().find(|at| *at > self.looked_at)
        };
        let crowds = crowds.filter_map(given_up);
        crowds.chain(self.wheel.next_expiry().map(Timestamp::from_ms)).min()
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
            slot.begin_window(now);
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
        assert_eq!((ready.waiting(), in_wheel(&ready)), (10, 6), "what finds no room waits for it");
        let mut got = Vec::new();
        for passed_ms in (0..LATE_MS_MAX).step_by(50) {
            let now = NOW.plus_ms(passed_ms);
            ready.advance(now);
            got.extend(Some(picked(&mut ready, now)).filter(|count| *count > 0));
            assert!(!ready.overflowed(&job(1)), "nothing is left to be read again");
        }
        assert_eq!(got, [4, 4, 2], "in their order, as there is room");
        assert_eq!((ready.waiting(), ready.next_expiry()), (0, None));
    }

    #[test]
    fn what_is_submitted_meanwhile_waits_behind_the_herd() {
        let mut ready = herd(worker);
        assert_eq!(ready.offer(job(HERD + 1), NOW, NOW, MayWait::No), Offer::Held);
        assert!(!ready.overflowed(&job(1)), "the herd is not to be read again");
        assert_eq!(ready.waiting(), 11);
        ready.config.held_count_max = 11;
        assert_eq!(ready.offer(job(HERD + 2), NOW, NOW, MayWait::No), Offer::Overflowed, "memory is full");
    }

    #[test]
    fn a_herd_whose_lane_moves_fast_waits_longer() {
        let mut ready = herd(worker);
        let moves_until = |ready: &mut Ready, now: Timestamp| {
            ready.lanes.iter_mut().flatten().for_each(|slot| slot.was_fast_at = Some(now));
            ready.advance(now);
        };
        assert_eq!(ready.next_expiry(), Some(NOW.plus_ms(LATE_MS_MAX)));
        moves_until(&mut ready, NOW.plus_ms(LATE_MS_MAX));
        assert_eq!(ready.next_expiry(), Some(NOW.plus_ms(LATE_FAST_MS_MAX)), "not at once, over and over");
        moves_until(&mut ready, NOW.plus_ms(LATE_FAST_MS_MAX - 1));
        assert_eq!(in_wheel(&ready), 6);
        assert!(!ready.overflowed(&job(1)));
        moves_until(&mut ready, NOW.plus_ms(LATE_FAST_MS_MAX));
        assert_eq!((ready.waiting(), in_wheel(&ready)), (LOT, 0), "not for ever");
        assert!(ready.overflowed(&job(1)));
    }

    #[test]
    fn a_herd_of_a_shard_that_is_lost_is_forgotten() {
        let mut ready = herd(worker);
        ready.keep(|_| true);
        assert_eq!(ready.waiting(), 10);
        ready.keep(|_| false);
        assert_eq!((ready.waiting(), ready.next_expiry()), (0, None));
    }

    #[test]
    fn a_herd_in_a_full_memory_makes_room_for_others() {
        let full = Config { held_bytes_max: 1, lot_count_min: 2, ..Config::default() };
        let before = Config { held_bytes_max: usize::MAX, ..full.clone() };
        let mut ready = herd_in(before, worker);
        assert_eq!((ready.waiting(), in_wheel(&ready)), (10, 0), "there was room");
        ready.config = full;
        ready.hold_in_wheel(job(HERD + 1));
        ready.advance(NOW.plus_ms(1));
        assert_eq!(ready.waiting(), 10);
        assert!(ready.overflowed(&job(1)));
    }

    #[test]
    fn a_herd_that_fills_the_memory_goes_before_what_is_read_at_its_instant() {
        let before = NOW.plus_ms(-10);
        let config = Config { lot_count_max: LOT, held_count_max: 10, lot_count_min: 2, ..Config::default() };
        let mut ready = Ready::new(config, 1, MadeUp { missed_before: Timestamp::from_ms(0) }, before);
        worker(&mut ready);
        for tail in 1..=HERD {
            assert_eq!(ready.offer(job(tail), before, NOW, MayWait::No), Offer::Held);
        }
        let offered = ready.offer(job(HERD + 1), NOW, NOW, MayWait::ForTakers);
        assert!(matches!(offered, Offer::NoRoom { crowded: Some(_), .. }), "{offered:?}");
        ready.advance(NOW);
        assert_eq!((ready.waiting(), in_wheel(&ready)), (10, 6));
        assert!(!ready.overflowed(&job(1)), "nothing is left to be read again");
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
