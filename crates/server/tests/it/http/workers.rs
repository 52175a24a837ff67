//! Pulling over HTTP, and what becomes of jobs that fail: retries and dead letters.

use std::sync::Arc;

use serde_json::{Value, json};
use tidewheel_core::job::Priority;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_server::engine::{Interest, Subscription, Tenants};
use tidewheel_store::Layout;
use tidewheel_store_testkit::memory::MemoryStore;

use crate::http::harness::{ADMIN_KEY, Api};

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_job_is_taken_kept_alive_and_finished() {
    let api = Api::new().await;
    let id = api
        .submit(&json!({"type": "resize", "queue": "images", "payload": {"n" : 1}, "labels": {"a": "b"}}))
        .await;
    let answer = api
        .post("/v1/queues/images/take", &json!({"worker": "w1", "max": 10, "wait": "20s", "lease": "30s"}))
        .await;
    assert!(
        String::from_utf8_lossy(&answer.body).contains(r#""payload":{"n" : 1}"#)
            || answer.json()["jobs"][0]["payload"] == json!({"n": 1})
    );
    let jobs = answer.json()["jobs"].clone();
    assert_eq!(jobs.as_array().unwrap().len(), 1);
    let job = &jobs[0];
    for field in [
        "id",
        "type",
        "payload",
        "attempt",
        "token",
        "idempotency_key",
        "fire_at",
        "run_at",
        "catch_up",
        "lease_until",
    ] {
        assert!(job.get(field).is_some(), "{field} is missing: {job}");
    }
    assert_eq!(
        (&job["id"], &job["attempt"], &job["catch_up"], &job["idempotency_key"]),
        (&json!(id), &json!(1), &json!(false), &json!(id))
    );
    assert!(job["token"].is_u64());

    let beat = json!({"token": job["token"], "extend": "5m", "progress": {"done": 0.5}});
    let beaten = api.post(&format!("/v1/jobs/{id}/heartbeat"), &beat).await;
    assert_eq!(beaten.status, 200, "{beaten:?}");
    let beaten = beaten.json();
    assert!(time(&beaten["lease_until"]) > time(&job["lease_until"]));
    assert_eq!(
        (&beaten["progress"], &beaten["state"], &beaten["worker"]),
        (&json!({"done": 0.5}), &json!("running"), &json!("w1"))
    );

    // A token as text is the same token; the same outcome again is fine; another is not.
    let token = job["token"].as_u64().unwrap().to_string();
    let outcome = json!({"token": token, "status": "succeeded", "result": {"ok": [1, 2]}});
    for _ in 0..2 {
        let done = api.post(&format!("/v1/jobs/{id}/outcome"), &outcome).await;
        assert_eq!((done.status.as_u16(), &done.json()["state"]), (200, &json!("succeeded")), "{done:?}");
        assert_eq!(done.json()["result"], json!({"ok": [1, 2]}));
    }
    let other = json!({"token": token, "status": "failed", "error": "late"});
    api.post(&format!("/v1/jobs/{id}/outcome"), &other).await.problem(409, "stale_token");
    api.post(&format!("/v1/jobs/{id}/heartbeat"), &beat).await.problem(409, "stale_token");

    let attempts = api.get(&format!("/v1/jobs/{id}/attempts")).await.json();
    assert_eq!(attempts["next_cursor"], Value::Null);
    let attempt = &attempts["items"][0];
    assert_eq!(
        (&attempt["attempt"], &attempt["state"], &attempt["worker"]),
        (&json!(1), &json!("succeeded"), &json!("w1"))
    );
    assert_eq!(attempts["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_empty_queue_answers_empty_and_a_waiter_gets_what_comes() {
    let api = Api::new().await;
    let empty = api.call("POST", "/v1/queues/q/take", &[], "").await;
    assert_eq!((empty.status.as_u16(), empty.json()), (200, json!({"jobs": []})));
    let waiter = api.as_tenant("default");
    let waiting = tokio::spawn(async move { waiter.take_one("q").await });
    let id = api.submit(&json!({"type": "t", "queue": "q"})).await;
    assert_eq!(waiting.await.unwrap()["id"], *id);
    // Another tenant's queue of that name is another queue.
    api.submit(&json!({"type": "t", "queue": "q"})).await;
    assert_eq!(api.as_tenant("acme").post("/v1/queues/q/take", &json!({})).await.json(), json!({"jobs": []}));
}

#[tokio::test]
async fn what_is_ready_is_taken_without_waiting_at_the_first_attempt() {
    let api = Api::new().await;
    for wait in [json!({}), json!({"wait": 0}), json!({"wait": "1ms"})] {
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(api.submit(&json!({"type": "t", "queue": "q", "retry": {"max_attempts": 3}})).await);
        }
        // Each call that does not wait takes what there is.
        for _ in &ids {
            let taken = api.post("/v1/queues/q/take", &wait).await.json()["jobs"].clone();
            let job = &taken.as_array().unwrap()[0];
            assert_eq!(job["attempt"], 1, "{wait}: {job}");
            ids.iter().find(|id| job["id"] == ***id).unwrap();
        }
        assert_eq!(api.post("/v1/queues/q/take", &wait).await.json(), json!({"jobs": []}));
        for id in ids {
            let attempts = api.get(&format!("/v1/jobs/{id}/attempts")).await.json();
            assert_eq!(attempts["items"].as_array().unwrap().len(), 1, "{attempts}");
        }
    }
    let many: Vec<Value> = (0..7).map(|_| json!({"type": "t", "queue": "q"})).collect();
    api.post("/v1/jobs/batch", &json!(many)).await;
    let taken = api.post("/v1/queues/q/take", &json!({"max": 10})).await.json();
    assert_eq!(taken["jobs"].as_array().unwrap().len(), 7);
}

#[tokio::test]
async fn a_failure_is_retried_and_the_old_token_is_stale_then() {
    let api = Api::new().await;
    let id =
        api.submit(&json!({"type": "t", "retry": {"max_attempts": 2, "policy": "fixed", "base": 0}})).await;
    let first = api.take_one("default").await;
    let path = format!("/v1/jobs/{id}/outcome");
    let failed = |token: &Value| json!({"token": token, "status": "failed", "error": "line one\nline two"});
    let answer = api.post(&path, &failed(&first["token"])).await.json();
    assert_eq!(answer["last_error"], "line one\nline two");
    let second = api.take_one("default").await;
    assert_eq!(second["attempt"], 2);
    assert!(second["token"].as_u64() > first["token"].as_u64());
    assert_eq!(second["idempotency_key"], first["idempotency_key"]);
    api.post(&path, &failed(&first["token"])).await.problem(409, "stale_token");
    api.post(&path, &json!({"token": first["token"], "status": "succeeded"}))
        .await
        .problem(409, "stale_token");
    let dead = api.post(&path, &failed(&second["token"])).await.json();
    assert_eq!((&dead["state"], &dead["attempt"]), (&json!("dead"), &json!(2)));
    assert!(dead["reason"].as_str().unwrap().contains("2 attempts"), "{dead}");
}

#[tokio::test]
async fn a_worker_may_snooze_or_give_up() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t", "max_attempts": 1})).await;
    let taken = api.take_one("default").await;
    let before = api.engine.clock().now();
    let snooze = json!({"token": taken["token"], "status": "snoozed", "retry_after": "10m"});
    let snoozed = api.post(&format!("/v1/jobs/{id}/outcome"), &snooze).await.json();
    assert_eq!(snoozed["state"], "retrying", "a snooze costs no attempt");
    assert!(time(&snoozed["run_at"]).since_ms(before) >= 600_000);
    api.post(&format!("/v1/jobs/{id}/run"), &json!({})).await;
    let taken = api.take_one("default").await;
    let gone = json!({"token": taken["token"], "status": "cancelled", "error": "not wanted"});
    assert_eq!(api.post(&format!("/v1/jobs/{id}/outcome"), &gone).await.json()["state"], "cancelled");
}

#[tokio::test]
async fn what_a_cancelled_job_reports_is_refused() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t"})).await;
    let taken = api.take_one("default").await;
    assert_eq!(api.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).await.json()["state"], "cancelled");
    let done = json!({"token": taken["token"], "status": "succeeded"});
    api.post(&format!("/v1/jobs/{id}/outcome"), &done).await.problem(409, "stale_token");
}

