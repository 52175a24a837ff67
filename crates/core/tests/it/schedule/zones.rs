//! A zone gets other rules while a schedule waits: no time of its wall clock fires twice, and none is lost.

use std::collections::BTreeMap;

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use proptest::prelude::*;
use tidewheel_core::cron::{Dst, Fold};
use tidewheel_core::schedule::{
    Change, Definition, Misfire, MisfirePolicy, Outcome, State, Zone, pause, resume, retime, update,
};
use tidewheel_core::time::Timestamp;

use crate::schedule::support::{DAY, HOUR, MINUTE, World, at, cron, definition, zone};

const START: &str = "2026-06-01T12:00:00Z";

/// A zone of one name whose clock is so far ahead of UTC.
fn ahead(minutes: i32) -> Zone {
    Zone::with_rules("Somewhere", TimeZone::fixed(Offset::from_seconds(minutes * 60).unwrap()))
}

fn daily(expression: &str, minutes_ahead: i32) -> Definition {
    let mut rule = cron(expression, "UTC");
    rule.zone = ahead(minutes_ahead);
    definition(rule)
}

fn give(world: &mut World, zone: Zone) {
    let edit = retime(&world.schedule, zone.clone(), None, world.now);
    world.apply(edit);
    let again = retime(&world.schedule, zone, None, world.now);
    assert!(again.is_none(&world.schedule), "done twice, it is as if done once");
}

#[test]
fn what_is_due_by_the_old_rules_waits_for_the_new_ones() {
    let mut world = World::new(daily("0 9 * * *", -240), None, at(START));
    world.now = at("2026-06-01T13:00:30Z");
    give(&mut world, ahead(-300));
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-01T14:00:00Z"));
    world.run_until(at("2026-06-01T23:00:00Z"), 5);
    assert_eq!(world.outcomes(), ["14:00 fired"], "once, when the clock really shows it");
}

#[test]
fn a_time_that_only_one_day_moved_is_not_fired_again() {
    // One morning's clock turns out to have been an hour behind, after nine o'clock had fired.
    let mut world = World::new(daily("0 9 * * *", -240), None, at(START));
    world.run_until(at("2026-06-01T13:10:00Z"), 5);
    // That clock is an hour behind on the first of June, as far as noon, and as before from then on.
    let one_day = TimeZone::posix("<-04>4<-05>5,J152/0,J152/12").unwrap();
    give(&mut world, Zone::with_rules("Somewhere", one_day));
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-02T13:00:00Z"));
    world.outage(2 * DAY);
    world.run_until(at("2026-06-03T13:30:00Z"), 5);
    let fired = world.fired.iter().filter(|fired| fired.fire_at < at("2026-06-02T00:00:00Z"));
    assert_eq!(fired.count(), 1);
}

#[test]
fn a_paused_schedule_does_not_fire_again_what_it_fired() {
    let mut world = World::new(daily("0 9 * * *", -240), None, at(START));
    world.run_until(at("2026-06-01T13:10:00Z"), 5);
    world.apply(pause(&world.schedule, None, world.now));
    give(&mut world, ahead(-300));
    world.apply(resume(&world.schedule, None, world.now));
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-02T14:00:00Z"));
}

#[test]
fn both_passes_of_a_fold_run_though_the_rules_are_read_anew_between_them() {
    let mut rule = cron("30 1 * * *", "America/New_York");
    rule.dst = Dst { fold: Fold::Both, ..Dst::default() };
    let mut world = World::new(definition(rule), None, at("2026-11-01T04:00:00Z"));
    world.run_until(at("2026-11-01T05:45:00Z"), 5);
    give(&mut world, zone("America/New_York"));
    world.run_until(at("2026-11-01T07:00:00Z"), 5);
    assert_eq!(world.outcomes(), ["05:30 fired", "06:30 fired"]);
}

