//! Ten thousand connections that do nothing useful: those that do go on, memory stays bounded, and one connection too
//! many is told so.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tempfile::TempDir;
use tidewheel_core::limits::CONNECTIONS_COUNT_MAX;

use crate::harness::{Answer, PATIENCE, Server, now_ms, parse, request, until};

/// Set in the process that has the crowd.
const ALONE: &str = "TIDEWHEEL_TEST_CROWD";
const WANTED: usize = 10_000;
/// Fewer prove nothing.
const COUNT_MIN: usize = 500;
/// How long connections may be made until all are taken to be there: those without an answer are closed after a minute.
const TOGETHER_MS_MAX: i64 = 50_000;
/// What the test itself needs besides the crowd.
const DESCRIPTORS_SPARE: usize = 300;
/// Descriptors the server keeps for its files and its pushes, so that it takes fewer connections.
const SERVER_SPARE: usize = 2_048;
/// What a connection may cost the server: a head of at most 32 KiB that is being read, and as much again.
const CONNECTION_BYTES_MAX: u64 = 64 * 1_024;
/// What the jobs and the server's own doings may cost meanwhile.
const OTHER_BYTES_MAX: u64 = 64 * 1_024 * 1_024;

/// How many descriptors this process may have, raised as far as it goes. The server inherits the limit.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    allowed.map_or(usize::MAX, |count| usize::try_from(count).unwrap())
}

fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect_timeout(&server.address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn is_well(server: &Server) {
    assert_eq!(server.request("GET", "/healthz", "").status, 200);
}

/// Takes all seats that are left, and then some; gives the first refusal.
fn one_too_many(server: &Server, crowd: &mut Vec<TcpStream>, seats: usize) -> Option<Answer> {
    while crowd.len() + 50 < seats {
        crowd.push(connect(server));
    }
    (0..200).find_map(|_| {
        let mut stream = connect(server);
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).unwrap();
        if begun == *b"HTTP/1.1 200" {
            crowd.push(stream);
            return None;
        }
        let mut answer = begun.to_vec();
        stream.read_to_end(&mut answer).unwrap();
        parse(&answer)
    })
}

fn check_refusal(refused: &Answer) {
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.header("connection"), Some("close"), "{}", refused.head);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"), "{}", refused.head);
    assert_eq!(refused.json()["code"], "overloaded");
}

/// In a process of its own: it takes nearly all descriptors that one may have, and the tests beside it need some.
#[test]
fn ten_thousand_idle_and_dripping_connections_hold_up_nobody_and_one_too_many_is_told_so() {
    if std::env::var_os(ALONE).is_some() {
        return a_crowd_holds_up_nobody();
    }
    let own_name =
        "crowd::ten_thousand_idle_and_dripping_connections_hold_up_nobody_and_one_too_many_is_told_so";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", own_name, "--nocapture", "--test-threads", "1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    println!("{said}");
}

fn a_crowd_holds_up_nobody() {
    let allowed = descriptors();
    let seats = CONNECTIONS_COUNT_MAX.min(allowed.saturating_sub(SERVER_SPARE));
    let mut count = WANTED.min(seats.saturating_sub(100)).min(allowed.saturating_sub(DESCRIPTORS_SPARE));
    if count < WANTED {
        eprintln!("only {allowed} descriptors are allowed: {count} connections instead of {WANTED}");
    }
    assert!(count >= COUNT_MIN, "with {allowed} descriptors this proves nothing");
    while !hold_up_nobody(count, seats) {
        eprintln!("{count} connections take too long here: half as many");
        count /= 2;
        assert!(count >= COUNT_MIN, "on so slow a machine this proves nothing");
    }
}

/// Whether so many connections could be made while all of them were there; if so, they held up nobody.
fn hold_up_nobody(count: usize, seats: usize) -> bool {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    is_well(&server);
    let before = resident_bytes(&server);

    let (over, submitted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (address, body) = (server.address, json!({"type": "t", "delay": "1h"}).to_string());
    let mut crowd = Vec::with_capacity(seats);
    let (began_ms, mut are_open) = (now_ms(), true);
    std::thread::scope(|scope| {
        let submitting = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let answer = request(address, "POST", "/v1/jobs", &[], body.as_bytes()).unwrap();
                assert_eq!(answer.status, 201, "{}", answer.text());
                submitted.fetch_add(1, Ordering::SeqCst);
            }
        });
        for index in 0..count {
            let mut stream = connect(&server);
            if index % 2 == 1 {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nSlow: ").unwrap();
            }
            crowd.push(stream);
        }
        for _ in 0..3 {
            let so_far = submitted.load(Ordering::SeqCst);
            are_open &= crowd.iter_mut().skip(1).step_by(2).all(|stream| stream.write_all(b"x").is_ok());
            is_well(&server);
            until("more jobs are taken", || (submitted.load(Ordering::SeqCst) > so_far).then_some(()));
        }
        over.store(true, Ordering::SeqCst);
        submitting.join().unwrap();
    });
    if now_ms() - began_ms > TOGETHER_MS_MAX {
        return false;
    }
    assert!(are_open, "a dripping client was shut out");
    let grown = resident_bytes(&server).saturating_sub(before);
    let bound = u64::try_from(count).unwrap() * CONNECTION_BYTES_MAX + OTHER_BYTES_MAX;
    eprintln!("{count} connections, {} bytes each at most", grown / u64::try_from(count).unwrap());
    assert!(grown < bound, "{count} connections cost {grown} bytes");

    if let Some(refused) = one_too_many(&server, &mut crowd, seats) {
        check_refusal(&refused);
        // A dripping client that comes to its end is answered like any other: the newest, which has the most time left.
        let dripping = &mut crowd[(count - 2) | 1];
        dripping.write_all(b"\r\n\r\n").unwrap();
        let mut begun = [0; 12];
        dripping.read_exact(&mut begun).unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200");
    } else {
        assert!(now_ms() - began_ms > TOGETHER_MS_MAX, "connections beyond the limit are not refused");
        eprintln!("seats fall free before all are taken here: one too many was not tried");
    }

    drop(crowd);
    until("the seats are free again", || {
        let mut stream = connect(&server);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        parse(&answer).filter(|answer| answer.status == 200).map(drop)
    });
    let stored = server.get("/v1/jobs/count")["count"].as_u64().unwrap();
    assert_eq!(stored, u64::try_from(submitted.load(Ordering::SeqCst)).unwrap(), "nothing submitted is lost");
    true
}
