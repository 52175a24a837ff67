//! kill -9 and SIGTERM: nothing acknowledged is lost, nothing is early, keys are stable, attempts are counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness;
use crate::harness::target::{Hit, Target, answer};
use crate::harness::{Server, instant, now_ms, request, until};

/// How often the server is killed. The long form: TIDEWHEEL_CRASHES=50.
fn crashes() -> usize {
    std::env::var("TIDEWHEEL_CRASHES").ok().and_then(|count| count.parse().ok()).unwrap_or(6)
}

/// A job the server has acknowledged.
struct Acked {
    id: String,
    run_at_ms: i64,
}

/// Submits over several connections until told to stop, repeating each submission with its key until it is
/// acknowledged, as a careful client does. Submissions whose answer was lost are so acknowledged, too.
fn load(
    address: Arc<Mutex<Option<SocketAddr>>>,
    stop: Arc<AtomicBool>,
    acked: Arc<Mutex<BTreeMap<String, Acked>>>,
    url: String,
    client: usize,
) {
    for number in 0.. {
        let key = format!("client-{client}-job-{number}");
        let run_at = instant([0, 30, 150, 700][number % 4]);
        let body = json!({
            "type": "t", "target_url": url, "run_at": run_at, "idempotency_key": key, "payload": {"n": number},
            "retry": {"policy": "fixed", "base": "20ms", "max_attempts": 3}
        })
        .to_string();
        loop {
            let current = *address.lock().unwrap();
            let answer = current.and_then(|a| request(a, "POST", "/v1/jobs", &[], body.as_bytes()).ok());
            if let Some(answer) = answer.filter(|answer| answer.status < 300) {
                let job: Value = answer.json();
                let id = job["id"].as_str().unwrap().to_owned();
                // The time asked for: a repeat is answered with the time of the next attempt.
                let at: tidewheel_core::time::Timestamp = run_at.parse().unwrap();
                acked.lock().unwrap().insert(key.clone(), Acked { id, run_at_ms: at.as_ms() });
                break;
            }
            if stop.load(Ordering::SeqCst) {
                return;
            }
            std::thread::yield_now();
        }
        if stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

#[test]
fn killed_again_and_again_under_load_it_loses_nothing() {
    let data = TempDir::new().unwrap();
    let target = Target::answering(|hit| {
        // Every fifth first attempt fails, so that retries are in flight when the server dies.
        let number: Value = serde_json::from_slice(&hit.body).unwrap();
        let fails = number["n"].as_u64().unwrap().is_multiple_of(5) && hit.header("tidewheel-attempt") == "1";
        answer(if fails { 500 } else { 200 }, "", "")
    });
    let acked = Arc::new(Mutex::new(BTreeMap::new()));
    let address = Arc::new(Mutex::new(None));
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let (address, stop, acked, url) =
                (Arc::clone(&address), Arc::clone(&stop), Arc::clone(&acked), target.url("/"));
            std::thread::spawn(move || load(address, stop, acked, url, client))
        })
        .collect();
    for crash in 0..crashes() {
        let server = Server::start(data.path());
        *address.lock().unwrap() = Some(server.address);
        let (seen, wanted) = (target.count(), 40 + 37 * crash % 90);
        until("some work to be done", || (target.count() >= seen + wanted).then_some(()));
        server.kill();
        *address.lock().unwrap() = None;
    }
    let server = Server::start(data.path());
    *address.lock().unwrap() = Some(server.address);
    let seen = target.count();
    until("work after the last start", || (target.count() > seen + 20).then_some(()));
    stop.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    check(&server, &target, &acked.lock().unwrap());
}

fn check(server: &Server, target: &Target, acked: &BTreeMap<String, Acked>) {
    assert!(acked.len() > 100, "the load was too small to prove anything: {}", acked.len());
    for job in acked.values() {
        server.until_state(&job.id, "succeeded");
    }
    check_audit(server, acked);
    let mut by_job: BTreeMap<String, Vec<Hit>> = BTreeMap::new();
    for hit in target.hits() {
        by_job.entry(hit.header("tidewheel-job-id").to_owned()).or_default().push(hit);
    }
    let ids: BTreeMap<&str, &str> = acked.iter().map(|(key, job)| (job.id.as_str(), key.as_str())).collect();
    assert_eq!(ids.len(), acked.len(), "one key made two jobs, or two keys one");
    for (key, job) in acked {
        let hits = by_job.get(&job.id).unwrap_or_else(|| panic!("{key} succeeded without a delivery"));
        let mut last = (0, 0);
        for hit in hits {
            assert!(hit.at_ms >= job.run_at_ms, "{key} was early by {} ms", job.run_at_ms - hit.at_ms);
            assert_eq!(hit.header("idempotency-key"), key, "the key is stable");
            let attempt: u32 = hit.header("tidewheel-attempt").parse().unwrap();
            let token: u64 = hit.header("tidewheel-fencing-token").parse().unwrap();
            assert!(
                (attempt, token) > last && token > last.1,
                "{key}: attempt {attempt} token {token} after {last:?}"
            );
            last = (attempt, token);
        }
    }
    let unknown: Vec<&String> = by_job.keys().filter(|id| !ids.contains_key(id.as_str())).collect();
    assert!(unknown.len() <= 4, "only a client's last, unanswered submission may be unknown: {unknown:?}");
}

