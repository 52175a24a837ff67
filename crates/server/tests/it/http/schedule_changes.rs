//! Schedules that are put again by name: what was so before is not held against them.

use serde_json::{Value, json};

use crate::http::harness::{Answer, Api};

async fn put(api: &Api, path: &str, body: &Value) -> Answer {
    api.call("PUT", path, &[("content-type", "application/json")], body.to_string()).await
}

#[tokio::test]
async fn a_beat_that_is_put_again_is_not_held_to_a_limit_that_came_later() {
    let api = Api::new().await;
    let kept = [
        ("cron", json!({"cron_expr": "0 1,6 * * *"})),
        ("interval", json!({"every": "5h"})),
        ("begun", json!({"every": "5h", "start_at": "2026-01-01T00:00:00Z"})),
    ];
    for (name, body) in &kept {
        let made = put(&api, &format!("/v1/schedules/by-name/{name}"), body).await;
        assert_eq!(made.status, 201, "{made:?}");
    }
    let limited = put(&api, "/v1/tenants/default", &json!({"limits": {"min_interval": "10h"}})).await;
    assert_eq!(limited.status, 200, "{limited:?}");
    for (name, body) in &kept {
        let path = format!("/v1/schedules/by-name/{name}");
        let mut other = body.clone();
        other["payload"] = json!({"n": 1});
        let changed = put(&api, &path, &other).await;
        assert_eq!(changed.status, 200, "{name}: {changed:?}");
        let changed = changed.json();
        assert_eq!((&changed["version"], &changed["payload"]), (&json!(2), &other["payload"]), "{name}");
        put(&api, &path, &json!({"every": "6h"})).await.problem(422, "interval_too_short");
    }
}
