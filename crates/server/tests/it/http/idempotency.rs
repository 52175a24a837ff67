//! Idempotency keys of calls that change what is there: sent again, they do nothing a second time.

use std::sync::Arc;

use serde_json::{Value, json};
use tidewheel_store::{Layout, Store};
use tidewheel_store_testkit::memory::MemoryStore;

use crate::http::harness::{ADMIN_KEY, Answer, Api};

async fn keyed(api: &Api, method: &str, path: &str, key: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    api.call(method, path, &[("idempotency-key", key)], body).await
}

/// Takes the one job that is due and reports it done.
async fn work(api: &Api, queue: &str) -> String {
    let taken = api.take_one(queue).await;
    let id = taken["id"].as_str().unwrap().to_owned();
    let outcome = json!({"token": taken["token"], "status": "succeeded"});
    let answer = api.post(&format!("/v1/jobs/{id}/outcome"), &outcome).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    id
}

async fn create(api: &Api, body: &Value) -> String {
    let answer = api.post("/v1/schedules", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_repeated_retry_runs_the_job_no_second_time() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t", "queue": "q"})).await;
    let retry = format!("/v1/jobs/{id}/retry");
    keyed(&api, "POST", &retry, "again", &Value::Null).await.problem(409, "job_not_finished");
    assert_eq!(work(&api, "q").await, id);
    // A refused call has not taken its key.
    assert_eq!(keyed(&api, "POST", &retry, "again", &Value::Null).await.status, 200);
    let while_waiting = keyed(&api, "POST", &retry, "again", &Value::Null).await;
    assert_eq!(while_waiting.status, 200, "{while_waiting:?}");
    assert_eq!(work(&api, "q").await, id);
    for path in [&retry, &format!("/api{retry}")] {
        let again = keyed(&api, "POST", path, "again", &Value::Null).await;
        assert_eq!((again.status.as_u16(), &again.json()["state"]), (200, &json!("succeeded")), "{again:?}");
    }
    let attempts = api.get(&format!("/v1/jobs/{id}/attempts")).await.json();
    assert_eq!(attempts["items"].as_array().unwrap().len(), 2);
    let other = keyed(&api, "POST", &retry, "again", &json!({"delay": "1h"})).await;
    let problem = other.problem(409, "idempotency_conflict");
    assert!(problem["detail"].as_str().unwrap().contains(&id), "{problem}");
    assert_eq!(problem["errors"][0]["pointer"], "/idempotency_key");
}

#[tokio::test]
async fn one_key_is_for_one_call_of_any_kind() {
    let api = Api::new().await;
    let job = json!({"type": "t", "delay": "1h", "idempotency_key": "k"});
    let id = api.submit(&job).await;
    let cancel = format!("/v1/jobs/{id}/cancel");
    keyed(&api, "POST", &cancel, "k", &Value::Null).await.problem(409, "idempotency_conflict");
    api.post(&cancel, &json!({"idempotency_key": "k"})).await.problem(409, "idempotency_conflict");
    assert_eq!(api.get(&format!("/v1/jobs/{id}")).await.json()["state"], "scheduled");
    // The header and the body are two ways to say the same.
    assert_eq!(api.post(&cancel, &json!({"idempotency_key": "c"})).await.json()["state"], "cancelled");
    assert_eq!(keyed(&api, "POST", &cancel, "c", &json!({})).await.status, 200);
    keyed(&api, "POST", &cancel, "c", &json!({"idempotency_key": "d"}))
        .await
        .problem(422, "conflicting_fields");
    keyed(&api, "POST", &format!("/v1/jobs/{id}/retry"), "c", &Value::Null)
        .await
        .problem(409, "idempotency_conflict");
    keyed(&api, "POST", "/v1/jobs", "c", &json!({"type": "t"})).await.problem(409, "idempotency_conflict");
    let every = json!({"every": "1h", "type": "t", "queue": "q"});
    keyed(&api, "POST", "/v1/schedules", "c", &every).await.problem(409, "idempotency_conflict");
    keyed(&api, "POST", "/v1/jobs/cancel", "c", &json!({"ids": [id]}))
        .await
        .problem(409, "idempotency_conflict");
    keyed(&api, "PUT", "/v1/calendars/x", "c", &json!({"dates": []}))
        .await
        .problem(409, "idempotency_conflict");
    // Another tenant's keys are others.
    let other = api.as_tenant("other");
    assert_eq!(keyed(&other, "POST", "/v1/jobs", "c", &json!({"type": "t"})).await.status, 201);
    // A key has a form.
    let long = "x".repeat(256);
    keyed(&api, "POST", &cancel, &long, &Value::Null).await.problem(400, "malformed_request");
    api.post(&cancel, &json!({"idempotency_key": long})).await.problem(422, "invalid_value");
    api.post(&cancel, &json!({"reason": "none"})).await.problem(422, "unknown_field");
}

#[tokio::test]
async fn more_than_one_key_in_the_headers_is_refused() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t", "delay": "1h"})).await;
    let cancel = format!("/v1/jobs/{id}/cancel");
    let job = json!({"type": "t", "delay": "1h"}).to_string();
    let schedule = json!({"type": "t", "every": "1h"}).to_string();
    for (path, body) in [
        ("/v1/jobs", job.clone()),
        ("/v1/jobs/batch", job),
        ("/v1/schedules", schedule.clone()),
        ("/v1/schedules/batch", schedule),
        (cancel.as_str(), String::new()),
    ] {
        for second in ["a", "b"] {
            let headers = [("idempotency-key", "a"), ("idempotency-key", second)];
            let refused = api.call("POST", path, &headers, body.clone()).await;
            let problem = refused.problem(400, "malformed_request");
            assert!(problem["detail"].as_str().unwrap().contains("more than once"), "{path}: {problem}");
        }
    }
    assert_eq!(api.get("/v1/jobs").await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(api.get(&format!("/v1/jobs/{id}")).await.json()["state"], "scheduled");
}

#[tokio::test]
async fn a_waiting_job_is_changed_and_started_once() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t", "queue": "q", "delay": "1h"})).await;
    let path = format!("/v1/jobs/{id}");
    let change = json!({"priority": "high", "delay": "2h"});
    let first = keyed(&api, "PATCH", &path, "change", &change).await.json();
    assert_eq!(api.patch(&path, &json!({"priority": "low"})).await.status, 200);
    // The order of the fields and the blanks between them make no difference.
    let spaced = r#"{ "delay" : "2h", "priority" : "high" }"#;
    let again = api.call("PATCH", &path, &[("idempotency-key", "change")], spaced).await;
    assert_eq!((again.status.as_u16(), &again.json()["priority"]), (200, &json!("low")), "{again:?}");
    assert_eq!(again.json()["run_at"], first["run_at"]);
    let run = format!("{path}/run");
    assert_eq!(keyed(&api, "POST", &run, "run", &Value::Null).await.status, 200);
    assert_eq!(work(&api, "q").await, id);
    assert_eq!(keyed(&api, "POST", &run, "run", &Value::Null).await.json()["state"], "succeeded");
    api.post(&run, &json!({})).await.problem(409, "job_finished");
}

