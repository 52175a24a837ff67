//! A hierarchical timing wheel with millisecond resolution: holds work that is not due yet and hands it back, in
//! order, once it is.
//!
//! Time is cut into 6-bit digits. An entry waits on the level of the highest digit in which its instant differs from
//! the cursor, in the slot named by that digit; eleven levels cover every `i64`, so there is no overflow list. When the
//! cursor enters a slot of a higher level, that slot's entries move down. Placing by digit, not by distance, is what
//! keeps arrival order within a millisecond: nothing can reach a lower slot directly before the entries that were
//! waiting above it have moved down.
//!
//! The wheel never reads a clock; the caller says what time it is.

use std::collections::BTreeMap;

const LEVEL_BITS: u32 = 6;
const LEVEL_SLOTS: usize = 1 << LEVEL_BITS;
const LEVELS: usize = (u64::BITS as usize).div_ceil(LEVEL_BITS as usize);
const SLOT_MASK: u64 = LEVEL_SLOTS as u64 - 1;

/// The largest buffer an emptied slot keeps: enough to spare the allocator in steady traffic, while a burst's memory
/// is given back.
const SLOT_KEPT_COUNT_MAX: usize = 16;

/// Entries waiting for their millisecond. See the module's text for how it works.
#[derive(Debug)]
pub struct Wheel<T> {
    /// Everything in `slots` lies strictly after this tick.
    cursor: u64,
    /// One bit per slot that holds something, one word per level: empty stretches are skipped, however long.
    occupied: [u64; LEVELS],
    /// All levels, one after the other; each slot in order of arrival.
    slots: Box<[Vec<Waiting<T>>]>,
    /// How many entries there are in `slots`.
    slotted_count: usize,
    /// Entries at or before the cursor when they arrived, by tick and arrival. Kept apart because they are due by the
    /// cursor's time but, if the caller's clock has stepped back, not yet by the caller's.
    overdue: BTreeMap<(u64, u64), T>,
    /// How many overdue entries there ever were: the arrival half of the key above.
    overdue_seen: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    tick: u64,
    item: T,
}

/// A slot's coordinates, and the first tick it stands for.
struct Position {
    level: usize,
    digit: u64,
    starts_at: u64,
}

impl<T> Wheel<T> {
    /// An empty wheel whose cursor stands at `start_ms`.
    #[must_use]
    pub fn new(start_ms: i64) -> Self {
        Self {
            cursor: tick_of(start_ms),
            occupied: [0; LEVELS],
            slots: std::iter::repeat_with(Vec::new).take(LEVELS * LEVEL_SLOTS).collect(),
            slotted_count: 0,
            overdue: BTreeMap::new(),
            overdue_seen: 0,
        }
    }

    /// Adds an entry that comes due at `at_ms`. One at or before the last `advance` comes out at the next.
    ///
    /// Constant time for the future, logarithmic in the number of overdue entries for the past.
    pub fn insert(&mut self, at_ms: i64, item: T) {
        let tick = tick_of(at_ms);
        if tick > self.cursor {
            self.slotted_count += 1;
            self.place(Waiting { tick, item });
        } else {
            self.overdue.insert((tick, self.overdue_seen), item);
            self.overdue_seen += 1;
        }
    }

    /// Moves every entry with `at_ms <= now_ms` into `due`, by instant and then by arrival; never one early.
    ///
    /// A `now_ms` before an earlier one does not turn the wheel back; it still releases entries inserted since that
    /// are due by it, so a clock that stepped back delays no new work.
    pub fn advance(&mut self, now_ms: i64, due: &mut Vec<T>) {
        let target = tick_of(now_ms);
        while let Some(entry) = self.overdue.first_entry() {
            if entry.key().0 > target {
                break;
            }
            due.push(entry.remove());
        }
        while let Some(position) = self.nearest() {
            if position.starts_at > target {
                break;
            }
            self.cursor = position.starts_at;
            self.open(&position, due);
        }
        self.cursor = self.cursor.max(target);
    }

    /// The earliest instant at which `advance` may have something to do; never later than the next entry's instant.
    ///
    /// Exact when the next entry is overdue or on the lowest level (in the cursor's aligned 64 ms). Further out it is
    /// the instant at which entries move down a level; advancing to it makes the next answer closer.
    #[must_use]
    pub fn next_expiry(&self) -> Option<i64> {
        let overdue = self.overdue.first_key_value().map(|((tick, _), _)| *tick);
        overdue.or_else(|| self.nearest().map(|position| position.starts_at)).map(ms_of)
    }

