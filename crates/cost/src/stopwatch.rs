//! The one look at the clock. Nothing that is counted depends on it: it says when to give up, and when jobs are due.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidewheel_core::time::Timestamp;

/// What takes longer is broken rather than slow, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1_200);

/// Measures how long something takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "to give up in time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "a job's time is a wall time")]
pub(crate) fn wall_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Waits that long.
#[expect(clippy::disallowed_methods, reason = "what is waited for is in another process")]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Looks again and again, less and less often, until there is something to see.
pub(crate) async fn until<T, F>(what: &str, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    const FIRST: Duration = Duration::from_millis(250);
    let (watch, mut wait) = (Stopwatch::start(), FIRST);
    loop {
        pause(wait).await;
        if let Some(seen) = look().await? {
            return Ok(seen);
        }
        anyhow::ensure!(watch.elapsed() < PATIENCE, "{what}: not after {} s", PATIENCE.as_secs());
        wait = (wait * 2).min(FIRST * 8);
    }
}
