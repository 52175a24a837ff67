//! What a user sees of a job's life, from outside: a real server, real targets, real time.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness;
use crate::harness::target::{Target, answer};
use crate::harness::{Server, instant};

fn start() -> (TempDir, Server) {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    (data, server)
}

#[test]
fn a_target_receives_the_payload_byte_for_byte_and_all_the_facts() {
    let (_data, server) = start();
    let target = Target::ok();
    let payload = r#"{"b": 1.50,  "a":"\u00e9", "n": 12345678901234567890123}"#;
    let run_at = instant(200);
    let body = format!(
        r#"{{"type": "send-email", "payload": {payload}, "run_at": "{run_at}", "idempotency_key": "k-1",
            "target": {{"url": "{}", "headers": {{"x-team": "ops"}}}}}}"#,
        target.url("/hook?x=1")
    );
    let answer = server.request("POST", "/v1/jobs", &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let job = answer.json();
    assert_eq!(
        (&job["state"], &job["idempotency_key"], &job["duplicate"]),
        (&json!("scheduled"), &json!("k-1"), &json!(false))
    );
    let hit = target.until_hits(1).remove(0);
    assert_eq!((hit.method.as_str(), hit.path.as_str()), ("POST", "/hook?x=1"));
    assert_eq!(String::from_utf8(hit.body.clone()).unwrap(), payload);
    assert!(hit.at_ms >= run_at.parse::<tidewheel_core::time::Timestamp>().unwrap().as_ms(), "early");
    for (name, value) in [
        ("content-type", "application/json"),
        ("tidewheel-job-id", job["id"].as_str().unwrap()),
        ("tidewheel-type", "send-email"),
        ("tidewheel-attempt", "1"),
        ("tidewheel-fire-at", &run_at),
        ("tidewheel-run-at", &run_at),
        ("tidewheel-catch-up", "false"),
        ("idempotency-key", "k-1"),
        ("x-team", "ops"),
    ] {
        assert_eq!(hit.header(name), value, "{name}");
    }
    assert!(hit.header("tidewheel-fencing-token").parse::<u64>().unwrap() > 0);
    let done = server.until_state(job["id"].as_str().unwrap(), "succeeded");
    assert_eq!(done["attempt"], 1);
    let attempts = server.get(&format!("/v1/jobs/{}/attempts", job["id"].as_str().unwrap()));
    assert_eq!(attempts["items"][0]["status_code"], 200, "{attempts}");
}

