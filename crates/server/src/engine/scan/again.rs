//! What was read before and is looked through again, in case something was lost: a hint, news of another node, a cursor.
//!
//! It has cursors of its own, so that whoever reads for the first time is never taken back: they go through what that reader had
//! passed when they began, oldest first, and take turns with it. What it passes meanwhile it has only just read. A sweep that finds
//! them on their way does not take them back either; what it found is looked through once they have come to their end. Else
//! a tenant with more due jobs that nobody takes than are read between two sweeps would be read from its beginning for
//! ever, and nobody would come to what lies behind.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tidewheel_core::place::Bucket;
use tidewheel_core::time::Timestamp;

use super::{CursorState, Look, Lost, Part, Place, Scan, Stretch, TenantScan, TenantShard, just_before};

/// The cursors of one round for each part: it ends when the last of them does.
#[derive(Debug, Default)]
pub(super) struct Again {
    cursors: BTreeMap<Place, CursorState>,
    /// Where this round has been, or is, and up to where that had been read for the first time when it came there.
    begun: BTreeMap<Place, Timestamp>,
    /// The first job in each of those when it was last swept: for the next round.
    wanted: BTreeMap<Place, Timestamp>,
    /// The part that was read last.
    last: Option<Part>,
}

impl Again {
    pub(super) fn is_empty(&self) -> bool {
        self.cursors.is_empty()
    }

    pub(super) const fn cursors(&self) -> &BTreeMap<Place, CursorState> {
        &self.cursors
    }

    pub(super) const fn cursors_mut(&mut self) -> &mut BTreeMap<Place, CursorState> {
        &mut self.cursors
    }

    /// The oldest place that is ready; of the part that was not read last, if it has one. The rounds of a part may follow upon each
    /// other without end, and the other part may lie behind them.
    fn oldest(&self, mut is_ready: impl FnMut(Part, &CursorState) -> bool) -> Option<Place> {
        let mut oldest = |is_other: bool| {
            let found = self.cursors.iter().find(|((_, part), cursor)| {
                (Some(*part) != self.last) == is_other && is_ready(*part, cursor)
            });
            found.map(|(place, _)| *place)
        };
        oldest(true).or_else(|| oldest(false))
    }

    fn begin(&mut self, place: Place, passed_until: Timestamp) {
        // What is made up for may be found to reach further while it is looked through.
        let passed = if place.1 == Part::Live { passed_until } else { Timestamp::MAX };
        self.begun.entry(place).or_insert(passed);
        self.last = Some(place.1);
    }

    fn sweep(&mut self, place: Place, at: Timestamp, horizon: Timestamp) {
        if self.begun.contains_key(&place) {
            // What was heard last is nearest to what is so now.
            self.wanted.insert(place, at);
        } else {
            self.open_swept(place, at, horizon);
        }
    }

    fn open_swept(&mut self, place: Place, at: Timestamp, horizon: Timestamp) {
        // What comes later is announced later, so that a round has an end. What is made up for ends by itself.
        let last_at = if place.1 == Part::Live { horizon } else { at };
        self.open(place, at, last_at);
    }

    fn open(&mut self, place: Place, at: Timestamp, last_at: Timestamp) {
        let cursor = self.cursors.entry(place).or_insert_with(|| CursorState::starting_at(at, last_at));
        cursor.last_at = cursor.last_at.max(last_at);
        if cursor.after.is_some_and(|after| after.at >= at) {
            cursor.go_on(Some(just_before(at)), at);
        }
    }

    /// A place was looked through. If it was the last of its part, what was swept meanwhile is taken up.
    fn end(&mut self, place: Place, horizon: Timestamp) {
        self.cursors.remove(&place);
        let is_same = |other: &Place| other.1 == place.1;
        if self.cursors.keys().any(is_same) {
            return;
        }
        self.begun.retain(|other, _| !is_same(other));
        for (other, at) in std::mem::take(&mut self.wanted) {
            if is_same(&other) {
                self.open_swept(other, at, horizon);
            } else {
                self.wanted.insert(other, at);
            }
        }
    }
}

impl TenantScan {
    pub(super) const fn cursors_of(&self, look: Look) -> &BTreeMap<Place, CursorState> {
        match look {
            Look::First => &self.cursors,
            Look::Again => self.again.cursors(),
        }
    }

    pub(super) const fn cursors_of_mut(&mut self, look: Look) -> &mut BTreeMap<Place, CursorState> {
        match look {
            Look::First => &mut self.cursors,
            Look::Again => self.again.cursors_mut(),
        }
    }

    /// The oldest place that is ready to be read. What is read for the first time and what is looked through again take turns.
    pub(super) fn next_place(
        &mut self,
        horizon: Timestamp,
        mut is_ready: impl FnMut(Part, &CursorState) -> bool,
    ) -> Option<(Place, Look)> {
        let first = self.cursors.iter().find(|((_, part), cursor)| is_ready(*part, cursor));
        let first = first.map(|(place, _)| *place);
        let mut again = self.again.oldest(&mut is_ready);
        while let Some(place) = again
            && self.leave_to_first(place, horizon)
        {
            again = self.again.oldest(&mut is_ready);
        }
        let again = again.filter(|_| first.is_none() || self.again_is_next);
        self.again_is_next = again.is_none();
        let Some(place) = again else { return first.map(|place| (place, Look::First)) };
        self.again.begin(place, self.passed_until(place));
        Some((place, Look::Again))
    }

