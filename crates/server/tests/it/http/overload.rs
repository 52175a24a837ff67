//! A store that does not keep up: the least urgent submissions are refused first, and everything is taken again later.
//! Clients that do not read: what they leave unread is bounded.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tidewheel_server::http::HttpLimits;
use tidewheel_store::Layout;
use tidewheel_store_testkit::memory::{Call, Fault, Faults, MemoryStore};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service as _;

use crate::http::harness::Api;

/// Submissions wait until they are let through.
struct Gate(watch::Receiver<bool>);

impl Faults for Gate {
    fn before(&self, call: Call) -> Fault {
        let mut gate = self.0.clone();
        let opened = async move { drop(gate.wait_for(|is_open| *is_open).await) };
        Fault {
            wait_before: (call == Call::Submit)
                .then(|| -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> { Box::pin(opened) }),
            ..Fault::default()
        }
    }
}

fn job(priority: &str) -> Value {
    json!({"type": "t", "delay": "1h", "priority": priority})
}

/// Sends a batch of so many jobs that the store does not answer for; returns once they count.
async fn send(api: &Api, sent: &mut JoinSet<u16>, count: usize, before: usize) {
    let acme = api.as_tenant("acme");
    sent.spawn(async move {
        let batch = json!(vec![job("critical"); count]);
        acme.post("/v1/jobs/batch", &batch).await.status.as_u16()
    });
    until_under_way(api, before + count).await;
}

async fn until_under_way(api: &Api, count: usize) {
    let wanted = format!("tidewheel_submissions_in_flight {count}\n");
    let counted = async {
        while !api.engine.metrics().render().contains(&wanted) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(300), counted).await.expect("never so many");
}

#[tokio::test]
async fn the_least_urgent_are_refused_first_and_all_are_taken_again() {
    let (open, gate) = watch::channel(false);
    let store = MemoryStore::new(Layout { shards: 4 }).with_faults(Arc::new(Gate(gate)));
    let limits = HttpLimits { submissions_count_max: 100, ..HttpLimits::default() };
    let api = Api::over(Arc::new(store), limits).await;
    let mut sent = JoinSet::new();
    let mut before = 0;
    for (more, refused) in [
        (50, vec!["low"]),
        (20, vec!["low", "normal"]),
        (15, vec!["low", "normal", "high"]),
        (15, vec!["low", "normal", "high", "critical"]),
    ] {
        send(&api, &mut sent, more, before).await;
        before += more;
        for priority in &refused {
            let answer = api.post("/v1/jobs", &job(priority)).await;
            answer.problem(503, "overloaded");
            assert_eq!(answer.header("retry-after"), "1");
            // A batch of one fate is as urgent as its least urgent job.
            let batch = api.post("/v1/jobs/batch", &json!([job("critical"), job(priority)])).await;
            batch.problem(503, "overloaded");
        }
    }
    let text = api.engine.metrics().render();
    for (priority, count) in [("low", 12), ("normal", 9), ("high", 6), ("critical", 3)] {
        assert!(text.contains(&format!("tidewheel_shed_total{{priority=\"{priority}\"}} {count}")), "{text}");
    }
    open.send_replace(true);
    while let Some(status) = sent.join_next().await {
        assert_eq!(status.unwrap(), 201);
    }
    for priority in ["low", "normal", "high", "critical"] {
        api.submit(&job(priority)).await;
    }
    assert!(api.engine.metrics().render().contains("tidewheel_submissions_in_flight 0"));
}

