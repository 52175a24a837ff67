//! What a batch makes of jobs, as rows: a job that is new, an event for every change, and what stands in small tables
//! beside them. The number of an event is the fence: it is there once.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_core::job::{Job, State};
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Bucket;
use tidewheel_core::time::Timestamp;

use crate::agenda::{Agenda, Places};
use crate::batch::{Batch, table};
use crate::desk::{Desk, JobMark, JobSlot, is_fresh};
use crate::load::{REMOVED, bucket_column, shard_of};
use crate::record::{spec, status};
use crate::sql;
use crate::uid::Uid;

table!(Bodies {
    tenant: String,
    run_at: i64,
    id: Uid,
    shard: i16,
    kind: String,
    spec: Vec<u8>,
    payload: Vec<u8>,
});
table!(EventRows {
    tenant: String,
    run_at: i64,
    id: Uid,
    seq: i32,
    state: i16,
    attempt: i32,
    at: i64,
    body_seq: Option<i32>,
    status: Vec<u8>,
});
table!(AmendedRows {
    tenant: String,
    run_at: i64,
    id: Uid,
    seq: i32,
    state: i16,
    attempt: i32,
    at: i64,
    body_seq: i32,
    status: Vec<u8>,
    kind: String,
    spec: Vec<u8>,
    payload: Vec<u8>,
});
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
});
table!(DeadRows { tenant: String, id: Uid, run_at: i64, seq: i32 });
table!(EarlyRows { tenant: String, id: Uid, run_at: i64, seq: i32, finished_at: i64 });
table!(PlaceKeys { tenant: String, id: Uid });
table!(Tallies { tenant: String, state: i16, delta: i64 });

/// All that a batch writes about jobs.
#[derive(Default)]
pub(crate) struct JobWrites {
    shards: u16,
    now: Timestamp,
    new: Bodies,
    events: EventRows,
    amended: AmendedRows,
    timers: TimerRows,
    no_timers: PlaceKeys,
    dead: DeadRows,
    not_dead: PlaceKeys,
    early: EarlyRows,
    deltas: BTreeMap<(Tenant, u8), i64>,
    agenda: Agenda,
}

impl JobWrites {
    pub(crate) fn new(shards: u16, now: Timestamp, desk: &Desk) -> Self {
        let mut writes = Self { shards, now, ..Self::default() };
        for slot in desk.jobs.values().filter(|slot| slot.changed) {
            writes.add(slot);
        }
        writes
    }

    fn add(&mut self, slot: &JobSlot) {
        let before = slot.stored.as_ref();
        if let Some(stored) = before {
            self.count(&stored.job, -1);
        }
        if let Some(job) = &slot.now {
            self.count(job, 1);
        }
        match (before, &slot.now) {
            (None, None) => {}
            (None, Some(job)) => match slot.removed {
                Some(mark) => self.put(job, mark.next(true), true),
                None => self.add_new(job),
            },
            (Some(stored), None) => {
                self.take_out(&stored.job, stored.mark);
                self.remove(&stored.job, stored.mark.next(false));
            }
            (Some(stored), Some(job)) => {
                self.take_out(&stored.job, stored.mark);
                let is_amended = stored.job.spec != job.spec;
                self.put(job, stored.mark.next(is_amended), is_amended);
            }
        }
    }

    fn add_new(&mut self, job: &Arc<Job>) {
        let (run_at, shard) = (job.id.run_at(), shard_of(job, self.shards));
        self.new.tenant.push(job.tenant.as_str().to_owned());
        self.new.run_at.push(run_at.as_ms());
        self.new.id.push(job.id.into());
        self.new.shard.push(shard);
        self.new.kind.push(job.spec.kind.as_ref().to_owned());
        self.new.spec.push(spec::encode(&job.spec, run_at));
        self.new.payload.push(job.spec.payload.to_vec());
        if is_fresh(job) {
            self.agenda.add(shard, job);
        } else {
            self.put(job, JobMark { seq: 1, body_seq: None, shard }, false);
        }
    }

    fn count(&mut self, job: &Job, delta: i64) {
        *self.deltas.entry((job.tenant.clone(), job.status.state as u8)).or_default() += delta;
    }

    /// Takes a job out of the small table it stood in. Of one nothing has happened to there is nothing to take out.
    fn take_out(&mut self, job: &Job, mark: JobMark) {
        let keys = match job.status.state {
            State::Scheduled | State::Retrying if mark.seq > 0 => &mut self.no_timers,
            State::Dead => &mut self.not_dead,
            State::Scheduled
            | State::Retrying
            | State::Running
            | State::Succeeded
            | State::Cancelled
            | State::Skipped
            | State::Expired => return,
        };
        keys.tenant.push(job.tenant.as_str().to_owned());
        keys.id.push(job.id.into());
    }

