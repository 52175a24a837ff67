//! Keys, signatures and limits, from outside: a real server, as an operator starts it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_core::webhook::{Headers, Secret, TOLERANCE_S, Unverified, verify};

use crate::harness::target::{Hit, Target, answer};
use crate::harness::{Answer, Server, TIDEWHEEL, now_ms, parse, request};

fn verified(hit: &Hit, secret: &str) -> Result<(), Unverified> {
    let headers = Headers {
        id: Some(hit.header("webhook-id")),
        timestamp: Some(hit.header("webhook-timestamp")),
        signature: Some(hit.header("webhook-signature")),
    };
    verify(&[Secret::parse(secret).unwrap()], headers, &hit.body, now_ms() / 1_000, TOLERANCE_S)
}

#[test]
fn pushes_are_signed_and_both_secrets_sign_while_one_is_replaced() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let target = Target::answering(|hit| match hit.header("tidewheel-attempt") {
        "1" => answer(500, "", "again"),
        _ => answer(200, "", "fine"),
    });
    const PATH: &str = "/v1/tenants/default/webhook-secrets";
    let old = server.get(&format!("{PATH}/default"))["secret"].as_str().unwrap().to_owned();
    let push = |payload: &str, hits: usize| {
        let url = target.url("/hook");
        let body = format!(
            r#"{{"type": "t", "payload": {payload}, "target_url": "{url}", "retry": {{"policy": "fixed", "base": "10ms"}}}}"#
        );
        let answer = server.request("POST", "/v1/jobs", &body);
        assert_eq!(answer.status, 201, "{}", answer.text());
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        server.until_state(&id, "succeeded");
        let all = target.until_hits(hits);
        let own: Vec<_> = all.into_iter().filter(|hit| hit.header("webhook-id") == id).collect();
        assert_eq!(own.len(), 2, "both attempts have the job's id");
        own
    };
    for hit in push(r#"{"a":  1.50, "ü": [] }"#, 2) {
        assert_eq!(verified(&hit, &old), Ok(()), "{hit:?}");
        let mut tampered = hit.clone();
        tampered.body.push(b' ');
        assert_eq!(verified(&tampered, &old), Err(Unverified::NoMatch));
    }
    let new = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    assert_eq!(server.post(PATH, &json!({"secret": new})).status, 201);
    for hit in push("1", 4) {
        assert_eq!((verified(&hit, &old), verified(&hit, new)), (Ok(()), Ok(())));
    }
    assert_eq!(server.request("DELETE", &format!("{PATH}/default"), "").status, 204);
    for hit in push("2", 6) {
        assert_eq!((verified(&hit, &old), verified(&hit, new)), (Err(Unverified::NoMatch), Ok(())));
    }
    server.kill();
    let server = Server::start(data.path());
    assert_eq!(
        server.request("GET", &format!("{PATH}/default"), "").status,
        404,
        "a removed secret stays removed"
    );
}

struct Closed {
    data: TempDir,
    server: Server,
    key_file: PathBuf,
    admin: String,
}

impl Closed {
    fn start(flags: &[&str]) -> Self {
        let data = TempDir::new().unwrap();
        let key_file = data.path().join("admin.key");
        let server = start(data.path(), &key_file, flags);
        let admin = std::fs::read_to_string(&key_file).unwrap().trim().to_owned();
        Self { data, server, key_file, admin }
    }

    fn call(&self, key: &str, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let header = format!("Bearer {key}");
        request(self.server.address, method, path, &[("authorization", &header)], body.as_bytes()).unwrap()
    }

    fn cli(&self, key: &str, args: &[&str]) -> Output {
        let mut command = Command::new(TIDEWHEEL);
        command.args(args).env("TIDEWHEEL_URL", self.server.url()).env("TIDEWHEEL_KEY", key);
        command.output().unwrap()
    }
}

fn start(data: &Path, key_file: &Path, flags: &[&str]) -> Server {
    let mut all = vec!["--admin-key-file", key_file.to_str().unwrap(), "--log-level", "debug"];
    all.extend(flags);
    Server::start_with(&data.join("store"), &all)
}

