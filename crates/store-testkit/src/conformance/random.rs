//! Long random runs: the same calls go to the store under test and to the model, and the answers must agree.
//! A run is all in its seed: the message of a failed one names it, with the step.

mod schedules;

use std::borrow::Borrow;
use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{
    Command, Destination, Failure, Job, Occurrence, Priority, Spec, State, Status, Target, Token,
};
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard, SubShard};
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;
use tidewheel_core::trace::{SpanId, TraceContext, TraceId};

use super::dice::Dice;
use super::trial::{Trial, finding, joining, spec, tenant};
use super::{Home, walk};
use crate::memory::MemoryStore;
use tidewheel_store::{
    Applied, Checkpoint, Error, Filter, IdempotencyClaim, OnConflict, Order, Refusal, Store, Submission,
    Submitted,
};

/// Runs per store.
pub const SEEDS_COUNT: u64 = 30;

const STEPS_COUNT: usize = 300;
const KEYS: [&str; 5] = ["a", "ab", "b", "order/1", "größe"];
const KINDS: [&str; 2] = ["mail.send", "report"];
const MINUTE_MS: i64 = 60_000;

/// The store under test beside the model.
struct Pair<'a> {
    trial: Trial<'a>,
    model: MemoryStore,
    model_epoch: u64,
    dice: Dice,
    tenants: Vec<Tenant>,
    /// Every job ever taken in, or made by a schedule.
    known: Vec<(Tenant, JobId)>,
    /// Every schedule ever made.
    schedules: Vec<(Tenant, ScheduleId)>,
    /// What to say when the two disagree.
    place: String,
}

/// One run from a seed, on a fresh store.
pub async fn a_random_run_agrees_with_the_model(home: &dyn Home, seed: u64) {
    let trial = Trial::start(home).await;
    let model = MemoryStore::new(trial.store.layout());
    let model_epoch = model.open_epoch().await.expect("opened");
    let mut tenants = trial.neighbours(2);
    tenants.extend(["acme", "acme-2"].map(tenant));
    let dice = Dice::new(seed);
    let (known, schedules, place) = (Vec::new(), Vec::new(), String::new());
    let mut pair = Pair { trial, model, model_epoch, dice, tenants, known, schedules, place };
    for step in 0..STEPS_COUNT {
        pair.place = format!("seed {seed}, step {step}");
        pair = pair.step().await;
    }
    pair = pair.reopen().await;
    pair.compare_everything().await;
}

