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

    /// When an entry that counts as `class` rises to the next; the end of time if it never does.
    pub(super) fn rises_at_ms(self, priority: Priority, ready_at_ms: i64, class: Priority) -> i64 {
        if self.step_ms < 1 || class == Priority::Critical {
            return i64::MAX;
        }
        let levels = priority.index().saturating_sub(class.index()).saturating_add(1);
        let wait_ms = i64::try_from(levels).unwrap_or(i64::MAX).saturating_mul(self.step_ms);
        ready_at_ms.saturating_add(wait_ms)
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
    fn the_next_rise_is_the_first_instant_of_the_next_class() {
        let aging = Aging { step_ms: 100 };
        for (class, above) in [(Low, Normal), (Normal, High), (High, Critical)] {
            let at_ms = aging.rises_at_ms(Low, 1_000, class);
            assert_eq!(aging.class(Low, 1_000, at_ms - 1), class);
            assert_eq!(aging.class(Low, 1_000, at_ms), above);
        }
        assert_eq!(aging.rises_at_ms(Low, 1_000, Critical), i64::MAX);
    }

    #[test]
    fn without_a_step_nothing_ages_and_extremes_do_not_overflow() {
        assert_eq!(Aging { step_ms: 0 }.class(Low, i64::MIN, i64::MAX), Low);
        assert_eq!(Aging { step_ms: 0 }.rises_at_ms(Low, 0, Low), i64::MAX);
        assert_eq!(Aging { step_ms: 1 }.class(Low, i64::MIN, i64::MAX), Critical);
        assert_eq!(Aging { step_ms: i64::MAX }.rises_at_ms(Low, 5, Low), i64::MAX);
    }
}
