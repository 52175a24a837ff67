//! Jobs over HTTP: submitting, looking, changing. Names and shapes are those that clients rely on.

use serde_json::{Value, json};
use tidewheel_core::time::Timestamp;

use crate::http::harness::Api;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn a_submitted_job_is_answered_in_the_documented_shape_and_can_be_read_back() {
    let api = Api::new().await;
    let answer = api
        .call(
            "POST",
            "/v1/jobs",
            &[],
            r#"{"type": "send-email", "payload": {"to" : "a@example.com", "n": 1.50}, "delay": "1h"}"#,
        )
        .await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let job = answer.json();
    assert_eq!(keys(&job), ["duplicate", "id", "idempotency_key", "run_at", "state"]);
    let id = job["id"].as_str().unwrap();
    assert!(id.starts_with("job_") && job["state"] == "scheduled" && job["duplicate"] == false);
    assert_eq!(job["idempotency_key"], id);
    assert_eq!(answer.header("location"), format!("/v1/jobs/{id}"));

    for prefix in ["/v1", "/api/v1"] {
        let read = api.get(&format!("{prefix}/jobs/{id}")).await;
        assert_eq!(read.status, 200);
        let text = String::from_utf8(read.body.clone()).unwrap();
        assert!(text.contains(r#""payload":{"to" : "a@example.com", "n": 1.50}"#), "byte for byte: {text}");
        let read = read.json();
        assert_eq!(read["run_at"], job["run_at"]);
        assert_eq!(
            (&read["type"], &read["queue"], &read["priority"]),
            (&json!("send-email"), &json!("default"), &json!("normal"))
        );
        assert_eq!(
            read["retry"],
            json!({"max_attempts": 5, "policy": "exponential_jitter", "base": "1s", "multiplier": 2.0, "max": "1h"})
        );
        assert_eq!(
            (&read["timeout"], &read["attempt"], &read["max_attempts"]),
            (&json!("30s"), &json!(0), &json!(5))
        );
        assert_eq!(
            (&read["tenant"], &read["last_error"], &read["result"]),
            (&json!("default"), &Value::Null, &Value::Null)
        );
    }
}

#[tokio::test]
async fn every_field_of_a_pushed_job_comes_back() {
    let api = Api::new().await;
    let id = api
        .submit(&json!({
            "type": "t", "run_at": "2027-01-01T00:00:00+01:00",
            "target": {"url": "https://example.com/hook", "method": "PUT", "headers": {"X-Team": "ops"}, "timeout": "5s"},
            "priority": "low", "max_attempts": 2, "expires_at": "2027-06-01T00:00:00Z",
            "idempotency_key": "k-1", "labels": {"team": "ops", "é": "ü"},
        }))
        .await;
    let job = api.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(job["run_at"], "2026-12-31T23:00:00.000Z");
    assert_eq!(
        job["target"],
        json!({"url": "https://example.com/hook", "method": "PUT", "headers": {"X-Team": "ops"}, "timeout": "5s"})
    );
    assert_eq!(job.get("queue"), None);
    assert_eq!((&job["priority"], &job["max_attempts"]), (&json!("low"), &json!(2)));
    assert_eq!(
        (&job["idempotency_key"], &job["expires_at"]),
        (&json!("k-1"), &json!("2027-06-01T00:00:00.000Z"))
    );
    assert_eq!((&job["labels"], &job["payload"]), (&json!({"team": "ops", "é": "ü"}), &Value::Null));
}

#[tokio::test]
async fn the_same_key_means_the_same_job_and_another_body_is_a_conflict() {
    let api = Api::new().await;
    let body = json!({"type": "t", "delay": "1h", "payload": {"a": 1}, "idempotency_key": "k"});
    let first = api.post("/v1/jobs", &body).await;
    let again = api.post("/v1/jobs", &body).await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 200));
    let (first, again) = (first.json(), again.json());
    assert_eq!(again["id"], first["id"]);
    assert_eq!(again["run_at"], first["run_at"], "a delay counts from the first time");
    assert_eq!(
        (&again["duplicate"], &again["idempotency_key"], &again["state"]),
        (&json!(true), &json!("k"), &json!("scheduled"))
    );

    // The key in the header is the same key.
    let unkeyed = json!({"type": "t", "delay": "1h", "payload": {"a": 1}});
    let by_header = api.call("POST", "/v1/jobs", &[("idempotency-key", "k")], unkeyed.to_string()).await;
    assert_eq!((by_header.status.as_u16(), &by_header.json()["id"]), (200, &first["id"]));

    for other in [
        json!({"type": "u", "delay": "1h", "payload": {"a": 1}, "idempotency_key": "k"}),
        json!({"type": "t", "delay": "2h", "payload": {"a": 1}, "idempotency_key": "k"}),
        json!({"type": "t", "delay": "1h", "payload": {"a": 2}, "idempotency_key": "k"}),
        json!({"type": "t", "delay": "1h", "payload": {"a": 1}, "labels": {"x": "y"}, "idempotency_key": "k"}),
    ] {
        let problem = api.post("/v1/jobs", &other).await.problem(409, "idempotency_conflict");
        assert!(problem["detail"].as_str().unwrap().contains(first["id"].as_str().unwrap()));
    }
    // Another tenant's keys are its own.
    assert_eq!(api.as_tenant("acme").post("/v1/jobs", &body).await.status, 201);

    let differing = api.call("POST", "/v1/jobs", &[("idempotency-key", "other")], body.to_string()).await;
    differing.problem(422, "conflicting_fields");

    // A duplicate shows where the first job stands now.
    api.post(&format!("/v1/jobs/{}/cancel", first["id"].as_str().unwrap()), &json!({})).await;
    assert_eq!(api.post("/v1/jobs", &body).await.json()["state"], "cancelled");
}

