//! What two nodes know of attempts on their way from one to the other, and when it is certain that one will never start.
//!
//! What is handed on carries a number, and until when its attempts may start, by the clock of the node that they are for.
//! Whatever that node says carries the time by the same clock, and which numbers it has taken in. So once it speaks at a later
//! time, and has not taken a number in, it never will: those attempts did not start, and are free for others at no cost. Of
//! everything else that is not known, and its lease decides. No clock is compared with another for this. How the one is
//! guessed from the other says how long attempts may be on their way, and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Token;
use tidewheel_core::limits::{MINUTE_MS, SECOND_MS};
use tidewheel_core::names::Tenant;
use tidewheel_store::Receipt;

/// An attempt of a tenant's job.
pub(super) type Attempt = (Tenant, JobId, Token);

/// How long after its attempts may no longer start a node still says that it has taken a number in; it is asked no later.
const RECEIPT_MS: i64 = MINUTE_MS;
/// How long a guess of another node's clock is better than a newer one that says less.
const GUESS_MS: i64 = MINUTE_MS;
/// Batches of attempts handed on that are remembered until they are heard of; of what is more the leases decide.
const UNANSWERED_COUNT_MAX: usize = 10_000;
/// Nodes that attempts are taken from.
const NODES_COUNT_MAX: usize = 1_000;
/// Numbers of one node that were passed over and are spoken of; of what is more the leases decide.
const MISSED_COUNT_MAX: usize = 8;
/// How long they are spoken of.
const MISSED_MS: i64 = 30 * SECOND_MS;
/// Attempts that are remembered until they may no longer start; what is more is not taken in.
const TAKEN_COUNT_MAX: usize = 500_000;

/// Attempts that were handed on together, and that the other node has not said it has taken in.
#[derive(Debug)]
struct Unanswered {
    attempts: Vec<Attempt>,
    start_by_ms: i64,
    at_ms: i64,
}

/// How far another node's clock is ahead of this one's, at least.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    by_ms: i64,
    at_ms: i64,
}

/// What this node handed on.
#[derive(Debug, Default)]
pub(super) struct Sent {
    clocks: BTreeMap<Arc<str>, Ahead>,
    /// By node, the number of what it was last handed; one after the other, so that it sees what it missed.
    last: BTreeMap<Arc<str>, u64>,
    /// The highest number there was.
    highest: u64,
    unanswered: BTreeMap<(Arc<str>, u64), Unanswered>,
}

impl Sent {
    /// A node said something when its clock showed that.
    pub(super) fn clock_showed(&mut self, node: &Arc<str>, said_ms: i64, now_ms: i64) {
        // What was long on its way says less than it could, never more.
        let heard = Ahead { by_ms: said_ms.saturating_sub(now_ms), at_ms: now_ms };
        let known = self.clocks.entry(Arc::clone(node)).or_insert(heard);
        if heard.by_ms >= known.by_ms || known.at_ms.saturating_add(GUESS_MS) <= now_ms {
            *known = heard;
        }
    }

    /// Until when, by a node's clock, something may start there that has so long for it from now on; none if nothing is known
    /// of its clock.
    pub(super) fn start_by_ms(&self, node: &str, within_ms: i64, now_ms: i64) -> Option<i64> {
        let ahead = self.clocks.get(node)?;
        Some(now_ms.saturating_add(ahead.by_ms).saturating_add(within_ms))
    }

    /// The number of what a node is handed next.
    pub(super) fn next_number(&mut self, node: &Arc<str>) -> u64 {
        let number = self.last.get(node).copied().unwrap_or(self.highest) + 1;
        self.last.insert(Arc::clone(node), number);
        self.highest = self.highest.max(number);
        number
    }

    /// Remembers what a node is handed under a number.
    pub(super) fn handed(
        &mut self,
        to: &Arc<str>,
        number: u64,
        attempts: Vec<Attempt>,
        (start_by_ms, at_ms): (i64, i64),
    ) {
        self.unanswered.insert((Arc::clone(to), number), Unanswered { attempts, start_by_ms, at_ms });
        if self.unanswered.len() > UNANSWERED_COUNT_MAX {
            self.unanswered.pop_first();
        }
    }

    /// It was not handed on after all.
    pub(super) fn unsaid(&mut self, to: &Arc<str>, number: u64) {
        self.unanswered.remove(&(Arc::clone(to), number));
    }

