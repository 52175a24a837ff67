//! Room under a cap on how many of something a tenant may have. The store says how many there are; what is on its way into
//! it is known here. Whoever wants room stands in line before it asks the store: whoever stood there before is then either
//! in line still or in what the store says, never in neither. Together they never take more than there is.
//!
//! Other servers of a cluster have lines of their own. Near the cap each therefore takes no more than its part of what is
//! left, counting what it has stored a moment ago, which the others may not have seen yet.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tidewheel_core::job::State;
use tidewheel_core::names::Tenant;
use tidewheel_store::{Error, Store};
use tokio::sync::Notify;

use crate::engine::Engine;

/// How often one looks whether there is room while those before it are not done.
const LOOKS_COUNT_MAX: usize = 20;
/// How long one waits for those before it, or for other servers, before it looks again.
const LOOK_MS: u64 = 100;
/// What was stored counts as this server's part for so long, and at most twice as long.
const LATELY_MS: i64 = 500;
/// Lines that are remembered for what was stored lately; beyond that it is looked for those to forget.
const LINES_COUNT_MAX: usize = 65_536;

/// What there may be only so many of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kept {
    /// Jobs that wait.
    WaitingJobs,
    /// Schedules.
    Schedules,
}

impl Kept {
    async fn count(self, store: &dyn Store, tenant: &Tenant) -> Result<u64, Error> {
        match self {
            Self::WaitingJobs => {
                let counts = store.counts(Some(tenant)).await?;
                Ok(counts.of(State::Scheduled) + counts.of(State::Retrying))
            }
            Self::Schedules => store.count_schedules(tenant).await,
        }
    }
}

/// The lines of all tenants.
pub(super) struct Reservations {
    kept: Kept,
    lines: Mutex<FxHashMap<Tenant, Line>>,
}

#[derive(Default)]
struct Line {
    next_turn: u64,
    /// How many each wants, by its turn.
    held: BTreeMap<u64, u64>,
    lately: Lately,
    freed: Arc<Notify>,
}

/// How many were stored lately, in this stretch of [`LATELY_MS`] and in the one before.
#[derive(Debug, Default, Clone, Copy)]
struct Lately {
    stretch: i64,
    now: u64,
    before: u64,
}

impl Lately {
    fn at(self, now_ms: i64) -> Self {
        let stretch = now_ms.div_euclid(LATELY_MS);
        match stretch.saturating_sub(self.stretch) {
            0 => self,
            1 => Self { stretch, now: 0, before: self.now },
            _ => Self { stretch, now: 0, before: 0 },
        }
    }

    fn count(self, now_ms: i64) -> u64 {
        let Self { now, before, .. } = self.at(now_ms);
        now.saturating_add(before)
    }

    fn add(&mut self, count: u64, now_ms: i64) {
        *self = self.at(now_ms);
        self.now = self.now.saturating_add(count);
    }
}

/// A place in line. What it stands for must be stored, or not, before it is dropped.
pub(super) struct Reserved {
    of: Arc<Reservations>,
    engine: Engine,
    tenant: Tenant,
    turn: u64,
    count: u64,
    freed: Arc<Notify>,
    is_taken: bool,
}

/// How much room there is, as far as it can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fit {
    /// How many there are.
    pub(super) there: u64,
    /// How many more may be added by whoever asked.
    pub(super) room: u64,
}

/// What one sees from its place in line.
#[derive(Debug, Clone, Copy)]
struct Sight {
    there: u64,
    /// Wanted by those before.
    ahead: u64,
    /// Stored by this server a moment ago.
    lately: u64,
    nodes: u64,
    max: u64,
}

impl Sight {
    /// Whether what is seen is all there is to see: nobody is before, here or maybe elsewhere.
    const fn is_clear(&self) -> bool {
        self.ahead == 0 && (self.nodes <= 1 || self.lately == 0)
    }

    fn room(&self) -> u64 {
        let left = self.max.saturating_sub(self.there);
        let free = left.saturating_sub(self.ahead);
        if self.nodes <= 1 || self.is_clear() {
            return free;
        }
        let part = left.saturating_add(self.lately) / self.nodes;
        free.min(part.saturating_sub(self.lately.saturating_add(self.ahead)))
    }
}

