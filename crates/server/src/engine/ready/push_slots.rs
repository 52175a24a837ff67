//! Who may have how many of the pushes that may be under way at once (`push_max`). A lane is fair among those who wait in
//! it; this is what makes tenants share beyond one lane, so that many hosts, or hosts that hang, gain a tenant nothing.
//!
//! Everybody who has pushes under way or due has a share of the slots by weight, with one left out for whoever comes next.
//! Within its share a tenant starts as soon as a slot is free. Beyond it, only while nobody else can use the slot, and only up to
//! three quarters of all: the rest is kept for those who have less than their share, and is given out so that some of it
//! is left for yet another. Lanes in which nobody may start are set aside, for each of their tenants, and cost nothing
//! until one of these may go on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Ready;

/// Slots below which none are kept: a quarter of so few would be none, or too many.
const RESERVING_COUNT_MIN: usize = 16;
/// The part of the slots that is kept.
const RESERVE_DIVISOR: usize = 4;
/// Of what is kept, a tenant of weight 1 has at most so many times what it leaves.
const LEFT_FACTOR: usize = 2;

/// One who has pushes under way or due.
#[derive(Debug)]
struct Holder {
    weight: u32,
    under_way: usize,
    /// Lanes in which it has something waiting.
    lanes: usize,
    /// Those of them in which it may not start.
    set_aside: BTreeSet<usize>,
    /// The last of them that had its turn.
    last: usize,
    /// Whether it is in the round of those with such lanes.
    waits: bool,
}

/// The slots, and who has them.
#[derive(Debug)]
pub(super) struct PushSlots {
    count_max: usize,
    /// Those that nobody needs a share for.
    unreserved: usize,
    under_way: usize,
    holders: FxHashMap<Arc<str>, Holder>,
    weight_sum: u64,
    /// Those with lanes set aside, whose turn it is first.
    round: VecDeque<Arc<str>>,
}

/// How a lane's turn goes.
#[derive(Debug, Clone)]
pub(super) struct PushTurn {
    pub(super) lane: usize,
    /// Who starts beyond its share, and how many at most; nobody in an ordinary turn.
    pub(super) borrower: Option<(Arc<str>, usize)>,
}

impl PushTurn {
    /// Whether a tenant may start beyond its share in it.
    pub(super) fn is_of(&self, tenant: &str) -> bool {
        self.borrower.as_ref().is_some_and(|(borrower, _)| **borrower == *tenant)
    }
}

impl PushSlots {
    pub(super) fn new(count_max: usize) -> Self {
        let reserve = if count_max < RESERVING_COUNT_MIN { 0 } else { count_max / RESERVE_DIVISOR };
        Self {
            count_max,
            unreserved: count_max - reserve,
            under_way: 0,
            holders: FxHashMap::default(),
            weight_sum: 0,
            round: VecDeque::new(),
        }
    }

    pub(super) const fn under_way(&self) -> usize {
        self.under_way
    }

    pub(super) const fn free(&self) -> usize {
        self.count_max.saturating_sub(self.under_way)
    }

    /// Whether only those may start who have less than their share.
    pub(super) const fn is_short(&self) -> bool {
        self.under_way >= self.unreserved
    }

    /// Whether a tenant may start another push within its share. `alone` is whether there is but one lane, which shares
    /// out by itself all but what is kept.
    pub(super) fn admits(&self, tenant: &str, alone: bool) -> bool {
        if !self.is_short() && (alone || self.holders.len() <= 1) {
            return true;
        }
        let Some(holder) = self.holders.get(tenant) else { return true };
        let (has, weight) = (wide(holder.under_way), u64::from(holder.weight));
        let leaves = wide(LEFT_FACTOR).saturating_mul(weight).saturating_mul(wide(self.free()));
        self.is_within_share(has, weight) && (!self.is_short() || has <= leaves)
    }

    /// The share is by weight among all who want slots and one more, of weight 1, who may come; for the latter no more is
    /// left out than is kept.
    fn is_within_share(&self, has: u64, weight: u64) -> bool {
        let all = wide(self.count_max);
        if self.unreserved == self.count_max {
            return has.saturating_mul(self.weight_sum) < all.saturating_mul(weight);
        }
        let parts = wide(RESERVE_DIVISOR) - 1;
        let weights = parts * self.weight_sum + self.weight_sum.min(parts);
        has < wide(self.unreserved) && has.saturating_mul(weights) < all.saturating_mul(parts * weight)
    }

    /// A tenant has something waiting in one more lane.
    pub(super) fn joined(&mut self, tenant: &Arc<str>, weight: impl FnOnce() -> u32) {
        self.holder(tenant, weight).lanes += 1;
    }

