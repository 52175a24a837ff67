//! Writing what a [`Desk`] has changed: a few statements for the whole batch, sent one behind the other without waiting
//! for answers in between. What is taken out is counted: if a row is not there any more, another was faster.

use std::collections::BTreeMap;

use deadpool_postgres::ClientWrapper;
use futures_util::future::join_all;
use tidewheel_core::audit::{Packed, Step};
use tidewheel_core::job::{Job, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::KeyUse;
use tokio_postgres::types::ToSql;

use crate::desk::{Desk, JobSlot, Place, StoredSchedule};
use crate::fault::Trouble;
use crate::load::{bucket_column, shard_column};
use crate::record::{entry, schedule, spec, status};
use crate::sql;
use crate::store::Database;
use crate::uid::Uid;

/// One column of rows to be written or taken out.
type Column = Box<dyn ToSql + Sync + Send>;

/// A statement over many rows.
struct Batch {
    sql: &'static str,
    columns: Vec<Column>,
    /// How many rows it must touch, if another's change would make it fewer.
    expected: Option<usize>,
}

macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Default)]
        struct $name { $($field: Vec<$type>),+ }

        impl $name {
            fn batch(self, sql: &'static str, is_counted: bool, batches: &mut Vec<Batch>) {
                let counts = [$(self.$field.len()),+];
                let count = counts.first().copied().unwrap_or(0);
                if count > 0 {
                    let columns: Vec<Column> = vec![$(Box::new(self.$field)),+];
                    batches.push(Batch { sql, columns, expected: is_counted.then_some(count) });
                }
            }
        }
    };
}

table!(Bodies { tenant: String, run_at: i64, id: Uid, kind: String, spec: Vec<u8>, payload: Vec<u8> });
table!(BodyKeys { tenant: String, run_at: i64, id: Uid });
table!(WaitingRows { shard: i16, bucket: i32, tenant: String, id: Uid, run_at: i64, size: i32 });
table!(WaitingKeys { shard: i16, bucket: i32, tenant: String, id: Uid });
table!(TimerRows {
    tenant: String,
    id: Uid,
    shard: i16,
    bucket: i32,
    due_at: i64,
    run_at: i64,
    state: i16,
    seq: i32,
    size: i32,
    status: Vec<u8>,
});
table!(RunningRows { tenant: String, id: Uid, run_at: i64, seq: i32, attempt: i32, status: Vec<u8> });
table!(RunningChanges { tenant: String, id: Uid, old_seq: i32, seq: i32, status: Vec<u8> });
table!(DeadRows { tenant: String, id: Uid, run_at: i64, finished_at: i64, seq: i32, status: Vec<u8> });
table!(EndRows {
    tenant: String,
    run_at: i64,
    id: Uid,
    state: i16,
    finished_at: i64,
    seq: i32,
    status: Vec<u8>,
});
table!(EndKeys { tenant: String, run_at: i64, id: Uid, seq: i32 });
table!(PlaceKeys { tenant: String, id: Uid, seq: i32 });
table!(Tallies { tenant: String, state: i16, delta: i64 });
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
        let mut batches = Vec::new();
        JobWrites::new(self.shards, desk).batches(&mut batches);
        key_batches(desk, &mut batches);
        schedule_batches(desk, &mut batches);
        if self.audit_changes {
            audit_batch(self.shards, now, desk, &mut batches);
        }
        send(client, batches).await
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
    rows.batch(sql::INSERT_AUDIT_PENDING, false, batches);
}

async fn send(client: &ClientWrapper, batches: Vec<Batch>) -> Result<(), Trouble> {
    let mut prepared = Vec::with_capacity(batches.len());
    for batch in &batches {
        prepared.push(client.prepare_cached(batch.sql).await?);
    }
    let sending = batches.iter().zip(&prepared).map(|(batch, statement)| async move {
        let parameters: Vec<&(dyn ToSql + Sync)> =
            batch.columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
        client.execute(statement, &parameters).await
    });
    // Each is sent when it is first looked at, which is in this order.
    for (outcome, batch) in join_all(sending).await.into_iter().zip(&batches) {
        let count = outcome?;
        if batch.expected.is_some_and(|expected| u64::try_from(expected) != Ok(count)) {
            return Err(Trouble::Raced);
        }
    }
    Ok(())
}