#[tokio::test]
async fn what_workers_say_wrong_is_named() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t", "delay": "1h"})).await;
    for (path, body, status, code) in [
        ("/v1/queues/q/take".to_owned(), json!({"max": 0}), 422, "invalid_value"),
        ("/v1/queues/q/take".to_owned(), json!({"max": 1001}), 422, "invalid_value"),
        ("/v1/queues/q/take".to_owned(), json!({"wait": "2m"}), 422, "invalid_value"),
        ("/v1/queues/q/take".to_owned(), json!({"lease": "1ms"}), 422, "invalid_value"),
        ("/v1/queues/q/take".to_owned(), json!({"worker": "a\nb"}), 400, "control_character"),
        ("/v1/queues/q/take".to_owned(), json!({"workr": "w"}), 422, "unknown_field"),
        ("/v1/queues/a%20b/take".to_owned(), json!({}), 422, "invalid_value"),
        (format!("/v1/jobs/{id}/heartbeat"), json!({}), 422, "missing_field"),
        (format!("/v1/jobs/{id}/heartbeat"), json!({"token": "x"}), 422, "invalid_value"),
        (format!("/v1/jobs/{id}/heartbeat"), json!({"token": -1}), 422, "invalid_value"),
        (format!("/v1/jobs/{id}/heartbeat"), json!({"token": 7}), 409, "stale_token"),
        (format!("/v1/jobs/{id}/outcome"), json!({"token": 7}), 422, "missing_field"),
        (format!("/v1/jobs/{id}/outcome"), json!({"token": 7, "status": "done"}), 422, "invalid_value"),
        (format!("/v1/jobs/{id}/outcome"), json!({"token": 7, "status": "failed"}), 409, "stale_token"),
        (
            format!("/v1/jobs/{id}/outcome"),
            json!({"token": 7, "status": "succeeded", "result": "x".repeat(9_000)}),
            413,
            "payload_too_large",
        ),
    ] {
        api.post(&path, &body).await.problem(status, code);
    }
}