    /// A tenant has nothing waiting any more in one of its lanes.
    pub(super) fn left(&mut self, tenant: &Arc<str>) {
        if let Some(holder) = self.holders.get_mut(tenant) {
            holder.lanes = holder.lanes.saturating_sub(1);
        }
        self.forget_if_idle(tenant);
    }

    /// A push is about to begin.
    pub(super) fn began(&mut self, tenant: &Arc<str>, weight: impl FnOnce() -> u32) {
        self.under_way += 1;
        self.holder(tenant, weight).under_way += 1;
    }

    /// A push is over.
    pub(super) fn ended(&mut self, tenant: &Arc<str>) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(holder) = self.holders.get_mut(tenant) {
            holder.under_way = holder.under_way.saturating_sub(1);
        }
        self.forget_if_idle(tenant);
    }

    /// Nobody may start in a lane, this one because it has its share.
    pub(super) fn set_aside(&mut self, tenant: &Arc<str>, lane: usize, weight: impl FnOnce() -> u32) {
        let holder = self.holder(tenant, weight);
        holder.set_aside.insert(lane);
        if !std::mem::replace(&mut holder.waits, true) {
            self.round.push_back(Arc::clone(tenant));
        }
    }

    /// A lane that was set aside and in which somebody may start now.
    pub(super) fn next_set_aside(&mut self, alone: bool) -> Option<usize> {
        let found = self.round.iter().position(|tenant| self.admits(tenant, alone))?;
        let tenant = self.round.remove(found)?;
        self.take_lane(&tenant)
    }

    /// Who may start beyond its share, in turn: as many as its weight, in one of its lanes.
    pub(super) fn next_borrower(&mut self) -> Option<PushTurn> {
        if self.is_short() {
            return None;
        }
        let tenant = self.round.pop_front()?;
        let weight = self.holders.get(&tenant).map_or(1, |holder| holder.weight);
        let lane = self.take_lane(&tenant)?;
        Some(PushTurn { lane, borrower: Some((tenant, usize::try_from(weight).unwrap_or(usize::MAX))) })
    }

    /// Goes by these weights from now on.
    pub(super) fn reweigh(&mut self, weight: impl Fn(&str) -> u32) {
        self.holders.iter_mut().for_each(|(tenant, holder)| holder.weight = weight(tenant).max(1));
        self.weight_sum = self.holders.values().map(|holder| u64::from(holder.weight)).sum();
    }

    fn holder(&mut self, tenant: &Arc<str>, weight: impl FnOnce() -> u32) -> &mut Holder {
        self.holders.entry(Arc::clone(tenant)).or_insert_with(|| {
            let weight = weight().max(1);
            self.weight_sum += u64::from(weight);
            Holder { weight, under_way: 0, lanes: 0, set_aside: BTreeSet::new(), last: 0, waits: false }
        })
    }

    /// Takes one of a tenant's lanes; it must have left the round, and joins it again behind the others if it has more.
    fn take_lane(&mut self, tenant: &Arc<str>) -> Option<usize> {
        let holder = self.holders.get_mut(tenant)?;
        let next = holder.set_aside.range(holder.last.saturating_add(1)..).next();
        let lane = next.or_else(|| holder.set_aside.first()).copied();
        holder.waits = false;
        if let Some(lane) = lane {
            holder.last = lane;
            holder.set_aside.remove(&lane);
            if !holder.set_aside.is_empty() {
                holder.waits = true;
                self.round.push_back(Arc::clone(tenant));
            }
        }
        self.forget_if_idle(tenant);
        lane
    }

    fn forget_if_idle(&mut self, tenant: &Arc<str>) {
        let is_idle = |holder: &Holder| holder.under_way == 0 && holder.lanes == 0 && !holder.waits;
        if self.holders.get(tenant).is_some_and(is_idle)
            && let Some(holder) = self.holders.remove(tenant)
        {
            self.weight_sum -= u64::from(holder.weight);
        }
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl Ready {
    /// Whether all pushes are to one host: its lane is then fair by itself.
    pub(super) fn is_one_host(&self) -> bool {
        self.hosts.len() <= 1
    }

    /// The host whose turn it is.
    pub(super) fn next_push_turn(&mut self) -> Option<PushTurn> {
        if self.push_slots.free() == 0 {
            return None;
        }
        loop {
            if let Some(lane) = self.active_hosts.pop_front() {
                return Some(PushTurn { lane, borrower: None });
            }
            if let Some(lane) = self.push_slots.next_set_aside(self.is_one_host()) {
                self.activate(lane);
                continue;
            }
            let turn = self.push_slots.next_borrower()?;
            self.activate(turn.lane);
            // It is the only one; if it cannot move, it is found again when it can.
            if self.active_hosts.pop_front().is_some() {
                return Some(turn);
            }
        }
    }

    /// A lane's turn is over. If nobody in it may start, it waits until one of them may.
    pub(super) fn end_push_turn(&mut self, turn: &PushTurn, began: usize) {
        let alone = self.is_one_host();
        let Self { push_slots, allotments, lanes, .. } = self;
        let Some(slot) = lanes.get(turn.lane).and_then(Option::as_ref) else { return };
        if let Some((tenant, _)) = &turn.borrower {
            // One that could not start is kept from it by something else, which wakes its lane.
            if began > 0 && slot.lane.has(tenant) {
                push_slots.set_aside(tenant, turn.lane, || allotments.weight(tenant));
            }
        } else if began == 0 {
            for tenant in slot.lane.tenants() {
                if !push_slots.admits(&tenant, alone) {
                    push_slots.set_aside(&tenant, turn.lane, || allotments.weight(&tenant));
                }
            }
        }
    }

    /// A tenant's jobs were taken out of a lane: it may have nothing waiting there any more.
    pub(super) fn left_lane(&mut self, index: usize, tenant: &Arc<str>) {
        let slot = self.lanes.get(index).and_then(Option::as_ref);
        if slot.is_some_and(|slot| !slot.is_queue && !slot.lane.has(tenant)) {
            self.push_slots.left(tenant);
        }
    }

    /// Whether a push of the tenant waits for a slot.
    pub(super) fn lacks_slot(&self, tenant: &str) -> bool {
        self.push_slots.free() == 0
            || (self.push_slots.is_short() && !self.push_slots.admits(tenant, self.is_one_host()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    /// Starts as many as may be within its share; says how many.
    fn fill(slots: &mut PushSlots, name: &str, weight: u32) -> usize {
        let before = slots.under_way();
        slots.joined(&tenant(name), || weight);
        while slots.free() > 0 && slots.admits(name, false) {
            slots.began(&tenant(name), || weight);
        }
        slots.under_way() - before
    }

    #[test]
    fn one_alone_has_three_quarters_and_there_is_always_something_for_another() {
        assert_eq!(fill(&mut PushSlots::new(1_024), "a", 100), 768);
        let mut slots = PushSlots::new(1_024);
        assert_eq!(fill(&mut slots, "a", 1), 768);
        for name in ["b", "c", "d", "e"] {
            let free = slots.free();
            let had = fill(&mut slots, name, 1);
            assert!(had >= free / 2 && slots.free() > 0, "{name} had {had} of {free}");
        }
        assert!(slots.is_short() && !slots.admits("a", false) && !slots.admits("a", true));
        assert!(slots.admits("f", false));
    }

    #[test]
    fn shares_are_by_weight_among_those_who_have_something() {
        for (count_max, three, one) in [(32, 20, 7), (8, 6, 2)] {
            let mut slots = PushSlots::new(count_max);
            slots.joined(&tenant("one"), || 1);
            assert_eq!(fill(&mut slots, "three", 3), three);
            assert_eq!(fill(&mut slots, "one", 1), one);
            // A changed weight counts at once.
            slots.reweigh(|_| 1);
            slots.ended(&tenant("three"));
            assert!(!slots.admits("three", false) && slots.admits("one", false));
        }
    }

    #[test]
    fn what_others_leave_is_lent_in_turn_up_to_three_quarters() {
        let mut slots = PushSlots::new(32);
        ["a", "b", "idle"].iter().for_each(|name| slots.joined(&tenant(name), || 1));
        for (name, lane) in [("a", 1), ("a", 2), ("b", 3)] {
            fill(&mut slots, name, 1);
            slots.set_aside(&tenant(name), lane, || 1);
        }
        assert_eq!((slots.under_way(), slots.next_set_aside(false)), (16, None), "8 each");
        let mut lent = Vec::new();
        while let Some(PushTurn { lane, borrower: Some((name, count)) }) = slots.next_borrower() {
            assert_eq!(count, 1);
            slots.began(&name, || 1);
            slots.set_aside(&name, lane, || 1);
            lent.push(lane);
        }
        assert_eq!(lent, [1, 3, 2, 3, 1, 3, 2, 3]);
        assert_eq!(slots.under_way(), 24);
        (0..5).for_each(|_| slots.ended(&tenant("b")));
        assert_eq!((slots.next_set_aside(false), slots.next_set_aside(false)), (Some(3), None));
    }

    #[test]
    fn who_has_nothing_is_forgotten() {
        let mut slots = PushSlots::new(32);
        for n in 0..100 {
            let name = tenant(&format!("t{n}"));
            slots.joined(&name, || 2);
            slots.began(&name, || 2);
            slots.left(&name);
            slots.ended(&name);
        }
        assert_eq!((slots.holders.len(), slots.weight_sum, slots.under_way()), (0, 0, 0));
    }
}
