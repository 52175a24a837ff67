//! Everything that is made up for keeps to one rate per tenant: under virtual time, through the API.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Failure, Finding, Job, State};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::access::Access;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Config, Deliver, Engine, Parts, Report, Reports};
use tidewheel_server::http::{ApiService, HttpLimits, HttpParts, router};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::push::AddressPolicy;
use tidewheel_server::random::SystemRandom;
use tidewheel_store::{Layout, Store};
use tidewheel_store_testkit::memory::MemoryStore;
use tokio::sync::mpsc;
use tower_service::Service;

/// What a tenant may start in a second of what is made up for.
const RATE: u32 = 50;
const URL: &str = "http://127.0.0.1/x";

/// Follows tokio's paused time.
struct VirtualClock(tokio::time::Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(1_800_000_000_000 + self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "paused time: nothing waits for real")]
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A job that was started, and when.
struct Start {
    job: Arc<Job>,
    at: Timestamp,
}

/// Answers at once: the first attempt of a job of type `dead` fails for good, all others succeed.
struct Target {
    clock: Arc<VirtualClock>,
    started: mpsc::UnboundedSender<Start>,
}

impl Deliver for Target {
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports) {
        for job in jobs {
            let (token, finding) = (job.status.token, Finding::default());
            let command = if &*job.spec.kind == "dead" && job.status.attempt == 1 {
                let failure =
                    Failure { finding, retryable: false, timed_out: false, retry_after_ms: None, jitter: 0 };
                Command::Fail { token, failure }
            } else {
                Command::Succeed { token, finding }
            };
            reports.send(Report { tenant: job.tenant.clone(), id: job.id, command });
            drop(self.started.send(Start { job, at: self.clock.now() }));
        }
    }

    fn abort(&self, _: &JobId) {}
}

struct World {
    clock: Arc<VirtualClock>,
    store: Arc<MemoryStore>,
}

struct Node {
    engine: Engine,
    app: ApiService,
    started: mpsc::UnboundedReceiver<Start>,
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "paused time")]
    fn new() -> Self {
        let clock = Arc::new(VirtualClock(tokio::time::Instant::now()));
        Self { clock, store: Arc::new(MemoryStore::new(Layout { shards: 8 })) }
    }

    async fn node(&self, config: Config) -> Node {
        let (sender, started) = mpsc::unbounded_channel();
        let parts = Parts {
            store: Arc::clone(&self.store) as Arc<dyn Store>,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            random: Arc::new(SystemRandom),
            metrics: Arc::new(Metrics::new()),
            deliverer: Arc::new(Target { clock: Arc::clone(&self.clock), started: sender }),
            zones: Zones::bundled(),
        };
        let engine = Engine::start(parts, config).await.unwrap();
        let targets = AddressPolicy::public_only().allow_loopback();
        let access = Access::open_to_all(&engine).await.unwrap();
        let limits = HttpLimits::default();
        let app = router(HttpParts { engine: engine.clone(), targets, limits, access });
        Node { engine, app, started }
    }
}

