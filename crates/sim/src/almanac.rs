//! What schedules can be in a run: beats, zones, policies; and when a run begins, so that clocks are moved in
//! the middle of many.

use std::sync::Arc;

use bytes::Bytes;
use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZoneDatabase;
use tidewheel_core::cron::{Cron, Dst, Fold, Gap};
use tidewheel_core::job::Priority;
use tidewheel_core::limits::{MINUTE_MS, SCHEDULE_INTERVAL_MS_MIN, SECOND_MS};
use tidewheel_core::schedule::{
    Dates, Definition, Exclude, Misfire, MisfirePolicy, Overlap, Roll, Rule, Template, Timing, Zone, check,
};
use tidewheel_core::time::Timestamp;

use crate::client;
use crate::clock::BASE_MS;
use crate::dice::Dice;

/// Zones, each with the instants of 2026 at which its clock is moved forward and back.
const ZONES: [(&str, [i64; 2]); 9] = [
    ("Europe/Berlin", [1_774_746_000_000, 1_792_890_000_000]),
    ("America/New_York", [1_772_953_200_000, 1_793_512_800_000]),
    ("Australia/Lord_Howe", [1_791_041_400_000, 1_775_314_800_000]),
    ("Pacific/Chatham", [1_790_431_200_000, 1_775_311_200_000]),
    ("America/Santiago", [1_788_667_200_000, 1_775_358_000_000]),
    ("Africa/Cairo", [1_776_981_600_000, 1_793_307_600_000]),
    ("America/St_Johns", [1_772_947_800_000, 1_793_507_400_000]),
    ("Asia/Jerusalem", [1_774_569_600_000, 1_792_882_800_000]),
    ("America/Havana", [1_772_946_000_000, 1_793_509_200_000]),
];
/// How long before a change of clocks a run begins, at most: still in the time of faults, or soon after it.
const BEFORE_CHANGE_MS_MAX: i64 = 3 * MINUTE_MS;
/// A change this close to a run belongs to it.
const NEAR_MS: i64 = 5 * MINUTE_MS;

/// Beats of a wall clock. The fixed ones fall into every gap and fold of the zones above.
const CRONS: [&str; 12] = [
    "* * * * *",
    "*/2 * * * *",
    "*/5 * * * * *",
    "*/20 * * * * *",
    "10,40 * * * * *",
    "0 * * * *",
    "@hourly",
    "0,1,2,30,45,59 0-3 * * *",
    "30 0,1,2 * * *",
    "0 0,1,2,3 * * *",
    "30 */15 0-3 * * *",
    "0 12 * * *",
];
/// Intervals.
const INTERVALS_MS: [i64; 6] = [1_000, 2_000, 5_000, 7_001, 20_000, 61_000];
/// The shortest time between two fires that is bearable for hours.
const SLOW_MS_MIN: i64 = MINUTE_MS;

/// What the wall clock shows when a run begins.
#[must_use]
pub fn beginning_ms(dice: &Dice) -> i64 {
    let (_, changes) = dice.pick(&ZONES, ("UTC", [BASE_MS; 2]));
    let change_ms = dice.pick(&changes, BASE_MS);
    let before_ms = dice.between(0, BEFORE_CHANGE_MS_MAX);
    if dice.percent(60) { change_ms - before_ms } else { BASE_MS + dice.between(0, MINUTE_MS) }
}

/// What a client asks for, again and again until it asks for something that is not refused.
#[must_use]
pub fn definition(dice: &Dice, zones: &TimeZoneDatabase, now: Timestamp) -> Definition {
    loop {
        let definition = Definition {
            rule: Arc::new(rule(dice, zones, now)),
            window_ms: dice.pick(&[0, 0, 0, 1_500, 10_000], 0),
            misfire: misfire(dice),
            overlap: dice.pick(&Overlap::ALL, Overlap::Allow),
            template: template(dice),
            idempotency_key: None,
            note: None,
        };
        if check(&definition, None, SCHEDULE_INTERVAL_MS_MIN, now).is_empty() {
            return definition;
        }
    }
}

/// Another definition in place of this one: another rule, other policies, or all of it.
#[must_use]
pub fn changed(dice: &Dice, zones: &TimeZoneDatabase, current: &Definition, now: Timestamp) -> Definition {
    let new = definition(dice, zones, now);
    match dice.between(0, 9) {
        0..=4 => Definition { rule: new.rule, ..current.clone() },
        5..=6 => Definition { window_ms: new.window_ms, misfire: new.misfire, ..current.clone() },
        7 => current.clone(),
        _ => new,
    }
}

/// The same with a slow beat.
#[must_use]
pub fn slowed(dice: &Dice, current: &Definition, now: Timestamp) -> Definition {
    let every_ms = dice.between(2, 5) * SLOW_MS_MIN;
    let timing = Timing::Every { interval_ms: every_ms, anchor: now };
    let rule =
        Rule { timing, start_at: None, end_at: None, exclude: Exclude::default(), ..(*current.rule).clone() };
    Definition { rule: Arc::new(rule), ..current.clone() }
}

