//! Which of a tenant's priorities is served next: smooth weighted shares of 8 : 4 : 2 : 1.
//!
//! Self-clocked fair queueing. Every priority that has work carries the virtual time at which its next service would
//! finish; the earliest goes first and the clock moves to it. A priority served twice as often has strides half as
//! long. One that was idle joins at the clock, not at the time it left, so idleness earns no credit.

use super::per_priority::PerPriority;
use crate::job::Priority;

#[derive(Debug, Default)]
pub(super) struct Shares {
    clock: u64,
    /// Absent while the priority is idle.
    finish: PerPriority<Option<u64>>,
}

/// How a priority stands when the next turn is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Has something to serve.
    Ready,
    /// Has entries, none of which may be served now.
    Barred,
    /// Has no entries.
    Idle,
}

impl Shares {
    /// The ready priority whose turn it is, without taking the turn.
    pub(super) fn next(&mut self, mut standing: impl FnMut(Priority) -> Standing) -> Option<Priority> {
        let mut earliest = None;
        for priority in Priority::ALL {
            let standing = standing(priority);
            if standing == Standing::Idle {
                self.finish[priority] = None;
                continue;
            }
            let joins_at = self.clock + stride(priority);
            let finish = *self.finish[priority].get_or_insert(joins_at);
            if standing == Standing::Ready && earliest.is_none_or(|(_, first)| finish < first) {
                earliest = Some((priority, finish));
            }
        }
        earliest.map(|(priority, _)| priority)
    }

    /// What `next` does where no other priority has anything to serve.
    pub(super) fn only(&mut self, priority: Priority) {
        let finish = self.finish[priority].unwrap_or(self.clock + stride(priority));
        self.finish = PerPriority::default();
        self.finish[priority] = Some(finish);
    }

    /// Takes the turn of a priority that `next` named.
    pub(super) fn served(&mut self, priority: Priority) {
        let Some(finish) = self.finish[priority] else { return };
        self.clock = finish;
        self.finish[priority] = Some(finish + stride(priority));
        // A barred priority keeps its one turn but saves up no more: it would come back with a burst.
        for other in Priority::ALL {
            self.finish[other] = self.finish[other].map(|finish| finish.max(self.clock));
        }
    }
}

/// Virtual time one service takes: the inverse of the priority's share.
const fn stride(priority: Priority) -> u64 {
    match priority {
        Priority::Critical => 1,
        Priority::High => 2,
        Priority::Normal => 4,
        Priority::Low => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::{Shares, Standing};
    use crate::job::Priority::{self, Critical, High, Low, Normal};

    fn ready_if(ready: bool) -> Standing {
        if ready { Standing::Ready } else { Standing::Idle }
    }

    fn serve(shares: &mut Shares, busy: &[Priority], turns: usize) -> Vec<Priority> {
        let mut order = Vec::new();
        for _ in 0..turns {
            let priority = shares.next(|priority| ready_if(busy.contains(&priority))).unwrap();
            shares.served(priority);
            order.push(priority);
        }
        order
    }

    #[test]
    fn a_round_is_smooth_and_exact() {
        let order = serve(&mut Shares::default(), &Priority::ALL, 15);
        let expected = [
            Critical, Critical, High, Critical, Critical, High, Normal, Critical, Critical, High, Critical,
            Critical, High, Normal, Low,
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn an_idle_share_goes_to_the_others_in_proportion() {
        let order = serve(&mut Shares::default(), &[High, Low], 500);
        assert_eq!(order.iter().filter(|priority| **priority == High).count(), 400);
    }

    #[test]
    fn idleness_earns_no_credit_in_either_direction() {
        let mut shares = Shares::default();
        serve(&mut shares, &[Low], 1_000);
        serve(&mut shares, &[Critical], 1_000);
        let order = serve(&mut shares, &[Critical, Low], 9);
        assert_eq!(order.iter().filter(|priority| **priority == Low).count(), 1);
    }

    #[test]
    fn emptying_after_each_service_does_not_gain_a_larger_share() {
        let mut shares = Shares::default();
        let mut criticals = 0;
        for _ in 0..900 {
            let order = serve(&mut shares, &[Critical, High], 1);
            if order == [Critical] {
                criticals += 1;
                // Critical is seen idle between two of its entries, with nothing served meanwhile.
                shares.next(|priority| ready_if(priority == High));
            }
        }
        assert_eq!(criticals, 600);
    }

    #[test]
    fn one_that_is_alone_stands_as_if_all_had_been_asked() {
        let mut shares = [Shares::default(), Shares::default()];
        for priority in [Low, Normal, Normal, Critical, High, Low, Low, Critical] {
            let [asked, alone] = &mut shares;
            for shares in [&mut *asked, &mut *alone] {
                let busy = serve(shares, &[High, Low, priority], 3);
                assert_eq!(busy.len(), 3);
            }
            assert_eq!(asked.next(|other| ready_if(other == priority)), Some(priority));
            alone.only(priority);
            assert_eq!(format!("{asked:?}"), format!("{alone:?}"));
        }
    }

    #[test]
    fn nothing_to_do_is_nothing() {
        assert_eq!(Shares::default().next(|_| Standing::Idle), None);
    }

    #[test]
    fn a_barred_priority_keeps_one_turn_and_saves_up_no_more() {
        let mut shares = Shares::default();
        for _ in 0..1_000 {
            let barred =
                |priority| if priority == Low { Standing::Barred } else { ready_if(priority == Critical) };
            let priority = shares.next(barred).unwrap();
            shares.served(priority);
        }
        let order = serve(&mut shares, &[Critical, Low], 18);
        assert_eq!(order.first(), Some(&Low));
        assert!(order.iter().filter(|priority| **priority == Low).count() <= 3);
    }

    #[test]
    fn turns_that_find_everything_barred_change_nothing() {
        let mut shares = Shares::default();
        let mut lows = 0;
        for _ in 0..90 {
            let both = |priority| matches!(priority, Critical | Low);
            shares.next(|priority| if both(priority) { Standing::Barred } else { Standing::Idle });
            let priority = shares.next(|priority| ready_if(both(priority))).unwrap();
            shares.served(priority);
            lows += usize::from(priority == Low);
        }
        assert_eq!(lows, 10);
    }
}
