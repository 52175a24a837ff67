//! The engine on the in-memory store: what a job's path looks like from outside.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Finding, Job, Priority, Spec, State, Target};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::{Clock, SystemClock};
use tidewheel_server::engine::{Config, Deliver, Engine, Parts, Report, Reports, Take, Tenants, Whereabouts};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::random::SystemRandom;
use tidewheel_store::{Layout, OnConflict, Order, Store, Submission, Submitted};
use tidewheel_store_testkit::memory::{Call, Fault, Faults, MemoryStore};
use tokio::sync::mpsc;

/// Answers every push at once with success, and tells the test about it.
struct Sink {
    seen: mpsc::UnboundedSender<Arc<Job>>,
    answer: bool,
    aborted: Mutex<Vec<JobId>>,
}

impl Deliver for Sink {
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports) {
        for job in jobs {
            if self.answer {
                let command = Command::Succeed { token: job.status.token, finding: Finding::default() };
                reports.send(Report { tenant: job.tenant.clone(), id: job.id, command });
            }
            self.seen.send(job).unwrap();
        }
    }

    fn abort(&self, id: &JobId) {
        self.aborted.lock().unwrap().push(*id);
    }
}

struct World {
    engine: Engine,
    seen: mpsc::UnboundedReceiver<Arc<Job>>,
    sink: Arc<Sink>,
}

async fn world(answer: bool, config: Config) -> World {
    world_on(MemoryStore::new(Layout { shards: 8 }), answer, config).await
}

async fn world_on(store: MemoryStore, answer: bool, config: Config) -> World {
    let (sender, seen) = mpsc::unbounded_channel();
    let sink = Arc::new(Sink { seen: sender, answer, aborted: Mutex::default() });
    let parts = Parts {
        store: Arc::new(store),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        metrics: Arc::new(Metrics::new()),
        deliverer: Arc::clone(&sink) as Arc<dyn Deliver>,
        zones: Zones::bundled(),
    };
    World { engine: Engine::start(parts, config).await.unwrap(), seen, sink }
}

fn job(engine: &Engine, tenant: &str, destination: Destination, run_at: Timestamp) -> Submission {
    let spec = job_spec(destination, engine.clock().now());
    Submission {
        job: Job::new(Tenant::new(tenant).unwrap(), spec, run_at, engine.random().tail()),
        key: None,
        fresh: true,
    }
}

fn job_spec(destination: Destination, created_at: Timestamp) -> Spec {
    Spec {
        kind: "test".into(),
        payload: Bytes::from_static(b"{}"),
        destination,
        priority: Priority::Normal,
        retry: RetryPolicy::default(),
        timeout_ms: 1_000,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at,
    }
}

fn push() -> Destination {
    Destination::Target(Arc::new(Target {
        url: "http://sink/x".into(),
        method: "POST".into(),
        headers: Vec::new(),
    }))
}

fn queue(name: &str) -> Destination {
    Destination::Queue(name.into())
}