impl Node {
    async fn post(&self, tenant: &str, path: &str, body: &Value) -> Value {
        let request = Request::builder()
            .method("POST")
            .uri(path)
            .header("tidewheel-tenant", tenant)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let response = self.app.clone().call(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{path}: {status} {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    async fn submit(&self, tenant: &str, count: usize, job: &Value) {
        for _ in 0..count {
            self.post(tenant, "/v1/jobs", job).await;
        }
    }

    async fn starts(&mut self, count: usize) -> Vec<Start> {
        let mut starts = Vec::with_capacity(count);
        while starts.len() < count {
            starts.push(self.started.recv().await.unwrap());
        }
        starts
    }
}

fn most_in_a_second(starts: &[&Start]) -> usize {
    let from =
        |start: &Start| starts.iter().filter(|s| (0..1_000).contains(&s.at.since_ms(start.at))).count();
    starts.iter().map(|start| from(start)).max().unwrap_or(0)
}

fn of<'a>(starts: &'a [Start], tenant: &str, kind: &str) -> Vec<&'a Start> {
    starts.iter().filter(|s| s.job.tenant.as_str() == tenant && &*s.job.spec.kind == kind).collect()
}

#[tokio::test(start_paused = true)]
async fn missed_jobs_missed_occurrences_backfill_and_replay_share_a_rate_and_another_tenant_has_its_own() {
    let world = World::new();
    let mut node = world.node(Config::default()).await;
    node.submit("a", 200, &json!({"type": "dead", "target_url": URL})).await;
    for tenant in ["a", "b"] {
        node.submit(tenant, 300, &json!({"type": "missed", "target_url": URL, "delay": "10m"})).await;
    }
    for _ in 0..5 {
        let schedule = json!({
            "every": "1m", "type": "tick", "target_url": URL, "misfire": "fire_all", "misfire_cap": 50,
        });
        node.post("a", "/v1/schedules", &schedule).await;
    }
    let schedule = json!({"cron_expr": "* * * * *", "type": "fill", "target_url": URL, "misfire": "skip"});
    let filled = node.post("a", "/v1/schedules", &schedule).await["id"].as_str().unwrap().to_owned();
    node.starts(200).await;
    assert_eq!(node.engine.drain(Duration::from_secs(60)).await, 0);
    tokio::time::advance(Duration::from_secs(3_600)).await;

    let config = Config { tenant_catch_up_per_second: RATE, ..Config::default() };
    let mut node = world.node(config).await;
    let back = world.clock.now();
    node.submit("a", 1, &json!({"type": "on_time", "target_url": URL, "delay": "5s"})).await;
    let path = format!("/v1/schedules/{filled}/backfill");
    let (from, to) = (back.plus_ms(-18_000_000).to_string(), back.plus_ms(-6_000_001).to_string());
    let backfill = node.post("a", &path, &json!({"from": from, "to": to})).await;
    assert_eq!(backfill["count"], 200, "{backfill}");
    let replay = node.post("a", "/v1/dead-letters/replay", &json!({"filter": {}})).await;
    assert_eq!(replay["count"], 200, "{replay}");

    let is_made_up = |job: &Job| match &job.spec.occurrence {
        Some(occurrence) => occurrence.catch_up,
        None => &*job.spec.kind != "on_time",
    };
    let (mut starts, mut missing) = (Vec::new(), 2 * 300 + 200 + 200 + 5 * 50);
    while missing > 0 {
        let start = node.starts(1).await.remove(0);
        missing -= usize::from(is_made_up(&start.job));
        starts.push(start);
    }
    let made_up: Vec<&Start> =
        starts.iter().filter(|s| s.job.tenant.as_str() == "a" && is_made_up(&s.job)).collect();
    for (kind, count) in [("missed", 300), ("dead", 200), ("fill", 200), ("tick", 250)] {
        assert_eq!(made_up.iter().filter(|s| &*s.job.spec.kind == kind).count(), count, "{kind}");
    }
    let rate = usize::try_from(RATE).unwrap();
    assert!(most_in_a_second(&made_up) <= rate, "{} in a second", most_in_a_second(&made_up));
    let took_ms = made_up.last().unwrap().at.since_ms(back);
    let count = i64::try_from(made_up.len()).unwrap();
    assert!(took_ms < count * 1_000 / i64::from(RATE) * 5 / 4, "{count} jobs took {took_ms} ms");

    let others = of(&starts, "b", "missed");
    assert!(most_in_a_second(&others) <= rate);
    let took_ms = others.last().unwrap().at.since_ms(back);
    assert!(took_ms < 7_500, "another tenant's 300 jobs took {took_ms} ms");
    let on_time = of(&starts, "a", "on_time")[0];
    assert!(on_time.at.since_ms(on_time.job.status.due_at) < 100, "what is on time was held up");
}

#[tokio::test(start_paused = true)]
async fn a_replay_has_its_own_lower_rate_and_a_backlog_larger_than_memory_keeps_to_the_tenants() {
    let world = World::new();
    let config = Config {
        tenant_catch_up_per_second: RATE,
        lot_count_max: 20,
        lot_count_min: 2,
        quantum: 16,
        push_per_host_max: 4,
        ..Config::default()
    };
    let mut node = world.node(config).await;
    node.submit("a", 300, &json!({"type": "dead", "target_url": URL})).await;
    let first = node.starts(300).await;
    let rate = usize::try_from(RATE).unwrap();
    let ids: Vec<String> = first.iter().map(|start| start.job.id.to_string()).collect();
    // The outcomes are written behind the starts.
    while node.engine.store().counts(None).await.unwrap().of(State::Dead) < 300 {
        tokio::task::yield_now().await;
    }
    node.post("a", "/v1/jobs/retry", &json!({"ids": ids[..40], "rate": 10})).await;
    let slow = node.starts(40).await;
    assert!(most_in_a_second(&slow.iter().collect::<Vec<_>>()) <= 11, "its own rate is 10");
    node.post("a", "/v1/jobs/retry", &json!({"ids": ids[40..]})).await;
    let fast = node.starts(260).await;
    let most = most_in_a_second(&fast.iter().collect::<Vec<_>>());
    assert!(most <= rate, "{most} in a second");
}