#[tokio::test]
async fn a_call_for_many_acts_on_no_job_twice() {
    let api = Api::new().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(api.submit(&json!({"type": "t", "queue": "q"})).await);
        work(&api, "q").await;
    }
    let body = json!({"ids": &ids[..2]});
    let first = keyed(&api, "POST", "/v1/jobs/retry", "many", &body).await.json();
    assert_eq!((&first["count"], &first["refused"]), (&json!(2), &json!(0)), "{first}");
    for _ in 0..2 {
        work(&api, "q").await;
    }
    let again = keyed(&api, "POST", "/v1/jobs/retry", "many", &body).await.json();
    assert_eq!((&again["count"], &again["refused"]), (&json!(2), &json!(0)), "{again}");
    assert!(again["items"].as_array().unwrap().iter().all(|item| item["state"] == "succeeded"), "{again}");
    keyed(&api, "POST", "/v1/jobs/retry", "many", &json!({"ids": ids}))
        .await
        .problem(409, "idempotency_conflict");
    // The keys of the single jobs are nobody's to send.
    let one = keyed(&api, "POST", &format!("/v1/jobs/{}/retry", ids[0]), "one", &Value::Null).await;
    assert_eq!(one.json()["state"], "ready", "{one:?}");
}

#[tokio::test]
async fn dead_letters_are_replayed_and_discarded_once() {
    let api = Api::new().await;
    let (a, b) = (api.dead_letter(&json!({"type": "t"})).await, api.dead_letter(&json!({"type": "t"})).await);
    let replay = format!("/v1/dead-letters/{a}/replay");
    let changed = json!({"payload": {"fixed": true}});
    assert_eq!(keyed(&api, "POST", &replay, "replay", &changed).await.status, 200);
    assert_eq!(work(&api, "default").await, a);
    assert_eq!(keyed(&api, "POST", &replay, "replay", &changed).await.json()["state"], "succeeded");
    let discard = format!("/v1/dead-letters/{b}");
    keyed(&api, "DELETE", &discard, "replay", &Value::Null).await.problem(409, "idempotency_conflict");
    assert_eq!(keyed(&api, "DELETE", &discard, "discard", &Value::Null).await.status, 204);
    assert_eq!(keyed(&api, "DELETE", &discard, "discard", &Value::Null).await.status, 204);
    keyed(&api, "DELETE", &discard, "anew", &Value::Null).await.problem(404, "job_not_found");
    let c = api.dead_letter(&json!({"type": "t"})).await;
    let many = keyed(&api, "DELETE", "/v1/dead-letters?type=t", "many", &Value::Null).await.json();
    assert_eq!((&many["count"], &many["items"][0]["id"]), (&json!(1), &json!(c)));
    let again = keyed(&api, "DELETE", "/v1/dead-letters?type=t", "many", &Value::Null).await;
    assert_eq!((again.status.as_u16(), &again.json()["count"]), (200, &json!(0)));
    keyed(&api, "DELETE", "/v1/dead-letters?all=true", "many", &Value::Null)
        .await
        .problem(409, "idempotency_conflict");
    // A bulk replay reaches what has died since, and nothing twice.
    let d = api.dead_letter(&json!({"type": "u"})).await;
    let body = json!({"filter": {"type": "u"}});
    let first = keyed(&api, "POST", "/v1/dead-letters/replay", "again", &body).await.json();
    assert_eq!(first["items"][0]["id"], json!(d));
    let taken = api.take_one("default").await;
    let failed = json!({"token": taken["token"], "status": "failed", "error": "no", "retryable": false});
    api.post(&format!("/v1/jobs/{d}/outcome"), &failed).await;
    let again = keyed(&api, "POST", "/v1/dead-letters/replay", "again", &body).await.json();
    assert_eq!((&again["count"], &again["items"][0]["state"]), (&json!(1), &json!("dead")), "{again}");
}

