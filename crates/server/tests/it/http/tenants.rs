//! Tenants: what is set for them, what they may submit, and what their pushes are signed with.

use serde_json::{Value, json};
use tidewheel_core::id::JobId;
use tidewheel_core::webhook::Secret;

use crate::http::harness::{Answer, Api};

/// So many submissions in a row are not a second apart each.
const TRIES_MAX: usize = 100;

async fn put(api: &Api, tenant: &str, settings: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    api.call("PUT", &format!("/v1/tenants/{tenant}"), &headers, settings.to_string()).await
}

fn later() -> Value {
    json!({"type": "t", "delay": "1h"})
}

#[tokio::test]
async fn settings_are_kept_versioned_and_listed() {
    let api = Api::new().await;
    let plain = api.get("/v1/tenants/acme").await;
    assert_eq!(plain.header("etag"), "\"0\"");
    let expected = json!({"id": "acme", "weight": 1, "sub_shards": 1, "limits": {"submit_rate": null, "submit_burst": null,
        "waiting": null, "concurrency": null, "queue_concurrency": null, "rate_cap": null, "schedules": null, "min_interval": null, "payload_bytes": null, "retention": null}});
    assert_eq!(plain.json(), expected);
    let set =
        put(&api, "acme", &json!({"weight": 3, "limits": {"submit_rate": 10, "min_interval": "5s"}})).await;
    assert_eq!(set.status.as_u16(), 200, "{set:?}");
    let limits = &set.json()["limits"];
    assert_eq!((&limits["submit_rate"], &limits["min_interval"]), (&json!(10), &json!("5s")));
    assert_eq!(api.get("/v1/tenants/acme").await.json(), set.json());
    let tag = set.header("etag").to_owned();
    let headers = [("if-match", "\"0\""), ("content-type", "application/json")];
    api.call("PUT", "/v1/tenants/acme", &headers, "{}").await.problem(412, "stale_version");
    let headers = [("if-match", tag.as_str()), ("content-type", "application/json")];
    assert_eq!(api.call("PUT", "/v1/tenants/acme", &headers, "{}").await.status.as_u16(), 200);
    let listed = api.get("/v1/tenants").await.json();
    let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
    assert_eq!(names, ["acme", "default"]);
    put(&api, "acme", &json!({"id": "globex"})).await.problem(422, "invalid_value");
    put(&api, "acme", &json!({"wait": 1})).await.problem(422, "unknown_field");
    api.get("/v1/tenants/a%20b").await.problem(404, "tenant_not_found");
}

