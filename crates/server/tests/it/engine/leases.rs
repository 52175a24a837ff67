//! Leases and a wall clock that is set while they last, under virtual time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewheel_core::job::{Command, Destination, Job, Priority, Spec, State};
use tidewheel_core::limits::HOUR_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Engine, Interest, Pushes, Subscription, Take, Tenants, WorkerLink};
use tidewheel_store::{Layout, OnConflict, Order, Submission};
use tidewheel_store_testkit::memory::MemoryStore;

use crate::engine::settable_clock::{SettableClock, start};

const LEASE_MS: i64 = 10_000;
/// How late the end of a lease may be noticed and written.
const SLACK_MS: i64 = 1_000;

struct World {
    clock: Arc<SettableClock>,
    engine: Engine,
    /// An attempt under way.
    job: Arc<Job>,
    taken_ms: i64,
}

impl World {
    /// A worker has taken a job, by a lease of [`LEASE_MS`].
    async fn new() -> Self {
        let clock = Arc::new(SettableClock::new());
        let engine = start(&Arc::new(MemoryStore::new(Layout { shards: 4 })), &clock).await;
        let spec = Spec {
            kind: "test".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Queue("q".into()),
            priority: Priority::Normal,
            retry: RetryPolicy { backoff: Backoff::Fixed, base_ms: 1_000, ..RetryPolicy::default() },
            timeout_ms: 60_000,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            trace: None,
            created_at: clock.now(),
        };
        let job = Job::new(Tenant::default(), spec, clock.now(), 7);
        let submission = Submission { job, key: None, fresh: true };
        engine.submit(vec![submission], OnConflict::KeepNone).await.unwrap();
        let job = take(&engine).await;
        let taken_ms = clock.monotonic_ms();
        Self { clock, engine, job, taken_ms }
    }

    async fn heartbeat(&self) {
        let token = self.job.status.token;
        let command = Command::Heartbeat { token, extend_ms: LEASE_MS, progress: None };
        let order = Order { tenant: self.job.tenant.clone(), id: self.job.id, command, key: None };
        self.engine.command(vec![order]).await.unwrap().pop().unwrap().unwrap();
    }

    async fn stored(&self) -> Job {
        let found = self.engine.store().get(&self.job.tenant, vec![self.job.id]).await;
        found.unwrap().pop().unwrap().unwrap()
    }

    async fn pass(&self, ms: i64) {
        self.clock.sleep(Duration::from_millis(u64::try_from(ms).unwrap())).await;
    }

    /// Waits until the attempt is given up; says how long the lease has lasted from `since_ms` on.
    async fn lasts_ms(&self, since_ms: i64) -> i64 {
        while self.stored().await.status.state == State::Running {
            self.pass(10).await;
        }
        self.clock.monotonic_ms() - since_ms
    }
}

async fn take(engine: &Engine) -> Arc<Job> {
    let take = Take {
        tenants: Tenants::Only(vec![Tenant::default()]),
        queue: "q".into(),
        kinds: Vec::new(),
        worker: "w".into(),
        count_max: 1,
        wait_ms: 60_000,
        lease_ms: LEASE_MS,
    };
    engine.take(take).await.unwrap().pop().expect("a job")
}

async fn connect(engine: &Engine, worker: &str) -> (WorkerLink, Pushes) {
    let subscription = Subscription {
        tenant: Tenant::default(),
        worker: worker.into(),
        queues: vec!["q".into()],
        interest: Interest::of_tenant(Tenant::default()),
        lease_ms: LEASE_MS,
        credits: 1,
        resume: None,
        idle_heartbeat_ms: None,
    };
    let (_, link, pushes) = engine.connect_worker(subscription).await.unwrap();
    (link, pushes)
}

#[track_caller]
fn assert_is_a_lease(lasted_ms: i64) {
    assert!((LEASE_MS..LEASE_MS + SLACK_MS).contains(&lasted_ms), "it lasted {lasted_ms} ms");
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_does_not_keep_a_dead_workers_lease_alive() {
    let world = World::new().await;
    world.pass(4_000).await;
    world.clock.step(-HOUR_MS);
    world.heartbeat().await;
    let heard_ms = world.clock.monotonic_ms();
    assert_is_a_lease(world.lasts_ms(heard_ms).await);
    // The retry is set by the clock as it is now, not as it was.
    let again = take(&world.engine).await;
    assert_eq!((again.id, again.status.attempt), (world.job.id, 2));
    assert!(world.clock.monotonic_ms() - heard_ms < LEASE_MS + 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_without_a_heartbeat_changes_nothing() {
    let world = World::new().await;
    world.clock.step(-HOUR_MS);
    assert_is_a_lease(world.lasts_ms(world.taken_ms).await);
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_ahead_does_not_end_a_lease_early() {
    let world = World::new().await;
    world.clock.step(HOUR_MS);
    world.pass(LEASE_MS - 1_000).await;
    assert_eq!(world.stored().await.status.state, State::Running);
    world.heartbeat().await;
    let heard_ms = world.clock.monotonic_ms();
    // And back again: what was given while it was ahead has its length, too.
    world.clock.step(-HOUR_MS);
    assert_is_a_lease(world.lasts_ms(heard_ms).await);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_an_attempt_alive_while_the_clock_is_set_to_and_fro() {
    let world = World::new().await;
    for step_ms in [-HOUR_MS, 2 * HOUR_MS, -5 * HOUR_MS, 60_000, -1, 5 * HOUR_MS] {
        world.pass(LEASE_MS - 100).await;
        world.clock.step(step_ms);
        world.heartbeat().await;
    }
    let heard_ms = world.clock.monotonic_ms();
    assert_eq!(world.stored().await.status.attempt, 1);
    assert_is_a_lease(world.lasts_ms(heard_ms).await);
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_left_unread_does_not_take_a_later_attempt_from_another() {
    let world = World::new().await;
    let (slow, unread) = connect(&world.engine, "slow").await;
    assert_is_a_lease(world.lasts_ms(world.taken_ms).await);
    let reaches = |attempt| {
        let (world, slow) = (&world, &slow);
        async move {
            loop {
                let job = world.stored().await;
                if job.status.attempt == attempt && job.status.state == State::Running {
                    return job.status;
                }
                // It lives, and reads nothing.
                slow.heard();
                world.pass(10).await;
            }
        }
    };
    assert_eq!(&*reaches(2).await.running.unwrap().worker, "slow");
    let (_quick, _pushes) = connect(&world.engine, "quick").await;
    let third = reaches(3).await;
    assert_eq!(&*third.running.as_ref().unwrap().worker, "quick");
    drop(unread);
    world.pass(1_000).await;
    assert_eq!(world.stored().await.status, third);
}
