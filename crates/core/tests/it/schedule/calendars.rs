//! What becomes of a schedule whose calendar gets other dates: they hold from then on, and only from then on.

use std::sync::Arc;

use tidewheel_core::schedule::{
    Change, Dates, Definition, Misfire, MisfirePolicy, Roll, State, amend, calendar_changed,
};
use tidewheel_core::time::Timestamp;

use crate::schedule::support::{DAY, World, at, cron, definition};

fn dates(texts: &[&str]) -> Dates {
    texts.iter().map(|date| date.parse().unwrap()).collect()
}

/// Fires when the expression says, but on holidays, and makes up for all it misses.
fn but_holidays(expression: &str) -> Definition {
    let mut rule = cron(expression, "UTC");
    rule.exclude.calendar = Some("holidays".into());
    let misfire = Misfire { policy: MisfirePolicy::FIRE_ALL, ..Misfire::default() };
    Definition { misfire, ..definition(rule) }
}

/// A world at noon of 1 June with a schedule for nine o'clock each day, and nobody there for `days`.
fn after_an_outage(holidays: &[&str], days: i64) -> World {
    let mut world = World::new(but_holidays("0 9 * * *"), Some(dates(holidays)), at("2026-06-01T12:00:00Z"));
    world.outage(days * DAY);
    world
}

/// Gives the calendar other dates, and says it had those `before`.
fn redate(world: &mut World, before: &[&str], after: &[&str]) {
    let after = dates(after);
    let edit = calendar_changed(&world.schedule, Some(&dates(before)), Some(&after), world.now);
    world.calendar = Some(after);
    world.apply(edit);
}

fn fired(world: &World) -> Vec<Timestamp> {
    world.fired.iter().map(|fired| fired.fire_at).collect()
}

/// Nine o'clock of these days of June.
fn nine_of(days: &[i64]) -> Vec<Timestamp> {
    days.iter().map(|day| at("2026-06-01T09:00:00Z").plus_ms((day - 1) * DAY)).collect()
}

#[test]
fn what_was_excluded_when_it_passed_does_not_fire_whatever_the_dates_are_said_to_have_been() {
    let (last_year, next_year) = (["2026-12-25"], ["2027-12-24"]);
    for before in [last_year, next_year] {
        let christmas = but_holidays("0 9 25 12 *");
        let mut world = World::new(christmas, Some(dates(&last_year)), at("2026-06-01T12:00:00Z"));
        world.now = at("2027-01-10T12:00:00Z");
        let next = world.schedule.next;
        redate(&mut world, &before, &next_year);
        assert_eq!(world.schedule.next, next);
        world.run_until(at("2028-01-01T00:00:00Z"), 5);
        assert_eq!(fired(&world), [at("2027-12-25T09:00:00Z")], "{before:?}");
    }
}

#[test]
fn what_has_passed_stays_as_it_was_when_another_change_follows() {
    let mut world = after_an_outage(&["2026-06-02"], 1);
    redate(&mut world, &["2026-06-02"], &[]);
    assert_eq!(world.schedule.next.unwrap().fire_at, nine_of(&[3])[0]);
    let change = Change { definition: but_holidays("0 10 * * *"), calendar: world.calendar.as_ref() };
    let edit = amend(&world.schedule, world.calendar.as_ref(), change, None, world.now);
    world.apply(edit);
    world.run_until(at("2026-06-03T12:00:00Z"), 5);
    assert_eq!(fired(&world), [at("2026-06-03T10:00:00Z")]);
}

#[test]
fn a_late_fire_is_not_lost_to_a_date_that_is_excluded_too_late() {
    // Said to have had the dates it has now, as by someone who repeats a change.
    for before in [&[] as &[&str], &["2026-06-02"]] {
        let mut world = after_an_outage(&[], 1);
        redate(&mut world, before, &["2026-06-02"]);
        world.run_until(at("2026-06-03T12:00:00Z"), 5);
        assert_eq!(fired(&world), nine_of(&[2, 3]), "{before:?}");
    }
}

#[test]
fn late_fires_all_come_where_the_dates_say_the_same_of_them() {
    let mut world = after_an_outage(&["2026-06-03"], 4);
    redate(&mut world, &["2026-06-03"], &["2026-06-03", "2026-12-25"]);
    world.run_until(at("2026-06-06T12:00:00Z"), 5);
    assert_eq!(fired(&world), nine_of(&[2, 4, 5, 6]));
}

#[test]
fn late_fires_that_the_dates_differ_on_are_settled_by_the_old_ones() {
    let mut world = after_an_outage(&["2026-06-03"], 4);
    redate(&mut world, &["2026-06-03"], &["2026-06-05"]);
    world.run_until(at("2026-06-06T12:00:00Z"), 5);
    assert_eq!(fired(&world), nine_of(&[5, 6]), "the last that was due, for all of them");
    let old = dates(&["2026-06-03"]);
    let coalesced: Vec<_> = world.ledger[0].instants(Some(&old)).collect();
    assert_eq!(coalesced, nine_of(&[2, 4]));
}

#[test]
fn a_fire_that_was_to_come_on_a_later_business_day_goes_by_the_new_dates() {
    // The 5th of June is a Friday, the 8th a Monday.
    let mut definition = but_holidays("0 9 5 6 *");
    Arc::make_mut(&mut definition.rule).exclude.roll = Roll::NextBusinessDay;
    let mut world = World::new(definition, Some(dates(&["2026-06-05"])), at("2026-06-01T12:00:00Z"));
    world.now = at("2026-06-06T12:00:00Z");
    redate(&mut world, &["2026-06-05"], &[]);
    assert_eq!(world.schedule.next.unwrap().fire_at, at("2027-06-05T09:00:00Z"));
}

#[test]
fn a_schedule_without_instants_goes_on_when_it_gets_some_to_come() {
    let mut definition = but_holidays("0 9 2 6 *");
    Arc::make_mut(&mut definition.rule).end_at = Some(at("2027-01-01T00:00:00Z"));
    let world = || World::new(definition.clone(), Some(dates(&["2026-06-02"])), at("2026-06-01T12:00:00Z"));
    let mut early = world();
    assert_eq!(early.schedule.state, State::Ended);
    redate(&mut early, &["2026-06-02"], &[]);
    early.run_until(at("2026-06-03T00:00:00Z"), 5);
    assert_eq!(fired(&early), nine_of(&[2]));
    let mut late = world();
    late.outage(DAY);
    redate(&mut late, &["2026-06-02"], &[]);
    late.run_until(at("2026-06-03T00:00:00Z"), 5);
    assert_eq!((late.schedule.state, fired(&late)), (State::Ended, Vec::new()));
}
