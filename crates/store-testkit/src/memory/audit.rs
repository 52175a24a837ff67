//! The model's audit trail.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use tidewheel_core::audit::{Chain, ChainEnds, Kind, Link, Packed, Place, Record, Step, chain_of};
use tidewheel_core::job::{Job, State};
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::time::Timestamp;

use super::{Call, MemoryStore};
use tidewheel_store::{Audit, AuditOrder, AuditQuery, Error, NewAct};

/// The records, and what a call under way has changed so far.
#[derive(Default)]
pub(super) struct Trail {
    records: BTreeMap<Place, Record>,
    chains: BTreeMap<Chain, ChainEnds>,
    changed: BTreeMap<(tidewheel_core::names::Tenant, tidewheel_core::id::JobId), Met>,
}

/// A job in a call: its state before, and as it is now.
struct Met {
    from: Option<State>,
    to: Option<State>,
    attempt: u32,
}

impl Trail {
    /// Notes that a job has changed.
    pub(super) fn note(&mut self, old: Option<&Job>, new: Option<&Job>) {
        let Some(job) = new.or(old) else { return };
        let state = |job: Option<&Job>| job.map(|job| job.status.state);
        let attempts = old.zip(new).map(|(old, new)| (old.status.attempt, new.status.attempt));
        let is_heartbeat = state(old) == Some(State::Running)
            && state(new) == Some(State::Running)
            && attempts.is_some_and(|(old, new)| old == new);
        let key = (job.tenant.clone(), job.id);
        if is_heartbeat && !self.changed.contains_key(&key) {
            return;
        }
        let met = self.changed.entry(key).or_insert(Met { from: state(old), to: None, attempt: 0 });
        (met.to, met.attempt) = (state(new), new.map_or(0, |job| job.status.attempt));
    }

    /// Adds what the call has changed.
    pub(super) fn seal(&mut self, now: Timestamp, shards: u16) {
        let mut packed = Packed::default();
        for ((tenant, id), Met { from, to, attempt }) in std::mem::take(&mut self.changed) {
            if from.is_some() || to.is_some() {
                packed.add(shards, &tenant, Step { id, from, to, attempt });
            }
        }
        for (chain, content) in packed.into_contents() {
            self.append(now, chain, Kind::Changes, content.into());
        }
    }

    fn append(&mut self, now: Timestamp, chain: Chain, kind: Kind, content: Bytes) {
        let fresh = ChainEnds { chain, anchor: Link::START, head: Link::START };
        let record = self.chains.entry(chain).or_insert(fresh).head.append(chain, now, kind, content);
        self.records.insert(record.place(), record);
    }

    fn read(&self, query: &AuditQuery) -> Vec<Record> {
        let wanted = |record: &&Record| {
            let is_after = |place: Place| match query.order {
                AuditOrder::OldestFirst => record.place() > place,
                AuditOrder::NewestFirst => record.place() < place,
            };
            query.kind.is_none_or(|kind| kind == record.kind)
                && (query.from..query.until).contains(&record.at)
                && query.after.is_none_or(is_after)
        };
        let records = self.records.values();
        match query.order {
            AuditOrder::OldestFirst => records.filter(wanted).take(query.count_max).cloned().collect(),
            AuditOrder::NewestFirst => records.rev().filter(wanted).take(query.count_max).cloned().collect(),
        }
    }

    fn drop_before(&mut self, before: Timestamp) {
        let day = Timestamp::from_ms(before.as_ms().div_euclid(DAY_MS) * DAY_MS);
        let kept = self.records.split_off(&Place { at: day, chain: 0, seq: 0 });
        for record in std::mem::replace(&mut self.records, kept).into_values() {
            if let Some(ends) = self.chains.get_mut(&record.chain) {
                ends.anchor = Link { seq: record.seq, at: record.at, hash: record.hash };
            }
        }
    }
}

#[async_trait]
impl Audit for MemoryStore {
    async fn append_acts(&self, now: Timestamp, acts: Vec<NewAct>) -> Result<(), Error> {
        let shards = self.layout.shards;
        self.call(Call::AppendActs, |tables| {
            for NewAct { tenant, content } in acts {
                tables.trail.append(now, chain_of(&tenant, shards), Kind::Act, content);
            }
            Ok(())
        })
        .await
    }

    async fn audit_records(&self, query: AuditQuery) -> Result<Vec<Record>, Error> {
        self.call(Call::AuditRecords, |tables| Ok(tables.trail.read(&query))).await
    }

    async fn audit_chains(&self) -> Result<Vec<ChainEnds>, Error> {
        self.call(Call::AuditChains, |tables| Ok(tables.trail.chains.values().copied().collect())).await
    }

    async fn drop_audit(&self, before: Timestamp) -> Result<(), Error> {
        self.call(Call::DropAudit, |tables| {
            tables.trail.drop_before(before);
            Ok(())
        })
        .await
    }
}
