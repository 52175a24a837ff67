//! Requests that are sent again under their keys when their time is over: they are repeats all the same.

use std::time::Duration;

use serde_json::{Value, json};
use tidewheel_server::access::Access;
use tidewheel_server::http::{HttpLimits, HttpParts, router};
use tidewheel_server::push::AddressPolicy;
use tidewheel_server::testing::TestServer;

use crate::http::harness::{Answer, Api};

const MINUTE: Duration = Duration::from_secs(60);

/// A server whose clock is turned by hand, and its API.
async fn server() -> (TestServer, Api) {
    let server = TestServer::start().await.unwrap();
    let engine = server.engine().clone();
    let access = Access::open_to_all(&engine).await.unwrap();
    let (targets, limits) = (AddressPolicy::public_only(), HttpLimits::default());
    let app = router(HttpParts { engine: engine.clone(), targets, limits, access });
    (server, Api { app, engine, tenant: "default" })
}

#[tokio::test]
async fn a_job_that_is_late_by_now_is_found_by_its_key() {
    let (server, api) = server().await;
    let at = |ms: i64| api.engine.clock().now().plus_ms(ms).to_string();
    let jobs = [
        (json!({"type": "t", "queue": "q", "expires_at": at(5_000)}), "invalid_value"),
        (json!({"type": "t", "queue": "q", "delay": "1h", "expires_at": at(3_605_000)}), "invalid_value"),
        (json!({"type": "t", "queue": "q", "run_at": at(-86_390_000)}), "run_at_out_of_range"),
    ];
    let keys = ["now", "later", "before"];
    let mut first = Vec::new();
    for ((job, _), key) in jobs.iter().zip(keys) {
        let answer = api.call("POST", "/v1/jobs", &[("idempotency-key", key)], job.to_string()).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        first.push(answer.json()["id"].clone());
    }
    server.clock().advance(MINUTE);
    for (((job, code), key), id) in jobs.iter().zip(keys).zip(first) {
        let mut keyed = job.clone();
        keyed["idempotency_key"] = json!(key);
        for (headers, body) in [(&[][..], &keyed), (&[("idempotency-key", key)][..], job)] {
            let again = api.call("POST", "/v1/jobs", headers, body.to_string()).await;
            assert_eq!(again.status, 200, "{again:?}");
            let again = again.json();
            assert_eq!((&again["id"], &again["duplicate"]), (&id, &json!(true)), "{again}");
            assert_eq!(again["idempotency_key"], *key, "{again}");
        }
        // What it was refused for holds for anything else.
        keyed["payload"] = json!(1);
        api.post("/v1/jobs", &keyed).await.problem(422, code);
        api.post("/v1/jobs", job).await.problem(422, code);
        keyed["idempotency_key"] = json!("free");
        api.post("/v1/jobs", &keyed).await.problem(422, code);
        let differs = api.call("POST", "/v1/jobs", &[("idempotency-key", key)], keyed.to_string()).await;
        differs.problem(422, code);
    }
    assert_eq!(api.get("/v1/jobs").await.json()["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_late_repeat_is_one_even_if_its_job_is_gone() {
    let (server, api) = server().await;
    let expires_at = api.engine.clock().now().plus_ms(5_000).to_string();
    let job = json!({"type": "t", "queue": "q", "expires_at": expires_at, "idempotency_key": "k"});
    let id = api.dead_letter(&job).await;
    assert_eq!(api.delete(&format!("/v1/dead-letters/{id}")).await.status, 204);
    server.clock().advance(MINUTE);
    let again = api.post("/v1/jobs", &job).await;
    assert_eq!(again.status, 200, "{again:?}");
    let again = again.json();
    assert_eq!(
        (&again["id"], &again["state"], &again["duplicate"]),
        (&json!(id), &Value::Null, &json!(true))
    );
}

/// The ids of a batch of jobs or schedules that was taken as a whole, all of them new or none.
#[track_caller]
fn ids(answer: &Answer, field: &str, are_repeats: bool) -> Vec<Value> {
    assert_eq!(answer.status, 201, "{answer:?}");
    let items = answer.json()[field].as_array().unwrap().clone();
    assert!(items.iter().all(|item| item["duplicate"] == are_repeats), "{answer:?}");
    items.iter().map(|item| item["id"].clone()).collect()
}

#[tokio::test]
async fn a_batch_of_jobs_that_is_late_by_now_is_found_by_its_keys() {
    let (server, api) = server().await;
    let soon = api.engine.clock().now().plus_ms(5_000).to_string();
    let late = |key: Value| json!({"type": "t", "queue": "q", "expires_at": soon, "idempotency_key": key});
    let other = json!({"type": "t", "queue": "q"});
    let (whole, partial) = ("/v1/jobs/batch", "/v1/jobs/batch?partial=true");
    let batches = [
        (whole, json!({"jobs": [late(Value::Null), other, late(json!("own"))], "idempotency_key": "B"})),
        (whole, json!([late(json!("a")), late(json!("b"))])),
        (partial, json!({"jobs": [late(Value::Null), other], "idempotency_key": "P"})),
        (partial, json!([late(json!("c")), late(json!("d"))])),
    ];
    let mut first = Vec::new();
    for (path, batch) in &batches {
        first.push(ids(&api.post(path, batch).await, "jobs", false));
    }
    server.clock().advance(MINUTE);
    for ((path, batch), first) in batches.iter().zip(&first) {
        assert_eq!(ids(&api.post(path, batch).await, "jobs", true), *first, "{batch}");
    }
    // What is new is late, also beside what is not, and what is changed under a key is new.
    let mut changed = late(json!("a"));
    changed["payload"] = json!(1);
    let mixed = json!({"jobs": [late(json!("own")), late(json!("new")), late(Value::Null), changed]});
    let problem = api.post(whole, &mixed).await.problem(422, "invalid_value");
    let faults = problem["errors"].as_array().unwrap().iter();
    let pointers: Vec<_> = faults.map(|fault| fault["pointer"].clone()).collect();
    assert_eq!(pointers, ["/jobs/1/expires_at", "/jobs/2/expires_at", "/jobs/3/expires_at"]);
    let each = api.post(partial, &mixed).await.json();
    assert_eq!((&each["count"], &each["refused"]), (&json!(1), &json!(3)), "{each}");
    assert_eq!((&each["jobs"][0]["id"], &each["jobs"][0]["duplicate"]), (&first[0][2], &json!(true)));
    for refused in &each["jobs"].as_array().unwrap()[1..] {
        assert_eq!(refused["error"]["code"], "invalid_value", "{each}");
        assert_eq!(refused["error"]["errors"][0]["pointer"], "/expires_at", "{each}");
    }
    let more = json!({"jobs": [late(Value::Null), other, late(json!("own")), other], "idempotency_key": "B"});
    api.post(whole, &more).await.problem(422, "invalid_value");
    assert_eq!(api.get("/v1/jobs").await.json()["items"].as_array().unwrap().len(), 9);
}

#[tokio::test]
async fn a_schedule_that_is_over_by_now_is_found_by_its_key() {
    let (server, api) = server().await;
    let end_at = api.engine.clock().now().plus_ms(90_000).to_string();
    let brief = |key: Value| json!({"cron_expr": "* * * * *", "end_at": end_at, "idempotency_key": key});
    let (one, own) = (brief(Value::Null), brief(json!("own")));
    let batch = json!({"schedules": [brief(Value::Null), {"every": "1h"}], "idempotency_key": "B"});
    let each = json!([brief(json!("a")), brief(json!("b"))]);
    let by_name = "/v1/schedules/by-name/brief";
    let send = async |method: &str, path: &str, body: &Value| {
        api.call(method, path, &[("idempotency-key", path)], body.to_string()).await
    };
    let first = [
        send("POST", "/v1/schedules", &one).await,
        api.post("/v1/schedules", &own).await,
        send("PUT", by_name, &one).await,
    ];
    assert!(first.iter().all(|made| made.status == 201), "{first:?}");
    let many = ids(&api.post("/v1/schedules/batch", &batch).await, "schedules", false);
    let some = ids(&api.post("/v1/schedules/batch?partial=true", &each).await, "schedules", false);

    server.clock().advance(2 * MINUTE);
    let again = [
        (send("POST", "/v1/schedules", &one).await, 200),
        (api.post("/v1/schedules", &own).await, 200),
        (send("PUT", by_name, &one).await, 201),
    ];
    for ((again, status), first) in again.iter().zip(&first) {
        assert_eq!((again.status.as_u16(), &again.json()["id"]), (*status, &first.json()["id"]), "{again:?}");
    }
    assert_eq!(ids(&api.post("/v1/schedules/batch", &batch).await, "schedules", true), many);
    assert_eq!(ids(&api.post("/v1/schedules/batch?partial=true", &each).await, "schedules", true), some);

    let mut changed = own.clone();
    changed["note"] = json!("changed");
    for refused in [&one, &changed, &brief(json!("new"))] {
        let problem = api.post("/v1/schedules", refused).await.problem(422, "invalid_value");
        assert_eq!(problem["errors"][0]["pointer"], "/end_at", "{problem}");
    }
    let mixed = json!([brief(json!("a")), brief(json!("new"))]);
    let problem = api.post("/v1/schedules/batch", &mixed).await.problem(422, "invalid_value");
    assert_eq!(problem["errors"][0]["pointer"], "/1/end_at", "{problem}");
    let mixed = api.post("/v1/schedules/batch?partial=true", &mixed).await.json();
    assert_eq!((&mixed["schedules"][0]["id"], &mixed["refused"]), (&some[0], &json!(1)), "{mixed}");
    assert_eq!(api.get("/v1/schedules").await.json()["items"].as_array().unwrap().len(), 7);
}

#[tokio::test]
async fn a_run_that_is_skipped_if_it_is_missed_is_the_same_when_it_is_asked_for_later() {
    let (server, api) = server().await;
    let form = json!({"schedule_type": "ONCE", "job_name": "n", "job_type": "t", "misfire_policy": "SKIP"});
    for (key, ahead_ms) in [("now", None), ("soon", Some(10_000))] {
        let run_at = ahead_ms.map(|ms| api.engine.clock().now().plus_ms(ms).to_string());
        let mut once = form.clone();
        once["idempotency_key"] = json!(key);
        once["run_at"] = json!(run_at);
        let first = api.post("/v1/jobs", &once).await;
        assert_eq!(first.status, 201, "{first:?}");
        server.clock().advance(MINUTE / 4);
        let again = api.post("/v1/jobs", &once).await;
        assert_eq!((again.status.as_u16(), again.json()), (200, first.json()));
        once["misfire_policy"] = json!("FIRE_ONCE");
        api.post("/v1/jobs", &once).await.problem(409, "idempotency_conflict");
    }
}
