//! Tenants and priorities beside each other, from outside: floods, weights, caps, and limits changed under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_api::worker::{Context, Failure, Stopper, Worker, WorkerConfig};

use crate::harness::pulse::Pulse;
use crate::harness::target::{Target, answer};
use crate::harness::{Answer, Server, instant, now_ms, request, until};

fn call(server: &Server, tenant: &str, method: &str, path: &str, body: &Value) -> Answer {
    request(server.address, method, path, &[("tidewheel-tenant", tenant)], body.to_string().as_bytes())
        .unwrap()
}

/// Submits so many alike jobs; the payload says whose they are, and more.
fn submit(server: &Server, tenant: &str, count: usize, extra: &Value) {
    let mut job = json!({"type": "t", "queue": "q", "payload": {"tenant": tenant}});
    job.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let answer = call(server, tenant, "POST", "/v1/jobs/batch", &json!(vec![job; count]));
    assert_eq!(answer.status, 201, "{}", answer.text());
}

fn set(server: &Server, tenant: &str, settings: &Value) {
    let answer = call(server, tenant, "PUT", &format!("/v1/tenants/{tenant}"), settings);
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A start: what the payload says, and when.
type Start = (Value, i64);

/// A worker for all tenants that does everything at once.
struct Hand {
    runtime: tokio::runtime::Runtime,
    stopper: Stopper,
    working: tokio::task::JoinHandle<()>,
    started: Arc<Mutex<Vec<Start>>>,
    /// If it stands still it is taken for dead, and what it had starts again, out of its turn.
    pulse: Pulse,
}

impl Hand {
    fn connect(server: &Server, concurrency: usize) -> Self {
        Self::connect_until(server, concurrency, usize::MAX)
    }

    /// One that ends nothing it starts after so many, until it is told to stop.
    fn connect_until(server: &Server, concurrency: usize, enough: usize) -> Self {
        let (runtime, pulse) = (tokio::runtime::Runtime::new().unwrap(), Pulse::watch());
        let config = WorkerConfig { concurrency, all_tenants: true, ..WorkerConfig::new(server.url(), "q") };
        let started: Arc<Mutex<Vec<Start>>> = Arc::default();
        let starts = Arc::clone(&started);
        let (stopper, working) = runtime.block_on(async {
            let mut worker = Worker::connect(config).await.unwrap();
            worker.handle("t", move |context: Context, payload: Value| {
                let takes_ms = payload["takes_ms"].as_u64();
                let mut starts = starts.lock().unwrap();
                starts.push((payload, now_ms()));
                let is_enough = starts.len() > enough;
                async move {
                    if is_enough {
                        context.stopped().await;
                    }
                    if let Some(takes_ms) = takes_ms {
                        // How long a job runs is what some tests are about.
                        #[expect(clippy::disallowed_methods, reason = "the job's own run time")]
                        tokio::time::sleep(std::time::Duration::from_millis(takes_ms)).await;
                    }
                    Ok::<_, Failure>(())
                }
            });
            (worker.stopper(), tokio::spawn(async move { worker.run().await.unwrap() }))
        });
        Self { runtime, stopper, working, started, pulse }
    }

    fn count(&self) -> usize {
        self.started.lock().unwrap().len()
    }

    fn until_started(&self, what: &str, is_enough: impl Fn(&[Start]) -> bool) -> Vec<Start> {
        until(what, || {
            let started = self.started.lock().unwrap();
            is_enough(&started).then(|| started.clone())
        })
    }

    fn stop(self) {
        self.stopper.stop_now();
        self.runtime.block_on(self.working).unwrap();
    }
}

fn of<'a>(starts: &'a [Start], key: &'a str, value: &'a str) -> impl Iterator<Item = &'a Start> {
    starts.iter().filter(move |(payload, _)| payload[key] == value)
}