/// Whether it fires too often to be left alone for hours.
#[must_use]
pub fn is_fast(rule: &Rule) -> bool {
    match &rule.timing {
        Timing::Cron(cron) => {
            i64::try_from(cron.min_gap_seconds()).unwrap_or(i64::MAX) < SLOW_MS_MIN / SECOND_MS
        }
        Timing::Every { interval_ms, .. } => *interval_ms < SLOW_MS_MIN,
    }
}

fn rule(dice: &Dice, zones: &TimeZoneDatabase, now: Timestamp) -> Rule {
    let zone = zone(dice, zones, now);
    let cron = Cron::parse(dice.pick(&CRONS, "* * * * *")).ok().filter(|_| dice.percent(50));
    let timing = cron.map_or_else(
        || Timing::Every { interval_ms: dice.pick(&INTERVALS_MS, 5_000), anchor: now },
        |cron| Timing::Cron(Box::new(cron)),
    );
    let exclude = if dice.percent(15) { exclude(dice, &zone, now) } else { Exclude::default() };
    Rule {
        timing,
        zone,
        dst: Dst {
            gap: dice.pick(&[Gap::NextValid, Gap::NextValid, Gap::Skip], Gap::NextValid),
            fold: dice.pick(&[Fold::First, Fold::First, Fold::Both], Fold::First),
        },
        start_at: dice.percent(20).then(|| now.plus_ms(dice.between(-60_000, 20_000))),
        end_at: dice.percent(20).then(|| now.plus_ms(dice.between(1_000, 120_000))),
        exclude,
    }
}

/// A zone; mostly one whose clock is about to be moved, if there is one.
fn zone(dice: &Dice, zones: &TimeZoneDatabase, now: Timestamp) -> Zone {
    let is_near = |change_ms: &i64| (change_ms - now.as_ms()).abs() < NEAR_MS;
    let near: Vec<&str> =
        ZONES.iter().filter(|(_, changes)| changes.iter().any(is_near)).map(|(name, _)| *name).collect();
    let (any, _) = dice.pick(&ZONES, ("UTC", [0; 2]));
    let name = if dice.percent(70) { dice.pick(&near, any) } else { any };
    Zone::named(zones, name).unwrap_or_else(|_| Zone::utc())
}

/// Today, yesterday or tomorrow, in the zone.
fn exclude(dice: &Dice, zone: &Zone, now: Timestamp) -> Exclude {
    let at = jiff::Timestamp::from_millisecond(now.as_ms()).unwrap_or_default();
    let today = zone.rules().to_datetime(at).date();
    let date = |days: i64| -> Date { today.checked_add(days.days()).unwrap_or(today) };
    let dates: Dates = (0..dice.count(1, 2)).map(|_| date(dice.between(-1, 1))).collect();
    Exclude { dates, calendar: None, roll: dice.pick(&Roll::ALL, Roll::None) }
}

fn misfire(dice: &Dice) -> Misfire {
    let cap = u32::try_from(dice.between(1, 12)).unwrap_or(1);
    let policies = [MisfirePolicy::FireAll { cap }, MisfirePolicy::FireLatest, MisfirePolicy::Skip];
    Misfire {
        policy: dice.pick(&policies, MisfirePolicy::FireLatest),
        grace_ms: dice.pick(&[SECOND_MS, 3 * SECOND_MS, 15 * SECOND_MS, MINUTE_MS], MINUTE_MS),
    }
}

fn template(dice: &Dice) -> Template {
    Template {
        kind: Arc::from("recurring"),
        payload: Bytes::from_static(b"{}"),
        destination: client::served(dice),
        priority: dice.pick(&Priority::ALL, Priority::Normal),
        retry: client::retries(dice),
        timeout_ms: dice.between(1, 10) * SECOND_MS,
        labels: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zones_do_move_their_clocks_at_the_instants_named() {
        let zones = TimeZoneDatabase::bundled();
        for (name, [forward_ms, back_ms]) in ZONES {
            let zone = Zone::named(&zones, name).unwrap();
            let offset_s = |ms| {
                let at = jiff::Timestamp::from_millisecond(ms).unwrap();
                zone.rules().to_offset(at).seconds()
            };
            assert!(offset_s(forward_ms) > offset_s(forward_ms - 1), "{name}");
            assert!(offset_s(back_ms) < offset_s(back_ms - 1), "{name}");
        }
    }

    #[test]
    fn every_beat_is_one_and_what_is_slowed_is_slow() {
        assert!(CRONS.iter().all(|text| Cron::parse(text).is_ok()));
        let (dice, zones, now) = (Dice::new(7), TimeZoneDatabase::bundled(), Timestamp::from_ms(BASE_MS));
        let mut fast = 0;
        for _ in 0..200 {
            let definition = definition(&dice, &zones, now);
            fast += usize::from(is_fast(&definition.rule));
            assert!(!is_fast(&slowed(&dice, &definition, now).rule));
        }
        assert!((1..200).contains(&fast), "{fast}");
    }
}