#[test]
fn a_time_the_clock_was_moved_past_is_late_and_not_lost() {
    // 9:00 has fired, 9:50 is to come; then it turns out to be 10:10 already.
    let mut world = World::new(daily("0,50 9 * * *", -240), None, at(START));
    world.run_until(at("2026-06-01T13:10:00Z"), 5);
    give(&mut world, ahead(-180));
    let now = world.now;
    world.run_until(now, 0);
    assert_eq!(world.outcomes(), ["12:50 fired late", "13:00 fired"]);
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-02T12:00:00Z"));

    // Where the policy skips what is missed, the ledger says so.
    let misfire = Misfire { policy: MisfirePolicy::Skip, ..Misfire::default() };
    let mut world = World::new(Definition { misfire, ..daily("0,50 9 * * *", -240) }, None, at(START));
    world.run_until(at("2026-06-01T13:10:00Z"), 5);
    give(&mut world, ahead(-180));
    let now = world.now;
    world.run_until(now, 0);
    assert_eq!(world.outcomes(), ["12:50 skipped: misfire", "13:00 fired"]);
}

#[test]
fn a_schedule_ended_too_early_goes_on_and_one_long_over_does_not() {
    let ending = |end: &str| {
        let mut definition = daily("0 9 * * *", -240);
        std::sync::Arc::make_mut(&mut definition.rule).end_at = Some(at(end));
        definition
    };
    let mut world = World::new(ending("2026-06-01T12:45:00Z"), None, at(START));
    assert_eq!(world.schedule.state, State::Ended);
    give(&mut world, ahead(-210));
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-01T12:30:00Z"));

    let mut world = World::new(ending("2026-06-01T12:45:00Z"), None, at(START));
    world.now = at("2026-06-01T12:46:00Z");
    give(&mut world, ahead(-210));
    assert_eq!(world.schedule.state, State::Ended);
}

#[test]
fn a_time_told_once_is_not_told_again_by_the_same_rules() {
    let misfire = Misfire { policy: MisfirePolicy::Skip, ..Misfire::default() };
    let mut world = World::new(Definition { misfire, ..daily("0,50 9 * * *", -240) }, None, at(START));
    world.run_until(at("2026-06-01T13:10:00Z"), 5);
    for _ in 0..2 {
        give(&mut world, ahead(-180));
        let now = world.now;
        world.run_until(now, 0);
        assert_eq!(world.outcomes(), ["12:50 skipped: misfire", "13:00 fired"]);
    }
}

#[test]
fn a_clock_moved_ahead_again_before_what_it_passed_is_claimed_owes_all_of_it() {
    let mut world = World::new(daily("0,50 9-10 * * *", -240), None, at(START));
    world.run_until(at("2026-06-01T13:10:00Z"), 5);
    // At the last fire it was 9:55, then 10:54.
    give(&mut world, ahead(-185));
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-01T12:55:00Z"));
    give(&mut world, ahead(-126));
    let now = world.now;
    world.run_until(now, 0);
    let coalesced = |time: &str| format!("{time} coalesced into the fire of 2026-06-01T12:56:00.000Z");
    let expected =
        [coalesced("12:06"), coalesced("12:55"), "12:56 fired late".to_owned(), "13:00 fired".to_owned()];
    assert_eq!(world.outcomes(), expected);
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2026-06-02T11:06:00Z"));
}

#[test]
fn rules_taken_back_before_anything_fired_leave_nothing_out() {
    // By the rules in between, ten to nine is shown again at 13:16; what comes before that is not lost.
    let steps = [(3_227_671, -277), (0, -251), (4_032_334, -277), (0, -277)];
    every_time_is_told_and_fires_once("0,50 8-18 * * *", &steps);
}

