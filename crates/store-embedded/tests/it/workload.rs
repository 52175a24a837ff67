//! Random calls on a store, and a description of all a store holds, for the tests that break things.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{
    Command, Destination, Failure, Finding, Job, Priority, Spec, State, Target, Token,
};
use tidewheel_core::limits::{BUCKET_MS, DAY_MS, TIMEOUT_MS_DEFAULT};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Checkpoint, Cursor, Due, Filter, IdempotencyClaim, ListQuery, OnConflict, Order, Store, Submission,
};

const START_MS: i64 = 20_000 * DAY_MS;

/// Repeatable randomness.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }
}

fn tenant(n: u64) -> Tenant {
    Tenant::new(&format!("t{n}")).unwrap()
}

/// A random job within a few hours of the start.
pub(crate) fn submission(dice: &mut Dice) -> Submission {
    let run_at = Timestamp::from_ms(START_MS + i64::try_from(dice.below(7_200_000)).unwrap());
    let is_push = dice.below(4) == 0;
    let spec = Spec {
        kind: "mail".into(),
        payload: Bytes::from(vec![b'x'; usize::try_from(dice.below(64)).unwrap()]),
        destination: if is_push {
            Destination::Target(Arc::new(Target {
                url: "https://example.com/hook".into(),
                method: "PUT".into(),
                headers: vec![("a".into(), "b".into())],
            }))
        } else {
            Destination::Queue("q".into())
        },
        priority: Priority::ALL[usize::try_from(dice.below(4)).unwrap()],
        retry: RetryPolicy { max_attempts: 2, ..RetryPolicy::default() },
        timeout_ms: TIMEOUT_MS_DEFAULT,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at: Timestamp::from_ms(START_MS),
    };
    let tail = u128::from(dice.roll());
    let job = Job::new(tenant(dice.below(3)), spec, run_at, tail);
    let key = (dice.below(5) == 0).then(|| IdempotencyClaim {
        key: format!("key-{}", dice.below(6)).into(),
        fingerprint: [u8::try_from(dice.below(2)).unwrap(); 16],
        until: Timestamp::from_ms(START_MS + DAY_MS),
    });
    Submission { job, key, fresh: false }
}

pub(crate) fn order(job: &Job, command: Command) -> Order {
    Order { tenant: job.tenant.clone(), id: job.id, command, key: None }
}

/// Plays random calls, as several callers would.
pub(crate) struct Player {
    dice: Dice,
    now: Timestamp,
    epoch: u64,
    jobs: Vec<(Tenant, JobId)>,
}

impl Player {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), now: Timestamp::from_ms(START_MS), epoch: 0, jobs: Vec::new() }
    }

    pub(crate) async fn play(&mut self, store: &dyn Store) {
        self.now = self.now.plus_ms(i64::try_from(self.dice.below(600_000)).unwrap());
        match self.dice.below(20) {
            0 => self.epoch = store.open_epoch().await.unwrap(),
            1 => {
                let days = i64::try_from(self.dice.below(3)).unwrap();
                let before = self.now.plus_ms(days * DAY_MS);
                store.drop_history(self.now, before).await.unwrap();
            }
            2 => {
                let cursor = Cursor {
                    bucket: Bucket::of(self.now),
                    tenant: tenant(1),
                    position: tidewheel_core::place::Position { at: self.now, id: JobId::new(self.now, 7) },
                };
                let shard = Shard(u16::try_from(self.dice.below(4)).unwrap());
                let checkpoint = Checkpoint { shard, frontier: Bucket::of(self.now), cursors: vec![cursor] };
                store.save_checkpoints(vec![checkpoint]).await.unwrap();
            }
            3..8 => {
                let count = self.dice.below(8) + 1;
                let batch: Vec<_> = (0..count).map(|_| submission(&mut self.dice)).collect();
                self.jobs.extend(batch.iter().map(|one| (one.job.tenant.clone(), one.job.id)));
                let on_conflict =
                    if self.dice.below(2) == 0 { OnConflict::KeepNone } else { OnConflict::KeepOthers };
                store.submit(self.now, batch, on_conflict).await.unwrap();
            }
            _ => {
                let mut orders = Vec::new();
                for _ in 0..self.dice.below(12) {
                    orders.extend(self.random_order(store).await);
                }
                store.apply(self.now, None, orders).await.unwrap();
            }
        }
    }

    async fn random_order(&mut self, store: &dyn Store) -> Option<Order> {
        let count = u64::try_from(self.jobs.len()).unwrap();
        if count == 0 {
            return None;
        }
        let (tenant, id) = self.jobs[usize::try_from(self.dice.below(count)).unwrap()].clone();
        let status = store.get(&tenant, vec![id]).await.unwrap().remove(0).map(|job| job.status);
        let token = status.as_ref().map_or(Token::default(), |status| status.token);
        let lease_until =
            status.and_then(|status| status.running).map_or(self.now, |running| running.lease_until);
        let finding = Finding { status_code: Some(200), detail: "done".into() };
        let run_at = self.now.plus_ms(i64::try_from(self.dice.below(3_000_000)).unwrap());
        let command = match self.dice.below(16) {
            0..5 => {
                Command::Claim { epoch: self.epoch, worker: "w".into(), lease_ms: 5_000, detached: false }
            }
            5 => Command::Heartbeat { token, extend_ms: 9_000, progress: Some(Bytes::from_static(b"{}")) },
            6 => Command::Detach { token, lease_ms: 60_000 },
            7 => Command::Succeed { token, finding },
            8 | 9 => Command::Fail {
                token,
                failure: Failure {
                    finding,
                    retryable: true,
                    timed_out: false,
                    retry_after_ms: None,
                    jitter: 7,
                },
            },
            10 => Command::LeaseOver { token, lease_until, jitter: 3 },
            11 => Command::Cancel,
            12 => Command::Amend { run_at: Some(run_at), priority: Some(Priority::High) },
            13 => Command::Rerun { run_at },
            14 => Command::Replay { run_at: id.run_at(), payload: None, target: None, timeout_ms: None },
            _ => Command::Discard,
        };
        Some(Order { tenant, id, command, key: None })
    }
}

