//! Dropping what is old: a day of history, of ledgers or of idempotency keys, at a time and without reading it. The counts
//! go first, with a note of what is being dropped, so that a crash in between is finished on the next opening.

use tidewheel_core::time::Timestamp;
use tidewheel_store::Error;

use super::Committer;
use crate::keys;
use crate::kv::{Batch, Day, Keyspace};

impl Committer {
    /// Drops the days of history and of ledgers that ended before `before`, and keys that have run out by `now`.
    pub(super) fn drop_history(&mut self, now: Timestamp, before: Timestamp) -> Result<u64, Error> {
        if let Some(error) = self.disk.shared.poisoned() {
            return Err(error);
        }
        let days = self.disk.shared.days();
        let mut dropped = 0;
        for day in days.history.keys().filter(|day| day.end() <= before) {
            dropped += self.drop_day(*day)?;
        }
        for day in days.keys.iter().filter(|day| day.end() <= now) {
            self.disk.shared.change_days(|days| {
                days.keys.remove(day);
            });
            self.disk.kv.remove(Keyspace::Keys(*day)).map_err(|error| self.disk.poison(&error))?;
        }
        self.drop_lines(Day::of(before))?;
        for day in days.ledger.iter().filter(|day| day.end() <= before) {
            self.disk.shared.change_days(|days| {
                days.ledger.remove(day);
            });
            self.disk.kv.remove(Keyspace::Ledger(*day)).map_err(|error| self.disk.poison(&error))?;
        }
        Ok(dropped)
    }

    /// What was decided before `from` is no longer shown, also where it is kept with what was decided later.
    fn drop_lines(&self, from: Day) -> Result<(), Error> {
        if from <= self.disk.shared.days().ledger_from {
            return Ok(());
        }
        let mut batch = Batch::default();
        batch.put(Keyspace::Meta, keys::meta::LEDGER_FROM.to_vec(), from.0.to_be_bytes().to_vec());
        self.disk.commit(batch)?;
        self.disk.shared.change_days(|days| days.ledger_from = from);
        Ok(())
    }

    fn drop_day(&mut self, day: Day) -> Result<u64, Error> {
        let (changes, jobs) = self.disk.shared.counters().forgetting(day);
        let mut batch = Batch::default();
        self.disk.shared.counters().write(&changes, &mut batch);
        batch.put(Keyspace::Meta, keys::meta::dropping(day), Vec::new());
        self.disk.commit(batch)?;
        {
            let mut counters = self.disk.shared.counters();
            counters.apply(changes);
            counters.forget(day);
        }
        self.disk.shared.change_days(|days| {
            days.history.remove(&day);
        });
        self.disk.kv.remove(Keyspace::History(day)).map_err(|error| self.disk.poison(&error))?;
        let mut batch = Batch::default();
        batch.delete(Keyspace::Meta, keys::meta::dropping(day));
        self.disk.commit(batch)?;
        tracing::info!(%day, jobs, "dropped a day of history");
        Ok(jobs)
    }
}
