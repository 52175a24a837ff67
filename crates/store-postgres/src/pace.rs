//! How much a round of settling takes on. One that is cancelled for its time has done nothing, and the next would begin at the
//! same place: it takes on less, until one gets through.

/// Jobs that a round passes at most, and attempts and changes of counts that it looks at. About a second's work: submissions for the
/// ten minutes that are passed wait for the round.
pub(crate) const PASSED_COUNT_MAX: i64 = 200_000;
/// However often rounds came to nothing, one takes on so many.
const PASSED_COUNT_MIN: i64 = 1_000;

/// How the rounds before went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    count_max: i64,
    /// The last round left something that it could have passed.
    is_behind: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { count_max: PASSED_COUNT_MAX, is_behind: false }
    }
}

impl Pace {
    /// What the next round may take on.
    pub(crate) const fn count_max(self) -> i64 {
        self.count_max
    }

    /// Whether the next round is due at once.
    pub(crate) const fn is_behind(self) -> bool {
        self.is_behind
    }

    /// After a round that got through.
    pub(crate) fn succeeded(self, is_behind: bool) -> Self {
        Self { count_max: self.count_max.saturating_mul(2).min(PASSED_COUNT_MAX), is_behind }
    }

    /// After one that had nothing to take on, which says nothing about how much it could have.
    pub(crate) const fn waited(self) -> Self {
        Self { is_behind: false, ..self }
    }

    /// After one that came to nothing.
    pub(crate) fn failed(self) -> Self {
        Self { count_max: (self.count_max / 2).max(PASSED_COUNT_MIN), is_behind: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_came_to_nothing_is_tried_again_with_less_and_one_that_got_through_with_more() {
        let mut pace = Pace::default();
        assert_eq!(pace.count_max(), PASSED_COUNT_MAX);
        pace = pace.failed();
        assert_eq!(pace.count_max(), PASSED_COUNT_MAX / 2);
        for _ in 0..30 {
            pace = pace.failed();
        }
        assert_eq!((pace.count_max(), pace.is_behind()), (PASSED_COUNT_MIN, false));
        pace = pace.succeeded(true);
        assert_eq!((pace.count_max(), pace.is_behind()), (2 * PASSED_COUNT_MIN, true));
        pace = pace.waited();
        assert_eq!((pace.count_max(), pace.is_behind()), (2 * PASSED_COUNT_MIN, false));
        for _ in 0..30 {
            pace = pace.succeeded(false);
        }
        assert_eq!(pace, Pace::default());
    }
}
