//! What the cases work with: a store that was just opened, a clock that they move by hand, and short ways to
//! say the usual.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{
    Command, Destination, Failure, Finding, Job, Priority, Spec, State, Status, Token,
};
use tidewheel_core::limits::BUCKET_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard, SubShard};
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;

use super::dice::Dice;
use super::{Home, walk};
use tidewheel_store::{Applied, IdempotencyClaim, OnConflict, Order, Refusal, Store, Submission, Submitted};

/// When every case begins: the first instant of a bucket.
pub(super) const START: Timestamp = Timestamp::from_ms(3_000_000 * BUCKET_MS);

/// The lease the cases claim with.
pub(super) const LEASE_MS: i64 = 30_000;

/// The failures after which a job of the cases is dead.
pub(super) const ATTEMPTS_COUNT: u32 = 3;

/// The wait between its attempts.
pub(super) const RETRY_MS: i64 = 5_000;

pub(super) struct Trial<'a> {
    home: &'a dyn Home,
    pub(super) store: Arc<dyn Store>,
    pub(super) epoch: u64,
    pub(super) now: Timestamp,
    tails: Dice,
}

impl<'a> Trial<'a> {
    pub(super) async fn start(home: &'a dyn Home) -> Self {
        let store = home.open().await;
        let epoch = store.open_epoch().await.expect("an epoch is opened");
        Self { home, store, epoch, now: START, tails: Dice::new(7) }
    }

    /// Closes the store and opens it again, with a new epoch.
    pub(super) async fn reopen(self) -> Self {
        let Self { home, store, epoch: _, now, tails } = self;
        store.close().await.expect("the store is closed");
        drop(store);
        let store = home.open().await;
        let epoch = store.open_epoch().await.expect("an epoch is opened");
        Self { home, store, epoch, now, tails }
    }

    pub(super) fn pass(&mut self, ms: i64) {
        self.now = self.now.plus_ms(ms);
    }

    pub(super) fn shard(&self, tenant: &Tenant) -> Shard {
        walk::shard_of(&*self.store, tenant)
    }

    /// `count` tenants that share a shard, sorted by name.
    pub(super) fn neighbours(&self, count: usize) -> Vec<Tenant> {
        let mut tenants = (0..).map(|n: u32| tenant(&format!("neighbour-{n}")));
        let first = tenants.next().expect("the names never end");
        let shard = self.shard(&first);
        let others = tenants.filter(|tenant| self.shard(tenant) == shard).take(count - 1);
        let mut neighbours: Vec<_> = std::iter::once(first).chain(others).collect();
        neighbours.sort();
        neighbours
    }

    /// A job for `tenant`, due `in_ms` from now; ids of one instant come in no particular order.
    pub(super) fn job(&mut self, tenant: &Tenant, in_ms: i64) -> Job {
        self.job_with(tenant, in_ms, |_| ())
    }

    pub(super) fn job_with(&mut self, tenant: &Tenant, in_ms: i64, edit: impl FnOnce(&mut Spec)) -> Job {
        let mut spec = spec(self.now);
        edit(&mut spec);
        Job::new(tenant.clone(), spec, self.now.plus_ms(in_ms), u128::from(self.tails.roll()))
    }

    /// Jobs of a tenant that is spread over `k` shards, in turn.
    pub(super) fn spread_jobs(&mut self, tenant: &Tenant, k: usize, count: usize, in_ms: i64) -> Vec<Job> {
        let run_at = self.now.plus_ms(in_ms);
        let sub_shards: Vec<_> = joining(&*self.store, tenant).take(k).collect();
        let sub_shards: Vec<_> = sub_shards.into_iter().cycle().take(count).collect();
        let mut job = |sub_shard| {
            let id = JobId::in_sub_shard(run_at, u128::from(self.tails.roll()), sub_shard);
            Job::with_id(tenant.clone(), spec(self.now), id)
        };
        sub_shards.into_iter().map(&mut job).collect()
    }

    /// The shard a job is in.
    pub(super) fn shard_of(&self, job: &Job) -> Shard {
        Shard::of_job(&job.tenant, job.id, self.store.layout().shards)
    }

    /// An id no schedule has.
    pub(super) fn schedule_id(&mut self) -> ScheduleId {
        let number = (u128::from(self.tails.roll()) << 64) | u128::from(self.tails.roll());
        ScheduleId::from_bytes(number.to_be_bytes())
    }

