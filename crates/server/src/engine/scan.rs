//! Which part of the store to read next: per tenant and shard, a cursor into each open bucket. Pure bookkeeping; the
//! scheduler does the reading.
//!
//! A cursor says "nothing at or before here is unknown to the scheduler". It exists only while its bucket may
//! hold something unread, so an idle tenant costs nothing. Tenants take turns by their weights, and each turn
//! reads a quantum from the tenant's oldest bucket: fair between tenants, oldest first within one. One that is spread over
//! several shards has a turn in each of them, and pays for all of them together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::time::Timestamp;

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
}

/// A read the scheduler should make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) stretch: Stretch,
    pub(super) after: Option<Position>,
    pub(super) until: Timestamp,
    /// The last read of the stretch found no room, so that this one may well find none.
    pub(super) had_no_room: bool,
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
    NoRoom { after: Option<Position>, at: Timestamp, retry_at: Timestamp },
}

#[derive(Debug)]
struct CursorState {
    after: Option<Position>,
    /// The earliest job that may be unread.
    next_at: Timestamp,
    /// Not worth reading before this instant.
    not_before: Timestamp,
    had_no_room: bool,
    /// When a read last found no room for a job that was due, by the wall clock.
    waited_at: Option<Timestamp>,
    /// The latest job announced. Among live jobs, those that are made up for are looked for up to here.
    last_at: Timestamp,
}