/// All a store holds, checked against itself: what is listed, counted, due and running must agree.
pub(crate) async fn dump(store: &dyn Store) -> String {
    let mut text = String::new();
    let mut running = Vec::new();
    for tenant in (0..3).map(tenant) {
        let jobs = list_all(store, &tenant).await;
        let mut counts = [0_u64; State::ALL.len()];
        for job in &jobs {
            counts[job.status.state.index()] += 1;
            text.push_str(&format!("{job:?}\n"));
        }
        assert_eq!(store.counts(Some(&tenant)).await.unwrap().0, counts, "counts of {tenant}");
        let armed: BTreeMap<_, _> =
            jobs.iter().filter_map(|job| Some(((job.armed_at()?, job.id), job.clone()))).collect();
        let due: BTreeMap<_, _> = due_all(store, &tenant).await;
        assert_eq!(armed, due, "what is due of {tenant}");
        let looked_up = store.get(&tenant, jobs.iter().map(|job| job.id).collect()).await.unwrap();
        assert_eq!(looked_up.into_iter().flatten().collect::<Vec<_>>(), jobs);
        let runs = jobs.iter().filter(|job| job.status.state == State::Running);
        running.extend(runs.map(Job::without_payload));
        for key in 0..6 {
            let found =
                store.find_key(Timestamp::from_ms(START_MS), &tenant, &format!("key-{key}")).await.unwrap();
            text.push_str(&format!("{tenant} {key} {found:?}\n"));
        }
    }
    running.sort_unstable_by(|a, b| (a.id, &a.tenant).cmp(&(b.id, &b.tenant)));
    assert_eq!(store.running().await.unwrap(), running);
    text.push_str(&format!("{:?}\n", store.checkpoints().await.unwrap()));
    text
}

async fn list_all(store: &dyn Store, tenant: &Tenant) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut after = None;
    loop {
        let query = ListQuery { tenant: tenant.clone(), filter: Filter::default(), after, count_max: 7 };
        let page = store.list(query).await.unwrap();
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            return jobs;
        }
    }
}

async fn due_all(store: &dyn Store, tenant: &Tenant) -> BTreeMap<(Timestamp, JobId), Job> {
    let shard = Shard::of(tenant, store.layout().shards);
    let mut jobs = BTreeMap::new();
    let mut from = Bucket(0);
    let last = Bucket(u32::try_from((START_MS + 40 * DAY_MS) / BUCKET_MS).unwrap());
    while let Some(bucket) = store.next_bucket(shard, from, last).await.unwrap() {
        let mut after = None;
        loop {
            let due = Due {
                shard,
                bucket,
                tenant: tenant.clone(),
                after,
                until: Timestamp::MAX,
                count_max: 3,
                bytes_max: usize::MAX,
            };
            let page = store.due(due).await.unwrap();
            jobs.extend(page.jobs.into_iter().map(|job| ((job.status.due_at, job.id), Job::clone(&job))));
            after = page.resume;
            if after.is_none() {
                break;
            }
        }
        from = bucket.next();
    }
    jobs
}
