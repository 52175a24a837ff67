//! Tokens of an issuer, keys that end, and secrets that stay out of the log, from outside.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::issuer::{Shown, Signer, base64, set};
use crate::harness::postgres::Postgres;
use crate::harness::{Answer, Server, TIDEWHEEL, now_ms, request, until};

const ISSUER: &str = "https://login.example.com";
const AUDIENCE: &str = "tidewheel";

fn call(server: &Server, bearer: &str, method: &str, path: &str, body: &Value) -> Answer {
    call_under(server, bearer, method, path, body, &[])
}

fn call_under(
    server: &Server,
    bearer: &str,
    method: &str,
    path: &str,
    body: &Value,
    more: &[(&str, &str)],
) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let shown = format!("Bearer {bearer}");
    let headers = [&[("authorization", shown.as_str())], more].concat();
    request(server.address, method, path, &headers, body.as_bytes()).unwrap()
}

fn seconds_from_now(seconds: i64) -> i64 {
    now_ms() / 1_000 + seconds
}

/// What a good token of `acme` says.
fn claims(roles: &Value) -> Value {
    json!({"iss": ISSUER, "aud": ["other", AUDIENCE], "sub": "ada", "exp": seconds_from_now(600),
        "tidewheel_tenant": "acme", "tidewheel_roles": roles})
}

/// Those claims, with one of them changed or, by `null`, left out.
fn but(name: &str, value: Value) -> Value {
    let mut claims = claims(&json!(["viewer"]));
    if value.is_null() {
        claims.as_object_mut().unwrap().remove(name);
    } else {
        claims[name] = value;
    }
    claims
}

fn start(data: &TempDir, flags: &[&str]) -> Server {
    let issuer = ["--oidc-issuer", ISSUER, "--oidc-audience", AUDIENCE, "--log-level", "debug"];
    Server::start_with(&data.path().join("store"), &[&issuer, flags].concat())
}

fn with_keys_file(data: &TempDir, keys: &[Value]) -> Server {
    let file = data.path().join("keys.json");
    std::fs::write(&file, set(keys)).unwrap();
    start(data, &["--oidc-keys-file", file.to_str().unwrap()])
}

#[test]
fn only_tokens_that_hold_count_and_all_others_look_alike() {
    let data = TempDir::new().unwrap();
    let (es, ed, rs) = (Signer::es256(), Signer::ed_dsa(), Signer::rs256());
    let server = with_keys_file(&data, &[es.shown("es"), ed.shown("ed"), rs.shown("rs")]);
    let get = |token: &str| call(&server, token, "GET", "/v1/jobs", &Value::Null);
    for (signer, id) in [(&es, "es"), (&ed, "ed"), (&rs, "rs")] {
        assert_eq!(get(&signer.token(id, &claims(&json!(["viewer"])))).status, 200, "{id}");
    }
    assert_eq!(get(&es.token("es", &claims(&json!("viewer worker")))).status, 200, "roles as words");
    let only = json!({"alg": "ES256"});
    assert_eq!(get(&es.token_with(&only, &claims(&json!(["viewer"])))).status, 200, "the only key for it");

    let good = claims(&json!(["viewer"]));
    let unsigned = |header: &Value| [header, &good].map(|part| base64(part.to_string().as_bytes())).join(".");
    let by_secret = |kid: &str, secret: &[u8]| {
        let signed = unsigned(&json!({"alg": "HS256", "kid": kid}));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        format!("{signed}.{}", base64(ring::hmac::sign(&key, signed.as_bytes()).as_ref()))
    };
    let (public, rsa) = (es.shown("es"), rs.shown("rs"));
    let es_token = es.token("es", &good);
    let (head, signature) = es_token.rsplit_once('.').unwrap();
    let stranger = Signer::es256();
    for (what, token) in [
        ("over", es.token("es", &but("exp", json!(seconds_from_now(-60))))),
        ("no end", es.token("es", &but("exp", Value::Null))),
        ("an end that is a text", es.token("es", &but("exp", json!("9999999999")))),
        ("not yet", es.token("es", &but("nbf", json!(seconds_from_now(600))))),
        ("a begin that is a text", es.token("es", &but("nbf", json!("1")))),
        ("for somebody else", es.token("es", &but("aud", json!("other")))),
        ("for nobody", es.token("es", &but("aud", Value::Null))),
        ("of another issuer", es.token("es", &but("iss", json!("https://evil.example.com")))),
        ("of no tenant", es.token("es", &but("tidewheel_tenant", Value::Null))),
        ("none", format!("{}.", unsigned(&json!({"alg": "none"})))),
        ("none, with the key's id", format!("{}.", unsigned(&json!({"alg": "none", "kid": "es"})))),
        ("a shared secret: the key as shown", by_secret("es", public.to_string().as_bytes())),
        ("a shared secret: a coordinate", by_secret("es", public["x"].as_str().unwrap().as_bytes())),
        ("a shared secret: the RSA key as shown", by_secret("rs", rsa.to_string().as_bytes())),
        ("a shared secret: its modulus", by_secret("rs", rsa["n"].as_str().unwrap().as_bytes())),
        ("another's key under that id", stranger.token("es", &good)),
        ("an id that is not there", es.token("nobody", &good)),
        ("the id of another algorithm", es.token("rs", &good)),
        ("another algorithm's name", es.token_with(&json!({"alg": "RS256", "kid": "es"}), &good)),
        (
            "what must be understood",
            es.token_with(&json!({"alg": "ES256", "kid": "es", "crit": ["x"]}), &good),
        ),
        ("another signature", format!("{head}.{}", signature.chars().rev().collect::<String>())),
        ("no signature", format!("{head}.")),
        ("no token", "a.b.c".to_owned()),
        ("too long", format!("{head}.{}", "A".repeat(10_000))),
    ] {
        let refused = get(&token);
        assert_eq!(refused.status, 401, "{what}: {}", refused.text());
        assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer"), "{what}");
        if what != "too long" {
            let detail = &refused.json()["detail"];
            assert_eq!(detail, "the token does not hold here, or not any more", "{what}");
        }
    }
    assert_eq!(server.request("GET", "/v1/jobs", "").status, 401, "without anything");
}

