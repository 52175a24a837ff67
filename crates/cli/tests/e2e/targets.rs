//! Targets that fail, from outside: their jobs wait without using attempts, and nobody else is held up.

use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::target::{Target, answer};
use crate::harness::{Server, now_ms, request, until};

fn start(flags: &[&str]) -> (TempDir, Server) {
    let data = TempDir::new().unwrap();
    let server = Server::start_with(data.path(), flags);
    (data, server)
}

fn call(server: &Server, tenant: &str, method: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = [("tidewheel-tenant", tenant), ("content-type", "application/json")];
    let answer = request(server.address, method, path, &headers, body.as_bytes()).unwrap();
    assert!(answer.status < 300, "{path}: {}", answer.text());
    answer.json()
}

fn submit_many(server: &Server, tenant: &str, count: usize, job: &Value) -> Vec<String> {
    let jobs: Vec<&Value> = std::iter::repeat_n(job, count).collect();
    let answer = call(server, tenant, "POST", "/v1/jobs/batch", &json!({ "jobs": jobs }));
    answer["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

fn count(server: &Server, tenant: &str, state: &str) -> u64 {
    let counts = call(server, tenant, "GET", &format!("/v1/jobs/count?state={state}"), &Value::Null);
    counts["count"].as_u64().unwrap()
}

fn metric(server: &Server, line: &str) -> f64 {
    let text = server.request("GET", "/metrics", "").text();
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' ')?.parse().ok());
    found.unwrap_or_else(|| panic!("no {line} in {text}"))
}

fn memory_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Breaks until it is mended.
fn mendable() -> (Target, Arc<AtomicBool>) {
    let works = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&works);
    let target = Target::answering(move |_| match seen.load(Ordering::SeqCst) {
        true => answer(200, "", "fine"),
        false => answer(500, "", "out of order"),
    });
    (target, works)
}

#[test]
fn a_target_that_fails_is_left_alone_until_it_works_and_its_jobs_use_no_attempts() {
    let (_data, server) = start(&["--breaker-failures", "3", "--breaker-cooldown", "100ms"]);
    let (broken, works) = mendable();
    let healthy = Target::ok();
    let retry = json!({"policy": "fixed", "base": "50ms", "max_attempts": 50});
    let job = json!({"type": "t", "target_url": broken.url("/x"), "retry": retry});
    let ids = submit_many(&server, "a", 300, &job);
    let shown = until("the breaker to open", || {
        let shown = call(&server, "a", "GET", "/v1/targets", &Value::Null)["items"][0].clone();
        (shown["state"] == "open" && shown["next_probe_at"].is_string()).then_some(shown)
    });
    assert_eq!(shown["host"], broken.url("/").trim_end_matches('/'), "{shown}");
    assert!(shown["reason"].as_str().unwrap().contains("it answered 500: out of order"), "{shown}");
    assert!(shown["failures"].as_u64().unwrap() >= 3, "{shown}");
    assert!(call(&server, "b", "GET", "/v1/targets", &Value::Null)["items"].as_array().unwrap().is_empty());

    let explained = until("a job to be held back", || {
        let path = format!("/v1/jobs/{}/explain", ids[299]);
        let explained = call(&server, "a", "GET", &path, &Value::Null);
        (explained["waits_for"] == "breaker").then_some(explained)
    });
    let detail = explained["detail"].as_str().unwrap();
    for part in ["circuit breaker", "500: out of order", shown["host"].as_str().unwrap(), "no attempt"] {
        assert!(detail.contains(part), "{part:?}: {explained}");
    }

    // Others are not concerned: the same tenant elsewhere, its queues, and another tenant at the very same host.
    let elsewhere = submit_many(&server, "a", 5, &json!({"type": "t", "target_url": healthy.url("/")}));
    submit_many(&server, "a", 2, &json!({"type": "t", "queue": "q"}));
    let took =
        call(&server, "a", "POST", "/v1/queues/q/take", &json!({"worker": "w", "max": 2, "wait": "20s"}));
    assert_eq!(took["jobs"].as_array().unwrap().len(), 2);
    healthy.until_hits(5);
    let own =
        call(&server, "b", "POST", "/v1/jobs", &json!({"type": "other", "target_url": broken.url("/b")}));
    until("another tenant's push to the same host", || {
        broken.hits().iter().any(|hit| hit.path == "/b").then_some(())
    });
    drop((elsewhere, own));
    assert!(metric(&server, "tidewheel_breaker_opened_total") >= 1.0);

    // Probes go on, one at a time, and each uses one attempt of one job.
    let before = broken.count();
    until("more probes", || (broken.count() >= before + 2).then_some(()));
    works.store(true, Ordering::SeqCst);
    until("all to be delivered", || (count(&server, "a", "succeeded") >= 305).then_some(()));
    let used: Vec<u64> = ids
        .iter()
        .map(|id| {
            call(&server, "a", "GET", &format!("/v1/jobs/{id}"), &Value::Null)["attempt"].as_u64().unwrap()
        })
        .collect();
    let most = *used.iter().max().unwrap();
    assert!(most <= 12, "a job used {most} attempts");
    assert_eq!(count(&server, "a", "dead"), 0);
    until("the breaker to be forgotten", || {
        let shown = call(&server, "a", "GET", "/v1/targets", &Value::Null);
        shown["items"].as_array().unwrap().is_empty().then_some(())
    });
}

