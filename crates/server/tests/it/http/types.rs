//! Job types: what is registered for them, and what it does to what is submitted, whichever way it comes.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tidewheel_core::limits::TENANT_TYPES_COUNT_MAX;
use tidewheel_server::http::HttpLimits;
use tidewheel_store::{Layout, Store};
use tidewheel_store_testkit::memory::MemoryStore;

use crate::http::harness::{ADMIN_KEY, Answer, Api};

const JSON: (&str, &str) = ("content-type", "application/json");

async fn put(api: &Api, name: &str, definition: &Value) -> Answer {
    api.call("PUT", &format!("/v1/types/{name}"), &[JSON], definition.to_string()).await
}

/// Payloads with a text `to`.
fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["to"],
        "properties": {"to": {"type": "string"}, "cc": {"type": "array", "items": {"type": "string"}}},
    })
}

async fn with_mail() -> Api {
    let api = Api::new().await;
    let answer = put(&api, "mail", &json!({ "schema": schema() })).await;
    assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
    api
}

fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"].as_array().unwrap().iter().map(|fault| fault["pointer"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn types_are_kept_versioned_listed_and_forgotten() {
    let api = Api::new().await;
    api.get("/v1/types/mail").await.problem(404, "type_not_found");
    assert_eq!(api.get("/v1/types").await.json(), json!({"items": [], "next_cursor": null}));
    let whole = json!({"schema": schema(), "submitters": ["key_0123456789abcdef", "operator"], "note": "for people",
        "defaults": {"queue": "mail", "priority": "high", "timeout": "5s", "max_attempts": 3}});
    let made = put(&api, "mail", &whole).await;
    assert_eq!(made.status.as_u16(), 201, "{made:?}");
    let shown = api.get("/v1/types/mail").await;
    assert_eq!(shown.json(), made.json());
    assert_eq!(shown.header("etag"), made.header("etag"));
    let shown = shown.json();
    assert_eq!(
        (&shown["type"], &shown["schema"], &shown["note"]),
        (&json!("mail"), &schema(), &whole["note"])
    );
    assert_eq!(shown["defaults"]["retry"]["max_attempts"], 3);

    // What is shown can be sent back, and only by whoever has read the newest.
    let tag = made.header("etag").to_owned();
    let again = api.call("PUT", "/v1/types/mail", &[JSON, ("if-match", &tag)], shown.to_string()).await;
    assert_eq!(again.status.as_u16(), 200, "{again:?}");
    assert_eq!(again.json(), shown);
    assert_ne!(again.header("etag"), tag);
    let stale = api.call("PUT", "/v1/types/mail", &[JSON, ("if-match", &tag)], "{}").await;
    stale.problem(412, "stale_version");
    api.call("DELETE", "/v1/types/mail", &[("if-match", &tag)], "").await.problem(412, "stale_version");
    api.call("PUT", "/v1/types/mail", &[JSON, ("if-none-match", "*")], "{}")
        .await
        .problem(412, "stale_version");
    api.call("PUT", "/v1/types/new", &[JSON, ("if-match", "*")], "{}").await.problem(412, "stale_version");

    put(&api, "a", &json!({})).await;
    let page = api.get("/v1/types?limit=1").await.json();
    assert_eq!(page["items"][0]["type"], "a");
    let next = page["next_cursor"].as_str().unwrap();
    let page = api.get(&format!("/v1/types?limit=1&cursor={next}")).await.json();
    assert_eq!((&page["items"][0]["type"], &page["next_cursor"]), (&json!("mail"), &Value::Null));
    assert_eq!(api.as_tenant("acme").get("/v1/types").await.json()["items"], json!([]), "another's");

    assert_eq!(api.delete("/v1/types/mail").await.status.as_u16(), 204);
    api.delete("/v1/types/mail").await.problem(404, "type_not_found");
    put(&api, "mail", &json!({"type": "other"})).await.problem(422, "invalid_value");
    put(&api, &"t".repeat(129), &json!({})).await.problem(422, "invalid_value");
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_is_refused_where_it_is_wrong() {
    let api = Api::new().await;
    let wrong = put(&api, "t", &json!({"schema": {"properties": {"a": {"type": "text"}}}})).await;
    let problem = wrong.problem(422, "invalid_schema");
    assert_eq!(pointers(&problem), ["/schema/properties/a/type"]);
    let remote = put(&api, "t", &json!({"schema": {"items": {"$ref": "http://169.254.169.254/"}}})).await;
    let problem = remote.problem(422, "invalid_schema");
    assert_eq!(pointers(&problem), ["/schema/items/$ref"]);
    put(&api, "t", &json!({"schema": {"$ref": "#"}})).await.problem(422, "invalid_schema");
    let metadata = json!({"defaults": {"target_url": "http://169.254.169.254/"}});
    put(&api, "t", &metadata).await.problem(422, "invalid_target");
    api.get("/v1/types/t").await.problem(404, "type_not_found");
}