#[derive(Debug, Default)]
struct TenantScan {
    cursors: BTreeMap<(Bucket, Part), CursorState>,
    queued: bool,
    reading: Option<(Bucket, Part)>,
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
        if scan.reading == Some(key) {
            scan.announced =
                Some(scan.announced.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
            return;
        }
        let mut earlier = false;
        let cursor = scan.cursors.entry(key).or_insert_with(|| {
            earlier = true;
            CursorState {
                after: Some(just_before(at)),
                next_at: at,
                not_before: Timestamp::MIN,
                had_no_room: false,
                waited_at: None,
                last_at: at,
            }
        });
        cursor.last_at = cursor.last_at.max(at);
        if cursor.after.is_some_and(|after| after.at >= at) {
            cursor.after = Some(just_before(at));
        }
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
            let found = scan.cursors.iter().find(|((_, part), cursor)| {
                cursor.not_before <= now
                    && match part {
                        Part::Live => cursor.next_at <= horizon,
                        Part::Missed => {
                            cursor.next_at <= now && *may.get_or_insert_with(|| may_make_up(&of.tenant))
                        }
                    }
            });
            let Some((&(bucket, part), cursor)) = found else {
                self.sleep(&of, now, horizon);
                continue;
            };
            let until = match part {
                Part::Missed if cursor.next_at < self.missed_before => {
                    now.min(self.missed_before.plus_ms(-1))
                }
                Part::Missed => now,
                Part::Live => horizon,
            };
            self.reads += 1;
            let stretch = Stretch { of, bucket, part };
            let (after, had_no_room) = (cursor.after, cursor.had_no_room);
            // Or the clock was set.
            let is_lately = |at: Timestamp| (0..WAITED_MS).contains(&now.since_ms(at));
            let has_waited = cursor.waited_at.is_some_and(is_lately);
            let read = Read { after, until, had_no_room, has_waited, stretch, number: self.reads };
            (scan.reading, scan.read) = (Some((bucket, part)), self.reads);
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
        let Some(scan) = self.tenants.get_mut(&stretch.of) else { return };
        let key = (stretch.bucket, stretch.part);
        scan.reading = None;
        let announced = scan.announced.take();
        if let Some(cursor) = scan.cursors.get_mut(&key) {
            let worth =
                |at: Timestamp| stretch.part == Part::Live || at < self.missed_before || at <= cursor.last_at;
            cursor.had_no_room = matches!(reached, Reached::NoRoom { .. });
            match reached {
                Reached::More(position) => {
                    cursor.after = Some(position);
                    cursor.next_at = position.at;
                }
                Reached::End { next_at: Some(next_at) } if worth(next_at) => {
                    cursor.after = Some(just_before(next_at));
                    cursor.next_at = next_at;
                }
                Reached::End { .. } => {
                    scan.cursors.remove(&key);
                }
                Reached::NoRoom { after, at, retry_at } => {
                    if at <= now {
                        cursor.waited_at = Some(now);
                    }
                    cursor.after = after;
                    cursor.next_at = at;
                    cursor.not_before = retry_at;
                }
            }
        }
        if let Some((first, last)) = announced {
            self.announce_in(stretch.part, &stretch.of, first);
            self.announce_in(stretch.part, &stretch.of, last);
        }
        let Some(scan) = self.tenants.get(&stretch.of) else { return };
        if scan.cursors.is_empty() {
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
        for (of, scan) in &mut self.tenants {
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

    /// The earliest job that is due and may be unread.
    pub(super) fn oldest_unread(&self, now: Timestamp) -> Option<Timestamp> {
        let cursors = self.tenants.values().flat_map(|scan| scan.cursors.values());
        cursors.map(|cursor| cursor.next_at).filter(|at| *at <= now).min()
    }

    /// Every cursor: whose and in which shard, bucket, and how far it has come.
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
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn of(name: &str) -> TenantShard {
        TenantShard { tenant: tenant(name), shard: Shard(7) }
    }

    #[test]
    fn tenants_take_turns_and_an_exhausted_one_is_forgotten() {
        let mut scan = Scan::new(1_000, at(0));
        scan.announce(&of("a"), at(5_000));
        scan.announce(&of("b"), at(5_000));
        assert_eq!(scan.next_read(at(3_000), at(4_000), |_| true), None, "too far ahead");
        let first = scan.next_read(at(4_500), at(5_500), |_| true).unwrap();
        let second = scan.next_read(at(4_500), at(5_500), |_| true).unwrap();
        assert_ne!(first.stretch.of.tenant, second.stretch.of.tenant);
        assert_eq!(scan.next_read(at(4_500), at(5_500), |_| true), None, "both are being read");
        let more = Position { at: at(5_000), id: JobId::new(at(5_000), 7) };
        scan.done(&first.stretch, Reached::More(more), at(4_500));
        scan.done(&second.stretch, Reached::End { next_at: None }, at(4_500));
        let again = scan.next_read(at(4_500), at(5_500), |_| true).unwrap();
        assert_eq!((again.stretch.of.tenant, again.after), (first.stretch.of.tenant, Some(more)));
        assert_eq!(scan.tenants.len(), 1);
    }

    #[test]
    fn an_earlier_job_does_not_wait_for_the_room_of_a_later_one() {
        let mut scan = Scan::new(2_000, at(0));
        let next = |scan: &mut Scan, now| scan.next_read(at(now), at(now + 2_000), |_| true);
        scan.announce(&of("a"), at(11_500));
        let read = next(&mut scan, 10_000).unwrap();
        assert!(!read.had_no_room && !read.has_waited);
        let no_room = Reached::NoRoom { after: read.after, at: at(11_500), retry_at: at(10_500) };
        scan.done(&read.stretch, no_room, at(10_000));
        assert_eq!(next(&mut scan, 10_040), None);
        scan.announce(&of("a"), at(10_060));
        assert_eq!(next(&mut scan, 10_050), None);
        let read = next(&mut scan, 10_060).unwrap();
        assert!(read.had_no_room && !read.has_waited && read.after < Some(just_before(at(10_061))));
        let no_room = Reached::NoRoom { after: read.after, at: at(10_060), retry_at: at(10_062) };
        scan.done(&read.stretch, no_room, at(10_060));
        let read = next(&mut scan, 10_062).unwrap();
        assert!(read.had_no_room && read.has_waited, "for one that was due");
        let more = Reached::More(Position { at: at(10_060), id: JobId::new(at(10_060), 7) });
        scan.done(&read.stretch, more, at(10_062));
        let read = next(&mut scan, 10_070).unwrap();
        assert!(!read.had_no_room && read.has_waited, "lately");
        scan.done(&read.stretch, more, at(10_070));
        assert!(!next(&mut scan, 11_060).unwrap().has_waited, "not any more");
    }

    #[test]
    fn saturated_tenants_are_read_by_their_weights() {
        let mut scan = Scan::new(0, at(0));
        let three: Arc<str> = Arc::from("three");
        scan.set_weights([(&three, 3)].into_iter());
        scan.announce(&of("one"), at(1));
        scan.announce(&of("three"), at(1));
        let mut read_count = BTreeMap::<Tenant, usize>::new();
        for n in 0..400 {
            let read = scan.next_read(at(10), at(10), |_| true).unwrap();
            let position = Position { at: at(1), id: JobId::new(at(1), n) };
            scan.charge(&read.stretch.of.tenant, 100);
            scan.done(&read.stretch, Reached::More(position), at(10));
            *read_count.entry(read.stretch.of.tenant).or_default() += 1;
        }
        let share = read_count[&tenant("three")];
        assert!((295..=305).contains(&share), "{share} of 400 instead of 300");
    }

    #[test]
    fn a_tenant_is_read_in_several_shards_at_once_and_pays_for_all_of_them() {
        let mut scan = Scan::new(0, at(0));
        scan.announce(&of("one"), at(1));
        for shard in [7, 11, 23, 39] {
            scan.announce(&TenantShard { tenant: tenant("spread"), shard: Shard(shard) }, at(1));
        }
        let side_by_side: Vec<_> =
            (0..5).map(|_| scan.next_read(at(10), at(10), |_| true).unwrap()).collect();
        for read in side_by_side {
            scan.done(
                &read.stretch,
                Reached::NoRoom { after: read.after, at: at(1), retry_at: at(10) },
                at(10),
            );
        }
        let mut read_count = BTreeMap::<Tenant, usize>::new();
        for n in 0..400 {
            let read = scan.next_read(at(10), at(10), |_| true).unwrap();
            let position = Position { at: at(1), id: JobId::new(at(1), n) };
            scan.charge(&read.stretch.of.tenant, 100);
            scan.done(&read.stretch, Reached::More(position), at(10));
            *read_count.entry(read.stretch.of.tenant).or_default() += 1;
        }
        let share = read_count[&tenant("spread")];
        assert!((190..=210).contains(&share), "{share} of 400 instead of 200");
        scan.keep(|shard| shard == Shard(11));
        assert_eq!(scan.cursors().count(), 1);
    }

    #[test]
    fn a_job_announced_during_a_read_is_read_afterwards() {
        let mut scan = Scan::new(0, at(0));
        scan.announce(&of("a"), at(100));
        let read = scan.next_read(at(100), at(100), |_| true).unwrap();
        scan.announce(&of("a"), at(50));
        scan.done(&read.stretch, Reached::End { next_at: None }, at(100));
        let again = scan.next_read(at(101), at(101), |_| true).unwrap();
        assert_eq!(again.after, Some(just_before(at(50))));
    }

    #[test]
    fn what_was_missed_waits_for_its_pace_and_the_rest_does_not() {
        let boundary = at(300_000);
        let mut scan = Scan::new(0, boundary);
        scan.open(&of("a"), at(100));
        let live = scan.next_read(at(400_000), at(400_000), |_| false).unwrap();
        assert_eq!((live.stretch.part, live.after), (Part::Live, Some(just_before(boundary))));
        scan.done(&live.stretch, Reached::End { next_at: None }, at(400_000));
        let missed = scan.next_read(at(400_020), at(400_020), |_| true).unwrap();
        assert_eq!((missed.stretch.part, missed.until), (Part::Missed, at(299_999)));
    }

    #[test]
    fn a_read_begun_before_its_tenant_was_forgotten_is_not_taken_for_one_begun_since() {
        let mut scan = Scan::new(0, at(0));
        scan.announce(&of("a"), at(50));
        let old = scan.next_read(at(100), at(100), |_| true).unwrap();
        assert!(scan.is_reading(&old));
        scan.keep(|_| false);
        assert!(!scan.is_reading(&old), "forgotten");
        scan.announce(&of("a"), at(10));
        assert!(!scan.is_reading(&old), "known again, and not yet read");
        let new = scan.next_read(at(100), at(100), |_| true).unwrap();
        assert!(!scan.is_reading(&old) && scan.is_reading(&new));
        assert_eq!(new.after, Some(just_before(at(10))));
    }

    #[test]
    fn no_room_reads_the_same_job_again_later() {
        let mut scan = Scan::new(0, at(0));
        scan.announce(&of("a"), at(10));
        let read = scan.next_read(at(10), at(10), |_| true).unwrap();
        // One of two jobs of that instant found room.
        let after = Some(Position { at: at(10), id: JobId::new(at(10), 1) });
        scan.done(&read.stretch, Reached::NoRoom { after, at: at(10), retry_at: at(30) }, at(10));
        assert_eq!(scan.next_read(at(20), at(20), |_| true), None);
        let again = scan.next_read(at(40), at(40), |_| true).unwrap();
        assert_eq!(again.after, after);
    }
}
