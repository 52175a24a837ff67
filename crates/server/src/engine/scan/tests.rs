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
    let side_by_side: Vec<_> = (0..5).map(|_| scan.next_read(at(10), at(10), |_| true).unwrap()).collect();
    for read in side_by_side {
        scan.done(&read.stretch, Reached::NoRoom { after: read.after, at: at(1), retry_at: at(10) }, at(10));
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
