//! How long to keep trying: waits that double, up to a total.

use std::time::Duration;

/// How long a client keeps trying a call that is safe to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The first wait; each next is twice as long.
    pub first_wait: Duration,
    /// The longest of the client's own waits. A server may ask for a longer one.
    pub longest_wait: Duration,
    /// All waits of one call together; the call is given up rather than exceed it.
    pub total_wait: Duration,
}

impl Default for Patience {
    /// About two seconds: enough for a connection lost or a moment of overload, little enough for a person waiting.
    fn default() -> Self {
        Self {
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(1),
            total_wait: Duration::from_secs(2),
        }
    }
}

impl Patience {
    /// Never tries twice.
    pub const NONE: Self =
        Self { first_wait: Duration::ZERO, longest_wait: Duration::ZERO, total_wait: Duration::ZERO };

    /// Sits out a restart of the server: for work that nobody wants to start again by hand.
    pub const LONG: Self = Self {
        first_wait: Duration::from_millis(200),
        longest_wait: Duration::from_secs(5),
        total_wait: Duration::from_secs(120),
    };

    pub(super) fn waits(self) -> Waits {
        Waits { next: self.first_wait, longest: self.longest_wait, left: self.total_wait }
    }
}

/// The waits of one call.
#[derive(Debug)]
pub(super) struct Waits {
    next: Duration,
    longest: Duration,
    left: Duration,
}

impl Waits {
    /// The next wait, at least as long as the server asked for; `None` once patience is over.
    pub(super) fn next_wait(&mut self, asked: Option<Duration>) -> Option<Duration> {
        let own = self.next.min(self.longest);
        let wait = asked.map_or(own, |asked| asked.max(own));
        if self.left.is_zero() || wait > self.left {
            return None;
        }
        self.left = self.left.saturating_sub(wait);
        self.next = self.next.saturating_mul(2);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn waits_double_up_to_the_longest_and_end_at_the_total() {
        let patience = Patience { first_wait: ms(100), longest_wait: ms(300), total_wait: ms(900) };
        let mut waits = patience.waits();
        let all: Vec<_> = std::iter::from_fn(|| waits.next_wait(None)).collect();
        assert_eq!(all, [ms(100), ms(200), ms(300), ms(300)]);
    }

    #[test]
    fn the_server_may_ask_for_more_but_not_for_more_than_there_is() {
        let patience = Patience { first_wait: ms(100), longest_wait: ms(100), total_wait: ms(5_000) };
        let mut waits = patience.waits();
        assert_eq!(waits.next_wait(Some(ms(3_000))), Some(ms(3_000)));
        assert_eq!(waits.next_wait(Some(ms(3_000))), None);
        assert_eq!(waits.next_wait(Some(ms(10))), Some(ms(100)));
        assert_eq!(Patience::NONE.waits().next_wait(None), None);
    }
}
