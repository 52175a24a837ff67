//! Counts agree with lists: whatever a list shows, state by state, is what is counted.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::harness::Api;

const STATES: [&str; 9] =
    ["scheduled", "ready", "running", "retrying", "succeeded", "dead", "cancelled", "skipped", "expired"];

/// For what will be so: long enough for any machine, and never waited for.
const PATIENCE: Duration = Duration::from_secs(300);

async fn listed(api: &Api, states: &str) -> usize {
    let page = api.get(&format!("/v1/jobs?limit=1000&state={states}")).await.json();
    assert!(page["next_cursor"].is_null(), "{page}");
    page["items"].as_array().unwrap().len()
}

async fn counted(api: &Api, states: &str) -> Value {
    let answer = api.get(&format!("/v1/jobs/count?state={states}")).await.json();
    assert_eq!(answer["complete"], true, "{answer}");
    answer
}

async fn until_shown(api: &Api, id: &str, state: &str) {
    let shown = async {
        while api.get(&format!("/v1/jobs/{id}")).await.json()["state"] != state {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, shown).await.unwrap_or_else(|_| panic!("{id} is never {state}"));
}

/// Makes a job, takes it, and says what came of it.
async fn attempted(api: &Api, queue: &str, outcome: Option<Value>) -> String {
    let job = json!({"type": "t", "queue": queue, "retry": {"policy": "fixed", "base": "1ms"}});
    let id = api.submit(&job).await;
    let take = json!({"worker": "w1", "max": 1, "wait": "20s", "lease": "10m"});
    let taken = api.post(&format!("/v1/queues/{queue}/take"), &take).await.json()["jobs"][0].clone();
    assert_eq!(taken["id"], *id, "{taken}");
    if let Some(mut outcome) = outcome {
        outcome["token"] = taken["token"].clone();
        assert_eq!(api.post(&format!("/v1/jobs/{id}/outcome"), &outcome).await.status, 200);
    }
    id
}

/// Jobs in all states that a test can bring about, each in a queue that nobody takes from any more.
async fn some_of_each(api: &Api) {
    for _ in 0..3 {
        api.submit(&json!({"type": "t", "delay": "1h"})).await;
    }
    for _ in 0..2 {
        api.submit(&json!({"type": "t", "queue": "nobody"})).await;
    }
    let failed = |after: &str| json!({"status": "failed", "error": "no", "retry_after": after});
    attempted(api, "later", Some(failed("1h"))).await;
    let again = attempted(api, "at-once", Some(failed("0s"))).await;
    until_shown(api, &again, "ready").await;
    attempted(api, "busy", None).await;
    attempted(api, "done", Some(json!({"status": "succeeded"}))).await;
    attempted(api, "bad", Some(json!({"status": "failed", "error": "no", "retryable": false}))).await;
    let called_off = api.submit(&json!({"type": "t", "delay": "1h"})).await;
    api.post(&format!("/v1/jobs/{called_off}/cancel"), &json!({})).await;
}

#[tokio::test]
async fn each_state_counts_what_its_list_shows() {
    let api = Api::new().await;
    some_of_each(&api).await;
    for (state, wanted) in STATES.iter().zip([3, 3, 1, 1, 1, 1, 1, 0, 0]) {
        assert_eq!(listed(&api, state).await, wanted, "{state}");
        let counts = counted(&api, state).await;
        assert_eq!(counts["count"], wanted, "{state}: {counts}");
        assert_eq!((&counts["total"], &counts["counts"]), (&json!(wanted), &json!({*state: wanted})));
    }
    for (index, first) in STATES.iter().enumerate() {
        for second in &STATES[index + 1..] {
            let both = format!("{first},{second}");
            assert_eq!(counted(&api, &both).await["count"], listed(&api, &both).await, "{both}");
        }
    }
    let all = STATES.join(",");
    assert_eq!((counted(&api, &all).await["count"].clone(), listed(&api, &all).await), (json!(11), 11));

    // As they are kept, what is ready is scheduled or retrying.
    let kept = api.get("/v1/jobs/count").await.json();
    assert_eq!((&kept["count"], &kept["complete"]), (&json!(11), &json!(true)));
    assert_eq!((&kept["counts"]["scheduled"], &kept["counts"]["retrying"]), (&json!(5), &json!(2)));
}

#[tokio::test]
async fn what_is_not_seen_any_more_is_not_counted() {
    let api = Api::new().await;
    let acme = api.as_tenant("acme");
    let done = attempted(&acme, "done", Some(json!({"status": "succeeded"}))).await;
    assert_eq!(counted(&acme, "succeeded").await["count"], 1);
    let headers = [("content-type", "application/json")];
    let settings = json!({"limits": {"retention": "1s"}}).to_string();
    assert_eq!(api.call("PUT", "/v1/tenants/acme", &headers, settings).await.status, 200);
    let hidden = async {
        while acme.get(&format!("/v1/jobs/{done}")).await.status != 404 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, hidden).await.expect("it is seen for ever");
    for states in ["succeeded", "succeeded,cancelled", "succeeded,scheduled"] {
        assert_eq!(listed(&acme, states).await, 0, "{states}");
        assert_eq!(counted(&acme, states).await["count"], 0, "{states}");
    }
}