#[tokio::test]
async fn payloads_are_checked_at_every_door() {
    let api = with_mail().await;
    let good = json!({"type": "mail", "payload": {"to": "a"}, "delay": "1h"});
    let bad = json!({"type": "mail", "payload": {"to": 1, "cc": ["x", 2]}, "delay": "1h"});
    let other = json!({"type": "free", "payload": {"to": 1}, "delay": "1h"});
    api.submit(&good).await;
    api.submit(&other).await;
    let problem = api.post("/v1/jobs", &bad).await.problem(422, "invalid_payload");
    let told = pointers(&problem);
    assert!(told.len() == 2 && told.contains(&"/payload/to") && told.contains(&"/payload/cc/1"), "{told:?}");
    // A payload that is left out is `null`.
    let none = api.post("/v1/jobs", &json!({"type": "mail"})).await.problem(422, "invalid_payload");
    assert_eq!(pointers(&none), ["/payload"]);

    let batch = json!([good, bad]);
    let problem = api.post("/v1/jobs/batch", &batch).await.problem(422, "invalid_payload");
    assert!(pointers(&problem).contains(&"/1/payload/to"), "{problem}");
    let partial = api.post("/v1/jobs/batch?partial=true", &batch).await.json();
    assert_eq!((&partial["count"], &partial["refused"]), (&json!(1), &json!(1)));
    assert_eq!(partial["jobs"][1]["error"]["code"], "invalid_payload");

    for when in [
        json!({"schedule_type": "ONCE", "run_at": "2030-01-01T00:00:00Z"}),
        json!({"schedule_type": "CRON", "cron_expression": "0 9 * * *"}),
    ] {
        let mut flat = json!({"tenant_id": "default", "job_name": "n", "job_type": "mail", "payload": {}});
        flat.as_object_mut().unwrap().extend(when.as_object().unwrap().clone());
        api.post("/v1/jobs", &flat).await.problem(422, "invalid_payload");
        flat["payload"] = json!({"to": "a"});
        assert_eq!(api.post("/v1/jobs", &flat).await.status.as_u16(), 201);
    }
    assert_eq!(api.get("/v1/jobs/count?type=mail").await.status.as_u16(), 200);
}

#[tokio::test]
async fn schedules_are_checked_when_they_are_made_and_when_their_job_changes() {
    let api = with_mail().await;
    let of = |payload: Value| json!({"cron_expr": "0 9 * * *", "type": "mail", "payload": payload});
    api.post("/v1/schedules", &of(json!({}))).await.problem(422, "invalid_payload");
    let batch = json!([of(json!({"to": "a"})), of(json!({}))]);
    let problem = api.post("/v1/schedules/batch", &batch).await.problem(422, "invalid_payload");
    assert_eq!(pointers(&problem), ["/1/payload"]);
    let put_named = |body: Value| {
        let api = api.as_tenant("default");
        async move { api.call("PUT", "/v1/schedules/by-name/n", &[JSON], body.to_string()).await }
    };
    put_named(of(json!({"to": 5}))).await.problem(422, "invalid_payload");
    let made = put_named(of(json!({"to": "a"}))).await;
    assert_eq!(made.status.as_u16(), 201, "{made:?}");
    let path = format!("/v1/schedules/{}", made.json()["id"].as_str().unwrap());
    api.patch(&path, &json!({"payload": {}})).await.problem(422, "invalid_payload");

    // A stricter schema is not held against what it does not concern.
    put(&api, "mail", &json!({"schema": {"maxProperties": 0}})).await;
    let answer = api.patch(&path, &json!({"note": "still there"})).await;
    assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
    api.patch(&path, &json!({"payload": {"to": "b"}})).await.problem(422, "invalid_payload");
}

