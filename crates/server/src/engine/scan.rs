//! Which part of the store to read next: per tenant and shard, a cursor into each open bucket. Pure bookkeeping; the
//! scheduler does the reading.
//!
//! A cursor says "nothing at or before here is unknown to the scheduler". It exists only while its bucket may
//! hold something unread, so an idle tenant costs nothing. Tenants take turns by their weights, and each turn
//! reads a quantum from the tenant's oldest bucket: fair between tenants, oldest first within one. One that is spread over
//! several shards has a turn in each of them, and pays for all of them together.

mod again;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::time::Timestamp;

use self::again::Again;
use super::ready::Crowded;
use super::turns::Turns;

/// What is made up for is read at a limited pace, apart from what falls due now, so that neither delays the other
/// even inside one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Made up for: what fell due while the server was down, and jobs marked as such wherever they are.
    Missed,
    /// Everything else.
    Live,
}

/// Whether a stretch was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// What lies behind is unknown.
    First,
    /// It was, and is looked through for what was lost.
    Again,
}

/// What a sweep may find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// Nothing that anybody knows of, and what is lost here is known.
    Nothing,
    /// News between nodes are lost unheard.
    Maybe,
    /// Something is known to be lost.
    Known,
}

/// Where a cursor is.
type Place = (Bucket, Part);

/// One tenant's jobs in one shard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TenantShard {
    pub(super) tenant: Tenant,
    pub(super) shard: Shard,
}

/// One stretch of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) of: TenantShard,
    pub(super) bucket: Bucket,
    pub(super) part: Part,
    pub(super) look: Look,
}

/// A read the scheduler should make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) stretch: Stretch,
    pub(super) after: Option<Position>,
    pub(super) until: Timestamp,
    /// The last read of the stretch found no room, so that this one may well find none.
    pub(super) had_no_room: bool,
    /// Where the stretch last found too many already.
    pub(super) crowded: Option<Crowded>,
    /// One has waited for room for a due job lately.
    pub(super) has_waited: bool,
    /// Tells it from others of the same stretch.
    pub(super) number: u64,
}

/// Where a read left off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// There is more up to the read's end, after this position.
    More(Position),
    /// Everything up to the read's end was taken; the next job of the bucket is at this time, if any.
    End { next_at: Option<Timestamp> },
    /// The scheduler had no room for the job at this time, the first after this position: read on from there, not before
    /// `retry_at`. Many may be due at the same time, and those before it are not read again.
    NoRoom { after: Option<Position>, at: Timestamp, retry_at: Timestamp, crowded: Option<Crowded> },
}

#[derive(Debug)]
struct CursorState {
    after: Option<Position>,
    /// Where it began: everything from there on to `after` has been read.
    began: Timestamp,
    /// A sweep has left what it has read alone.
    is_left: bool,
    /// The earliest job that may be unread.
    next_at: Timestamp,
    /// Not worth reading before this instant.
    not_before: Timestamp,
    had_no_room: bool,
    crowded: Option<Crowded>,
    /// When a read last found no room for a job that was due, by the wall clock.
    waited_at: Option<Timestamp>,
    /// The latest job announced. Among live jobs, those that are made up for are looked for up to here. What is looked through
    /// again ends here.
    last_at: Timestamp,
}

impl CursorState {
    fn starting_at(at: Timestamp, last_at: Timestamp) -> Self {
        Self {
            after: Some(just_before(at)),
            began: at,
            is_left: false,
            next_at: at,
            not_before: Timestamp::MIN,
            had_no_room: false,
            crowded: None,
            waited_at: None,
            last_at,
        }
    }

    fn go_on(&mut self, after: Option<Position>, next_at: Timestamp) {
        (self.after, self.next_at) = (after, next_at);
    }

    /// Whether a sweep that has found a job at this time leaves it to this reader, which has just come by there. Once: should it
    /// go on reading for long, the next sweep looks.
    fn is_left_alone(&mut self, at: Timestamp) -> bool {
        let has_passed = self.began <= at && self.after.is_some_and(|after| after.at >= at);
        has_passed && !std::mem::replace(&mut self.is_left, true)
    }
}

