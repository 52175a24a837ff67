//! How many jobs are in which state: per tenant, in all, and per day of history, so that a day can be dropped
//! without reading it. Kept in memory, written with every group that changes them, read back on opening.

use std::collections::BTreeMap;

use tidewheel_core::job::State;
use tidewheel_core::names::Tenant;
use tidewheel_store::Counts;

use crate::keys;
use crate::kv::{Batch, Day, Keyspace};
use crate::record::Unreadable;

/// Changes to counts.
pub(crate) type Delta = [i64; State::ALL.len()];

/// All counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    tenants: BTreeMap<Tenant, Counts>,
    days: BTreeMap<Day, BTreeMap<Tenant, Counts>>,
    total: Counts,
}

/// What one group changes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    tenants: BTreeMap<Tenant, Delta>,
    days: BTreeMap<Day, BTreeMap<Tenant, Delta>>,
}

/// A state, and the day of history if it is one of those that have one.
type Standing = (State, Option<Day>);

/// What the jobs of a group do, to be summed up. Neighbours nearly always do the same, and are counted first.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    changes: Changes,
    last: Option<(Tenant, Option<Standing>, Option<Standing>)>,
    /// How many in a row did that.
    last_count: i64,
}

impl Moves {
    /// A job of `tenant` goes from one state (and day of history) to another.
    pub(crate) fn note(&mut self, tenant: &Tenant, from: Option<Standing>, to: Option<Standing>) {
        if from == to {
            return;
        }
        let is_same =
            |(of, last_from, last_to): &(Tenant, _, _)| (*last_from, *last_to) == (from, to) && of == tenant;
        if !self.last.as_ref().is_some_and(is_same) {
            self.settle();
            self.last = Some((tenant.clone(), from, to));
        }
        self.last_count += 1;
    }

    /// What all of them come to.
    pub(crate) fn sum(mut self) -> Changes {
        self.settle();
        self.changes
    }

    fn settle(&mut self) {
        let count = std::mem::take(&mut self.last_count);
        let Some((tenant, from, to)) = self.last.take() else { return };
        for (place, by) in [(from, -count), (to, count)] {
            let Some((state, day)) = place else { continue };
            bump(&mut self.changes.tenants, &tenant, state, by);
            if let Some(day) = day {
                bump(self.changes.days.entry(day).or_default(), &tenant, state, by);
            }
        }
    }
}

impl Counters {
    pub(crate) fn of(&self, tenant: Option<&Tenant>) -> Counts {
        match tenant {
            None => self.total,
            Some(tenant) => self.tenants.get(tenant).copied().unwrap_or_default(),
        }
    }

    pub(crate) fn busiest(&self, count_max: usize) -> Vec<(Tenant, Counts)> {
        Counts::busiest(self.tenants.iter().map(|(tenant, counts)| (tenant.clone(), *counts)), count_max)
    }

    /// Whether any of the tenant's jobs ended on that day and is still kept.
    pub(crate) fn has_history(&self, day: Day, tenant: &Tenant) -> bool {
        self.days.get(&day).is_some_and(|tenants| tenants.contains_key(tenant))
    }

    /// Writes the counts as they will be after `changes`.
    pub(crate) fn write(&self, changes: &Changes, batch: &mut Batch) {
        for (tenant, delta) in &changes.tenants {
            write_counts(batch, keys::meta::tenant(tenant), sum(self.of(Some(tenant)), delta));
        }
        for (day, deltas) in &changes.days {
            let before = self.days.get(day);
            for (tenant, delta) in deltas {
                let before = before.and_then(|tenants| tenants.get(tenant)).copied().unwrap_or_default();
                write_counts(batch, keys::meta::day(*day, tenant), sum(before, delta));
            }
        }
    }

    pub(crate) fn apply(&mut self, changes: Changes) {
        for (tenant, delta) in changes.tenants {
            self.total = sum(self.total, &delta);
            let counts = sum(self.of(Some(&tenant)), &delta);
            if counts == Counts::default() {
                self.tenants.remove(&tenant);
            } else {
                self.tenants.insert(tenant, counts);
            }
        }
        for (day, deltas) in changes.days {
            let tenants = self.days.entry(day).or_default();
            for (tenant, delta) in deltas {
                let counts = tenants.entry(tenant).or_default();
                *counts = sum(*counts, &delta);
            }
        }
    }

    /// The changes that forgetting a day makes, and how many jobs that day has.
    pub(crate) fn forgetting(&self, day: Day) -> (Changes, u64) {
        let mut changes = Changes::default();
        let mut jobs = 0;
        for (tenant, counts) in self.days.get(&day).into_iter().flatten() {
            let delta = counts.0.map(|count| i64::try_from(count).map_or(i64::MIN, |count| -count));
            changes.days.entry(day).or_default().insert(tenant.clone(), delta);
            changes.tenants.insert(tenant.clone(), delta);
            jobs += counts.0.iter().sum::<u64>();
        }
        (changes, jobs)
    }

    /// Lets go of a day that [`Self::forgetting`] emptied.
    pub(crate) fn forget(&mut self, day: Day) {
        self.days.remove(&day);
    }

    /// Reads a record of `meta` back; ignores those that are none of its own.
    pub(crate) fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Unreadable> {
        let tenant = |bytes: &[u8]| {
            std::str::from_utf8(bytes)
                .ok()
                .and_then(|name| Tenant::new(name).ok())
                .ok_or(Unreadable::Nonsense("a tenant's counts"))
        };
        let counts = || postcard::from_bytes(value).map(Counts).map_err(|_| Unreadable::Nonsense("counts"));
        match key {
            [keys::meta::TENANTS, name @ ..] => {
                let counts = counts()?;
                self.total.0.iter_mut().zip(counts.0).for_each(|(total, count)| *total += count);
                self.tenants.insert(tenant(name)?, counts);
            }
            [keys::meta::DAYS, a, b, c, d, name @ ..] => {
                let day = Day(u32::from_be_bytes([*a, *b, *c, *d]));
                self.days.entry(day).or_default().insert(tenant(name)?, counts()?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A count of nothing is not kept.
fn write_counts(batch: &mut Batch, key: Vec<u8>, counts: Counts) {
    if counts == Counts::default() {
        batch.delete(Keyspace::Meta, key);
    } else {
        batch.put(Keyspace::Meta, key, postcard::to_stdvec(&counts.0).unwrap_or_default());
    }
}

fn bump(deltas: &mut BTreeMap<Tenant, Delta>, tenant: &Tenant, state: State, by: i64) {
    if let Some(count) = deltas.entry(tenant.clone()).or_default().get_mut(state.index()) {
        *count += by;
    }
}

fn sum(counts: Counts, delta: &Delta) -> Counts {
    let mut sum = counts;
    sum.0.iter_mut().zip(delta).for_each(|(count, by)| *count = count.saturating_add_signed(*by));
    sum
}
