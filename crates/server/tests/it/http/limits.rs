//! A tenant's limits when many ask at once, and when the same is asked again.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::http::harness::{Answer, Api};

async fn put(api: &Api, limits: Value) {
    let headers = [("content-type", "application/json")];
    let body = json!({"limits": limits}).to_string();
    let answer = api.call("PUT", "/v1/tenants/default", &headers, body).await;
    assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
}

fn later() -> Value {
    json!({"type": "t", "delay": "1h"})
}

fn keyed(key: &str) -> Value {
    json!({"type": "t", "delay": "1h", "idempotency_key": key})
}

async fn post_keyed(api: &Api, path: &str, key: &str, body: &Value) -> Answer {
    api.call("POST", path, &[("idempotency-key", key)], body.to_string()).await
}

/// Sends so many at once, and returns how many were taken.
async fn storm(api: &Arc<Api>, path: &'static str, body: impl Fn(usize) -> Value, count: usize) -> usize {
    let send = |n| {
        let (api, body) = (Arc::clone(api), body(n));
        tokio::spawn(async move { api.post(path, &body).await.status.as_u16() })
    };
    let calls: Vec<_> = (0..count).map(send).collect();
    let mut taken = 0;
    for call in calls {
        match call.await.unwrap() {
            201 => taken += 1,
            status => assert!([409, 429].contains(&status), "{status}"),
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_exactly_as_many_are_taken_as_may_be() {
    let api = Arc::new(Api::new().await);
    put(&api, json!({"waiting": 50, "schedules": 5})).await;
    assert_eq!(storm(&api, "/v1/jobs", |_| later(), 120).await, 50);
    assert_eq!(api.get("/v1/jobs/count").await.json()["count"], 50);
    // Occurrences of schedules wait too, but nobody has to make room for them.
    assert_eq!(storm(&api, "/v1/schedules", |_| json!({"type": "t", "every": "1h"}), 40).await, 5);
    assert_eq!(api.get("/v1/schedules").await.json()["items"].as_array().unwrap().len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn as_many_as_may_wait_are_all_taken_at_once() {
    let api = Arc::new(Api::new().await);
    put(&api, json!({"waiting": 60})).await;
    assert_eq!(storm(&api, "/v1/jobs", |_| later(), 40).await, 40);
    let pairs = |_| json!([later(), later()]);
    assert_eq!(storm(&api, "/v1/jobs/batch", pairs, 10).await, 10, "those on their way are counted once");
    assert_eq!(storm(&api, "/v1/jobs", |_| later(), 10).await, 0);
}

#[tokio::test]
async fn a_repeat_is_a_repeat_however_little_room_there_is() {
    let api = Api::new().await;
    put(&api, json!({"waiting": 3})).await;
    let first = api.submit(&keyed("k")).await;
    let batch = json!([later(), later()]);
    assert_eq!(post_keyed(&api, "/v1/jobs/batch", "b", &batch).await.status.as_u16(), 201);
    api.post("/v1/jobs", &later()).await.problem(429, "too_many_waiting");
    api.post("/v1/jobs", &keyed("other")).await.problem(429, "too_many_waiting");
    for _ in 0..2 {
        let again = api.post("/v1/jobs", &keyed("k")).await;
        assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, &json!(first)), "{again:?}");
        for path in ["/v1/jobs/batch", "/v1/jobs/batch?partial=true"] {
            let own = json!([keyed("k"), keyed("k")]);
            let again = api.post(path, &own).await;
            assert_eq!(again.json()["jobs"][1], json!({"id": first, "duplicate": true}), "{again:?}");
        }
        let again = post_keyed(&api, "/v1/jobs/batch", "b", &batch).await.json();
        assert!(again["jobs"].as_array().unwrap().iter().all(|job| job["duplicate"] == true), "{again}");
    }
    let mut other = keyed("k");
    other["type"] = json!("other");
    api.post("/v1/jobs", &other).await.problem(409, "idempotency_conflict");
    api.post("/v1/jobs/batch", &json!([keyed("k"), keyed("new")])).await.problem(429, "too_many_waiting");
    assert_eq!(api.get("/v1/jobs/count").await.json()["count"], 3);
    // Nor when the limit is far below what was taken before.
    put(&api, json!({"waiting": 1})).await;
    assert_eq!(post_keyed(&api, "/v1/jobs/batch", "b", &batch).await.status.as_u16(), 201);
}

#[tokio::test]
async fn repeats_and_what_is_not_there_cost_nothing_of_the_rate() {
    let api = Api::new().await;
    let made = api.post("/v1/schedules", &json!({"type": "t", "cron_expr": "0 0 1 1 *"})).await.json();
    let path = format!("/v1/schedules/{}", made["id"].as_str().unwrap());
    // So slow that what is left is what was not charged.
    put(&api, json!({"submit_rate": 1, "submit_burst": 4})).await;
    let first = api.submit(&keyed("k")).await;
    let trigger =
        async |path: &str, key: &str| post_keyed(&api, &format!("{path}/trigger"), key, &json!({})).await;
    let triggered = trigger(&path, "t").await;
    assert_eq!(triggered.status.as_u16(), 201, "{triggered:?}");
    for _ in 0..20 {
        let again = api.post("/v1/jobs", &keyed("k")).await;
        assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, &json!(first)), "{again:?}");
        let again = trigger(&path, "t").await;
        assert_eq!(again.json()["job_id"], triggered.json()["job_id"], "{again:?}");
        trigger("/v1/schedules/sch_00000000000000000000000000000000", "n")
            .await
            .problem(404, "schedule_not_found");
    }
    assert_eq!(
        post_keyed(&api, "/v1/jobs/batch", "b", &json!([later(), later()])).await.status.as_u16(),
        201
    );
}

#[tokio::test]
async fn a_repeated_schedule_needs_no_room() {
    let api = Api::new().await;
    put(&api, json!({"schedules": 2})).await;
    let beat = |key: &str| json!({"type": "t", "every": "1h", "idempotency_key": key});
    let first = api.post("/v1/schedules", &beat("k")).await.json()["id"].clone();
    let flat =
        json!({"schedule_type": "CRON", "job_name": "n", "job_type": "t", "cron_expression": "@daily"});
    let made = post_keyed(&api, "/v1/jobs", "f", &flat).await;
    assert_eq!(made.status.as_u16(), 201, "{made:?}");
    api.post("/v1/schedules", &beat("other")).await.problem(409, "limit_reached");
    let again = api.post("/v1/schedules", &beat("k")).await;
    assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, &first), "{again:?}");
    let again = post_keyed(&api, "/v1/jobs", "f", &flat).await;
    assert_eq!((again.status.as_u16(), &again.json()["job_id"]), (200, &made.json()["job_id"]), "{again:?}");
    let mixed = json!([beat("k"), beat("new")]);
    let refused = api.post("/v1/schedules/batch", &mixed).await.problem(409, "limit_reached");
    assert_eq!(refused["errors"][0]["pointer"], "/1", "{refused}");
    let each = api.post("/v1/schedules/batch?partial=true", &mixed).await.json();
    assert_eq!(each["schedules"][0], json!({"id": first, "duplicate": true}), "{each}");
    assert_eq!(each["schedules"][1]["error"]["code"], "limit_reached", "{each}");
}

#[tokio::test]
async fn a_batch_without_room_for_all_is_told_how_many_were_asked_for() {
    let api = Api::new().await;
    put(&api, json!({"schedules": 4})).await;
    let beats = |count: usize| Value::from(vec![json!({"type": "t", "every": "1h"}); count]);
    assert_eq!(api.post("/v1/schedules/batch", &beats(3)).await.status.as_u16(), 201);
    let whole = api.post("/v1/schedules/batch", &beats(3)).await.problem(409, "limit_reached");
    let told = "the tenant has 3 schedules, asks for 3 more, and may have 4";
    assert_eq!(whole["errors"][0]["detail"], told, "{whole}");
    let each = api.post("/v1/schedules/batch?partial=true", &beats(3)).await.json();
    assert_eq!((&each["count"], &each["refused"]), (&json!(1), &json!(2)), "{each}");
    assert_eq!(each["schedules"][2]["error"]["detail"], told, "{each}");
    let one =
        api.post("/v1/schedules", &json!({"type": "t", "every": "1h"})).await.problem(409, "limit_reached");
    assert!(one["detail"].as_str().unwrap().contains("has 4 schedules, and may have 4"), "{one}");
}