#[derive(Debug, Default)]
struct TenantScan {
    cursors: BTreeMap<Place, CursorState>,
    again: Again,
    /// When both are ready, it is the turn of what is looked through again.
    again_is_next: bool,
    queued: bool,
    reading: Option<(Place, Look)>,
    /// The number of the read under way.
    read: u64,
    /// The earliest and the latest job announced for the stretch being read, while the read was under way.
    announced: Option<(Timestamp, Timestamp)>,
}

/// All cursors.
#[derive(Debug)]
pub(super) struct Scan {
    lookahead_ms: i64,
    /// Jobs due before this instant were missed while the server was down.
    missed_before: Timestamp,
    tenants: BTreeMap<TenantShard, TenantScan>,
    /// Reads begun so far.
    reads: u64,
    wakes: BinaryHeap<Reverse<(Timestamp, TenantShard)>>,
    turns: Turns<TenantShard>,
}

/// How long it counts that a reader has waited for room.
const WAITED_MS: i64 = 1_000;

/// The last position before any at `at`.
pub(super) fn just_before(at: Timestamp) -> Position {
    Position { at: at.plus_ms(-1), id: JobId::from_bytes([0xff; 16]) }
}

impl Scan {
    pub(super) fn new(lookahead_ms: i64, missed_before: Timestamp) -> Self {
        Self {
            lookahead_ms,
            missed_before,
            tenants: BTreeMap::new(),
            reads: 0,
            wakes: BinaryHeap::new(),
            turns: Turns::default(),
        }
    }

    fn part_of(&self, at: Timestamp) -> Part {
        if at < self.missed_before { Part::Missed } else { Part::Live }
    }

    /// Makes sure a job at `at` will be read.
    pub(super) fn announce(&mut self, of: &TenantShard, at: Timestamp) {
        self.announce_in(self.part_of(at), of, at);
    }

    /// Makes sure that it will be read as part of what is made up for.
    pub(super) fn announce_made_up(&mut self, of: &TenantShard, at: Timestamp) {
        self.announce_in(Part::Missed, of, at);
    }

