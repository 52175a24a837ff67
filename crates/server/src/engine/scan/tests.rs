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
    let no_room = Reached::NoRoom { after: read.after, at: at(11_500), retry_at: at(10_500), crowded: None };
    scan.done(&read.stretch, no_room, at(10_000));
    assert_eq!(next(&mut scan, 10_040), None);
    scan.announce(&of("a"), at(10_060));
    assert_eq!(next(&mut scan, 10_050), None);
    let read = next(&mut scan, 10_060).unwrap();
    assert!(read.had_no_room && !read.has_waited && read.after < Some(just_before(at(10_061))));
    let no_room = Reached::NoRoom { after: read.after, at: at(10_060), retry_at: at(10_062), crowded: None };
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
    let side_by_side: Vec<_> = (0..5).map(|_| scan.next_read(at(10), at(10), |_| true).unwrap()).collect();
    for read in side_by_side {
        scan.done(
            &read.stretch,
            Reached::NoRoom { after: read.after, at: at(1), retry_at: at(10), crowded: None },
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
    scan.done(&read.stretch, Reached::NoRoom { after, at: at(10), retry_at: at(30), crowded: None }, at(10));
    assert_eq!(scan.next_read(at(20), at(20), |_| true), None);
    let again = scan.next_read(at(40), at(40), |_| true).unwrap();
    assert_eq!(again.after, after);
}

/// A job's position.
fn job_at(ms: i64) -> Position {
    Position { at: at(ms), id: JobId::new(at(ms), 7) }
}

/// Makes the next read, says what it is to bring, and that it came to this.
fn read(scan: &mut Scan, now: i64, reached: Reached) -> (Look, Bucket, Option<Position>, Timestamp) {
    let read = scan.next_read(at(now), at(now), |_| true).unwrap();
    scan.done(&read.stretch, reached, at(now));
    (read.stretch.look, read.stretch.bucket, read.after, read.until)
}

#[test]
fn a_sweep_takes_nobody_back_and_looks_through_what_was_passed() {
    let mut scan = Scan::new(0, at(0));
    let (now, old, new) = (700_000, Bucket::of(at(10)), Bucket::of(at(650_000)));
    scan.open(&of("a"), at(10));
    scan.open(&of("a"), at(650_000));
    let more = |ms| Reached::More(job_at(ms));
    assert_eq!(read(&mut scan, now, more(20)), (Look::First, old, Some(just_before(at(10))), at(now)));
    let swept = |scan: &mut Scan| [10, 650_000].map(|ms| scan.sweep(&of("a"), at(ms), at(now), Lost::Maybe));
    swept(&mut scan);
    // By turns; what was read once no further than it was then.
    assert_eq!(read(&mut scan, now, more(15)), (Look::Again, old, Some(just_before(at(10))), at(20)));
    assert_eq!(read(&mut scan, now, more(30)), (Look::First, old, Some(job_at(20)), at(now)));
    swept(&mut scan);
    assert_eq!(read(&mut scan, now, more(17)), (Look::Again, old, Some(job_at(15)), at(20)));
    let end = Reached::End { next_at: None };
    assert_eq!(read(&mut scan, now, end), (Look::First, old, Some(job_at(30)), at(now)));
    swept(&mut scan);
    let behind = Reached::End { next_at: Some(at(25)) };
    assert_eq!(read(&mut scan, now, behind), (Look::Again, old, Some(job_at(17)), at(20)));
    // The newer bucket has not been read at all: there is nothing to look through yet, and the next round begins.
    let first = read(&mut scan, now, end);
    assert_eq!(first, (Look::First, new, Some(just_before(at(650_000))), at(now)));
    assert_eq!(read(&mut scan, now, end), (Look::Again, old, Some(just_before(at(10))), at(now)));
    assert_eq!(scan.tenants.len(), 0, "all is read, and nothing is left of it");
}

#[test]
fn a_sweep_leaves_a_herd_to_whoever_has_read_it_ahead() {
    let (now, herd) = (10_000, 11_000);
    let read_ahead = || {
        let mut scan = Scan::new(2_000, at(0));
        scan.open(&of("a"), at(herd));
        let read = scan.next_read(at(now), at(now + 2_000), |_| true).unwrap();
        (scan, read)
    };
    let goes_on = |mut scan: Scan| {
        let read = scan.next_read(at(now), at(now + 2_000), |_| true).unwrap();
        (read.stretch.look, read.after)
    };
    let (taken_back, last) = (just_before(at(herd)), job_at(herd));
    for (lost, after) in [(Lost::Nothing, last), (Lost::Maybe, last), (Lost::Known, taken_back)] {
        let (mut scan, read) = read_ahead();
        scan.done(&read.stretch, Reached::More(last), at(now));
        scan.sweep(&of("a"), at(herd), at(now), lost);
        assert_eq!(goes_on(scan), (Look::First, Some(after)), "lost: {lost:?}");
        let (mut scan, read) = read_ahead();
        scan.sweep(&of("a"), at(herd), at(now), lost);
        scan.done(&read.stretch, Reached::More(last), at(now));
        assert_eq!(goes_on(scan), (Look::First, Some(after)), "while it is read; lost: {lost:?}");
    }
    // What comes sooner than anybody is on the way for is announced, and what nobody reads any more.
    let (mut scan, read) = read_ahead();
    scan.done(&read.stretch, Reached::End { next_at: Some(at(100_000)) }, at(now));
    scan.sweep(&of("a"), at(50_000), at(now), Lost::Maybe);
    assert_eq!(scan.next_wake(), Some(at(now)));
    scan.next_read(at(now), at(now + 2_000), |_| true);
    assert_eq!(scan.next_wake(), Some(at(48_000)));
    let (mut scan, read) = read_ahead();
    scan.done(&read.stretch, Reached::End { next_at: None }, at(now));
    scan.sweep(&of("a"), at(herd), at(now), Lost::Maybe);
    assert_eq!(goes_on(scan), (Look::First, Some(taken_back)));
}

/// A herd that is being read when it falls due is not read twice, unless somebody has reason to.
#[test]
fn the_first_sweep_leaves_what_is_just_being_read_to_its_reader() {
    let now = 1_000;
    let half_read = |opened_at| {
        let mut scan = Scan::new(0, at(0));
        scan.announce(&of("a"), at(opened_at));
        read(&mut scan, now, Reached::More(job_at(500)));
        scan
    };
    let is_looked_through = |scan: &mut Scan| {
        let looks = [(); 2].map(|()| {
            let read = scan.next_read(at(now), at(now), |_| true).unwrap();
            scan.done(&read.stretch, Reached::More(job_at(600)), at(now));
            read.stretch.look
        });
        looks.contains(&Look::Again)
    };
    for (opened_at, lost, expected) in [
        (500, Lost::Nothing, false),
        (400, Lost::Nothing, false),
        (500, Lost::Maybe, true),
        (500, Lost::Known, true),
    ] {
        let mut scan = half_read(opened_at);
        scan.sweep(&of("a"), at(500), at(now), lost);
        assert_eq!(is_looked_through(&mut scan), expected, "{opened_at} {lost:?}");
        scan.sweep(&of("a"), at(500), at(now), lost);
        assert!(is_looked_through(&mut scan), "by the next sweep at the latest");
    }
    // It began behind what the sweep has found, as it may after a start.
    let mut scan = half_read(500);
    scan.sweep(&of("a"), at(499), at(now), Lost::Nothing);
    assert!(is_looked_through(&mut scan));
    // It was taken back to it, and has read it since.
    let mut scan = half_read(500);
    scan.announce(&of("a"), at(499));
    read(&mut scan, now, Reached::More(job_at(500)));
    scan.sweep(&of("a"), at(499), at(now), Lost::Nothing);
    assert!(!is_looked_through(&mut scan));
    // Nobody reads there any more.
    let mut scan = half_read(500);
    read(&mut scan, now, Reached::End { next_at: None });
    scan.sweep(&of("a"), at(500), at(now), Lost::Nothing);
    let read = scan.next_read(at(now), at(now), |_| true).unwrap();
    assert_eq!(read.stretch.look, Look::Again);
}

#[test]
fn what_is_swept_while_it_is_looked_through_is_looked_through_once_more() {
    let mut scan = Scan::new(0, at(0));
    scan.sweep(&of("a"), at(10), at(100), Lost::Maybe);
    let under_way = scan.next_read(at(100), at(100), |_| true).unwrap();
    assert_eq!((under_way.stretch.look, under_way.until), (Look::Again, at(100)));
    for first_at in [10, 12] {
        scan.sweep(&of("a"), at(first_at), at(150), Lost::Maybe);
    }
    let end = Reached::End { next_at: Some(at(140)) };
    scan.done(&under_way.stretch, end, at(150));
    let next = scan.next_read(at(150), at(150), |_| true).unwrap();
    assert_eq!((next.stretch.look, next.after), (Look::First, Some(just_before(at(140)))));
    scan.done(&next.stretch, Reached::End { next_at: None }, at(150));
    let again = scan.next_read(at(150), at(150), |_| true).unwrap();
    assert_eq!((again.stretch.look, again.after), (Look::Again, Some(just_before(at(12)))));
    assert_eq!(again.until, at(150));
    scan.done(&again.stretch, Reached::End { next_at: None }, at(150));
    assert_eq!(scan.tenants.len(), 0);
}

#[test]
fn news_take_a_reader_back_also_while_something_is_looked_through() {
    let mut scan = Scan::new(0, at(0));
    scan.announce(&of("a"), at(50));
    let more = |ms| Reached::More(job_at(ms));
    read(&mut scan, 100, more(60));
    scan.sweep(&of("a"), at(10), at(100), Lost::Maybe);
    let again = scan.next_read(at(100), at(100), |_| true).unwrap();
    assert_eq!((again.stretch.look, again.until), (Look::Again, at(60)));
    scan.announce(&of("a"), at(30));
    scan.done(&again.stretch, more(40), at(100));
    let first = scan.next_read(at(100), at(100), |_| true).unwrap();
    assert_eq!((first.stretch.look, first.after), (Look::First, Some(just_before(at(30)))));
    scan.done(&first.stretch, Reached::End { next_at: None }, at(100));
    assert_eq!(scan.tenants.len(), 0, "it has read what was left to be looked through, too");
}

#[test]
fn what_is_swept_of_what_was_missed_keeps_to_its_pace_and_holds_up_no_live_jobs() {
    let boundary = at(300_000);
    let mut scan = Scan::new(0, boundary);
    scan.sweep(&of("a"), at(100), at(400_000), Lost::Maybe);
    let live = scan.next_read(at(400_000), at(400_000), |_| false).unwrap();
    assert_eq!((live.stretch.part, live.after), (Part::Live, Some(just_before(boundary))));
    scan.found_made_up(&live.stretch, (at(310_000), at(420_000)), at(400_000));
    scan.done(&live.stretch, Reached::End { next_at: None }, at(400_000));
    let missed = scan.next_read(at(400_000), at(400_000), |_| true).unwrap();
    assert_eq!((missed.stretch.part, missed.stretch.look), (Part::Missed, Look::Again));
    assert_eq!((missed.after, missed.until), (Some(just_before(at(100))), at(299_999)));
    scan.done(&missed.stretch, Reached::End { next_at: Some(at(310_000)) }, at(400_000));
    let marked = scan.next_read(at(400_000), at(400_000), |_| true).unwrap();
    assert_eq!((marked.stretch.look, marked.until), (Look::Again, at(400_000)));
    assert_eq!(marked.after, Some(just_before(at(310_000))));
    // One that is due later is not for those who look again.
    scan.done(&marked.stretch, Reached::End { next_at: Some(at(410_000)) }, at(400_000));
    assert_eq!(scan.next_read(at(400_000), at(400_000), |_| true), None);
    let later = scan.next_read(at(410_000), at(410_000), |_| true).unwrap();
    assert_eq!((later.stretch.part, later.stretch.look), (Part::Missed, Look::First));
}

#[test]
fn what_is_found_to_come_before_the_job_that_is_waited_for_is_read_in_time() {
    let mut scan = Scan::new(0, at(0));
    scan.announce(&of("a"), at(500));
    scan.sweep(&of("a"), at(10), at(100), Lost::Maybe);
    let (look, _, _, until) = read(&mut scan, 100, Reached::End { next_at: Some(at(300)) });
    assert_eq!((look, until), (Look::Again, at(100)));
    assert_eq!(scan.next_read(at(299), at(299), |_| true), None);
    let next = scan.next_read(at(300), at(300), |_| true).unwrap();
    assert_eq!((next.stretch.look, next.after), (Look::First, Some(just_before(at(300)))));
}

#[test]
fn what_fell_due_during_a_round_and_was_passed_is_looked_through_in_the_next() {
    let mut scan = Scan::new(0, at(0));
    scan.announce(&of("a"), at(500));
    scan.sweep(&of("a"), at(10), at(100), Lost::Maybe);
    assert_eq!(read(&mut scan, 100, Reached::More(job_at(20))).0, Look::Again);
    let (look, _, after, until) = read(&mut scan, 200, Reached::End { next_at: Some(at(150)) });
    assert_eq!((look, after, until), (Look::Again, Some(job_at(20)), at(100)));
    let (look, _, after, until) = read(&mut scan, 200, Reached::End { next_at: Some(at(500)) });
    assert_eq!((look, after, until), (Look::Again, Some(just_before(at(150))), at(200)));
    let waiting: Vec<_> = scan.cursors().map(|(_, _, after)| after).collect();
    assert_eq!(waiting, [Some(just_before(at(500)))], "nobody was taken back");
    assert_eq!(scan.next_read(at(200), at(200), |_| true), None, "all was looked through");
}

#[test]
fn what_is_found_to_be_made_up_for_during_a_round_is_read_in_it() {
    let mut scan = Scan::new(0, at(0));
    let more = |ms| Reached::More(job_at(ms));
    let end = Reached::End { next_at: None };
    let missed = |scan: &mut Scan, look, reached| {
        let read = scan.next_read(at(100), at(100), |_| true).unwrap();
        assert_eq!((read.stretch.look, read.stretch.part), (look, Part::Missed));
        scan.done(&read.stretch, reached, at(100));
        read.until
    };
    let live = |scan: &mut Scan, last| {
        scan.sweep(&of("a"), at(10), at(100), Lost::Maybe);
        let read = scan.next_read(at(100), at(100), |_| true).unwrap();
        assert_eq!((read.stretch.look, read.stretch.part), (Look::Again, Part::Live));
        scan.found_made_up(&read.stretch, (at(10), at(last)), at(100));
        scan.done(&read.stretch, end, at(100));
    };
    scan.announce_made_up(&of("a"), at(10));
    scan.announce_made_up(&of("a"), at(90));
    missed(&mut scan, Look::First, more(60));
    live(&mut scan, 50);
    missed(&mut scan, Look::First, more(70));
    missed(&mut scan, Look::Again, more(20));
    missed(&mut scan, Look::First, end);
    live(&mut scan, 95);
    assert_eq!(missed(&mut scan, Look::Again, end), at(95));
}

#[test]
fn live_jobs_are_looked_through_also_while_what_was_missed_is_without_end() {
    let mut scan = Scan::new(0, at(300_000));
    scan.sweep(&of("a"), at(100), at(400_000), Lost::Maybe);
    let more = [200, 300_200, 300, 300_300].map(|ms| Reached::More(job_at(ms)));
    let parts = more.map(|reached| {
        let read = scan.next_read(at(400_000), at(400_000), |_| true).unwrap();
        scan.done(&read.stretch, reached, at(400_000));
        read.stretch.part
    });
    assert_eq!(parts, [Part::Missed, Part::Live, Part::Missed, Part::Live]);
}

#[test]
fn a_clock_that_is_set_back_leaves_no_sweep_waiting_for_it() {
    let mut scan = Scan::new(0, at(0));
    scan.announce(&of("a"), at(900));
    for tenant in ["a", "b"] {
        scan.sweep(&of(tenant), at(10), at(500), Lost::Maybe);
    }
    let under_way = scan.next_read(at(500), at(500), |_| true).unwrap();
    scan.look_again(at(100));
    assert!(!scan.is_reading(&under_way), "it belongs to a round that is no more");
    assert_eq!(scan.next_read(at(100), at(100), |_| true), None);
    scan.sweep(&of("b"), at(10), at(100), Lost::Maybe);
    let (look, _, after, until) = read(&mut scan, 100, Reached::End { next_at: None });
    assert_eq!((look, after, until), (Look::Again, Some(just_before(at(10))), at(100)));
    assert_eq!(scan.cursors().count(), 1, "whoever has nothing left is forgotten");
}
