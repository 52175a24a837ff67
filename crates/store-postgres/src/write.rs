//! Writing what a [`Desk`] has changed: a few statements for the whole batch, sent one behind the other without waiting
//! for answers in between.

use deadpool_postgres::ClientWrapper;
use tidewheel_core::audit::{Packed, Step};
use tidewheel_core::job::{Job, State};
use tidewheel_core::time::Timestamp;
use tidewheel_store::KeyUse;

use crate::agenda::Places;
use crate::batch::{Batch, send, table};
use crate::changes::JobWrites;
use crate::desk::{Desk, StoredSchedule};
use crate::fault::Trouble;
use crate::record::{entry, schedule};
use crate::sql;
use crate::store::Database;
use crate::uid::Uid;

table!(KeyRows {
    tenant: String,
    key: String,
    used_for: i16,
    target: Option<Uid>,
    fingerprint: Vec<u8>,
    until: i64,
});
table!(KeyKeys { tenant: String, key: String, fingerprint: Vec<u8>, until: i64 });
table!(NewSchedules { tenant: String, id: Uid, name: Option<String>, revision: i64, record: Vec<u8> });
table!(ChangedSchedules {
    tenant: String,
    id: Uid,
    name: Option<String>,
    revision: i64,
    record: Vec<u8>,
    old_revision: i64,
});
table!(MovedSchedules { tenant: String, id: Uid, revision: i64, record: Vec<u8>, old_revision: i64 });
table!(ScheduleKeys { tenant: String, id: Uid, revision: i64 });
table!(LedgerKeys { tenant: String, schedule: Uid });
table!(LedgerRows { tenant: String, schedule: Uid, from_at: i64, decided_at: i64, record: Vec<u8> });

table!(AuditRows { chain: i16, at: i64, content: Vec<u8> });

impl Database {
    /// Writes all that has changed.
    pub(crate) async fn write(
        &self,
        client: &ClientWrapper,
        now: Timestamp,
        desk: &Desk,
    ) -> Result<(), Trouble> {
        send(client, &self.batches(now, Places::Any, desk)).await
    }

    /// All that has changed. Keys come first: of what a batch puts in they are the likeliest to be
    /// there already.
    pub(crate) fn batches(&self, now: Timestamp, places: Places, desk: &Desk) -> Vec<Batch> {
        let mut batches = Vec::new();
        key_batches(desk, &mut batches);
        JobWrites::new(self.shards, now, desk).batches(places, &mut batches);
        schedule_batches(desk, &mut batches);
        if self.audit_changes {
            audit_batch(self.shards, now, desk, &mut batches);
        }
        batches
    }
}

/// What became of jobs, for the audit trail.
fn audit_batch(shards: u16, now: Timestamp, desk: &Desk, batches: &mut Vec<Batch>) {
    let mut packed = Packed::default();
    for ((tenant, id), slot) in desk.jobs.iter().filter(|(_, slot)| slot.changed) {
        let (before, after) = (slot.stored.as_ref().map(|stored| &*stored.job), slot.now.as_deref());
        let state = |job: Option<&Job>| job.map(|job| job.status.state);
        let (from, to) = (state(before), state(after));
        let attempt = after.map_or(0, |job| job.status.attempt);
        let is_heartbeat = from == Some(State::Running)
            && to == Some(State::Running)
            && before.is_some_and(|job| job.status.attempt == attempt);
        if !is_heartbeat && (from.is_some() || to.is_some()) {
            packed.add(shards, tenant, Step { id: *id, from, to, attempt });
        }
    }
    let mut rows = AuditRows::default();
    for (chain, content) in packed.into_contents() {
        rows.chain.push(i16::try_from(chain).unwrap_or(i16::MAX));
        rows.at.push(now.as_ms());
        rows.content.push(content);
    }
    rows.batch_or_one(sql::INSERT_AUDIT_PENDING_ONE, sql::INSERT_AUDIT_PENDING, batches);
}

