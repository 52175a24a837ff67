//! Workers that poll a server that stops: told so at once, not answered with nothing.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::http::harness::{Answer, Api};

fn is_told(answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["code"], "draining");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
}

#[tokio::test]
async fn a_worker_that_waits_is_told_at_once_that_the_server_stops_and_so_is_the_next() {
    let api = Arc::new(Api::new().await);
    // A push under way, which nobody ever ends, so that the drain takes its time.
    let push = json!({"type": "t", "target_url": "http://example.com/x"});
    let id = api.submit(&push).await;
    while api.get(&format!("/v1/jobs/{id}")).await.json()["state"] != "running" {
        tokio::task::yield_now().await;
    }
    let take = json!({"worker": "w", "wait": "20s"});
    let waiting = {
        let (api, take) = (Arc::clone(&api), take.clone());
        tokio::spawn(async move { api.post("/v1/queues/q/take", &take).await })
    };
    // It may begin to wait before the drain or not; most times it does.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let engine = api.engine.clone();
    let draining = tokio::spawn(async move { engine.drain(Duration::from_secs(600)).await });
    is_told(&waiting.await.unwrap());
    is_told(&api.post("/v1/queues/q/take", &take).await);
    assert!(!draining.is_finished(), "the push is still under way");
    draining.abort();
}
