//! What expressions mean, by name; among them what other cron libraries have been seen to get wrong.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::super::{Cron, Dst, Fold, Gap, Note, zone};
use super::{fires, fires_backwards, instant, steps_of};

fn cron(expr: &str) -> Cron {
    Cron::parse(expr).unwrap_or_else(|refused| panic!("{expr}: {refused}"))
}

/// The fires between two instants with their notes, as `hh:mm` (with seconds, if any) in UTC.
fn list(expr: &str, tz: &str, dst: Dst, from: &str, until: &str) -> Vec<(String, Option<Note>)> {
    let (from, until) = (instant(from), instant(until));
    let found = fires(&cron(expr), tz, dst, from, until);
    assert_eq!(fires_backwards(&cron(expr), tz, dst, from, until), found);
    let clock = |at: Timestamp| {
        let clock = at.strftime("%H:%M:%S").to_string();
        clock.strip_suffix(":00").unwrap_or(&clock).to_owned()
    };
    found.into_iter().map(|fire| (clock(fire.at), fire.note)).collect()
}

fn times(expr: &str, tz: &str, from: &str, until: &str) -> Vec<String> {
    list(expr, tz, Dst::default(), from, until).into_iter().map(|(at, _)| at).collect()
}

#[test]
fn a_fixed_time_before_a_gap_fires_once() {
    let day = times("30 1 * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z");
    assert_eq!(day, ["06:30"]);
}

#[test]
fn a_half_hour_change_does_not_hang_the_search() {
    let tz = zone("Australia/Lord_Howe").unwrap();
    let mut at = instant("2025-01-01T00:00:00Z");
    for _ in 0..800 {
        let (next, steps) = steps_of(|| cron("50 0 * * *").next_after(at, &tz, Dst::default()).unwrap());
        assert!(steps < 10);
        let gap = next.at.duration_since(at).as_secs();
        assert!(gap <= 25 * 3600, "{gap} after {at}");
        at = next.at;
    }
}

#[test]
fn the_last_day_of_december_is_not_missed() {
    let next = cron("0 0 L * *").next_after(instant("2025-12-01T00:00:00Z"), &TimeZone::UTC, Dst::default());
    assert_eq!(next.unwrap().at, instant("2025-12-31T00:00:00Z"));
}

#[test]
fn every_hour_runs_in_both_passes_of_a_fold() {
    let hours = times("0 * * * *", "America/New_York", "2025-11-02T04:30:00Z", "2025-11-02T07:30:00Z");
    assert_eq!(hours, ["05:00", "06:00", "07:00"]);
}

#[test]
fn every_two_hours_goes_on_after_a_gap() {
    let day = times("0 */2 * * *", "Europe/Berlin", "2026-03-28T22:30:00Z", "2026-03-29T10:00:00Z");
    assert_eq!(day, ["23:00", "02:00", "04:00", "06:00", "08:00", "10:00"]);
}

#[test]
fn skipped_times_run_once_right_after_the_gap() {
    let berlin = |expr, gap| {
        let dst = Dst { gap, ..Dst::default() };
        list(expr, "Europe/Berlin", dst, "2026-03-29T00:00:00Z", "2026-03-29T02:00:00Z")
    };
    let moved = [("01:00".to_owned(), Some(Note::DstGap))];
    assert_eq!(berlin("0,10,50 2 * * *", Gap::NextValid), moved);
    assert_eq!(berlin("*/7 10,50 2 * * *", Gap::NextValid), moved, "with seconds too");
    assert_eq!(berlin("0 2,3 * * *", Gap::NextValid), moved, "joined with the time the gap ends at");
    assert_eq!(berlin("0,10,50 2 * * *", Gap::Skip), []);
    assert_eq!(berlin("0 2,3 * * *", Gap::Skip), [("01:00".to_owned(), None)]);
    assert_eq!(berlin("*/10 2 * * *", Gap::NextValid), [], "not a fixed time");
}

#[test]
fn a_gap_at_midnight_moves_the_day_it_belongs_to() {
    let moved =
        list("0 0 30 3 *", "Asia/Beirut", Dst::default(), "2025-03-29T00:00:00Z", "2025-03-31T00:00:00Z");
    assert_eq!(moved, [("22:00".to_owned(), Some(Note::DstGap))]);
}