#[test]
fn an_admin_key_file_is_made_and_closes_the_server() {
    let closed = Closed::start(&[]);
    let mode = std::fs::metadata(&closed.key_file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(closed.admin.starts_with("twk_"));
    let refused = closed.server.request("GET", "/v1/jobs", "");
    assert_eq!(refused.status, 401, "{}", refused.text());
    assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer"));
    assert_eq!(closed.server.request("GET", "/healthz", "").status, 200);
    assert_eq!(closed.call(&closed.admin, "GET", "/v1/jobs", &Value::Null).status, 200);
    let to_itself = json!({"type": "t", "target_url": "http://127.0.0.1:9/"});
    let refused = closed.call(&closed.admin, "POST", "/v1/jobs", &to_itself);
    assert_eq!(refused.json()["code"], "invalid_target", "{}", refused.text());
    let Closed { data, server, key_file, admin } = closed;
    server.kill();
    let server = start(data.path(), &key_file, &[]);
    let closed = Closed { data, server, key_file, admin };
    assert_eq!(
        closed.call(&closed.admin, "GET", "/v1/jobs", &Value::Null).status,
        200,
        "the file is read again"
    );
}

#[test]
fn keys_are_made_used_and_revoked_on_the_command_line_and_never_logged() {
    let closed = Closed::start(&[]);
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned();
    let made = closed.cli(&closed.admin, &["key", "create", "--role", "producer", "--tenant", "acme"]);
    assert!(made.status.success(), "{made:?}");
    let key = text(&made);
    assert!(key.starts_with("twk_"), "{made:?}");
    let submitted = closed.cli(&key, &["job", "submit", "ping", "--delay", "1h", "-o", "json"]);
    assert!(submitted.status.success(), "{submitted:?}");
    let refused = closed.cli(&key, &["key", "list"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let set = closed.cli(&closed.admin, &["tenant", "set", "acme", "--weight", "3", "--submit-rate", "5"]);
    assert!(set.status.success(), "{set:?}");
    let set = closed.cli(&closed.admin, &["tenant", "set", "acme", "--waiting", "7"]);
    assert!(set.status.success(), "{set:?}");
    let shown: Value =
        serde_json::from_str(&text(&closed.cli(&key, &["tenant", "get", "acme", "-o", "json"]))).unwrap();
    let limits = &shown["limits"];
    assert_eq!(
        (&shown["weight"], &limits["submit_rate"], &limits["waiting"]),
        (&json!(3), &json!(5), &json!(7))
    );
    let listed = text(&closed.cli(&closed.admin, &["key", "list"]));
    let id = listed.split_whitespace().find(|word| word.starts_with("key_")).unwrap().to_owned();
    assert!(!listed.contains(&key), "{listed}");
    assert!(closed.cli(&closed.admin, &["key", "revoke", &id]).status.success());
    assert_eq!(closed.cli(&key, &["job", "list"]).status.code(), Some(1));
    let (_, log) = closed.server.terminate();
    assert!(log.len() > 5, "debug lines are there: {log:?}");
    for line in log {
        assert!(!line.contains(&key[4..]) && !line.contains(&closed.admin[4..]), "{line}");
    }
}

#[test]
fn whoever_guesses_keys_is_slowed_and_those_who_have_one_go_on() {
    let closed = Closed::start(&[]);
    assert_eq!(closed.call(&closed.admin, "GET", "/v1/jobs", &Value::Null).status, 200);
    let tries: Vec<_> =
        (0..200).map(|n| closed.call(&format!("twk_{n}"), "GET", "/v1/jobs", &Value::Null)).collect();
    let slowed: Vec<_> = tries.iter().filter(|answer| answer.status == 429).collect();
    assert!(tries.iter().all(|answer| matches!(answer.status, 401 | 429)));
    assert!(slowed.len() > 50, "{} of 200 were slowed", slowed.len());
    assert!(slowed.iter().all(|answer| answer.header("retry-after").is_some()));
    assert_eq!(closed.call(&closed.admin, "GET", "/v1/jobs", &Value::Null).status, 200);
}

#[test]
fn a_server_that_others_can_reach_needs_keys() {
    let data = TempDir::new().unwrap();
    let store = data.path().join("store");
    let output = Command::new(TIDEWHEEL)
        .args(["serve", "--listen", "0.0.0.0:0", "--data", store.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs keys"), "{output:?}");
    let key_file = data.path().join("admin.key");
    let mut child = Command::new(TIDEWHEEL)
        .args(["serve", "--listen", "0.0.0.0:0", "--data", store.to_str().unwrap()])
        .args(["--admin-key-file", key_file.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let port = said
        .filter_map(|line| line.split_once("listening on http://0.0.0.0:").map(|(_, port)| port.to_owned()))
        .find_map(|port| port.trim().parse::<u16>().ok())
        .unwrap();
    let refused = request(([127, 0, 0, 1], port).into(), "GET", "/v1/jobs", &[], b"");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(refused.unwrap().status, 401);
}

#[test]
fn a_server_without_keys_answers_to_no_name_of_another_site() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    let port = server.address.port();
    let ask = |method: &str, path: &str, host: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let body = if method == "POST" { r#"{"type": "t", "delay": "1h"}"# } else { "" };
        let length = body.len();
        let origin = format!("origin: http://{host}\r\nsec-fetch-site: same-origin\r\n");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{origin}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut raw = Vec::new();
        stream.read_to_end(&mut raw).unwrap();
        parse(&raw).unwrap()
    };
    for host in
        [format!("evil.example:{port}"), "evil.example".to_owned(), "127.0.0.1.evil.example".to_owned()]
    {
        for (method, path) in
            [("POST", "/v1/jobs"), ("GET", "/v1/keys"), ("GET", "/api/v1/jobs"), ("GET", "/metrics")]
        {
            let refused = ask(method, path, &host);
            assert_eq!(refused.status, 403, "{method} {path} as {host}: {}", refused.text());
            assert_eq!(refused.json()["code"], "cross_site_request");
            assert!(refused.text().contains("localhost"), "it says what to do: {}", refused.text());
        }
        assert_eq!(ask("GET", "/healthz", &host).status, 200);
    }
    for host in ["localhost".to_owned(), format!("127.0.0.1:{port}"), format!("a.localhost:{port}")] {
        assert_eq!(ask("POST", "/v1/jobs", &host).status, 201, "{host}");
        assert_eq!(ask("GET", "/v1/keys", &host).status, 200, "{host}");
    }
}
