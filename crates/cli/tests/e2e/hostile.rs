//! Bad input from outside: the right status, a helpful problem document, nothing lost, and a server that goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness;
use crate::harness::target::{Target, answer};
use crate::harness::{Answer, Server, instant, now_ms, request, until};

fn start() -> (TempDir, Server) {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    (data, server)
}

fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{}", answer.head);
    let problem = answer.json();
    assert_eq!(problem["code"], code, "{problem}");
    assert_eq!(problem["status"], status);
    assert!(
        problem["type"].is_string() && problem["title"].is_string() && problem["detail"].is_string(),
        "{problem}"
    );
    problem
}

/// A JSON string payload that is `bytes` long as sent.
fn payload(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

#[test]
fn payloads_at_the_limit_are_taken_and_one_byte_more_is_refused() {
    let (_data, server) = start();
    let body = |bytes| format!(r#"{{"type": "t", "delay": "1h", "payload": {}}}"#, payload(bytes));
    let taken = server.request("POST", "/v1/jobs", &body(65_536));
    assert_eq!(taken.status, 201, "{}", taken.text());
    let stored = server.get(&format!("/v1/jobs/{}", taken.json()["id"].as_str().unwrap()));
    assert_eq!(stored["payload"].as_str().unwrap().len(), 65_534);
    refused(&server.request("POST", "/v1/jobs", &body(65_537)), 413, "payload_too_large");
    let huge = server.request("POST", "/v1/jobs", &body(50_000_000));
    assert_eq!(huge.status, 413);
}

/// The answer does not wait for the body, and a client that sends all of it before it looks is listened to meanwhile.
#[test]
fn what_says_that_it_is_too_large_is_refused_at_once_and_read_to_its_end() {
    let (_data, server) = start();
    /// A little more than is taken.
    const BYTES: usize = 70_000_000;
    /// How long the server listens to what it does not take.
    const LISTENS_MS: i64 = 10_000;
    let chunk = vec![b' '; 1 << 20];
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(harness::PATIENCE)).unwrap();
    let head = format!("POST /v1/jobs/batch HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {BYTES}\r\n\r\n");
    let began_ms = now_ms();
    stream.write_all(head.as_bytes()).unwrap();
    let mut raw = vec![0; 4_096];
    let count = stream.read(&mut raw).unwrap();
    let answer = harness::parse(&raw[..count]).expect("a whole answer");
    refused(&answer, 413, "body_too_large");
    let mut left = BYTES;
    while left > 0 {
        let count = left.min(chunk.len());
        if let Err(error) = stream.write_all(&chunk[..count]) {
            assert!(now_ms() - began_ms >= LISTENS_MS, "it is read: {error}");
            return;
        }
        left -= count;
    }
}

#[test]
fn malformed_and_hostile_requests_get_precise_problems() {
    let (_data, server) = start();
    let post = |body: &str| server.request("POST", "/v1/jobs", body);
    refused(&post("{"), 400, "malformed_json");
    refused(&post(""), 400, "malformed_json");
    refused(&post("\u{0}"), 400, "malformed_json");
    let deep = format!(r#"{{"type": "t", "payload": {}{}}}"#, "[".repeat(30_000), "]".repeat(30_000));
    assert!(matches!(post(&deep).status, 400 | 422), "{}", post(&deep).text());
    let unknown = post(r#"{"type": "t", "pirority": "high"}"#);
    assert!(matches!(unknown.status, 400 | 422));
    assert!(unknown.text().contains("pirority") && unknown.text().contains("priority"), "{}", unknown.text());
    let many = post(r#"{"type": 7, "priority": "urgent", "delay": "-5s", "labels": []}"#);
    assert!(matches!(many.status, 400 | 422));
    assert!(many.json()["errors"].as_array().unwrap().len() >= 4, "all faults at once: {}", many.text());
    for (field, value) in [
        ("run_at", json!("2020-01-01T00:00:00Z")),
        ("run_at", json!(instant(100 * 366 * 86_400_000))),
        ("run_at", json!("2016-12-31T23:59:60Z")),
        ("run_at", json!("tomorrow")),
        ("type", json!("a\r\nX-Evil: 1")),
        ("type", json!("t".repeat(129))),
        ("queue", json!("../../etc/passwd\u{0}")),
        ("idempotency_key", json!("k".repeat(256))),
        ("idempotency_key", json!("a\nb")),
        ("target_url", json!("file:///etc/passwd")),
        ("target_url", json!("http://169.254.169.254/latest/meta-data")),
        ("target_url", json!("http://user:pass@example.com/")),
        ("max_attempts", json!(0)),
        ("max_attempts", json!(1e9)),
    ] {
        let mut body = json!({"type": "t"});
        body[field] = value.clone();
        let answer = server.post("/v1/jobs", &body);
        assert!(matches!(answer.status, 400 | 422), "{field} {value}: {} {}", answer.status, answer.text());
        assert!(answer.text().contains(field), "{field} {value}: {}", answer.text());
    }
    assert_eq!(server.request("GET", "/v1/jobs/job_nonsense", "").status, 404);
    assert_eq!(server.request("GET", "/v1/nowhere", "").status, 404);
    assert_eq!(server.request("DELETE", "/v1/jobs", "").status, 405);
    assert_eq!(server.get("/v1/jobs/count")["count"], 0, "nothing of all that was stored");
}

#[test]
fn a_batch_is_taken_whole_or_not_at_all_unless_asked_otherwise() {
    let (_data, server) = start();
    let good = json!({"type": "t", "delay": "1h"});
    let bad = json!({"type": "t", "delay": "soon"});
    let mixed = json!([good, bad, good]);
    let answer = server.post("/v1/jobs/batch", &mixed);
    assert!(matches!(answer.status, 400 | 422), "{}", answer.text());
    assert!(answer.text().contains("/1/delay"), "{}", answer.text());
    assert_eq!(server.get("/v1/jobs/count")["count"], 0);
    let partial = server.post("/v1/jobs/batch?partial=true", &mixed);
    assert!(partial.status < 300, "{}", partial.text());
    assert_eq!(server.get("/v1/jobs/count")["count"], 2);
    let lines = format!("{good}\n{good}\n\n{good}\n");
    let ndjson = request(
        server.address,
        "POST",
        "/v1/jobs/batch",
        &[("content-type", "application/x-ndjson")],
        lines.as_bytes(),
    )
    .unwrap();
    assert_eq!((ndjson.status, &ndjson.json()["count"]), (201, &json!(3)), "{}", ndjson.text());
    let wrapped = server.post("/api/v1/jobs/batch", &json!({"jobs": [good, good]}));
    assert_eq!((wrapped.status, wrapped.json()["jobs"].as_array().unwrap().len()), (201, 2));
    let many: Vec<&Value> = vec![&good; 10_001];
    assert_eq!(server.post("/v1/jobs/batch", &json!(many)).status, 413);
}

#[test]
fn one_key_makes_one_job_whoever_comes_first() {
    let (_data, server) = start();
    let address = server.address;
    let body = json!({"type": "t", "delay": "1h", "idempotency_key": "only-one"}).to_string();
    let answers: Vec<(u16, String)> = (0..50)
        .map(|_| {
            let body = body.clone();
            std::thread::spawn(move || {
                let answer = request(address, "POST", "/v1/jobs", &[], body.as_bytes()).unwrap();
                (answer.status, answer.json()["id"].as_str().unwrap().to_owned())
            })
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(answers.iter().filter(|(status, _)| *status == 201).count(), 1);
    assert!(answers.iter().all(|(status, id)| *status <= 201 && *id == answers[0].1));
    let other = json!({"type": "other", "delay": "1h", "idempotency_key": "only-one"});
    assert_eq!(server.post("/v1/jobs", &other).status, 409);
}

#[test]
fn slow_and_silent_clients_do_not_keep_others_out() {
    let (_data, server) = start();
    let silent: Vec<TcpStream> = (0..1_500).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let dripping: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream
                .write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
                .unwrap();
            stream
        })
        .collect();
    server.submit(&json!({"type": "t", "delay": "1h"}));
    drop((silent, dripping));
    server.submit(&json!({"type": "t", "delay": "1h"}));
}

#[test]
fn endless_and_huge_answers_of_a_target_cost_no_more_than_their_bound() {
    let (_data, server) = start();
    let target = Target::answering(|_| answer(200, "", &"x".repeat(30_000_000)));
    let ids: Vec<String> =
        (0..20).map(|_| server.submit(&json!({"type": "t", "target_url": target.url("/")}))).collect();
    for id in &ids {
        let job = server.until_state(id, "succeeded");
        assert!(job["result"].to_string().len() < 10_000);
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak_kb: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(peak_kb < 600_000, "600 MB of answers were kept: {peak_kb} kB");
}

/// A full disk refuses new jobs, keeps the old ones, and recovers when there is room again. Needs the right to
/// mount a small file system; says so and stops where it has not.
#[test]
fn a_full_disk_refuses_new_jobs_and_loses_none() {
    let data = TempDir::new().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"])
        .arg(data.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        println!("not allowed to mount a file system here: a full disk was not tried");
        return;
    }
    let result = std::panic::catch_unwind(|| fill(&data));
    assert!(Command::new("umount").arg(data.path()).status().unwrap().success());
    result.unwrap();
}

fn fill(data: &TempDir) {
    let folder = data.path().join("store");
    let server = Server::start(&folder);
    let first = server.submit(&json!({"type": "t", "delay": "1h", "payload": "kept"}));
    let ballast = data.path().join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 1 << 16]).is_ok() {}
    let batch = json!(vec![json!({"type": "t", "delay": "1h", "payload": "x".repeat(60_000)}); 100]);
    let full = until("the server to notice", || {
        let answer = server.post("/v1/jobs/batch", &batch);
        (answer.status != 201).then_some(answer)
    });
    assert_eq!(full.status, 503, "{}", full.text());
    assert!(full.header("retry-after").is_some(), "{}", full.head);
    assert_eq!(server.get(&format!("/v1/jobs/{first}"))["payload"], "kept");
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    let count = server.get("/v1/jobs/count")["count"].clone();
    server.kill();
    let server = Server::start(&folder);
    assert_eq!(server.get("/v1/jobs/count")["count"], count);
    assert_eq!(server.get(&format!("/v1/jobs/{first}"))["payload"], "kept");
    server.submit(&json!({"type": "t", "delay": "1h"}));
}

#[test]
fn half_a_request_is_answered_or_closed_and_nothing_is_stored() {
    let (_data, server) = start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
        .write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20\r\n\r\n{\"type\": \"t\"")
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).ok();
    assert_eq!(server.get("/v1/jobs/count")["count"], 0);
}