    fn is_reading_first(&self, place: Place) -> bool {
        self.reading == Some((place, Look::First))
    }

    /// Up to where a place has been read for the first time; to its end, if nobody reads there any more.
    pub(super) fn passed_until(&self, place: Place) -> Timestamp {
        let after = self.cursors.get(&place).and_then(|first| first.after);
        after.map_or(Timestamp::MAX, |after| after.at)
    }

    /// Up to where a place is looked through again in this round.
    pub(super) fn again_until(&self, place: Place) -> Timestamp {
        let passed = self.passed_until(place);
        self.again.begun.get(&place).map_or(passed, |at_first| passed.min(*at_first))
    }

    /// Ends looking through a place again where it is still read for the first time; says whether it did. Nothing is being
    /// read when this is asked, so that whatever is stored by now will be seen.
    fn leave_to_first(&mut self, place: Place, horizon: Timestamp) -> bool {
        let Some(again) = self.again.cursors.get(&place) else { return false };
        let Some(first) = self.cursors.get_mut(&place).filter(|first| first.after <= again.after) else {
            return false;
        };
        first.last_at = first.last_at.max(again.last_at);
        self.again.end(place, horizon);
        true
    }

    /// A place was looked through again, and what comes next is at `next_at`. Returns the first and the last job that somebody has
    /// to be on the way for.
    pub(super) fn end_again(
        &mut self,
        place: Place,
        mut next_at: Option<Timestamp>,
        (now, horizon): (Timestamp, Timestamp),
    ) -> Option<(Timestamp, Timestamp)> {
        let last_at = self.again.cursors.get(&place)?.last_at;
        // What lies behind that was read since, or will be.
        next_at.take_if(|at| self.again.begun.get(&place).is_some_and(|passed| *at > *passed));
        if let Some(first) = self.cursors.get_mut(&place) {
            first.last_at = first.last_at.max(last_at);
            // One that fell due since the round began was most likely read: it is for the next round, and takes nobody back. One that
            // is still to come may be unknown while a later one is waited for.
            if let Some(at) = next_at.take_if(|at| *at <= now)
                && first.after.is_some_and(|after| after.at >= at)
            {
                self.again.wanted.entry(place).or_insert(at);
            }
        }
        self.again.end(place, horizon);
        let last = |at: Timestamp| if place.1 == Part::Live { at } else { at.max(last_at) };
        next_at.map(|at| (at, last(at)))
    }
}

impl Scan {
    /// Looks again through a bucket in which a tenant's first job is at `first_at`.
    pub(in crate::engine) fn sweep(
        &mut self,
        of: &TenantShard,
        first_at: Timestamp,
        now: Timestamp,
        lost: Lost,
    ) {
        let boundary = self.missed_before;
        self.sweep_in(self.part_of(first_at), of, first_at, (now, lost));
        if first_at < boundary && Bucket::of(first_at) == Bucket::of(boundary) {
            self.sweep_in(Part::Live, of, boundary, (now, lost));
        }
    }

    fn sweep_in(&mut self, part: Part, of: &TenantShard, at: Timestamp, (now, lost): (Timestamp, Lost)) {
        let place = (Bucket::of(at), part);
        let horizon = now.plus_ms(self.lookahead_ms);
        if at > now {
            // Whoever reads for the first time may have a herd in memory already that is about to fall due. Taken back, they would read
            // all of it again, and just then.
            let is_read = |scan: &TenantScan| scan.is_reading_first(place) || scan.passed_until(place) >= at;
            let has_cursor = |scan: &&TenantScan| scan.cursors.contains_key(&place);
            if lost == Lost::Known
                || at > horizon
                || !self.tenants.get(of).filter(has_cursor).is_some_and(is_read)
            {
                self.announce_in(part, of, at);
            }
            return;
        }
        // Else the first sweep after a start would have a herd that falls due just then read a second time.
        let first = self.tenants.get_mut(of).and_then(|scan| scan.cursors.get_mut(&place));
        if lost == Lost::Nothing && first.is_some_and(|first| first.is_left_alone(at)) {
            return;
        }
        self.tenants.entry(of.clone()).or_default().again.sweep(place, at, horizon);
        self.wakes.push(Reverse((now, of.clone())));
    }

    /// Among live jobs, some were read that are made up for, the first and the last at these times: makes sure that they will be
    /// read as such.
    pub(in crate::engine) fn found_made_up(
        &mut self,
        stretch: &Stretch,
        (first, last): (Timestamp, Timestamp),
        now: Timestamp,
    ) {
        if stretch.look == Look::Again && first <= now {
            let scan = self.tenants.entry(stretch.of.clone()).or_default();
            scan.again.open((stretch.bucket, Part::Missed), first, last);
            return;
        }
        self.announce_made_up(&stretch.of, first);
        self.announce_made_up(&stretch.of, last);
    }
}