#[tokio::test]
async fn a_repeated_trigger_gives_the_same_job() {
    let api = Api::new().await;
    let id = create(&api, &json!({"every": "1h", "type": "t", "queue": "q"})).await;
    let trigger = format!("/v1/schedules/{id}/trigger");
    let first = keyed(&api, "POST", &trigger, "t", &Value::Null).await;
    assert_eq!(first.status, 201, "{first:?}");
    work(&api, "q").await;
    let again = keyed(&api, "POST", &trigger, "t", &Value::Null).await;
    assert_eq!(again.status, 201, "{again:?}");
    assert_eq!(again.json()["job_id"], first.json()["job_id"]);
    assert_eq!(again.json()["state"], "succeeded");
    assert_eq!(again.header("location"), first.header("location"));
    let anew = keyed(&api, "POST", &trigger, "u", &Value::Null).await.json();
    assert_ne!(anew["job_id"], first.json()["job_id"]);
}

#[tokio::test]
async fn a_repeated_change_of_a_schedule_needs_no_new_version() {
    let api = Api::new().await;
    let id = create(&api, &json!({"every": "1h", "type": "t", "queue": "q"})).await;
    let path = format!("/v1/schedules/{id}");
    let change = json!({"every": "2h", "paused": true}).to_string();
    let headers = [("idempotency-key", "change"), ("if-match", "\"1\"")];
    let first = api.call("PATCH", &path, &headers, change.clone()).await;
    assert_eq!((first.status.as_u16(), &first.json()["state"]), (200, &json!("paused")), "{first:?}");
    let resumed = keyed(&api, "POST", &format!("{path}/resume"), "resume", &Value::Null).await;
    assert_eq!(resumed.json()["state"], "active", "{resumed:?}");
    let again = api.call("PATCH", &path, &headers, change).await;
    assert_eq!((again.status.as_u16(), &again.json()["state"]), (200, &json!("active")), "{again:?}");
    assert_eq!(again.header("etag"), resumed.header("etag"));
    api.call("PATCH", &path, &headers[1..], "{}").await.problem(412, "stale_version");
    keyed(&api, "PATCH", &path, "change", &json!({"every": "3h"})).await.problem(409, "idempotency_conflict");

    let pause = format!("{path}/pause");
    let guarded = [("idempotency-key", "pause"), ("if-match", resumed.header("etag"))];
    assert_eq!(api.call("POST", &pause, &guarded, "").await.status, 200);
    assert_eq!(keyed(&api, "POST", &format!("{path}/resume"), "r2", &Value::Null).await.status, 200);
    let again = api.call("POST", &pause, &guarded, "").await;
    assert_eq!((again.status.as_u16(), &again.json()["state"]), (200, &json!("active")), "{again:?}");

    let tag = again.header("etag").to_owned();
    let guarded = [("idempotency-key", "delete"), ("if-match", tag.as_str())];
    for _ in 0..2 {
        assert_eq!(api.call("DELETE", &path, &guarded, "").await.status, 204);
    }
    keyed(&api, "DELETE", &path, "other", &Value::Null).await.problem(404, "schedule_not_found");
    keyed(&api, "POST", &pause, "pause", &Value::Null).await.problem(404, "schedule_not_found");
}

