//! The pace of catching up: a token bucket on the monotonic clock.

/// Lets at most so many through per second, with a burst of a tenth of that.
#[derive(Debug)]
pub(super) struct Pace {
    per_second: i64,
    /// Thousandths of a job.
    tokens: i64,
    filled_ms: i64,
}

const SCALE: i64 = 1_000;
const BURST_DIVISOR: i64 = 10;

impl Pace {
    pub(super) fn new(per_second: u32, monotonic_ms: i64) -> Self {
        Self { per_second: i64::from(per_second.max(1)), tokens: 0, filled_ms: monotonic_ms }
    }

    /// How many may pass now.
    pub(super) fn allowance(&mut self, monotonic_ms: i64) -> usize {
        let passed = monotonic_ms.saturating_sub(self.filled_ms).max(0);
        self.filled_ms = monotonic_ms;
        let burst = (self.per_second / BURST_DIVISOR).max(1) * SCALE;
        self.tokens = self.tokens.saturating_add(passed.saturating_mul(self.per_second)).min(burst);
        usize::try_from(self.tokens / SCALE).unwrap_or(0)
    }

    /// So many have passed.
    pub(super) fn spend(&mut self, count: usize) {
        self.tokens -= i64::try_from(count).unwrap_or(i64::MAX / SCALE).saturating_mul(SCALE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_through_no_more_than_its_rate() {
        let mut pace = Pace::new(1_000, 0);
        let mut passed = 0;
        for ms in 0..=10_000 {
            let allowed = pace.allowance(ms);
            pace.spend(allowed);
            passed += allowed;
        }
        assert!((9_900..=10_100).contains(&passed), "{passed}");
    }
}