fn key_batches(desk: &Desk, batches: &mut Vec<Batch>) {
    let (mut old, mut new) = (KeyKeys::default(), KeyRows::default());
    for ((tenant, key), slot) in desk.keys.iter().filter(|(_, slot)| slot.stored != slot.now) {
        if let Some(stored) = slot.stored {
            old.tenant.push(tenant.as_str().to_owned());
            old.key.push(key.as_ref().to_owned());
            old.fingerprint.push(stored.held.fingerprint.to_vec());
            old.until.push(stored.until.as_ms());
        }
        if let Some(now) = slot.now {
            let (used_for, target) = match now.held.used_for {
                KeyUse::Job(id) => (0, Some(id.into())),
                KeyUse::NewSchedule(id) => (1, Some(id.into())),
                KeyUse::Schedule(id) => (2, Some(id.into())),
                KeyUse::Call => (3, None),
            };
            new.tenant.push(tenant.as_str().to_owned());
            new.key.push(key.as_ref().to_owned());
            new.used_for.push(used_for);
            new.target.push(target);
            new.fingerprint.push(now.held.fingerprint.to_vec());
            new.until.push(now.until.as_ms());
        }
    }
    old.batch(sql::DELETE_KEYS, true, batches);
    new.batch(sql::INSERT_KEYS, false, batches);
}

fn schedule_batches(desk: &Desk, batches: &mut Vec<Batch>) {
    let (mut new, mut changed, mut moved) =
        (NewSchedules::default(), ChangedSchedules::default(), MovedSchedules::default());
    let (mut gone, mut wiped) = (ScheduleKeys::default(), LedgerKeys::default());
    for ((tenant, id), slot) in desk.schedules.iter().filter(|(_, slot)| slot.changed) {
        let (tenant, id) = (tenant.as_str().to_owned(), Uid::from(*id));
        if slot.wiped {
            wiped.tenant.push(tenant.clone());
            wiped.schedule.push(id);
        }
        match (&slot.stored, &slot.now) {
            (None | Some(StoredSchedule::Unreadable(_)), None) => {}
            (Some(StoredSchedule::Sound { revision, .. }), None) => {
                gone.tenant.push(tenant);
                gone.id.push(id);
                gone.revision.push(*revision);
            }
            (Some(StoredSchedule::Sound { schedule: old, revision }), Some(now)) if old.name == now.name => {
                moved.tenant.push(tenant);
                moved.id.push(id);
                moved.revision.push(revision + 1);
                moved.record.push(schedule::encode(now));
                moved.old_revision.push(*revision);
            }
            (Some(StoredSchedule::Sound { revision, .. }), Some(now)) => {
                changed.tenant.push(tenant);
                changed.id.push(id);
                changed.name.push(now.name.as_deref().map(str::to_owned));
                changed.revision.push(revision + 1);
                changed.record.push(schedule::encode(now));
                changed.old_revision.push(*revision);
            }
            (None | Some(StoredSchedule::Unreadable(_)), Some(now)) => {
                new.tenant.push(tenant);
                new.id.push(id);
                new.name.push(now.name.as_deref().map(str::to_owned));
                new.revision.push(1);
                new.record.push(schedule::encode(now));
            }
        }
    }
    gone.batch(sql::DELETE_SCHEDULES, true, batches);
    wiped.batch(sql::DELETE_LEDGERS, false, batches);
    moved.batch(sql::MOVE_SCHEDULES, true, batches);
    changed.batch(sql::CHANGE_SCHEDULES, true, batches);
    new.batch(sql::INSERT_SCHEDULES, false, batches);
    let mut ledger = LedgerRows::default();
    for ((tenant, id), item) in &desk.entries {
        ledger.tenant.push(tenant.as_str().to_owned());
        ledger.schedule.push((*id).into());
        ledger.from_at.push(item.from.as_ms());
        ledger.decided_at.push(item.decided_at.as_ms());
        ledger.record.push(entry::encode(item));
    }
    ledger.batch(sql::INSERT_LEDGER, false, batches);
}
