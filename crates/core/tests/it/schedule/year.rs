//! A year under a clock that only tests move: ten zones with all their clock changes of 2026, outages across
//! midnight, and every misfire policy.

use tidewheel_core::schedule::{Misfire, MisfirePolicy, Outcome, Reason, Rule, nominals};
use tidewheel_core::time::Timestamp;

use crate::schedule::support::{DAY, Fired, HOUR, MINUTE, World, at, cron, definition, every, zone};

const ZONES: [&str; 10] = [
    "America/New_York",
    "America/Sao_Paulo",
    "America/Santiago",
    "Europe/London",
    "Europe/Berlin",
    "Africa/Cairo",
    "Asia/Kolkata",
    "Asia/Beirut",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
];
const EXPRESSIONS: [&str; 4] = ["30 2 * * *", "0 0 * * *", "20 */2 * * *", "15,45 1-3 * * *"];
const YEAR_START: &str = "2026-01-01T00:00:00Z";
const YEAR_END: &str = "2027-01-01T00:00:00Z";

fn instants(rule: &Rule) -> Vec<Timestamp> {
    nominals(rule, None, at(YEAR_START), at(YEAR_END).plus_ms(-HOUR)).map(|nominal| nominal.fire_at).collect()
}

#[test]
fn a_year_without_trouble_fires_every_instant_on_time() {
    for name in ZONES {
        for expression in EXPRESSIONS {
            let rule = cron(expression, name);
            let mut world = World::new(definition(rule.clone()), None, at(YEAR_START));
            world.run_until(at(YEAR_END), 3);
            world.fired.retain(|fired| fired.fire_at <= at(YEAR_END).plus_ms(-HOUR));
            let expected = instants(&rule).into_iter().map(|fire_at| Fired {
                fire_at,
                catch_up: false,
                claimed_at: fire_at.plus_ms(3),
            });
            assert!(world.fired.iter().copied().eq(expected), "{expression} in {name}");
        }
    }
}

#[test]
fn a_daily_schedule_fires_once_on_every_date_of_the_year() {
    for name in ZONES {
        for expression in ["30 2 * * *", "0 0 * * *", "30 1 * * *", "15 0 * * *"] {
            let mut world = World::new(definition(cron(expression, name)), None, at("2025-12-30T00:00:00Z"));
            world.run_until(at("2027-01-02T12:00:00Z"), 3);
            let zone = zone(name);
            let date_of = |fired: &Fired| {
                let instant = jiff::Timestamp::from_millisecond(fired.fire_at.as_ms()).unwrap();
                zone.rules().to_datetime(instant).date()
            };
            let dates: Vec<_> = world.fired.iter().map(date_of).filter(|date| date.year() == 2026).collect();
            assert_eq!(dates.len(), 365, "{expression} in {name}");
            assert!(dates.is_sorted_by(|one, next| one < next), "{expression} in {name}");
        }
    }
}

/// An outage from 22:00 to 04:30 UTC, each eleventh day of the year.
fn with_outages(rule: Rule, policy: MisfirePolicy) -> World {
    let mut definition = definition(rule);
    definition.misfire = Misfire { policy, grace_ms: MINUTE };
    let mut world = World::new(definition, None, at(YEAR_START));
    for day in (5..360).step_by(11) {
        world.run_until(at(YEAR_START).plus_ms(day * DAY + 22 * HOUR), 3);
        world.outage(6 * HOUR + 30 * MINUTE);
    }
    world.run_until(at(YEAR_END), 3);
    world
}

/// Whether nobody was there at that instant, nor within the minute after it.
fn is_missed(at_instant: Timestamp) -> bool {
    let since = at_instant.since_ms(at(YEAR_START));
    let (day, time) = (since.div_euclid(DAY), since.rem_euclid(DAY));
    let begins = |day: i64| (5..360).contains(&day) && (day - 5) % 11 == 0;
    (begins(day) && time > 22 * HOUR - 3) || (begins(day - 1) && time < 4 * HOUR + 29 * MINUTE)
}

#[test]
fn outages_across_midnight_end_as_the_policy_says() {
    for name in ZONES {
        for expression in ["10 */2 * * *", "30 2 * * *"] {
            let rule = cron(expression, name);
            let expected = instants(&rule);
            let missed: Vec<_> = expected.iter().copied().filter(|instant| is_missed(*instant)).collect();
            assert!(missed.len() > 60 || expression == "30 2 * * *", "the outages are felt");
            for policy in [MisfirePolicy::FireAll { cap: 2 }, MisfirePolicy::FireLatest, MisfirePolicy::Skip]
            {
                let world = with_outages(rule.clone(), policy);
                let ledger: Vec<_> = world
                    .instants()
                    .into_iter()
                    .filter(|(instant, _)| expected.binary_search(instant).is_ok())
                    .collect();
                let covered: Vec<_> = ledger.iter().map(|(instant, _)| *instant).collect();
                assert_eq!(covered, expected, "{expression} in {name}, {policy:?}");
                for (instant, outcome) in ledger {
                    check_outcome(instant, outcome, &missed, policy);
                }
            }
        }
    }
}

fn check_outcome(instant: Timestamp, outcome: Outcome, missed: &[Timestamp], policy: MisfirePolicy) {
    let Ok(place) = missed.binary_search(&instant) else {
        return assert!(matches!(outcome, Outcome::Fired { catch_up: false, .. }), "{instant} {outcome}");
    };
    // Those of one outage are less than a day apart from each other, those of two are not.
    let newer = missed[place..].iter().take_while(|other| other.since_ms(instant) < DAY).count() - 1;
    let latest = missed[place + newer];
    let expected = match policy {
        MisfirePolicy::FireAll { cap } => {
            if newer < usize::try_from(cap).unwrap() {
                "fired"
            } else {
                "missed"
            }
        }
        MisfirePolicy::FireLatest => {
            if newer == 0 {
                "fired"
            } else {
                "coalesced"
            }
        }
        MisfirePolicy::Skip => "skipped",
    };
    assert_eq!(outcome.as_str(), expected, "{instant} under {policy:?}");
    match outcome {
        Outcome::Fired { catch_up, .. } => assert!(catch_up),
        Outcome::Coalesced { into } => assert_eq!(into, latest),
        Outcome::Skipped(reason) => assert_eq!(reason, Reason::Misfire),
        Outcome::Missed | Outcome::Triggered { .. } | Outcome::Backfilled { .. } => {}
    }
}

#[test]
fn clock_steps_of_the_host_move_no_interval_and_fire_nothing_twice() {
    let start = at("2026-06-01T10:00:00Z");
    let mut world = World::new(definition(every(5 * MINUTE, Timestamp::MIN)), None, start);
    world.run_until(start.plus_ms(HOUR), 3);
    // Back by an hour: what fired is decided, the beat goes on where it was.
    world.now = start;
    world.run_until(start.plus_ms(2 * HOUR), 3);
    // Ahead by half a day: the usual misfire.
    world.now = start.plus_ms(14 * HOUR);
    world.run_until(start.plus_ms(15 * HOUR + MINUTE), 3);
    let beat = world.instants().into_iter().map(|(instant, _)| instant);
    assert!(beat.eq((1..=15 * 12).map(|count| start.plus_ms(count * 5 * MINUTE))));
}