#[test]
fn a_day_lost_to_the_date_line_is_skipped() {
    let days = times("0 9 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-31T00:00:00Z");
    assert_eq!(days, ["19:00", "19:00"], "the 29th and the 31st; there was no 30th");
}

#[test]
fn repeated_times_are_noted_and_run_as_asked() {
    let new_york = |expr, fold| {
        let dst = Dst { fold, ..Dst::default() };
        list(expr, "America/New_York", dst, "2025-11-02T04:40:00Z", "2025-11-02T07:10:00Z")
    };
    let fold = Some(Note::DstFold);
    let at = |at: &str, note| (at.to_owned(), note);
    assert_eq!(new_york("30 1 * * *", Fold::First), [at("05:30", fold)]);
    assert_eq!(new_york("30 1 * * *", Fold::Both), [at("05:30", fold), at("06:30", fold)]);
    assert_eq!(new_york("15 30 1 * * *", Fold::First), [at("05:30:15", fold)]);
    assert_eq!(new_york("0 1,2 * * *", Fold::First), [at("05:00", fold), at("07:00", None)]);
    let every_half_hour = ["05:00", "05:30", "06:00", "06:30"].map(|time| at(time, fold));
    assert_eq!(new_york("*/30 1 * * *", Fold::First), every_half_hour);
}

#[test]
fn rare_dates_are_found_across_centuries() {
    let next = |expr: &str, from: &str| {
        let (next, steps) = steps_of(|| cron(expr).next_after(instant(from), &TimeZone::UTC, Dst::default()));
        assert!(steps < 60, "{steps}");
        let back = cron(expr).prev_before(next.unwrap().at, &TimeZone::UTC, Dst::default()).unwrap().at;
        assert_eq!(cron(expr).next_after(back, &TimeZone::UTC, Dst::default()), next);
        next.unwrap().at
    };
    assert_eq!(next("0 0 29 2 *", "2096-03-01T00:00:00Z"), instant("2104-02-29T00:00:00Z"));
    assert_eq!(next("0 0 * 2 1#5", "2072-03-01T00:00:00Z"), instant("2112-02-29T00:00:00Z"));
}

#[test]
fn a_schedule_that_only_ever_falls_in_gaps_ends_the_search() {
    let tz = zone("Africa/Cairo").unwrap();
    let skip = Dst { gap: Gap::Skip, ..Dst::default() };
    let (lost, at) = (cron("30 0 * 4 5L"), instant("2026-01-01T00:00:00Z"));
    let (next, steps) = steps_of(|| lost.next_after(at, &tz, skip));
    assert_eq!(next, None);
    assert!(steps < 300, "{steps}");
    assert_eq!(lost.next_after(at, &tz, Dst::default()).unwrap().at, instant("2026-04-23T22:00:00Z"));
}

#[test]
fn the_ends_of_time_have_no_fires_beyond_them() {
    let every_second = cron("* * * * * *");
    assert_eq!(every_second.next_after(Timestamp::MAX, &TimeZone::UTC, Dst::default()), None);
    assert_eq!(every_second.prev_before(Timestamp::MIN, &TimeZone::UTC, Dst::default()), None);
}

#[test]
fn fractions_of_a_second_are_not_lost() {
    let every_second = cron("* * * * * *");
    for (at, prev, next) in [
        ("2025-01-01T00:00:00.5Z", "2025-01-01T00:00:00Z", "2025-01-01T00:00:01Z"),
        ("2025-01-01T00:00:00Z", "2024-12-31T23:59:59Z", "2025-01-01T00:00:01Z"),
        ("1965-01-01T00:00:00.5Z", "1965-01-01T00:00:00Z", "1965-01-01T00:00:01Z"),
    ] {
        let found = every_second.prev_before(instant(at), &TimeZone::UTC, Dst::default());
        assert_eq!(found.unwrap().at, instant(prev));
        let found = every_second.next_after(instant(at), &TimeZone::UTC, Dst::default());
        assert_eq!(found.unwrap().at, instant(next));
    }
}

