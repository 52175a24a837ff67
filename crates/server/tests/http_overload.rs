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
    let wanted = format!("tidewheel_submissions_in_flight {}", before + count);
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
            // A batch is as urgent as its least urgent job.
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