#[tokio::test]
async fn fifty_equal_requests_at_once_make_one_job() {
    let api = Api::new().await;
    let body = json!({"type": "t", "delay": "1h", "idempotency_key": "k"}).to_string();
    let calls = (0..50).map(|_| {
        let (api, body) = (api.as_tenant("default"), body.clone());
        tokio::spawn(async move { api.call("POST", "/v1/jobs", &[], body).await })
    });
    let mut ids = Vec::new();
    let mut created = 0;
    for call in calls.collect::<Vec<_>>() {
        let answer = call.await.unwrap();
        created += usize::from(answer.status == 201);
        ids.push(answer.json()["id"].clone());
    }
    ids.dedup();
    assert_eq!((ids.len(), created), (1, 1));
    assert_eq!(api.get("/v1/jobs/count").await.json()["count"], 1);
}

#[tokio::test]
async fn lists_are_filtered_paged_and_stable() {
    let api = Api::new().await;
    let mut ids = Vec::new();
    for n in 0..7 {
        let kind = if n % 2 == 0 { "even" } else { "odd" };
        ids.push(
            api.submit(&json!({"type": kind, "delay": format!("{}h", n + 1), "labels": {"n": n.to_string()}, "payload": n})).await,
        );
    }
    let ready = api.submit(&json!({"type": "even", "queue": "nobody"})).await;
    ids.insert(0, ready.clone());
    ids.reverse();

    let mut walked = Vec::new();
    let mut path = "/v1/jobs?limit=3".to_owned();
    loop {
        let page = api.get(&path).await.json();
        assert_eq!(keys(&page), ["items", "next_cursor"]);
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 3 && items.iter().all(|item| item.get("payload").is_none()));
        walked.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        // Something changes behind and ahead of the walk.
        api.submit(&json!({"type": "later", "delay": "100h"})).await;
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/jobs?limit=3&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(walked, ids, "latest first, each once");

    let count_of = async |query: &str| {
        api.get(&format!("/v1/jobs?{query}")).await.json()["items"].as_array().unwrap().len()
    };
    assert_eq!(count_of("type=odd").await, 3);
    assert_eq!(count_of("label.n=3").await, 1);
    assert_eq!(count_of("label.n=3&type=even").await, 0);
    assert_eq!(count_of("queue=nobody").await, 1);
    assert_eq!(count_of("schedule=sch_01JDQ5M8ZK0000000000000000").await, 0);
    for path in ["jobs", "jobs/count", "dead-letters"] {
        for schedule in ["sch_1", "nightly", ""] {
            let refused = api.get(&format!("/v1/{path}?schedule={schedule}")).await;
            refused.problem(400, "invalid_parameter");
        }
    }
    assert_eq!(count_of("state=ready").await, 1);
    assert_eq!(count_of("state=scheduled&type=even").await, 4);
    assert_eq!(count_of("state=ready,scheduled&type=even").await, 5);
    assert_eq!(count_of("state=running,dead").await, 0);
    let soon = api.engine.clock().now().plus_ms(3_600_000 * 3 + 600_000);
    assert_eq!(count_of(&format!("to={soon}&type=odd")).await, 1);
    assert_eq!(count_of(&format!("from={soon}&type=odd")).await, 2);
    let shown = api.get("/v1/jobs?state=ready&payload=true").await.json();
    assert_eq!((&shown["items"][0]["id"], &shown["items"][0]["payload"]), (&json!(ready), &Value::Null));
    assert!(shown["items"][0].get("payload").is_some());
    assert_eq!(api.as_tenant("acme").get("/v1/jobs").await.json(), json!({"items": [], "next_cursor": null}));
}