#[test]
fn a_token_passes_the_table_that_keys_pass() {
    let data = TempDir::new().unwrap();
    let signer = Signer::es256();
    let server = with_keys_file(&data, &[signer.shown("k")]);
    let token = |tenant: &str, role: &str| {
        let mut claims = claims(&json!([role]));
        claims["tidewheel_tenant"] = json!(tenant);
        signer.token("k", &claims)
    };
    let job = json!({"type": "t", "delay": "1h"});
    let submit = |bearer: &str| call(&server, bearer, "POST", "/v1/jobs", &job);
    assert_eq!(submit(&token("acme", "viewer")).status, 403);
    assert_eq!(submit(&token("acme", "nothing-known")).status, 403);
    let submitted = submit(&token("acme", "producer"));
    assert_eq!(submitted.status, 201, "{}", submitted.text());
    let path = format!("/v1/jobs/{}", submitted.json()["id"].as_str().unwrap());
    let see = |bearer: &str| call(&server, bearer, "GET", &path, &Value::Null).status;
    assert_eq!(see(&token("acme", "viewer")), 200);
    assert_eq!(see(&token("other", "viewer")), 404);
    let keys = |bearer: &str| call(&server, bearer, "GET", "/v1/keys", &Value::Null).status;
    assert_eq!(keys(&token("acme", "operator")), 403);
    let mut admin = claims(&json!(["admin"]));
    admin.as_object_mut().unwrap().remove("tidewheel_tenant");
    assert_eq!(keys(&signer.token("k", &admin)), 200, "an admin needs no tenant");
}

#[test]
fn keys_of_the_issuer_are_found_when_they_change() {
    let data = TempDir::new().unwrap();
    let (old, new) = (Signer::es256(), Signer::ed_dsa());
    let shown = Shown::start(set(&[old.shown("old")]));
    let server = start(&data, &["--oidc-jwks-url", &format!("http://{}/keys", shown.address)]);
    let get = |token: &str| call(&server, token, "GET", "/v1/jobs", &Value::Null).status;
    let good = claims(&json!(["viewer"]));
    assert_eq!(get(&old.token("old", &good)), 200);
    let before = shown.asked();
    for n in 0..50 {
        assert_eq!(get(&old.token(&format!("unknown-{n}"), &good)), 401);
    }
    assert!(shown.asked() <= before + 10, "asked {} times for 50 unknown keys", shown.asked() - before);
    shown.change(set(&[new.shown("new")]));
    until("the new key to be found", || (get(&new.token("new", &good)) == 200).then_some(()));
    assert_eq!(get(&old.token("old", &good)), 401, "a key that is gone counts no more");
    shown.change("no keys at all".to_owned());
    let asked = shown.asked();
    until("the keys to be asked for again", || {
        assert_eq!(get(&new.token("unknown", &good)), 401);
        (shown.asked() > asked).then_some(())
    });
    assert_eq!(get(&new.token("new", &good)), 200, "what was known stays");
}

