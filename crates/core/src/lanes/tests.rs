//! The promises of a lane as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;

use super::{Entry, Lane, LaneConfig};
use crate::job::Priority::{self, Critical, High, Low, Normal};

const NEVER_AGES: LaneConfig = LaneConfig { lot_count_max: 10_000, aging_ms: 0, quantum: 1 };

fn entry(tenant: &str, priority: Priority, ready_at_ms: i64, item: u32) -> Entry<u32> {
    Entry { tenant: Arc::from(tenant), priority, ready_at_ms, cost: 1, alone: false, item }
}

fn fill(lane: &mut Lane<u32>, tenant: &str, priority: Priority, count: u32) {
    for item in 0..count {
        lane.push(entry(tenant, priority, 0, item)).unwrap();
    }
}

fn popped(lane: &mut Lane<u32>, now_ms: i64, count: usize) -> Vec<Entry<u32>> {
    (0..count).map_while(|_| lane.pop(now_ms, |_| true)).collect()
}

fn count_of(entries: &[Entry<u32>], tenant: &str) -> usize {
    entries.iter().filter(|entry| &*entry.tenant == tenant).count()
}

fn items(entries: &[Entry<u32>]) -> Vec<u32> {
    entries.iter().map(|entry| entry.item).collect()
}

#[test]
fn what_is_ahead_is_what_comes_next() {
    let mut lane = Lane::new(NEVER_AGES);
    fill(&mut lane, "a", Normal, 6);
    fill(&mut lane, "b", Normal, 6);
    let mut ahead: Vec<u32> = lane.ahead(4).copied().collect();
    ahead.sort_unstable();
    let mut next = items(&popped(&mut lane, 0, 4));
    next.sort_unstable();
    assert_eq!(ahead, next);
}

#[test]
fn a_tenant_that_is_alone_is_asked_once_for_each_entry() {
    let mut lane = Lane::new(NEVER_AGES);
    fill(&mut lane, "a", Normal, 10);
    for taken in 1..=10 {
        let mut asked = 0;
        let eligible = |_: &str| {
            asked += 1;
            true
        };
        assert!(lane.pop(0, eligible).is_some());
        assert_eq!(asked, 1, "at entry {taken}");
    }
}

#[test]
fn a_full_lot_gives_the_entry_back_and_holds_up_no_other_lot() {
    let mut lane = Lane::new(LaneConfig { lot_count_max: 2, ..NEVER_AGES });
    fill(&mut lane, "a", Normal, 2);
    assert_eq!(lane.free("a", Normal), 0);
    let refused = entry("a", Normal, 0, 9);
    assert_eq!(lane.push(refused.clone()), Err(refused.clone()));
    assert_eq!((lane.free("a", High), lane.free("b", Normal)), (2, 2));
    fill(&mut lane, "a", High, 2);
    fill(&mut lane, "b", Normal, 1);
    assert_eq!((lane.len(), lane.depth(Normal), lane.depth(High), lane.depth(Low)), (5, 3, 2, 0));
    popped(&mut lane, 0, 5);
    assert_eq!((lane.len(), lane.is_empty(), lane.free("a", Normal)), (0, true, 2));
    assert_eq!(lane.push(refused), Ok(()));
}

#[test]
fn a_lane_without_room_holds_nothing() {
    let mut lane = Lane::new(LaneConfig { lot_count_max: 0, ..NEVER_AGES });
    assert!(lane.push(entry("a", Normal, 0, 1)).is_err());
    assert!(lane.is_empty());
    assert_eq!(lane.pop(0, |_| true), None);
}

#[test]
fn busy_priorities_share_eight_four_two_one() {
    let mut lane = Lane::new(NEVER_AGES);
    for priority in Priority::ALL {
        fill(&mut lane, "a", priority, 2_000);
    }
    let served = popped(&mut lane, 0, 1_500);
    let counts =
        Priority::ALL.map(|priority| served.iter().filter(|entry| entry.priority == priority).count());
    assert_eq!(counts, [800, 400, 200, 100]);
}

