//! Signing in to the web pages: the cookie, what it allows, and when it ends.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tidewheel_store::{Layout, Store};
use tidewheel_store_testkit::memory::MemoryStore;

use crate::http::harness::{ADMIN_KEY, Answer, Api};

/// Keys made until one is used in time.
const TRIES_MAX: usize = 10;

type Headers<'a> = &'a [(&'a str, &'a str)];

async fn closed() -> Api {
    Api::closed(Arc::new(MemoryStore::new(Layout { shards: 4 }))).await
}

async fn send(api: &Api, method: &str, path: &str, headers: Headers<'_>, body: &Value) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    api.send(request.body(body).unwrap()).await
}

async fn key(api: &Api, wanted: Value) -> (String, String) {
    let admin = format!("Bearer {ADMIN_KEY}");
    let made = send(api, "POST", "/v1/keys", &[("authorization", &admin)], &wanted).await.json();
    (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
}

/// Somebody who is signed in: the cookie and the token.
struct SignedIn {
    cookie: String,
    token: String,
}

async fn ask_in(api: &Api, key: &str) -> Answer {
    send(api, "POST", "/v1/session", &[("host", "127.0.0.1:7400")], &json!({"key": key})).await
}

async fn sign_in(api: &Api, key: &str) -> SignedIn {
    signed_in(&ask_in(api, key).await)
}

fn signed_in(answer: &Answer) -> SignedIn {
    assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
    let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
    let token = answer.json()["session"]["csrf_token"].as_str().unwrap().to_owned();
    SignedIn { cookie, token }
}

impl SignedIn {
    async fn look(&self, api: &Api, path: &str) -> Answer {
        send(api, "GET", path, &[("cookie", &self.cookie)], &Value::Null).await
    }

    async fn change(&self, api: &Api, method: &str, path: &str, body: &Value) -> Answer {
        let headers = [("cookie", self.cookie.as_str()), ("tidewheel-csrf", self.token.as_str())];
        send(api, method, path, &headers, body).await
    }
}

#[tokio::test]
async fn a_key_signs_in_by_a_cookie_that_no_script_reads_and_no_other_site_sends() {
    let api = closed().await;
    let (id, viewer) = key(&api, json!({"role": "viewer", "tenant": "acme", "name": "a screen"})).await;
    let answer =
        send(&api, "POST", "/v1/session", &[("host", "tide.example")], &json!({"key": viewer})).await;
    let cookie = answer.header("set-cookie").to_owned();
    for part in ["; HttpOnly", "; SameSite=Strict", "; Secure", "; Path=/", "; Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie} lacks {part}");
    }
    assert!(!cookie.contains(&viewer) && !answer.json().to_string().contains(&viewer));
    let bearer = format!("Bearer {viewer}");
    let loopback = [("host", "localhost:7400"), ("authorization", bearer.as_str())];
    let answer = send(&api, "POST", "/v1/session", &loopback, &Value::Null).await;
    assert!(!answer.header("set-cookie").contains("Secure"), "over loopback there is no TLS: {answer:?}");
    let me = sign_in(&api, &viewer).await.look(&api, "/v1/me").await.json();
    assert_eq!((&me["tenant"], &me["roles"]), (&json!("acme"), &json!(["viewer"])), "{me}");
    assert_eq!((&me["may"], &me["key_id"]), (&json!(["look"]), &json!(id)), "{me}");
    assert_eq!((&me["key_name"], &me["keys_required"]), (&json!("a screen"), &json!(true)), "{me}");
    assert!(me["session"]["expires_at"].is_string() && me["expires_at"].is_null(), "{me}");
    let by_key = send(&api, "GET", "/v1/me", &[("authorization", &bearer)], &Value::Null).await.json();
    assert_eq!((&by_key["key_id"], &by_key["session"]), (&json!(id), &Value::Null));
    send(&api, "GET", "/v1/me", &[], &Value::Null).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn a_session_may_what_its_key_may_and_changes_only_with_its_token() {
    let api = closed().await;
    let (_, producer) = key(&api, json!({"role": "producer", "tenant": "acme"})).await;
    let (_, viewer) = key(&api, json!({"role": "viewer", "tenant": "acme"})).await;
    let (_, worker) = key(&api, json!({"role": "worker", "tenant": "acme"})).await;
    let job = json!({"type": "t", "delay": "1h"});
    let session = sign_in(&api, &producer).await;
    let made = session.change(&api, "POST", "/v1/jobs", &job).await;
    assert_eq!(made.status.as_u16(), 201, "{made:?}");
    let path = format!("/v1/jobs/{}", made.json()["id"].as_str().unwrap());
    assert_eq!(session.look(&api, &path).await.status.as_u16(), 200);
    let cookie = ("cookie", session.cookie.as_str());
    let token = ("tidewheel-csrf", session.token.as_str());
    let other = sign_in(&api, &producer).await;
    for headers in [
        &[cookie][..],
        &[cookie, ("tidewheel-csrf", "guessed")],
        &[cookie, ("tidewheel-csrf", other.token.as_str())],
        &[cookie, token, ("sec-fetch-site", "cross-site")],
        &[cookie, token, ("sec-fetch-site", "same-site")],
        &[cookie, token, ("host", "tide.example"), ("origin", "https://evil.example")],
    ] {
        let refused = send(&api, "POST", "/v1/jobs", headers, &job).await;
        refused.problem(403, "cross_site_request");
    }
    let own = [cookie, token, ("host", "tide.example"), ("origin", "https://tide.example")];
    assert_eq!(send(&api, "POST", "/v1/jobs", &own, &job).await.status.as_u16(), 201);
    session.change(&api, "POST", "/v1/jobs/cancel", &json!({"all": true})).await.problem(403, "forbidden");
    let looks = sign_in(&api, &viewer).await;
    looks.change(&api, "POST", "/v1/jobs", &job).await.problem(403, "forbidden");
    assert_eq!(looks.look(&api, "/v1/jobs").await.json()["items"].as_array().unwrap().len(), 2);
    let works = sign_in(&api, &worker).await;
    works.look(&api, "/v1/jobs").await.problem(403, "forbidden");
    assert_eq!(works.look(&api, "/v1/me").await.json()["may"], json!(["work"]));
}

#[tokio::test]
async fn a_session_ends_when_it_is_ended_and_with_its_key() {
    let store = Arc::new(MemoryStore::new(Layout { shards: 4 }));
    let api = Api::closed(Arc::clone(&store) as Arc<dyn Store>).await;
    let (id, viewer) = key(&api, json!({"role": "viewer"})).await;
    let (first, second) = (sign_in(&api, &viewer).await, sign_in(&api, &viewer).await);
    let cookie = ("cookie", first.cookie.as_str());
    let refused = send(&api, "DELETE", "/v1/session", &[cookie], &Value::Null).await;
    refused.problem(403, "cross_site_request");
    let ended = first.change(&api, "DELETE", "/v1/session", &Value::Null).await;
    assert_eq!(ended.status.as_u16(), 204, "{ended:?}");
    assert!(ended.header("set-cookie").contains("Max-Age=0"), "{ended:?}");
    first.look(&api, "/v1/jobs").await.problem(401, "unauthorized");
    assert_eq!(first.change(&api, "DELETE", "/v1/session", &Value::Null).await.status.as_u16(), 204, "again");
    assert_eq!(second.look(&api, "/v1/jobs").await.status.as_u16(), 200, "the other goes on");
    let again = Api::closed(Arc::new(store.reopen())).await;
    first.look(&again, "/v1/jobs").await.problem(401, "unauthorized");
    assert_eq!(second.look(&again, "/v1/jobs").await.status.as_u16(), 200, "also after a restart");
    let admin = format!("Bearer {ADMIN_KEY}");
    let path = format!("/v1/keys/{id}");
    send(&again, "DELETE", &path, &[("authorization", &admin)], &Value::Null).await;
    second.look(&again, "/v1/jobs").await.problem(401, "unauthorized");
    let mut tries = 0;
    let brief = loop {
        let (_, short) = key(&again, json!({"role": "viewer", "expires_in": "1s"})).await;
        let answer = ask_in(&again, &short).await;
        tries += 1;
        // On a slow machine a key may end before it is used.
        if answer.status.as_u16() == 201 || tries == TRIES_MAX {
            break signed_in(&answer);
        }
    };
    while brief.look(&again, "/v1/jobs").await.status.as_u16() != 401 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_no_key_does_not_sign_in() {
    let api = closed().await;
    for key in ["", "twk_nobody", "twk_the-first-admins-key-of-a-tes"] {
        let answer = send(&api, "POST", "/v1/session", &[], &json!({"key": key})).await;
        answer.problem(401, "unauthorized");
        assert!(answer.header("set-cookie").is_empty());
    }
    send(&api, "POST", "/v1/session", &[], &json!({})).await.problem(422, "missing_field");
    send(&api, "POST", "/v1/session", &[], &json!({"kye": "x"})).await.problem(422, "invalid_request");
    let cross = [("sec-fetch-site", "cross-site")];
    let refused = send(&api, "POST", "/v1/session", &cross, &json!({"key": ADMIN_KEY})).await;
    refused.problem(403, "cross_site_request");
}

#[tokio::test]
async fn where_no_keys_are_asked_for_everybody_may_everything() {
    let api = Api::new().await;
    let me = send(&api, "GET", "/v1/me", &[], &Value::Null).await.json();
    assert_eq!((&me["tenant"], &me["keys_required"]), (&json!("default"), &json!(false)), "{me}");
    assert_eq!((&me["key_id"], &me["session"]), (&Value::Null, &Value::Null), "{me}");
    assert_eq!(me["may"].as_array().unwrap().len(), 5, "{me}");
    let stale = [("cookie", "tidewheel_session=left.over")];
    assert_eq!(send(&api, "GET", "/v1/jobs", &stale, &Value::Null).await.status.as_u16(), 200);
}
