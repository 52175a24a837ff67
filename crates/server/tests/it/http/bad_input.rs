//! Bad input, hostile input and bad days: the right status, a helpful problem document, nothing lost.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use serde_json::{Value, json};
use tidewheel_core::id::JobId;
use tidewheel_server::http::HttpLimits;
use tidewheel_store::{Error, Health, Layout, Order};
use tidewheel_store_testkit::memory::{Call, Failure, Fault, Faults, MemoryStore};

use crate::http::harness::Api;

const JSON: (&str, &str) = ("content-type", "application/json");

/// A body of which the first part arrives, and then nothing.
struct Stalled(Option<Bytes>);

impl http_body::Body for Stalled {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

async fn count(api: &Api) -> Value {
    api.get("/v1/jobs/count").await.json()["count"].clone()
}

#[tokio::test]
async fn malformed_bodies_are_400_and_well_formed_but_wrong_ones_422() {
    let api = Api::new().await;
    for body in ["", "{", "{\"type\":\"t\",}", "nonsense", "{\"type\":\"t\"}{}", "{'type':'t'}"] {
        api.call("POST", "/v1/jobs", &[JSON], body).await.problem(400, "malformed_json");
    }
    api.call("POST", "/v1/jobs", &[JSON], &b"{\"type\":\"\xff\"}"[..]).await.problem(400, "malformed_json");
    for (body, code, pointer) in [
        (json!([]), "wrong_type", ""),
        (json!({}), "missing_field", "/type"),
        (json!({"type": 5}), "wrong_type", "/type"),
        (json!({"type": "t", "paylod": 1}), "unknown_field", "/paylod"),
        (json!({"type": "t", "run_at": "2126-01-01T00:00:00Z"}), "run_at_out_of_range", "/run_at"),
        (json!({"type": "t", "run_at": "2000-01-01T00:00:00Z"}), "run_at_out_of_range", "/run_at"),
        (json!({"type": "t", "run_at": "2026-12-31T23:59:60Z"}), "invalid_time", "/run_at"),
        (json!({"type": "t", "target_url": "http://169.254.169.254/"}), "invalid_target", "/target_url"),
        (
            json!({"type": "t", "target": {"url": "https://example.com", "headers": {"Host": "x"}}}),
            "invalid_target",
            "/target/headers",
        ),
    ] {
        let problem = api.post("/v1/jobs", &body).await.problem(422, code);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    let unknown = api.post("/v1/jobs", &json!({"type": "t", "runat": 1})).await.problem(422, "unknown_field");
    let detail = unknown["detail"].as_str().unwrap();
    assert!(detail.contains("runat") && detail.contains("`run_at`"), "{detail}");
    let several = api
        .post("/v1/jobs", &json!({"type": "", "delay": "x", "queue": 1}))
        .await
        .problem(422, "invalid_request");
    assert_eq!(several["errors"].as_array().unwrap().len(), 3);
    assert_eq!(count(&api).await, 0);
}

#[tokio::test]
async fn sizes_at_their_limits() {
    let api = Api::new().await;
    let payload = |bytes: usize| {
        format!("{{\"type\":\"t\",\"delay\":\"1h\",\"payload\":\"{}\"}}", "x".repeat(bytes - 2))
    };
    assert_eq!(api.call("POST", "/v1/jobs", &[JSON], payload(65_536)).await.status, 201);
    let problem =
        api.call("POST", "/v1/jobs", &[JSON], payload(65_537)).await.problem(413, "payload_too_large");
    assert!(problem["detail"].as_str().unwrap().contains("65536"));

    let limit = HttpLimits::default().body_bytes_max;
    let padded = |bytes: usize| {
        let job = "{\"type\":\"t\",\"delay\":\"1h\"}";
        format!("{job}{}", " ".repeat(bytes - job.len()))
    };
    assert_eq!(api.call("POST", "/v1/jobs", &[JSON], padded(limit)).await.status, 201);
    api.call("POST", "/v1/jobs", &[JSON], padded(limit + 1)).await.problem(413, "body_too_large");
    // Refused by its declared length alone: of this body nothing can be read.
    let declared = [JSON, ("content-length", "52428800"), ("expect", "100-continue")];
    api.call("POST", "/v1/jobs", &declared, Body::new(Stalled(None))).await.problem(413, "body_too_large");

    let nested = |levels: usize| {
        format!(
            "{{\"type\":\"t\",\"delay\":\"1h\",\"payload\":{}{}}}",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert_eq!(api.call("POST", "/v1/jobs", &[JSON], nested(128)).await.status, 201);
    api.call("POST", "/v1/jobs", &[JSON], nested(129)).await.problem(400, "payload_too_deep");
    let deep = api.call("POST", "/v1/jobs", &[JSON], nested(100_000)).await;
    deep.problem(413, "payload_too_large");
    assert_eq!(count(&api).await, 3);
}

#[tokio::test]
async fn hostile_strings_are_refused_or_kept_as_they_are() {
    let api = Api::new().await;
    for hostile in ["a\r\nX-Evil: y", "a\nb", "a\0b", "\u{1b}[2J", "a\r\n folded"] {
        for body in [
            json!({"type": hostile}),
            json!({"type": "t", "idempotency_key": hostile}),
            json!({"type": "t", "queue": hostile}),
            json!({"type": "t", "labels": {"k": hostile}}),
            json!({"type": "t", "labels": {hostile: "v"}}),
            json!({"type": "t", "target_url": hostile}),
            json!({"type": "t", "target": {"url": "https://example.com/", "headers": {"X": hostile}}}),
            json!({"type": "t", "target": {"url": "https://example.com/", "headers": {hostile: "x"}}}),
        ] {
            let answer = api.post("/v1/jobs", &body).await;
            answer.problem(400, "control_character");
            assert!(!answer.body.contains(&b'\n') && !answer.body.contains(&0x1b), "{answer:?}");
        }
    }
    for kept in [
        "'; select pg_sleep(5)--",
        "%_\\",
        "<img src=x onerror=alert(1)>",
        "\",\"level\":\"error",
        "{{7*7}}",
        "😀é\u{202e}",
    ] {
        let body = json!({"type": "t", "delay": "1h", "payload": kept, "labels": {"l": kept}, "idempotency_key": kept});
        let id = api.submit(&body).await;
        let job = api.get(&format!("/v1/jobs/{id}")).await.json();
        assert_eq!(
            (&job["payload"], &job["labels"]["l"], &job["idempotency_key"]),
            (&json!(kept), &json!(kept), &json!(kept))
        );
    }
    let long = "k".repeat(256);
    api.call("POST", "/v1/jobs", &[("idempotency-key", &long)], "{\"type\":\"t\"}")
        .await
        .problem(400, "malformed_request");
    for tenant in ["", "a b", "../x", "a\tb"] {
        let headers = [("tidewheel-tenant", tenant)];
        let request =
            http::Request::get("/v1/jobs").header(headers[0].0, headers[0].1).body(Body::empty()).unwrap();
        api.send(request).await.problem(400, "invalid_tenant");
    }
}

#[tokio::test]
async fn only_what_is_certainly_not_json_is_refused_for_its_type() {
    let api = Api::new().await;
    let body = "{\"type\":\"t\",\"delay\":\"1h\"}";
    for kind in [
        "application/json",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "application/vnd.x+json",
        "application/octet-stream",
    ] {
        assert_eq!(api.call("POST", "/v1/jobs", &[("content-type", kind)], body).await.status, 201, "{kind}");
    }
    assert_eq!(api.call("POST", "/v1/jobs", &[], body).await.status, 201);
    // What curl says of any body it sends is believed, unless a page in a browser says it.
    let origin = ("origin", "https://elsewhere.example");
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        assert_eq!(api.call("POST", "/v1/jobs", &[("content-type", kind)], body).await.status, 201, "{kind}");
        let from_page = api.call("POST", "/v1/jobs", &[("content-type", kind), origin], body).await;
        from_page.problem(403, "cross_site_request");
        let own = [("content-type", kind), origin, ("host", "elsewhere.example")];
        api.call("POST", "/v1/jobs", &own, body).await.problem(415, "unsupported_media_type");
    }
    for kind in ["multipart/form-data; boundary=x", "text/html", "application/xml"] {
        let answer = api.call("POST", "/v1/jobs", &[("content-type", kind)], body).await;
        answer.problem(415, "unsupported_media_type");
    }
    api.call("POST", "/v1/jobs", &[JSON, ("content-encoding", "gzip")], body)
        .await
        .problem(415, "unsupported_media_type");
    let cross = [JSON, ("sec-fetch-site", "cross-site")];
    api.call("POST", "/v1/jobs", &cross, body).await.problem(403, "cross_site_request");
    assert_eq!(api.call("GET", "/v1/jobs", &cross, "").await.status, 200);
    let neighbour = [JSON, ("sec-fetch-site", "same-site")];
    api.call("POST", "/v1/jobs", &neighbour, body).await.problem(403, "cross_site_request");
}

#[tokio::test]
async fn a_body_that_stalls_is_given_up() {
    let api = Api::with_limits(HttpLimits { body_progress_ms: 20, ..HttpLimits::default() }).await;
    for path in ["/v1/jobs", "/v1/jobs/batch"] {
        let body = Body::new(Stalled(Some(Bytes::from_static(b"[{\"type\""))));
        api.call("POST", path, &[JSON], body).await.problem(408, "request_timeout");
    }
}

/// A store whose next calls fail as told.
#[derive(Default)]
struct Script(Mutex<Vec<(Call, Failure)>>);

impl Script {
    fn next(&self, call: Call, failure: Failure) {
        self.0.lock().unwrap().push((call, failure));
    }
}

impl Faults for Script {
    fn before(&self, call: Call) -> Fault {
        let mut script = self.0.lock().unwrap();
        let failure =
            script.iter().position(|(planned, _)| *planned == call).map(|index| script.remove(index).1);
        Fault { failure, ..Fault::default() }
    }
}

async fn scripted() -> (Api, Arc<Script>) {
    let script = Arc::new(Script::default());
    let store = MemoryStore::new(Layout { shards: 4 }).with_faults(Arc::clone(&script) as Arc<dyn Faults>);
    (Api::over(Arc::new(store), HttpLimits::default()).await, script)
}

#[tokio::test]
async fn a_store_that_fails_is_503_with_a_time_to_come_back() {
    let (api, script) = scripted().await;
    let body = json!({"type": "t", "delay": "1h"});
    for (error, code) in [
        (Error::Unavailable("x".to_owned()), "store_unavailable"),
        (Error::Full("x".to_owned()), "store_full"),
        (Error::Poisoned("x".to_owned()), "store_read_only"),
    ] {
        script.next(Call::Submit, Failure::Before(error.clone()));
        let answer = api.post("/v1/jobs", &body).await;
        answer.problem(503, code);
        assert!(answer.header("retry-after").parse::<u32>().unwrap() > 0);
        script.next(Call::Submit, Failure::Before(error.clone()));
        api.post("/v1/jobs/batch", &json!([body])).await.problem(503, code);
        script.next(Call::List, Failure::Before(error));
        api.get("/v1/jobs").await.problem(503, code);
    }
    script.next(Call::Submit, Failure::Before(Error::Corrupt("secret".to_owned())));
    let problem = api.post("/v1/jobs", &body).await.problem(500, "internal");
    assert!(!problem.to_string().contains("secret"));
    assert_eq!(count(&api).await, 0);
}

#[tokio::test]
async fn a_look_at_a_job_that_cannot_be_read_says_so_by_its_id() {
    let (api, script) = scripted().await;
    let id = api.submit(&json!({"type": "t", "delay": "1h"})).await;
    let path = format!("/v1/jobs/{id}");
    script.next(Call::Get, Failure::Before(Error::Corrupt("secret".to_owned())));
    let problem = api.get(&path).await.problem(500, "internal");
    assert!(problem["detail"].as_str().unwrap().contains(&id), "{problem}");
    assert!(!problem.to_string().contains("secret"));
    assert_eq!(api.get(&path).await.status, 200);
}

/// A store in which one job cannot be read.
#[derive(Default)]
struct Damage(Mutex<String>);

impl Faults for Damage {
    fn before(&self, _: Call) -> Fault {
        Fault::default()
    }

    fn is_unreadable(&self, order: &Order) -> bool {
        self.is_damaged(order.id)
    }

    fn is_damaged(&self, id: JobId) -> bool {
        *self.0.lock().unwrap() == id.to_string()
    }
}

async fn damaged() -> (Api, Arc<Damage>) {
    let damage = Arc::new(Damage::default());
    let store = MemoryStore::new(Layout { shards: 4 }).with_faults(Arc::clone(&damage) as Arc<dyn Faults>);
    (Api::over(Arc::new(store), HttpLimits::default()).await, damage)
}

#[tokio::test]
async fn a_job_that_cannot_be_read_is_a_failure_for_itself_alone() {
    let (api, damage) = damaged().await;
    let body = json!({"type": "t", "delay": "1h"});
    let damaged = api.submit(&body).await;
    damage.0.lock().unwrap().clone_from(&damaged);
    // With a retention of its own, a tenant's jobs are looked at first.
    for limits in [json!({}), json!({"retention": "30d"})] {
        let settings = json!({"limits": limits}).to_string();
        assert_eq!(api.call("PUT", "/v1/tenants/default", &[JSON], settings).await.status, 200);
        let other = api.submit(&body).await;
        api.post(&format!("/v1/jobs/{damaged}/cancel"), &json!({})).await.problem(500, "internal");
        let answer = api.post("/v1/jobs/cancel", &json!({"ids": [damaged, other]})).await.json();
        assert_eq!((&answer["count"], &answer["refused"]), (&json!(1), &json!(1)), "{answer}");
        assert_eq!(answer["items"][0]["error"]["code"], "internal", "{answer}");
        assert_eq!(answer["items"][1]["state"], "cancelled", "{answer}");
    }
}

#[tokio::test]
async fn a_ledger_tells_of_all_jobs_but_the_one_that_cannot_be_read() {
    let (api, damage) = damaged().await;
    let made = api.post("/v1/schedules", &json!({"cron_expr": "* * * * *", "paused": true})).await.json();
    let path = format!("/v1/schedules/{}", made["id"].as_str().unwrap());
    let from = api.engine.clock().now().plus_ms(-600_000).to_string();
    let filled = api.post(&format!("{path}/backfill"), &json!({"from": from})).await;
    assert_eq!(filled.status, 200, "{filled:?}");
    let rows = async || {
        let answer = api.get(&format!("{path}/firings")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let rows = answer.json()["items"].as_array().unwrap().clone();
        rows.into_iter().filter(|row| row["outcome"] == "backfilled").collect::<Vec<_>>()
    };
    let before = rows().await;
    assert!(before.len() > 1 && before.iter().all(|row| row["state"].is_string()), "{before:?}");
    let damaged = before[0]["job_id"].as_str().unwrap();
    damage.0.lock().unwrap().push_str(damaged);
    let after = rows().await;
    assert_eq!(after.len(), before.len());
    for row in after {
        assert_eq!(row["state"].is_null(), row["job_id"] == damaged, "{row}");
    }
}

/// A store that says how it feels.
struct Feeling(Mutex<Health>);

impl Faults for Feeling {
    fn before(&self, _: Call) -> Fault {
        Fault::default()
    }

    fn health(&self) -> Health {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_server_whose_store_takes_nothing_is_not_ready_and_says_why() {
    let feeling = Arc::new(Feeling(Mutex::new(Health::Ready)));
    let store = MemoryStore::new(Layout { shards: 4 }).with_faults(Arc::clone(&feeling) as Arc<dyn Faults>);
    let api = Api::over(Arc::new(store), HttpLimits::default()).await;
    for (health, code) in [
        (Health::Full("3 MiB are left".to_owned()), "store_full"),
        (Health::ReadOnly("3 MiB are left".to_owned()), "store_read_only"),
        (Health::Away("3 MiB are left".to_owned()), "store_unavailable"),
    ] {
        *feeling.0.lock().unwrap() = health;
        let answer = api.get("/readyz").await;
        let problem = answer.problem(503, code);
        assert!(problem["detail"].as_str().unwrap().contains("3 MiB are left"), "{problem}");
        assert!(answer.header("retry-after").parse::<u32>().unwrap() > 0);
        let metrics = api.get("/metrics").await;
        assert!(String::from_utf8_lossy(&metrics.body).contains("tidewheel_store_writable 0"));
        assert_eq!(api.get("/healthz").await.status, 200, "the process is up");
        *feeling.0.lock().unwrap() = Health::Ready;
        assert_eq!(api.get("/readyz").await.json(), json!({"status": "ready"}));
    }
}

#[tokio::test]
async fn a_take_from_a_store_that_is_away_does_not_say_that_there_is_nothing() {
    let feeling = Arc::new(Feeling(Mutex::new(Health::Ready)));
    let store = MemoryStore::new(Layout { shards: 4 }).with_faults(Arc::clone(&feeling) as Arc<dyn Faults>);
    let api = Api::over(Arc::new(store), HttpLimits::default()).await;
    let empty = json!({"jobs": []});
    assert_eq!(api.post("/v1/queues/q/take", &json!({})).await.json(), empty);
    *feeling.0.lock().unwrap() = Health::Away("it is restarted".to_owned());
    let away = api.post("/v1/queues/q/take", &json!({"wait": "10ms"})).await;
    let problem = away.problem(503, "store_unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("it is restarted"), "{problem}");
    assert!(away.header("retry-after").parse::<u32>().unwrap() > 0);
    // What can be had all the same is handed out.
    api.submit(&json!({"type": "t", "queue": "q"})).await;
    assert_eq!(api.take_one("q").await["attempt"], 1);
    *feeling.0.lock().unwrap() = Health::Ready;
    assert_eq!(api.post("/v1/queues/q/take", &json!({})).await.json(), empty);
}

#[tokio::test]
async fn a_lost_answer_and_the_same_key_make_one_job() {
    let (api, script) = scripted().await;
    let body = json!({"type": "t", "delay": "1h", "idempotency_key": "k"});
    script.next(Call::Submit, Failure::After(Error::Unavailable("the line broke".to_owned())));
    api.post("/v1/jobs", &body).await.problem(503, "store_unavailable");
    let again = api.post("/v1/jobs", &body).await;
    assert_eq!((again.status.as_u16(), &again.json()["duplicate"]), (200, &json!(true)));
    assert_eq!(count(&api).await, 1);
}

#[tokio::test]
async fn a_stopping_server_takes_no_new_work_but_answers_and_hears_outcomes() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t"})).await;
    let taken = api.take_one("default").await;
    assert_eq!(api.get("/readyz").await.json(), json!({"status": "ready"}));
    api.engine.drain(Duration::from_millis(10)).await;

    for answer in [
        api.post("/v1/jobs", &json!({"type": "t"})).await,
        api.post("/v1/jobs/batch", &json!([])).await,
        api.post("/v1/queues/default/take", &json!({})).await,
        api.get("/readyz").await,
    ] {
        answer.problem(503, "draining");
        assert!(!answer.header("retry-after").is_empty());
    }
    assert_eq!(api.get("/healthz").await.json(), json!({"status": "ok"}));
    let done = json!({"token": taken["token"], "status": "succeeded"});
    assert_eq!(api.post(&format!("/v1/jobs/{id}/outcome"), &done).await.json()["state"], "succeeded");
}

#[tokio::test]
async fn the_servers_own_pages() {
    let api = Api::new().await;
    let metrics = api.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    assert!(String::from_utf8_lossy(&metrics.body).contains("tidewheel_"));
    let document = api.get("/openapi.json").await;
    assert_eq!(
        (document.header("content-type"), &document.json()["openapi"]),
        ("application/json", &json!("3.1.0"))
    );
    for path in ["/docs", "/docs/errors"] {
        let page = api.get(path).await;
        assert_eq!(page.status, 200);
        assert!(page.header("content-security-policy").contains("default-src 'none'"));
        assert_eq!(page.header("x-content-type-options"), "nosniff");
    }
}