async fn until(engine: &Engine, job: &Job, state: State) -> Job {
    loop {
        let found = engine.store().get(&job.tenant, vec![job.id]).await.unwrap().pop().unwrap().unwrap();
        if found.status.state == state {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_job_for_now_runs_now_and_one_for_later_not_before_its_time() {
    let mut world = world(true, Config::default()).await;
    let now = world.engine.clock().now();
    let jobs = vec![
        job(&world.engine, "a", push(), now.plus_ms(300)),
        job(&world.engine, "a", push(), now),
        job(&world.engine, "b", push(), now.plus_ms(150)),
    ];
    let wanted: Vec<JobId> = [1, 2, 0].map(|index: usize| jobs[index].job.id).into();
    let answers = world.engine.submit(jobs, OnConflict::KeepNone).await.unwrap();
    assert_eq!(answers, [Submitted::New; 3]);
    for id in wanted {
        let seen = world.seen.recv().await.unwrap();
        assert_eq!(seen.id, id, "in order of their times");
        assert!(world.engine.clock().now() >= seen.id.run_at(), "never early");
        assert_eq!((seen.status.state, seen.status.attempt), (State::Running, 1));
        until(&world.engine, &seen, State::Succeeded).await;
    }
}

#[tokio::test]
async fn far_more_jobs_than_fit_in_memory_are_all_delivered_once() {
    let config = Config { held_count_max: 200, lot_count_max: 100, quantum: 64, ..Config::default() };
    let mut world = world(true, config).await;
    let now = world.engine.clock().now();
    let count = 5_000;
    for _ in 0..10 {
        let jobs = (0..count / 10).map(|_| job(&world.engine, "a", push(), now)).collect();
        world.engine.submit(jobs, OnConflict::KeepNone).await.unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < count {
        let job = world.seen.recv().await.unwrap();
        assert!(seen.insert(job.id), "{} was delivered twice", job.id);
    }
}

#[tokio::test]
async fn a_queue_without_workers_holds_up_nobody_and_drains_when_one_comes() {
    let config = Config { held_count_max: 100, lot_count_max: 50, quantum: 32, ..Config::default() };
    let mut world = world(true, config).await;
    let now = world.engine.clock().now();
    let idle: Vec<Submission> = (0..1_000).map(|_| job(&world.engine, "a", queue("q"), now)).collect();
    let stuck = idle[999].job.clone();
    world.engine.submit(idle, OnConflict::KeepNone).await.unwrap();
    let pushed = job(&world.engine, "a", push(), now);
    world.engine.submit(vec![pushed.clone()], OnConflict::KeepNone).await.unwrap();
    assert_eq!(world.seen.recv().await.unwrap().id, pushed.job.id);
    assert!(matches!(
        world.engine.whereabouts(&stuck).await,
        Whereabouts::Store { .. } | Whereabouts::Lane { .. }
    ));
    let mut taken = std::collections::BTreeSet::new();
    while taken.len() < 1_000 {
        let take = Take {
            tenants: Tenants::Only(vec![Tenant::new("a").unwrap()]),
            queue: "q".into(),
            kinds: Vec::new(),
            worker: "w".into(),
            count_max: 30,
            wait_ms: 60_000,
            lease_ms: 30_000,
        };
        let jobs = world.engine.take(take).await.unwrap();
        assert!(!jobs.is_empty(), "stuck after {}", taken.len());
        for job in jobs {
            let command = Command::Succeed { token: job.status.token, finding: Finding::default() };
            let order = Order { tenant: job.tenant.clone(), id: job.id, command, key: None };
            world.engine.command(vec![order]).await.unwrap().pop().unwrap().unwrap();
            assert!(taken.insert(job.id), "{} was taken twice", job.id);
        }
    }
}

#[tokio::test]
async fn a_take_of_another_tenant_gets_nothing() {
    let world = world(true, Config::default()).await;
    let now = world.engine.clock().now();
    world.engine.submit(vec![job(&world.engine, "a", queue("q"), now)], OnConflict::KeepNone).await.unwrap();
    let take = |tenant: &str| Take {
        tenants: Tenants::Only(vec![Tenant::new(tenant).unwrap()]),
        queue: "q".into(),
        kinds: Vec::new(),
        worker: "w".into(),
        count_max: 10,
        wait_ms: 50,
        lease_ms: 30_000,
    };
    assert!(world.engine.take(take("b")).await.unwrap().is_empty());
    assert_eq!(world.engine.take(take("a")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_nobody_takes_is_ended_by_itself_when_its_time_is_over() {
    // Far more than memory has room for: what is left in the store has its turn as the others end.
    let config = Config { held_count_max: 100, lot_count_max: 50, quantum: 32, ..Config::default() };
    let world = world(true, config).await;
    let now = world.engine.clock().now();
    let expires_at = now.plus_ms(200);
    let expiring = || {
        let mut submission = job(&world.engine, "a", queue("q"), now);
        Arc::make_mut(&mut submission.job.spec).expires_at = Some(expires_at);
        submission
    };
    let mut jobs: Vec<Submission> = (0..500).map(|_| expiring()).collect();
    let lasting = job(&world.engine, "a", queue("q"), now);
    jobs.push(lasting.clone());
    world.engine.submit(jobs.clone(), OnConflict::KeepNone).await.unwrap();
    jobs.pop();
    for expired in &jobs {
        let ended = until(&world.engine, &expired.job, State::Expired).await;
        assert!(ended.status.finished_at.unwrap() >= expires_at);
        assert_eq!(ended.status.attempt, 0);
    }
    let take = Take {
        tenants: Tenants::All,
        queue: "q".into(),
        kinds: Vec::new(),
        worker: "w".into(),
        count_max: 10,
        wait_ms: 60_000,
        lease_ms: 30_000,
    };
    let taken: Vec<JobId> = world.engine.take(take).await.unwrap().iter().map(|job| job.id).collect();
    assert_eq!(taken, [lasting.job.id]);
}

#[tokio::test]
async fn what_waits_for_room_at_its_target_is_ended_by_itself_when_its_time_is_over() {
    let mut world = world(false, Config { push_per_host_max: 1, ..Config::default() }).await;
    let now = world.engine.clock().now();
    world.engine.submit(vec![job(&world.engine, "a", push(), now)], OnConflict::KeepNone).await.unwrap();
    let first = world.seen.recv().await.unwrap();
    let mut behind = job(&world.engine, "a", push(), now);
    Arc::make_mut(&mut behind.job.spec).expires_at = Some(now.plus_ms(200));
    let lasting = job(&world.engine, "a", push(), now);
    world.engine.submit(vec![behind.clone(), lasting.clone()], OnConflict::KeepNone).await.unwrap();
    let ended = until(&world.engine, &behind.job, State::Expired).await;
    assert_eq!(ended.status.attempt, 0);
    // What it took up is given back: the place is for the other once the first has ended.
    let cancel = Order { tenant: first.tenant.clone(), id: first.id, command: Command::Cancel, key: None };
    world.engine.command(vec![cancel]).await.unwrap().pop().unwrap().unwrap();
    assert_eq!(world.seen.recv().await.unwrap().id, lasting.job.id);
}

#[tokio::test]
async fn an_acknowledged_cancel_stops_a_delivery_and_makes_its_token_stale() {
    let mut world = world(false, Config::default()).await;
    let now = world.engine.clock().now();
    world.engine.submit(vec![job(&world.engine, "a", push(), now)], OnConflict::KeepNone).await.unwrap();
    let running = world.seen.recv().await.unwrap();
    let order = |command| vec![Order { tenant: running.tenant.clone(), id: running.id, command, key: None }];
    world.engine.command(order(Command::Cancel)).await.unwrap().pop().unwrap().unwrap();
    assert_eq!(*world.sink.aborted.lock().unwrap(), [running.id]);
    let late = Command::Succeed { token: running.status.token, finding: Finding::default() };
    assert!(world.engine.command(order(late)).await.unwrap().pop().unwrap().is_err());
}

#[tokio::test]
async fn draining_waits_for_what_is_under_way_and_starts_nothing_new() {
    let mut world = world(false, Config::default()).await;
    let now = world.engine.clock().now();
    world.engine.submit(vec![job(&world.engine, "a", push(), now)], OnConflict::KeepNone).await.unwrap();
    let running = world.seen.recv().await.unwrap();
    let engine = world.engine.clone();
    let drained = tokio::spawn(async move { engine.drain(Duration::from_secs(60)).await });
    while !world.engine.is_draining() {
        tokio::task::yield_now().await;
    }
    let late = job(&world.engine, "a", push(), now);
    world.engine.submit(vec![late], OnConflict::KeepNone).await.unwrap();
    let command = Command::Succeed { token: running.status.token, finding: Finding::default() };
    let order = Order { tenant: running.tenant.clone(), id: running.id, command, key: None };
    world.engine.command(vec![order]).await.unwrap().pop().unwrap().unwrap();
    assert_eq!(drained.await.unwrap(), 0);
    assert!(world.seen.try_recv().is_err(), "nothing new was started");
}

/// The first attempt that ends is of a job that cannot be read any more.
#[derive(Default)]
struct Damage(Mutex<Option<JobId>>);

impl Faults for Damage {
    fn before(&self, _: Call) -> Fault {
        Fault::default()
    }

    fn is_unreadable(&self, order: &Order) -> bool {
        let mut damaged = self.0.lock().unwrap();
        order.command.token().is_some() && *damaged.get_or_insert(order.id) == order.id
    }
}

#[tokio::test]
async fn an_outcome_that_cannot_be_written_for_its_job_alone_leaves_its_place_to_others() {
    let damage = Arc::new(Damage::default());
    let store = MemoryStore::new(Layout { shards: 8 }).with_faults(Arc::clone(&damage) as Arc<dyn Faults>);
    let mut world = world_on(store, true, Config { push_max: 1, ..Config::default() }).await;
    let now = world.engine.clock().now();
    let jobs = (0..3).map(|_| job(&world.engine, "a", push(), now)).collect();
    world.engine.submit(jobs, OnConflict::KeepNone).await.unwrap();
    let lost = world.seen.recv().await.unwrap();
    for _ in 0..2 {
        let other = world.seen.recv().await.unwrap();
        until(&world.engine, &other, State::Succeeded).await;
    }
    assert_eq!(*damage.0.lock().unwrap(), Some(lost.id));
    until(&world.engine, &lost, State::Running).await;
}

/// A clock that follows tokio's paused time.
struct VirtualClock {
    start: tokio::time::Instant,
    epoch_ms: i64,
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.epoch_ms + self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "paused time: nothing waits for real")]
    fn sleep(&self, duration: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// An engine's parts on virtual time, whose deliveries all succeed.
fn virtual_parts(
    store: &Arc<MemoryStore>,
    clock: &Arc<VirtualClock>,
    seen: mpsc::UnboundedSender<Arc<Job>>,
) -> Parts {
    Parts {
        store: Arc::clone(store) as Arc<dyn Store>,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        random: Arc::new(SystemRandom),
        metrics: Arc::new(Metrics::new()),
        deliverer: Arc::new(Sink { seen, answer: true, aborted: Mutex::default() }),
        zones: Zones::bundled(),
    }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "paused time")]
async fn what_was_missed_is_caught_up_oldest_first_at_a_limited_rate_beside_what_is_on_time() {
    let clock = Arc::new(VirtualClock { start: tokio::time::Instant::now(), epoch_ms: 1_800_000_000_000 });
    let now = clock.now();
    let store = Arc::new(MemoryStore::new(Layout { shards: 8 }));
    let (sender, mut seen) = mpsc::unbounded_channel();
    let parts = virtual_parts(&store, &clock, sender);
    // An hour of downtime: one job a second was missed.
    let missed = 3_600;
    let spec = job_spec(push(), now);
    let jobs = (0..missed)
        .map(|second| {
            let run_at = now.plus_ms(-3_700_000 + second * 1_000);
            let job =
                Job::new(Tenant::new("a").unwrap(), spec.clone(), run_at, u128::try_from(second).unwrap());
            Submission { job, key: None, fresh: true }
        })
        .collect();
    store.submit(now, jobs, OnConflict::KeepNone).await.unwrap();
    let config = Config { catch_up_per_second: 100, ..Config::default() };
    let engine = Engine::start(parts, config).await.unwrap();
    let on_time = job(&engine, "a", push(), now.plus_ms(5_000));
    engine.submit(vec![on_time.clone()], OnConflict::KeepNone).await.unwrap();

    let mut caught_up = Vec::new();
    while caught_up.len() < usize::try_from(missed).unwrap() {
        let job = seen.recv().await.unwrap();
        let at = clock.now();
        if job.id == on_time.job.id {
            assert!(at.since_ms(job.id.run_at()) < 100, "the backlog delayed what is on time");
        } else {
            caught_up.push((job.id.run_at(), at));
        }
    }
    assert!(caught_up.is_sorted_by_key(|(run_at, _)| *run_at), "oldest first");
    let took_ms = caught_up.last().unwrap().1.since_ms(now);
    assert!((34_000..60_000).contains(&took_ms), "3,600 jobs at 100/s took {took_ms} ms");
}

/// Every page of due jobs takes a second of the paused time.
struct SlowReads;

impl Faults for SlowReads {
    #[expect(clippy::disallowed_methods, reason = "paused time: nothing waits for real")]
    fn before(&self, call: Call) -> Fault {
        if call != Call::Due {
            return Fault::default();
        }
        Fault { wait_before: Some(Box::pin(tokio::time::sleep(Duration::from_secs(1)))), ..Fault::default() }
    }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "paused time")]
async fn what_lies_behind_more_idle_jobs_than_are_read_between_two_sweeps_starts() {
    let clock = Arc::new(VirtualClock { start: tokio::time::Instant::now(), epoch_ms: 1_800_000_000_000 });
    let now = clock.now();
    let store = Arc::new(MemoryStore::new(Layout { shards: 1 }).with_faults(Arc::new(SlowReads)));
    let (sender, mut seen) = mpsc::unbounded_channel();
    let parts = virtual_parts(&store, &clock, sender);
    let stored = |destination: Destination, run_at: Timestamp| Submission {
        job: Job::new(Tenant::new("a").unwrap(), job_spec(destination, now), run_at, 7),
        key: None,
        fresh: true,
    };
    // Nobody takes them, and each is a read of its own: a hundred seconds, with a sweep every ten.
    let mut jobs: Vec<_> = (0..100).map(|ms| stored(queue("idle"), now.plus_ms(-1_800_000 + ms))).collect();
    let behind = stored(push(), now.plus_ms(-600_000));
    jobs.push(behind.clone());
    store.submit(now, jobs, OnConflict::KeepNone).await.unwrap();
    let config = Config {
        quantum: 1,
        lot_count_max: 10,
        lot_count_min: 4,
        sweep_ms: 10_000,
        catch_up_grace_ms: 7_200_000,
        ..Config::default()
    };
    let _engine = Engine::start(parts, config).await.unwrap();
    let started = tokio::time::timeout(Duration::from_secs(3_600), seen.recv()).await;
    assert_eq!(started.expect("it is never come to").unwrap().id, behind.job.id);
}