/// How many of the first so many starts there were of each value.
fn shares(starts: &[Start], count: usize, key: &str) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for (payload, _) in &starts[..count] {
        *shares.entry(payload[key].as_str().unwrap().to_owned()).or_default() += 1;
    }
    shares
}

#[test]
fn five_jobs_start_at_once_beside_a_flood_of_fifty_thousand() {
    const FLOOD: usize = 50_000;
    /// Jobs of the flood that may start between a job's time and its start: a hundredth of it.
    const BESIDE: usize = FLOOD / 100;
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    for _ in 0..5 {
        submit(&server, "flood", FLOOD / 5, &json!({}));
    }
    let hand = Hand::connect(&server, 10);
    hand.until_started("the flood", |starts| starts.len() >= 200);
    for delay_ms in [0, 1_000] {
        let due_ms = now_ms() + delay_ms;
        let few = json!({"run_at": instant(due_ms - now_ms()), "payload": {"tenant": "few", "due": due_ms}});
        submit(&server, "few", 5, &few);
        let before = hand.count();
        let is_few = |(payload, _): &&Start| payload["due"] == due_ms;
        let starts = hand.until_started("the few", |starts| starts.iter().filter(is_few).count() >= 5);
        assert!(starts.len() < FLOOD, "the flood is over: nothing was tested");
        let last = starts.iter().rposition(|start| is_few(&start)).unwrap();
        let beside = starts[before.min(last)..last]
            .iter()
            .filter(|(payload, at_ms)| payload["tenant"] == "flood" && *at_ms >= due_ms);
        let (beside, late_ms) = (beside.count(), starts[last].1 - due_ms);
        println!(
            "due in {delay_ms} ms: {beside} of the flood beside them, the last {late_ms} ms after its time"
        );
        assert!(beside <= BESIDE || !hand.pulse.is_calm(), "{beside} of the flood came first");
    }
    hand.stop();
}

#[test]
fn saturated_tenants_share_three_to_one_and_a_changed_weight_holds_for_what_waits() {
    const COUNTED: usize = 800;
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    set(&server, "acme", &json!({"weight": 3}));
    submit(&server, "globex", 3 * COUNTED, &json!({}));
    submit(&server, "acme", 3 * COUNTED, &json!({}));
    // However late this looks, most jobs are left for the other weight.
    let connect = || Hand::connect_until(&server, 20, COUNTED + 20);
    let hand = connect();
    let starts = hand.until_started("a part of the jobs", |starts| starts.len() >= COUNTED);
    let acme = shares(&starts, COUNTED, "tenant")["acme"];
    assert!(
        acme.abs_diff(COUNTED * 3 / 4) <= COUNTED * 3 / 80 || !hand.pulse.is_calm(),
        "{acme} of {COUNTED} instead of three quarters"
    );
    hand.stop();

    // Both still have most of their jobs waiting.
    set(&server, "acme", &json!({"weight": 1}));
    let hand = connect();
    let starts = hand.until_started("another part", |starts| starts.len() >= COUNTED);
    let acme = shares(&starts, COUNTED, "tenant")["acme"];
    assert!(
        acme.abs_diff(COUNTED / 2) <= COUNTED / 40 || !hand.pulse.is_calm(),
        "{acme} of {COUNTED} instead of half"
    );
    hand.stop();
}

/// A target that takes a while.
fn slow_target() -> Target {
    Target::answering(|_| {
        #[expect(clippy::disallowed_methods, reason = "the target's own run time")]
        std::thread::sleep(std::time::Duration::from_millis(50));
        answer(200, "", "")
    })
}

