//! Times and durations between this server's milliseconds and the messages.

use prost_types::{Duration, Timestamp as Instant};
use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::time::Timestamp;

const NANOS_PER_MS: i64 = 1_000_000;

pub(super) fn instant(time: Timestamp) -> Instant {
    let ms = time.as_ms();
    Instant { seconds: ms.div_euclid(SECOND_MS), nanos: nanos(ms.rem_euclid(SECOND_MS)) }
}

pub(super) fn duration(ms: i64) -> Duration {
    Duration { seconds: ms / SECOND_MS, nanos: nanos(ms % SECOND_MS) }
}

/// The duration in milliseconds; what is finer is cut off.
pub(super) fn duration_ms(duration: &Duration) -> i64 {
    duration.seconds.saturating_mul(SECOND_MS).saturating_add(i64::from(duration.nanos) / NANOS_PER_MS)
}

/// The instant in milliseconds; what is finer is cut off.
pub(super) fn time(instant: &Instant) -> Timestamp {
    let ms = instant.seconds.saturating_mul(SECOND_MS);
    Timestamp::from_ms(ms.saturating_add(i64::from(instant.nanos) / NANOS_PER_MS))
}

fn nanos(ms: i64) -> i32 {
    i32::try_from(ms * NANOS_PER_MS).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_survive_there_and_back() {
        for ms in [0, 1, 999, 1_000, 1_800_000_000_123, -1, -1_001] {
            assert_eq!(time(&instant(Timestamp::from_ms(ms))).as_ms(), ms);
            assert_eq!(duration_ms(&duration(ms)), ms);
        }
        assert_eq!(instant(Timestamp::from_ms(-1)), Instant { seconds: -1, nanos: 999_000_000 });
        assert_eq!(duration_ms(&Duration { seconds: i64::MAX, nanos: 0 }), i64::MAX);
    }
}