#[test]
fn a_target_that_asks_to_wait_is_left_alone_that_long() {
    let (_data, server) = start(&["--breaker-failures", "1"]);
    let asked = AtomicBool::new(false);
    let target = Target::answering(move |_| match asked.swap(true, Ordering::SeqCst) {
        false => answer(503, "retry-after: 2\r\n", "maintenance"),
        true => answer(200, "", ""),
    });
    let job = json!({"type": "t", "target_url": target.url("/")});
    server.submit(&job);
    let first = target.until_hits(1).remove(0);
    // On a busy machine the hold may be over before it is looked at.
    until("the target to be held", || {
        (server.get("/v1/targets")["items"][0]["state"] == "held" || target.count() > 1).then_some(())
    });
    submit_many(&server, "default", 3, &job);
    let hits = target.until_hits(4);
    assert!(hits[1].at_ms - first.at_ms >= 2_000, "{} ms", hits[1].at_ms - first.at_ms);
    until("all to succeed", || (count(&server, "default", "succeeded") == 4).then_some(()));
}

#[test]
fn pushes_to_a_host_keep_to_its_rate_and_use_no_attempts_while_they_wait() {
    let (_data, server) = start(&["--host-rate", "1000", "--host-rate", "127.0.0.1=20"]);
    let target = Target::ok();
    let job = json!({"type": "t", "target_url": target.url("/")});
    let before_ms = now_ms();
    let ids = submit_many(&server, "a", 60, &job);
    let hits = target.until_hits(60);
    // When a busy machine lets them arrive is not in the server's hands; how long they take together is.
    let took_ms = hits.iter().map(|hit| hit.at_ms).max().unwrap() - before_ms;
    assert!(took_ms >= 2_500, "60 at 20 per second within {took_ms} ms");
    until("all to succeed", || (count(&server, "a", "succeeded") == 60).then_some(()));
    let last = call(&server, "a", "GET", &format!("/v1/jobs/{}", ids[59]), &Value::Null);
    assert_eq!(last["attempt"], 1);
}

/// Takes connections and never says a word, until it is told to answer.
struct Hanging {
    port: u16,
    works: Arc<AtomicBool>,
}

impl Hanging {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let works = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&works);
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                if seen.load(Ordering::SeqCst) {
                    std::thread::spawn(move || answer_all(stream));
                } else {
                    silent.push(stream);
                }
            }
        });
        Self { port, works }
    }
}