#[tokio::test]
async fn queries_that_make_no_sense_are_refused_by_name() {
    let api = Api::new().await;
    let problem = api.get("/v1/jobs?stat=dead&limit=5000").await.problem(400, "invalid_request");
    assert_eq!(problem["errors"].as_array().unwrap().len(), 2);
    assert!(problem["detail"].as_str().unwrap().contains("`state`"));
    api.get("/v1/jobs?cursor=abc").await.problem(400, "invalid_cursor");
    api.get("/v1/jobs?state=sleeping").await.problem(400, "invalid_parameter");
    api.get("/v1/jobs/count?limit=5").await.problem(400, "unknown_parameter");
    api.get("/v1/jobs?type=%ff").await.problem(400, "malformed_request");
    // Strings meant for a database are only strings.
    let hostile = api.get("/v1/jobs?type='%3B%20select%20pg_sleep(5)--&label.%25=%25").await;
    assert_eq!((hostile.status.as_u16(), hostile.json()["items"].as_array().unwrap().len()), (200, 0));
}

#[tokio::test]
async fn counts_by_state_and_by_filter() {
    let api = Api::new().await;
    for kind in ["a", "a", "b"] {
        api.submit(&json!({"type": kind, "delay": "1h"})).await;
    }
    let id = api.submit(&json!({"type": "a", "delay": "1h"})).await;
    api.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).await;
    let all = api.get("/v1/jobs/count").await.json();
    assert_eq!((&all["count"], &all["total"], &all["complete"]), (&json!(4), &json!(4), &json!(true)));
    assert_eq!(
        (&all["counts"]["scheduled"], &all["counts"]["cancelled"], &all["counts"]["dead"]),
        (&json!(3), &json!(1), &json!(0))
    );
    assert_eq!(api.get("/v1/jobs/count?state=scheduled,dead").await.json()["count"], 3);
    assert_eq!(api.get("/v1/jobs/count?type=a").await.json(), json!({"count": 3, "complete": true}));
    assert_eq!(api.get("/v1/jobs/count?type=a&state=cancelled").await.json()["count"], 1);
    assert_eq!(api.get("/v1/jobs/count?state=ready").await.json()["count"], 0);
}

#[tokio::test]
async fn a_waiting_job_can_be_moved_run_cancelled_and_run_again() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t", "delay": "1h"})).await;
    let path = format!("/v1/jobs/{id}");

    let moved = api.patch(&path, &json!({"run_at": "2027-03-01T00:00:00Z", "priority": "critical"})).await;
    assert_eq!(moved.status, 200, "{moved:?}");
    assert_eq!(
        (&moved.json()["run_at"], &moved.json()["priority"]),
        (&json!("2027-03-01T00:00:00.000Z"), &json!("critical"))
    );
    assert_eq!(api.get(&path).await.json()["id"], *id, "a moved job keeps its id");
    api.patch(&path, &json!({})).await.problem(422, "missing_field");
    api.patch(&path, &json!({"payload": 1})).await.problem(422, "unknown_field");
    api.patch(&path, &json!({"run_at": "1990-01-01T00:00:00Z"})).await.problem(422, "run_at_out_of_range");

    api.post(&format!("{path}/retry"), &json!({})).await.problem(409, "job_not_finished");
    for _ in 0..2 {
        let cancelled = api.post(&format!("{path}/cancel"), &json!({})).await;
        assert_eq!((cancelled.status.as_u16(), &cancelled.json()["state"]), (200, &json!("cancelled")));
    }
    api.patch(&path, &json!({"priority": "low"})).await.problem(409, "job_finished");
    api.post(&format!("{path}/run"), &json!({})).await.problem(409, "job_finished");

    let again = api.call("POST", &format!("{path}/retry"), &[], "").await;
    assert_eq!(again.status, 200, "an empty body means now: {again:?}");
    let taken = api.take_one("default").await;
    assert_eq!((&taken["id"], &taken["attempt"]), (&json!(id), &json!(1)));
    api.patch(&path, &json!({"priority": "low"})).await.problem(409, "job_running");

    let later = api.submit(&json!({"type": "t", "delay": "1h"})).await;
    let run = api.post(&format!("/v1/jobs/{later}/run"), &json!({})).await.json();
    assert!(run["run_at"].as_str().unwrap().parse::<Timestamp>().unwrap() <= api.engine.clock().now());
    assert_eq!(api.take_one("default").await["id"], *later);
}