    fn announce_in(&mut self, part: Part, of: &TenantShard, at: Timestamp) {
        let key = (Bucket::of(at), part);
        let scan = self.tenants.entry(of.clone()).or_default();
        if scan.reading == Some((key, Look::First)) {
            scan.announced =
                Some(scan.announced.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
            return;
        }
        let mut earlier = false;
        let cursor = scan.cursors.entry(key).or_insert_with(|| {
            earlier = true;
            CursorState::starting_at(at, at)
        });
        cursor.last_at = cursor.last_at.max(at);
        if cursor.after.is_some_and(|after| after.at >= at) {
            cursor.after = Some(just_before(at));
        }
        cursor.began = cursor.began.min(at);
        if at < cursor.next_at {
            cursor.next_at = at;
            // A reader may be waiting for room for what comes later.
            cursor.not_before = cursor.not_before.min(at);
            earlier = true;
        }
        // One wake per new earliest time, so that a herd on one instant leaves one, not thousands.
        if earlier {
            let ahead_ms = if part == Part::Live { self.lookahead_ms } else { 0 };
            self.wakes.push(Reverse((at.plus_ms(-ahead_ms), of.clone())));
        }
    }

    /// Takes up a bucket in which a tenant's first job is at `first_at`.
    pub(super) fn open(&mut self, of: &TenantShard, first_at: Timestamp) {
        self.announce(of, first_at);
        let boundary = self.missed_before;
        if first_at < boundary && Bucket::of(first_at) == Bucket::of(boundary) {
            self.announce(of, boundary);
        }
    }

    /// The next read, if some tenant has work up to `horizon`. `may_make_up` is whether a tenant's pace leaves
    /// room to make up for something; that is read once it is due, because it counts from then on.
    pub(super) fn next_read(
        &mut self,
        now: Timestamp,
        horizon: Timestamp,
        mut may_make_up: impl FnMut(&Tenant) -> bool,
    ) -> Option<Read> {
        self.wake(now);
        for _ in 0..self.turns.len() {
            let of = self.turns.pop()?;
            // One that was forgotten meanwhile may be queued for its turn from before.
            let Some(scan) = self.tenants.get_mut(&of).filter(|scan| scan.reading.is_none()) else {
                continue;
            };
            scan.queued = false;
            let mut may = None;
            let found = scan.next_place(horizon, |part, cursor| {
                cursor.not_before <= now
                    && match part {
                        Part::Live => cursor.next_at <= horizon,
                        Part::Missed => {
                            cursor.next_at <= now && *may.get_or_insert_with(|| may_make_up(&of.tenant))
                        }
                    }
            });
            let Some(((bucket, part), look)) = found else {
                self.sleep(&of, now, horizon);
                continue;
            };
            let Some(cursor) = scan.cursors_of(look).get(&(bucket, part)) else { continue };
            let (until, last_at) = match part {
                Part::Missed if cursor.next_at < self.missed_before => {
                    (now.min(self.missed_before.plus_ms(-1)), Timestamp::MAX)
                }
                Part::Missed => (now, cursor.last_at),
                Part::Live => (horizon, cursor.last_at),
            };
            let until = match look {
                Look::First => until,
                Look::Again => until.min(last_at).min(scan.again_until((bucket, part))),
            };
            self.reads += 1;
            let stretch = Stretch { of, bucket, part, look };
            let (after, had_no_room, crowded) = (cursor.after, cursor.had_no_room, cursor.crowded);
            // Or the clock was set.
            let is_lately = |at: Timestamp| (0..WAITED_MS).contains(&now.since_ms(at));
            let has_waited = cursor.waited_at.is_some_and(is_lately);
            let read = Read { after, until, had_no_room, crowded, has_waited, stretch, number: self.reads };
            (scan.reading, scan.read) = (Some(((bucket, part), look)), self.reads);
            scan.announced = None;
            return Some(read);
        }
        None
    }

    /// Reads tenants by these weights from now on.
    pub(super) fn set_weights<'a>(&mut self, weights: impl Iterator<Item = (&'a Arc<str>, u32)>) {
        self.turns.set_weights(weights);
    }

    /// A read of the tenant brought so many jobs.
    pub(super) fn charge(&mut self, tenant: &Tenant, jobs: usize) {
        self.turns.charge(tenant, jobs);
    }

    /// Whether this very read is waited for. One begun before the tenant was forgotten is not, even if the same stretch is
    /// being read again: it would pass over what lies before it.
    pub(super) fn is_reading(&self, read: &Read) -> bool {
        let scan = self.tenants.get(&read.stretch.of);
        scan.is_some_and(|scan| scan.reading.is_some() && scan.read == read.number)
    }

    /// Notes what a read came to.
    pub(super) fn done(&mut self, stretch: &Stretch, reached: Reached, now: Timestamp) {
        let horizon = now.plus_ms(self.lookahead_ms);
        let Some(scan) = self.tenants.get_mut(&stretch.of) else { return };
        let place = (stretch.bucket, stretch.part);
        scan.reading = None;
        let mut announced = scan.announced.take();
        let known_until = scan.again_until(place).min(now);
        if let Some(cursor) = scan.cursors_of_mut(stretch.look).get_mut(&place) {
            let last_at = cursor.last_at;
            let worth =
                |at: &Timestamp| stretch.part == Part::Live || *at < self.missed_before || *at <= last_at;
            cursor.had_no_room = matches!(reached, Reached::NoRoom { .. });
            if matches!(reached, Reached::End { .. }) {
                cursor.crowded = None;
            }
            match reached {
                Reached::More(position) => cursor.go_on(Some(position), position.at),
                Reached::End { next_at } => match (stretch.look, next_at.filter(worth)) {
                    (Look::First, Some(next_at)) => cursor.go_on(Some(just_before(next_at)), next_at),
                    // What was missed is behind it, and there is more that is made up for.
                    (Look::Again, Some(next_at)) if next_at <= known_until.min(last_at) => {
                        cursor.go_on(Some(just_before(next_at)), next_at);
                    }
                    (Look::Again, next_at) => announced = scan.end_again(place, next_at, (now, horizon)),
                    (Look::First, None) => {
                        scan.cursors.remove(&place);
                    }
                },
                Reached::NoRoom { after, at, retry_at, crowded } => {
                    cursor.crowded = crowded;
                    if at <= now {
                        cursor.waited_at = Some(now);
                    }
                    cursor.go_on(after, at);
                    cursor.not_before = retry_at;
                }
            }
        }
        if let Some((first, last)) = announced {
            self.announce_in(stretch.part, &stretch.of, first);
            self.announce_in(stretch.part, &stretch.of, last);
        }
        let Some(scan) = self.tenants.get(&stretch.of) else { return };
        if scan.cursors.is_empty() && scan.again.is_empty() {
            self.tenants.remove(&stretch.of);
        } else {
            self.wakes.push(Reverse((now, stretch.of.clone())));
        }
    }

    /// Forgets the shards for which `wanted` does not hold.
    pub(super) fn keep(&mut self, wanted: impl Fn(Shard) -> bool) {
        self.tenants.retain(|of, _| wanted(of.shard));
    }

    /// The wall clock was set back: whatever was put off until an instant is looked at again.
    pub(super) fn look_again(&mut self, now: Timestamp) {
        // What was looked through again is swept anew. Left as it is, it would wait until the clock has come there once more.
        self.tenants.retain(|_, scan| !scan.cursors.is_empty());
        for (of, scan) in &mut self.tenants {
            scan.again = Again::default();
            scan.reading = scan.reading.filter(|(_, look)| *look == Look::First);
            scan.cursors.values_mut().for_each(|cursor| cursor.not_before = Timestamp::MIN);
            self.wakes.push(Reverse((now, of.clone())));
        }
    }

    /// When [`Self::next_read`] is worth calling again, if nothing else happens.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        if self.turns.is_empty() {
            self.wakes.peek().map(|Reverse((at, _))| *at)
        } else {
            Some(Timestamp::MIN)
        }
    }

    /// The earliest job that is due and may be unread. What is looked through again was read.
    pub(super) fn oldest_unread(&self, now: Timestamp) -> Option<Timestamp> {
        let cursors = self.tenants.values().flat_map(|scan| scan.cursors.values());
        cursors.map(|cursor| cursor.next_at).filter(|at| *at <= now).min()
    }

    /// Every cursor of what is read for the first time: whose and in which shard, bucket, and how far it has come.
    pub(super) fn cursors(&self) -> impl Iterator<Item = (&TenantShard, Bucket, Option<Position>)> {
        self.tenants
            .iter()
            .flat_map(|(of, scan)| scan.cursors.iter().map(move |((bucket, _), c)| (of, *bucket, c.after)))
    }

    fn wake(&mut self, now: Timestamp) {
        while let Some(Reverse((at, _))) = self.wakes.peek() {
            if *at > now {
                break;
            }
            let Some(Reverse((_, of))) = self.wakes.pop() else { break };
            let Some(scan) = self.tenants.get_mut(&of) else { continue };
            if !scan.queued && scan.reading.is_none() {
                scan.queued = true;
                self.turns.push(&of.tenant, of.clone());
            }
        }
    }

    /// Wakes the tenant again when its earliest cursor is worth reading.
    fn sleep(&mut self, of: &TenantShard, now: Timestamp, horizon: Timestamp) {
        const THROTTLED_MS: i64 = 20;
        let Some(scan) = self.tenants.get(of) else { return };
        let earliest = scan
            .cursors
            .iter()
            .chain(scan.again.cursors())
            .map(|((_, part), cursor)| {
                if *part == Part::Missed && cursor.next_at > now {
                    cursor.next_at
                } else if cursor.next_at > horizon {
                    cursor.next_at.plus_ms(-self.lookahead_ms)
                } else if cursor.not_before > now {
                    cursor.not_before
                } else {
                    now.plus_ms(THROTTLED_MS)
                }
            })
            .min();
        if let Some(at) = earliest {
            self.wakes.push(Reverse((at.max(now.plus_ms(1)), of.clone())));
        }
    }
}

#[cfg(test)]
mod tests;