#[test]
fn tenants_of_weight_three_and_one_are_served_three_to_one() {
    let mut lane = Lane::new(NEVER_AGES);
    lane.set_weight("a", 3);
    fill(&mut lane, "a", Normal, 2_000);
    fill(&mut lane, "b", Normal, 2_000);
    assert_eq!(count_of(&popped(&mut lane, 0, 1_000), "a"), 750);
    // A new weight counts for a tenant already waiting, and the default takes the old one away.
    lane.set_weight("a", 0);
    assert!(count_of(&popped(&mut lane, 0, 1_000), "a").abs_diff(500) <= 3);
}

#[test]
fn a_weight_outlives_idleness() {
    let mut lane = Lane::new(NEVER_AGES);
    lane.set_weight("a", 3);
    fill(&mut lane, "a", Normal, 1);
    popped(&mut lane, 0, 1);
    fill(&mut lane, "a", Normal, 300);
    fill(&mut lane, "b", Normal, 300);
    assert_eq!(count_of(&popped(&mut lane, 0, 200), "a"), 150);
}

#[test]
fn a_flood_of_one_tenant_does_not_delay_another() {
    let mut lane = Lane::new(NEVER_AGES);
    fill(&mut lane, "flood", Normal, 10_000);
    popped(&mut lane, 0, 100);
    fill(&mut lane, "small", Normal, 1);
    assert_eq!(count_of(&popped(&mut lane, 0, 2), "small"), 1);
}

#[test]
fn costs_weigh_as_much_as_counts() {
    let mut lane = Lane::new(NEVER_AGES);
    for item in 0..1_000 {
        lane.push(Entry { cost: 50, ..entry("dear", Normal, 0, item) }).unwrap();
        lane.push(Entry { cost: 10, ..entry("cheap", Normal, 0, item) }).unwrap();
    }
    assert!(count_of(&popped(&mut lane, 0, 600), "cheap").abs_diff(500) <= 5);
}

#[test]
fn waiting_raises_the_head_and_only_the_head() {
    let mut lane = Lane::new(LaneConfig { aging_ms: 1_000, ..NEVER_AGES });
    lane.push(entry("a", Low, 0, 1)).unwrap();
    lane.push(entry("a", Low, 2_900, 2)).unwrap();
    for item in 100..120 {
        lane.push(entry("a", Critical, 3_000, item)).unwrap();
    }
    // At 3 s the first has waited three levels and takes its turn among the critical; the second is as low as ever,
    // and waits for its share of one in nine.
    let order = items(&popped(&mut lane, 3_000, 12));
    assert!(order.iter().position(|item| *item == 1) <= Some(1), "{order:?}");
    assert!(order.iter().position(|item| *item == 2) >= Some(8), "{order:?}");
}

#[test]
fn calling_everything_critical_gains_a_tenant_nothing() {
    let mut lane = Lane::new(NEVER_AGES);
    lane.set_weight("low", 3);
    fill(&mut lane, "urgent", Critical, 2_000);
    fill(&mut lane, "low", Low, 2_000);
    assert_eq!(count_of(&popped(&mut lane, 0, 400), "low"), 300);
    for item in 0..5 {
        lane.push(entry("few", Low, 0, item)).unwrap();
    }
    assert_eq!(count_of(&popped(&mut lane, 0, 25), "few"), 5, "one in each round of five");
}

#[test]
fn each_tenant_shares_its_turns_among_its_own_priorities() {
    let mut lane = Lane::new(NEVER_AGES);
    for tenant in ["a", "b"] {
        fill(&mut lane, tenant, Critical, 1_000);
        fill(&mut lane, tenant, Low, 1_000);
    }
    let served = popped(&mut lane, 0, 900);
    let lows = served.iter().filter(|entry| entry.priority == Low && &*entry.tenant == "a").count();
    assert_eq!((count_of(&served, "a"), lows), (450, 50));
}

