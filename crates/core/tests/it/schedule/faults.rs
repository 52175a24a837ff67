//! Schedules that would never fire: refused, with the field that is to blame.

use tidewheel_core::cron::Gap;
use tidewheel_core::limits::SCHEDULE_INTERVAL_MS_MIN_DEFAULT;
use tidewheel_core::schedule::{FaultKind, Rule, check, next_nominal};
use tidewheel_core::time::Timestamp;

use crate::schedule::support::{HOUR, at, cron, definition, every};

const NOW: &str = "2026-06-01T08:30:00Z";

fn faults(rule: &Rule) -> Vec<(&'static str, FaultKind)> {
    let faults = check(&definition(rule.clone()), None, SCHEDULE_INTERVAL_MS_MIN_DEFAULT, at(NOW));
    assert_eq!(faults.is_empty(), next_nominal(rule, None, at(NOW)).is_some(), "{faults:?}");
    faults.into_iter().map(|fault| (fault.field, fault.kind)).collect()
}

/// Berlin's clocks go from 02:00 to 03:00 on the last Sunday of March, every year.
fn in_the_gap(expression: &str) -> Rule {
    cron(expression, "Europe/Berlin")
}

#[test]
fn a_fixed_time_that_always_falls_in_a_skipped_gap_is_refused_for_its_rule() {
    let mut rule = in_the_gap("30 2 * 3 SUNL");
    assert_eq!(faults(&rule), [], "it runs right after the gap");
    rule.dst.gap = Gap::Skip;
    assert_eq!(faults(&rule), [("dst.gap", FaultKind::Value)]);
    // Neither its end nor its start is to blame.
    rule.end_at = Some(at("2060-01-01T00:00:00Z"));
    rule.start_at = Some(at("2027-01-01T00:00:00Z"));
    assert_eq!(faults(&rule), [("dst.gap", FaultKind::Value)]);
}

#[test]
fn a_beat_the_clock_always_leaps_over_is_refused_for_its_expression() {
    for gap in [Gap::NextValid, Gap::Skip] {
        let mut rule = in_the_gap("*/30 2 * 3 SUNL");
        rule.dst.gap = gap;
        assert_eq!(faults(&rule), [("cron_expr", FaultKind::Never)], "{gap:?}");
    }
}

#[test]
fn what_is_moved_over_only_at_times_is_fine() {
    // The 29th is the last Sunday of March in some years only.
    for expression in ["30 2 29 3 *", "*/30 2 29 3 *", "30 2,3 * 3 SUNL", "30 3 * 3 SUNL", "30 2 * 10 SUNL"] {
        let mut rule = in_the_gap(expression);
        rule.dst.gap = Gap::Skip;
        assert_eq!(faults(&rule), [], "{expression}");
    }
    let mut elsewhere = cron("30 2 * 3 SUNL", "America/New_York");
    elsewhere.dst.gap = Gap::Skip;
    assert_eq!(faults(&elsewhere), []);
}

#[test]
fn an_end_that_leaves_nothing_is_still_the_end() {
    let mut rule = cron("0 9 * * *", "Europe/Berlin");
    rule.dst.gap = Gap::Skip;
    rule.end_at = Some(at("2026-06-01T08:59:59Z"));
    rule.start_at = Some(at("2026-06-01T08:59:58Z"));
    assert_eq!(faults(&rule), [("end_at", FaultKind::Value)]);
    let mut rule = every(HOUR, at(NOW));
    rule.end_at = Some(at("2026-06-01T08:45:00Z"));
    assert_eq!(faults(&rule), [("end_at", FaultKind::Value)]);
}

#[test]
fn a_start_after_the_last_fire_there_is_is_the_one_to_blame() {
    for (expression, start) in
        [("0 0 29 2 *", "9997-01-01T00:00:00Z"), ("0 12 * * *", "9999-12-30T12:00:01Z")]
    {
        let mut rule = cron(expression, "UTC");
        rule.start_at = Some(at(start));
        assert_eq!(faults(&rule), [("start_at", FaultKind::Value)], "{expression}");
        rule.end_at = Some(Timestamp::LATEST);
        assert_eq!(faults(&rule), [("start_at", FaultKind::Value)], "{expression}");
    }
    let mut last = cron("0 12 * * *", "UTC");
    last.start_at = Some(at("9999-12-30T12:00:00Z"));
    assert_eq!(faults(&last), []);
    // What never comes is refused for that, wherever it starts.
    let mut never = in_the_gap("*/30 2 * 3 SUNL");
    never.start_at = Some(at("9999-12-30T12:00:01Z"));
    assert_eq!(faults(&never), [("cron_expr", FaultKind::Never)]);
}
