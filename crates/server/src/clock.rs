//! The one door to time. Wall time decides when jobs fire; waiting is monotonic, so a stepped wall clock
//! neither shortens nor stretches a wait.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tidewheel_core::time::Timestamp;

/// Where the server gets its time from.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Milliseconds since some fixed moment; never goes back.
    fn monotonic_ms(&self) -> i64;

    /// Waits that long, by the monotonic clock.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl SystemClock {
    /// The clock of the machine.
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    #[expect(clippy::new_without_default, reason = "two clocks do not share their monotonic start")]
    #[must_use]
    pub fn new() -> Self {
        Self { started: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}