#[tokio::test]
async fn explain_says_what_a_job_waits_for() {
    let api = Api::new().await;
    let explain = async |id: &str| api.get(&format!("/v1/jobs/{id}/explain")).await.json();
    let later = api.submit(&json!({"type": "t", "delay": "1h"})).await;
    let told = explain(&later).await;
    assert_eq!(
        (&told["id"], &told["state"], &told["waits_for"]),
        (&json!(later), &json!("scheduled"), &json!("time"))
    );
    assert_eq!(told["expected_start"], told["run_at"]);

    let now = api.submit(&json!({"type": "t", "queue": "empty", "expires_at": "2100-01-01T00:00:00Z"})).await;
    // Until the scheduler has put it into its lane, it is on its way there.
    let told = loop {
        let told = explain(&now).await;
        assert_eq!(told["state"], "ready");
        if told["waits_for"] == "worker" {
            break told;
        }
        assert!(["scan", "promotion", "turn"].contains(&told["waits_for"].as_str().unwrap()), "{told}");
        tokio::task::yield_now().await;
    };
    assert!(told["detail"].as_str().unwrap().contains("empty") && told["expected_start"].is_null(), "{told}");
    assert!(told["detail"].as_str().unwrap().contains("expires at 2100-01-01"), "{told}");

    let taken = api.take_one("empty").await;
    assert_eq!(explain(&now).await["waits_for"], "outcome");
    let failed = json!({"token": taken["token"], "status": "failed", "error": "no", "retry_after": "1h"});
    assert_eq!(api.post(&format!("/v1/jobs/{now}/outcome"), &failed).await.json()["state"], "retrying");
    let told = explain(&now).await;
    assert_eq!((&told["waits_for"], &told["failures"]), (&json!("retry"), &json!(1)));
    api.post(&format!("/v1/jobs/{now}/cancel"), &json!({})).await;
    let told = explain(&now).await;
    assert!(told["waits_for"].is_null() && told["detail"].as_str().unwrap().contains("cancelled"), "{told}");
}

#[tokio::test]
async fn bulk_calls_take_ids_or_a_filter_and_answer_for_each() {
    let api = Api::new().await;
    let mut ids = Vec::new();
    for kind in ["a", "a", "b"] {
        ids.push(api.submit(&json!({"type": kind, "delay": "1h"})).await);
    }
    let absent = "job_01JDQ5M8ZK0000000000000000";
    let answer = api.post("/v1/jobs/cancel", &json!({"ids": [ids[0], absent]})).await.json();
    assert_eq!(
        (&answer["count"], &answer["refused"], &answer["next_cursor"]),
        (&json!(1), &json!(1), &Value::Null)
    );
    assert_eq!(
        (&answer["items"][0]["id"], &answer["items"][0]["ok"], &answer["items"][0]["state"]),
        (&json!(ids[0]), &json!(true), &json!("cancelled"))
    );
    assert_eq!(
        (&answer["items"][1]["ok"], &answer["items"][1]["error"]["code"]),
        (&json!(false), &json!("job_not_found"))
    );

    let answer = api.post("/v1/jobs/cancel", &json!({"filter": {"type": "a"}})).await.json();
    assert_eq!(
        (&answer["count"], &answer["items"][0]["id"]),
        (&json!(1), &json!(ids[1])),
        "what has ended is not meant"
    );
    let answer = api
        .post(
            "/v1/jobs/retry",
            &json!({"filter": {"state": "cancelled", "type": "a"}, "delay": "2h", "rate": 0.5}),
        )
        .await
        .json();
    assert_eq!(answer["count"], 2, "{answer}");
    let mut times = Vec::new();
    for id in &ids[..2] {
        let job = api.get(&format!("/v1/jobs/{id}")).await.json();
        assert_eq!(job["state"], "scheduled");
        times.push(job["run_at"].as_str().unwrap().parse::<Timestamp>().unwrap());
    }
    times.sort();
    assert_eq!(times[1].since_ms(times[0]), 2_000, "one every two seconds");

    api.post("/v1/jobs/cancel", &json!({})).await.problem(422, "missing_field");
    api.post("/v1/jobs/cancel", &json!({"ids": [], "filter": {}})).await.problem(422, "conflicting_fields");
    let problem =
        api.post("/v1/jobs/cancel", &json!({"ids": ["x", 5]})).await.problem(422, "invalid_request");
    assert_eq!(
        (&problem["errors"][0]["pointer"], &problem["errors"][1]["pointer"]),
        (&json!("/ids/0"), &json!("/ids/1"))
    );
    api.post("/v1/jobs/cancel", &json!({"filter": {"stat": "x"}})).await.problem(422, "unknown_field");
    let many = vec![absent; 10_001];
    api.post("/v1/jobs/cancel", &json!({"ids": many})).await.problem(413, "batch_too_large");
    assert_eq!(api.post("/v1/jobs/cancel", &json!({"ids": &many[1..]})).await.json()["refused"], 10_000);
}