#[tokio::test]
async fn a_repeated_put_is_answered_as_the_first_was() {
    let api = Api::new().await;
    let path = "/v1/schedules/by-name/report";
    let body = json!({"every": "1h", "type": "t", "queue": "q", "idempotency_key": "own"});
    let new_only = [("idempotency-key", "put"), ("if-none-match", "*")];
    let first = api.call("PUT", path, &new_only, body.to_string()).await;
    assert_eq!(first.status, 201, "{first:?}");
    let id = first.json()["id"].clone();
    // The key in the body is the schedule's, which others may have.
    let changed = json!({"every": "2h", "type": "t", "queue": "q", "idempotency_key": "own"});
    assert_eq!(keyed(&api, "PUT", path, "put-2", &changed).await.status, 200);
    let again = api.call("PUT", path, &new_only, body.to_string()).await;
    assert_eq!((again.status.as_u16(), &again.json()["every"]), (201, &json!("2h")), "{again:?}");
    assert_eq!(
        (again.json()["id"].clone(), again.header("location")),
        (id.clone(), first.header("location"))
    );
    keyed(&api, "PUT", path, "put", &changed).await.problem(409, "idempotency_conflict");
    assert_eq!(keyed(&api, "PUT", path, "put-2", &changed).await.status, 200);
    // The key of a creation is free once what it made is gone.
    assert_eq!(api.delete(&format!("/v1/schedules/{}", id.as_str().unwrap())).await.status, 204);
    let anew = api.call("PUT", path, &new_only, body.to_string()).await;
    assert_eq!(anew.status, 201, "{anew:?}");
    assert_ne!(anew.json()["id"], id);
}

