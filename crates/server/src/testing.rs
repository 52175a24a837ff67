//! A server in a test's own process, on a store in memory, with a clock that is turned by hand: for testing handlers.
//!
//! ```
//! use std::time::Duration;
//! use tidewheel_api::proto::v1::NewJob;
//! use tidewheel_api::worker::{Failure, Worker};
//! use tidewheel_server::testing::TestServer;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = TestServer::start().await?;
//! let mut worker = Worker::connect(server.worker("mail")).await?;
//! worker.handle("greet", |_, name: String| async move { Ok::<_, Failure>(format!("hello {name}")) });
//! tokio::spawn(worker.run());
//!
//! let hour = prost_types::Duration { seconds: 3_600, nanos: 0 };
//! let job = NewJob {
//!     r#type: "greet".into(),
//!     queue: "mail".into(),
//!     payload: "\"Ada\"".into(),
//!     delay: Some(hour),
//!     ..NewJob::default()
//! };
//! let id = server.client().submit(job).await?.id;
//! server.clock().advance(Duration::from_secs(3_600));
//! let job = server.until_ended(&id).await?;
//! assert_eq!((job.state.as_str(), &job.result[..]), ("succeeded", b"\"hello Ada\"".as_slice()));
//! # Ok(())
//! # }
//! ```
//!
//! Time stands still unless it is turned, for the server alone: handlers wait in real time. A worker is not taken for
//! dead however far the clock is turned, but the leases of what runs are over once it is turned beyond them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidewheel_api::client::{self, Call, Client, ClientConfig, Patience};
use tidewheel_api::proto::v1::Job as JobMessage;
use tidewheel_api::worker::WorkerConfig;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_store::Layout;
use tidewheel_store_testkit::memory::MemoryStore;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::access::Access;
use crate::clock::{Clock, SystemClock};
use crate::engine::{Config, Deliver, Engine, Parts, Reports};
use crate::http::{HttpLimits, HttpParts, ServeLimits, router, serve};
use crate::metrics::Metrics;
use crate::push::AddressPolicy;
use crate::random::SystemRandom;

/// When a test begins, by the server's clock: 2027-01-15T08:00:00Z.
pub const BEGINNING_MS: i64 = 1_800_000_000_000;
/// Workers are not given up for being silent while the clock is turned.
const NEVER_MS: i64 = i64::MAX / 4;
/// Between two looks at a job that is waited for.
const LOOK: Duration = Duration::from_millis(2);
const SHARDS: u16 = 4;
/// Sleepers that nobody waits for any more are looked for once there are this many.
const SLEEPERS_COUNT_MIN: usize = 64;

/// A clock that is turned by hand.
#[derive(Debug, Default)]
pub struct HandClock {
    hands: Mutex<Hands>,
}

#[derive(Debug, Default)]
struct Hands {
    elapsed_ms: i64,
    sleepers: BTreeMap<(i64, u64), oneshot::Sender<()>>,
    next: u64,
    prune_at: usize,
}

impl HandClock {
    /// Turns the clock ahead, and wakes whoever waited for it.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.hands();
        hands.elapsed_ms = hands.elapsed_ms.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
        let next_ms = hands.elapsed_ms.saturating_add(1);
        let later = hands.sleepers.split_off(&(next_ms, 0));
        for (_, sleeper) in std::mem::replace(&mut hands.sleepers, later) {
            // One that is gone needs no waking.
            sleeper.send(()).ok();
        }
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(BEGINNING_MS + self.hands().elapsed_ms)
    }

    fn monotonic_ms(&self) -> i64 {
        self.hands().elapsed_ms
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (wake, woken) = oneshot::channel();
        let mut hands = self.hands();
        let until_ms =
            hands.elapsed_ms.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX));
        if until_ms <= hands.elapsed_ms {
            wake.send(()).ok();
        } else {
            hands.next += 1;
            let number = hands.next;
            hands.sleepers.insert((until_ms, number), wake);
            if hands.sleepers.len() >= hands.prune_at.max(SLEEPERS_COUNT_MIN) {
                hands.sleepers.retain(|_, sleeper| !sleeper.is_closed());
                hands.prune_at = hands.sleepers.len() * 2;
            }
        }
        Box::pin(async move {
            woken.await.ok();
        })
    }
}

/// Takes pushed jobs and never says anything of them: handlers are workers'.
struct Nobody;

impl Deliver for Nobody {
    fn deliver(&self, _: Vec<Arc<Job>>, _: &Reports) {}
    fn abort(&self, _: &JobId) {}
}

/// A server for one test, on a free port of the loopback; gone when dropped.
pub struct TestServer {
    clock: Arc<HandClock>,
    engine: Engine,
    url: String,
    serving: AbortHandle,
}

impl TestServer {
    /// Starts one.
    ///
    /// # Errors
    /// When the machine has no port or no thread left.
    pub async fn start() -> std::io::Result<Self> {
        let clock = Arc::new(HandClock::default());
        let parts = Parts {
            store: Arc::new(MemoryStore::new(Layout { shards: SHARDS })),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            random: Arc::new(SystemRandom),
            metrics: Arc::new(Metrics::new()),
            deliverer: Arc::new(Nobody),
            zones: Zones::bundled(),
        };
        let config = Config { worker_dead_ms: NEVER_MS, ..Config::default() };
        let engine = Engine::start(parts, config).await.map_err(std::io::Error::other)?;
        let targets = AddressPolicy::public_only();
        let limits = HttpLimits::default();
        let access = Access::open_to_all(&engine).await.map_err(std::io::Error::other)?;
        let app = router(HttpParts { engine: engine.clone(), targets, limits, access });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let serving = tokio::spawn(serve(listener, app, ServeLimits::default(), std::future::pending()));
        Ok(Self { clock, engine, url, serving: serving.abort_handle() })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &HandClock {
        &self.clock
    }

    /// Its engine, for tests that look inside.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A client of it.
    ///
    /// # Panics
    /// Never: its own URL can be used.
    #[must_use]
    pub fn client(&self) -> Client {
        let config = ClientConfig { patience: Patience::NONE, ..ClientConfig::new(&self.url) };
        #[expect(clippy::expect_used, reason = "a test's own server has a URL that can be used")]
        Client::new(config).expect("the server's own URL can be used")
    }

    /// What a worker of one queue needs to connect.
    #[must_use]
    pub fn worker(&self, queue: &str) -> WorkerConfig {
        WorkerConfig::new(&self.url, queue)
    }

    /// A job as it is now.
    ///
    /// # Errors
    /// When there is no such job.
    pub async fn job(&self, id: &str) -> Result<JobMessage, client::Error> {
        self.client().send(&Call::get(&["jobs", id])).await?.json()
    }

    /// Waits, in real time, until a job is as wanted.
    ///
    /// # Errors
    /// When there is no such job.
    pub async fn until(
        &self,
        id: &str,
        wanted: impl Fn(&JobMessage) -> bool,
    ) -> Result<JobMessage, client::Error> {
        loop {
            let job = self.job(id).await?;
            if wanted(&job) {
                return Ok(job);
            }
            SystemClock::new().sleep(LOOK).await;
        }
    }

    /// Waits until a job has ended, one way or another.
    ///
    /// # Errors
    /// When there is no such job.
    pub async fn until_ended(&self, id: &str) -> Result<JobMessage, client::Error> {
        let ends = ["succeeded", "dead", "cancelled", "skipped", "expired"];
        self.until(id, |job| ends.contains(&job.state.as_str())).await
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