#[tokio::test]
async fn a_dead_letter_is_replayed_with_a_payload_its_type_allows() {
    let api = with_mail().await;
    let id = api.dead_letter(&json!({"type": "mail", "payload": {"to": "a"}})).await;
    let path = format!("/v1/dead-letters/{id}/replay");
    api.post(&path, &json!({"payload": {}})).await.problem(422, "invalid_payload");
    assert_eq!(api.post(&path, &json!({"payload": {"to": "b"}})).await.status.as_u16(), 200);
}

#[tokio::test]
async fn defaults_stand_in_for_what_is_left_out() {
    let api = Api::new().await;
    let defaults = json!({"queue": "mail", "priority": "high", "timeout": "7s",
        "retry": {"max_attempts": 9, "policy": "fixed", "base": "3s"}});
    put(&api, "mail", &json!({ "defaults": defaults })).await;
    let shown = |id: String| {
        let api = api.as_tenant("default");
        async move { api.get(&format!("/v1/jobs/{id}")).await.json() }
    };
    let plain = shown(api.submit(&json!({"type": "mail", "delay": "1h"})).await).await;
    assert_eq!(
        (&plain["queue"], &plain["priority"], &plain["timeout"]),
        (&json!("mail"), &json!("high"), &json!("7s"))
    );
    assert_eq!((&plain["retry"]["max_attempts"], &plain["retry"]["policy"]), (&json!(9), &json!("fixed")));
    let said = json!({"type": "mail", "delay": "1h", "queue": "own", "priority": "low", "timeout": "1s", "max_attempts": 2});
    let said = shown(api.submit(&said).await).await;
    assert_eq!(
        (&said["queue"], &said["priority"], &said["timeout"]),
        (&json!("own"), &json!("low"), &json!("1s"))
    );
    assert_eq!(
        (&said["retry"]["max_attempts"], &said["retry"]["base"]),
        (&json!(2), &json!("3s")),
        "the rest of the policy"
    );
    let whole = json!({"type": "mail", "delay": "1h", "retry": {"max_attempts": 2}});
    assert_eq!(shown(api.submit(&whole).await).await["retry"]["policy"], "exponential_jitter");
    let other = shown(api.submit(&json!({"type": "other", "delay": "1h"})).await).await;
    assert_eq!((&other["queue"], &other["priority"]), (&json!("default"), &json!("normal")));

    let schedule = json!({"cron_expr": "0 9 * * *", "type": "mail"});
    let made = api.post("/v1/schedules", &schedule).await.json();
    assert_eq!((&made["queue"], &made["timeout"]), (&json!("mail"), &json!("7s")));
    let path = format!("/v1/schedules/{}", made["id"].as_str().unwrap());
    assert_eq!(api.patch(&path, &json!({"priority": null})).await.json()["priority"], "normal");

    let target = json!({"defaults": {"target": {"url": "https://example.com/hook", "timeout": "4s"}}});
    put(&api, "push", &target).await;
    let pushed = shown(api.submit(&json!({"type": "push", "delay": "1h"})).await).await;
    assert_eq!(
        (&pushed["target"]["url"], &pushed["timeout"]),
        (&json!("https://example.com/hook"), &json!("4s"))
    );
}

