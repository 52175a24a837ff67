//! Lots that overflowed: what finds no room in memory stays in the store, and the lot it belongs to (one tenant's
//! jobs of one priority for one destination, in one shard) remembers from where to read on. Other lots are not held up.

use std::ops::Bound;
use std::sync::Arc;

use tidewheel_core::glance;
use tidewheel_core::job::{Job, Priority};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::time::Timestamp;

use super::lane_slots::LaneSlot;
use super::{MayWait, Offer, Ready};
use crate::engine::governor::Governor;
use crate::engine::scan::just_before;

/// Where a lot goes on reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overflow {
    bucket: Bucket,
    pub(super) after: Position,
    reading: bool,
    /// The number of the read under way.
    read: u64,
    pub(super) queued: bool,
    /// The first job turned away while a read was under way.
    turned_away: Option<Position>,
}

/// One tenant's jobs of one priority in one shard. Those that are made up for stand apart: they keep to a pace, and must not
/// hold up the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct LotKey {
    pub(in crate::engine) tenant: Tenant,
    pub(in crate::engine) priority: Priority,
    pub(in crate::engine) made_up: bool,
    pub(in crate::engine) shard: Shard,
}

/// Such jobs in one lane.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct Lot {
    pub(in crate::engine) lane: usize,
    pub(in crate::engine) key: LotKey,
}

/// A read that refills a lot.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Refill {
    pub(in crate::engine) lot: Lot,
    pub(in crate::engine) bucket: Bucket,
    pub(in crate::engine) after: Position,
    /// Tells it from others of the same lot: one begun before its tenant was forgotten says nothing of what is waited for
    /// since, and would pass over what lies before it.
    number: u64,
}

impl Ready {
    pub(super) fn lot_key(&self, job: &Job) -> LotKey {
        LotKey {
            tenant: job.tenant.clone(),
            priority: job.spec.priority,
            made_up: self.made_up.has(job),
            shard: self.shard_of(job),
        }
    }

    /// The shard a job is in.
    pub(super) fn shard_of(&self, job: &Job) -> Shard {
        Shard::of_job(&job.tenant, job.id, self.shards)
    }

    /// Queues reads for a tenant's lots of one priority, which share their room in the lane.
    pub(super) fn queue_refills(&mut self, index: usize, tenant: &Tenant, priority: Priority) {
        let is_any = |slot: &LaneSlot| !slot.overflows.is_empty();
        if !self.lanes.get(index).and_then(Option::as_ref).is_some_and(is_any) {
            return;
        }
        let first = LotKey { tenant: tenant.clone(), priority, made_up: false, shard: Shard(0) };
        let mut from = Bound::Included(first);
        while let Some(slot) = self.lanes.get(index).and_then(Option::as_ref)
            && let Some((key, _)) = slot.overflows.range((from, Bound::Unbounded)).next()
            && key.priority == priority
            && key.tenant == *tenant
        {
            let key = key.clone();
            self.queue_refill(index, key.clone());
            from = Bound::Excluded(key);
        }
    }

    /// Queues a read for a lot that has room again.
    pub(super) fn queue_refill(&mut self, index: usize, key: LotKey) {
        let (lot_max, lot_min) = (self.config.lot_count_max, self.config.lot_count_min);
        let full = self.is_full();
        if self.holds_back(index, key.tenant.as_str()) {
            // It is read when its target may be called.
            return;
        }
        let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) else { return };
        let lot_count = lot_max - slot.lane.free(key.tenant.as_str(), key.priority);
        // Not before the read can bring something worth it; with a full memory that is little.
        if lot_count > if full { lot_min / 2 } else { lot_max / 2 } {
            return;
        }
        if let Some(overflow) = slot.overflows.get_mut(&key)
            && !overflow.reading
            && !overflow.queued
        {
            overflow.queued = true;
            let tenant = key.tenant.clone();
            self.refills.push(&tenant, Lot { lane: index, key });
        }
    }

    /// The next read that refills a lot. `may_make_up` is whether a tenant's pace leaves room to make up for
    /// something.
    pub(in crate::engine) fn next_refill(
        &mut self,
        mut may_make_up: impl FnMut(&Tenant) -> bool,
    ) -> Option<Refill> {
        let number = self.refill_reads + 1;
        loop {
            let lot = self.refills.pop()?;
            let Some(overflow) = self.overflow_mut(&lot) else { continue };
            if lot.key.made_up && !may_make_up(&lot.key.tenant) {
                // Stays queued, for the next window.
                self.failed_refills.push(lot);
                continue;
            }
            overflow.queued = false;
            (overflow.reading, overflow.read) = (true, number);
            overflow.turned_away = None;
            let (bucket, after) = (overflow.bucket, overflow.after);
            self.refill_reads = number;
            return Some(Refill { bucket, after, lot, number });
        }
    }

    pub(super) fn overflow_mut(&mut self, lot: &Lot) -> Option<&mut Overflow> {
        let slot = self.lanes.get_mut(lot.lane).and_then(Option::as_mut)?;
        slot.overflows.get_mut(&lot.key)
    }

    /// The lot that waits for this very read.
    fn awaiting(&mut self, refill: &Refill) -> Option<&mut Overflow> {
        self.overflow_mut(&refill.lot).filter(|overflow| overflow.reading && overflow.read == refill.number)
    }

    /// Takes in what a refill read: the jobs of the page, and where it ended (`None`: the bucket is exhausted).
    pub(in crate::engine) fn refill(
        &mut self,
        refill: &Refill,
        (jobs, mut resume): (Vec<Arc<Job>>, Option<Position>),
        governor: &mut Governor,
        (now, monotonic_ms): (Timestamp, i64),
    ) {
        let mut passed = refill.after;
        let tenant = &refill.lot.key.tenant;
        self.refills.charge(tenant, jobs.len());
        for job in glance::each(jobs, glance::job) {
            let position = Position { at: job.status.due_at, id: job.id };
            let is_ours = self.known_lane(&job.spec.destination) == Some(refill.lot.lane)
                && !self.held.contains_key(&job.id)
                && self.lot_key(&job) == refill.lot.key;
            if is_ours {
                if refill.lot.key.made_up && !governor.draw(tenant, monotonic_ms) {
                    resume = Some(passed);
                    break;
                }
                if matches!(self.enter_lane(job, now, MayWait::No, true), Offer::NoRoom { .. }) {
                    if refill.lot.key.made_up {
                        governor.give_back(tenant);
                    }
                    resume = Some(passed);
                    break;
                }
            }
            passed = position;
        }
        let key = refill.lot.key.clone();
        let Some(overflow) = self.awaiting(refill) else { return };
        overflow.reading = false;
        let turned_away = overflow.turned_away.take();
        if let Some(position) = resume {
            overflow.after = position;
        } else if overflow.bucket < Bucket::of(now) {
            let next = overflow.bucket.next();
            overflow.bucket = next;
            overflow.after = just_before(next.start());
        } else if let Some(first) = turned_away {
            overflow.restart_at(first.at);
        } else if let Some(slot) = self.lanes.get_mut(refill.lot.lane).and_then(Option::as_mut) {
            slot.overflows.remove(&key);
            self.tidy(refill.lot.lane);
            return;
        }
        if let Some(first) = turned_away
            && let Some(overflow) = self.overflow_mut(&refill.lot)
        {
            overflow.turn_away(first);
        }
        self.queue_refill(refill.lot.lane, key);
    }

    /// A refill could not be read; it will be tried again.
    pub(in crate::engine) fn refill_failed(&mut self, refill: &Refill) {
        if let Some(overflow) = self.awaiting(refill) {
            overflow.reading = false;
            overflow.queued = true;
            self.failed_refills.push(refill.lot.clone());
        }
    }
}