#[derive(Default)]
struct JobWrites {
    new: Bodies,
    changed: Bodies,
    gone: BodyKeys,
    waiting: WaitingRows,
    not_waiting: WaitingKeys,
    timers: TimerRows,
    no_timers: PlaceKeys,
    running: RunningRows,
    heartbeats: RunningChanges,
    not_running: PlaceKeys,
    dead: DeadRows,
    not_dead: PlaceKeys,
    ends: EndRows,
    no_ends: EndKeys,
    deltas: BTreeMap<(Tenant, u8), i64>,
}

impl JobWrites {
    fn new(shards: u16, desk: &Desk) -> Self {
        let mut writes = Self::default();
        for slot in desk.jobs.values().filter(|slot| slot.changed) {
            writes.add(shards, slot);
        }
        writes
    }

    fn add(&mut self, shards: u16, slot: &JobSlot) {
        let before = slot.stored.as_ref();
        let after = slot.now.as_deref();
        if let Some(stored) = before {
            self.count(&stored.job, -1);
        }
        if let Some(job) = after {
            self.count(job, 1);
        }
        match (before, after) {
            (None, None) => return,
            (None, Some(job)) => push_body(&mut self.new, job),
            (Some(stored), None) => push_key(&mut self.gone, &stored.job),
            (Some(stored), Some(job)) if stored.job.spec != job.spec => push_body(&mut self.changed, job),
            (Some(_), Some(_)) => {}
        }
        let seq = before.map_or(0, |stored| stored.seq);
        let is_running = after.is_some_and(|job| job.status.state == State::Running);
        match before {
            Some(stored) if stored.place == Place::Running && is_running => {
                if let Some(job) = after {
                    self.heartbeats.tenant.push(job.tenant.as_str().to_owned());
                    self.heartbeats.id.push(job.id.into());
                    self.heartbeats.old_seq.push(seq);
                    self.heartbeats.seq.push(seq.saturating_add(1));
                    self.heartbeats.status.push(status::encode(&job.status, job.id.run_at()));
                }
            }
            Some(stored) => {
                self.take_out(shards, &stored.job, stored.place, seq);
                after.inspect(|job| self.put(shards, job, seq.saturating_add(1)));
            }
            None => drop(after.inspect(|job| self.put(shards, job, 1))),
        }
    }

    fn count(&mut self, job: &Job, delta: i64) {
        *self.deltas.entry((job.tenant.clone(), job.status.state as u8)).or_default() += delta;
    }

    fn take_out(&mut self, shards: u16, job: &Job, place: Place, seq: i32) {
        let (tenant, id, run_at) = (job.tenant.as_str().to_owned(), Uid::from(job.id), job.id.run_at());
        let keys = match place {
            Place::Waiting => {
                self.not_waiting.shard.push(shard_column(Shard::of_job(&job.tenant, job.id, shards)));
                self.not_waiting.bucket.push(bucket_column(Bucket::of(run_at)));
                self.not_waiting.tenant.push(tenant);
                self.not_waiting.id.push(id);
                return;
            }
            Place::Ends => {
                self.no_ends.tenant.push(tenant);
                self.no_ends.run_at.push(run_at.as_ms());
                self.no_ends.id.push(id);
                self.no_ends.seq.push(seq);
                return;
            }
            Place::Timers => &mut self.no_timers,
            Place::Running => &mut self.not_running,
            Place::Dead => &mut self.not_dead,
        };
        keys.tenant.push(tenant);
        keys.id.push(id);
        keys.seq.push(seq);
    }

