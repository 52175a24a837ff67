//! The benchmark's own look at the clock. It measures the server from outside, so it does not share the server's.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidewheel_core::time::Timestamp;

/// Measures how long something takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The wall clock, in microseconds since the epoch: a job's time is a wall time.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(super) fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The wall clock, as jobs know it.
pub(super) fn wall_now() -> Timestamp {
    Timestamp::from_ms(wall_us() / 1_000)
}

/// Waits that long.
#[expect(clippy::disallowed_methods, reason = "a benchmark spreads its load over time")]
pub(super) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