impl Overflow {
    pub(super) fn starting_at(at: Timestamp) -> Self {
        Self {
            bucket: Bucket::of(at),
            after: just_before(at),
            reading: false,
            read: 0,
            queued: false,
            turned_away: None,
        }
    }

    pub(super) fn restart_at(&mut self, at: Timestamp) {
        self.bucket = Bucket::of(at);
        self.after = just_before(at);
    }

    /// A job of this lot stays in the store: makes sure the reads will come to it.
    pub(super) fn turn_away(&mut self, job: Position) {
        // One that waits for another time than its first has another place among those of that time than by its id.
        let is_home = |position: Position| position.at == position.id.run_at();
        let first = if is_home(job) { job } else { just_before(job.at) };
        if self.reading {
            self.turned_away = Some(self.turned_away.map_or(first, |earlier| earlier.min(first)));
        }
        // A herd has one time: were all of it read again for every one that is turned away, it would never end.
        let is_ahead = first.at > self.after.at || (first > self.after && is_home(self.after));
        if !is_ahead {
            self.restart_at(job.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewheel_core::id::JobId;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    /// A job that waits at `ms` and was first set for `first_ms`.
    fn job(ms: i64, first_ms: i64, tail: u128) -> Position {
        Position { at: at(ms), id: JobId::new(at(first_ms), tail) }
    }

    /// A lot that has been read up to `after`, from where it goes on once these jobs are turned away.
    fn goes_on(after: Position, turned_away: &[Position]) -> Position {
        let mut overflow = Overflow { after, ..Overflow::starting_at(after.at) };
        turned_away.iter().for_each(|job| overflow.turn_away(*job));
        overflow.after
    }

    #[test]
    fn a_herd_that_is_turned_away_is_not_read_from_its_beginning_for_each_of_it() {
        let after = job(1_000, 1_000, 5);
        assert_eq!(goes_on(after, &[job(1_000, 1_000, 6), job(1_001, 1_001, 1), job(2_000, 500, 1)]), after);
    }

    #[test]
    fn what_is_turned_away_behind_the_reader_is_read_again() {
        let start = just_before(at(1_000));
        let after = job(1_000, 1_000, 5);
        for behind in [job(1_000, 1_000, 5), job(1_000, 1_000, 4), job(1_000, 900, 9)] {
            assert_eq!(goes_on(after, &[behind]), start, "{behind:?}");
        }
        assert_eq!(goes_on(after, &[job(999, 999, 9)]), just_before(at(999)));
        // Among those that were moved there is another order.
        assert_eq!(goes_on(job(1_000, 900, 5), &[job(1_000, 1_000, 6)]), start);
    }

    #[test]
    fn the_first_that_was_turned_away_during_a_read_counts() {
        let mut overflow = Overflow { reading: true, ..Overflow::starting_at(at(1_000)) };
        for (ms, first_ms, tail) in [(1_000, 1_000, 7), (1_000, 1_000, 3), (1_001, 1_001, 1)] {
            overflow.turn_away(job(ms, first_ms, tail));
        }
        assert_eq!(
            (overflow.after, overflow.turned_away),
            (just_before(at(1_000)), Some(job(1_000, 1_000, 3)))
        );
        overflow.turn_away(job(1_000, 900, 8));
        assert_eq!(overflow.turned_away, Some(just_before(at(1_000))), "a moved one stands anywhere");
    }
}