#[test]
fn an_old_entry_pushed_late_counts_its_whole_wait() {
    let mut lane = Lane::new(LaneConfig { aging_ms: 1_000, ..NEVER_AGES });
    for item in 100..120 {
        lane.push(entry("b", Critical, 5_000, item)).unwrap();
    }
    popped(&mut lane, 5_000, 2);
    lane.push(entry("a", Low, 0, 1)).unwrap();
    assert_eq!(count_of(&popped(&mut lane, 5_000, 2), "a"), 1);
}

#[test]
fn aged_lots_give_a_tenant_no_second_turn() {
    let mut lane = Lane::new(LaneConfig { aging_ms: 1_000, ..NEVER_AGES });
    for priority in Priority::ALL {
        fill(&mut lane, "a", priority, 300);
    }
    fill(&mut lane, "b", Critical, 300);
    let served = popped(&mut lane, 10_000, 400);
    assert_eq!(count_of(&served, "a"), 200);
    // Inside the tenant the longest waiting goes first, and with equal waits the most urgent.
    assert!(served.iter().all(|entry| entry.priority == Critical));
}

#[test]
fn low_is_served_while_critical_never_runs_dry() {
    let mut lane = Lane::new(NEVER_AGES);
    fill(&mut lane, "flood", Critical, 50);
    lane.push(entry("flood", Low, 0, 99)).unwrap();
    assert!(items(&popped(&mut lane, 0, 9)).contains(&99));
}

#[test]
fn an_aged_backlog_of_low_drains_under_a_critical_flood() {
    let mut lane = Lane::new(LaneConfig { aging_ms: 100, ..NEVER_AGES });
    fill(&mut lane, "flood", Low, 100);
    let mut served = 0;
    for now_ms in 0..480 {
        lane.push(entry("flood", Critical, now_ms, 0)).unwrap();
        lane.push(entry("flood", Critical, now_ms, 0)).unwrap();
        let next = popped(&mut lane, now_ms, 1);
        served += next.iter().filter(|entry| entry.priority == Low).count();
    }
    // By share alone it would be one in nine; once aged, the longest waiting of them goes first.
    assert_eq!(served, 100);
    assert!(lane.depth(Low) == 0 && lane.depth(Critical) > 0);
}

#[test]
fn tenants_not_eligible_hold_up_nobody_and_keep_their_turn() {
    let mut lane = Lane::new(NEVER_AGES);
    fill(&mut lane, "a", Critical, 10);
    fill(&mut lane, "b", Critical, 10);
    fill(&mut lane, "c", Low, 10);
    for _ in 0..10 {
        let served = lane.pop(0, |tenant| tenant == "c").unwrap();
        assert_eq!(&*served.tenant, "c");
    }
    assert_eq!(lane.pop(0, |tenant| tenant == "c"), None);
    assert_eq!(lane.pop(0, |_| false), None);
    assert_eq!(lane.len(), 20);
    // "a" was first in the rotation before it was passed over, and still is.
    assert_eq!(&*lane.pop(0, |tenant| tenant == "b").unwrap().tenant, "b");
    assert_eq!(&*lane.pop(0, |_| true).unwrap().tenant, "a");
}

#[test]
fn low_keeps_its_share_of_a_tenant_that_is_mostly_at_its_cap() {
    let mut lane = Lane::new(NEVER_AGES);
    fill(&mut lane, "a", Critical, 1_000);
    fill(&mut lane, "a", Low, 1_000);
    let mut lows = 0;
    for _ in 0..900 {
        assert_eq!(lane.pop(0, |_| false), None);
        lows += usize::from(lane.pop(0, |_| true).unwrap().priority == Low);
    }
    assert_eq!(lows, 100);
}

#[test]
fn removal_takes_what_matches_from_one_tenant_and_keeps_the_order() {
    let mut lane = Lane::new(NEVER_AGES);
    fill(&mut lane, "a", Normal, 6);
    fill(&mut lane, "a", Low, 2);
    fill(&mut lane, "b", Normal, 2);
    let removed = lane.remove("a", |item| item % 2 == 0);
    assert_eq!(items(&removed), [0, 2, 4, 0]);
    assert_eq!((lane.depth(Normal), lane.depth(Low), lane.free("a", Normal)), (5, 1, 9_997));
    assert_eq!(lane.remove("nobody", |_| true), []);
    assert_eq!(lane.remove("a", |_| true).len(), 4);
    assert_eq!(items(&popped(&mut lane, 0, 10)), [0, 1]);
    assert!(lane.is_empty());
}

