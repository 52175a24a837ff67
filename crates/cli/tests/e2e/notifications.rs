//! Being told without a monitoring system, from outside: dead letters, missed runs, failing targets, lag.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness;
use crate::harness::pulse::Pulse;
use crate::harness::target::{Hit, Target, answer};
use crate::harness::{Server, request, until};

fn start(data: &TempDir, flags: &[&str]) -> Server {
    Server::start_with(data.path(), flags)
}

fn call(server: &Server, tenant: &str, method: &str, path: &str, body: &Value) -> Value {
    let headers = [("tidewheel-tenant", tenant), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = request(server.address, method, path, &headers, body.as_bytes()).unwrap();
    assert!(answer.status < 300, "{path}: {}", answer.text());
    answer.json()
}

fn tell(server: &Server, tenant: &str, url: &str, events: &[&str]) {
    let body = json!({"url": url, "events": events, "lag_budget": "1s"});
    let set = call(server, tenant, "PUT", &format!("/v1/tenants/{tenant}/notifications"), &body);
    assert_eq!((&set["url"], &set["lag_budget"]), (&json!(url), &json!("1s")));
}

/// The first notification of an event.
fn told(target: &Target, event: &str) -> (Hit, Value) {
    until(&format!("{event} to be told"), || {
        target.hits().into_iter().find_map(|hit| {
            let body: Value = serde_json::from_slice(&hit.body).unwrap();
            (body["event"] == event).then_some((hit, body))
        })
    })
}

/// How many notifications there were. One that was not answered in time comes again.
fn count(target: &Target) -> usize {
    let ids = target.hits().into_iter().map(|hit| hit.header("tidewheel-job-id").to_owned());
    ids.collect::<BTreeSet<String>>().len()
}

#[test]
fn a_flood_of_dead_letters_is_told_in_few_signed_notifications_and_their_own_failure_is_not() {
    let data = TempDir::new().unwrap();
    let server = start(&data, &["--breaker-failures", "0"]);
    let (ops, broken) = (Target::ok(), Target::answering(|_| answer(410, "", "gone for good")));
    tell(&server, "a", &ops.url("/ops"), &["dead_letter"]);
    let job = json!({"type": "mail", "target_url": broken.url("/")});
    call(&server, "a", "POST", "/v1/jobs/batch", &json!({"jobs": vec![&job; 500]}));
    call(&server, "b", "POST", "/v1/jobs", &job);
    until("all to be dead", || {
        (call(&server, "a", "GET", "/v1/jobs/count?state=dead", &Value::Null)["count"] == 500).then_some(())
    });
    let (hit, told) = told(&ops, "dead_letter");
    assert_eq!((hit.path.as_str(), hit.header("tidewheel-type")), ("/ops", "tidewheel.notification"));
    assert!(!hit.header("webhook-signature").is_empty(), "signed as any push");
    assert!(hit.header("idempotency-key").starts_with("tidewheel.notification:dead_letter:job_"));
    assert_eq!(told["tenant"], "a");
    assert!(told["count"].as_u64().unwrap() >= 1 && told["items"].as_array().unwrap().len() <= 10, "{told}");
    let item = &told["items"][0];
    assert_eq!((&item["type"], &item["error"]), (&json!("mail"), &json!("gone for good")), "{told}");
    assert!(item["job"].as_str().unwrap().starts_with("job_"), "{told}");
    assert!(count(&ops) <= 2, "{} notifications", count(&ops));

    // A notification that fails for good is a dead letter that nobody is told of.
    tell(&server, "c", &broken.url("/ops"), &["dead_letter", "breaker_open"]);
    call(&server, "c", "POST", "/v1/jobs", &json!({"type": "mail", "target_url": broken.url("/c")}));
    until("the notification to be dead", || {
        let dead = call(&server, "c", "GET", "/v1/dead-letters?type=tidewheel.notification", &Value::Null);
        (dead["items"].as_array().unwrap().len() == 1).then_some(())
    });
    let count = call(&server, "c", "GET", "/v1/jobs/count?type=tidewheel.notification", &Value::Null);
    assert_eq!(count["count"], 1);
}

/// Has a target of a tenant fail, and a queue wait for longer than it may; gives what was told of the lag, and how many
/// notifications there were.
fn fail_and_lag(server: &Server, tenant: &str) -> (Value, usize) {
    let (ops, broken) = (Target::ok(), Target::answering(|_| answer(500, "", "out of order")));
    tell(server, tenant, &ops.url("/ops"), &["breaker_open", "lag"]);
    let retry = json!({"policy": "fixed", "base": "10ms", "max_attempts": 100});
    let job = json!({"type": "t", "target_url": broken.url("/"), "retry": retry});
    call(server, tenant, "POST", "/v1/jobs/batch", &json!({"jobs": vec![&job; 10]}));
    let (_, body) = told(&ops, "breaker_open");
    let item = &body["items"][0];
    assert_eq!(item["host"], broken.url("/").trim_end_matches('/'), "{body}");
    assert!(item["reason"].as_str().unwrap().contains("500: out of order"), "{body}");

    call(server, tenant, "POST", "/v1/jobs", &json!({"type": "t", "queue": "forsaken"}));
    let (_, body) = told(&ops, "lag");
    (body["items"][0].clone(), count(&ops))
}

#[test]
fn a_failing_target_is_told_once_and_lag_when_it_goes_over_its_budget() {
    let data = TempDir::new().unwrap();
    let server = start(&data, &["--breaker-failures", "3", "--breaker-cooldown", "50ms"]);
    // On a machine that stands still everything lags; then it is tried anew.
    for tenant in ["a", "b", "c", "d"] {
        let pulse = Pulse::watch();
        let (lag, count) = fail_and_lag(&server, tenant);
        let is_of_the_queue = (&lag["queue"], &lag["waits_for"]) == (&json!("forsaken"), &json!("no_worker"))
            && lag["budget"] == "1s";
        if is_of_the_queue && count == 2 {
            return;
        }
        assert!(!pulse.is_calm(), "{count} notifications instead of one of each, the lag is {lag}");
    }
}

#[test]
fn a_run_that_was_missed_while_the_server_was_down_is_told() {
    let data = TempDir::new().unwrap();
    let (ops, target) = (Target::ok(), Target::ok());
    let server = start(&data, &["--min-interval", "1s"]);
    tell(&server, "default", &ops.url("/ops"), &["missed_run"]);
    let made = server.post(
        "/v1/schedules",
        &json!({"name": "tick", "every": "2s", "target_url": target.url("/"), "misfire": "skip", "misfire_grace": "1s"}),
    );
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let next =
        made.json()["next_fire_at"].as_str().unwrap().parse::<tidewheel_core::time::Timestamp>().unwrap();
    server.kill();
    until("its time to be long past", || (harness::now_ms() > next.as_ms() + 4_000).then_some(()));
    let server = start(&data, &["--min-interval", "1s"]);
    let (_, body) = told(&ops, "missed_run");
    let item = &body["items"][0];
    assert_eq!((&item["schedule"], &item["made_up"]), (&json!(id), &json!(false)), "{body}");
    assert!(item["fire_at"].is_string() && item["reason"].as_str().unwrap().contains("misfire"), "{body}");
    drop(server);
}

#[test]
fn notifications_are_set_shown_and_turned_off_and_targets_inside_are_refused() {
    let data = TempDir::new().unwrap();
    let server = start(&data, &[]);
    let said = |args: &[&str]| {
        let output = server.cli(args);
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, text) = said(&[
        "tenant",
        "notify",
        "acme",
        "--to",
        "https://acme.example/ops",
        "--events",
        "lag,dead_letter",
        "-o",
        "json",
    ]);
    assert_eq!(code, Some(0), "{text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        shown,
        json!({"url": "https://acme.example/ops", "events": ["dead_letter", "lag"], "lag_budget": "1m"})
    );
    assert_eq!(call(&server, "acme", "GET", "/v1/tenants/acme/notifications", &Value::Null), shown);
    let (code, text) = said(&["tenant", "notify", "acme", "--to", "http://169.254.169.254/"]);
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = said(&["tenant", "notify", "acme", "--off", "-o", "json"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        call(&server, "acme", "GET", "/v1/tenants/acme/notifications", &Value::Null)["url"],
        Value::Null
    );
}