    /// A node says, when its clock shows that, what it has taken in. Returns the attempts that will not start there.
    pub(super) fn answered(
        &mut self,
        node: &Arc<str>,
        heard: Option<&Receipt>,
        said_ms: i64,
    ) -> Vec<Attempt> {
        let is_heard = |number| heard.is_some_and(|it| number <= it.number && !it.missed.contains(&number));
        let all = (Arc::clone(node), 0)..=(Arc::clone(node), u64::MAX);
        let is_over = |((_, number), it): (&(Arc<str>, u64), &Unanswered)| {
            (is_heard(*number) || said_ms >= it.start_by_ms).then_some(*number)
        };
        let over: Vec<u64> = self.unanswered.range(all).filter_map(is_over).collect();
        let mut lost = Vec::new();
        for number in over {
            let Some(it) = self.unanswered.remove(&(Arc::clone(node), number)) else { continue };
            // One who says it so late may have forgotten.
            if !is_heard(number) && said_ms <= it.start_by_ms.saturating_add(RECEIPT_MS) {
                lost.extend(it.attempts);
            }
        }
        lost
    }

    /// Forgets what nobody will answer any more.
    pub(super) fn forget(&mut self, now_ms: i64) {
        self.unanswered.retain(|_, it| it.at_ms.saturating_add(3 * RECEIPT_MS) > now_ms);
        self.clocks.retain(|_, clock| clock.at_ms.saturating_add(3 * GUESS_MS) > now_ms);
        self.last.retain(|node, _| self.clocks.contains_key(node));
    }
}

/// What was taken in of one node.
#[derive(Debug)]
struct TakenIn {
    /// The highest number.
    number: u64,
    /// Numbers before it that did not come, and since when that is known.
    missed: BTreeMap<u64, i64>,
    kept_until_ms: i64,
}

/// What this node was handed.
#[derive(Debug, Default)]
pub(super) struct Received {
    nodes: BTreeMap<Arc<str>, TakenIn>,
}

impl Received {
    /// Takes note of attempts that another node handed on; says whether they may be taken in.
    pub(super) fn note(&mut self, from: &Arc<str>, number: u64, start_by_ms: i64, now_ms: i64) -> bool {
        if now_ms >= start_by_ms {
            return false;
        }
        if !self.nodes.contains_key(from) && self.nodes.len() >= NODES_COUNT_MAX {
            return false;
        }
        let first = || TakenIn { number, missed: BTreeMap::new(), kept_until_ms: i64::MIN };
        let taken = self.nodes.entry(Arc::clone(from)).or_insert_with(first);
        taken.kept_until_ms = taken.kept_until_ms.max(start_by_ms.saturating_add(RECEIPT_MS));
        taken.missed.remove(&number);
        let passed_over = (taken.number + 1..number).rev().take(MISSED_COUNT_MAX);
        taken.missed.extend(passed_over.map(|missed| (missed, now_ms)));
        while taken.missed.len() > MISSED_COUNT_MAX {
            taken.missed.pop_first();
        }
        taken.number = taken.number.max(number);
        true
    }

    /// What to say of it.
    pub(super) fn receipts(&self) -> Vec<Receipt> {
        let receipt = |(node, taken): (&Arc<str>, &TakenIn)| Receipt {
            node: Arc::clone(node),
            number: taken.number,
            missed: taken.missed.keys().copied().collect(),
        };
        self.nodes.iter().map(receipt).collect()
    }

    /// Forgets what nobody asks for any more.
    pub(super) fn forget(&mut self, now_ms: i64) {
        self.nodes.retain(|_, taken| taken.kept_until_ms >= now_ms);
        for taken in self.nodes.values_mut() {
            taken.missed.retain(|_, since_ms| since_ms.saturating_add(MISSED_MS) > now_ms);
        }
    }
}

/// Attempts that came already: what is said may be heard more than once.
#[derive(Debug, Default)]
pub(super) struct Once(BTreeSet<(i64, JobId, Token)>);