impl Reservations {
    pub(super) fn new(kept: Kept) -> Arc<Self> {
        Arc::new(Self { kept, lines: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<Tenant, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place in the tenant's line for so many.
    pub(super) fn stand(self: &Arc<Self>, engine: &Engine, tenant: &Tenant, count: u64) -> Reserved {
        let mut lines = self.lock();
        if lines.len() >= LINES_COUNT_MAX {
            let now_ms = engine.clock().monotonic_ms();
            lines.retain(|_, line| !line.held.is_empty() || line.lately.count(now_ms) > 0);
        }
        let line = lines.entry(tenant.clone()).or_default();
        let turn = line.next_turn;
        line.next_turn += 1;
        line.held.insert(turn, count);
        let (engine, tenant, freed) = (engine.clone(), tenant.clone(), Arc::clone(&line.freed));
        Reserved { of: Arc::clone(self), engine, tenant, turn, count, freed, is_taken: false }
    }
}

impl Reserved {
    /// Finds out whether all of them fit under `max`, or how many do. Waits for those before it where that decides, unless
    /// not even `least` would fit without them.
    pub(super) async fn fit(&self, max: u64, least: u64) -> Result<Fit, Error> {
        let mut fit = Fit { there: 0, room: 0 };
        for _ in 0..LOOKS_COUNT_MAX {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            // Before the store is asked: what is stored in between is seen twice rather than never.
            let (ahead, lately) = self.before();
            let there = self.of.kept.count(&**self.engine.store(), &self.tenant).await?;
            let sight = Sight { there, ahead, lately, nodes: self.engine.nodes_count(), max };
            fit = Fit { there, room: sight.room() };
            if fit.room >= self.count || there.saturating_add(least) > max || sight.is_clear() {
                break;
            }
            tokio::select! {
                () = freed => {}
                () = self.engine.clock().sleep(Duration::from_millis(LOOK_MS)) => {}
            }
        }
        Ok(fit)
    }

    /// How many are wanted by those before it, and how many were stored lately.
    fn before(&self) -> (u64, u64) {
        let now_ms = self.engine.clock().monotonic_ms();
        let lines = self.of.lock();
        let Some(line) = lines.get(&self.tenant) else { return (0, 0) };
        let ahead = line.held.range(..self.turn).map(|(_, count)| *count).fold(0, u64::saturating_add);
        (ahead, line.lately.count(now_ms))
    }

    /// Wants fewer from now on.
    pub(super) fn shrink(&mut self, count: u64) {
        self.count = count;
        if let Some(held) =
            self.of.lock().get_mut(&self.tenant).and_then(|line| line.held.get_mut(&self.turn))
        {
            *held = count;
        }
        self.freed.notify_waiters();
    }

    /// They will be stored.
    pub(super) const fn take(&mut self) {
        self.is_taken = true;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let is_shared = self.engine.nodes_count() > 1;
        let mut lines = self.of.lock();
        if let Some(line) = lines.get_mut(&self.tenant) {
            line.held.remove(&self.turn);
            if self.is_taken && is_shared {
                line.lately.add(self.count, self.engine.clock().monotonic_ms());
            }
            if line.held.is_empty() && !is_shared {
                lines.remove(&self.tenant);
            }
        }
        drop(lines);
        self.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(there: u64, ahead: u64) -> Sight {
        Sight { there, ahead, lately: 0, nodes: 1, max: 20 }
    }

    #[test]
    fn what_is_on_its_way_takes_room_as_what_is_there_does() {
        assert_eq!(alone(0, 0).room(), 20);
        assert_eq!(alone(12, 5).room(), 3);
        assert_eq!(alone(12, 9).room(), 0);
        assert_eq!(alone(25, 0).room(), 0, "the limit was lowered");
        assert!(alone(12, 0).is_clear() && !alone(12, 1).is_clear());
    }

    #[test]
    fn near_the_cap_each_server_takes_its_part_of_what_is_left() {
        let shared = |there, ahead, lately| Sight { there, ahead, lately, nodes: 2, max: 20 };
        assert_eq!(shared(0, 0, 0).room(), 20, "a batch of any size that fits, where nothing is under way");
        assert_eq!(shared(0, 4, 0).room(), 6, "half of it");
        assert_eq!(shared(10, 0, 10).room(), 0, "its half is stored, and the other's may be on its way");
        assert_eq!(shared(10, 0, 4).room(), 3);
        assert_eq!(shared(19, 0, 0).room(), 1, "the last one is taken, too");
        assert!(!shared(10, 0, 10).is_clear() && shared(10, 0, 0).is_clear());
    }

    #[test]
    fn what_was_stored_counts_for_a_moment_and_no_longer() {
        let mut lately = Lately::default();
        lately.add(3, 10 * LATELY_MS);
        lately.add(2, 11 * LATELY_MS - 1);
        assert_eq!(lately.count(11 * LATELY_MS - 1), 5);
        lately.add(1, 11 * LATELY_MS);
        assert_eq!(lately.count(12 * LATELY_MS - 1), 6);
        assert_eq!(lately.count(12 * LATELY_MS), 1);
        assert_eq!(lately.count(13 * LATELY_MS), 0);
    }
}
