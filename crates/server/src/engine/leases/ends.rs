//! When leases end, by the tick. Most attempts are over long before their lease is: once all leases of a tick are, the tick goes
//! as a whole, and none of them is looked for.

use std::collections::BTreeMap;

use tidewheel_core::id::JobId;

const TICK_MS: i64 = 64;
/// Outdated entries that are not worth clearing away.
const ENTRIES_SLACK: usize = 4_096;

/// Leases that end close together.
#[derive(Debug, Default)]
struct Tick {
    /// Not before this.
    first_ms: i64,
    /// May hold jobs whose lease is over or ends in another tick by now.
    ids: Vec<JobId>,
    /// Leases that do end in this tick.
    leases_count: usize,
}

#[derive(Debug, Default)]
pub(super) struct Ends {
    ticks: BTreeMap<i64, Tick>,
    /// Over all ticks.
    ids_count: usize,
}

const fn tick_of(ends_ms: i64) -> i64 {
    ends_ms.div_euclid(TICK_MS)
}

impl Ends {
    /// A lease that ends then.
    pub(super) fn add(&mut self, ends_ms: i64, id: JobId) {
        let tick = self.ticks.entry(tick_of(ends_ms)).or_default();
        tick.first_ms = if tick.ids.is_empty() { ends_ms } else { tick.first_ms.min(ends_ms) };
        tick.ids.push(id);
        tick.leases_count += 1;
        self.ids_count += 1;
    }

    /// A lease that was to end then is over, or ends at another time.
    pub(super) fn remove(&mut self, ends_ms: i64) {
        let number = tick_of(ends_ms);
        let Some(tick) = self.ticks.get_mut(&number) else { return };
        tick.leases_count = tick.leases_count.saturating_sub(1);
        if tick.leases_count == 0 {
            self.ids_count -= tick.ids.len();
            self.ticks.remove(&number);
        }
    }

    /// Forgets outdated and repeated entries, if they are many beside `leases_count` leases. `ends_of` is when a job's lease ends.
    pub(super) fn tidy(&mut self, leases_count: usize, ends_of: impl Fn(&JobId) -> Option<i64>) {
        if self.ids_count > 2 * leases_count + ENTRIES_SLACK {
            for (number, tick) in &mut self.ticks {
                tick.ids.retain(|id| ends_of(id).is_some_and(|ends_ms| tick_of(ends_ms) == *number));
                tick.ids.sort_unstable();
                tick.ids.dedup();
            }
            self.ids_count = self.ticks.values().map(|tick| tick.ids.len()).sum();
        }
    }

    /// The jobs whose lease has ended by `monotonic_ms`, earliest first. Their leases are still to be removed.
    pub(super) fn over(&mut self, monotonic_ms: i64, ends_of: impl Fn(&JobId) -> Option<i64>) -> Vec<JobId> {
        let mut over = Vec::new();
        for (number, tick) in self.ticks.range_mut(..=tick_of(monotonic_ms)) {
            if tick.first_ms > monotonic_ms {
                continue;
            }
            let mut ends: Vec<(i64, JobId)> = Vec::with_capacity(tick.ids.len());
            ends.extend(tick.ids.drain(..).filter_map(|id| Some((ends_of(&id)?, id))));
            ends.retain(|(ends_ms, _)| tick_of(*ends_ms) == *number);
            ends.sort_unstable();
            ends.dedup();
            let passed = ends.partition_point(|(ends_ms, _)| *ends_ms <= monotonic_ms);
            tick.ids.extend(ends.iter().skip(passed).map(|(_, id)| *id));
            tick.first_ms = ends.get(passed).map_or(i64::MAX, |(ends_ms, _)| *ends_ms);
            ends.truncate(passed);
            over.extend(ends.into_iter().map(|(_, id)| id));
        }
        self.ids_count = self.ticks.values().map(|tick| tick.ids.len()).sum();
        over
    }

    /// When the next lease may end.
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.ticks.first_key_value().map(|(_, tick)| tick.first_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tidewheel_core::time::Timestamp;

    use super::*;

    fn id(number: u8) -> JobId {
        JobId::new(Timestamp::from_ms(0), u128::from(number))
    }

    #[test]
    fn a_tick_goes_with_the_last_of_its_leases() {
        let mut ends = Ends::default();
        (0..100).for_each(|number| ends.add(TICK_MS, id(number)));
        (1..100).for_each(|_| ends.remove(TICK_MS + 1));
        assert_eq!((ends.ids_count, ends.next_ms()), (100, Some(TICK_MS)));
        ends.remove(TICK_MS);
        assert_eq!((ends.ids_count, ends.next_ms()), (0, None));
    }

    #[test]
    fn what_is_outdated_takes_no_room_for_ever() {
        let mut ends = Ends::default();
        ends.add(1, id(1));
        for _ in 0..100_000 {
            // One that is given the same lease again, and one that is over at once, beside it in its tick.
            ends.add(1, id(1));
            ends.remove(1);
            ends.add(2, id(2));
            ends.remove(2);
            ends.tidy(1, |job| (*job == id(1)).then_some(1));
            assert!(ends.ids_count <= 2 + ENTRIES_SLACK, "{}", ends.ids_count);
        }
        assert_eq!(ends.over(1, |job| (*job == id(1)).then_some(1)), [id(1)]);
    }

    proptest! {
        /// Leases that are given, renewed and ended at random end just when they should.
        #[test]
        fn leases_end_when_they_should(
            steps in proptest::collection::vec((0_u8..3, any::<u8>(), 0_i64..1_000), 1..200),
        ) {
            let mut ends = Ends::default();
            let mut leases: BTreeMap<JobId, i64> = BTreeMap::new();
            let mut now = 0;
            for (kind, number, ms) in steps {
                let id = id(number % 16);
                match kind {
                    0 => {
                        ends.add(now + ms, id);
                        if let Some(before) = leases.insert(id, now + ms) {
                            ends.remove(before);
                        }
                    }
                    1 => if let Some(before) = leases.remove(&id) {
                        ends.remove(before);
                    },
                    _ => {
                        now += ms / 4;
                        let mut expected: Vec<_> = leases.iter().map(|(id, at)| (*at, *id)).collect();
                        expected.retain(|(at, _)| *at <= now);
                        expected.sort_unstable();
                        let over = ends.over(now, |id| leases.get(id).copied());
                        prop_assert_eq!(&over, &expected.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
                        for id in over {
                            if let Some(at) = leases.remove(&id) {
                                ends.remove(at);
                            }
                        }
                        prop_assert!(ends.next_ms().is_none_or(|next_ms| next_ms > now));
                    }
                }
                prop_assert!(ends.next_ms().unwrap_or(i64::MAX) <= leases.values().min().copied().unwrap_or(i64::MAX));
                prop_assert_eq!(leases.is_empty(), ends.next_ms().is_none());
                ends.tidy(leases.len(), |id| leases.get(id).copied());
            }
        }
    }
}