    pub(super) async fn submit(&self, jobs: Vec<Submission>) -> Vec<Submitted> {
        self.submit_or(jobs, OnConflict::KeepOthers).await
    }

    pub(super) async fn submit_or(&self, jobs: Vec<Submission>, on_conflict: OnConflict) -> Vec<Submitted> {
        let count = jobs.len();
        let answers = self.store.submit(self.now, jobs, on_conflict).await.expect("the batch is answered");
        assert_eq!(answers.len(), count, "one answer per job");
        answers
    }

    /// Takes in jobs that must be new.
    pub(super) async fn take_in(&self, jobs: &[Job]) {
        let answers = self.submit(jobs.iter().map(keyless).collect()).await;
        assert_eq!(answers, vec![Submitted::New; jobs.len()]);
    }

    /// A job that is taken in.
    pub(super) async fn add(&mut self, tenant: &Tenant, in_ms: i64) -> Job {
        let job = self.job(tenant, in_ms);
        self.take_in(std::slice::from_ref(&job)).await;
        job
    }

    /// A job that is running.
    pub(super) async fn add_running(&mut self, tenant: &Tenant) -> Job {
        let job = self.add(tenant, 0).await;
        self.claim(&job).await
    }

    pub(super) async fn orders(&self, orders: Vec<Order>) -> Vec<Result<Applied, Refusal>> {
        let count = orders.len();
        let answers =
            self.store.apply(self.now, Some(self.epoch), orders).await.expect("the orders are answered");
        assert_eq!(answers.len(), count, "one answer per order");
        answers
    }

    pub(super) async fn try_order(&self, job: &Job, command: Command) -> Result<Applied, Refusal> {
        self.orders(vec![order(job, command)]).await.remove(0)
    }

    /// Gives an order that must change the job, and returns what it is then.
    pub(super) async fn order(&self, job: &Job, command: Command) -> Job {
        let applied = self.try_order(job, command).await.expect("the order is granted");
        assert!(applied.changed, "the order changes the job");
        Job::clone(&applied.job)
    }

    pub(super) async fn claim(&self, job: &Job) -> Job {
        let running = self.order(job, self.claiming()).await;
        assert_eq!(running.status.state, State::Running);
        running
    }

    /// The command that claims for the cases' worker.
    pub(super) fn claiming(&self) -> Command {
        Command::Claim {
            epoch: self.epoch,
            worker: Arc::from("worker-1"),
            lease_ms: LEASE_MS,
            detached: false,
        }
    }

    pub(super) async fn get(&self, job: &Job) -> Option<Job> {
        let found = self.store.get(&job.tenant, vec![job.id]).await.expect("the job is looked up");
        assert_eq!(found.len(), 1, "one answer per id");
        found.into_iter().flatten().next()
    }

    /// Checks that the job is stored just so.
    pub(super) async fn holds(&self, job: &Job) {
        assert_eq!(self.get(job).await.as_ref(), Some(job));
    }

    /// Where everything stands that waits, as a scan of the whole store finds it.
    pub(super) async fn waiting(&self) -> Vec<(Timestamp, JobId)> {
        let jobs = walk::everything_waiting(&*self.store).await;
        let mut waiting: Vec<_> = jobs.iter().map(|job| (job.status.due_at, job.id)).collect();
        waiting.sort();
        waiting
    }

    /// The due jobs of `tenant` in the bucket of `at`, whatever their time there.
    pub(super) async fn due_in_bucket(&self, tenant: &Tenant, at: Timestamp) -> Vec<JobId> {
        let (jobs, _) = walk::due(&*self.store, tenant, Bucket::of(at), Timestamp::MAX, 100).await;
        jobs.iter().map(|job| job.id).collect()
    }