#[test]
fn an_idle_tenant_leaves_nothing_behind() {
    let mut lane = Lane::new(NEVER_AGES);
    for tenant in 0..1_000 {
        fill(&mut lane, &format!("t{tenant}"), Normal, 1);
    }
    assert_eq!(popped(&mut lane, 0, 2_000).len(), 1_000);
    assert_eq!((lane.tenants.capacity(), lane.keys.capacity()), (0, 0));
    assert_eq!(lane.rotation.tenants().next(), None, "somebody still has a turn");
}

#[test]
fn the_oldest_is_known() {
    let mut lane = Lane::new(NEVER_AGES);
    assert_eq!(lane.oldest_ready_at(), None);
    lane.push(entry("a", Low, 70, 1)).unwrap();
    lane.push(entry("a", High, 50, 2)).unwrap();
    assert_eq!(lane.oldest_ready_at(), Some(50));
    popped(&mut lane, 100, 1);
    assert_eq!(lane.oldest_ready_at(), Some(70));
}

#[test]
fn what_waits_of_a_tenant_is_known() {
    let mut lane = Lane::new(NEVER_AGES);
    assert_eq!(lane.waiting_of("a"), None);
    lane.push(entry("a", Low, 70, 1)).unwrap();
    lane.push(entry("a", High, 90, 2)).unwrap();
    lane.push(entry("b", High, 50, 3)).unwrap();
    assert_eq!((lane.waiting_of("a"), lane.waiting_of("b")), (Some((2, 70)), Some((1, 50))));
    popped(&mut lane, 100, 3);
    assert_eq!(lane.waiting_of("a"), None);
}

#[derive(Debug, Clone)]
enum Step {
    Push { tenant: u8, priority: Priority, age_ms: i64, cost: u32 },
    Pop { elapsed_ms: i64, barred: u8 },
    Remove { tenant: u8, residue: u32 },
    Weigh { tenant: u8, weight: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let tenant = || 0_u8..6;
    let priority = prop::sample::select(Priority::ALL.to_vec());
    prop_oneof![
        6 => (tenant(), priority, -20_i64..500, prop_oneof![4 => Just(1), 1 => 0_u32..20, 1 => any::<u32>()])
            .prop_map(|(tenant, priority, age_ms, cost)| Step::Push { tenant, priority, age_ms, cost }),
        5 => (-5_i64..60, prop_oneof![Just(0), any::<u8>()])
            .prop_map(|(elapsed_ms, barred)| Step::Pop { elapsed_ms, barred }),
        1 => (tenant(), 0_u32..4).prop_map(|(tenant, residue)| Step::Remove { tenant, residue }),
        1 => (tenant(), 0_u32..9).prop_map(|(tenant, weight)| Step::Weigh { tenant, weight }),
    ]
}

/// What must hold between calls whatever happened before.
fn check_consistent(lane: &Lane<u32>) -> Result<(), TestCaseError> {
    let mut rotating = BTreeSet::new();
    lane.rotation.tenants().for_each(|key| assert!(rotating.insert(key), "two turns for one tenant"));
    prop_assert_eq!(rotating, lane.tenants.iter().map(|(key, _)| key).collect());
    prop_assert!(lane.tenants.iter().all(|(_, tenant)| !tenant.is_idle()));
    prop_assert_eq!(lane.tenants.len(), lane.keys.len());
    Ok(())
}

type LotName = (u8, Priority);

/// The lots as plain queues: which entry may come next from each, and how many fit.
#[derive(Default)]
struct Model(BTreeMap<LotName, Vec<u32>>);

impl Model {
    fn take_front(&mut self, lot: LotName) -> Option<u32> {
        let lot = self.0.get_mut(&lot)?;
        (!lot.is_empty()).then(|| lot.remove(0))
    }

