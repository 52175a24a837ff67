//! The last quarter of an hour of what is counted, for those who look at the server without a system that keeps
//! its metrics. Bounded: one sample every few seconds, in a ring.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tidewheel_core::limits::{MINUTE_MS, SECOND_MS};
use tidewheel_core::time::Timestamp;

use super::lag::LagCounts;

/// From one sample to the next.
pub(crate) const SAMPLE_MS: i64 = 5 * SECOND_MS;
/// How far back samples go.
const KEPT_MS: i64 = 15 * MINUTE_MS;
/// Samples that are kept, the one everything is counted from included.
const SAMPLES_COUNT_MAX: usize = 181;
const _: () = assert!(KEPT_MS / SAMPLE_MS + 1 == 181, "as many as fit the time");

/// What had been counted at an instant since the start, and how much there was of what comes and goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) at: Timestamp,
    pub(crate) submitted: u64,
    pub(crate) succeeded: u64,
    /// Attempts that ended in any other way.
    pub(crate) failed: u64,
    pub(crate) lag: LagCounts,
    pub(crate) waiting: u64,
    pub(crate) running: u64,
    pub(crate) dead: u64,
}

/// The samples, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<Sample>>);

impl Recent {
    /// Keeps a sample if it is time for one.
    pub(super) fn note(&self, now: Timestamp, sample: impl FnOnce() -> Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back would have all samples lie ahead.
        if samples.back().is_some_and(|last| last.at > now) {
            samples.clear();
        }
        if samples.back().is_none_or(|last| now.since_ms(last.at) >= SAMPLE_MS) {
            while samples.len() >= SAMPLES_COUNT_MAX {
                samples.pop_front();
            }
            samples.push_back(sample());
        }
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Timestamp) -> Sample {
        let lag = LagCounts::default();
        Sample { at, submitted: 0, succeeded: 0, failed: 0, lag, waiting: 0, running: 0, dead: 0 }
    }

    #[test]
    fn samples_are_spaced_bounded_and_never_ahead() {
        let recent = Recent::default();
        let start = Timestamp::from_ms(1_000_000);
        for second in 0..3_600 {
            let now = start.plus_ms(second * SECOND_MS);
            recent.note(now, || sample(now));
        }
        let samples = recent.samples();
        assert_eq!(samples.len(), SAMPLES_COUNT_MAX);
        assert!(samples.windows(2).all(|pair| pair[1].at.since_ms(pair[0].at) == SAMPLE_MS));
        recent.note(start, || sample(start));
        assert_eq!(recent.samples(), [sample(start)]);
    }
}
