//! How long to wait before the next attempt.

use crate::limits::{ATTEMPTS_COUNT_DEFAULT, HOUR_MS, RETRY_DELAY_MS_MAX, SECOND_MS};

/// The shape of the waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backoff {
    /// Always the base.
    Fixed,
    /// The base, times the multiplier for every failure after the first.
    Exponential,
    /// As exponential, then a random part of it between a half and the whole, so that jobs that failed
    /// together do not come back together.
    #[default]
    ExponentialJitter,
}

/// When to try again, and how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Failures after which the job is dead.
    pub max_attempts: u32,
    /// The shape of the waits.
    pub backoff: Backoff,
    /// The first wait.
    pub base_ms: i64,
    /// What each further failure multiplies it by.
    pub multiplier: f64,
    /// The longest wait.
    pub max_ms: i64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: ATTEMPTS_COUNT_DEFAULT,
            backoff: Backoff::default(),
            base_ms: SECOND_MS,
            multiplier: 2.0,
            max_ms: HOUR_MS,
        }
    }
}

impl RetryPolicy {
    /// The wait after failure number `failures` (from 1). `jitter` is any random number.
    #[must_use]
    pub fn delay_ms(&self, failures: u32, jitter: u32) -> i64 {
        let ceiling = self.max_ms.clamp(0, RETRY_DELAY_MS_MAX);
        let base = self.base_ms.clamp(0, ceiling);
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        match self.backoff {
            Backoff::Fixed => base,
            Backoff::Exponential => grown(base, self.multiplier, exponent, ceiling),
            Backoff::ExponentialJitter => {
                let whole = grown(base, self.multiplier, exponent, ceiling);
                let half = whole / 2;
                half + (whole - half) * i64::from(jitter) / i64::from(u32::MAX)
            }
        }
    }
}

fn grown(base_ms: i64, multiplier: f64, exponent: i32, ceiling_ms: i64) -> i64 {
    #[expect(clippy::cast_precision_loss, reason = "waits are far below 2^52 ms")]
    let (base, ceiling) = (base_ms as f64, ceiling_ms as f64);
    let product = base * multiplier.max(1.0).powi(exponent);
    #[expect(clippy::cast_possible_truncation, reason = "clamped to the ceiling just before")]
    let ms = product.min(ceiling) as i64;
    ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_three_shapes() {
        let policy =
            |backoff| RetryPolicy { backoff, base_ms: 1_000, max_ms: 10_000, ..RetryPolicy::default() };
        let waits =
            |backoff, jitter| (1..=6).map(|n| policy(backoff).delay_ms(n, jitter)).collect::<Vec<_>>();
        assert_eq!(waits(Backoff::Fixed, 0), [1_000; 6]);
        assert_eq!(waits(Backoff::Exponential, 0), [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(waits(Backoff::ExponentialJitter, 0), [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert_eq!(waits(Backoff::ExponentialJitter, u32::MAX), [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    }

    proptest! {
        #[test]
        fn waits_stay_within_their_bounds(
            base_ms in any::<i64>(), max_ms in any::<i64>(), multiplier in any::<f64>(), failures in any::<u32>(), jitter in any::<u32>(),
        ) {
            for backoff in [Backoff::Fixed, Backoff::Exponential, Backoff::ExponentialJitter] {
                let wait = RetryPolicy { max_attempts: 5, backoff, base_ms, multiplier, max_ms }.delay_ms(failures, jitter);
                prop_assert!((0..=RETRY_DELAY_MS_MAX).contains(&wait));
            }
        }
    }
}
