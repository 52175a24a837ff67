//! A store that does not keep up: the least urgent submissions are refused first, and everything is taken again later.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod http_harness;

use std::sync::Arc;

use serde_json::{Value, json};
use tidewheel_server::http::HttpLimits;
use tidewheel_store::Layout;
use tidewheel_store::memory::{Call, Fault, Faults, MemoryStore};
use tokio::sync::watch;
use tokio::task::JoinSet;

use http_harness::Api;

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
    tokio::time::timeout(std::time::Duration::from_secs(60), counted).await.expect("never so many");
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
