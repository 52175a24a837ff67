//! Keys and roles: who may call what, and for whom.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tidewheel_store::{Layout, Store};
use tidewheel_store_testkit::memory::MemoryStore;

use crate::http::harness::{ADMIN_KEY, Answer, Api};

async fn closed() -> Api {
    Api::closed(Arc::new(MemoryStore::new(Layout { shards: 4 }))).await
}

/// One call with a key, and nothing said of a tenant.
async fn call(api: &Api, key: &str, method: &str, path: &str, body: &Value) -> Answer {
    call_for(api, key, None, method, path, body).await
}

async fn call_for(
    api: &Api,
    key: &str,
    tenant: Option<&str>,
    method: &str,
    path: &str,
    body: &Value,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if !key.is_empty() {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    if let Some(tenant) = tenant {
        request = request.header("tidewheel-tenant", tenant);
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    api.send(request.body(body).unwrap()).await
}

async fn key(api: &Api, wanted: Value) -> (String, String) {
    let made = call(api, ADMIN_KEY, "POST", "/v1/keys", &wanted).await;
    assert_eq!(made.status.as_u16(), 201, "{made:?}");
    let made = made.json();
    (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn what_one_server_has_changed_another_goes_by_as_soon_as_it_is_asked() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Layout { shards: 4 }));
    let (one, other) = (Api::closed(Arc::clone(&store)).await, Api::closed(store).await);
    for _ in 0..3 {
        let (id, secret) = key(&one, json!({"tenant": "acme", "role": "operator"})).await;
        assert_eq!(call(&other, &secret, "GET", "/v1/jobs", &Value::Null).await.status.as_u16(), 200);
        let (unseen, _) = key(&one, json!({"tenant": "acme", "role": "operator"})).await;
        for id in [id, unseen] {
            let path = format!("/v1/keys/{id}");
            assert_eq!(call(&other, ADMIN_KEY, "DELETE", &path, &Value::Null).await.status.as_u16(), 204);
        }
    }
    let weight = json!({"weight": 5});
    assert_eq!(call(&one, ADMIN_KEY, "PUT", "/v1/tenants/acme", &weight).await.status.as_u16(), 200);
    let shown = call(&other, ADMIN_KEY, "GET", "/v1/tenants/acme", &Value::Null).await.json();
    assert_eq!(shown["weight"], 5, "whoever changes what is shown keeps it");
    let kind = json!({"schema": {"type": "object"}});
    let path = "/v1/types/a.b";
    assert!(call_for(&one, ADMIN_KEY, Some("acme"), "PUT", path, &kind).await.status.is_success());
    let shown = call_for(&other, ADMIN_KEY, Some("acme"), "GET", path, &Value::Null).await;
    assert_eq!(shown.status.as_u16(), 200, "{shown:?}");
}

#[tokio::test]
async fn without_a_key_nothing_is_told_but_that_one_is_needed() {
    let api = closed().await;
    for key in ["", "twk_nobody", "twk_the-first-admins-key-of-a-tes", ""] {
        for (method, path) in
            [("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/metrics"), ("GET", "/v1/keys")]
        {
            let answer = call(&api, key, method, path, &Value::Null).await;
            answer.problem(401, "unauthorized");
            assert!(answer.header("www-authenticate").starts_with("Bearer"), "{answer:?}");
        }
    }
    let basic = Request::builder().uri("/v1/jobs").header("authorization", format!("Basic {ADMIN_KEY}"));
    api.send(basic.body(Body::empty()).unwrap()).await.problem(401, "unauthorized");
    let in_url = format!("/v1/jobs?key={ADMIN_KEY}");
    call(&api, "", "GET", &in_url, &Value::Null).await.problem(401, "unauthorized");
    for path in ["/healthz", "/readyz", "/docs", "/docs/errors", "/openapi.json"] {
        assert_eq!(call(&api, "", "GET", path, &Value::Null).await.status.as_u16(), 200, "{path}");
    }
    for prefix in ["/v1", "/api/v1"] {
        let answer = call(&api, ADMIN_KEY, "GET", &format!("{prefix}/jobs"), &Value::Null).await;
        assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
    }
}

#[tokio::test]
async fn roles_open_what_they_are_for_and_nothing_else() {
    let api = closed().await;
    let job = json!({"type": "t", "delay": "1h"});
    let calls: [(&str, &str, Value, &[&str]); 8] = [
        ("POST", "/v1/jobs", job.clone(), &["admin", "operator", "producer"]),
        ("GET", "/v1/jobs", Value::Null, &["admin", "operator", "producer", "viewer"]),
        ("POST", "/v1/queues/default/take", json!({}), &["admin", "operator", "worker"]),
        ("POST", "/v1/jobs/cancel", json!({"all": true}), &["admin", "operator"]),
        ("GET", "/v1/tenants/default/webhook-secrets/default", Value::Null, &["admin", "operator"]),
        ("PUT", "/v1/tenants/default", json!({}), &["admin"]),
        ("GET", "/v1/keys", Value::Null, &["admin"]),
        ("GET", "/metrics", Value::Null, &["admin"]),
    ];
    for role in ["admin", "operator", "producer", "worker", "viewer"] {
        let (_, secret) = key(&api, json!({"role": role})).await;
        for (method, path, body, allowed) in &calls {
            let answer = call(&api, &secret, method, path, body).await;
            if allowed.contains(&role) {
                assert!(!matches!(answer.status.as_u16(), 401 | 403), "{role} {path}: {answer:?}");
            } else {
                answer.problem(403, "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn what_belongs_to_another_tenant_is_not_there() {
    let api = closed().await;
    let (_, acme) = key(&api, json!({"tenant": "acme", "role": "operator"})).await;
    let (_, globex) = key(&api, json!({"tenant": "globex", "role": "operator"})).await;
    let job = call(&api, &acme, "POST", "/v1/jobs", &json!({"type": "t", "delay": "1h"})).await.json();
    let job = job["id"].as_str().unwrap().to_owned();
    let beat = json!({"every": "1h", "type": "t", "name": "beat"});
    let schedule =
        call(&api, &acme, "POST", "/v1/schedules", &beat).await.json()["id"].as_str().unwrap().to_owned();
    let dates = json!({"dates": []});
    assert_eq!(call(&api, &acme, "PUT", "/v1/calendars/c", &dates).await.status.as_u16(), 201);
    let token = json!({"token": 1, "status": "succeeded"});
    for (method, path, body) in [
        ("GET", format!("/v1/jobs/{job}"), Value::Null),
        ("GET", format!("/v1/jobs/{job}/attempts"), Value::Null),
        ("GET", format!("/v1/jobs/{job}/explain"), Value::Null),
        ("PATCH", format!("/v1/jobs/{job}"), json!({"priority": "low"})),
        ("POST", format!("/v1/jobs/{job}/cancel"), Value::Null),
        ("POST", format!("/v1/jobs/{job}/run"), Value::Null),
        ("POST", format!("/v1/jobs/{job}/retry"), Value::Null),
        ("POST", format!("/v1/jobs/{job}/heartbeat"), json!({"token": 1})),
        ("POST", format!("/v1/jobs/{job}/outcome"), token),
        ("GET", format!("/v1/schedules/{schedule}"), Value::Null),
        ("PATCH", format!("/v1/schedules/{schedule}"), json!({"note": "mine"})),
        ("DELETE", format!("/v1/schedules/{schedule}"), Value::Null),
        ("POST", format!("/v1/schedules/{schedule}/pause"), Value::Null),
        ("POST", format!("/v1/schedules/{schedule}/resume"), Value::Null),
        ("POST", format!("/v1/schedules/{schedule}/trigger"), Value::Null),
        ("GET", format!("/v1/schedules/{schedule}/firings"), Value::Null),
        ("GET", format!("/v1/schedules/{schedule}/next"), Value::Null),
        ("GET", "/v1/calendars/c".to_owned(), Value::Null),
        ("DELETE", "/v1/calendars/c".to_owned(), Value::Null),
        ("DELETE", format!("/v1/dead-letters/{job}"), Value::Null),
        ("POST", format!("/v1/dead-letters/{job}/replay"), Value::Null),
        ("GET", "/v1/tenants/acme".to_owned(), Value::Null),
        ("GET", "/v1/tenants/acme/webhook-secrets".to_owned(), Value::Null),
        ("POST", "/v1/tenants/acme/webhook-secrets".to_owned(), Value::Null),
        ("DELETE", "/v1/tenants/acme/webhook-secrets/default".to_owned(), Value::Null),
    ] {
        let answer = call(&api, &globex, method, &path, &body).await;
        assert_eq!(answer.status.as_u16(), 404, "{method} {path}: {answer:?}");
        assert!(!answer.json().to_string().contains("acme"), "{answer:?}");
    }
    for path in ["/v1/jobs", "/v1/schedules", "/v1/calendars", "/v1/dead-letters"] {
        let answer = call(&api, &globex, "GET", path, &Value::Null).await;
        assert_eq!(answer.json()["items"], json!([]), "{path}: {answer:?}");
    }
    let tenants = call(&api, &globex, "GET", "/v1/tenants", &Value::Null).await.json();
    assert_eq!(tenants["items"].as_array().unwrap().len(), 1, "{tenants}");
    call_for(&api, &globex, Some("acme"), "GET", "/v1/jobs", &Value::Null).await.problem(403, "forbidden");
    let flat = json!({"schedule_type": "ONCE", "tenant_id": "acme", "job_name": "n", "job_type": "t",
        "run_at": "2030-01-01T00:00:00Z", "payload": {}});
    call(&api, &globex, "POST", "/v1/jobs", &flat).await.problem(403, "forbidden");
    let found = call(&api, &acme, "GET", &format!("/v1/jobs/{job}"), &Value::Null).await;
    assert_eq!(found.json()["state"], "scheduled", "{found:?}");
    let found =
        call_for(&api, ADMIN_KEY, Some("acme"), "GET", &format!("/v1/jobs/{job}"), &Value::Null).await;
    assert_eq!(found.status.as_u16(), 200, "an admin acts for any tenant: {found:?}");
}

#[tokio::test]
async fn a_key_is_limited_to_its_types_and_queues() {
    let api = closed().await;
    let wanted = json!({"roles": ["producer", "worker"], "types": ["mail"], "queues": ["out"]});
    let (_, limited) = key(&api, wanted).await;
    let job = |kind: &str, queue: &str| json!({"type": kind, "queue": queue, "delay": "1h"});
    let submit = async |body: Value| call(&api, &limited, "POST", "/v1/jobs", &body).await;
    assert_eq!(submit(job("mail", "out")).await.status.as_u16(), 201);
    submit(job("report", "out")).await.problem(403, "forbidden");
    submit(job("mail", "in")).await.problem(403, "forbidden");
    submit(json!({"type": "mail", "target_url": "https://example.com/"})).await.problem(403, "forbidden");
    let batch = json!([job("mail", "out"), job("report", "out")]);
    call(&api, &limited, "POST", "/v1/jobs/batch", &batch).await.problem(403, "forbidden");
    let partial = call(&api, &limited, "POST", "/v1/jobs/batch?partial=true", &batch).await.json();
    assert_eq!((&partial["count"], &partial["jobs"][1]["error"]["code"]), (&json!(1), &json!("forbidden")));
    let beat = json!({"every": "1h", "type": "report", "queue": "out"});
    call(&api, &limited, "POST", "/v1/schedules", &beat).await.problem(403, "forbidden");
    let beat = json!({"every": "1h", "type": "mail", "queue": "out"});
    let made = call(&api, &limited, "POST", "/v1/schedules", &beat).await;
    assert_eq!(made.status.as_u16(), 201, "{made:?}");
    let path = format!("/v1/schedules/{}", made.json()["id"].as_str().unwrap());
    call(&api, &limited, "PATCH", &path, &json!({"type": "report"})).await.problem(403, "forbidden");
    call(&api, &limited, "POST", "/v1/queues/in/take", &json!({})).await.problem(403, "forbidden");
    let (_, none) = key(&api, json!({"role": "worker", "types": []})).await;
    call(&api, &none, "POST", "/v1/queues/out/take", &json!({})).await.problem(403, "forbidden");
    let (_, only_queue) = key(&api, json!({"role": "worker", "queues": ["out"]})).await;
    let taken = call(&api, &only_queue, "POST", "/v1/queues/out/take", &json!({})).await;
    assert_eq!(taken.status.as_u16(), 200, "{taken:?}");
}

#[tokio::test]
async fn a_worker_for_some_types_is_given_those_and_no_others() {
    let api = closed().await;
    let (_, mail) = key(&api, json!({"role": "worker", "types": ["mail", "fax"]})).await;
    for kind in ["report", "mail", "report", "fax"] {
        let made = call(&api, ADMIN_KEY, "POST", "/v1/jobs", &json!({"type": kind, "queue": "q"})).await;
        assert_eq!(made.status.as_u16(), 201, "{made:?}");
    }
    let take = async |key: &str, wait: &str| {
        let wanted = json!({"worker": "w", "max": 10, "wait": wait});
        let taken = call(&api, key, "POST", "/v1/queues/q/take", &wanted).await;
        assert_eq!(taken.status.as_u16(), 200, "{taken:?}");
        let jobs = taken.json()["jobs"].as_array().unwrap().clone();
        jobs.iter().map(|job| job["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(take(&mail, "40s").await);
    }
    seen.sort();
    assert_eq!(seen, ["fax", "mail"]);
    assert!(take(&mail, "0s").await.is_empty());
    let mut left = Vec::new();
    while left.len() < 2 {
        left.extend(take(ADMIN_KEY, "40s").await);
    }
    assert_eq!(left, ["report", "report"]);
}

#[tokio::test]
async fn a_key_is_shown_once_and_ends_when_it_is_revoked_or_over() {
    let store = Arc::new(MemoryStore::new(Layout { shards: 4 }));
    let api = Api::closed(Arc::clone(&store) as Arc<dyn Store>).await;
    let (id, secret) = key(&api, json!({"role": "viewer", "name": "a dashboard"})).await;
    assert!(secret.starts_with("twk_") && secret.len() > 40, "{secret}");
    assert_eq!(call(&api, &secret, "GET", "/v1/jobs", &Value::Null).await.status.as_u16(), 200);
    let listed = call(&api, ADMIN_KEY, "GET", "/v1/keys", &Value::Null).await;
    assert!(!String::from_utf8_lossy(&listed.body).contains(&secret));
    let item = &listed.json()["items"][0];
    assert_eq!((&item["id"], &item["name"]), (&json!(id), &json!("a dashboard")));
    assert!(item["last_used_at"].is_string(), "{item}");
    for kind in ["key", "key-use"] {
        let query = tidewheel_store::DocumentQuery { kind, tenant: None, after: None, count_max: 10 };
        for document in tidewheel_store::Documents::documents(&*store, query).await.unwrap() {
            assert!(!String::from_utf8_lossy(&document.bytes).contains(&secret[4..]), "hashed at rest");
        }
    }
    let path = format!("/v1/keys/{id}");
    assert_eq!(call(&api, ADMIN_KEY, "DELETE", &path, &Value::Null).await.status.as_u16(), 204);
    call(&api, &secret, "GET", "/v1/jobs", &Value::Null).await.problem(401, "unauthorized");
    call(&api, ADMIN_KEY, "DELETE", &path, &Value::Null).await.problem(404, "key_not_found");
    let (_, short) = key(&api, json!({"role": "viewer", "expires_in": "1ms"})).await;
    loop {
        let answer = call(&api, &short, "GET", "/v1/jobs", &Value::Null).await;
        if answer.status.as_u16() == 401 {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn keys_outlive_the_server() {
    let store = Arc::new(MemoryStore::new(Layout { shards: 4 }));
    let api = Api::closed(Arc::clone(&store) as Arc<dyn Store>).await;
    let (_, secret) = key(&api, json!({"role": "viewer"})).await;
    let again = Api::closed(Arc::new(store.reopen())).await;
    assert_eq!(call(&again, &secret, "GET", "/v1/jobs", &Value::Null).await.status.as_u16(), 200);
}

#[tokio::test]
async fn a_key_made_by_another_node_counts_soon() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Layout { shards: 4 }));
    let one = Api::closed(Arc::clone(&store)).await;
    let other = Api::closed(store).await;
    let (_, secret) = key(&one, json!({"role": "viewer"})).await;
    let waiting = async {
        while call(&other, &secret, "GET", "/v1/jobs", &Value::Null).await.status.as_u16() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(300), waiting).await.expect("it never did");
}
