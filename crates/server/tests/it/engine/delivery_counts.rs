//! Every attempt counts once, however its job goes on.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Failure, Finding, Job, Priority, Spec, State, Target};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Config, Deliver, Engine, Parts, Report, Reports};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::random::SystemRandom;
use tidewheel_store::{Layout, OnConflict, Order, Submission};
use tidewheel_store_testkit::memory::MemoryStore;

/// Goes with the paused time of the test.
struct PausedClock(tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(1_800_000_000_000 + self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "paused time")]
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Fails what goes to `/fail`, and says nothing of the rest.
struct Failing;

impl Deliver for Failing {
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports) {
        for job in jobs {
            let Destination::Target(target) = &job.spec.destination else { continue };
            if target.url.ends_with("/fail") {
                let finding = Finding { status_code: Some(500), detail: "no".into() };
                let failure =
                    Failure { finding, retryable: true, timed_out: false, retry_after_ms: None, jitter: 0 };
                let command = Command::Fail { token: job.status.token, failure };
                reports.send(Report { tenant: job.tenant.clone(), id: job.id, command });
            }
        }
    }

    fn abort(&self, _: &JobId) {}
}

struct World {
    engine: Engine,
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "paused time")]
    async fn new() -> Self {
        let parts = Parts {
            store: Arc::new(MemoryStore::new(Layout { shards: 4 })),
            clock: Arc::new(PausedClock(tokio::time::Instant::now())),
            random: Arc::new(SystemRandom),
            metrics: Arc::new(Metrics::new()),
            deliverer: Arc::new(Failing),
            zones: Zones::bundled(),
        };
        Self { engine: Engine::start(parts, Config::default()).await.unwrap() }
    }

    async fn submit(&self, path: &str, expires_ms: Option<i64>) -> JobId {
        let now = self.engine.clock().now();
        let target =
            Target { url: format!("http://a.example{path}").into(), method: "POST".into(), headers: vec![] };
        let spec = Spec {
            kind: "test".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Target(Arc::new(target)),
            priority: Priority::Normal,
            retry: RetryPolicy { backoff: Backoff::Fixed, base_ms: 5_000, ..RetryPolicy::default() },
            timeout_ms: 60_000,
            expires_at: expires_ms.map(|ms| now.plus_ms(ms)),
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            trace: None,
            created_at: now,
        };
        let job = Job::new(Tenant::default(), spec, now, 7);
        let id = job.id;
        let submission = Submission { job, key: None, fresh: true };
        self.engine.submit(vec![submission], OnConflict::KeepNone).await.unwrap();
        id
    }

    async fn until(&self, id: JobId, state: State) {
        loop {
            let found = self.engine.store().get(&Tenant::default(), vec![id]).await.unwrap().pop().unwrap();
            if found.unwrap().status.state == state {
                return;
            }
            self.engine.clock().sleep(Duration::from_millis(10)).await;
        }
    }

    async fn cancel(&self, id: JobId) {
        let order = Order { tenant: Tenant::default(), id, command: Command::Cancel, key: None };
        self.engine.command(vec![order]).await.unwrap().pop().unwrap().unwrap();
    }

    /// What is counted once everything under way has been dealt with.
    async fn counted(&self, metric: &str) -> String {
        self.engine.clock().sleep(Duration::from_secs(5)).await;
        let page = self.engine.metrics().render();
        page.lines().find_map(|line| line.strip_prefix(metric)).unwrap().trim().to_owned()
    }
}

const FAILED: &str = "tidewheel_deliveries_total{outcome=\"failed\"}";
const CANCELLED: &str = "tidewheel_deliveries_total{outcome=\"cancelled\"}";

#[tokio::test(start_paused = true)]
async fn a_retrying_job_that_expires_counts_its_attempt_once() {
    let world = World::new().await;
    let id = world.submit("/fail", Some(2_000)).await;
    world.until(id, State::Retrying).await;
    assert_eq!(world.engine.metrics().render().matches(&format!("{FAILED} 1\n")).count(), 1);
    world.until(id, State::Expired).await;
    assert_eq!(world.counted(FAILED).await, "1");
    assert_eq!(world.counted("tidewheel_retries_total").await, "1");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_counts_an_attempt_only_if_it_ends_one() {
    let world = World::new().await;
    let running = world.submit("/silence", None).await;
    world.until(running, State::Running).await;
    world.cancel(running).await;
    world.cancel(running).await;
    assert_eq!(world.counted(CANCELLED).await, "1");
    let retrying = world.submit("/fail", None).await;
    world.until(retrying, State::Retrying).await;
    world.cancel(retrying).await;
    assert_eq!((world.counted(CANCELLED).await.as_str(), world.counted(FAILED).await.as_str()), ("1", "1"));
}