#[tokio::test]
async fn the_same_request_is_the_same_after_defaults_have_changed() {
    let api = Api::new().await;
    let job = json!({"type": "mail", "delay": "1h", "idempotency_key": "k"});
    let schedule = json!({"cron_expr": "0 9 * * *", "type": "mail", "idempotency_key": "s"});
    put(&api, "mail", &json!({"defaults": {"queue": "a", "max_attempts": 3}})).await;
    let first = (api.post("/v1/jobs", &job).await.json(), api.post("/v1/schedules", &schedule).await.json());
    put(&api, "mail", &json!({"defaults": {"queue": "b", "priority": "low", "timeout": "1s"}})).await;
    let again = (api.post("/v1/jobs", &job).await.json(), api.post("/v1/schedules", &schedule).await.json());
    assert_eq!((&again.0["id"], &again.0["duplicate"]), (&first.0["id"], &json!(true)));
    assert_eq!((&again.1["id"], &again.1["duplicate"]), (&first.1["id"], &json!(true)));
    let said = json!({"type": "mail", "delay": "1h", "idempotency_key": "k", "queue": "b"});
    api.post("/v1/jobs", &said).await.problem(409, "idempotency_conflict");
}

#[tokio::test]
async fn only_submitters_submit_and_only_operators_register() {
    let api = Api::closed(Arc::new(MemoryStore::new(Layout { shards: 4 }))).await;
    let call = |key: String, method: &'static str, path: &'static str, body: Value| {
        let api = api.as_tenant("default");
        async move {
            let request =
                Request::builder().method(method).uri(path).header("authorization", format!("Bearer {key}"));
            let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
            api.send(request.header("content-type", "application/json").body(body).unwrap()).await
        }
    };
    let mut keys = Vec::new();
    for role in ["producer", "producer", "operator"] {
        let made = call(ADMIN_KEY.to_owned(), "POST", "/v1/keys", json!({ "role": role })).await.json();
        keys.push((made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned()));
    }
    let [(named, one), (_, two), (_, operator)] = keys.try_into().unwrap();
    let definition = json!({"submitters": [named, "operator"], "schema": {"type": "object"}});
    call(one.clone(), "PUT", "/v1/types/pay", definition.clone()).await.problem(403, "forbidden");
    assert_eq!(call(operator.clone(), "PUT", "/v1/types/pay", definition).await.status.as_u16(), 201);
    assert_eq!(call(two.clone(), "GET", "/v1/types/pay", Value::Null).await.status.as_u16(), 200);
    call(two.clone(), "DELETE", "/v1/types/pay", Value::Null).await.problem(403, "forbidden");

    let job = json!({"type": "pay", "delay": "1h", "payload": {}});
    let schedule = json!({"type": "pay", "cron_expr": "0 9 * * *", "payload": {}});
    for key in [one, operator, ADMIN_KEY.to_owned()] {
        assert_eq!(call(key.clone(), "POST", "/v1/jobs", job.clone()).await.status.as_u16(), 201);
        assert_eq!(call(key, "POST", "/v1/schedules", schedule.clone()).await.status.as_u16(), 201);
    }
    let refused = call(two.clone(), "POST", "/v1/jobs", json!({"type": "pay", "payload": 5})).await;
    assert_eq!(pointers(&refused.problem(403, "forbidden")), ["/type"], "not a word of the payload");
    call(two.clone(), "POST", "/v1/jobs/batch", json!([job])).await.problem(403, "forbidden");
    call(two.clone(), "POST", "/v1/schedules", schedule).await.problem(403, "forbidden");
    assert_eq!(call(two, "POST", "/v1/jobs", json!({"type": "free"})).await.status.as_u16(), 201);
}

#[tokio::test]
async fn what_one_node_registers_another_goes_by() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Layout { shards: 4 }));
    let api = Api::over(Arc::clone(&store), HttpLimits::default()).await;
    put(&api, "mail", &json!({ "schema": schema() })).await;
    let restarted = Api::over(store, HttpLimits::default()).await;
    restarted.post("/v1/jobs", &json!({"type": "mail"})).await.problem(422, "invalid_payload");
}

#[tokio::test]
async fn a_tenant_registers_as_many_types_as_it_may() {
    let api = Api::new().await;
    for index in 0..TENANT_TYPES_COUNT_MAX {
        assert_eq!(put(&api, &format!("t{index}"), &json!({})).await.status.as_u16(), 201);
    }
    put(&api, "one-more", &json!({})).await.problem(409, "limit_reached");
    assert_eq!(put(&api, "t0", &json!({})).await.status.as_u16(), 200, "what is there can be changed");
    assert_eq!(put(&api.as_tenant("acme"), "t", &json!({})).await.status.as_u16(), 201);
}