#[test]
fn failures_are_retried_with_the_same_key_and_a_higher_token_until_they_succeed() {
    let (_data, server) = start();
    let target = Target::answering(|hit| match hit.header("tidewheel-attempt") {
        "1" => answer(500, "", "broken"),
        "2" => answer(429, "retry-after: 1\r\n", "slow down"),
        _ => answer(204, "", ""),
    });
    let id = server.submit(&json!({
        "type": "t", "target_url": target.url("/"), "retry": {"policy": "fixed", "base": "10ms", "max_attempts": 5}
    }));
    let hits = target.until_hits(3);
    let job = server.until_state(&id, "succeeded");
    assert_eq!(job["attempt"], 3);
    let tokens: Vec<u64> =
        hits.iter().map(|hit| hit.header("tidewheel-fencing-token").parse().unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert!(hits.iter().all(|hit| hit.header("idempotency-key") == id));
    assert!(hits[2].at_ms - hits[1].at_ms >= 1_000, "Retry-After is honoured");
}

#[test]
fn what_cannot_succeed_is_dead_at_once_and_can_be_edited_and_replayed() {
    let (_data, server) = start();
    let target = Target::answering(|hit| match hit.body.as_slice() {
        br#"{"fixed":true}"# => answer(200, "", "thanks"),
        _ => answer(422, "", "no such customer"),
    });
    let id = server.submit(&json!({"type": "t", "target_url": target.url("/"), "payload": {"fixed": false}}));
    let job = server.until_state(&id, "dead");
    assert!(job["last_error"].to_string().contains("no such customer"), "{job}");
    let letters = server.get("/v1/dead-letters");
    assert_eq!(letters["items"][0]["id"], id.as_str());
    let answer =
        server.request("POST", &format!("/v1/dead-letters/{id}/replay"), r#"{"payload": {"fixed":true}}"#);
    assert_eq!(answer.status, 200, "{}", answer.text());
    server.until_state(&id, "succeeded");
    assert_eq!(server.get("/v1/dead-letters")["items"], json!([]));
}

#[test]
fn attempts_run_out_into_dead_letters_which_can_be_discarded() {
    let (_data, server) = start();
    let target = Target::answering(|_| answer(503, "", "down"));
    let id = server.submit(&json!({
        "type": "t", "target_url": target.url("/"), "retry": {"policy": "fixed", "base": "1ms", "max_attempts": 3}
    }));
    server.until_state(&id, "dead");
    assert_eq!(target.count(), 3);
    assert_eq!(server.request("DELETE", &format!("/v1/dead-letters/{id}"), "").status / 100, 2);
    assert_eq!(server.request("GET", &format!("/v1/jobs/{id}"), "").status, 404);
}

#[test]
fn an_accepted_job_is_kept_alive_by_heartbeats_and_finished_over_the_api() {
    let (_data, server) = start();
    let target = Target::answering(|_| answer(202, "Tidewheel-Lease: 10m\r\n", ""));
    let id = server.submit(&json!({"type": "t", "target_url": target.url("/")}));
    let hit = target.until_hits(1).remove(0);
    let token: u64 = hit.header("tidewheel-fencing-token").parse().unwrap();
    harness::until("the lease to be noted", || {
        let job = server.get(&format!("/v1/jobs/{id}"));
        (job["lease_until"].as_str()? > instant(300_000).as_str()).then_some(())
    });
    let beat = json!({"token": token, "extend": "20m", "progress": {"done": 3}});
    assert_eq!(server.post(&format!("/v1/jobs/{id}/heartbeat"), &beat).status, 200);
    assert_eq!(server.get(&format!("/v1/jobs/{id}"))["progress"], json!({"done": 3}));
    let outcome = |token: u64| json!({"token": token, "status": "succeeded", "result": {"rows": 7}});
    let stale = server.post(&format!("/v1/jobs/{id}/outcome"), &outcome(token - 1));
    assert_eq!((stale.status, stale.json()["code"].clone()), (409, json!("stale_token")));
    assert_eq!(server.post(&format!("/v1/jobs/{id}/outcome"), &outcome(token)).status, 200);
    assert_eq!(server.post(&format!("/v1/jobs/{id}/outcome"), &outcome(token)).status, 200, "the same again");
    assert_eq!(server.get(&format!("/v1/jobs/{id}"))["state"], "succeeded");
}

#[test]
fn workers_pull_over_http_and_a_lost_one_is_replaced() {
    let (_data, server) = start();
    let id = server.submit(&json!({"type": "t", "queue": "mail", "payload": [1], "retry": {"base": "1ms"}}));
    let take = |lease: &str| {
        let wish = json!({"worker": "w1", "max": 10, "wait": "20s", "lease": lease});
        harness::until("a job to be taken", || {
            let answer = server.post("/v1/queues/mail/take", &wish);
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.json()["jobs"].as_array().unwrap().first().cloned()
        })
    };
    let first = take("1s");
    assert_eq!((&first["id"], &first["attempt"], &first["payload"]), (&json!(id), &json!(1), &json!([1])));
    // Nothing is heard of the first worker; the job comes back with a higher token.
    let second = take("10m");
    assert_eq!((&second["id"], &second["attempt"]), (&json!(id), &json!(2)));
    assert!(second["token"].as_u64() > first["token"].as_u64());
    let outcome = |job: &Value| {
        server
            .post(&format!("/v1/jobs/{id}/outcome"), &json!({"token": job["token"], "status": "succeeded"}))
            .status
    };
    assert_eq!(outcome(&first), 409);
    assert_eq!(outcome(&second), 200);
}

#[test]
fn a_hanging_target_is_timed_out_and_holds_up_nobody_else() {
    let (_data, server) = start();
    let hanging = Target::answering(|_| {
        std::thread::park();
        String::new()
    });
    let fine = Target::ok();
    let ids: Vec<String> = (0..300)
        .map(|_| {
            server.submit(
                &json!({"type": "t", "target_url": hanging.url("/"), "timeout": "10m", "max_attempts": 1}),
            )
        })
        .collect();
    let quick = server.submit(&json!({"type": "t", "target_url": fine.url("/")}));
    server.until_state(&quick, "succeeded");
    let short = server.submit(&json!({
        "type": "t", "target_url": Target::answering(|_| { std::thread::park(); String::new() }).url("/"),
        "timeout": "200ms", "max_attempts": 1
    }));
    let dead = server.until_state(&short, "dead");
    assert!(dead["last_error"].to_string().contains("no answer"), "{dead}");
    harness::until("the last to wait for the host's limit", || {
        let explained = server.get(&format!("/v1/jobs/{}/explain", ids[299]));
        (explained["waits_for"] == "host_limit").then_some(())
    });
}

#[test]
fn a_job_can_be_moved_run_now_and_called_off_before_it_starts() {
    let (_data, server) = start();
    let target = Target::ok();
    let submit =
        |delay: &str| server.submit(&json!({"type": "t", "target_url": target.url("/"), "delay": delay}));
    let (moved, hurried) = (submit("1h"), submit("1h"));
    let patch = json!({"run_at": instant(50), "priority": "high"});
    assert_eq!(server.request("PATCH", &format!("/v1/jobs/{moved}"), &patch.to_string()).status, 200);
    assert_eq!(server.post(&format!("/v1/jobs/{hurried}/run"), &json!({})).status, 200);
    // On a busy machine its time may come before it is called off; then another is given more.
    let mut lead_ms = 400;
    let called_off = loop {
        let id = submit(&format!("{lead_ms}ms"));
        let answer = server.post(&format!("/v1/jobs/{id}/cancel"), &json!({}));
        let job = server.get(&format!("/v1/jobs/{id}"));
        if answer.status == 200 && job["state"] == "cancelled" && job["attempt"] == 0 {
            break id;
        }
        lead_ms *= 4;
        assert!(lead_ms < 60_000, "{}: {job}", answer.text());
    };
    server.until_state(&moved, "succeeded");
    server.until_state(&hurried, "succeeded");
    // A job that is due after the cancelled one has run, so the cancelled one would have.
    let later = submit(&format!("{}ms", lead_ms + 200));
    server.until_state(&later, "succeeded");
    assert_eq!(server.get(&format!("/v1/jobs/{called_off}"))["state"], "cancelled");
    let ids: Vec<String> =
        target.hits().iter().map(|hit| hit.header("tidewheel-job-id").to_owned()).collect();
    assert!(!ids.contains(&called_off), "{ids:?}");
}