#[tokio::test]
async fn what_is_not_there_and_what_is_not_allowed() {
    let api = Api::new().await;
    for path in ["/nothing", "/v2/jobs", "/v1", "/v1/jobs/", "/..%2f..%2fetc/passwd", "/v1/nothing"] {
        api.get(path).await.problem(404, "not_found");
    }
    for id in ["job_01JDQ5M8ZK0000000000000000", "x", "job_", "%ff", "%00", "job_01JDQ5M8ZK000000000000000U"]
    {
        for path in ["", "/attempts", "/explain"] {
            api.get(&format!("/v1/jobs/{id}{path}")).await.problem(404, "job_not_found");
        }
        api.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).await.problem(404, "job_not_found");
    }
    let answer = api.call("PUT", "/v1/jobs", &[], "").await;
    answer.problem(405, "method_not_allowed");
    let mut allowed: Vec<_> = answer.header("allow").split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    assert_eq!(api.call("GET", "/api/v1/jobs/batch", &[], "").await.header("allow"), "POST");
    assert_eq!(api.call("HEAD", "/v1/jobs", &[], "").await.status, 200);
}

#[tokio::test]
async fn other_tenants_jobs_look_as_if_they_were_not_there() {
    let (api, id) = {
        let api = Api::new().await;
        let id = api.dead_letter(&json!({"type": "t"})).await;
        (api, id)
    };
    let other = api.as_tenant("acme");
    for (method, path) in [
        ("GET", format!("/v1/jobs/{id}")),
        ("GET", format!("/v1/jobs/{id}/attempts")),
        ("GET", format!("/v1/jobs/{id}/explain")),
        ("POST", format!("/v1/jobs/{id}/cancel")),
        ("POST", format!("/v1/jobs/{id}/run")),
        ("POST", format!("/v1/jobs/{id}/retry")),
        ("POST", format!("/v1/dead-letters/{id}/replay")),
        ("DELETE", format!("/v1/dead-letters/{id}")),
    ] {
        other.call(method, &path, &[], "").await.problem(404, "job_not_found");
    }
    other.patch(&format!("/v1/jobs/{id}"), &json!({"priority": "low"})).await.problem(404, "job_not_found");
    let beat = json!({"token": 1, "status": "succeeded"});
    other.post(&format!("/v1/jobs/{id}/outcome"), &beat).await.problem(404, "job_not_found");
    assert_eq!(other.get("/v1/jobs/count").await.json()["count"], 0);
    assert_eq!(other.get("/v1/dead-letters").await.json()["items"], json!([]));
    assert_eq!(other.delete("/v1/dead-letters?all=true").await.json()["count"], 0);
    assert_eq!(api.get(&format!("/v1/jobs/{id}")).await.json()["state"], "dead");
}

#[tokio::test]
async fn a_dead_letter_is_replayed_at_a_target_with_a_timeout() {
    let api = Api::new().await;
    let dead = async || api.dead_letter(&json!({"type": "t", "timeout": "10s"})).await;
    let replay = async |id: &str, target: Value| {
        let body = json!({"delay": "1h", "target": target});
        let replayed = api.post(&format!("/v1/dead-letters/{id}/replay"), &body).await;
        assert_eq!(replayed.status, 200, "{replayed:?}");
        api.get(&format!("/v1/jobs/{id}")).await.json()
    };
    let url = "https://example.com/hook";
    let job = replay(&dead().await, json!({"url": url, "timeout": "5s"})).await;
    assert_eq!((&job["target"]["url"], &job["timeout"]), (&json!(url), &json!("5s")), "{job}");
    let kept = replay(&dead().await, json!({"url": url})).await;
    assert_eq!(kept["timeout"], "10s", "{kept}");
    let id = dead().await;
    let endless = json!({"target": {"url": url, "timeout": "25h"}});
    let refused = api.post(&format!("/v1/dead-letters/{id}/replay"), &endless).await;
    let problem = refused.problem(422, "invalid_value");
    assert_eq!(problem["errors"][0]["pointer"], "/target/timeout", "{problem}");
}