#[test]
fn an_edit_that_keeps_the_clock_does_not_fire_a_time_again_and_another_clock_does() {
    let fired_and_moved = || {
        let mut world = World::new(daily("0 9 * * *", -240), None, at(START));
        world.run_until(at("2026-06-01T13:10:00Z"), 5);
        give(&mut world, ahead(-300));
        world
    };
    let edited = |mut world: World, definition: Definition| {
        let change = Change { definition, calendar: None };
        world.apply(update(&world.schedule, None, change, world.now));
        world.schedule.next.unwrap().fire_at
    };
    let noted = Definition { note: Some("read this".into()), ..daily("0 9 * * *", -300) };
    assert_eq!(edited(fired_and_moved(), noted), at("2026-06-02T14:00:00Z"));
    assert_eq!(edited(fired_and_moved(), daily("0 9,10 * * *", -300)), at("2026-06-01T15:00:00Z"));
    let elsewhere = definition(cron("0 9 * * *", "America/Chicago"));
    assert_eq!(edited(fired_and_moved(), elsewhere), at("2026-06-01T14:00:00Z"));

    let mut every_so_often = World::new(daily("*/10 * * * *", -240), None, at(START));
    every_so_often.run_until(at("2026-06-01T13:15:00Z"), 5);
    give(&mut every_so_often, ahead(-300));
    assert_eq!(edited(every_so_often, daily("0 9 * * *", -300)), at("2026-06-01T14:00:00Z"));
}

/// Runs a schedule for so many milliseconds, gives its clock so many minutes ahead of UTC, and so on. The
/// offsets must differ by amounts that no two times of the expression do, so that no instant of one clock is one
/// of another's.
fn every_time_is_told_and_fires_once(expression: &str, steps: &[(i64, i32)]) {
    let every_one = Misfire { policy: MisfirePolicy::FireAll { cap: 1_000 }, ..Misfire::default() };
    let definition = Definition { misfire: every_one, ..daily(expression, -240) };
    let mut world = World::new(definition, None, at(START));
    let mut told: BTreeMap<DateTime, Vec<Outcome>> = BTreeMap::new();
    let mut tell = |world: &mut World| {
        let rules = world.schedule.definition.rule.zone.rules().clone();
        for (instant, outcome) in world.instants() {
            let shown = rules.to_datetime(jiff::Timestamp::from_millisecond(instant.as_ms()).unwrap());
            told.entry(shown).or_default().push(outcome);
        }
        world.ledger.clear();
    };
    for (ms, minutes) in steps {
        let until = world.now.plus_ms(*ms);
        world.run_until(until, 5);
        tell(&mut world);
        give(&mut world, ahead(*minutes));
        let now = world.now;
        world.run_until(now, 0);
        tell(&mut world);
    }
    let until = world.now.plus_ms(2 * DAY);
    world.run_until(until, MINUTE);
    tell(&mut world);
    for (shown, outcomes) in &told {
        assert_eq!(outcomes.len(), 1, "{shown} is told more than once: {outcomes:?}");
    }
    let wanted = world.schedule.definition.rule.zone.rules().clone();
    let shown = |at: Timestamp| wanted.to_datetime(jiff::Timestamp::from_millisecond(at.as_ms()).unwrap());
    let (from, until) = (*told.keys().next().unwrap(), shown(world.now.plus_ms(-2 * MINUTE)));
    let utc = cron(expression, "UTC");
    let mut cursor = at(&format!("{from}Z")).plus_ms(-1);
    while let Some(found) = tidewheel_core::schedule::next_nominal(&utc, None, cursor) {
        cursor = found.fire_at;
        let time = TimeZone::UTC.to_datetime(jiff::Timestamp::from_millisecond(cursor.as_ms()).unwrap());
        if time > until {
            break;
        }
        assert!(told.contains_key(&time), "{time} is in no ledger: {told:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_wall_clock_time_fires_twice_and_none_goes_untold(
        expression in prop::sample::select(vec!["0 9 * * *", "0,50 8-18 * * *", "10 0,6,12,18 * * *"]),
        steps in prop::collection::vec((
            prop_oneof![0..30 * HOUR, 0..HOUR, Just(0)],
            prop::sample::select(vec![-277, -251, -240, -203, -171]),
        ), 1..8),
    ) {
        every_time_is_told_and_fires_once(expression, &steps);
    }
}