#[tokio::test]
async fn calls_that_are_safe_by_themselves_take_keys_too() {
    let api = Api::new().await;
    let dates = json!({"dates": ["2026-12-25"]});
    for _ in 0..2 {
        let made = keyed(&api, "PUT", "/v1/calendars/x", "put", &dates).await;
        assert_eq!((made.status.as_u16(), &made.json()["dates"]), (201, &dates["dates"]), "{made:?}");
    }
    for _ in 0..2 {
        let changed = keyed(&api, "PUT", "/v1/calendars/x", "change", &dates).await;
        assert_eq!(changed.status, 200, "{changed:?}");
    }
    keyed(&api, "PUT", "/v1/calendars/x", "put", &json!({"dates": []}))
        .await
        .problem(409, "idempotency_conflict");
    for _ in 0..2 {
        assert_eq!(keyed(&api, "DELETE", "/v1/calendars/x", "delete", &Value::Null).await.status, 204);
    }
    keyed(&api, "DELETE", "/v1/calendars/x", "other", &Value::Null).await.problem(404, "calendar_not_found");

    let id =
        create(&api, &json!({"every": "1h", "type": "t", "queue": "q", "start_at": "2026-01-01T00:00:00Z"}))
            .await;
    let backfill = format!("/v1/schedules/{id}/backfill");
    let body = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T02:00:00Z"});
    let first = keyed(&api, "POST", &backfill, "backfill", &body).await.json();
    let again = keyed(&api, "POST", &backfill, "backfill", &body).await.json();
    assert_eq!((&again["count"], &again["duplicates"]), (&json!(0), &first["count"]), "{first} {again}");
    let other = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z"});
    keyed(&api, "POST", &backfill, "backfill", &other).await.problem(409, "idempotency_conflict");

    api.submit(&json!({"type": "t", "queue": "pull"})).await;
    let taken = api.take_one("pull").await;
    let path = format!("/v1/jobs/{}", taken["id"].as_str().unwrap());
    let beat = json!({"token": taken["token"], "idempotency_key": "beat"});
    assert_eq!(api.post(&format!("{path}/heartbeat"), &beat).await.status, 200);
    let outcome = json!({"token": taken["token"], "status": "succeeded", "idempotency_key": "beat"});
    for _ in 0..2 {
        assert_eq!(api.post(&format!("{path}/outcome"), &outcome).await.status, 200);
    }
    let nameless = json!({"token": taken["token"], "status": "succeeded", "idempotency_key": ""});
    api.post(&format!("{path}/outcome"), &nameless).await.problem(422, "invalid_value");
    let take = "/v1/queues/pull/take";
    assert_eq!(api.post(take, &json!({"idempotency_key": "take"})).await.json(), json!({"jobs": []}));
    api.post(take, &json!({"idempotency_key": ""})).await.problem(422, "invalid_value");
    keyed(&api, "POST", take, &"x".repeat(256), &Value::Null).await.problem(400, "malformed_request");
}

#[tokio::test]
async fn a_repeated_change_of_a_tenant_does_not_undo_a_later_one() {
    let api = Api::new().await;
    let settings = "/v1/tenants/acme";
    let new_only = [("idempotency-key", "put"), ("if-match", "\"0\"")];
    let body = json!({"weight": 3}).to_string();
    assert_eq!(api.call("PUT", settings, &new_only, body.clone()).await.status, 200);
    let later = json!({"weight": 5, "idempotency_key": "later"});
    let changed = api.call("PUT", settings, &[], later.to_string()).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    // What it was about as it is by now, whatever version it was for.
    let again = api.call("PUT", settings, &new_only, body).await;
    assert_eq!((again.status.as_u16(), &again.json()["weight"]), (200, &json!(5)), "{again:?}");
    assert_eq!(again.header("etag"), changed.header("etag"));
    for key in ["put", "later"] {
        keyed(&api, "PUT", settings, key, &json!({"weight": 7})).await.problem(409, "idempotency_conflict");
    }
    // A call that was refused leaves its key free.
    let stale = [("idempotency-key", "free"), ("if-match", "\"0\"")];
    api.call("PUT", settings, &stale, "{}").await.problem(412, "stale_version");
    assert_eq!(keyed(&api, "PUT", settings, "free", &json!({"weight": 6})).await.json()["weight"], 6);

    let notifications = "/v1/tenants/acme/notifications";
    let [a, b] = ["https://example.com/a", "https://example.com/b"].map(|url| json!({"url": url}));
    assert_eq!(keyed(&api, "PUT", notifications, "a", &a).await.json()["url"], a["url"]);
    assert_eq!(keyed(&api, "PUT", notifications, "b", &b).await.json()["url"], b["url"]);
    let again = keyed(&api, "PUT", notifications, "a", &a).await;
    assert_eq!((again.status.as_u16(), &again.json()["url"]), (200, &b["url"]), "{again:?}");
    keyed(&api, "PUT", notifications, "a", &b).await.problem(409, "idempotency_conflict");
    assert_eq!(api.get(notifications).await.json()["url"], b["url"]);
}

