//! The instants a rule gives: bounds, intervals, excluded dates and where their fires go, windows, previews.

use std::collections::BTreeSet;

use jiff::ToSpan;
use jiff::civil::{Date, Weekday, date};
use proptest::prelude::*;
use tidewheel_core::schedule::{
    Dates, Note, Roll, Rule, ScheduleId, next_nominal, nominals, prev_nominal, preview, window_offset_ms,
};
use tidewheel_core::time::Timestamp;

use crate::schedule::support::{DAY, HOUR, MINUTE, SECOND, at, cron, definition, every};

fn fires(rule: &Rule, calendar: Option<&Dates>, from: &str, until: &str) -> Vec<String> {
    nominals(rule, calendar, at(from), at(until))
        .map(|nominal| nominal.fire_at.to_string()[..16].to_owned())
        .collect()
}

fn dates(texts: &[&str]) -> Dates {
    texts.iter().map(|text| text.parse::<Date>().unwrap()).collect()
}

#[test]
fn both_bounds_belong_to_the_schedule() {
    let mut rule = cron("0 9 * * *", "UTC");
    rule.start_at = Some(at("2026-06-02T09:00:00Z"));
    rule.end_at = Some(at("2026-06-04T09:00:00Z"));
    let all = ["2026-06-02T09:00", "2026-06-03T09:00", "2026-06-04T09:00"];
    assert_eq!(fires(&rule, None, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"), all);
    assert_eq!(prev_nominal(&rule, None, Timestamp::MAX).unwrap().fire_at, rule.end_at.unwrap());
    assert_eq!(prev_nominal(&rule, None, rule.start_at.unwrap()), None);
}

#[test]
fn an_interval_never_drifts() {
    let anchor = at("2026-03-07T23:59:59.123Z");
    let rule = every(7 * MINUTE + 1, anchor);
    assert_eq!(next_nominal(&rule, None, anchor.plus_ms(-DAY)).unwrap().fire_at, anchor);
    for count in [1_i64, 2, 1_000, 1_000_000] {
        let expected = anchor.plus_ms(count * (7 * MINUTE + 1));
        assert_eq!(next_nominal(&rule, None, expected.plus_ms(-1)).unwrap().fire_at, expected);
        assert_eq!(prev_nominal(&rule, None, expected.plus_ms(1)).unwrap().fire_at, expected);
    }
    assert_eq!(prev_nominal(&rule, None, anchor), None);
    assert_eq!(next_nominal(&rule, None, Timestamp::MAX), None);
}

#[test]
fn an_interval_ends_with_the_instants_that_can_be_written() {
    let anchor = at("2026-03-07T00:00:00Z");
    let rule = every(3_653 * DAY, anchor);
    let all: Vec<_> = nominals(&rule, None, anchor, Timestamp::MAX).collect();
    let last = all.last().unwrap().fire_at;
    assert!(last <= Timestamp::LATEST && last.plus_ms(3_653 * DAY) > Timestamp::LATEST, "{last}");
    for nominal in &all {
        assert_eq!(nominal.fire_at.to_string().parse::<Timestamp>(), Ok(nominal.fire_at));
    }
    assert_eq!(prev_nominal(&rule, None, Timestamp::MAX).unwrap().fire_at, last);
    // One that begins at the very end has that fire and no other, and nowhere to move it to.
    let mut rule = every(SECOND, Timestamp::LATEST);
    assert_eq!(nominals(&rule, None, anchor, Timestamp::MAX).count(), 1);
    assert_eq!(prev_nominal(&rule, None, Timestamp::MAX).unwrap().fire_at, Timestamp::LATEST);
    rule.exclude.dates = dates(&["9999-12-30"]);
    assert_eq!(next_nominal(&rule, None, anchor), None);
    rule.exclude.roll = Roll::NextBusinessDay;
    assert_eq!(next_nominal(&rule, None, anchor), None, "there is no such time on the day after");
}

#[test]
fn no_place_in_a_window_is_without_a_text() {
    let mut definition = definition(every(HOUR, at("9999-12-30T00:00:00Z")));
    definition.window_ms = DAY;
    let id = ScheduleId::from_bytes([7; 16]);
    let fires = preview(&definition, Some(id), None, at("9999-12-29T00:00:00Z"), 1_000);
    assert_eq!(fires.len(), 23);
    for fire in fires {
        assert!(fire.run_at.to_string().parse::<Timestamp>().is_ok(), "{}", fire.run_at);
    }
}

#[test]
fn a_fire_on_an_excluded_date_is_dropped_or_moved() {
    // 3 July 2026 is a Friday.
    let mut rule = cron("0 9 * * *", "America/New_York");
    rule.exclude.dates = dates(&["2026-07-03"]);
    let around =
        |rule: &Rule, calendar| fires(rule, calendar, "2026-07-01T14:00:00Z", "2026-07-07T14:00:00Z");
    let dropped =
        ["2026-07-02T13:00", "2026-07-04T13:00", "2026-07-05T13:00", "2026-07-06T13:00", "2026-07-07T13:00"];
    assert_eq!(around(&rule, None), dropped);
    // Moved onto a day that fires at that time anyway, it is one fire.
    rule.exclude.roll = Roll::NextBusinessDay;
    assert_eq!(around(&rule, None), dropped);

    let mut monthly = cron("0 9 3 * *", "America/New_York");
    monthly.exclude.dates = dates(&["2026-07-03"]);
    assert_eq!(around(&monthly, None), [""; 0]);
    monthly.exclude.roll = Roll::NextBusinessDay;
    assert_eq!(around(&monthly, None), ["2026-07-06T13:00"]);
    let nominal = next_nominal(&monthly, None, at("2026-07-01T00:00:00Z")).unwrap();
    assert_eq!(nominal.note, Some(Note::Rolled));
    let calendar = dates(&["2026-07-06"]);
    assert_eq!(around(&monthly, Some(&calendar)), ["2026-07-07T13:00"]);
    monthly.exclude.roll = Roll::PreviousBusinessDay;
    assert_eq!(around(&monthly, None), ["2026-07-02T13:00"]);
    // Into the month before.
    let mut first = cron("0 9 1 * *", "UTC");
    first.exclude.dates = dates(&["2026-06-01"]);
    first.exclude.roll = Roll::PreviousBusinessDay;
    let found = fires(&first, None, "2026-05-20T00:00:00Z", "2026-07-02T00:00:00Z");
    assert_eq!(found, ["2026-05-29T09:00", "2026-07-01T09:00"]);
}

#[test]
fn a_moved_fire_is_found_from_both_sides_though_an_earlier_date_has_none() {
    // 16 January 2027 is a Saturday: its fires go to the day the interval begins. On the 14th there is none to move.
    let anchor = at("2027-01-15T07:59:35.756Z");
    let mut rule = every(7 * SECOND + 1, anchor);
    rule.exclude.dates = dates(&["2027-01-14", "2027-01-16"]);
    rule.exclude.roll = Roll::PreviousBusinessDay;
    let until = at("2027-01-15T08:02:00Z");
    let forward: Vec<_> = nominals(&rule, None, anchor.plus_ms(-1), until).collect();
    assert!(forward.iter().any(|nominal| nominal.note == Some(Note::Rolled)));
    let previous = |before| prev_nominal(&rule, None, before).filter(|found| found.fire_at >= anchor);
    let backward = std::iter::successors(previous(until), |found| previous(found.fire_at));
    let mut backward: Vec<_> = backward.collect();
    backward.reverse();
    assert_eq!(backward, forward);
}

#[test]
fn a_moved_fire_keeps_its_local_time_over_a_clock_change() {
    // Friday 6 March is before New York's change of 8 March 2026, Monday 9 March after it.
    let mut rule = cron("0 9 6 3 *", "America/New_York");
    rule.exclude.dates = dates(&["2026-03-06"]);
    rule.exclude.roll = Roll::NextBusinessDay;
    assert_eq!(fires(&rule, None, "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"), ["2026-03-09T13:00"]);
}

#[test]
fn a_schedule_whose_dates_are_all_excluded_has_no_fires() {
    let mut rule = cron("0 0 25 12 *", "UTC");
    rule.end_at = Some(at("2060-01-01T00:00:00Z"));
    let christmases: Dates = (2000..2100).map(|year| date(year, 12, 25)).collect();
    assert_eq!(next_nominal(&rule, Some(&christmases), at("2026-01-01T00:00:00Z")), None);
    assert_eq!(
        prev_nominal(&rule, Some(&christmases), at("2059-01-01T00:00:00Z")).unwrap().fire_at,
        at("1999-12-25T00:00:00Z")
    );
}

#[test]
fn offsets_fill_the_window_evenly() {
    let fire_at = at("2026-06-01T09:00:00Z");
    let mut per_second = [0_u32; 60];
    for number in 0..100_000_u128 {
        let id = ScheduleId::from_bytes(number.to_be_bytes());
        let offset = window_offset_ms(id, fire_at, MINUTE);
        assert!((0..MINUTE).contains(&offset));
        per_second[usize::try_from(offset / SECOND).unwrap()] += 1;
    }
    assert!(per_second.iter().all(|count| *count <= 3_000), "{per_second:?}");
    // Changing the hash would move every fire that was previewed.
    let id = ScheduleId::from_bytes(42_u128.to_be_bytes());
    let offsets = [fire_at, fire_at.plus_ms(HOUR)].map(|fire_at| window_offset_ms(id, fire_at, MINUTE));
    assert_eq!(offsets, [20_655, 48_095]);
    assert_eq!(window_offset_ms(id, fire_at, 0), 0);
}

#[test]
fn previews_promise_instants_offsets_and_notes() {
    let mut daily = definition(cron("30 2 * * *", "America/New_York"));
    daily.window_ms = HOUR;
    let id = ScheduleId::from_bytes([9; 16]);
    let from = at("2026-03-07T00:00:00Z");
    let fires = preview(&daily, Some(id), None, from, 3);
    let instants: Vec<_> = fires.iter().map(|fire| (fire.fire_at, fire.note)).collect();
    let expected = [
        (at("2026-03-07T07:30:00Z"), None),
        (at("2026-03-08T07:00:00Z"), Some(Note::DstGap)),
        (at("2026-03-09T06:30:00Z"), None),
    ];
    assert_eq!(instants, expected);
    for fire in &fires {
        assert_eq!(fire.run_at, fire.fire_at.plus_ms(window_offset_ms(id, fire.fire_at, HOUR)));
    }
    let nameless = preview(&daily, None, None, from, 3);
    assert!(nameless.iter().all(|fire| fire.run_at == fire.fire_at));
}

/// The instants by the letter: every beat, one by one, moved or dropped by its date.
fn oracle(
    bare: &Rule,
    rolled: &Rule,
    calendar: &Dates,
    from: Timestamp,
    until: Timestamp,
) -> BTreeSet<Timestamp> {
    let excluded: BTreeSet<Date> =
        rolled.exclude.dates.as_slice().iter().chain(calendar.as_slice()).copied().collect();
    let zone = bare.zone.rules();
    let is_business =
        |day: &Date| !matches!(day.weekday(), Weekday::Saturday | Weekday::Sunday) && !excluded.contains(day);
    let mut found = BTreeSet::new();
    for nominal in nominals(bare, None, from.plus_ms(-33 * DAY), until.plus_ms(33 * DAY)) {
        let local = zone.to_datetime(jiff::Timestamp::from_millisecond(nominal.fire_at.as_ms()).unwrap());
        if !excluded.contains(&local.date()) {
            found.insert(nominal.fire_at);
            continue;
        }
        let step = match rolled.exclude.roll {
            Roll::None => continue,
            Roll::NextBusinessDay => 1,
            Roll::PreviousBusinessDay => -1,
        };
        let day =
            (1..=31).map(|days| local.date().checked_add((days * step).days()).unwrap()).find(is_business);
        let Some(day) = day else { continue };
        // The first instant at which the clock shows that time of that day, or a later one.
        let shown = day.to_datetime(local.time());
        let ambiguous = zone.to_ambiguous_timestamp(shown);
        let mut instant = ambiguous.earlier().unwrap();
        if zone.to_datetime(instant) != shown {
            instant = zone.following(instant).next().unwrap().timestamp();
        }
        found.insert(Timestamp::from_ms(instant.as_millisecond()));
    }
    found.into_iter().filter(|at| from < *at && *at <= until).collect()
}

fn any_bare_rule() -> impl Strategy<Value = Rule> {
    let expressions =
        ["*/20 * * * *", "30 2 * * *", "15 1,2,3 * * *", "0 9 * * MON-FRI", "0 0 1,15 * *", "45 23 * * 5"];
    let zones =
        ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana", "Africa/Cairo"];
    prop_oneof![
        (prop::sample::select(expressions.to_vec()), prop::sample::select(zones.to_vec()))
            .prop_map(|(expression, zone)| cron(expression, zone)),
        (20 * MINUTE..3 * DAY, -DAY..DAY)
            .prop_map(|(interval, shift)| every(interval, at("2026-01-01T00:00:00Z").plus_ms(shift))),
    ]
}

fn any_dates() -> impl Strategy<Value = Dates> {
    // Around the clock changes of spring, in clusters that weekends join.
    prop::collection::vec(0..60_i64, 0..25).prop_map(|days| {
        days.into_iter().map(|day| date(2026, 2, 20).checked_add(day.days()).unwrap()).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn both_directions_agree_with_the_letter(
        bare in any_bare_rule(), own in any_dates(), calendar in any_dates(),
        roll in prop::sample::select(Roll::ALL.to_vec()), start in 0..50_i64, days in 1..8_i64,
    ) {
        let mut rule = bare.clone();
        rule.exclude.dates = own;
        rule.exclude.roll = roll;
        let from = at("2026-02-18T00:00:00Z").plus_ms(start * DAY + 7);
        let until = from.plus_ms(days * DAY);
        let expected: Vec<_> = oracle(&bare, &rule, &calendar, from, until).into_iter().collect();
        let forward: Vec<_> = nominals(&rule, Some(&calendar), from, until).map(|n| n.fire_at).collect();
        prop_assert_eq!(&forward, &expected);
        let previous = |before| prev_nominal(&rule, Some(&calendar), before).map(|n| n.fire_at).filter(|at| *at > from);
        let mut backward: Vec<_> = std::iter::successors(previous(until.plus_ms(1)), |at| previous(*at)).collect();
        backward.reverse();
        prop_assert_eq!(&backward, &expected);
    }
}
