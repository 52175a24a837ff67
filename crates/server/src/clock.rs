//! The one door to time. Wall time decides when jobs fire; waiting is monotonic, so a stepped wall clock
//! neither shortens nor stretches a wait. Nodes that share a store go by its clock instead of their own, so that one
//! whose clock is wrong starts nothing early.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
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

    /// Goes by another clock from now on, which showed `shown` when it was asked at some time after `asked_ms`.
    fn follow(&self, shown: Timestamp, asked_ms: i64) {
        let _ = (shown, asked_ms);
    }
}

/// No other clock is followed.
const OWN: i64 = i64::MIN;

/// The clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    started: std::time::Instant,
    /// What to add to the monotonic clock for the one that is followed.
    followed_ms: AtomicI64,
}

impl SystemClock {
    /// The clock of the machine.
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    #[expect(clippy::new_without_default, reason = "two clocks do not share their monotonic start")]
    #[must_use]
    pub fn new() -> Self {
        Self { started: std::time::Instant::now(), followed_ms: AtomicI64::new(OWN) }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    fn now(&self) -> Timestamp {
        let followed_ms = self.followed_ms.load(Ordering::SeqCst);
        if followed_ms != OWN {
            return Timestamp::from_ms(self.monotonic_ms().saturating_add(followed_ms));
        }
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

    fn follow(&self, shown: Timestamp, asked_ms: i64) {
        let heard_ms = self.monotonic_ms();
        let followed_ms = self.followed_ms.load(Ordering::SeqCst);
        let next_ms = followed_offset_ms(followed_ms, shown, asked_ms, heard_ms);
        if followed_ms != OWN && next_ms.abs_diff(followed_ms) > STEP_TOLD_MS {
            let by_ms = next_ms.saturating_sub(followed_ms);
            tracing::warn!(by_ms, "the clock of the store was set, or was not read in time; going by it");
        }
        self.followed_ms.store(next_ms, Ordering::SeqCst);
    }
}

/// Differences beyond this are told.
const STEP_TOLD_MS: u64 = 1_000;

/// What to add to the monotonic clock. The answer was on its way for an unknown part of the time since it was asked for,
/// so the clock may be that much further; as long as it is within that, nothing changes. Otherwise it is set to the
/// least it can be: a little late rather than early.
const fn followed_offset_ms(followed_ms: i64, shown: Timestamp, asked_ms: i64, heard_ms: i64) -> i64 {
    // Milliseconds are cut off on both sides; one less is never ahead.
    let least_ms = shown.as_ms().saturating_sub(heard_ms).saturating_sub(1);
    let most_ms = shown.as_ms().saturating_sub(asked_ms);
    if followed_ms != OWN && least_ms <= followed_ms && followed_ms <= most_ms {
        followed_ms
    } else {
        least_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_followed_clock_is_never_run_ahead_of_and_changes_only_when_it_must() {
        let shown = Timestamp::from_ms;
        // The first look: taken for the latest moment it can have been.
        let offset_ms = followed_offset_ms(OWN, shown(10_000), 100, 140);
        assert_eq!(offset_ms, 10_000 - 140 - 1);
        // A slow answer says less, and changes nothing.
        assert_eq!(followed_offset_ms(offset_ms, shown(14_900), 5_000, 5_400), offset_ms);
        // A quick one that shows more: it was further than was thought.
        assert_eq!(followed_offset_ms(offset_ms, shown(19_900), 10_000, 10_002), 19_900 - 10_002 - 1);
        // Set back.
        assert_eq!(followed_offset_ms(offset_ms, shown(5_000), 10_000, 10_002), 5_000 - 10_002 - 1);
    }

    #[test]
    fn whatever_its_own_shows() {
        let clock = SystemClock::new();
        clock.follow(Timestamp::from_ms(5_000), clock.monotonic_ms());
        let now = clock.now().as_ms();
        assert!((4_999..4_999 + 3_600_000).contains(&now), "{now}");
    }
}