#[tokio::test]
async fn a_type_that_was_forgotten_is_not_registered_by_a_repeat() {
    let api = Api::new().await;
    let path = "/v1/types/mail";
    let (first, second) = (json!({"note": "first"}), json!({"note": "second"}));
    assert_eq!(keyed(&api, "PUT", path, "new", &first).await.status, 201);
    assert_eq!(keyed(&api, "PUT", path, "change", &second).await.status, 200);
    for (key, body, status) in [("new", &first, 201), ("change", &second, 200)] {
        let again = keyed(&api, "PUT", path, key, body).await;
        assert_eq!((again.status.as_u16(), &again.json()["note"]), (status, &json!("second")), "{again:?}");
    }
    keyed(&api, "PUT", path, "new", &second).await.problem(409, "idempotency_conflict");
    for _ in 0..2 {
        assert_eq!(keyed(&api, "DELETE", path, "delete", &Value::Null).await.status, 204);
    }
    keyed(&api, "DELETE", path, "other", &Value::Null).await.problem(404, "type_not_found");
    keyed(&api, "PUT", path, "new", &first).await.problem(404, "type_not_found");
    api.get(path).await.problem(404, "type_not_found");
    // The deletion is not done again either.
    assert_eq!(keyed(&api, "PUT", path, "anew", &first).await.status, 201);
    assert_eq!(keyed(&api, "DELETE", path, "delete", &Value::Null).await.status, 204);
    assert_eq!(api.get(path).await.status, 200);
}

#[tokio::test]
async fn a_webhook_secret_is_added_once_and_not_again_when_it_was_removed() {
    let api = Api::new().await;
    let path = "/v1/tenants/default/webhook-secrets";
    let count = async || api.get(path).await.json()["items"].as_array().unwrap().len();
    let default = format!("{path}/default");
    // A removal that is refused leaves its key free.
    keyed(&api, "DELETE", &default, "add", &Value::Null).await.problem(409, "webhook_secret_conflict");
    let first = keyed(&api, "POST", path, "add", &Value::Null).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert!(first.json()["secret"].is_string(), "{first:?}");
    let again = keyed(&api, "POST", path, "add", &Value::Null).await;
    assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, &first.json()["id"]), "{again:?}");
    assert_eq!(again.json()["created_at"], first.json()["created_at"]);
    assert!(again.json()["secret"].is_null(), "it is shown once: {again:?}");
    assert_eq!(count().await, 2);
    let given = json!({"secret": format!("whsec_{}", "A".repeat(32))});
    keyed(&api, "POST", path, "add", &given).await.problem(409, "idempotency_conflict");
    assert_eq!(keyed(&api, "POST", path, "given", &given).await.status, 201);
    assert_eq!(keyed(&api, "POST", path, "given", &given).await.status, 200);
    assert_eq!(count().await, 3);

    let one = format!("{path}/{}", first.json()["id"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(keyed(&api, "DELETE", &one, "remove", &Value::Null).await.status, 204);
    }
    keyed(&api, "DELETE", &one, "other", &Value::Null).await.problem(404, "webhook_secret_not_found");
    keyed(&api, "POST", path, "add", &Value::Null).await.problem(404, "webhook_secret_not_found");
    assert_eq!(count().await, 2);
}

#[tokio::test]
async fn a_revoked_key_is_not_made_again_wherever_the_repeat_is_sent() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Layout { shards: 4 }));
    let nodes = [Api::closed(Arc::clone(&store)).await, Api::closed(store).await];
    let bearer = format!("Bearer {ADMIN_KEY}");
    let send = async |node: &Api, method: &str, path: &str, key: &str, body: &str| {
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", key)];
        node.call(method, path, &headers, body.to_owned()).await
    };
    let wanted = json!({"tenant": "acme", "role": "viewer"}).to_string();
    let made = send(&nodes[0], "POST", "/v1/keys", "make", &wanted).await;
    assert_eq!(made.status, 201, "{made:?}");
    for node in &nodes {
        let again = send(node, "POST", "/v1/keys", "make", &wanted).await;
        assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, &made.json()["id"]), "{again:?}");
        assert!(again.json()["secret"].is_null(), "it is shown once: {again:?}");
    }
    let path = format!("/v1/keys/{}", made.json()["id"].as_str().unwrap());
    // The tenant that is named is whose keys are meant.
    let of_acme = nodes.map(|node| node.as_tenant("acme"));
    for node in &of_acme {
        assert_eq!(send(node, "DELETE", &path, "revoke", "").await.status, 204);
    }
    send(&of_acme[0], "DELETE", &path, "other", "").await.problem(404, "key_not_found");
    for node in of_acme.map(|node| node.as_tenant("default")) {
        send(&node, "POST", "/v1/keys", "make", &wanted).await.problem(404, "key_not_found");
    }
}