#[test]
fn what_fell_due_while_it_was_down_starts_when_it_is_back() {
    let target = Target::ok();
    let mut lead_ms = 500;
    // On a busy machine the time may come before the server is killed; then it is given more.
    let (data, ids, due) = loop {
        let data = TempDir::new().unwrap();
        let server = Server::start(data.path());
        let due = now_ms() + lead_ms;
        let job =
            json!({"type": "t", "target_url": target.url("/"), "delay": format!("{}ms", lead_ms + 100)});
        let answer = server.post("/v1/jobs/batch", &json!(vec![job; 50])).json();
        server.kill();
        if now_ms() < due {
            let id = |job: &Value| job["id"].as_str().unwrap().to_owned();
            break (data, answer["jobs"].as_array().unwrap().iter().map(id).collect::<Vec<_>>(), due);
        }
        lead_ms *= 4;
    };
    let before = target.count();
    until("the jobs to fall due", || (now_ms() > due + lead_ms + 100).then_some(()));
    let server = Server::start(data.path());
    for id in &ids {
        server.until_state(id, "succeeded");
    }
    assert_eq!(target.count() - before, 50, "each once");
}

#[test]
fn sigterm_lets_attempts_under_way_finish_and_the_rest_wait() {
    let data = TempDir::new().unwrap();
    let (entered, inside) = std::sync::mpsc::channel();
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let target = Target::answering(move |_| {
        entered.send(()).unwrap();
        gate.lock().unwrap().recv().unwrap();
        answer(200, "", "")
    });
    let server = Server::start(data.path());
    let id = server.submit(&json!({"type": "t", "target_url": target.url("/"), "timeout": "1m"}));
    inside.recv().unwrap();
    let later = server.submit(&json!({"type": "t", "queue": "q", "delay": "1h"}));
    let stopping = std::thread::spawn(move || server.terminate());
    release.send(()).unwrap();
    let (code, log) = stopping.join().unwrap();
    assert_eq!(code, Some(0), "{log:#?}");
    let server = Server::start(data.path());
    assert_eq!(server.get(&format!("/v1/jobs/{id}"))["state"], "succeeded");
    assert_eq!(server.get(&format!("/v1/jobs/{later}"))["state"], "scheduled");
    assert_eq!(target.count(), 1, "the attempt was not repeated");
}

#[test]
fn a_second_server_on_the_same_folder_is_refused_with_advice() {
    let data = TempDir::new().unwrap();
    let _server = Server::start(data.path());
    let output = std::process::Command::new(harness::TIDEWHEEL)
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("in use by another Tidewheel process"), "{said}");
}

/// The chains are whole, whatever was cut off, and say of every job that it was submitted, ran and succeeded.
fn check_audit(server: &Server, acked: &BTreeMap<String, Acked>) {
    let verified = server.cli(&["audit", "verify"]);
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success() && said.contains("sound"), "{verified:?}");
    let exported = server.cli(&["audit", "export", "--kind", "changes"]);
    assert!(exported.status.success(), "{exported:?}");
    let mut states: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in String::from_utf8(exported.stdout).unwrap().lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        // The last line says where chains begin and end.
        for change in record["changes"].as_array().into_iter().flatten() {
            let job = change["job"].as_str().unwrap().to_owned();
            states.entry(job).or_default().push(change["to"].as_str().unwrap().to_owned());
        }
    }
    for job in acked.values() {
        let states = &states[&job.id];
        assert_eq!((states[0].as_str(), states[1].as_str()), ("scheduled", "running"), "{states:?}");
        assert_eq!(states[states.len() - 1], "succeeded", "{states:?}");
    }
}
