//! Intervals while the clock is set back: the beat goes on, nothing comes before the clock shows it, and no instant comes
//! twice.

use std::sync::Arc;

use proptest::prelude::*;
use tidewheel_core::schedule::{Change, Definition, Edit, Rule, set_back, update};
use tidewheel_core::time::Timestamp;

use crate::schedule::support::{HOUR, MINUTE, SECOND, World, at, cron, definition, every};

const START: &str = "2026-06-01T10:00:00Z";
const LAG: i64 = 3;
/// A step that is short of whole intervals by no more than this counts as whole: its length was measured with two clocks.
const CLOCK_ERROR: i64 = 20;

fn beats(interval_ms: i64) -> World {
    World::new(definition(every(interval_ms, Timestamp::MIN)), None, at(START))
}

fn mending(world: &World, by_ms: i64) -> Edit {
    let waits_for = world.schedule.next.unwrap().job_id;
    set_back(&world.schedule, &world.waiting[&waits_for], by_ms, world.calendar.as_ref(), world.now)
}

/// Sets the clock back, and does what a server does then.
fn step_back(world: &mut World, ms: i64) {
    world.now = world.now.plus_ms(-ms);
    let edit = mending(world, ms);
    world.apply(edit);
    assert!(mending(world, ms).is_none(&world.schedule), "done twice is done once");
}

fn run_for(world: &mut World, ms: i64) {
    world.run_until(world.now.plus_ms(ms), LAG);
}

#[test]
fn an_interval_keeps_its_beat_when_the_clock_is_set_back_by_whole_intervals() {
    let mut world = beats(5 * MINUTE);
    run_for(&mut world, HOUR + MINUTE);
    assert_eq!(world.fired.len(), 12);
    step_back(&mut world, HOUR);
    // A minute has passed since the last one; the next comes after four more, when the clock shows 10:05 again.
    let next = world.schedule.next.unwrap();
    assert_eq!(next.fire_at.to_string(), "2026-06-01T10:05:00.001Z");
    assert_eq!(next.run_at, next.fire_at);
    run_for(&mut world, 2 * HOUR);
    assert_eq!(world.fired.len(), 12 + 24);
    assert_eq!(world.schedule.last_fire.unwrap().fire_at.to_string(), "2026-06-01T12:00:00.001Z");
}

#[test]
fn it_goes_on_through_the_same_hour_as_often_as_the_clock_is_set_back() {
    let mut world = beats(MINUTE);
    run_for(&mut world, SECOND);
    for _ in 0..5 {
        run_for(&mut world, 30 * MINUTE);
        step_back(&mut world, 30 * MINUTE);
    }
    run_for(&mut world, 60 * MINUTE);
    // Each is one of its own: the world minds that none comes twice.
    assert_eq!(world.fired.len(), 5 * 30 + 60);
    assert_eq!(world.instants().len(), 5 * 30 + 60);
}

#[test]
fn a_clock_set_back_by_less_than_an_interval_puts_off_one_fire_by_as_much() {
    let mut world = beats(5 * MINUTE);
    run_for(&mut world, HOUR + SECOND);
    let waits = world.schedule.next;
    step_back(&mut world, 3 * SECOND);
    assert_eq!(world.schedule.next, waits);
}

#[test]
fn an_interval_that_was_asked_for_in_the_stretch_goes_on_too() {
    let mut world = beats(MINUTE);
    step_back(&mut world, 2 * HOUR);
    assert_eq!(world.schedule.next.unwrap().fire_at.to_string(), "2026-06-01T08:01:00.001Z");
}

#[test]
fn what_means_the_clock_waits_for_it() {
    // A time of day.
    let mut world = World::new(definition(cron("*/5 * * * *", "UTC")), None, at(START));
    run_for(&mut world, HOUR);
    let waits = world.schedule.next;
    step_back(&mut world, HOUR);
    assert_eq!(world.schedule.next, waits);
    // The start of an interval.
    let start_at = at(START).plus_ms(MINUTE);
    let rule = Rule { start_at: Some(start_at), ..every(MINUTE, Timestamp::MIN) };
    let mut world = World::new(definition(rule), None, at(START));
    step_back(&mut world, HOUR);
    assert_eq!(world.schedule.next.unwrap().fire_at, start_at);
    // And what somebody moved.
    let mut world = beats(MINUTE);
    run_for(&mut world, 10 * MINUTE);
    let waits = world.schedule.next.unwrap();
    let moved = world.waiting.get_mut(&waits.job_id).unwrap();
    moved.status.due_at = waits.run_at.plus_ms(HOUR);
    world.now = world.now.plus_ms(-HOUR);
    assert!(mending(&world, HOUR).is_none(&world.schedule));
}

