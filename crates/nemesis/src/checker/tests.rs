//! Histories with one thing wrong: it is found, and nothing else is.

use super::*;
use crate::history::Verdict;

const DUE_MS: i64 = 10_000;

fn bounds() -> Bounds {
    Bounds::stretched(1)
}

fn at(at_ms: i64, event: Event) -> Entry {
    Entry { at_ms, event }
}

fn phase(phase: Phase) -> Event {
    Event::Phase { phase }
}

fn submitting(key: &str, run_at_ms: i64) -> Event {
    Event::Submitting { tenant: "a".into(), key: key.into(), run_at_ms, to: "queue".into() }
}

fn submitted(key: &str, id: &str) -> Event {
    Event::Submitted { tenant: "a".into(), key: key.into(), id: id.into() }
}

fn started(id: &str, run_key: &str, attempt: u32, token: u64) -> Event {
    let (id, run_key) = (id.into(), run_key.into());
    let fire_at_ms = None;
    Event::Started { tenant: "a".into(), id, run_key, attempt, token, fire_at_ms, at: "node 0".into() }
}

fn fired(id: &str, fire_at_ms: i64, attempt: u32, token: u64) -> Event {
    Event::Started {
        tenant: "a".into(),
        id: id.into(),
        run_key: format!("sch:{fire_at_ms}"),
        attempt,
        token,
        fire_at_ms: Some(fire_at_ms),
        at: "target".into(),
    }
}

fn reporting(id: &str, token: u64, status: &str) -> Event {
    Event::Reporting { id: id.into(), token, status: status.into() }
}

fn reported(id: &str, token: u64, status: &str, verdict: Verdict) -> Event {
    Event::Reported { id: id.into(), token, status: status.into(), verdict }
}

fn job(id: &str, state: &str) -> Event {
    Event::Job { tenant: "a".into(), id: id.into(), state: Some(state.into()) }
}

fn firing(fire_at_ms: i64, outcome: &str, job_id: Option<&str>) -> Event {
    let (outcome, job_id) = (outcome.into(), job_id.map(str::to_owned));
    Event::Firing { schedule: "sch".into(), fire_at_ms, outcome, job_id }
}

/// One job that fails once and then succeeds, and a schedule with three instants.
fn good() -> Vec<Entry> {
    let schedule =
        Event::Schedule { tenant: "a".into(), id: "sch".into(), first_ms: 11_000, every_ms: 1_000 };
    vec![
        at(0, phase(Phase::Calm)),
        at(1, schedule),
        at(5_000, phase(Phase::Faults)),
        at(9_000, submitting("k", DUE_MS)),
        at(9_010, submitted("k", "job")),
        at(10_002, started("job", "k", 1, 11)),
        at(10_003, reporting("job", 11, "failed")),
        at(10_010, reported("job", 11, "failed", Verdict::Accepted)),
        at(10_500, started("job", "k", 2, 12)),
        at(10_501, reporting("job", 12, "succeeded")),
        at(10_600, reported("job", 12, "succeeded", Verdict::Unclear)),
        at(10_601, reporting("job", 12, "succeeded")),
        at(10_700, reported("job", 12, "succeeded", Verdict::Accepted)),
        at(11_000, fired("one", 11_000, 1, 21)),
        at(13_100, fired("three", 13_000, 1, 22)),
        at(13_200, phase(Phase::Healed)),
        at(13_500, phase(Phase::Rolling)),
        at(13_501, submitting("r", 13_501)),
        at(13_502, submitted("r", "rolled")),
        at(13_510, started("rolled", "r", 1, 31)),
        at(13_600, phase(Phase::Ending)),
        at(13_700, Event::Pausing { id: "sch".into() }),
        at(13_800, Event::Paused { id: "sch".into() }),
        at(14_000, job("job", "succeeded")),
        at(14_000, job("rolled", "succeeded")),
        at(14_000, job("one", "succeeded")),
        at(14_000, job("three", "succeeded")),
        at(14_001, firing(13_000, "fired", Some("three"))),
        at(14_001, firing(12_000, "coalesced", None)),
        at(14_001, firing(11_000, "fired", Some("one"))),
    ]
}

/// Adds an entry where it belongs.
fn with(entry: Entry) -> Vec<Entry> {
    let mut entries = good();
    let place = entries.partition_point(|other| other.at_ms <= entry.at_ms);
    entries.insert(place, entry);
    entries
}

/// Replaces the one entry that `which` finds.
fn changed(which: impl Fn(&Event) -> bool, change: impl Fn(&mut Entry)) -> Vec<Entry> {
    let mut entries = good();
    let found: Vec<usize> = (0..entries.len()).filter(|index| which(&entries[*index].event)).collect();
    assert_eq!(found.len(), 1);
    change(&mut entries[found[0]]);
    entries
}