    fn put(&mut self, shards: u16, job: &Job, seq: i32) {
        let (id, run_at) = (Uid::from(job.id), job.id.run_at());
        let tenant = job.tenant.as_str().to_owned();
        let shard = shard_column(Shard::of_job(&job.tenant, job.id, shards));
        let size = i32::try_from(job.size_bytes()).unwrap_or(i32::MAX);
        if job.status == tidewheel_core::job::Status::scheduled(run_at) {
            self.waiting.shard.push(shard);
            self.waiting.bucket.push(bucket_column(Bucket::of(run_at)));
            self.waiting.tenant.push(tenant);
            self.waiting.id.push(id);
            self.waiting.run_at.push(run_at.as_ms());
            self.waiting.size.push(size);
            return;
        }
        let record = status::encode(&job.status, run_at);
        let finished_at = job.status.finished_at.unwrap_or(job.status.due_at).as_ms();
        match job.status.state {
            State::Scheduled | State::Retrying => {
                self.timers.tenant.push(tenant);
                self.timers.id.push(id);
                self.timers.shard.push(shard);
                self.timers.bucket.push(bucket_column(Bucket::of(job.status.due_at)));
                self.timers.due_at.push(job.status.due_at.as_ms());
                self.timers.run_at.push(run_at.as_ms());
                self.timers.state.push(i16::from(job.status.state as u8));
                self.timers.seq.push(seq);
                self.timers.size.push(size);
                self.timers.status.push(record);
            }
            State::Running => {
                self.running.tenant.push(tenant);
                self.running.id.push(id);
                self.running.run_at.push(run_at.as_ms());
                self.running.seq.push(seq);
                self.running.attempt.push(i32::try_from(job.status.attempt).unwrap_or(i32::MAX));
                self.running.status.push(record);
            }
            State::Dead => {
                self.dead.tenant.push(tenant);
                self.dead.id.push(id);
                self.dead.run_at.push(run_at.as_ms());
                self.dead.finished_at.push(finished_at);
                self.dead.seq.push(seq);
                self.dead.status.push(record);
            }
            State::Succeeded | State::Cancelled | State::Skipped | State::Expired => {
                self.ends.tenant.push(tenant);
                self.ends.run_at.push(run_at.as_ms());
                self.ends.id.push(id);
                self.ends.state.push(i16::from(job.status.state as u8));
                self.ends.finished_at.push(finished_at);
                self.ends.seq.push(seq);
                self.ends.status.push(record);
            }
        }
    }

    /// First what is taken out, then what is put in.
    fn batches(self, batches: &mut Vec<Batch>) {
        self.not_waiting.batch(sql::DELETE_WAITING, true, batches);
        self.no_timers.batch(sql::DELETE_TIMERS, true, batches);
        self.not_running.batch(sql::DELETE_RUNNING, true, batches);
        self.heartbeats.batch(sql::CHANGE_RUNNING, true, batches);
        self.not_dead.batch(sql::DELETE_DEAD, true, batches);
        self.no_ends.batch(sql::DELETE_ENDS, true, batches);
        self.gone.batch(sql::DELETE_JOBS, true, batches);
        self.changed.batch(sql::CHANGE_JOBS, true, batches);
        self.new.batch(sql::INSERT_JOBS, false, batches);
        self.waiting.batch(sql::INSERT_WAITING, false, batches);
        self.timers.batch(sql::INSERT_TIMERS, false, batches);
        self.running.batch(sql::INSERT_RUNNING, false, batches);
        self.dead.batch(sql::INSERT_DEAD, false, batches);
        self.ends.batch(sql::INSERT_ENDS, false, batches);
        let mut tallies = Tallies::default();
        for ((tenant, state), delta) in self.deltas.into_iter().filter(|(_, delta)| *delta != 0) {
            tallies.tenant.push(tenant.as_str().to_owned());
            tallies.state.push(i16::from(state));
            tallies.delta.push(delta);
        }
        tallies.batch(sql::INSERT_TALLIES, false, batches);
    }
}

fn push_body(bodies: &mut Bodies, job: &Job) {
    let run_at = job.id.run_at();
    bodies.tenant.push(job.tenant.as_str().to_owned());
    bodies.run_at.push(run_at.as_ms());
    bodies.id.push(job.id.into());
    bodies.kind.push(job.spec.kind.as_ref().to_owned());
    bodies.spec.push(spec::encode(&job.spec, run_at));
    bodies.payload.push(job.spec.payload.to_vec());
}

fn push_key(keys: &mut BodyKeys, job: &Job) {
    keys.tenant.push(job.tenant.as_str().to_owned());
    keys.run_at.push(job.id.run_at().as_ms());
    keys.id.push(job.id.into());
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