    fn take_matching(&mut self, tenant: u8, residue: u32) -> Vec<u32> {
        let lots = self.0.range_mut((tenant, Critical)..=(tenant, Low));
        lots.flat_map(|(_, lot)| lot.extract_if(.., |item| *item % 4 == residue).collect::<Vec<_>>())
            .collect()
    }

    fn may_serve(&self, barred: u8) -> bool {
        self.0.iter().any(|((tenant, _), lot)| !lot.is_empty() && barred & (1 << tenant) == 0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Nothing is lost or doubled, every lot is first in first out and bounded, a pop comes back empty-handed only
    /// when nobody eligible has anything, and never serves a tenant that is not.
    #[test]
    fn equals_plain_queues(aging_ms in prop_oneof![Just(0), Just(100)], steps in prop::collection::vec(step(), 1..200)) {
        const LOT_COUNT_MAX: usize = 5;
        let mut lane = Lane::new(LaneConfig { lot_count_max: LOT_COUNT_MAX, aging_ms, quantum: 1 });
        let mut model = Model::default();
        let number_of = |tenant: &str| tenant.parse::<u8>().unwrap();
        let (mut now_ms, mut next_item) = (0, 0);
        for step in steps {
            match step {
                Step::Push { tenant, priority, age_ms, cost } => {
                    next_item += 1;
                    let lot = model.0.entry((tenant, priority)).or_default();
                    let name = tenant.to_string();
                    prop_assert_eq!(lane.free(&name, priority), LOT_COUNT_MAX - lot.len());
                    let accepted = lane.push(Entry { cost, ..entry(&name, priority, now_ms - age_ms, next_item) });
                    prop_assert_eq!(accepted.is_ok(), lot.len() < LOT_COUNT_MAX);
                    lot.extend(accepted.is_ok().then_some(next_item));
                }
                Step::Pop { elapsed_ms, barred } => {
                    now_ms += elapsed_ms;
                    let served = lane.pop(now_ms, |tenant| barred & (1 << number_of(tenant)) == 0);
                    prop_assert_eq!(served.is_some(), model.may_serve(barred));
                    if let Some(entry) = served {
                        let tenant = number_of(&entry.tenant);
                        prop_assert_eq!(barred & (1 << tenant), 0);
                        prop_assert_eq!(model.take_front((tenant, entry.priority)), Some(entry.item));
                    }
                }
                Step::Remove { tenant, residue } => {
                    let removed = lane.remove(&tenant.to_string(), |item| item % 4 == residue);
                    prop_assert_eq!(items(&removed), model.take_matching(tenant, residue));
                }
                Step::Weigh { tenant, weight } => lane.set_weight(&tenant.to_string(), weight),
            }
            check_consistent(&lane)?;
            for priority in Priority::ALL {
                let depth: usize = model.0.iter().filter(|((_, of), _)| *of == priority).map(|(_, lot)| lot.len()).sum();
                prop_assert_eq!(lane.depth(priority), depth);
            }
            prop_assert_eq!(lane.len(), model.0.values().map(Vec::len).sum::<usize>());
            prop_assert_eq!(lane.is_empty(), model.0.values().all(Vec::is_empty));
        }
        let left: BTreeSet<u32> = std::iter::from_fn(|| lane.pop(now_ms, |_| true)).map(|entry| entry.item).collect();
        prop_assert_eq!(left, model.0.into_values().flatten().collect());
    }

    #[test]
    fn saturated_tenants_are_served_by_weight(weights in prop::collection::vec(1_u32..8, 2..6)) {
        let mut lane = Lane::new(NEVER_AGES);
        for (tenant, weight) in weights.iter().enumerate() {
            lane.set_weight(&tenant.to_string(), *weight);
            fill(&mut lane, &tenant.to_string(), Normal, 1_000);
        }
        let total: u32 = weights.iter().sum();
        let served = popped(&mut lane, 0, 100 * usize::try_from(total).unwrap());
        for (tenant, weight) in weights.iter().enumerate() {
            prop_assert_eq!(count_of(&served, &tenant.to_string()), 100 * usize::try_from(*weight).unwrap());
        }
    }
}
