//! Schedules from outside: a real server that is killed across fire times, real targets, real time.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_core::time::Timestamp;

use crate::harness::target::{Hit, Target, answer};
use crate::harness::{Server, now_ms, until};

/// The shortest interval there is, so that a test sees several fires.
const FLAGS: &[&str] = &["--min-interval", "1s"];
const SECOND_MS: i64 = 1_000;

fn start(data: &Path) -> Server {
    Server::start_with(data, FLAGS)
}

fn create(server: &Server, body: &Value) -> String {
    let answer = server.post("/v1/schedules", body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn ms(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap_or_else(|e| panic!("{e}")).as_ms()
}

fn fire_at(hit: &Hit) -> i64 {
    ms(hit.header("tidewheel-fire-at"))
}

fn catch_up(hit: &Hit) -> bool {
    hit.header("tidewheel-catch-up") == "true"
}

/// The ledger, oldest first.
fn ledger(server: &Server, id: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut query = String::new();
    loop {
        let page = server.get(&format!("/v1/schedules/{id}/firings?limit=1000{query}"));
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(cursor) => query = format!("&cursor={cursor}"),
            None => break,
        }
    }
    items.reverse();
    items
}

fn count_of(ledger: &[Value], outcome: &str) -> usize {
    ledger.iter().filter(|entry| entry["outcome"] == outcome).count()
}

/// The instants that fired.
fn fired(ledger: &[Value]) -> BTreeSet<i64> {
    let fired = ledger.iter().filter(|entry| entry["outcome"] == "fired");
    fired.map(|entry| ms(entry["fire_at"].as_str().unwrap())).collect()
}

/// Every instant has one entry: none twice, none left out.
fn check_ledger(ledger: &[Value], interval_ms: i64) {
    let instants: Vec<i64> = ledger.iter().map(|entry| ms(entry["fire_at"].as_str().unwrap())).collect();
    for pair in instants.windows(2) {
        assert_eq!(pair[1] - pair[0], interval_ms, "{ledger:#?}");
    }
}

#[test]
fn an_interval_fires_on_time_with_keys_that_tell_fires_apart() {
    let data = TempDir::new().unwrap();
    let server = start(data.path());
    let target = Target::answering(|hit| {
        // One fire fails at first: its second attempt has its key.
        let second = hit.header("tidewheel-attempt") != "1";
        let fails = hit.header("tidewheel-fire-at").ends_with("2.000Z") && !second;
        answer(if fails { 500 } else { 200 }, "", "")
    });
    let id = create(
        &server,
        &json!({
            "every": "1s", "start_at": "2026-01-01T00:00:00Z", "target_url": target.url("/tick"), "name": "tick",
            "payload": {"n": 1}, "idempotency_key": "tick", "retry": {"policy": "fixed", "base": "10ms"},
        }),
    );
    // Two that are close may arrive in either order; what counts is that none is left out.
    until("twelve fires in a row and a retry", || {
        let hits = target.hits();
        let fires: BTreeSet<i64> = hits.iter().map(fire_at).collect();
        let (first, last) = (fires.first()?, fires.last()?);
        let in_a_row = i64::try_from(fires.len()).unwrap() == (last - first) / SECOND_MS + 1;
        let retried = hits.iter().any(|hit| hit.header("tidewheel-attempt") != "1");
        (retried && in_a_row && fires.len() >= 12).then_some(())
    });
    let mut firsts = BTreeSet::new();
    let mut retried = 0;
    for hit in &target.hits() {
        let at = fire_at(hit);
        assert_eq!(at % SECOND_MS, 0, "anchored at start_at, whenever it was made");
        assert!(hit.at_ms >= at, "early by {} ms", at - hit.at_ms);
        assert_eq!(hit.header("idempotency-key"), format!("tick:{}", hit.header("tidewheel-fire-at")));
        assert_eq!((hit.header("tidewheel-type"), hit.header("tidewheel-catch-up")), ("tick", "false"));
        assert_eq!(hit.body, br#"{"n":1}"#);
        match hit.header("tidewheel-attempt") {
            "1" => assert!(firsts.insert(at), "a fire came twice"),
            _ => retried += 1,
        }
    }
    assert!(retried >= 1, "one second in ten has a fire that fails");
    let schedule = server.get(&format!("/v1/schedules/{id}"));
    assert_eq!(schedule["state"], "active");
    let entries = ledger(&server, &id);
    check_ledger(&entries, SECOND_MS);
    assert_eq!(count_of(&entries, "fired"), entries.len(), "{entries:#?}");
}

const MISSED: usize = 8;

/// What an outage left behind.
struct Outage {
    server: Server,
    target: Target,
    /// All instants of the schedule, oldest first.
    instants: Vec<i64>,
    /// Its ledger, in that order.
    ledger: Vec<Value>,
}

impl Outage {
    fn outcomes(&self) -> Vec<&str> {
        self.ledger.iter().map(|entry| entry["outcome"].as_str().unwrap()).collect()
    }
}

/// Makes a schedule of [`MISSED`] fires, kills the server before the first, and starts it again when the last one's
/// grace is over: every fire is missed, however slow the machine is. Returns once all are decided.
fn outage(data: &Path, policy: &Value) -> Outage {
    for lead_s in [2, 10, 30] {
        let data = &data.join(lead_s.to_string());
        // What came too early in one try is none of the next one's.
        let target = Target::ok();
        let server = start(data);
        let first = (now_ms() / SECOND_MS + lead_s) * SECOND_MS;
        let last = first + i64::try_from(MISSED - 1).unwrap() * SECOND_MS;
        let [start_at, end_at] = [first, last].map(|at| Timestamp::from_ms(at).to_string());
        let mut body = json!({
            "every": "1s", "start_at": start_at, "end_at": end_at, "target_url": target.url("/"), "misfire_grace": "1s",
        });
        for (name, value) in policy.as_object().unwrap() {
            body[name] = value.clone();
        }
        let id = create(&server, &body);
        server.kill();
        if now_ms() >= first {
            // It took so long that a fire may have come before the end.
            continue;
        }
        until("every fire to be missed", || (now_ms() > last + SECOND_MS).then_some(()));
        let server = start(data);
        let ledger = until("every fire to be decided", || {
            let entries = ledger(&server, &id);
            (entries.len() == MISSED).then_some(entries)
        });
        let instants: Vec<i64> = (first..=last).step_by(1_000).collect();
        let told: Vec<i64> = ledger.iter().map(|entry| ms(entry["fire_at"].as_str().unwrap())).collect();
        assert_eq!(told, instants, "each instant has one entry");
        assert_eq!(server.get(&format!("/v1/schedules/{id}"))["state"], "ended");
        return Outage { server, target, instants, ledger };
    }
    panic!("the server could not be killed in time");
}

#[test]
fn after_an_outage_fire_all_makes_up_for_the_newest_oldest_first() {
    let data = TempDir::new().unwrap();
    let outage = outage(data.path(), &json!({"misfire": "fire_all", "misfire_cap": 3}));
    let hits = outage.target.until_hits(3);
    assert_eq!(outage.outcomes(), [&["missed"; MISSED - 3][..], &["fired"; 3]].concat());
    let fires: BTreeSet<i64> = hits.iter().map(fire_at).collect();
    assert_eq!(fires, outage.instants[MISSED - 3..].iter().copied().collect(), "the newest");
    assert!(hits.iter().all(catch_up), "{hits:#?}");
    let decided: Vec<&str> =
        outage.ledger[MISSED - 3..].iter().map(|entry| entry["decided_at"].as_str().unwrap()).collect();
    assert!(decided.is_sorted(), "oldest first: {decided:?}");
    check_nothing_else(&outage, 3);
}

#[test]
fn after_an_outage_fire_latest_fires_once_for_all() {
    let data = TempDir::new().unwrap();
    let outage = outage(data.path(), &json!({"misfire": "fire_latest"}));
    let hits = outage.target.until_hits(1);
    assert_eq!(outage.outcomes(), [&["coalesced"; MISSED - 1][..], &["fired"]].concat());
    let last = *outage.instants.last().unwrap();
    assert!(fire_at(&hits[0]) == last && catch_up(&hits[0]), "{hits:#?}");
    let into = |entry: &Value| ms(entry["coalesced_into"].as_str().unwrap());
    assert!(outage.ledger[..MISSED - 1].iter().all(|entry| into(entry) == last), "{:#?}", outage.ledger);
    check_nothing_else(&outage, 1);
}

#[test]
fn after_an_outage_skip_fires_nothing_that_is_late() {
    let data = TempDir::new().unwrap();
    let outage = outage(data.path(), &json!({"misfire": "skip"}));
    assert_eq!(outage.outcomes(), ["skipped"; MISSED]);
    assert!(outage.ledger.iter().all(|entry| entry["reason"] == "misfire"), "{:#?}", outage.ledger);
    check_nothing_else(&outage, 0);
}

/// A job submitted now has run, so whatever was due before would have.
fn check_nothing_else(outage: &Outage, expected: usize) {
    let Outage { server, target, .. } = outage;
    let later = server.submit(&json!({"type": "later", "target_url": target.url("/later")}));
    server.until_state(&later, "succeeded");
    assert_eq!(target.hits().iter().filter(|hit| hit.path != "/later").count(), expected);
}

#[test]
fn killed_again_and_again_no_fire_is_lost_or_made_twice() {
    let (data, target) = (TempDir::new().unwrap(), Target::ok());
    let server = start(data.path());
    let id = create(
        &server,
        &json!({"every": "1s", "target_url": target.url("/"), "misfire": "fire_all", "misfire_cap": 1000}),
    );
    server.kill();
    for _ in 0..4 {
        let server = start(data.path());
        let seen = target.count();
        target.until_hits(seen + 2);
        server.kill();
    }
    let server = start(data.path());
    let seen = target.count();
    target.until_hits(seen + 2);
    let paused = server.post(&format!("/v1/schedules/{id}/pause"), &json!({}));
    assert_eq!(paused.status, 200, "{}", paused.text());
    let entries = ledger(&server, &id);
    check_ledger(&entries, SECOND_MS);
    let fired = fired(&entries);
    until("every fire to reach the target", || {
        let arrived: BTreeSet<i64> = target.hits().iter().map(fire_at).collect();
        arrived.is_superset(&fired).then_some(())
    });
    // An attempt that died with its server is made again, under the same job and key.
    let jobs: BTreeSet<String> =
        target.hits().iter().map(|hit| hit.header("tidewheel-job-id").to_owned()).collect();
    let keys: BTreeSet<String> =
        target.hits().iter().map(|hit| hit.header("idempotency-key").to_owned()).collect();
    assert_eq!((jobs.len(), keys.len()), (fired.len(), fired.len()));
}

#[test]
fn a_pause_holds_until_it_is_lifted_and_a_deletion_for_good() {
    let data = TempDir::new().unwrap();
    let server = start(data.path());
    let (target, other) = (Target::ok(), Target::ok());
    let id = create(&server, &json!({"every": "1s", "target_url": target.url("/")}));
    // Ticks along, so that the test knows that time has gone by.
    create(&server, &json!({"every": "1s", "target_url": other.url("/")}));
    target.until_hits(1);
    let pause = server.cli(&["schedule", "pause", &id]);
    assert!(pause.status.success(), "{pause:?}");
    let fired = fired(&ledger(&server, &id));
    other.until_hits(other.count() + 4);
    assert_eq!(self::fired(&ledger(&server, &id)), fired, "nothing fires while it is paused");
    let shown = server.get(&format!("/v1/schedules/{id}"));
    assert_eq!((&shown["state"], &shown["next_fire_at"]), (&json!("paused"), &Value::Null));
    let resumed_at = now_ms();
    assert!(server.cli(&["schedule", "resume", &id]).status.success());
    let new = until("two fires after it was resumed", || {
        let new: Vec<i64> = target.hits().iter().map(fire_at).filter(|at| !fired.contains(at)).collect();
        (new.len() >= 2).then_some(new)
    });
    assert!(
        new.iter().all(|at| *at > resumed_at),
        "what was paused is not made up for: {new:?} {resumed_at}"
    );
    assert!(server.cli(&["schedule", "delete", &id]).status.success());
    let jobs = || {
        let page = server.get(&format!("/v1/jobs?schedule={id}&limit=1000"));
        let jobs = page["items"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned());
        jobs.collect::<BTreeSet<String>>()
    };
    let left = jobs();
    other.until_hits(other.count() + 3);
    assert_eq!(jobs(), left, "nothing fires once it is deleted");
    assert!(target.hits().iter().all(|hit| left.contains(hit.header("tidewheel-job-id"))));
    assert_eq!(server.request("GET", &format!("/v1/schedules/{id}"), "").status, 404);
}

#[test]
fn a_fire_that_meets_a_slow_run_is_skipped_and_said_to_be() {
    let data = TempDir::new().unwrap();
    let server = start(data.path());
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let inside = Arc::new(AtomicBool::new(false));
    let overlapped = Arc::new(AtomicBool::new(false));
    let (entered, met) = (Arc::clone(&inside), Arc::clone(&overlapped));
    let target = Target::answering(move |_| {
        if entered.swap(true, Ordering::SeqCst) {
            met.store(true, Ordering::SeqCst);
        }
        // Later runs find the gate open for good.
        gate.lock().unwrap().recv().ok();
        entered.store(false, Ordering::SeqCst);
        answer(200, "", "")
    });
    let id = create(
        &server,
        &json!({"every": "1s", "target_url": target.url("/"), "overlap": "skip", "timeout": "1m"}),
    );
    target.until_hits(1);
    let entries = until("fires to be skipped", || {
        let entries = ledger(&server, &id);
        (count_of(&entries, "skipped") >= 2).then_some(entries)
    });
    assert!(
        entries.iter().filter(|e| e["outcome"] == "skipped").all(|e| e["reason"] == "overlap"),
        "{entries:#?}"
    );
    assert_eq!(target.count(), 1);
    drop(release);
    target.until_hits(3);
    assert!(!overlapped.load(Ordering::SeqCst), "two runs at once");
}

#[test]
fn a_backfill_fires_the_past_once_and_a_trigger_fires_now() {
    let data = TempDir::new().unwrap();
    let server = start(data.path());
    let target = Target::ok();
    let id = create(
        &server,
        &json!({"cron_expr": "0 9 * * *", "timezone": "America/New_York", "target_url": target.url("/")}),
    );
    let backfill =
        ["schedule", "backfill", &id, "--from", "2026-03-06T00:00:00Z", "--to", "2026-03-10T00:00:00Z"];
    let output = server.cli(&[&backfill[..], &["-o", "json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done, json!({"count": 4, "duplicates": 0}));
    let mut fires: Vec<String> =
        target.until_hits(4).iter().map(|hit| hit.header("tidewheel-fire-at").to_owned()).collect();
    fires.sort();
    // The clock is moved on the 8th.
    let expected = ["06T14", "07T14", "08T13", "09T13"].map(|at| format!("2026-03-{at}:00:00.000Z"));
    assert_eq!(fires, expected);
    assert!(target.hits().iter().all(catch_up));
    let output = server.cli(&[&backfill[..], &["-o", "json"]].concat());
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done, json!({"count": 0, "duplicates": 4}), "not a second time");
    let output = server.cli(&["schedule", "trigger", &id, "-o", "json"]);
    assert!(output.status.success(), "{output:?}");
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    let hits = target.until_hits(5);
    assert_eq!(hits[4].header("tidewheel-job-id"), job["job_id"].as_str().unwrap());
    let firings = String::from_utf8(server.cli(&["schedule", "firings", &id]).stdout).unwrap();
    assert_eq!(firings.matches("backfilled").count(), 4, "{firings}");
    assert_eq!(firings.matches("triggered").count(), 1, "{firings}");
}

#[test]
fn what_comes_too_often_is_refused_with_the_shortest_interval() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    for flags in [&["--every", "1s"][..], &["--cron", "*/5 * * * * *"]] {
        let output = server.cli(&[&["schedule", "create"], flags].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("1m"), "{said}");
    }
    let output = server.cli(&["schedule", "create", "--every", "1m"]);
    assert!(output.status.success(), "{output:?}");
}