#[test]
fn other_ways_to_write_the_same_give_the_same() {
    let same: &[(&str, &str)] = &[
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@annually", "@yearly"),
        ("0 0 ? * MON", "0 0 * * 1"),
        ("0 0 * jan-Mar sun,TUE", "0 0 * 1-3 0,2"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("\t5/15  * * * * ", "5,20,35,50 * * * *"),
        ("0 0 l * *", "0 0 L * *"),
        ("0 0 lw * *", "0 0 LW * *"),
        ("0 0 * * FRI#2", "0 0 * * 5#2"),
        ("0 0 * * 7L", "0 0 * * SUNL"),
        ("0 0 13 * */1", "0 0 13 * *"),
        ("007 * * * *", "7 * * * *"),
        ("0 0 1 */20 *", "0 0 1 1 *"),
    ];
    for (one, other) in same {
        assert_eq!(cron(one).fields, cron(other).fields, "{one} and {other}");
        assert_eq!(cron(one).to_string(), *one);
    }
}

#[test]
fn two_restricted_day_fields_widen_each_other() {
    let days = |expr: &str| {
        fires(
            &cron(expr),
            "UTC",
            Dst::default(),
            instant("2025-05-31T12:00:00Z"),
            instant("2025-06-30T12:00:00Z"),
        )
        .len()
    };
    assert_eq!(days("0 0 13 * 5"), 4, "the 13th is one of four Fridays");
    assert_eq!(days("0 0 14 * 5"), 5);
    assert_eq!(days("0 0 */2 * 1"), 18, "a step restricts");
    assert_eq!(days("0 0 *,1 * 1"), 5, "a star in a list does not");
    assert_eq!(days("0 0 1-31 * 1"), 30, "a full range does");
}

#[test]
fn days_before_the_last_and_nearest_weekdays() {
    let next = |expr: &str, from: &str| {
        let next = cron(expr).next_after(instant(from), &TimeZone::UTC, Dst::default()).unwrap();
        next.at.strftime("%Y-%m-%d").to_string()
    };
    assert_eq!(next("0 0 L-3 * *", "2024-02-01T00:00:00Z"), "2024-02-26");
    assert_eq!(next("0 0 1W * *", "2025-02-01T00:00:00Z"), "2025-02-03", "a Saturday, kept in its month");
    assert_eq!(next("0 0 28W 2 *", "2027-02-01T00:00:00Z"), "2027-02-26", "a Sunday, kept in its month");
    assert_eq!(next("0 0 LW * *", "2025-05-01T12:00:00Z"), "2025-05-30");
}

#[test]
fn the_shortest_gap_between_fires_is_known() {
    const DAY: u64 = 86_400;
    let cases: &[(&str, u64)] = &[
        ("* * * * *", 60),
        ("*/5 * * * *", 300),
        ("*/7 * * * *", 240),
        ("*/59 * * * *", 60),
        ("0 * * * *", 3600),
        ("0,59 * * * *", 60),
        ("59 0,1 * * *", 3600),
        ("0,59 0,1 * * *", 60),
        ("* * * * * *", 1),
        ("*/20 * * * * *", 20),
        ("0 0 * * * *", 3600),
        ("0,50 * * * * *", 10),
        ("30 2 * * *", DAY),
        ("0 0,23 * * *", 3600),
        ("0 0 * * 1", 7 * DAY),
        ("0 0 1 * *", 28 * DAY),
        ("0 0,23 1 * *", 23 * 3600),
        ("0 0 1,31 * *", DAY),
        ("0 0 L * *", 28 * DAY),
        ("0 0 1 1 *", 365 * DAY),
        ("0 0 29 2 *", 365 * DAY),
        ("0 0 * 2 1#5", 365 * DAY),
        ("0 9 * * 1,4", 3 * DAY),
    ];
    for (expr, seconds) in cases {
        assert_eq!(cron(expr).min_gap_seconds(), *seconds, "{expr}");
    }
}

#[test]
fn dst_rules_are_read_as_the_api_writes_them() {
    let read = |text| serde_json::from_str::<Dst>(text);
    assert_eq!(read("{}").unwrap(), Dst { gap: Gap::NextValid, fold: Fold::First });
    let both = read(r#"{"gap":"skip","fold":"both"}"#).unwrap();
    assert_eq!(both, Dst { gap: Gap::Skip, fold: Fold::Both });
    assert!(read(r#"{"gaps":"skip"}"#).is_err());
    assert_eq!(serde_json::to_string(&Note::DstGap).unwrap(), r#""dst_gap""#);
}
