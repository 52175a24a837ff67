//! The audit trail: whatever changes something is in it, with who and from where; secrets are not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tidewheel_api::wire::audit::Line;
use tidewheel_api::wire::audit_ends::{EndLine, Tally};
use tidewheel_core::audit::Walk;
use tidewheel_server::http::HttpLimits;
use tidewheel_store::{Error, Layout};
use tidewheel_store_testkit::memory::{Call, Failure, Fault, Faults, MemoryStore};

use crate::http::harness::{ADMIN_KEY, Answer, Api};

async fn closed() -> Api {
    Api::closed(Arc::new(MemoryStore::new(Layout { shards: 4 }))).await
}

async fn call(api: &Api, key: &str, method: &str, path: &str, body: &Value) -> Answer {
    let request =
        Request::builder().method(method).uri(path).header("authorization", format!("Bearer {key}"));
    let request = request.header("x-request-id", "r-1");
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    api.send(request.body(body).unwrap()).await
}

async fn make_key(api: &Api, wanted: Value) -> (String, String) {
    let made = call(api, ADMIN_KEY, "POST", "/v1/keys", &wanted).await.json();
    (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
}

async fn items(api: &Api, key: &str, query: &str) -> Vec<Value> {
    let answer = call(api, key, "GET", &format!("/v1/audit?{query}"), &Value::Null).await;
    assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
    answer.json()["items"].as_array().unwrap().clone()
}

async fn lines(api: &Api) -> Vec<Line> {
    let answer = call(api, ADMIN_KEY, "GET", "/v1/audit?format=ndjson", &Value::Null).await;
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let text = String::from_utf8(answer.body).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let EndLine { end } = serde_json::from_str(lines.pop().unwrap()).unwrap();
    let lines: Vec<Line> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut tally = Tally::default();
    lines.iter().for_each(|line| tally.note(line));
    tally.compare(&end).unwrap();
    lines
}

#[tokio::test]
async fn an_act_is_recorded_with_who_did_what() {
    let api = closed().await;
    let (id, secret) = make_key(&api, json!({"tenant": "acme", "role": "operator", "name": "ops"})).await;
    let created = &items(&api, ADMIN_KEY, "action=keys.create").await[0];
    assert_eq!(created["actor"], "key_file");
    assert_eq!((&created["object"], &created["tenant"]), (&json!(id), &json!("acme")), "whose key it is");
    assert_eq!(created["fields"], json!(["name", "role", "tenant"]));
    assert_eq!((&created["status"], &created["request_id"]), (&json!(201), &json!("r-1")));
    let schedule =
        json!({"type": "t", "queue": "q", "cron_expr": "0 9 * * *", "payload": {"secret": "hush"}});
    let made = call(&api, &secret, "POST", "/v1/schedules", &schedule).await.json();
    let schedule = made["id"].as_str().unwrap();
    for verb in ["pause", "resume"] {
        let path = format!("/v1/schedules/{schedule}/{verb}");
        assert_eq!(call(&api, &secret, "POST", &path, &Value::Null).await.status.as_u16(), 200);
    }
    call(&api, &secret, "DELETE", &format!("/v1/schedules/{schedule}"), &Value::Null).await;
    let own = items(&api, ADMIN_KEY, &format!("object={schedule}&order=oldest")).await;
    let actions: Vec<_> = own.iter().map(|item| item["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["schedules.create", "schedules.pause", "schedules.resume", "schedules.delete"]);
    assert!(own.iter().all(|item| item["actor"] == json!(id) && item["tenant"] == "acme"));
    let everything = call(&api, ADMIN_KEY, "GET", "/v1/audit?limit=1000", &Value::Null).await;
    let text = String::from_utf8(everything.body).unwrap();
    assert!(!text.contains(&secret) && !text.contains("hush"), "neither secrets nor payloads");
}

#[tokio::test]
async fn what_was_refused_is_counted_and_what_failed_is_not_there() {
    let api = closed().await;
    let (id, viewer) = make_key(&api, json!({"tenant": "acme", "role": "viewer"})).await;
    for _ in 0..3 {
        let body = json!({"type": "t", "queue": "q"});
        assert_eq!(call(&api, &viewer, "POST", "/v1/keys", &body).await.status.as_u16(), 403);
    }
    let missing = call(&api, ADMIN_KEY, "DELETE", "/v1/keys/key_0000000000000000", &Value::Null).await;
    assert_eq!(missing.status.as_u16(), 404);
    let found = items(&api, ADMIN_KEY, &format!("actor={id}")).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["status"], &found[0]["count"]), (&json!(403), &json!(3)));
    assert!(items(&api, ADMIN_KEY, "action=keys.delete").await.is_empty());
    assert_eq!(call(&api, "twk_nobody", "POST", "/v1/keys", &json!({})).await.status.as_u16(), 401);
    assert_eq!(items(&api, ADMIN_KEY, "kind=act").await.len(), 2, "strangers cannot fill the trail");
}

#[tokio::test]
async fn a_job_leaves_its_states_and_its_submitter() {
    let api = Api::new().await;
    let id = api.submit(&json!({"type": "t", "queue": "q", "payload": {"n": 1}})).await;
    let taken = api.take_one("q").await;
    let outcome = json!({"token": taken["token"], "status": "succeeded"});
    let ended = api.post(&format!("/v1/jobs/{id}/outcome"), &outcome).await;
    assert!(ended.status.is_success(), "{ended:?}");
    let found = api.get(&format!("/v1/audit?object={id}&order=oldest")).await.json();
    let changes: Vec<_> = found["items"].as_array().unwrap().iter().map(|item| &item["changes"][0]).collect();
    let states: Vec<_> = changes.iter().map(|change| (&change["from"], &change["to"])).collect();
    let [scheduled, running, succeeded] = ["scheduled", "running", "succeeded"].map(|state| json!(state));
    assert_eq!(states, [(&Value::Null, &scheduled), (&scheduled, &running), (&running, &succeeded)]);
    let sums = api.get("/v1/audit?kind=act&actor=anonymous").await.json();
    let calls: BTreeSet<_> = sums["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["action"].as_str().unwrap().to_owned())
        .collect();
    assert!(calls.contains("jobs.create") && calls.contains("jobs.outcome"), "{calls:?}");
}

#[tokio::test]
async fn an_operator_sees_its_own_tenant_and_nobody_else_sees_anything() {
    let api = Api::closed(Arc::new(MemoryStore::new(Layout { shards: 1 }))).await;
    let (_, acme) = make_key(&api, json!({"tenant": "acme", "role": "operator"})).await;
    let (_, globex) = make_key(&api, json!({"tenant": "globex", "role": "operator"})).await;
    let (_, producer) = make_key(&api, json!({"tenant": "acme", "role": "producer"})).await;
    for key in [&acme, &globex] {
        let job = json!({"type": "t", "queue": "q", "delay": "1h"});
        assert_eq!(call(&api, key, "POST", "/v1/jobs", &job).await.status.as_u16(), 201);
    }
    let own = items(&api, &acme, "limit=1000").await;
    assert!(!own.is_empty());
    assert!(!json!(own).to_string().contains("globex"), "{own:?}");
    let theirs = items(&api, ADMIN_KEY, "tenant=globex").await;
    assert!(theirs.iter().any(|item| item["kind"] == "changes"));
    assert!(!json!(theirs).to_string().contains("acme"));
    call(&api, &acme, "GET", "/v1/audit?tenant=globex", &Value::Null).await.problem(403, "forbidden");
    call(&api, &acme, "GET", "/v1/audit/chains", &Value::Null).await.problem(403, "forbidden");
    call(&api, &producer, "GET", "/v1/audit", &Value::Null).await.problem(403, "forbidden");
}

#[tokio::test]
async fn an_export_can_be_checked_by_itself() {
    let api = closed().await;
    for n in 0..300 {
        let job = json!({"type": "t", "queue": "q", "delay": "1h"});
        call(&api, ADMIN_KEY, "POST", "/v1/jobs", &job).await;
        call(&api, ADMIN_KEY, "PUT", &format!("/v1/tenants/t{}", n % 7), &json!({"weight": 2})).await;
    }
    let lines = lines(&api).await;
    assert!(lines.len() > 600);
    let mut walk = Walk::between(&api.engine.store().audit_chains().await.unwrap());
    for line in &lines {
        walk.check(&line.record().unwrap()).unwrap();
    }
    walk.end().unwrap();
    let mut anywhere = Walk::from_anywhere();
    let altered = lines.iter().map(|line| {
        let mut line = line.clone();
        if let Some(act) = line.act.as_mut().filter(|act| act.object.as_deref() == Some("t3")) {
            act.actor = "somebody else".to_owned();
        }
        line.record().unwrap()
    });
    assert!(altered.into_iter().any(|record| anywhere.check(&record).is_err()));
    // Page by page it is the same.
    let (mut cursor, mut count) = (String::new(), 0);
    loop {
        let answer =
            call(&api, ADMIN_KEY, "GET", &format!("/v1/audit?limit=77{cursor}"), &Value::Null).await.json();
        count += answer["items"].as_array().unwrap().len();
        match answer["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(count, lines.len());
}

#[tokio::test]
async fn who_signs_in_and_whose_key_is_revoked_is_told() {
    let api = closed().await;
    let (id, secret) = make_key(&api, json!({"tenant": "acme", "role": "operator"})).await;
    let signed = call(&api, &secret, "POST", "/v1/session", &Value::Null).await;
    assert_eq!(signed.status.as_u16(), 201, "{signed:?}");
    let revoked = call(&api, ADMIN_KEY, "DELETE", &format!("/v1/keys/{id}"), &Value::Null).await;
    assert_eq!(revoked.status.as_u16(), 204, "{revoked:?}");
    let found = items(&api, ADMIN_KEY, "tenant=acme&kind=act&order=oldest").await;
    let told: Vec<_> = found.iter().map(|item| json!([item["action"], item["actor"]])).collect();
    let expected = json!([["keys.create", "key_file"], ["session.create", id], ["keys.delete", "key_file"]]);
    assert_eq!(json!(told), expected);
}

/// Takes no records while it is away.
#[derive(Default)]
struct Away(AtomicBool);

impl Faults for Away {
    fn before(&self, call: Call) -> Fault {
        let fails = call == Call::AppendActs && self.0.load(Ordering::SeqCst);
        let failure = fails.then(|| Failure::Before(Error::Unavailable("away".to_owned())));
        Fault { failure, ..Fault::default() }
    }
}

#[tokio::test]
async fn counts_outlast_a_store_that_is_away() {
    let away = Arc::new(Away::default());
    let store = MemoryStore::new(Layout { shards: 4 }).with_faults(Arc::clone(&away) as Arc<dyn Faults>);
    let api = Api::over(Arc::new(store), HttpLimits::default()).await;
    away.0.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        api.submit(&json!({"type": "t", "queue": "q"})).await;
        // Whoever reads the trail has the counts written first.
        api.get("/v1/audit").await.problem(503, "store_unavailable");
    }
    away.0.store(false, Ordering::SeqCst);
    let found = api.get("/v1/audit?action=jobs.create").await.json();
    let counts: Vec<_> = found["items"].as_array().unwrap().iter().map(|item| &item["count"]).collect();
    assert_eq!(counts, [&json!(2)]);
}