impl Once {
    /// Leaves those that may still start and did not come before.
    pub(super) fn sift(&mut self, attempts: &mut Vec<Attempt>, start_by_ms: i64, now_ms: i64) {
        while self.0.first().is_some_and(|(over_ms, _, _)| *over_ms <= now_ms) {
            self.0.pop_first();
        }
        attempts.retain(|(_, id, token)| {
            start_by_ms > now_ms
                && self.0.len() < TAKEN_COUNT_MAX
                && self.0.insert((start_by_ms, *id, *token))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    fn attempt(n: u8) -> Attempt {
        (Tenant::default(), JobId::from_bytes([n; 16]), Token::new(1, 1))
    }

    /// A node that was handed one attempt under each of these numbers, to start before 1000 by its clock.
    fn handed(numbers: &[u8]) -> Sent {
        let mut sent = Sent::default();
        for n in numbers {
            sent.handed(&node("b"), u64::from(*n), vec![attempt(*n)], (1_000, 0));
        }
        sent
    }

    fn receipt(number: u64, missed: &[u64]) -> Receipt {
        Receipt { node: node("a"), number, missed: missed.to_vec() }
    }

    #[test]
    fn what_was_not_taken_in_will_not_start_once_its_time_is_over() {
        let mut sent = handed(&[1, 2]);
        assert!(sent.answered(&node("b"), None, 999).is_empty(), "it may be on its way");
        assert!(sent.answered(&node("c"), None, 5_000).is_empty(), "another node");
        assert_eq!(sent.answered(&node("b"), Some(&receipt(1, &[])), 1_000), [attempt(2)]);
        assert!(sent.answered(&node("b"), None, 1_001).is_empty(), "it is said once");
    }

    #[test]
    fn what_was_passed_over_will_not_start_either() {
        let mut sent = handed(&[1, 2, 3]);
        assert!(sent.answered(&node("b"), Some(&receipt(3, &[2])), 999).is_empty());
        assert_eq!(sent.answered(&node("b"), Some(&receipt(3, &[2])), 1_000), [attempt(2)]);
    }

    #[test]
    fn one_who_may_have_forgotten_says_nothing() {
        let mut sent = handed(&[1]);
        assert!(sent.answered(&node("b"), None, 1_001 + RECEIPT_MS).is_empty());
        let mut received = Received::default();
        assert!(received.note(&node("a"), 1, 1_000, 0));
        received.forget(1_000 + RECEIPT_MS);
        assert_eq!(received.receipts(), [receipt(1, &[])], "it is still said as long as it is believed");
        received.forget(1_001 + RECEIPT_MS);
        assert!(received.receipts().is_empty());
    }

    #[test]
    fn what_comes_too_late_is_neither_taken_in_nor_said_to_be() {
        let mut received = Received::default();
        assert!(!received.note(&node("a"), 1, 1_000, 1_000));
        assert!(received.receipts().is_empty());
        assert!(received.note(&node("a"), 2, 1_000, 999));
        assert!(received.note(&node("a"), 5, 2_000, 999));
        assert_eq!(received.receipts(), [receipt(5, &[3, 4])]);
        assert!(received.note(&node("a"), 3, 2_000, 1_000), "it was only late");
        assert!(!received.note(&node("a"), 4, 1_000, 1_000));
        assert_eq!(received.receipts(), [receipt(5, &[4])]);
        received.note(&node("a"), 1_000_000, 2_000, 1_000);
        assert_eq!(received.receipts()[0].missed.len(), MISSED_COUNT_MAX);
        received.forget(1_000 + MISSED_MS);
        assert_eq!(received.receipts(), [receipt(1_000_000, &[])]);
    }

    #[test]
    fn a_clock_is_guessed_by_what_was_least_long_on_its_way() {
        let mut sent = Sent::default();
        assert_eq!(sent.start_by_ms("b", 100, 0), None);
        sent.clock_showed(&node("b"), 5_000, 0);
        assert_eq!(sent.start_by_ms("b", 100, 50), Some(5_150));
        sent.clock_showed(&node("b"), 5_000, 1_000);
        assert_eq!(sent.start_by_ms("b", 100, 1_000), Some(6_100), "it took a second longer");
        sent.clock_showed(&node("b"), 5_000, GUESS_MS);
        assert_eq!(sent.start_by_ms("b", 100, GUESS_MS), Some(5_100), "it is long since it was better known");
    }

    #[test]
    fn numbers_of_one_node_follow_each_other_and_never_come_again() {
        let mut sent = Sent::default();
        sent.clock_showed(&node("b"), 0, 0);
        assert_eq!(["b", "b", "c", "b"].map(|to| sent.next_number(&node(to))), [1, 2, 3, 3]);
        sent.forget(3 * GUESS_MS);
        assert_eq!(sent.next_number(&node("b")), 4);
    }

    #[test]
    fn what_is_heard_twice_comes_once() {
        let (mut once, mut first) = (Once::default(), vec![attempt(1), attempt(2)]);
        once.sift(&mut first, 1_000, 0);
        assert_eq!(first, [attempt(1), attempt(2)]);
        let mut again = vec![attempt(2), attempt(3)];
        once.sift(&mut again, 1_000, 999);
        assert_eq!(again, [attempt(3)]);
        let mut late = vec![attempt(2), attempt(4)];
        once.sift(&mut late, 1_000, 1_000);
        assert!(late.is_empty() && once.0.is_empty());
    }
}
