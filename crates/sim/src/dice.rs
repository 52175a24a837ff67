//! Where every random choice of a run comes from: one seed, so that a run can be had again.

use std::sync::atomic::{AtomicU64, Ordering};

use tidewheel_server::random::Random;

/// A small seeded generator (SplitMix64). Shared by whoever holds it; forked for whoever needs its own.
#[derive(Debug)]
pub struct Dice {
    state: AtomicU64,
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Dice {
    /// The dice of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// Dice of their own, decided by these.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::new(self.next_u64())
    }

    /// A number from `low` to `high`, both included.
    #[must_use]
    pub fn between(&self, low: i64, high: i64) -> i64 {
        let span = high.saturating_sub(low).saturating_add(1).max(1).unsigned_abs();
        low.saturating_add(i64::try_from(self.next_u64() % span).unwrap_or(0))
    }

    /// As [`Self::between`], for counts.
    #[must_use]
    pub fn count(&self, low: usize, high: usize) -> usize {
        let (low, high) = (i64::try_from(low).unwrap_or(0), i64::try_from(high).unwrap_or(0));
        usize::try_from(self.between(low, high)).unwrap_or(0)
    }

    /// True in so many of a hundred cases.
    #[must_use]
    pub fn percent(&self, chance: i64) -> bool {
        self.between(0, 99) < chance
    }

    /// One of these, or the fallback when there is none.
    #[must_use]
    pub fn pick<T: Copy>(&self, options: &[T], fallback: T) -> T {
        let last = options.len().saturating_sub(1);
        options.get(self.count(0, last)).copied().unwrap_or(fallback)
    }
}

impl Random for Dice {
    fn next_u64(&self) -> u64 {
        let mut mixed = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_it_all() {
        let throws = |seed| {
            let dice = Dice::new(seed);
            (0..100).map(|_| dice.between(-5, 5)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        assert!(throws(7).iter().all(|n| (-5..=5).contains(n)));
    }
}