#[test]
fn what_is_late_when_the_clock_is_set_back_does_not_wait_for_it() {
    // Late by a leap ahead that was a mistake.
    let mut world = beats(10 * SECOND);
    run_for(&mut world, MINUTE + SECOND);
    world.outage(HOUR);
    let late = world.waiting[&world.schedule.next.unwrap().job_id].clone();
    world.claim(&late);
    let fired = world.fired.len();
    step_back(&mut world, HOUR);
    assert!(world.schedule.next.unwrap().run_at <= world.now.plus_ms(10 * SECOND));
    // Those that the grace lets pass as on time, and then every ten seconds.
    run_for(&mut world, MINUTE);
    assert!((6..=13).contains(&(world.fired.len() - fired)), "{}", world.fired.len() - fired);
    assert!(world.fired.iter().all(|fired| fired.claimed_at >= fired.fire_at));

    // Late since long, and the clock set back by a little: a time of day, too.
    let mut world = World::new(definition(cron("0 * * * *", "UTC")), None, at(START));
    world.outage(5 * HOUR + MINUTE);
    let late = world.waiting[&world.schedule.next.unwrap().job_id].clone();
    world.claim(&late);
    let waits = world.schedule.next.unwrap();
    assert!(waits.catch_up && waits.run_at == world.now);
    step_back(&mut world, 30 * SECOND);
    let next = world.schedule.next.unwrap();
    assert_eq!((next.fire_at, next.run_at, next.catch_up), (waits.fire_at, world.now, true));
}

#[test]
fn fires_that_were_called_off_stay_off() {
    let mut world = beats(MINUTE);
    run_for(&mut world, 10 * MINUTE);
    for _ in 0..3 {
        let waits_for = world.schedule.next.unwrap().job_id;
        world.cancel_waiting(waits_for);
    }
    let before = world.schedule.next.unwrap().fire_at.since_ms(world.now);
    step_back(&mut world, HOUR);
    assert_eq!(world.schedule.next.unwrap().fire_at.since_ms(world.now), before + 1);
}

#[test]
fn a_start_stays_where_it_is_and_the_same_definition_is_no_edit() {
    let rule = Rule { start_at: Some(at(START).plus_ms(-HOUR)), ..every(MINUTE, Timestamp::MIN) };
    let wanted = definition(rule);
    let mut world = World::new(wanted.clone(), None, at(START));
    run_for(&mut world, 30 * MINUTE);
    step_back(&mut world, 30 * MINUTE);
    let same = |world: &World, wanted: &Definition| {
        let change = Change { definition: wanted.clone(), calendar: None };
        update(&world.schedule, None, change, world.now)
    };
    assert!(same(&world, &wanted).is_none(&world.schedule));
    // Another start is another rule.
    let mut other = wanted;
    Arc::make_mut(&mut other.rule).start_at = Some(at(START).plus_ms(-2 * HOUR + 500));
    let edit = same(&world, &other);
    world.apply(edit);
    assert_eq!(world.schedule.next.unwrap().fire_at.to_string(), "2026-06-01T10:00:00.500Z");
}

#[test]
fn a_step_that_is_measured_a_little_short_counts_as_whole_intervals() {
    let interval_ms = 24_069;
    for (short_ms, gap_ms) in [(0, interval_ms), (20, interval_ms - 20), (21, 2 * interval_ms - 21)] {
        let mut world = beats(interval_ms);
        run_for(&mut world, 2 * interval_ms + 2 * LAG);
        let last_at = world.fired.last().unwrap().claimed_at;
        let back_ms = 278 * interval_ms - short_ms;
        step_back(&mut world, back_ms);
        run_for(&mut world, 2 * interval_ms);
        let next_at = world.fired[2].claimed_at.plus_ms(back_ms);
        assert_eq!(next_at.since_ms(last_at), gap_ms + 1, "short by {short_ms} ms");
    }
}

proptest! {
    #[test]
    fn from_one_fire_to_the_next_are_less_than_two_intervals_and_never_much_less_than_one(
        interval_ms in 10 * SECOND..20 * MINUTE,
        steps in prop::collection::vec((0..HOUR, 0..4 * HOUR), 1..12),
    ) {
        let mut world = beats(interval_ms);
        // By how much the clock is behind what has passed.
        let mut behind = 0;
        let mut seen = 0;
        let mut last = world.now;
        let mut look = |world: &World, behind: i64| {
            for fired in &world.fired[seen..] {
                let at = fired.claimed_at.plus_ms(behind);
                let gap = at.since_ms(last);
                last = at;
                assert!(fired.claimed_at >= fired.fire_at, "{fired:?} comes before the clock shows it");
                let shortest = interval_ms - CLOCK_ERROR - LAG;
                assert!(gap >= shortest && gap < 2 * interval_ms + 2 * LAG, "{gap} for {interval_ms}");
            }
            seen = world.fired.len();
        };
        for (run_ms, back_ms) in steps {
            run_for(&mut world, 2 * interval_ms + run_ms);
            look(&world, behind);
            step_back(&mut world, back_ms);
            behind += back_ms;
        }
        run_for(&mut world, 5 * interval_ms);
        look(&world, behind);
    }
}