/// Answers 200 to whatever comes; a request is small, and comes whole.
fn answer_all(mut stream: std::net::TcpStream) {
    let mut buffer = [0; 8_192];
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
        if std::io::Write::write_all(&mut stream, answer(200, "", "").as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn a_hanging_target_costs_nobody_else_anything_and_gets_all_its_jobs_once_it_works() {
    let flags = ["--breaker-cooldown", "200ms", "--breaker-cooldown-max", "1s", "--push-per-host", "64"];
    let (_data, server) = start(&flags);
    let (hanging, healthy) = (Hanging::start(), Target::ok());
    let url = format!("http://127.0.0.1:{}/", hanging.port);
    let retry = json!({"policy": "fixed", "base": "100ms", "max_attempts": 20});
    let job = json!({"type": "t", "target_url": url, "timeout": "3s", "retry": retry, "payload": "x".repeat(2_000)});
    let before_kib = memory_kib(&server);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.extend(submit_many(&server, "a", 1_000, &job));
    }
    // While it hangs and before anything is known of it, and afterwards: B is served.
    for round in 0..3 {
        submit_many(&server, "b", 20, &json!({"type": "t", "target_url": healthy.url("/")}));
        healthy.until_hits(20 * (round + 1));
        if round == 0 {
            until("the breaker to open", || {
                let shown = call(&server, "a", "GET", "/v1/targets", &Value::Null);
                (shown["items"][0]["state"] == "open").then_some(())
            });
        }
    }
    until("the lanes to be left", || {
        (metric(&server, "tidewheel_ready_depth{lane=\"push\"}") < 100.0).then_some(())
    });
    until("nobody to be crowded out", || {
        (metric(&server, "tidewheel_oldest_unpromoted_age_seconds") < 10.0).then_some(())
    });
    let grown_kib = memory_kib(&server).saturating_sub(before_kib);
    assert!(grown_kib < 200 * 1_024, "memory grew by {grown_kib} KiB");
    assert_eq!(count(&server, "a", "dead"), 0);

    hanging.works.store(true, Ordering::SeqCst);
    let mut done = 0;
    while done < 5_000 {
        done = until("more of A's jobs", || Some(count(&server, "a", "succeeded")).filter(|now| *now > done));
    }
    let sampled = ids.iter().step_by(50);
    let used = sampled.map(|id| {
        call(&server, "a", "GET", &format!("/v1/jobs/{id}"), &Value::Null)["attempt"].as_u64().unwrap()
    });
    let most = used.max().unwrap();
    assert!(most <= 8, "a job used {most} attempts");
}

#[test]
fn several_hanging_hosts_of_a_tenant_leave_push_slots_to_others() {
    let (_data, server) = start(&["--push-concurrency", "64"]);
    let hanging: [Hanging; 6] = std::array::from_fn(|_| Hanging::start());
    let mut ids = Vec::new();
    for Hanging { port, .. } in &hanging {
        let url = format!("http://127.0.0.1:{port}/");
        ids.extend(submit_many(&server, "a", 20, &json!({"type": "t", "target_url": url, "timeout": "10m"})));
    }
    until("as many to hang as may", || (count(&server, "a", "running") >= 48).then_some(()));
    let explained = until("one to wait for a slot", || {
        ids.iter().find_map(|id| {
            let explained = call(&server, "a", "GET", &format!("/v1/jobs/{id}/explain"), &Value::Null);
            (explained["waits_for"] == "push_limit").then_some(explained)
        })
    });
    assert!(explained["expected_start"].is_null(), "{explained}");
    let healthy = Target::ok();
    submit_many(&server, "b", 5, &json!({"type": "t", "target_url": healthy.url("/")}));
    healthy.until_hits(5);
    assert_eq!(count(&server, "a", "running"), 48, "they hang still, and nobody waited for them");
}

#[test]
fn a_host_that_is_named_has_its_own_bound_on_pushes_under_way() {
    let (_data, server) = start(&["--push-per-host", "100", "--push-per-host", "127.0.0.1=3"]);
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    // Nobody is answered before the gate is gone.
    let target = Target::answering(move |_| {
        gate.lock().unwrap().recv().ok();
        answer(200, "", "")
    });
    let ids = submit_many(&server, "a", 10, &json!({"type": "t", "target_url": target.url("/")}));
    target.until_hits(3);
    until("the others to wait for their host", || {
        let waits = ids.iter().filter(|id| {
            let explained = call(&server, "a", "GET", &format!("/v1/jobs/{id}/explain"), &Value::Null);
            explained["waits_for"] == "host_limit"
        });
        (waits.count() == 7).then_some(())
    });
    assert_eq!(target.count(), 3);
    drop(release);
    until("all to be delivered", || (count(&server, "a", "succeeded") == 10).then_some(()));
}

#[test]
fn a_target_that_answers_now_and_then_is_left_alone_by_the_share_that_fails() {
    let flags = ["--breaker-failures", "0", "--breaker-percent", "50%", "--breaker-window", "1m"];
    let (_data, server) = start(&[&flags[..], &["--breaker-cooldown", "100ms"]].concat());
    let (asked, works) = (std::sync::atomic::AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&works);
    let target = Target::answering(move |_| {
        let is_fine = asked.fetch_add(1, Ordering::SeqCst) % 3 == 2 || seen.load(Ordering::SeqCst);
        if is_fine { answer(200, "", "") } else { answer(500, "", "out of order") }
    });
    let retry = json!({"policy": "fixed", "base": "20ms", "max_attempts": 100});
    submit_many(&server, "a", 100, &json!({"type": "t", "target_url": target.url("/"), "retry": retry}));
    let shown = until("the breaker to open", || {
        let shown = call(&server, "a", "GET", "/v1/targets", &Value::Null)["items"][0].clone();
        (shown["state"] == "open").then_some(shown)
    });
    assert!(shown["failures"].as_u64().unwrap() >= 10, "{shown}");
    works.store(true, Ordering::SeqCst);
    until("all to be delivered", || (count(&server, "a", "succeeded") == 100).then_some(()));
}