#[test]
fn a_workers_stream_ends_with_its_key() {
    let data = TempDir::new().unwrap();
    let key_file = data.path().join("admin.key");
    let server =
        Server::start_with(&data.path().join("store"), &["--admin-key-file", key_file.to_str().unwrap()]);
    let admin = std::fs::read_to_string(&key_file).unwrap().trim().to_owned();
    let make = |body: &Value| call(&server, &admin, "POST", "/v1/keys", body).json();
    let work = |key: &Value| {
        let mut command = Command::new(TIDEWHEEL);
        command.args(["worker", "run", "--queue", "q", "--", "true"]);
        command.env("TIDEWHEEL_URL", server.url()).env("TIDEWHEEL_KEY", key["secret"].as_str().unwrap());
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let connected = |count: usize| {
        until(&format!("{count} workers"), || {
            let workers = call(&server, &admin, "GET", "/v1/workers", &Value::Null).json();
            (workers["items"].as_array().unwrap().len() == count).then_some(())
        });
    };
    let revoked = make(&json!({"role": "worker"}));
    let mut worker = work(&revoked);
    connected(1);
    let path = format!("/v1/keys/{}", revoked["id"].as_str().unwrap());
    assert_eq!(call(&server, &admin, "DELETE", &path, &Value::Null).status, 204);
    let ended = until("the worker to be turned out", || worker.try_wait().unwrap());
    assert_eq!(ended.code(), Some(1), "refused for good");
    let mut worker = work(&make(&json!({"role": "worker", "expires_in": "5s"})));
    let ended = until("the worker whose key ends to be turned out", || worker.try_wait().unwrap());
    assert_eq!(ended.code(), Some(1));
}

#[test]
fn a_key_is_made_once_under_an_idempotency_key() {
    let data = TempDir::new().unwrap();
    let key_file = data.path().join("admin.key");
    let server =
        Server::start_with(&data.path().join("store"), &["--admin-key-file", key_file.to_str().unwrap()]);
    let admin = std::fs::read_to_string(&key_file).unwrap().trim().to_owned();
    let make = |role: &str, under: &str| {
        let body = json!({"role": role});
        call_under(&server, &admin, "POST", "/v1/keys", &body, &[("idempotency-key", under)])
    };
    let first = make("viewer", "k1");
    assert_eq!(first.status, 201, "{}", first.text());
    assert!(first.json()["secret"].as_str().unwrap().starts_with("twk_"));
    let again = make("viewer", "k1");
    assert_eq!((again.status, &again.json()["id"]), (200, &first.json()["id"]));
    assert!(again.json().get("secret").is_none(), "it is shown once");
    assert_eq!(make("producer", "k1").status, 409);
    assert_eq!(make("viewer", "k2").status, 201);
    let listed = call(&server, &admin, "GET", "/v1/keys", &Value::Null).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}

#[test]
fn no_secret_reaches_the_log() {
    const PASSWORD: &str = "pw-7Xq2mV9sT4";
    const WEBHOOK: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let data = TempDir::new().unwrap();
    let postgres = Postgres::start();
    let signer = Signer::es256();
    let file = |name: &str, text: &str| {
        let path = data.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let store_file =
        file("store.url", &format!("{}\n", postgres.url().replace('@', &format!(":{PASSWORD}@"))));
    let keys_file = file("keys.json", &set(&[signer.shown("k")]));
    let admin_file = data.path().join("admin.key").to_str().unwrap().to_owned();
    let server = start(
        &data,
        &["--store-file", &store_file, "--oidc-keys-file", &keys_file, "--admin-key-file", &admin_file],
    );
    let admin = std::fs::read_to_string(&admin_file).unwrap().trim().to_owned();
    // A busy machine's database may make the server ask for patience.
    let patiently = |bearer: &str, method: &str, path: &str, body: &Value, status: u16| {
        until(&format!("{method} {path} to be {status}"), || {
            Some(call(&server, bearer, method, path, body)).filter(|answer| answer.status == status)
        })
    };
    let made = patiently(&admin, "POST", "/v1/keys", &json!({"role": "producer"}), 201).json();
    let key = made["secret"].as_str().unwrap().to_owned();
    let token = signer.token("k", &claims(&json!(["operator"])));
    let over = signer.token("k", &but("exp", json!(seconds_from_now(-60))));
    let path = "/v1/tenants/acme/webhook-secrets";
    patiently(&admin, "POST", path, &json!({"secret": WEBHOOK}), 201);
    for (bearer, status) in [(&admin, 200), (&key, 200), (&token, 200), (&over, 401)] {
        patiently(bearer, "GET", "/v1/jobs", &Value::Null, status);
    }
    let wrong = "twk_wrong-but-still-nobodys-business";
    assert_eq!(call(&server, wrong, "GET", "/v1/jobs", &Value::Null).status, 401);
    // What the database's driver says of a lost connection may name it.
    postgres.crash();
    patiently(&admin, "GET", "/v1/jobs", &Value::Null, 503);
    let (_, log) = server.terminate();
    assert!(log.len() > 10, "debug lines are there: {log:?}");
    let secrets = [&admin[4..], &key[4..], &token, &over, PASSWORD, &WEBHOOK[6..], &wrong[4..]];
    for line in &log {
        for secret in secrets {
            assert!(!line.contains(secret), "{line}");
        }
        assert!(!token.split('.').any(|part| part.len() > 20 && line.contains(part)), "{line}");
    }

    let config = file("tidewheel.toml", &format!("store = \"postgres://t:{PASSWORD}@127.0.0.1/t\"\n"));
    let refused = Command::new(TIDEWHEEL).args(["serve", "--config", &config]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("store_file") && !said.contains(PASSWORD), "{said}");
}
