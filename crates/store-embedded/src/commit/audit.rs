//! The audit trail in a commit: what a group changed becomes one record for each shard it touched (more if it is
//! much), in the same batch as the changes themselves.

use std::collections::{BTreeMap, BTreeSet};

use tidewheel_core::audit::{Chain, Kind, Link, Packed, Record, Step, chain_of};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, NewAct};

use super::Committer;
use super::group::{Group, Slot};
use crate::audit::{begun_days, encode_link, heads, key, value};
use crate::keys;
use crate::kv::{Batch, Day, Keyspace, KvError, Snapshot};

/// Where the chains end.
#[derive(Default)]
pub(crate) struct Trail {
    /// Whether changes of jobs are recorded, or acts only.
    pub(super) changes: bool,
    heads: BTreeMap<Chain, Link>,
    /// The newest time in any chain: those of all chains rise together, so that a day that has begun for one has begun
    /// for all.
    at: Timestamp,
    /// Days for which it is noted how chains stood when they began.
    begun: BTreeSet<Day>,
}

impl Trail {
    pub(crate) fn load(snapshot: &dyn Snapshot) -> Result<Self, KvError> {
        let heads: BTreeMap<_, _> = heads(snapshot)?.into_iter().collect();
        let at = heads.values().map(|head| head.at).max().unwrap_or(Timestamp::from_ms(0));
        Ok(Self { changes: false, heads, at, begun: begun_days(snapshot)?.into_iter().collect() })
    }

    /// Records changes of jobs, or does not.
    pub(crate) fn recording(mut self, changes: bool) -> Self {
        self.changes = changes;
        self
    }

    fn append(&mut self, batch: &mut Batch, day: Day, chain: Chain, kind: Kind, content: Vec<u8>) {
        let head = self.heads.entry(chain).or_insert(Link::START);
        let record: Record = head.append(chain, self.at, kind, content.into());
        batch.put(Keyspace::Audit(day), key(kind, record.place()), value(&record));
    }

    /// Notes how chains stand before the first record of a day.
    fn begin(&mut self, batch: &mut Batch, day: Day) {
        if !self.begun.insert(day) {
            return;
        }
        batch.put(Keyspace::Meta, keys::meta::audit_day(day), Vec::new());
        for (chain, head) in &self.heads {
            batch.put(Keyspace::Meta, keys::meta::audit_start(day, *chain), encode_link(head));
        }
    }
}

/// Adds what the group made of a job to the changes to be recorded, if it made something of it.
pub(super) fn note_change(changes: &mut Packed, shards: u16, slot: &Slot) {
    let from = slot.start.map(|(state, _)| state);
    let to = slot.end().map(|(state, _)| state);
    let attempt = slot.job.as_ref().map(|job| job.status.attempt);
    let before = slot.attempt.map(|(attempt, ..)| attempt);
    let is_other_attempt = before.is_some() && attempt.is_some() && before != attempt;
    if let Some(key) = slot.key()
        && (from.is_some() || to.is_some())
        && (from != to || slot.rest.is_some() || is_other_attempt)
    {
        let attempt = attempt.unwrap_or(0);
        changes.add(shards, key.tenant, Step { id: key.id, from, to, attempt });
    }
}

impl Committer {
    /// Adds the records of a group to its batch.
    pub(super) fn plan_audit(
        &mut self,
        batch: &mut Batch,
        changes: Packed,
        group: &mut Group,
    ) -> Result<(), Error> {
        let acts = std::mem::take(&mut group.acts);
        if acts.is_empty() && changes.is_empty() {
            return Ok(());
        }
        self.trail.at = self.trail.at.max(group.now);
        let day = Day::of(self.trail.at);
        self.ready_audit(day)?;
        self.trail.begin(batch, day);
        let shards = self.disk.shared.shards;
        let mut touched = BTreeSet::new();
        for NewAct { tenant, content } in acts {
            let chain = chain_of(&tenant, shards);
            self.trail.append(batch, day, chain, Kind::Act, content.into());
            touched.insert(chain);
        }
        for (chain, content) in changes.into_contents() {
            self.trail.append(batch, day, chain, Kind::Changes, content);
            touched.insert(chain);
        }
        for (chain, head) in touched.iter().filter_map(|chain| Some((chain, self.trail.heads.get(chain)?))) {
            batch.put(Keyspace::Meta, keys::meta::audit_head(*chain), encode_link(head));
        }
        Ok(())
    }

    fn ready_audit(&self, day: Day) -> Result<(), Error> {
        if !self.disk.shared.days().audit.contains(&day) {
            self.disk.kv.create(Keyspace::Audit(day)).map_err(|error| self.disk.poison(&error))?;
            self.disk.shared.change_days(|days| {
                days.audit.insert(day);
            });
        }
        Ok(())
    }

    /// Drops the days that ended before `before`. What the next day notes of its beginning is then where chains begin.
    pub(super) fn drop_audit(&mut self, before: Timestamp) -> Result<(), Error> {
        if let Some(error) = self.disk.shared.poisoned() {
            return Err(error);
        }
        let days = self.disk.shared.days();
        for day in days.audit.iter().filter(|day| day.end() <= before) {
            self.disk.shared.change_days(|days| {
                days.audit.remove(day);
            });
            self.disk.kv.remove(Keyspace::Audit(*day)).map_err(|error| self.disk.poison(&error))?;
            // A crash before this leaves notes of a day that is gone, which nobody goes by.
            self.trail.begun.remove(day);
            let mut batch = Batch::default();
            batch.delete(Keyspace::Meta, keys::meta::audit_day(*day));
            for chain in self.trail.heads.keys() {
                batch.delete(Keyspace::Meta, keys::meta::audit_start(*day, *chain));
            }
            self.disk.commit(batch)?;
            tracing::info!(%day, "dropped a day of the audit trail");
        }
        Ok(())
    }
}