#[test]
fn tenants_with_different_hosts_share_push_slots_three_to_one() {
    /// Pushes before everybody has its share, and those that are counted.
    const SETTLING: usize = 100;
    const COUNTED: usize = 600;
    let mut lead_ms = 1_500;
    // On a busy machine the time may come before both have theirs stored; then it begins anew, with more.
    let (_data, _server, targets) = loop {
        let data = TempDir::new().unwrap();
        let server = Server::start_with(data.path(), &["--push-concurrency", "32"]);
        set(&server, "acme", &json!({"weight": 3}));
        let (due_ms, run_at) = (now_ms() + lead_ms, instant(lead_ms));
        let targets = ["acme", "globex"].map(|tenant| {
            let target = slow_target();
            let job = json!({"type": "t", "target_url": target.url("/"), "run_at": run_at});
            let jobs = json!(vec![job; SETTLING + COUNTED]);
            assert_eq!(call(&server, tenant, "POST", "/v1/jobs/batch", &jobs).status, 201);
            target
        });
        if now_ms() < due_ms {
            break (data, server, targets);
        }
        lead_ms *= 4;
    };
    let pulse = Pulse::watch();
    let mut hits = until("enough pushes", || {
        let hits: Vec<(i64, usize)> =
            (0..2).flat_map(|of| targets[of].hits().into_iter().map(move |hit| (hit.at_ms, of))).collect();
        (hits.len() >= SETTLING + COUNTED).then_some(hits)
    });
    hits.sort_unstable();
    let acme = hits[SETTLING..SETTLING + COUNTED].iter().filter(|(_, of)| *of == 0).count();
    println!("{acme} of {COUNTED}");
    assert!(
        acme.abs_diff(COUNTED * 3 / 4) <= COUNTED * 3 / 40 || !pulse.is_calm(),
        "{acme} of {COUNTED} instead of three quarters"
    );
}

#[test]
fn priorities_share_eight_four_two_one_and_their_waits_are_measured() {
    const COUNTED: usize = 300;
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    for priority in ["low", "normal", "high", "critical"] {
        let extra = json!({"priority": priority, "payload": {"priority": priority}});
        submit(&server, "acme", COUNTED, &extra);
    }
    let hand = Hand::connect(&server, 15);
    let starts = hand.until_started("a part of the jobs", |starts| starts.len() >= COUNTED);
    let shares = shares(&starts, COUNTED, "priority");
    for (priority, wanted) in [("critical", 160), ("high", 80), ("normal", 40), ("low", 20)] {
        let share = shares.get(priority).copied().unwrap_or(0);
        assert!(
            share.abs_diff(wanted) <= wanted.div_ceil(10) || !hand.pulse.is_calm(),
            "{shares:?}: {priority} instead of {wanted}"
        );
    }
    hand.until_started("all of them", |starts| of(starts, "priority", "low").count() >= COUNTED);
    let metrics = server.request("GET", "/metrics", "").text();
    let figure = |name: &str, priority: &str| -> f64 {
        let line = format!("{name}{{priority=\"{priority}\"}} ");
        metrics.lines().find_map(|found| found.strip_prefix(&line)).unwrap().parse().unwrap()
    };
    let mean_wait = |priority| {
        figure("tidewheel_start_lag_seconds_total", priority) / figure("tidewheel_starts_total", priority)
    };
    assert!(mean_wait("critical") < mean_wait("low"), "an inversion would show here:\n{metrics}");
    hand.stop();
}

#[test]
fn by_run_time_whoever_has_long_jobs_starts_fewer_of_them() {
    /// Starts before it is known how long each takes, and those that are counted.
    const LEARNING: usize = 60;
    const COUNTED: usize = 240;
    let data = TempDir::new().unwrap();
    let server = Server::start_with(data.path(), &["--fair-by", "run_time"]);
    let job = |tenant: &str, takes_ms: u64| json!({"payload": {"tenant": tenant, "takes_ms": takes_ms}});
    submit(&server, "long", LEARNING + COUNTED, &job("long", 300));
    submit(&server, "short", LEARNING + COUNTED, &job("short", 15));
    let hand = Hand::connect(&server, 12);
    let starts = hand.until_started("most of the short ones", |starts| starts.len() >= LEARNING + COUNTED);
    let shares = shares(&starts[LEARNING..], COUNTED, "tenant");
    let [long, short] = ["long", "short"].map(|tenant| shares.get(tenant).copied().unwrap_or(0));
    println!("{long} long and {short} short ones");
    // One to twenty by their run times alone; a busy machine makes short ones many times longer. By count it is one to one.
    assert!(
        (long > 0 && 2 * short >= 3 * long) || !hand.pulse.is_calm(),
        "{long} long and {short} short ones"
    );
    hand.stop();
}

