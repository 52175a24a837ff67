//! Virtual time: the runtime's paused clock, which jumps ahead whenever everybody waits, and a wall clock on
//! top of it that can be set wrong. Each node has its own on top of that, and stands still with it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tidewheel_core::time::Timestamp;
use tidewheel_server::clock::Clock;

/// The clock of a run. Made inside a runtime whose time is paused.
#[derive(Debug)]
pub struct SimClock {
    started: tokio::time::Instant,
    base_ms: i64,
    stepped_ms: AtomicI64,
    set_back_ms: AtomicI64,
}

/// When a run begins by its wall clock, unless it is to begin near a change of clocks.
pub const BASE_MS: i64 = 1_800_000_000_000;

impl SimClock {
    /// A clock that starts now.
    #[expect(clippy::new_without_default, reason = "two clocks do not share their start")]
    #[must_use]
    pub fn new() -> Self {
        Self::showing(BASE_MS)
    }

    /// A clock that starts now and shows this.
    #[expect(clippy::disallowed_methods, reason = "this is the simulator's door to time")]
    #[must_use]
    pub fn showing(base_ms: i64) -> Self {
        Self {
            started: tokio::time::Instant::now(),
            base_ms,
            stepped_ms: AtomicI64::new(0),
            set_back_ms: AtomicI64::new(0),
        }
    }

    /// Sets the wall clock ahead or back.
    pub fn step(&self, ms: i64) {
        self.stepped_ms.fetch_add(ms, Ordering::SeqCst);
        self.set_back_ms.fetch_add((-ms).max(0), Ordering::SeqCst);
    }

    /// How far the wall clock was set back so far, all steps together.
    #[must_use]
    pub fn set_back_ms(&self) -> i64 {
        self.set_back_ms.load(Ordering::SeqCst)
    }

    /// Waits so many milliseconds.
    #[expect(clippy::disallowed_methods, reason = "this is the simulator's door to time")]
    pub async fn sleep_ms(&self, ms: i64) {
        tokio::time::sleep(Duration::from_millis(u64::try_from(ms).unwrap_or(0))).await;
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let stepped_ms = self.stepped_ms.load(Ordering::SeqCst);
        Timestamp::from_ms(self.base_ms + self.monotonic_ms() + stepped_ms)
    }

    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the simulator's door to time")]
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// The clock of one node. Its wall clock may show another time than the world's. While the node stands still nothing that
/// waits for it goes on, but the time that passes counts.
#[derive(Debug)]
pub struct NodeClock {
    world: Arc<SimClock>,
    ahead_ms: AtomicI64,
    frozen_until_ms: Arc<AtomicI64>,
    slowness: u32,
}

impl NodeClock {
    /// The clock of a node that runs, and shows what the world's does. It counts one second where so many passed; a good
    /// one counts them all.
    #[must_use]
    pub fn new(world: Arc<SimClock>, slowness: u32) -> Self {
        Self {
            world,
            ahead_ms: AtomicI64::new(0),
            frozen_until_ms: Arc::default(),
            slowness: slowness.max(1),
        }
    }

    /// Shows so much more than the world's wall clock from now on.
    pub fn set_ahead(&self, ms: i64) {
        self.ahead_ms.store(ms, Ordering::SeqCst);
    }

    /// The node stands still for so long.
    pub fn freeze(&self, ms: i64) {
        self.frozen_until_ms.store(self.world.monotonic_ms() + ms, Ordering::SeqCst);
    }

    /// The node goes on at once, or is no more.
    pub fn unfreeze(&self) {
        self.frozen_until_ms.store(0, Ordering::SeqCst);
    }

    /// Whether the node has not stood still for so long.
    #[must_use]
    pub fn is_awake_since(&self, ms: i64) -> bool {
        self.frozen_until_ms.load(Ordering::SeqCst) + ms <= self.world.monotonic_ms()
    }

    /// Waits until the node does not stand still.
    pub fn thaw(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (world, until_ms) = (Arc::clone(&self.world), Arc::clone(&self.frozen_until_ms));
        Box::pin(async move {
            loop {
                let left_ms = until_ms.load(Ordering::SeqCst) - world.monotonic_ms();
                if left_ms <= 0 {
                    return;
                }
                world.sleep_ms(left_ms).await;
            }
        })
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        self.world.now().plus_ms(self.ahead_ms.load(Ordering::SeqCst))
    }

    fn monotonic_ms(&self) -> i64 {
        self.world.monotonic_ms() / i64::from(self.slowness)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (sleep, thaw) = (self.world.sleep(duration * self.slowness), self.thaw());
        Box::pin(async move {
            sleep.await;
            thaw.await;
        })
    }
}