impl Pair<'_> {
    async fn step(mut self) -> Self {
        let pause = *self.dice.pick(&[0, 0, 1, 1_000, MINUTE_MS]);
        self.trial.pass(self.dice.between(0, pause));
        match self.dice.below(100) {
            0..15 => self.submit().await,
            15..22 => self.edit_schedules().await,
            22 => self.put_calendar().await,
            23..65 => self.apply().await,
            65..70 => self.compare_schedules().await,
            70..76 => self.compare_due().await,
            76..80 => self.compare_buckets().await,
            80..83 => self.compare_running().await,
            83..87 => self.compare_lists().await,
            87..90 => self.compare_lookups().await,
            90..94 => self.compare_counts().await,
            94 => self.checkpoint().await,
            95 => self.drop_history().await,
            96 => self.fence().await,
            97 => return self.reopen().await,
            _ => self.compare_keys().await,
        }
        self
    }

    async fn submit(&mut self) {
        let count = self.dice.between(1, 5);
        let mut batch = Vec::new();
        for _ in 0..count {
            batch.push(self.submission().await);
        }
        let on_conflict = *self.dice.pick(&[OnConflict::KeepOthers, OnConflict::KeepNone]);
        let now = self.trial.now;
        let mut real = self.trial.store.submit(now, batch.clone(), on_conflict).await.expect("answered");
        let mut model = self.model.submit(now, batch.clone(), on_conflict).await.expect("answered");
        let conflicted = model.iter().any(|answer| matches!(answer, Submitted::Conflict(_)));
        if conflicted && on_conflict == OnConflict::KeepNone {
            // What is said of the others, which are not taken in, is of no meaning.
            real.retain(|answer| matches!(answer, Submitted::Conflict(_)));
            model.retain(|answer| matches!(answer, Submitted::Conflict(_)));
        } else {
            let taken = batch.iter().zip(&model).filter(|(_, answer)| **answer == Submitted::New);
            self.known
                .extend(taken.map(|(submission, _)| (submission.job.tenant.clone(), submission.job.id)));
        }
        assert_eq!(real, model, "{}: {batch:?}", self.place);
    }

    async fn submission(&mut self) -> Submission {
        if self.dice.percent(10)
            && let Some(job) = self.some_job().await
        {
            return Submission { job, key: None, fresh: false };
        }
        let tenant = self.dice.pick(&self.tenants).clone();
        let (run_at, tail) = (self.time(), u128::from(self.dice.roll()));
        let id = JobId::in_sub_shard(run_at, tail, self.sub_shard(&tenant));
        let mut job = Job::with_id(tenant, self.spec(), id);
        if self.dice.percent(5) {
            job.status = Status { state: State::Skipped, finished_at: Some(self.trial.now), ..job.status };
        }
        let key = self.dice.percent(50).then(|| IdempotencyClaim {
            key: Arc::from(*self.dice.pick(&KEYS)),
            fingerprint: [*self.dice.pick(&[1, 1, 1, 2]); 16],
            until: self.trial.now.plus_ms(self.dice.between(1, 20 * MINUTE_MS)),
        });
        Submission { job, key, fresh: false }
    }

    /// The home shard, or any other that a tenant can be spread over.
    fn sub_shard(&mut self, tenant: &Tenant) -> SubShard {
        if self.dice.percent(50) {
            return SubShard::HOME;
        }
        let all: Vec<_> = joining(&*self.trial.store, tenant).collect();
        *self.dice.pick(&all)
    }

    /// A key for an order, which others may have.
    fn claim(&mut self) -> IdempotencyClaim {
        IdempotencyClaim {
            key: Arc::from(*self.dice.pick(&KEYS)),
            fingerprint: [*self.dice.pick(&[3, 3, 3, 2]); 16],
            until: self.trial.now.plus_ms(self.dice.between(1, 20 * MINUTE_MS)),
        }
    }

    fn spec(&mut self) -> Spec {
        let target = Target { url: "http://example.com/".into(), method: "POST".into(), headers: Vec::new() };
        let size = *self.dice.pick(&[0, 1, 100, 5_000]);
        let dice = &mut self.dice;
        Spec {
            kind: Arc::from(*dice.pick(&KINDS)),
            payload: Bytes::from(vec![b'x'; size]),
            destination: if dice.percent(50) {
                Destination::Queue(Arc::from(*dice.pick(&["mail", "slow"])))
            } else {
                Destination::Target(Arc::new(target))
            },
            priority: *dice.pick(&Priority::ALL),
            retry: RetryPolicy {
                max_attempts: *dice.pick(&[1, 2, 3]),
                backoff: *dice.pick(&[Backoff::Fixed, Backoff::Exponential, Backoff::ExponentialJitter]),
                base_ms: dice.between(1, 20 * MINUTE_MS),
                ..RetryPolicy::default()
            },
            expires_at: dice.percent(20).then(|| self.trial.now.plus_ms(dice.between(0, 10 * MINUTE_MS))),
            labels: if dice.percent(30) { vec![("env".into(), "prod".into())] } else { Vec::new() },
            occurrence: dice.percent(20).then(|| Occurrence {
                schedule_id: ScheduleId::from_bytes([1; 16]),
                fire_at: self.trial.now,
                catch_up: dice.percent(50),
            }),
            trace: dice.percent(20).then(|| Box::new(a_trace(dice))),
            ..spec(self.trial.now)
        }
    }

    /// A time for a job: mostly due already or soon, sometimes far away.
    fn time(&mut self) -> Timestamp {
        let (low, high) =
            *self.dice.pick(&[(-MINUTE_MS, 0), (-MINUTE_MS, 0), (0, 20 * MINUTE_MS), (-DAY_MS, 9 * DAY_MS)]);
        self.trial.now.plus_ms(self.dice.between(low, high))
    }

    /// A job that is there, as the model has it.
    async fn some_job(&mut self) -> Option<Job> {
        if self.known.is_empty() {
            return None;
        }
        // The newest are the likeliest to be in the middle of something.
        let recent = self.known.len().saturating_sub(25);
        let from = if self.dice.percent(70) { recent } else { 0 };
        let (tenant, id) = self.dice.pick(&self.known[from..]).clone();
        self.model.get(&tenant, vec![id]).await.expect("looked up").remove(0)
    }

    async fn apply(&mut self) {
        let mut orders: Vec<Order> = Vec::new();
        for _ in 0..self.dice.between(1, 5) {
            let Some(job) = self.some_job().await else { continue };
            let tenant =
                if self.dice.percent(3) { self.dice.pick(&self.tenants).clone() } else { job.tenant.clone() };
            let command = self.command(&job);
            let key = if self.dice.percent(10) { Some(self.claim()) } else { None };
            orders.push(Order { tenant, id: job.id, command, key });
        }
        let (now, fenced) = (self.trial.now, self.dice.percent(70));
        let (real_epoch, model_epoch) = (self.trial.epoch, self.model_epoch);
        let real = self.trial.store.apply(now, fenced.then_some(real_epoch), orders.clone()).await;
        let model = self.model.apply(now, fenced.then_some(model_epoch), orders.clone()).await;
        let plain = |answers: Result<Vec<Result<Applied, Refusal>>, Error>| {
            let answers = answers.expect("answered").into_iter();
            let parts = |applied: Applied| (applied.beside(), applied.job, applied.changed);
            answers.map(|answer| answer.map(parts)).collect::<Vec<_>>()
        };
        let (real, model) = (plain(real), plain(model));
        assert_eq!(real, model, "{}: {orders:?}", self.place);
        for (others, ..) in model.into_iter().flatten() {
            self.learn(&others);
        }
    }

    fn learn<J: Borrow<Job>>(&mut self, jobs: &[J]) {
        for job in jobs.iter().map(Borrow::borrow) {
            let key = (job.tenant.clone(), job.id);
            if !self.known.contains(&key) {
                self.known.push(key);
            }
        }
    }

    /// Mostly what makes sense for the job, sometimes anything.
    fn command(&mut self, job: &Job) -> Command {
        let kind = match job.status.state {
            State::Scheduled | State::Retrying if self.dice.percent(60) => 0,
            State::Running if self.dice.percent(80) => self.dice.below(9) + 1,
            State::Dead if self.dice.percent(60) => self.dice.below(2) + 14,
            State::Scheduled
            | State::Running
            | State::Retrying
            | State::Succeeded
            | State::Dead
            | State::Cancelled
            | State::Skipped
            | State::Expired => self.dice.below(17),
        };
        let token = job.status.token;
        let token =
            if self.dice.percent(10) { Token::from_u64(token.as_u64().saturating_sub(1)) } else { token };
        let ms = self.dice.between(0, 5 * MINUTE_MS);
        let run_at = self.time();
        let dice = &mut self.dice;
        match kind {
            0 => Command::Claim {
                epoch: self.model_epoch,
                worker: Arc::from("worker"),
                lease_ms: ms,
                detached: dice.percent(30),
            },
            1 => Command::Heartbeat {
                token,
                extend_ms: ms,
                progress: dice.percent(50).then(|| "{\"n\":1}".into()),
            },
            2 => Command::Detach { token, lease_ms: ms },
            3 => Command::Succeed { token, finding: finding("done") },
            4 | 5 => Command::Fail { token, failure: failure(dice) },
            6 => Command::Snooze { token, delay_ms: ms },
            7 => {
                let held = job.status.running.as_ref().map_or(run_at, |running| running.lease_until);
                Command::LeaseOver {
                    token,
                    lease_until: if dice.percent(80) { held } else { run_at },
                    jitter: 9,
                }
            }
            8 => Command::Lost { token },
            9 => Command::Release { token },
            10 => Command::Abandon { token, finding: finding("called off") },
            11 => Command::Cancel,
            12 => Command::Amend { run_at: Some(run_at), priority: Some(*dice.pick(&Priority::ALL)) },
            13 => Command::Rerun { run_at },
            14 => Command::Replay {
                run_at,
                payload: dice.percent(50).then(|| "edited".into()),
                target: None,
                timeout_ms: None,
            },
            15 => Command::Discard,
            _ => Command::RunNow,
        }
    }

    async fn compare_due(&mut self) {
        let tenant = self.dice.pick(&self.tenants).clone();
        let bucket = Bucket::of(self.time());
        let until = *self.dice.pick(&[self.trial.now, self.trial.now.plus_ms(5 * MINUTE_MS), Timestamp::MAX]);
        let count_max = *self.dice.pick(&[1, 3, 50]);
        let shard = Shard::of_sub_shard(&tenant, self.sub_shard(&tenant), self.model.layout().shards);
        let real = walk::due_in(&*self.trial.store, shard, &tenant, bucket, until, count_max).await;
        let model = walk::due_in(&self.model, shard, &tenant, bucket, until, count_max).await;
        // Jobs of one instant may stand in any order.
        let sorted = |(mut jobs, next_at): (Vec<Job>, Option<Timestamp>)| {
            jobs.sort_by_key(Job::position);
            (jobs, next_at)
        };
        assert_eq!(sorted(real), sorted(model), "{}: {tenant} {bucket:?} until {until}", self.place);
    }

    async fn compare_buckets(&mut self) {
        let tenant = self.dice.pick(&self.tenants).clone();
        let shard = Shard::of_sub_shard(&tenant, self.sub_shard(&tenant), self.model.layout().shards);
        let (from, until) = (Bucket::of(self.time()), Bucket::of(self.time()));
        let real = self.trial.store.next_bucket(shard, from, until).await.expect("read");
        let model = self.model.next_bucket(shard, from, until).await.expect("read");
        assert_eq!(real, model, "{}: {shard:?} {from:?} {until:?}", self.place);
        let bucket = model.unwrap_or(from);
        let real = walk::due_tenants(&*self.trial.store, shard, bucket, 1).await;
        let model = walk::due_tenants(&self.model, shard, bucket, 1).await;
        assert_eq!(real, model, "{}: {shard:?} {bucket:?}", self.place);
    }

    async fn compare_running(&mut self) {
        let mut real = self.trial.store.running().await.expect("read");
        let mut model = self.model.running().await.expect("read");
        real.sort_by_key(|job| (job.tenant.clone(), job.id));
        model.sort_by_key(|job| (job.tenant.clone(), job.id));
        assert_eq!(real, model, "{}", self.place);
    }

    async fn compare_lists(&mut self) {
        let tenant = self.dice.pick(&self.tenants).clone();
        let count_max = *self.dice.pick(&[3, 50, 1_000]);
        let filter = Filter {
            states: if self.dice.percent(50) {
                vec![*self.dice.pick(&State::ALL), State::Dead]
            } else {
                Vec::new()
            },
            kind: self.dice.percent(20).then(|| Arc::from(KINDS[0])),
            queue: self.dice.percent(20).then(|| Arc::from("slow")),
            schedule: self.dice.percent(20).then(|| ScheduleId::from_bytes([1; 16])),
            labels: if self.dice.percent(20) { vec![("env".into(), "prod".into())] } else { Vec::new() },
            from: self.dice.percent(20).then(|| self.trial.now.plus_ms(-5 * MINUTE_MS)),
            to: self.dice.percent(20).then_some(self.trial.now),
            due_by: self.dice.percent(20).then_some(self.trial.now),
        };
        let real = walk::list(&*self.trial.store, &tenant, &filter, count_max).await;
        let model = walk::list(&self.model, &tenant, &filter, count_max).await;
        assert_eq!(real, model, "{}: {tenant} {filter:?}", self.place);
    }

    async fn compare_lookups(&mut self) {
        let tenant = self.dice.pick(&self.tenants).clone();
        let ids: Vec<_> = self.known.iter().map(|(_, id)| *id).collect();
        let real = self.trial.store.get(&tenant, ids.clone()).await.expect("looked up");
        let model = self.model.get(&tenant, ids).await.expect("looked up");
        assert_eq!(real, model, "{}: {tenant}", self.place);
    }

    async fn compare_counts(&mut self) {
        for tenant in self.tenants.iter().map(Some).chain([None]) {
            let real = self.trial.store.counts(tenant).await.expect("counted");
            let model = self.model.counts(tenant).await.expect("counted");
            assert_eq!(real, model, "{}: {tenant:?}", self.place);
        }
    }

    async fn compare_keys(&mut self) {
        for tenant in &self.tenants {
            for key in KEYS {
                let real = self.trial.store.find_key(self.trial.now, tenant, key).await.expect("looked up");
                let model = self.model.find_key(self.trial.now, tenant, key).await.expect("looked up");
                assert_eq!(real, model, "{}: {tenant} {key}", self.place);
            }
        }
    }

    async fn checkpoint(&mut self) {
        let shard = self.trial.shard(&self.dice.pick(&self.tenants).clone());
        let checkpoint = Checkpoint { shard, frontier: Bucket::of(self.trial.now), cursors: Vec::new() };
        self.trial.store.save_checkpoints(vec![checkpoint.clone()]).await.expect("saved");
        let saved = self.trial.store.checkpoints().await.expect("read");
        assert!(saved.contains(&checkpoint), "{}: {saved:?}", self.place);
    }

    /// Jumps far ahead first, so that every ended job is old enough that no store may keep it.
    async fn drop_history(&mut self) {
        self.trial.pass(5 * DAY_MS);
        let (now, before) = (self.trial.now, self.trial.now.plus_ms(-2 * DAY_MS));
        let real = self.trial.store.drop_history(now, before).await.expect("dropped");
        let model = self.model.drop_history(now, before).await.expect("dropped");
        assert_eq!(real, model, "{}", self.place);
    }

    async fn fence(&mut self) {
        let old = self.trial.epoch;
        self.trial.epoch = self.trial.store.open_epoch().await.expect("opened");
        self.model_epoch = self.model.open_epoch().await.expect("opened");
        let Some(job) = self.some_job().await else { return };
        let order = Order { tenant: job.tenant, id: job.id, command: Command::Cancel, key: None };
        let answer = self.trial.store.apply(self.trial.now, Some(old), vec![order]).await;
        assert!(matches!(answer, Err(Error::Fenced)), "{}: {answer:?}", self.place);
    }

    async fn reopen(self) -> Self {
        let model = self.model.reopen();
        let model_epoch = model.open_epoch().await.expect("opened");
        Self { trial: self.trial.reopen().await, model, model_epoch, ..self }
    }

    async fn compare_everything(&mut self) {
        let real = walk::everything_waiting(&*self.trial.store).await;
        let model = walk::everything_waiting(&self.model).await;
        assert_eq!(real, model, "{}", self.place);
        for tenant in &self.tenants {
            let real = walk::list(&*self.trial.store, tenant, &Filter::default(), 100).await;
            let model = walk::list(&self.model, tenant, &Filter::default(), 100).await;
            assert_eq!(real, model, "{}: {tenant}", self.place);
        }
        self.compare_running().await;
        self.compare_lookups().await;
        self.compare_counts().await;
        self.compare_keys().await;
        self.compare_all_schedules().await;
    }
}

fn failure(dice: &mut Dice) -> Failure {
    Failure {
        finding: finding("failed"),
        retryable: dice.percent(70),
        timed_out: dice.percent(20),
        retry_after_ms: dice.percent(20).then(|| dice.between(0, 30 * MINUTE_MS)),
        jitter: u32::try_from(dice.below(1 << 20)).expect("it fits"),
    }
}

fn a_trace(dice: &mut Dice) -> TraceContext {
    let span = SpanId::new(dice.between(1, DAY_MS).unsigned_abs());
    let bare = TraceContext::new(TraceId::new(u128::MAX - u128::from(span.as_u64())), span, dice.percent(50));
    let state = if dice.percent(50) { "a=1,b=2" } else { "" };
    TraceContext::read(&bare.parent(), state).unwrap_or(bare)
}