#[tokio::test]
async fn of_a_batch_that_is_answered_for_one_by_one_each_job_is_judged_by_its_own_priority() {
    let (open, gate) = watch::channel(false);
    let store = MemoryStore::new(Layout { shards: 4 }).with_faults(Arc::new(Gate(gate)));
    let limits = HttpLimits { submissions_count_max: 100, ..HttpLimits::default() };
    let api = Api::over(Arc::new(store), limits).await;
    let mut sent = JoinSet::new();
    send(&api, &mut sent, 75, 0).await;
    let wrong = json!({"type": "t", "delay": "soon"});
    let batch = json!([job("low"), job("critical"), wrong, job("normal"), job("high")]);
    let few = api.as_tenant("few");
    let mixed = tokio::spawn(async move { few.post("/v1/jobs/batch?partial=true", &batch).await });
    until_under_way(&api, 77).await;
    let only_low = api.post("/v1/jobs/batch?partial=true", &json!([job("low"), job("normal")])).await;
    only_low.problem(503, "overloaded");
    assert_eq!(only_low.header("retry-after"), "1");
    open.send_replace(true);
    let mixed = mixed.await.unwrap();
    assert_eq!(mixed.status, 201, "{}", mixed.json());
    let answers = mixed.json()["jobs"].clone();
    for (place, code) in [(0, "overloaded"), (2, "invalid_duration"), (3, "overloaded")] {
        assert_eq!(answers[place]["error"]["code"], code, "{answers}");
    }
    let few = api.as_tenant("few");
    for (place, wanted) in [(1, "critical"), (4, "high")] {
        let path = format!("/v1/jobs/{}", answers[place]["id"].as_str().unwrap());
        assert_eq!(few.get(&path).await.json()["priority"], wanted, "{answers}");
    }
    assert_eq!((&mixed.json()["count"], &mixed.json()["refused"]), (&json!(2), &json!(3)));
    while let Some(status) = sent.join_next().await {
        assert_eq!(status.unwrap(), 201);
    }
    assert!(api.engine.metrics().render().contains("tidewheel_submissions_in_flight 0"));
}

/// A page of some 600 KB.
const LARGE: &str = "/v1/jobs?payload=true";

async fn with_a_large_page(limits: HttpLimits) -> Api {
    let api = Api::with_limits(limits).await;
    for _ in 0..10 {
        api.submit(&json!({"type": "t", "delay": "1h", "payload": "x".repeat(60_000)})).await;
    }
    api
}

/// Asks, and reads nothing of the answer but its head.
async fn ask(api: &Api, path: &str) -> Response {
    let request = Request::get(path).body(Body::empty()).unwrap();
    api.app.clone().call(request).await.unwrap()
}

#[tokio::test]
async fn large_answers_are_bounded_together() {
    let limits =
        HttpLimits { answers_bytes_max: 1_024 * 1_024, answer_progress_ms: 600_000, ..HttpLimits::default() };
    let api = with_a_large_page(limits).await;
    let unread = ask(&api, LARGE).await;
    assert_eq!(unread.status(), 200);
    let length = unread.body().size_hint().exact().unwrap();
    assert!((600_000..700_000).contains(&length), "{length}");
    for _ in 0..3 {
        let refused = api.get(LARGE).await;
        refused.problem(503, "overloaded");
        assert_eq!(refused.header("retry-after"), "1");
    }
    // What is small, and what is done, is not held up.
    assert_eq!(api.get("/v1/jobs?payload=true&limit=1").await.status, 200);
    assert_eq!(api.get("/v1/jobs").await.status, 200);
    api.submit(&json!({"type": "t", "delay": "1h"})).await;

    let whole = unread.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(whole.len() as u64, length, "all of it, piece by piece");
    let page: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(page["items"].as_array().unwrap().len(), 10);
    for _ in 0..3 {
        assert_eq!(api.get(LARGE).await.status, 200, "what was read is given back");
    }
    let dropped = ask(&api, LARGE).await;
    api.get(LARGE).await.problem(503, "overloaded");
    drop(dropped);
    assert_eq!(api.get(LARGE).await.status, 200, "and what was dropped");
    assert_eq!(api.call("HEAD", LARGE, &[], "").await.status, 200);
    assert_eq!(api.get(LARGE).await.status, 200);
}

#[tokio::test]
async fn a_large_answer_that_nobody_reads_on_is_given_up() {
    let limits =
        HttpLimits { answers_bytes_max: 1_024 * 1_024, answer_progress_ms: 20, ..HttpLimits::default() };
    let api = with_a_large_page(limits).await;
    // What is read in time comes. A machine that stands still may miss it, and reads another.
    let unread = loop {
        let answer = ask(&api, LARGE).await;
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        if body.frame().await.is_some_and(|frame| frame.is_ok()) {
            break body;
        }
    };
    let free = async {
        while ask(&api, LARGE).await.status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(300), free).await.expect("held for ever");
    let rest = unread.collect().await;
    assert!(rest.is_err(), "it does not pass for a whole answer");
}

#[tokio::test]
async fn pages_are_read_in_turn_and_all_are_answered() {
    let api = with_a_large_page(HttpLimits { pages_count_max: 1, ..HttpLimits::default() }).await;
    let mut asked = JoinSet::new();
    for path in ["/v1/jobs", LARGE, "/v1/schedules", "/v1/dead-letters", "/v1/audit"].repeat(4) {
        let api = api.as_tenant("default");
        asked.spawn(async move { api.get(path).await.status.as_u16() });
    }
    while let Some(status) = asked.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}
