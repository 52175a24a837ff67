//! Which tenant is served next: deficit round robin.
//!
//! Each turn grants a tenant its quantum; it is served while what it was granted covers the cost of its next entry,
//! then the turn passes. What is left over is carried to its next turn, and lost when it leaves.

use std::collections::VecDeque;

/// A tenant's place in the lane's slab.
pub(super) type TenantKey = usize;

#[derive(Debug, Default)]
pub(super) struct Rotation {
    /// The front has the turn.
    ring: VecDeque<Turn>,
    /// Tenants set aside during one `next`; empty between calls, kept for its memory.
    passed_over: Vec<Turn>,
}

#[derive(Debug)]
struct Turn {
    tenant: TenantKey,
    deficit: u64,
    /// Whether the quantum of the current turn was given; guards against a second one when the turn is interrupted.
    granted: bool,
}

/// What a tenant asks for, and what one turn gives it. Both at least 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) cost: u64,
    pub(super) quantum: u64,
}

impl Rotation {
    /// Adds a tenant at the end. It must not be in the rotation.
    pub(super) fn join(&mut self, tenant: TenantKey) {
        debug_assert!(self.ring.iter().all(|turn| turn.tenant != tenant), "one turn per tenant");
        self.ring.push_back(Turn { tenant, deficit: 0, granted: false });
    }

    /// Takes a tenant out; its deficit is lost.
    pub(super) fn leave(&mut self, tenant: TenantKey) {
        if let Some(place) = self.ring.iter().position(|turn| turn.tenant == tenant) {
            self.ring.remove(place);
        }
    }

    /// The tenants in the order of their turns.
    pub(super) fn tenants(&self) -> impl ExactSizeIterator<Item = TenantKey> {
        self.ring.iter().map(|turn| turn.tenant)
    }

    /// The tenant to serve, already charged for its entry. `claim` may be asked several times of one tenant and
    /// answers `None` for one that may not be served now: such a tenant keeps its place and its deficit.
    pub(super) fn next(&mut self, mut claim: impl FnMut(TenantKey) -> Option<Claim>) -> Option<TenantKey> {
        let mut winner = self.pass(&mut claim);
        if winner.is_none() && !self.ring.is_empty() {
            self.skip_fruitless_rounds(&mut claim);
            winner = self.pass(&mut claim);
        }
        while let Some(turn) = self.passed_over.pop() {
            self.ring.push_front(turn);
        }
        winner
    }

    /// Goes round once, until somebody can pay. Those that may not be served end up in `passed_over`.
    fn pass(&mut self, claim: &mut impl FnMut(TenantKey) -> Option<Claim>) -> Option<TenantKey> {
        // What the only tenant has said: it has the next turn as well.
        let mut said = None;
        // One more than there are tenants: the front may be at the end of a turn begun earlier.
        for _ in 0..=self.ring.len() {
            let mut turn = self.ring.pop_front()?;
            let tenant = turn.tenant;
            let Some(Claim { cost, quantum }) = said.take().or_else(|| claim(tenant)) else {
                self.passed_over.push(turn);
                continue;
            };
            if !turn.granted {
                turn.granted = true;
                turn.deficit = turn.deficit.saturating_add(quantum);
            }
            if let Some(left) = turn.deficit.checked_sub(cost) {
                turn.deficit = left;
                self.ring.push_front(turn);
                return Some(tenant);
            }
            turn.granted = false;
            said = self.ring.is_empty().then_some(Claim { cost, quantum });
            self.ring.push_back(turn);
        }
        None
    }

    /// Gives everyone at once the quanta of the rounds in which nobody could pay, so that an entry dearer than many
    /// quanta costs one pass instead of many.
    fn skip_fruitless_rounds(&mut self, claim: &mut impl FnMut(TenantKey) -> Option<Claim>) {
        let needed = self.ring.iter().filter_map(|turn| {
            let Claim { cost, quantum } = claim(turn.tenant)?;
            Some(cost.saturating_sub(turn.deficit).div_ceil(quantum))
        });
        // The last of them is given by the pass that follows.
        let rounds = needed.min().unwrap_or(0).saturating_sub(1);
        for turn in &mut self.ring {
            if let Some(Claim { quantum, .. }) = claim(turn.tenant) {
                turn.deficit = turn.deficit.saturating_add(quantum.saturating_mul(rounds));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Claim, Rotation};

    fn rotation(tenants: usize) -> Rotation {
        let mut rotation = Rotation::default();
        (0..tenants).for_each(|tenant| rotation.join(tenant));
        rotation
    }

    fn serve(rotation: &mut Rotation, claims: &[Option<Claim>], times: usize) -> Vec<usize> {
        (0..times).map(|_| rotation.next(|tenant| claims[tenant]).unwrap()).collect()
    }

    fn claim(cost: u64, quantum: u64) -> Option<Claim> {
        Some(Claim { cost, quantum })
    }

    #[test]
    fn a_turn_lasts_as_long_as_its_quantum() {
        let order = serve(&mut rotation(2), &[claim(1, 3), claim(1, 1)], 8);
        assert_eq!(order, [0, 0, 0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn dear_entries_are_served_in_proportion_to_their_cost() {
        let order = serve(&mut rotation(2), &[claim(1_000_000, 1), claim(250_000, 1)], 500);
        assert_eq!(order.iter().filter(|tenant| **tenant == 1).count(), 400);
    }

    #[test]
    fn skipping_rounds_gives_the_order_of_going_through_them() {
        // The first can pay in rounds 3, 6, 9 and 12, the second in 4, 8 and 12.
        let order = serve(&mut rotation(2), &[claim(3, 1), claim(4, 1)], 7);
        assert_eq!(order, [0, 1, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn a_cost_near_the_limit_ends() {
        let mut rotation = rotation(1);
        assert_eq!(rotation.next(|_| claim(u64::MAX, 1)), Some(0));
        assert_eq!(rotation.next(|_| claim(u64::MAX, 1)), Some(0));
    }

    #[test]
    fn a_tenant_passed_over_keeps_the_front_and_what_it_was_granted() {
        let mut rotation = rotation(3);
        let all = [claim(1, 2), claim(1, 2), claim(1, 2)];
        let without_first = [None, claim(1, 2), claim(1, 2)];
        assert_eq!(serve(&mut rotation, &all, 1), [0]);
        assert_eq!(serve(&mut rotation, &without_first, 5), [1, 1, 2, 2, 1]);
        assert_eq!(serve(&mut rotation, &all, 4), [0, 1, 2, 2]);
    }

    #[test]
    fn nobody_eligible_is_nobody_and_changes_nothing() {
        let mut rotation = rotation(2);
        assert_eq!(rotation.next(|_| None), None);
        assert_eq!(serve(&mut rotation, &[claim(1, 1), claim(1, 1)], 3), [0, 1, 0]);
    }

    #[test]
    fn leaving_loses_the_deficit() {
        let mut rotation = rotation(2);
        let claims = [claim(1, 3), claim(1, 3)];
        assert_eq!(serve(&mut rotation, &claims, 1), [0]);
        rotation.leave(0);
        rotation.join(0);
        assert_eq!(serve(&mut rotation, &claims, 7), [1, 1, 1, 0, 0, 0, 1]);
    }
}