#[tokio::test]
async fn a_tenants_key_sees_no_worker_that_serves_others_too() {
    let api = Api::closed(Arc::new(MemoryStore::new(Layout { shards: 4 }))).await.as_tenant("acme");
    let call = async |key: &str, method: &str, path: &str, body: Value| {
        let headers = [("content-type", "application/json"), ("authorization", &*format!("Bearer {key}"))];
        api.call(method, path, &headers, body.to_string()).await.json()
    };
    let only = |names: &[&str]| Tenants::Only(names.iter().map(|name| Tenant::new(name).unwrap()).collect());
    let mut connected = Vec::new();
    for (name, tenants) in [
        ("own", only(&["acme"])),
        ("both", only(&["acme", "globex"])),
        ("every", Tenants::All),
        ("foreign", only(&["globex"])),
    ] {
        let subscription = Subscription {
            tenant: Tenant::default(),
            worker: Arc::from(name),
            queues: vec![Arc::from("q")],
            interest: Interest::new(tenants, Vec::new(), Priority::Low),
            lease_ms: 30_000,
            credits: 1,
            resume: None,
            idle_heartbeat_ms: None,
        };
        connected.push(api.engine.connect_worker(subscription).await.unwrap());
    }
    let names = async |key: &str| {
        let page = call(key, "GET", "/v1/workers?limit=3", Value::Null).await;
        assert_eq!(page["next_cursor"], Value::Null, "{page}");
        let items = page["items"].as_array().unwrap().clone();
        items.iter().map(|worker| worker["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for role in ["viewer", "operator"] {
        let made = call(ADMIN_KEY, "POST", "/v1/keys", json!({"tenant": "acme", "role": role})).await;
        assert_eq!(names(made["secret"].as_str().unwrap()).await, ["own"]);
    }
    assert_eq!(names(ADMIN_KEY).await, ["own", "both", "every"]);
}

#[tokio::test]
async fn dead_letters_are_listed_replayed_changed_and_discarded() {
    let api = Api::new().await;
    let id = api.dead_letter(&json!({"type": "t", "payload": {"a": 1}})).await;
    let listed = api.get("/v1/dead-letters?payload=true").await.json();
    assert_eq!(
        (&listed["items"][0]["id"], &listed["items"][0]["last_error"]),
        (&json!(id), &json!("broken"))
    );
    assert_eq!(listed["items"][0]["payload"], json!({"a": 1}));
    api.get("/v1/dead-letters?state=dead").await.problem(400, "unknown_parameter");

    let path = format!("/v1/dead-letters/{id}/replay");
    api.post(&path, &json!({"target_url": "http://127.0.0.1/"})).await.problem(422, "invalid_target");
    let replayed = api.post(&path, &json!({"payload": null, "target": {"url": "https://example.com/"}, "run_at": "2027-01-01T00:00:00Z"})).await;
    assert_eq!(
        (replayed.status.as_u16(), &replayed.json()["state"]),
        (200, &json!("scheduled")),
        "{replayed:?}"
    );
    let job = api.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(
        (&job["payload"], &job["target"]["url"], &job["run_at"]),
        (&Value::Null, &json!("https://example.com/"), &json!("2027-01-01T00:00:00.000Z"))
    );
    api.post(&path, &json!({})).await.problem(409, "not_a_dead_letter");
    api.delete(&format!("/v1/dead-letters/{id}")).await.problem(409, "not_a_dead_letter");

    let gone = api.dead_letter(&json!({"type": "t"})).await;
    let discarded = api.delete(&format!("/v1/dead-letters/{gone}")).await;
    assert_eq!((discarded.status.as_u16(), discarded.body.len()), (204, 0));
    api.get(&format!("/v1/jobs/{gone}")).await.problem(404, "job_not_found");
    api.delete(&format!("/v1/dead-letters/{gone}")).await.problem(404, "job_not_found");
}

#[tokio::test]
async fn dead_letters_are_replayed_at_a_rate_and_discarded_by_filter() {
    let api = Api::new().await;
    for kind in ["a", "a", "a", "b"] {
        api.dead_letter(&json!({"type": kind})).await;
    }
    let before = api.engine.clock().now();
    let answer =
        api.post("/v1/dead-letters/replay", &json!({"filter": {"type": "a"}, "rate": 0.01})).await.json();
    assert_eq!((&answer["count"], &answer["next_cursor"]), (&json!(3), &Value::Null), "{answer}");
    let mut times: Vec<_> = api.get("/v1/jobs?type=a").await.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| time(&job["run_at"]).as_ms())
        .collect();
    times.sort_unstable();
    assert_eq!((times[1] - times[0], times[2] - times[1]), (100_000, 100_000));
    assert!(times[0] >= before.as_ms());
    api.post("/v1/dead-letters/replay", &json!({"filter": {"state": "cancelled"}}))
        .await
        .problem(422, "invalid_value");
    api.post("/v1/dead-letters/replay", &json!({"filter": {}, "rate": 0}))
        .await
        .problem(422, "invalid_value");

    api.delete("/v1/dead-letters").await.problem(400, "invalid_parameter");
    assert_eq!(api.delete("/v1/dead-letters?type=zzz").await.json()["count"], 0);
    let answer = api.delete("/v1/dead-letters?all=true").await.json();
    assert_eq!((&answer["count"], &answer["refused"]), (&json!(1), &json!(0)));
    assert_eq!(api.get("/v1/dead-letters").await.json()["items"], json!([]));
}

#[tokio::test]
async fn attempts_are_listed_page_by_page_over_all_runs() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t", "queue": "q"})).await;
    let path = format!("/v1/jobs/{id}/attempts");
    // One more is under way than have ended.
    for run in 0..3 {
        let taken = api.take_one("q").await;
        if run < 2 {
            let done = json!({"token": taken["token"], "status": "succeeded"});
            assert_eq!(api.post(&format!("/v1/jobs/{id}/outcome"), &done).await.status, 200);
            assert_eq!(api.post(&format!("/v1/jobs/{id}/retry"), &json!({})).await.status, 200);
        }
    }
    let whole = api.get(&path).await.json();
    assert_eq!(whole["next_cursor"], Value::Null);
    let whole = whole["items"].as_array().unwrap().clone();
    let states: Vec<_> = whole.iter().map(|attempt| attempt["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["succeeded", "succeeded", "running"]);
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("{path}?limit=1{cursor}")).await.json();
        let items = page["items"].as_array().unwrap();
        assert_eq!(items.len(), 1, "{page}");
        pages.extend(items.iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(pages, whole);
    assert_eq!(api.get(&format!("{path}?cursor=3")).await.json()["items"], json!([]));
    api.get(&format!("{path}?cursor=x")).await.problem(400, "invalid_cursor");
    api.get(&format!("{path}?limit=0")).await.problem(400, "invalid_parameter");
    api.get(&format!("{path}?state=running")).await.problem(400, "unknown_parameter");
}