fn without(which: impl Fn(&Event) -> bool) -> Vec<Entry> {
    let entries: Vec<Entry> = good().into_iter().filter(|entry| !which(&entry.event)).collect();
    assert!(entries.len() < good().len());
    entries
}

fn promises(entries: &[Entry]) -> Vec<Promise> {
    let mut found: Vec<Promise> = check(entries, bounds()).into_iter().map(|it| it.promise).collect();
    found.dedup();
    found
}

#[test]
fn a_good_history_is_good() {
    assert_eq!(check(&good(), bounds()), []);
}

#[test]
fn a_lost_job_is_found_however_it_was_lost() {
    let is_end = |event: &Event| matches!(event, Event::Job { id, .. } if id == "job");
    let state = |state: Option<&str>| {
        let state = state.map(str::to_owned);
        changed(is_end, |entry| {
            entry.event = Event::Job { tenant: "a".into(), id: "job".into(), state: state.clone() };
        })
    };
    for entries in [without(is_end), state(None), state(Some("dead")), state(Some("running"))] {
        assert_eq!(promises(&entries), [Promise::NothingLost]);
    }
    // One that nobody ever saw start.
    let mut entries = with(at(9_500, submitting("x", 9_500)));
    entries.push(at(9_501, submitted("x", "unseen")));
    entries.push(at(15_000, job("unseen", "succeeded")));
    assert_eq!(promises(&entries), [Promise::NothingLost]);
}

#[test]
fn an_early_start_is_found() {
    let is_first = |event: &Event| matches!(event, Event::Started { id, attempt: 1, .. } if id == "job");
    assert_eq!(promises(&changed(is_first, |entry| entry.at_ms = DUE_MS - 1)), [Promise::NothingEarly]);
    let is_occurrence = |event: &Event| matches!(event, Event::Started { id, .. } if id == "one");
    assert_eq!(promises(&changed(is_occurrence, |entry| entry.at_ms = 10_999)), [Promise::NothingEarly]);
    // One whose submission was not answered.
    let mut entries = with(at(9_000, submitting("x", 12_000)));
    entries.push(at(11_000, started("silent", "x", 1, 5)));
    assert_eq!(promises(&entries), [Promise::NothingEarly]);
}

#[test]
fn a_stranger_is_found() {
    assert_eq!(promises(&with(at(12_000, started("?", "nobodys", 1, 5)))), [Promise::NothingUnexpected]);
}

#[test]
fn a_key_with_two_jobs_is_found() {
    let mut entries = with(at(9_020, submitted("k", "again")));
    entries.push(at(12_000, started("again", "k2", 1, 5)));
    entries.push(at(14_000, job("again", "succeeded")));
    assert_eq!(promises(&entries), [Promise::OneJobPerKey]);
}

#[test]
fn a_run_key_that_changes_or_is_shared_is_found() {
    let is_second = |event: &Event| matches!(event, Event::Started { id, attempt: 2, .. } if id == "job");
    let other = changed(is_second, |entry| entry.event = started("job", "other", 2, 12));
    assert_eq!(promises(&other), [Promise::RunKeyStable]);
    let is_rolled = |event: &Event| matches!(event, Event::Started { id, .. } if id == "rolled");
    let shared = changed(is_rolled, |entry| entry.event = started("rolled", "k", 1, 31));
    assert_eq!(promises(&shared), [Promise::RunKeyStable]);
}

#[test]
fn a_token_that_does_not_rise_is_found_and_so_is_an_attempt_that_starts_twice() {
    let is_second = |event: &Event| matches!(event, Event::Started { id, attempt: 2, .. } if id == "job");
    let low = changed(is_second, |entry| entry.event = started("job", "k", 2, 10));
    assert!(promises(&low).contains(&Promise::TokensRise), "{:?}", promises(&low));
    assert_eq!(promises(&with(at(10_502, started("job", "k", 2, 12)))), [Promise::TokensRise]);
}

#[test]
fn two_outcomes_are_found_under_one_token_or_under_two() {
    let other = with(at(10_800, reported("job", 12, "failed", Verdict::Accepted)));
    assert_eq!(promises(&other), [Promise::OneOutcomePerToken]);
    let mut twice = good();
    twice.push(at(14_100, reporting("job", 11, "succeeded")));
    twice.push(at(14_200, reported("job", 11, "succeeded", Verdict::Accepted)));
    assert_eq!(promises(&twice), [Promise::OneOutcomePerToken]);
}

#[test]
fn a_stale_token_that_is_taken_is_found_and_one_that_is_refused_is_not() {
    let stale = |verdict: Verdict| {
        // The first attempt is reported only after the second has started.
        let mut entries = without(|event| {
            matches!(event, Event::Reporting { token: 11, .. } | Event::Reported { token: 11, .. })
        });
        let place = entries.partition_point(|other| other.at_ms <= 10_501);
        entries.insert(place, at(10_502, reporting("job", 11, "failed")));
        entries.insert(place + 1, at(10_503, reported("job", 11, "failed", verdict)));
        promises(&entries)
    };
    assert_eq!(stale(Verdict::Accepted), [Promise::StaleTokenRefused]);
    assert_eq!(stale(Verdict::Refused), []);
    assert_eq!(stale(Verdict::Unclear), []);
}