/// Takes what there is of a queue, at most ten; waits for the first if it should come.
fn take(server: &Server, tenant: &str, queue: &str, wait: &str) -> Vec<Value> {
    let body = json!({"worker": "w", "max": 10, "wait": wait, "lease": "10m"});
    let answer = call(server, tenant, "POST", &format!("/v1/queues/{queue}/take"), &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["jobs"].as_array().unwrap().clone()
}

fn finish(server: &Server, tenant: &str, job: &Value) {
    let body = json!({"token": job["token"], "status": "succeeded"});
    let path = format!("/v1/jobs/{}/outcome", job["id"].as_str().unwrap());
    assert_eq!(call(server, tenant, "POST", &path, &body).status, 200);
}

const SOON: &str = "40s";
const NOT: &str = "200ms";

#[test]
fn a_cap_blocks_no_other_tenant_and_no_other_queue_and_can_be_changed_under_way() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    set(&server, "acme", &json!({"limits": {"queue_concurrency": 1}}));
    submit(&server, "acme", 20, &json!({}));
    submit(&server, "acme", 20, &json!({"queue": "r"}));
    submit(&server, "globex", 2, &json!({}));
    let mut held = take(&server, "acme", "q", SOON);
    assert_eq!(held.len(), 1);
    assert!(take(&server, "acme", "q", NOT).is_empty(), "at its cap");
    assert_eq!(take(&server, "globex", "q", SOON).len(), 2, "another tenant");
    let other = take(&server, "acme", "r", SOON);
    assert_eq!(other.len(), 1, "another queue");
    held.extend(other);

    // Raised, it holds for what waits already; what was under way counts.
    set(&server, "acme", &json!({"limits": {"queue_concurrency": 3}}));
    let more = take(&server, "acme", "q", SOON);
    assert_eq!(more.len(), 2);
    held.extend(more);

    // A cap on all queues together counts what was under way before it was set.
    set(&server, "acme", &json!({"limits": {"concurrency": 2}}));
    assert!(take(&server, "acme", "q", NOT).is_empty(), "four are under way");
    while held.len() > 1 {
        finish(&server, "acme", &held.pop().unwrap());
    }
    assert_eq!(take(&server, "acme", "r", SOON).len(), 1, "the queue with less backlog is not shut out");
    assert!(take(&server, "acme", "q", NOT).is_empty());
    set(&server, "acme", &json!({}));
    assert_eq!(take(&server, "acme", "q", SOON).len(), 10);
}

#[test]
fn who_waits_as_long_as_retry_after_says_is_taken() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path());
    set(&server, "acme", &json!({"limits": {"submit_rate": 2, "submit_burst": 4}}));
    let batch = json!(vec![json!({"type": "t", "delay": "1h"}); 4]);
    let submit = || call(&server, "acme", "POST", "/v1/jobs/batch", &batch);
    assert_eq!(submit().status, 201);
    // On a busy machine there may be as many again by the next call.
    let refused = until("a refusal", || Some(submit()).filter(|answer| answer.status == 429));
    let wait_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&wait_s), "{wait_s}");
    // This is what the header asks for: waiting, neither longer nor shorter.
    #[expect(clippy::disallowed_methods, reason = "the wait is what is tested")]
    std::thread::sleep(std::time::Duration::from_secs(wait_s));
    let taken = submit();
    assert_eq!(taken.status, 201, "{}", taken.text());
}
