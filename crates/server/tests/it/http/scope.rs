//! Keys that are limited to types and queues, and types that only some may submit: what they mean for jobs and schedules
//! that are there already.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tidewheel_store::Layout;
use tidewheel_store_testkit::memory::MemoryStore;

use crate::http::harness::{ADMIN_KEY, Answer, Api};

struct Closed {
    api: Api,
}

impl Closed {
    async fn new() -> Self {
        Self { api: Api::closed(Arc::new(MemoryStore::new(Layout { shards: 4 }))).await }
    }

    async fn call(&self, key: &str, method: &str, path: &str, body: &Value) -> Answer {
        let request =
            Request::builder().method(method).uri(path).header("authorization", format!("Bearer {key}"));
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.api.send(request.header("content-type", "application/json").body(body).unwrap()).await
    }

    /// The same as an admin, which must work; the id of what was made.
    async fn make(&self, path: &str, body: &Value) -> String {
        let answer = self.call(ADMIN_KEY, "POST", path, body).await;
        assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    async fn key(&self, wanted: &Value) -> (String, String) {
        let made = self.call(ADMIN_KEY, "POST", "/v1/keys", wanted).await.json();
        (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
    }

    /// A job that was given up.
    async fn dead(&self, job: &Value, queue: &str) -> String {
        let id = self.make("/v1/jobs", job).await;
        let taken = self.take(queue).await;
        let failed = json!({"token": taken["token"], "status": "failed", "error": "no", "retryable": false});
        let answer = self.call(ADMIN_KEY, "POST", &format!("/v1/jobs/{id}/outcome"), &failed).await;
        assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
        id
    }

    async fn take(&self, queue: &str) -> Value {
        let body = json!({"worker": "w", "max": 1, "wait": "40s"});
        let answer = self.call(ADMIN_KEY, "POST", &format!("/v1/queues/{queue}/take"), &body).await;
        answer.json()["jobs"][0].clone()
    }
}

/// What is done with one job, or one schedule, and what it is answered when it may be.
const TO_JOBS: [(&str, &str, &str); 4] = [
    ("PATCH", "", r#"{"priority": "high"}"#),
    ("POST", "/run", ""),
    ("POST", "/cancel", ""),
    ("POST", "/retry", ""),
];
const BACKFILL: &str = r#"{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T02:00:00Z"}"#;
const TO_SCHEDULES: [(&str, &str, &str); 6] = [
    ("PATCH", "", r#"{"note": "mine"}"#),
    ("POST", "/pause", ""),
    ("POST", "/resume", ""),
    ("POST", "/trigger", ""),
    ("POST", "/backfill", BACKFILL),
    ("DELETE", "", ""),
];

fn body(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { serde_json::from_str(text).unwrap() }
}

#[tokio::test]
async fn a_limited_key_acts_on_no_job_or_schedule_beyond_its_lists() {
    let closed = Closed::new().await;
    let limits = json!({"roles": ["operator"], "types": ["mail"], "queues": ["out"]});
    let (_, limited) = closed.key(&limits).await;
    let places = [
        (json!({"type": "mail", "queue": "out"}), true),
        (json!({"type": "report", "queue": "out"}), false),
        (json!({"type": "mail", "queue": "in"}), false),
        (json!({"type": "mail", "target_url": "https://example.com/"}), false),
    ];
    for (place, may) in &places {
        let mut job = place.clone();
        job["delay"] = json!("1h");
        let path = format!("/v1/jobs/{}", closed.make("/v1/jobs", &job).await);
        for (method, verb, text) in TO_JOBS {
            let answer = closed.call(&limited, method, &format!("{path}{verb}"), &body(text)).await;
            assert_eq!(answer.status.as_u16(), if *may { 200 } else { 403 }, "{place} {verb}: {answer:?}");
        }
        let mut schedule = place.clone();
        schedule["every"] = json!("1h");
        let path = format!("/v1/schedules/{}", closed.make("/v1/schedules", &schedule).await);
        for (method, verb, text) in TO_SCHEDULES {
            let answer = closed.call(&limited, method, &format!("{path}{verb}"), &body(text)).await;
            assert_eq!(answer.status.is_success(), *may, "{place} {method} {verb}: {answer:?}");
            assert!(*may || answer.status.as_u16() == 403, "{place} {method} {verb}: {answer:?}");
        }
    }
    // What it may not act on it cannot make its own, nor say how it must look.
    let foreign = closed.make("/v1/schedules", &json!({"type": "report", "every": "1h", "name": "r"})).await;
    let own = json!({"type": "mail", "queue": "out"});
    let path = format!("/v1/schedules/{foreign}");
    closed.call(&limited, "PATCH", &path, &own).await.problem(403, "forbidden");
    let named = json!({"type": "mail", "queue": "out", "every": "1h"});
    closed.call(&limited, "PUT", "/v1/schedules/by-name/r", &named).await.problem(403, "forbidden");
    closed.call(&limited, "PUT", "/v1/types/report", &json!({})).await.problem(403, "forbidden");
    closed.call(&limited, "DELETE", "/v1/types/report", &Value::Null).await.problem(403, "forbidden");
    assert_eq!(closed.call(&limited, "PUT", "/v1/types/mail", &json!({})).await.status.as_u16(), 201);
    let told = json!({"url": "https://example.com/ops"});
    let path = "/v1/tenants/default/notifications";
    closed.call(&limited, "PUT", path, &told).await.problem(403, "forbidden");
    // One that is not there is not there.
    let none = "/v1/jobs/job_00000000000000000000000000/cancel";
    closed.call(&limited, "POST", none, &Value::Null).await.problem(404, "job_not_found");
}

#[tokio::test]
async fn one_order_for_many_leaves_out_what_the_key_is_not_for() {
    let closed = Closed::new().await;
    let (_, limited) = closed.key(&json!({"roles": ["operator"], "types": ["mail"]})).await;
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        own.push(closed.dead(&json!({"type": "mail", "queue": "m"}), "m").await);
        others.push(closed.dead(&json!({"type": "report", "queue": "r"}), "r").await);
    }
    for (method, path) in [
        ("POST", "/v1/dead-letters/replay"),
        ("POST", "/v1/jobs/retry"),
        ("DELETE", "/v1/dead-letters?all=true"),
    ] {
        let request = if method == "DELETE" { Value::Null } else { json!({"filter": {"state": "dead"}}) };
        let request = if path == "/v1/jobs/retry" { json!({"ids": [own[0], others[0]]}) } else { request };
        let answer = closed.call(&limited, method, path, &request).await.json();
        for item in answer["items"].as_array().unwrap() {
            if others.contains(&item["id"].as_str().unwrap().to_owned()) {
                assert_eq!(item["error"]["code"], "forbidden", "{path}: {answer}");
            } else {
                assert_ne!(item["error"]["code"], "forbidden", "{path}: {answer}");
            }
        }
        assert!(answer["refused"].as_u64().unwrap() >= 1, "{path}: {answer}");
    }
    for id in &others {
        let shown = closed.call(ADMIN_KEY, "GET", &format!("/v1/jobs/{id}"), &Value::Null).await.json();
        assert_eq!(shown["state"], "dead");
        closed
            .call(&limited, "DELETE", &format!("/v1/dead-letters/{id}"), &Value::Null)
            .await
            .problem(403, "forbidden");
    }
    for id in &own {
        let shown = closed.call(ADMIN_KEY, "GET", &format!("/v1/jobs/{id}"), &Value::Null).await.json();
        assert_eq!(shown["state"], "ready", "replayed");
    }
}

#[tokio::test]
async fn a_limited_worker_reports_of_no_other_queue_even_with_the_right_token() {
    let closed = Closed::new().await;
    let (_, limited) = closed.key(&json!({"role": "worker", "queues": ["out"]})).await;
    let id = closed.make("/v1/jobs", &json!({"type": "t", "queue": "in"})).await;
    let token = closed.take("in").await["token"].clone();
    for (verb, rest) in [("heartbeat", json!({})), ("outcome", json!({"status": "succeeded"}))] {
        let mut report = rest;
        report["token"] = token.clone();
        let path = format!("/v1/jobs/{id}/{verb}");
        closed.call(&limited, "POST", &path, &report).await.problem(403, "forbidden");
        assert_eq!(closed.call(ADMIN_KEY, "POST", &path, &report).await.status.as_u16(), 200, "{verb}");
    }
}

#[tokio::test]
async fn only_submitters_have_jobs_of_a_type_run() {
    let closed = Closed::new().await;
    let (named, one) = closed.key(&json!({"role": "operator"})).await;
    let (_, two) = closed.key(&json!({"role": "operator"})).await;
    let definition = json!({"submitters": [named]});
    assert_eq!(closed.call(ADMIN_KEY, "PUT", "/v1/types/pay", &definition).await.status.as_u16(), 201);
    let job = json!({"type": "pay", "queue": "q"});
    let (dead, again) = (closed.dead(&job, "q").await, closed.dead(&job, "q").await);
    let waiting = closed.make("/v1/jobs", &json!({"type": "pay", "queue": "w", "delay": "1h"})).await;
    let schedule = closed.make("/v1/schedules", &json!({"type": "pay", "queue": "w", "every": "1h"})).await;
    let calls = [
        (format!("/v1/jobs/{waiting}/run"), Value::Null),
        (format!("/v1/jobs/{again}/retry"), Value::Null),
        (format!("/v1/dead-letters/{dead}/replay"), Value::Null),
        (format!("/v1/schedules/{schedule}/trigger"), Value::Null),
        (format!("/v1/schedules/{schedule}/backfill"), body(BACKFILL)),
    ];
    for (path, request) in &calls {
        closed.call(&two, "POST", path, request).await.problem(403, "forbidden");
    }
    let named = json!({"type": "pay", "queue": "w", "every": "1h", "name": "n"});
    closed.make("/v1/schedules", &named).await;
    let paused = json!({"type": "pay", "queue": "w", "every": "1h", "paused": true});
    let paused = closed.make("/v1/schedules", &paused).await;
    let sooner = json!({"type": "pay", "queue": "w", "every": "1m"});
    let moves = [
        ("PATCH", format!("/v1/jobs/{waiting}"), json!({"run_at": "2030-01-01T00:00:00Z"})),
        ("PATCH", format!("/v1/schedules/{schedule}"), json!({"every": "1m"})),
        ("PATCH", format!("/v1/schedules/{schedule}"), json!({"misfire": "fire_all"})),
        ("PATCH", format!("/v1/schedules/{paused}"), json!({"paused": false})),
        ("PUT", "/v1/schedules/by-name/n".to_owned(), sooner),
        ("POST", format!("/v1/schedules/{paused}/resume"), json!({})),
    ];
    for (method, path, request) in &moves {
        closed.call(&two, method, path, request).await.problem(403, "forbidden");
    }
    // What changes nothing about when they run is no running.
    for (path, request) in [
        (format!("/v1/jobs/{waiting}"), json!({"priority": "low"})),
        (format!("/v1/schedules/{schedule}"), json!({"note": "theirs"})),
        (format!("/v1/schedules/{schedule}"), json!({"paused": false})),
    ] {
        let answer = closed.call(&two, "PATCH", &path, &request).await;
        assert_eq!(answer.status.as_u16(), 200, "{path} {request}: {answer:?}");
    }
    for path in ["/v1/jobs/retry", "/v1/dead-letters/replay"] {
        let answer = closed.call(&two, "POST", path, &json!({"ids": [dead, again]})).await.json();
        assert_eq!((&answer["count"], &answer["refused"]), (&json!(0), &json!(2)), "{answer}");
        assert_eq!(answer["items"][0]["error"]["code"], "forbidden", "{answer}");
    }
    for (path, request) in &calls {
        let answer = closed.call(&one, "POST", path, request).await;
        assert!(answer.status.is_success(), "{path}: {answer:?}");
    }
    let waiting = closed.make("/v1/jobs", &json!({"type": "pay", "queue": "w", "delay": "1h"})).await;
    for (method, path, request) in &moves {
        let path = if path.starts_with("/v1/jobs") { &format!("/v1/jobs/{waiting}") } else { path };
        let answer = closed.call(&one, method, path, request).await;
        assert_eq!(answer.status.as_u16(), 200, "{method} {path}: {answer:?}");
    }
    let waiting = closed.make("/v1/jobs", &json!({"type": "pay", "queue": "w", "delay": "1h"})).await;
    // Stopping is not running.
    for path in [format!("/v1/schedules/{schedule}/pause"), format!("/v1/jobs/{waiting}/cancel")] {
        let answer = closed.call(&two, "POST", &path, &Value::Null).await;
        assert_eq!(answer.status.as_u16(), 200, "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn a_replayed_payload_keeps_to_the_tenants_limit() {
    let closed = Closed::new().await;
    let id = closed.dead(&json!({"type": "t", "queue": "q", "payload": "x".repeat(50)}), "q").await;
    let limits = json!({"limits": {"payload_bytes": 20}});
    assert_eq!(closed.call(ADMIN_KEY, "PUT", "/v1/tenants/default", &limits).await.status.as_u16(), 200);
    let path = format!("/v1/dead-letters/{id}/replay");
    let large = json!({"payload": "y".repeat(19)});
    closed.call(ADMIN_KEY, "POST", &path, &large).await.problem(413, "payload_too_large");
    let small = json!({"payload": "y".repeat(18)});
    assert_eq!(closed.call(ADMIN_KEY, "POST", &path, &small).await.status.as_u16(), 200);
}

/// A body the call understands, so that it is answered for what it names and not for how it is put.
fn understood(method: &str, path: &str) -> Value {
    match (method, path) {
        (_, path) if path.ends_with("/outcome") => json!({"token": 1, "status": "succeeded"}),
        (_, path) if path.ends_with("/heartbeat") => json!({"token": 1}),
        (_, path) if path.ends_with("/backfill") => body(BACKFILL),
        ("patch", path) if path.starts_with("/v1/schedules") => json!({"note": "mine"}),
        ("patch", _) => json!({"priority": "low"}),
        ("post" | "put", _) => json!({}),
        _ => Value::Null,
    }
}

#[tokio::test]
async fn no_route_tells_of_or_touches_what_is_another_tenants() {
    let closed = Closed::new().await;
    let (own_key, acme) = closed.key(&json!({"tenant": "acme", "role": "operator"})).await;
    let (_, globex) = closed.key(&json!({"tenant": "globex", "role": "operator"})).await;
    let made = async |path: &str, body: Value| closed.call(&acme, "POST", path, &body).await.json();
    let job = made("/v1/jobs", json!({"type": "t", "delay": "1h"})).await["id"].clone();
    let schedule =
        made("/v1/schedules", json!({"type": "t", "every": "1h", "name": "n"})).await["id"].clone();
    let secret = made("/v1/tenants/acme/webhook-secrets", json!({})).await["id"].clone();
    for (path, body) in [("/v1/calendars/n", json!({"dates": []})), ("/v1/types/n", json!({}))] {
        assert_eq!(closed.call(&acme, "PUT", path, &body).await.status.as_u16(), 201, "{path}");
    }
    let [job, schedule, secret] = [&job, &schedule, &secret].map(|id| id.as_str().unwrap());
    let document = closed.call(&acme, "GET", "/openapi.json", &Value::Null).await.json();
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            // Names that everybody may give to something of their own, and queues, which are nobody's.
            let is_own = method == "put" && ["{name}", "{type}"].iter().any(|name| path.ends_with(name));
            if !path.contains('{') || path.contains("{queue}") || is_own {
                continue;
            }
            let id = match path.split('/').nth(2) {
                Some("schedules") => schedule,
                Some("tenants") => "acme",
                Some("keys") => &own_key,
                _ => job,
            };
            let named = path.replace("{secret}", secret).replace("{name}", "n").replace("{type}", "n");
            let named = named.replace("{id}", id).replace("{job}", job);
            assert!(!named.contains('{'), "{path}: what does it name?");
            let answer =
                closed.call(&globex, &method.to_uppercase(), &named, &understood(method, path)).await;
            let is_for_admins =
                path.starts_with("/v1/keys") || (path == "/v1/tenants/{id}" && method == "put");
            let wanted = if is_for_admins { 403 } else { 404 };
            assert_eq!(answer.status.as_u16(), wanted, "{method} {path}: {answer:?}");
            assert!(!answer.json().to_string().contains("acme"), "{method} {path}: {answer:?}");
            tried += 1;
        }
    }
    assert!(tried > 30, "only {tried} calls were tried");
    let shown = closed.call(&acme, "GET", &format!("/v1/jobs/{job}"), &Value::Null).await.json();
    assert_eq!((&shown["state"], &shown["priority"]), (&json!("scheduled"), &json!("normal")));
    let shown = closed.call(&acme, "GET", &format!("/v1/schedules/{schedule}"), &Value::Null).await.json();
    assert_eq!((&shown["state"], &shown["note"]), (&json!("active"), &Value::Null));
    // What is looked for by filters is not found either.
    for query in [
        format!("/v1/jobs?schedule={schedule}"),
        "/v1/jobs?type=t".to_owned(),
        "/v1/jobs/count?type=t".to_owned(),
        format!("/v1/audit?object={job}"),
        "/v1/audit?tenant=acme".to_owned(),
    ] {
        let answer = closed.call(&globex, "GET", &query, &Value::Null).await;
        let found = answer.json();
        let is_nothing = found["items"] == json!([]) || found["count"] == 0 || answer.status.as_u16() == 403;
        assert!(is_nothing, "{query}: {found}");
    }
    closed.call(&globex, "GET", "/metrics", &Value::Null).await.problem(403, "forbidden");
}