#[tokio::test]
async fn a_tenant_is_spread_over_shards_and_gathered_again_and_nobody_notices() {
    let api = Api::new().await;
    let acme = api.as_tenant("acme");
    let (mut ids, mut spread) = (Vec::new(), std::collections::BTreeSet::new());
    for (turn, sub_shards) in [1, 4, 2, 1].into_iter().enumerate() {
        let set = put(&api, "acme", &json!({"sub_shards": sub_shards, "limits": {"rate_cap": 1000}})).await;
        assert_eq!((set.status.as_u16(), &set.json()["sub_shards"]), (200, &json!(sub_shards)), "{set:?}");
        for n in 0..40 {
            let key = format!("{turn}-{n}");
            let id = acme.submit(&json!({"type": "t", "idempotency_key": key})).await;
            ids.push(id);
        }
        let batch = acme.post("/v1/jobs/batch", &json!(vec![json!({"type": "t"}); 40])).await.json();
        ids.extend(
            batch["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()),
        );
        let in_use = ids.iter().rev().take(80).map(|id| id.parse::<JobId>().unwrap().sub_shard());
        let in_use: std::collections::BTreeSet<_> = in_use.collect();
        assert_eq!(in_use.len(), sub_shards, "new jobs go by what is set now");
        spread.extend(in_use);
    }
    assert_eq!(spread.len(), 4, "{spread:?}");
    let again = acme.post("/v1/jobs", &json!({"type": "t", "idempotency_key": "1-7"})).await;
    assert_eq!((again.status.as_u16(), &again.json()["duplicate"]), (200, &json!(true)));
    assert_eq!(acme.get("/v1/jobs/count").await.json()["count"], ids.len());
    let (mut listed, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let path =
            cursor.map_or("/v1/jobs?limit=33".to_owned(), |at| format!("/v1/jobs?limit=33&cursor={at}"));
        let page = acme.get(&path).await.json();
        listed.extend(
            page["items"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()),
        );
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert!(listed.is_sorted_by(|a, b| a > b), "latest first over all shards");
    let mut wanted = ids.clone();
    wanted.sort_by(|a, b| b.cmp(a));
    assert_eq!(listed, wanted);
    let mut done = std::collections::BTreeSet::new();
    while done.len() < ids.len() {
        let taken = acme.take_one("default").await;
        let id = taken["id"].as_str().unwrap().to_owned();
        let outcome = json!({"token": taken["token"], "status": "succeeded"});
        assert_eq!(acme.post(&format!("/v1/jobs/{id}/outcome"), &outcome).await.status.as_u16(), 200);
        assert!(done.insert(id), "each once");
    }
    let left = acme.get("/v1/jobs/count?state=scheduled").await.json();
    assert_eq!(left["count"], 0, "{left}");
}

#[tokio::test]
async fn a_spread_that_cannot_be_is_refused_with_the_reason() {
    let api = Api::new().await;
    for (settings, pointer, said) in [
        (json!({"sub_shards": 3}), "/sub_shards", "power of two"),
        (json!({"sub_shards": 32}), "/sub_shards", "16"),
        (json!({"sub_shards": 8, "limits": {"rate_cap": 7}}), "/limits/rate_cap", "8 sub-shards"),
        (json!({"sub_shards": 8, "limits": {"concurrency": 7}}), "/limits/concurrency", "8 sub-shards"),
    ] {
        let refused = put(&api, "acme", &settings).await.problem(422, "invalid_value");
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{refused}");
        assert!(refused.to_string().contains(said), "{refused}");
    }
    put(&api, "acme", &json!({"limits": {"sub_shards": 2}})).await.problem(422, "unknown_field");
}

#[tokio::test]
async fn whoever_submits_too_fast_is_told_when_to_come_back_and_others_go_on() {
    let api = Api::new().await;
    put(&api, "acme", &json!({"limits": {"submit_rate": 1, "submit_burst": 3}})).await;
    let acme = api.as_tenant("acme");
    // A whole burst takes it, and it is paid off for longer than the rest takes on any machine.
    let first = acme.post("/v1/jobs/batch", &json!(vec![later(); 100])).await;
    assert_eq!(first.status.as_u16(), 201, "{first:?}");
    let refused = acme.post("/v1/jobs", &later()).await;
    refused.problem(429, "rate_limited");
    let wait_s = |answer: &Answer| answer.header("retry-after").parse::<u32>().unwrap();
    assert!((60..=98).contains(&wait_s(&refused)), "{}", wait_s(&refused));
    let batch = acme.post("/v1/jobs/batch", &json!([later(), later(), later()])).await;
    batch.problem(429, "rate_limited");
    assert!((60..=100).contains(&wait_s(&batch)), "{}", wait_s(&batch));
    acme.post("/v1/jobs/batch?partial=true", &json!([later()])).await.problem(429, "rate_limited");
    let flat = json!({"schedule_type": "ONCE", "tenant_id": "acme", "job_name": "n", "job_type": "t",
        "run_at": "2027-06-01T00:00:00Z", "payload": {}});
    api.as_tenant("acme").post("/v1/jobs", &flat).await.problem(429, "rate_limited");
    assert_eq!(acme.get("/v1/jobs/count").await.json()["count"], 100, "what was refused is not there");
    api.submit(&later()).await;
    put(&api, "acme", &json!({})).await;
    acme.submit(&later()).await;
}

#[tokio::test]
async fn no_more_jobs_wait_than_may() {
    let api = Api::new().await;
    put(&api, "acme", &json!({"limits": {"waiting": 2}})).await;
    let acme = api.as_tenant("acme");
    acme.post("/v1/jobs/batch", &json!([later(), later(), later()])).await.problem(422, "batch_over_limit");
    let first = acme.submit(&later()).await;
    acme.submit(&later()).await;
    let refused = acme.post("/v1/jobs", &later()).await;
    refused.problem(429, "too_many_waiting");
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
    api.submit(&later()).await;
    assert_eq!(acme.post(&format!("/v1/jobs/{first}/cancel"), &json!({})).await.status.as_u16(), 200);
    acme.submit(&later()).await;
}

#[tokio::test]
async fn payloads_schedules_and_intervals_keep_to_the_tenants_limits() {
    let api = Api::new().await;
    put(&api, "acme", &json!({"limits": {"payload_bytes": 10, "schedules": 1, "min_interval": "5s"}})).await;
    let acme = api.as_tenant("acme");
    acme.submit(&json!({"type": "t", "delay": "1h", "payload": "12345678"})).await;
    let large = json!({"type": "t", "delay": "1h", "payload": "123456789"});
    acme.post("/v1/jobs", &large).await.problem(413, "payload_too_large");
    let beat = |every: &str| json!({"type": "t", "every": every});
    acme.post("/v1/schedules", &beat("4s")).await.problem(422, "interval_too_short");
    api.post("/v1/schedules", &beat("5s")).await.problem(422, "interval_too_short");
    assert_eq!(acme.post("/v1/schedules", &beat("5s")).await.status.as_u16(), 201);
    acme.post("/v1/schedules", &beat("5s")).await.problem(409, "limit_reached");
    let batch = json!([beat("1h"), beat("1h")]);
    acme.post("/v1/schedules/batch", &batch).await.problem(409, "limit_reached");
    assert_eq!(api.post("/v1/schedules/batch", &batch).await.status.as_u16(), 201);
}

#[tokio::test]
async fn webhook_secrets_are_added_shown_once_and_removed() {
    let api = Api::new().await;
    const PATH: &str = "/v1/tenants/acme/webhook-secrets";
    let listed = api.get(PATH).await.json();
    assert_eq!(listed["items"], json!([{"id": "default", "created_at": null}]));
    let shown = api.get(&format!("{PATH}/default")).await.json();
    let default = Secret::parse(shown["secret"].as_str().unwrap()).unwrap();
    let other = api.get("/v1/tenants/globex/webhook-secrets/default").await.json();
    assert_ne!(other["secret"], shown["secret"], "each tenant has its own");
    api.delete(&format!("{PATH}/default")).await.problem(409, "webhook_secret_conflict");
    let own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let added = api.post(PATH, &json!({"secret": own})).await;
    assert_eq!((added.status.as_u16(), &added.json()["secret"]), (201, &json!(own)));
    api.post(PATH, &json!({"secret": own})).await.problem(409, "webhook_secret_conflict");
    api.post(PATH, &json!({"secret": "whsec_short"})).await.problem(422, "invalid_value");
    let made = api.post(PATH, &json!({})).await.json();
    assert!(Secret::parse(made["secret"].as_str().unwrap()).unwrap() != default);
    let listed = api.get(PATH).await;
    assert_eq!(listed.json()["items"].as_array().unwrap().len(), 3);
    assert!(!String::from_utf8_lossy(&listed.body).contains("whsec_"), "{listed:?}");
    let again = api.get(&format!("{PATH}/{}", made["id"].as_str().unwrap())).await;
    assert!(again.json().get("secret").is_none(), "{again:?}");
    assert_eq!(api.delete(&format!("{PATH}/default")).await.status.as_u16(), 204);
    api.get(&format!("{PATH}/default")).await.problem(404, "webhook_secret_not_found");
    for _ in 0..3 {
        assert_eq!(api.post(PATH, &json!({})).await.status.as_u16(), 201);
    }
    api.post(PATH, &json!({})).await.problem(409, "limit_reached");
}

/// Finishes a job and returns its id.
async fn finished(api: &Api) -> String {
    let id = api.submit(&json!({"type": "t", "labels": {"l": "1"}})).await;
    let taken = api.take_one("default").await;
    let outcome = json!({"token": taken["token"], "status": "succeeded"});
    assert_eq!(api.post(&format!("/v1/jobs/{id}/outcome"), &outcome).await.status.as_u16(), 200);
    id
}

#[tokio::test]
async fn what_a_tenant_keeps_no_longer_is_not_seen_and_cannot_be_run_again() {
    let api = Api::new().await;
    let (acme, other) = (api.as_tenant("acme"), api.as_tenant("other"));
    let (done, kept, theirs) = (finished(&acme).await, acme.submit(&later()).await, finished(&other).await);
    let dead = acme.dead_letter(&json!({"type": "t"})).await;
    let limits = |retention: &str| json!({"limits": {"retention": retention}});
    let refused = put(&api, "acme", &limits("31d")).await.problem(422, "invalid_value");
    assert_eq!(refused["errors"][0]["pointer"], "/limits/retention");
    assert!(refused["detail"].as_str().unwrap().contains("30d"), "{refused}");
    assert_eq!(put(&api, "acme", &limits("30d")).await.json()["limits"]["retention"], "30d");
    assert_eq!(acme.get(&format!("/v1/jobs/{done}")).await.status.as_u16(), 200);

    assert_eq!(put(&api, "acme", &limits("1s")).await.status.as_u16(), 200);
    put(&api, "other", &limits("1h")).await;
    while acme.get(&format!("/v1/jobs/{done}")).await.status.as_u16() != 404 {
        tokio::task::yield_now().await;
    }
    acme.get(&format!("/v1/jobs/{done}/attempts")).await.problem(404, "job_not_found");
    acme.post(&format!("/v1/jobs/{done}/retry"), &json!({})).await.problem(404, "job_not_found");
    acme.post(&format!("/v1/jobs/{done}/cancel"), &json!({})).await.problem(404, "job_not_found");
    let many = acme.post("/v1/jobs/retry", &json!({"ids": [done]})).await.json();
    assert_eq!((&many["count"], &many["refused"]), (&json!(0), &json!(1)));
    let listed = acme.get("/v1/jobs").await.json();
    let ids: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|job| &job["id"]).collect();
    assert_eq!(ids.len(), 2, "{listed}");
    assert!(
        ids.contains(&&json!(kept)) && ids.contains(&&json!(dead)),
        "what waits, and dead letters: {listed}"
    );
    assert_eq!(acme.get("/v1/jobs/count?label.l=1").await.json()["count"], 0);
    assert_eq!(other.get(&format!("/v1/jobs/{theirs}")).await.status.as_u16(), 200);

    // What was only hidden is seen again when it is kept for longer.
    put(&api, "acme", &json!({})).await;
    assert_eq!(acme.get(&format!("/v1/jobs/{done}")).await.status.as_u16(), 200);
}

#[tokio::test]
async fn triggers_and_backfills_count_as_submissions() {
    let api = Api::new().await;
    let made = api.post("/v1/schedules", &json!({"type": "t", "cron_expr": "0 * * * *"})).await.json();
    let path = format!("/v1/schedules/{}", made["id"].as_str().unwrap());
    // Its next occurrence waits, too.
    let before = api.get("/v1/jobs/count").await.json()["counts"]["scheduled"].as_u64().unwrap();
    put(&api, "default", &json!({"limits": {"waiting": before + 3}})).await;
    let trigger = async || api.post(&format!("{path}/trigger"), &json!({})).await;
    assert_eq!(trigger().await.status.as_u16(), 201);
    let stretch = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T05:00:00Z"});
    let refused = api.post(&format!("{path}/backfill"), &stretch).await;
    refused.problem(422, "batch_over_limit");
    let short = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"});
    let answer = api.post(&format!("{path}/backfill"), &short).await;
    assert_eq!(answer.json()["count"], 2, "{answer:?}");
    trigger().await.problem(429, "too_many_waiting");
    put(&api, "default", &json!({"limits": {"submit_rate": 1, "submit_burst": 1}})).await;
    let mut answer = trigger().await;
    assert_eq!(answer.status.as_u16(), 201);
    for _ in 0..TRIES_MAX {
        // One more than a second later is in time.
        if answer.status.as_u16() == 201 {
            answer = trigger().await;
        }
    }
    answer.problem(429, "rate_limited");
}

#[tokio::test]
async fn a_batch_that_can_never_wait_is_told_so() {
    let api = Api::new().await;
    put(&api, "default", &json!({"limits": {"waiting": 3}})).await;
    for path in ["/v1/jobs/batch", "/v1/jobs/batch?partial=true"] {
        let answer = api.post(path, &json!(vec![later(); 4])).await;
        let refused = answer.problem(422, "batch_over_limit");
        assert!(refused["detail"].as_str().unwrap().contains("send fewer at once"), "{refused}");
        assert_eq!(answer.header("retry-after"), "", "trying again is no use");
    }
    assert_eq!(api.post("/v1/jobs/batch", &json!(vec![later(); 3])).await.status.as_u16(), 201);
}