    /// It is no more: an event all the same, so that whoever still believes in it finds the number taken.
    fn remove(&mut self, job: &Job, mark: JobMark) {
        self.events.tenant.push(job.tenant.as_str().to_owned());
        self.events.run_at.push(job.id.run_at().as_ms());
        self.events.id.push(job.id.into());
        self.events.seq.push(mark.seq);
        self.events.state.push(REMOVED);
        self.events.attempt.push(0);
        self.events.at.push(self.now.as_ms());
        self.events.body_seq.push(None);
        self.events.status.push(Vec::new());
    }

    /// Says how a job stands from now on, and what is asked for, if that is new.
    fn put(&mut self, job: &Job, mark: JobMark, is_amended: bool) {
        let run_at = job.id.run_at();
        let (tenant, id) = (job.tenant.as_str().to_owned(), Uid::from(job.id));
        let state = i16::from(job.status.state as u8);
        let attempt = i32::try_from(job.status.attempt).unwrap_or(i32::MAX);
        let at = job.status.finished_at.unwrap_or(self.now).as_ms();
        let record = status::encode(&job.status, run_at);
        if is_amended {
            let rows = &mut self.amended;
            rows.tenant.push(tenant);
            rows.run_at.push(run_at.as_ms());
            rows.id.push(id);
            rows.seq.push(mark.seq);
            rows.state.push(state);
            rows.attempt.push(attempt);
            rows.at.push(at);
            rows.body_seq.push(mark.seq);
            rows.status.push(record);
            rows.kind.push(job.spec.kind.as_ref().to_owned());
            rows.spec.push(spec::encode(&job.spec, run_at));
            rows.payload.push(job.spec.payload.to_vec());
        } else {
            let rows = &mut self.events;
            rows.tenant.push(tenant);
            rows.run_at.push(run_at.as_ms());
            rows.id.push(id);
            rows.seq.push(mark.seq);
            rows.state.push(state);
            rows.attempt.push(attempt);
            rows.at.push(at);
            rows.body_seq.push(mark.body_seq);
            rows.status.push(record);
        }
        self.put_in_place(job, mark);
    }

    /// Puts a job where it is found by how it stands.
    fn put_in_place(&mut self, job: &Job, mark: JobMark) {
        let (tenant, id, run_at) = (job.tenant.as_str().to_owned(), Uid::from(job.id), job.id.run_at());
        match job.status.state {
            State::Scheduled | State::Retrying => {
                self.timers.tenant.push(tenant);
                self.timers.id.push(id);
                self.timers.shard.push(mark.shard);
                self.timers.bucket.push(bucket_column(Bucket::of(job.status.due_at)));
                self.timers.due_at.push(job.status.due_at.as_ms());
                self.timers.run_at.push(run_at.as_ms());
                self.timers.state.push(i16::from(job.status.state as u8));
                self.timers.seq.push(mark.seq);
                self.timers.size.push(i32::try_from(job.size_bytes()).unwrap_or(i32::MAX));
            }
            State::Dead => {
                self.dead.tenant.push(tenant);
                self.dead.id.push(id);
                self.dead.run_at.push(run_at.as_ms());
                self.dead.seq.push(mark.seq);
            }
            State::Succeeded | State::Cancelled | State::Skipped | State::Expired => {
                let finished_at = job.status.finished_at.unwrap_or(self.now).as_ms();
                if finished_at.div_euclid(DAY_MS) < run_at.as_ms().div_euclid(DAY_MS) {
                    self.early.tenant.push(tenant);
                    self.early.id.push(id);
                    self.early.run_at.push(run_at.as_ms());
                    self.early.seq.push(mark.seq);
                    self.early.finished_at.push(finished_at);
                }
            }
            State::Running => {}
        }
    }

    /// First the fence, then what is taken out, then what is put in.
    pub(crate) fn batches(self, places: Places, batches: &mut Vec<Batch>) {
        self.events.batch_or_one(sql::INSERT_EVENT, sql::INSERT_EVENTS, batches);
        self.amended.batch(sql::INSERT_AMENDED, false, batches);
        self.no_timers.batch(sql::DELETE_TIMERS, false, batches);
        self.not_dead.batch(sql::DELETE_DEAD, false, batches);
        self.new.batch_or_one(sql::INSERT_JOB, sql::INSERT_JOBS, batches);
        self.timers.batch(sql::INSERT_TIMERS, false, batches);
        self.dead.batch(sql::INSERT_DEAD, false, batches);
        self.early.batch(sql::INSERT_EARLY_ENDS, false, batches);
        self.agenda.batches(self.now, places, batches);
        let mut tallies = Tallies::default();
        for ((tenant, state), delta) in self.deltas.into_iter().filter(|(_, delta)| *delta != 0) {
            tallies.tenant.push(tenant.as_str().to_owned());
            tallies.state.push(i16::from(state));
            tallies.delta.push(delta);
        }
        tallies.batch_or_one(sql::INSERT_TALLY, sql::INSERT_TALLIES, batches);
    }
}