#[test]
fn the_same_outcome_again_is_no_stale_one() {
    // Its first answer was lost; by the second, the next attempt is under way.
    let mut entries = changed(
        |event| matches!(event, Event::Reported { token: 11, .. }),
        |entry| entry.event = reported("job", 11, "failed", Verdict::Unclear),
    );
    let place = entries.partition_point(|other| other.at_ms <= 10_501);
    entries.insert(place, at(10_502, reporting("job", 11, "failed")));
    entries.insert(place + 1, at(10_503, reported("job", 11, "failed", Verdict::Accepted)));
    assert_eq!(promises(&entries), []);
}

#[test]
fn a_start_after_completion_is_found_and_the_late_sight_of_an_older_one_is_not() {
    assert_eq!(promises(&with(at(10_900, started("job", "k", 3, 13)))), [Promise::NoStartAfterCompletion]);
    let mut late = without(|event| matches!(event, Event::Started { id, attempt: 1, .. } if id == "job"));
    late.push(at(14_500, started("job", "k", 1, 11)));
    assert_eq!(promises(&late), []);
}

#[test]
fn every_fault_of_a_ledger_is_found() {
    let is_entry = |fire_at: i64| move |event: &Event| matches!(event, Event::Firing { fire_at_ms, .. } if *fire_at_ms == fire_at);
    let wrong = [
        // Nothing became of one; two things did; one that is none; one that nobody asked for.
        without(is_entry(12_000)),
        with(at(14_001, firing(12_000, "missed", None))),
        with(at(14_001, firing(12_500, "skipped", None))),
        changed(is_entry(12_000), |entry| entry.event = firing(12_000, "triggered", None)),
        // A fire without a job, with that of another instant, of one that did not end, and after the pause.
        changed(is_entry(11_000), |entry| entry.event = firing(11_000, "fired", None)),
        changed(is_entry(12_000), |entry| entry.event = firing(12_000, "fired", Some("one"))),
        changed(is_entry(12_000), |entry| entry.event = firing(12_000, "fired", Some("nobody"))),
        with(at(14_001, firing(14_000, "fired", Some("three")))),
        // A run that did not fire.
        changed(is_entry(11_000), |entry| entry.event = firing(11_000, "skipped", None)),
        // Not known to be whole.
        without(|event| matches!(event, Event::Pausing { .. })),
    ];
    for entries in wrong {
        assert_eq!(promises(&entries), [Promise::LedgerExact], "{:?}", check(&entries, bounds()));
    }
}

#[test]
fn lag_that_stays_is_found() {
    let late = |due_ms: i64, start_ms: i64| {
        let mut entries = good();
        entries.push(at(due_ms, submitting("x", due_ms)));
        entries.push(at(due_ms + 1, submitted("x", "late")));
        entries.push(at(start_ms, started("late", "x", 1, 5)));
        entries.push(at(start_ms, job("late", "succeeded")));
        entries.sort_by_key(|entry| entry.at_ms);
        promises(&entries)
    };
    // Healed at 13,200: until 38,200 it may be late, then by five seconds.
    assert_eq!(late(9_000, 43_000), []);
    assert_eq!(late(9_000, 43_300), [Promise::LagRecovers]);
    assert_eq!(late(50_000, 54_900), []);
    assert_eq!(late(50_000, 55_100), [Promise::LagRecovers]);
}

#[test]
fn too_few_submissions_taken_are_found() {
    let mut entries = good();
    for number in 0..2 {
        entries.push(at(9_100, submitting(&format!("x{number}"), 9_100)));
    }
    assert_eq!(promises(&entries), [Promise::SubmissionsTaken]);
}

#[test]
fn a_node_that_dies_is_found() {
    assert_eq!(promises(&with(at(9_000, Event::NodeDied { node: 1, code: None }))), [Promise::NodesStayUp]);
}

#[test]
fn a_duplicate_or_a_late_start_in_a_rolling_restart_is_found() {
    assert_eq!(promises(&with(at(13_560, started("rolled", "r", 2, 32)))), [Promise::RollingRunsOnce]);
    let is_rolled = |event: &Event| matches!(event, Event::Started { id, .. } if id == "rolled");
    assert_eq!(promises(&changed(is_rolled, |entry| entry.at_ms = 18_600)), [Promise::RollingOnTime]);
}

#[test]
fn a_history_survives_being_written_and_read() {
    let lines: Vec<String> = good().iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
    assert!(
        lines[3].starts_with(r#"{"at_ms":9000,"event":"submitting","tenant":"a","key":"k""#),
        "{}",
        lines[3]
    );
    let read: Vec<Entry> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, good());
}