    /// How many entries wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slotted_count + self.overdue.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes everything out, due or not, with its instant, by instant and then by arrival. The cursor stays.
    pub fn drain(&mut self) -> Vec<(i64, T)> {
        let overdue = std::mem::take(&mut self.overdue);
        let mut drained: Vec<_> = overdue.into_iter().map(|((tick, _), item)| (ms_of(tick), item)).collect();
        for slot in &mut self.slots {
            drained
                .extend(std::mem::take(slot).into_iter().map(|waiting| (ms_of(waiting.tick), waiting.item)));
        }
        self.occupied = [0; LEVELS];
        self.slotted_count = 0;
        // Stable, and entries of one millisecond are never spread over several slots: arrival order stays.
        drained.sort_by_key(|(at_ms, _)| *at_ms);
        drained
    }

    /// The first occupied slot. Every occupied slot lies after the cursor, and all of a level before any of the next.
    fn nearest(&self) -> Option<Position> {
        let (level, bits) = self.occupied.iter().enumerate().find(|(_, bits)| **bits != 0)?;
        let digit = u64::from(bits.trailing_zeros());
        let shift = shift_of(level);
        let starts_at = ((self.cursor >> shift) & !SLOT_MASK | digit) << shift;
        Some(Position { level, digit, starts_at })
    }

    /// Empties a slot that begins at the cursor: what is due at the cursor goes out, the rest moves down.
    fn open(&mut self, position: &Position, due: &mut Vec<T>) {
        if let Some(bits) = self.occupied.get_mut(position.level) {
            *bits &= !(1 << position.digit);
        }
        let index = slot_index(position.level, position.digit);
        let mut opened = self.slots.get_mut(index).map(std::mem::take).unwrap_or_default();
        for waiting in opened.drain(..) {
            if waiting.tick > self.cursor {
                self.place(waiting);
            } else {
                self.slotted_count -= 1;
                due.push(waiting.item);
            }
        }
        if opened.capacity() <= SLOT_KEPT_COUNT_MAX
            && let Some(slot) = self.slots.get_mut(index)
        {
            *slot = opened;
        }
    }

    /// Appends an entry to the slot its tick belongs to; the tick must lie after the cursor.
    fn place(&mut self, waiting: Waiting<T>) {
        debug_assert!(waiting.tick > self.cursor, "an entry that is due has no slot");
        let level = ((waiting.tick ^ self.cursor).ilog2() / LEVEL_BITS) as usize;
        let digit = (waiting.tick >> shift_of(level)) & SLOT_MASK;
        if let Some(bits) = self.occupied.get_mut(level)
            && let Some(slot) = self.slots.get_mut(slot_index(level, digit))
        {
            *bits |= 1 << digit;
            slot.push(waiting);
        }
    }
}

/// Milliseconds as an unsigned number of the same order, so that digits compare like instants.
const fn tick_of(ms: i64) -> u64 {
    ms.cast_unsigned() ^ (1 << 63)
}

const fn ms_of(tick: u64) -> i64 {
    (tick ^ (1 << 63)).cast_signed()
}

#[expect(clippy::cast_possible_truncation, reason = "a level is below LEVELS, which is 11")]
const fn shift_of(level: usize) -> u32 {
    level as u32 * LEVEL_BITS
}

