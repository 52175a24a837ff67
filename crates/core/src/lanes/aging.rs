//! Waiting raises priority: one level for every full `step_ms` waited, so that nothing is starved.

use crate::job::Priority;

#[derive(Debug, Clone, Copy)]
pub(super) struct Aging {
    /// Below 1, nothing ages.
    pub(super) step_ms: i64,
}

impl Aging {
    /// The priority an entry counts as at `now_ms`.
    pub(super) fn class(self, priority: Priority, ready_at_ms: i64, now_ms: i64) -> Priority {
        let waited_ms = now_ms.saturating_sub(ready_at_ms);
        if self.step_ms < 1 || waited_ms < self.step_ms {
            return priority;
        }
        let levels = usize::try_from(waited_ms / self.step_ms).unwrap_or(usize::MAX);
        let raised = priority.index().saturating_sub(levels);
        Priority::ALL.get(raised).copied().unwrap_or(priority)
    }
}

#[cfg(test)]
mod tests {
    use super::Aging;
    use crate::job::Priority::{Critical, High, Low, Normal};

    #[test]
    fn every_full_step_raises_one_level_and_no_further_than_critical() {
        let aging = Aging { step_ms: 100 };
        let waits =
            [(-50, Low), (0, Low), (99, Low), (100, Normal), (200, High), (300, Critical), (9_000, Critical)];
        for (waited_ms, class) in waits {
            assert_eq!(aging.class(Low, 1_000, 1_000 + waited_ms), class, "after {waited_ms} ms");
        }
    }

    #[test]
    fn without_a_step_nothing_ages_and_extremes_do_not_overflow() {
        assert_eq!(Aging { step_ms: 0 }.class(Low, i64::MIN, i64::MAX), Low);
        assert_eq!(Aging { step_ms: 1 }.class(Low, i64::MIN, i64::MAX), Critical);
    }
}