    /// The states with jobs of `tenant`, or of all, and how many.
    pub(super) async fn counts(&self, tenant: Option<&Tenant>) -> Vec<(State, u64)> {
        let counts = self.store.counts(tenant).await.expect("jobs are counted");
        State::ALL
            .into_iter()
            .map(|state| (state, counts.of(state)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// One job in each state, stored and returned as they are.
    pub(super) async fn add_one_in_each_state(&mut self, tenant: &Tenant) -> Vec<Job> {
        let scheduled = self.add(tenant, 3_600_000).await;
        let running = self.add_running(tenant).await;
        let retrying = self.add_running(tenant).await;
        let retrying = self.order(&retrying, failing(&retrying, Retry::Yes)).await;
        let succeeded = self.add_running(tenant).await;
        let succeeded = self.order(&succeeded, succeeding(&succeeded)).await;
        let dead = self.add_running(tenant).await;
        let dead = self.order(&dead, failing(&dead, Retry::No)).await;
        let cancelled = self.add(tenant, 1_000).await;
        let cancelled = self.order(&cancelled, Command::Cancel).await;
        let skipped = self.skipped(tenant);
        let now = self.now;
        let expired = self.job_with(tenant, 0, |spec| spec.expires_at = Some(now));
        self.take_in(&[skipped.clone(), expired.clone()]).await;
        let expired = self.order(&expired, self.claiming()).await;
        let jobs = vec![scheduled, running, retrying, succeeded, dead, cancelled, skipped, expired];
        let states: Vec<_> = jobs.iter().map(|job| job.status.state).collect();
        for state in State::ALL {
            assert!(states.contains(&state), "{state:?} is missing");
        }
        jobs
    }

    /// A job that was decided not to run before it was ever stored.
    pub(super) fn skipped(&mut self, tenant: &Tenant) -> Job {
        let job = self.job(tenant, 2_000);
        let status = Status { state: State::Skipped, finished_at: Some(self.now), ..job.status };
        Job { status, ..job }
    }
}

pub(super) fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("a good name")
}

/// What the jobs of the cases ask for: waits between attempts do not depend on chance.
pub(super) fn spec(created_at: Timestamp) -> Spec {
    Spec {
        kind: Arc::from("mail.send"),
        payload: Bytes::from_static(b"{\"to\":\"a@example.com\"}"),
        destination: Destination::Queue(Arc::from("mail")),
        priority: Priority::Normal,
        retry: RetryPolicy {
            max_attempts: ATTEMPTS_COUNT,
            backoff: Backoff::Fixed,
            base_ms: RETRY_MS,
            multiplier: 1.5,
            max_ms: 60_000,
        },
        timeout_ms: 30_000,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at,
    }
}

pub(super) fn keyless(job: &Job) -> Submission {
    Submission { job: job.clone(), key: None, fresh: false }
}

/// The job under `key`, for a minute from [`START`], as the request that `request` stands for.
pub(super) fn keyed(job: &Job, key: &str, request: u8) -> Submission {
    Submission { job: job.clone(), key: Some(claim(key, request)), fresh: false }
}

/// A claim of `key` for a minute from [`START`], by the request that `request` stands for.
pub(super) fn claim(key: &str, request: u8) -> IdempotencyClaim {
    IdempotencyClaim { key: Arc::from(key), fingerprint: [request; 16], until: START.plus_ms(60_000) }
}

pub(super) fn order(job: &Job, command: Command) -> Order {
    Order { tenant: job.tenant.clone(), id: job.id, command, key: None }
}

pub(super) fn succeeding(job: &Job) -> Command {
    Command::Succeed { token: job.status.token, finding: finding("done") }
}

/// Whether a failure may be tried again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    Yes,
    No,
}

pub(super) fn failing(job: &Job, retry: Retry) -> Command {
    let failure = Failure {
        finding: Finding { status_code: Some(503), detail: "no room".into() },
        retryable: retry == Retry::Yes,
        timed_out: false,
        retry_after_ms: None,
        jitter: 0,
    };
    Command::Fail { token: job.status.token, failure }
}

pub(super) fn amending(run_at: Timestamp) -> Command {
    Command::Amend { run_at: Some(run_at), priority: None }
}

pub(super) fn finding(detail: &str) -> Finding {
    Finding { status_code: None, detail: detail.into() }
}

/// A token that was never given out, older than any that was.
pub(super) fn stale() -> Token {
    Token::from_u64(0)
}

/// What a tenant can be spread over.
pub(super) fn joining<'s>(store: &'s dyn Store, tenant: &'s Tenant) -> impl Iterator<Item = SubShard> + 's {
    let shards = store.layout().shards;
    let home = Shard::of(tenant, shards);
    SubShard::all().filter(move |sub| store.joins(home, Shard::of_sub_shard(tenant, *sub, shards)))
}