#[expect(clippy::cast_possible_truncation, reason = "a digit is below LEVEL_SLOTS, which is 64")]
const fn slot_index(level: usize, digit: u64) -> usize {
    level * LEVEL_SLOTS + digit as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::Wheel;

    /// What the wheel must be equal to: instants in order, arrivals in order within one.
    #[derive(Default)]
    struct Model {
        entries: BTreeMap<(i64, u32), u32>,
        seen: u32,
    }

    impl Model {
        fn insert(&mut self, at_ms: i64) -> u32 {
            self.seen += 1;
            self.entries.insert((at_ms, self.seen), self.seen);
            self.seen
        }

        fn advance(&mut self, now_ms: i64) -> Vec<u32> {
            let later = self.entries.split_off(&(now_ms, u32::MAX));
            std::mem::replace(&mut self.entries, later).into_values().collect()
        }

        fn next(&self) -> Option<i64> {
            self.entries.keys().next().map(|(at_ms, _)| *at_ms)
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(i64),
        Advance(i64),
        AdvanceToNextExpiry,
    }

    /// Distances of every magnitude, both ways, so that all levels and their borders are met.
    fn distance() -> impl Strategy<Value = i64> {
        prop_oneof![
            4 => -5_i64..200,
            2 => -5_000_i64..50_000,
            2 => (0_u32..62, -2_i64..3).prop_map(|(bits, off)| (1 << bits) + off),
            1 => any::<i64>(),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => distance().prop_map(Step::Insert),
            2 => distance().prop_map(Step::Advance),
            2 => Just(Step::AdvanceToNextExpiry),
        ]
    }

    fn advanced(wheel: &mut Wheel<u32>, now_ms: i64) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.advance(now_ms, &mut due);
        due
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn equals_a_sorted_map(start_ms in prop_oneof![Just(0), Just(i64::MIN), any::<i64>()],
                               steps in prop::collection::vec(step(), 1..120)) {
            let (mut wheel, mut model) = (Wheel::new(start_ms), Model::default());
            let mut now_ms = start_ms;
            for step in steps {
                match step {
                    Step::Insert(distance) => {
                        let at_ms = now_ms.saturating_add(distance);
                        wheel.insert(at_ms, model.insert(at_ms));
                    }
                    Step::Advance(distance) => {
                        now_ms = now_ms.saturating_add(distance);
                        prop_assert_eq!(advanced(&mut wheel, now_ms), model.advance(now_ms));
                    }
                    Step::AdvanceToNextExpiry => if let Some(at_ms) = wheel.next_expiry() {
                        now_ms = now_ms.max(at_ms);
                        prop_assert_eq!(advanced(&mut wheel, now_ms), model.advance(now_ms));
                    }
                }
                prop_assert_eq!(wheel.len(), model.entries.len());
                prop_assert_eq!(wheel.is_empty(), model.entries.is_empty());
                prop_assert_eq!(wheel.next_expiry().is_some(), model.next().is_some());
                prop_assert!(wheel.next_expiry() <= model.next());
            }
            let left: Vec<_> = model.entries.into_iter().map(|((at_ms, _), item)| (at_ms, item)).collect();
            prop_assert_eq!(wheel.drain(), left);
            prop_assert!(wheel.is_empty());
            prop_assert_eq!(wheel.next_expiry(), None);
        }

        #[test]
        fn a_sleeper_that_trusts_next_expiry_wakes_on_the_millisecond(
            start_ms in -1_000_000_i64..1_000_000, distance in 1_i64..1 << 45,
        ) {
            let mut wheel = Wheel::new(start_ms);
            wheel.insert(start_ms + distance, 1);
            let mut wakes = 0;
            let woken_at = loop {
                let at_ms = wheel.next_expiry().unwrap();
                wakes += 1;
                if !advanced(&mut wheel, at_ms).is_empty() {
                    break at_ms;
                }
            };
            prop_assert_eq!(woken_at, start_ms + distance);
            prop_assert!(wakes <= super::LEVELS, "{} wakes for one entry", wakes);
        }
    }

    #[test]
    fn next_expiry_is_exact_within_the_lowest_level() {
        let mut wheel = Wheel::new(0);
        wheel.insert(5_000, 2);
        wheel.insert(63, 1);
        assert_eq!(wheel.next_expiry(), Some(63));
        assert_eq!(advanced(&mut wheel, 62), [0_u32; 0]);
        assert_eq!(advanced(&mut wheel, 63), [1]);
        assert!(wheel.next_expiry() <= Some(5_000));
    }

    #[test]
    fn an_entry_for_now_or_the_past_comes_out_at_the_next_advance() {
        let mut wheel = Wheel::new(100);
        wheel.insert(100, 2);
        wheel.insert(40, 1);
        wheel.insert(100, 3);
        assert_eq!(wheel.next_expiry(), Some(40));
        assert_eq!(advanced(&mut wheel, 100), [1, 2, 3]);
    }

    #[test]
    fn a_clock_that_steps_back_releases_nothing_early_and_delays_no_new_work() {
        let mut wheel = Wheel::new(0);
        wheel.insert(2_000, 3);
        assert_eq!(advanced(&mut wheel, 1_000), [0_u32; 0]);
        wheel.insert(700, 2);
        wheel.insert(500, 1);
        assert_eq!(advanced(&mut wheel, 499), [0_u32; 0]);
        assert_eq!(advanced(&mut wheel, 500), [1]);
        assert_eq!(advanced(&mut wheel, 2_000), [2, 3]);
    }

    #[test]
    fn both_ends_of_time_are_reachable() {
        let mut wheel = Wheel::new(i64::MIN);
        wheel.insert(i64::MAX, 2);
        wheel.insert(i64::MIN, 1);
        assert_eq!(advanced(&mut wheel, i64::MAX - 1), [1]);
        assert_eq!(wheel.next_expiry(), Some(i64::MAX));
        assert_eq!(advanced(&mut wheel, i64::MAX), [2]);
        wheel.insert(i64::MAX, 3);
        assert_eq!(advanced(&mut wheel, i64::MAX), [3]);
    }
}
