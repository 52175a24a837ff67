//! A clock that tests set while an engine runs by it, and such an engine.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Config, Deliver, Engine, Parts, Reports};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::random::SystemRandom;
use tidewheel_store::Store;
use tidewheel_store_testkit::memory::MemoryStore;

/// Follows tokio's paused time; its wall clock can be set.
pub(crate) struct SettableClock {
    start: tokio::time::Instant,
    wall_ms: AtomicI64,
}

impl SettableClock {
    #[expect(clippy::disallowed_methods, reason = "paused time")]
    pub(crate) fn new() -> Self {
        Self { start: tokio::time::Instant::now(), wall_ms: AtomicI64::new(1_800_000_000_000) }
    }

    pub(crate) fn step(&self, ms: i64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.wall_ms.load(Ordering::SeqCst) + self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "paused time: nothing waits for real")]
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

struct Nobody;

impl Deliver for Nobody {
    fn deliver(&self, _: Vec<Arc<Job>>, _: &Reports) {}
    fn abort(&self, _: &JobId) {}
}

pub(crate) async fn start(store: &Arc<MemoryStore>, clock: &Arc<SettableClock>) -> Engine {
    let parts = Parts {
        store: Arc::clone(store) as Arc<dyn Store>,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        random: Arc::new(SystemRandom),
        metrics: Arc::new(Metrics::new()),
        deliverer: Arc::new(Nobody),
        zones: Zones::bundled(),
    };
    Engine::start(parts, Config::default()).await.unwrap()
}
