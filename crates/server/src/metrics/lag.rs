//! How late attempts start: a histogram that can also be read, which that of the metrics library cannot.

use std::sync::atomic::{AtomicU64, Ordering};

/// From 1 ms to 5 min, fine where it matters.
const BOUNDS_MS: [u32; 20] = [
    1, 2, 5, 10, 20, 50, 100, 200, 350, 500, 750, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000,
    180_000, 300_000,
];
/// One for each bound, and one for what is beyond the last.
const BUCKETS_COUNT: usize = BOUNDS_MS.len() + 1;

/// How many lags fell between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LagCounts([u64; BUCKETS_COUNT]);

impl LagCounts {
    /// What was added since.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut added = *self;
        for (count, before) in added.0.iter_mut().zip(earlier.0) {
            *count = count.saturating_sub(before);
        }
        added
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The lag that so many thousandths of all do not exceed, in milliseconds: exact to its bucket, even within it.
    /// Beyond the last bound nothing is known but that; the bound is given.
    pub(crate) fn per_mille_ms(&self, per_mille: u64) -> Option<f64> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let rank = (u128::from(total) * u128::from(per_mille)).div_ceil(1_000).max(1);
        let (mut below, mut lower_ms) = (0_u128, 0.0);
        for (count, upper_ms) in self.0.iter().zip(BOUNDS_MS.map(f64::from)) {
            let through = below + u128::from(*count);
            if through >= rank {
                #[expect(clippy::cast_precision_loss, reason = "a place within a bucket need not be exact")]
                let part = (rank - below) as f64 / (*count).max(1) as f64;
                return Some(lower_ms + (upper_ms - lower_ms) * part);
            }
            (below, lower_ms) = (through, upper_ms);
        }
        Some(lower_ms)
    }
}

/// The histogram.
#[derive(Debug, Default)]
pub(super) struct LagHistogram([AtomicU64; BUCKETS_COUNT]);

impl LagHistogram {
    pub(super) fn observe(&self, lag_ms: u64) {
        let index = BOUNDS_MS.partition_point(|bound| u64::from(*bound) < lag_ms);
        if let Some(count) = self.0.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn counts(&self) -> LagCounts {
        let mut counts = LagCounts::default();
        for (count, counter) in counts.0.iter_mut().zip(&self.0) {
            *count = counter.load(Ordering::Relaxed);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_in_their_bucket() {
        let lag = LagHistogram::default();
        assert_eq!(lag.counts().per_mille_ms(500), None);
        (0..90).for_each(|_| lag.observe(4));
        (0..10).for_each(|_| lag.observe(1_500));
        let counts = lag.counts();
        assert_eq!(counts.total(), 100);
        let at = |per_mille| counts.per_mille_ms(per_mille).unwrap();
        assert!((2.0..=5.0).contains(&at(500)), "{}", at(500));
        assert!((2.0..=5.0).contains(&at(900)), "{}", at(900));
        assert!((1_000.0..=2_000.0).contains(&at(910)), "{}", at(910));
        assert!((1_999.0..=2_000.0).contains(&at(999)), "{}", at(999));
    }

    #[test]
    fn what_is_beyond_the_last_bound_is_shown_as_the_bound() {
        let lag = LagHistogram::default();
        lag.observe(u64::from(u32::MAX));
        assert_eq!(lag.counts().per_mille_ms(500), Some(300_000.0));
    }

    #[test]
    fn only_what_was_added_counts() {
        let lag = LagHistogram::default();
        lag.observe(250_000);
        let before = lag.counts();
        lag.observe(0);
        let added = lag.counts().since(&before);
        assert_eq!(added.total(), 1);
        assert!(added.per_mille_ms(999).unwrap() <= 1.0);
    }
}
