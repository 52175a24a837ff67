//! Under virtual time: a flood does not delay its neighbours, a queue without workers delays nobody and costs
//! bounded memory, and targets that hang hold up neither queues nor others; tenants share push slots by weight, not by hosts.

use std::sync::{Arc, Mutex};

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Finding, Job, Target};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Allotment, Config, Deliver, Engine, Parts, Report, Reports, Take, Tenants};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::random::Random;
use tidewheel_sim::clock::SimClock;
use tidewheel_sim::dice::Dice;
use tidewheel_sim::watch::held_jobs;
use tidewheel_store::{Layout, OnConflict, Order, Submission};
use tidewheel_store_testkit::memory::MemoryStore;

use crate::nodes;

/// How soon a job starts that nothing stands in the way of.
const PROMPT_MS: i64 = 250;

/// A target that takes everything, at its own pace, and notes when.
struct PacedTarget {
    clock: Arc<SimClock>,
    /// How long each job takes; `None` for ever.
    takes_ms: Option<i64>,
    started: Mutex<Vec<(Tenant, JobId, i64)>>,
}

impl Deliver for PacedTarget {
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports) {
        for job in jobs {
            let now_ms = self.clock.monotonic_ms();
            self.started.lock().unwrap().push((job.tenant.clone(), job.id, now_ms));
            let Some(takes_ms) = self.takes_ms.filter(|_| !hangs(&job)) else { continue };
            let (clock, reports) = (Arc::clone(&self.clock), reports.clone());
            tokio::spawn(async move {
                clock.sleep_ms(takes_ms).await;
                let command = Command::Succeed { token: job.status.token, finding: Finding::default() };
                reports.send(Report { tenant: job.tenant.clone(), id: job.id, command });
            });
        }
    }

    fn abort(&self, _: &JobId) {}
}

/// Some hosts never answer.
fn hangs(job: &Job) -> bool {
    matches!(&job.spec.destination, Destination::Target(target) if target.url.contains("hanging"))
}

struct Bench {
    engine: Engine,
    clock: Arc<SimClock>,
    dice: Dice,
    target: Arc<PacedTarget>,
}

impl Bench {
    async fn new(config: Config, takes_ms: Option<i64>) -> Self {
        let clock = Arc::new(SimClock::new());
        let target = Arc::new(PacedTarget { clock: Arc::clone(&clock), takes_ms, started: Mutex::default() });
        let parts = Parts {
            store: Arc::new(MemoryStore::new(Layout { shards: 4 })),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            random: Arc::new(Dice::new(1)),
            metrics: Arc::new(Metrics::new()),
            deliverer: Arc::clone(&target) as Arc<dyn Deliver>,
            zones: Zones::bundled(),
        };
        Self { engine: Engine::start(parts, config).await.unwrap(), clock, dice: Dice::new(2), target }
    }

    /// Submits jobs at these times.
    async fn submit(&self, tenant: &str, to: &Destination, times: &[Timestamp]) -> Vec<JobId> {
        let mut ids = Vec::new();
        for times in times.chunks(10_000) {
            let jobs: Vec<Submission> = times
                .iter()
                .map(|at| Submission { job: self.job(tenant, to, *at), key: None, fresh: true })
                .collect();
            ids.extend(jobs.iter().map(|submission| submission.job.id));
            self.engine.submit(jobs, OnConflict::KeepOthers).await.unwrap();
        }
        ids
    }

    fn job(&self, tenant: &str, to: &Destination, at: Timestamp) -> Job {
        let spec = nodes::spec(to.clone(), self.clock.now());
        Job::new(Tenant::new(tenant).unwrap(), spec, at, self.dice.tail())
    }

    /// When each of these jobs started, by virtual time.
    fn starts_of(&self, ids: &[JobId]) -> Vec<i64> {
        let started = self.target.started.lock().unwrap();
        started.iter().filter(|(_, id, _)| ids.contains(id)).map(|(_, _, at_ms)| *at_ms).collect()
    }

    fn starts_by(&self, tenant: &str) -> usize {
        self.target.started.lock().unwrap().iter().filter(|(by, _, _)| by.as_str() == tenant).count()
    }

    async fn assert_prompt(&self, ids: &[JobId], due_ms: i64) {
        self.clock.sleep_ms(due_ms - self.clock.monotonic_ms() + PROMPT_MS).await;
        let starts = self.starts_of(ids);
        assert_eq!(starts.len(), ids.len(), "all started within {PROMPT_MS} ms");
        assert!(starts.iter().all(|at_ms| *at_ms >= due_ms), "none early");
    }

    /// A worker that takes what there is, until a wait brings nothing; returns the times it was due.
    async fn work_off(&self, tenant: &str, queue: &str, count_max: usize) -> Vec<Timestamp> {
        let tenant = Tenant::new(tenant).unwrap();
        let mut taken = Vec::new();
        loop {
            let take = Take {
                tenants: Tenants::Only(vec![tenant.clone()]),
                queue: Arc::from(queue),
                kinds: Vec::new(),
                worker: Arc::from("w"),
                count_max,
                wait_ms: 2_000,
                lease_ms: 30_000,
            };
            let jobs = self.engine.take(take).await.unwrap();
            if jobs.is_empty() {
                return taken;
            }
            taken.extend(jobs.iter().map(|job| job.status.due_at));
            let succeed = |job: Arc<Job>| Order {
                tenant: job.tenant.clone(),
                id: job.id,
                command: Command::Succeed { token: job.status.token, finding: Finding::default() },
                key: None,
            };
            let results = self.engine.command(jobs.into_iter().map(succeed).collect()).await.unwrap();
            assert!(results.iter().all(Result::is_ok));
        }
    }

    fn held(&self) -> usize {
        held_jobs(&self.engine.metrics().render()).unwrap()
    }
}

fn host() -> Destination {
    host_named("target")
}

fn host_named(name: &str) -> Destination {
    let (url, method) = (format!("http://{name}.example/").into(), "POST".into());
    Destination::Target(Arc::new(Target { url, method, headers: Vec::new() }))
}

fn queue(name: &str) -> Destination {
    Destination::Queue(Arc::from(name))
}

/// So many instants, one millisecond apart, the last of them now.
fn past(bench: &Bench, count: i64) -> Vec<Timestamp> {
    (0..count).map(|n| bench.clock.now().plus_ms(n + 1 - count)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_tenant_does_not_delay_another() {
    const FLOOD: i64 = 50_000;
    let bench = Bench::new(Config::default(), Some(20)).await;
    bench.submit("flood", &host(), &past(&bench, FLOOD)).await;
    bench.clock.sleep_ms(100).await;
    assert!(bench.target.started.lock().unwrap().len() < 10_000, "the target is busy with the flood");
    let now = bench.clock.now();
    let few = bench.submit("few", &host(), &[now; 5]).await;
    bench.assert_prompt(&few, bench.clock.monotonic_ms()).await;
    bench.clock.sleep_ms(60_000).await;
    let started = bench.target.started.lock().unwrap();
    assert_eq!(i64::try_from(started.len()).unwrap(), FLOOD + 5, "the flood is delivered, too");
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_workers_delays_nobody_and_drains_oldest_first() {
    const BACKLOG: i64 = 100_000;
    let bench = Bench::new(Config::default(), Some(5)).await;
    let times = past(&bench, BACKLOG);
    bench.submit("acme", &queue("idle"), &times).await;
    let now = bench.clock.now();
    let due = bench.submit("acme", &host(), &[now; 20]).await;
    bench.assert_prompt(&due, bench.clock.monotonic_ms()).await;
    let (soon, soon_ms) = (bench.clock.now().plus_ms(3_000), bench.clock.monotonic_ms() + 3_000);
    let ahead = bench.submit("acme", &host(), &[soon; 20]).await;
    bench.assert_prompt(&ahead, soon_ms).await;
    let held = bench.held();
    assert!((1..=Config::default().lot_count_max + 100).contains(&held), "{held} jobs in memory");
    let taken = bench.work_off("acme", "idle", 1_000).await;
    assert_eq!(taken, times, "all of them, oldest first");
}

#[tokio::test(start_paused = true)]
async fn a_full_memory_delays_nobody_who_has_room_to_run() {
    let config = Config { held_count_max: 1_000, lot_count_max: 200, ..Config::default() };
    let held_max = config.held_count_max + 13 * config.lot_count_min;
    let bench = Bench::new(config, Some(5)).await;
    let queues: Vec<String> = (0..12).map(|n| format!("idle-{n}")).collect();
    for name in &queues {
        bench.submit("acme", &queue(name), &past(&bench, 300)).await;
    }
    bench.clock.sleep_ms(2_000).await;
    let held = bench.held();
    assert!((1_000..=held_max).contains(&held), "{held} jobs in memory");
    let now = bench.clock.now();
    let due = bench.submit("other", &host(), &[now; 50]).await;
    bench.assert_prompt(&due, bench.clock.monotonic_ms()).await;
    let (soon, soon_ms) = (bench.clock.now().plus_ms(5_000), bench.clock.monotonic_ms() + 5_000);
    let ahead = bench.submit("acme", &host(), &[soon; 50]).await;
    bench.assert_prompt(&ahead, soon_ms).await;
    for name in &queues {
        assert_eq!(bench.work_off("acme", name, 50).await.len(), 300, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn targets_that_hang_do_not_hold_up_the_queues() {
    let config = Config { push_max: 8, ..Config::default() };
    let bench = Bench::new(config, None).await;
    bench.submit("acme", &host(), &past(&bench, 100)).await;
    bench.clock.sleep_ms(1_000).await;
    assert_eq!(bench.target.started.lock().unwrap().len(), 8, "as many as may be under way");
    let now = bench.clock.now();
    bench.submit("acme", &queue("mail"), &[now; 10]).await;
    let before_ms = bench.clock.monotonic_ms();
    assert_eq!(bench.work_off("acme", "mail", 1).await.len(), 10);
    let took_ms = bench.clock.monotonic_ms() - before_ms;
    assert!(took_ms <= 2_000 + PROMPT_MS, "{took_ms} ms, of which the last wait is 2000");
}

/// Two tenants with more than may be under way, the first with so many hosts and that weight; what each of them started.
async fn share(push_max: usize, hosts: i64, weight: u32) -> (Bench, [usize; 2]) {
    let bench = Bench::new(Config { push_max, ..Config::default() }, Some(50)).await;
    bench.engine.allot(vec![Allotment {
        tenant: Tenant::new("acme").unwrap(),
        weight,
        running_count_max: None,
        queue_running_count_max: None,
        starts_per_s: None,
        spread: 1,
    }]);
    for n in 0..hosts {
        bench.submit("acme", &host_named(&format!("h{n}")), &past(&bench, 8_000 / hosts)).await;
    }
    bench.clock.sleep_ms(500).await;
    bench.submit("globex", &host(), &past(&bench, 8_000)).await;
    bench.clock.sleep_ms(1_000).await;
    let before = ["acme", "globex"].map(|tenant| bench.starts_by(tenant));
    bench.clock.sleep_ms(4_000).await;
    let after = ["acme", "globex"].map(|tenant| bench.starts_by(tenant));
    let starts = [after[0] - before[0], after[1] - before[1]];
    (bench, starts)
}

#[tokio::test(start_paused = true)]
async fn tenants_share_push_slots_by_weight_whatever_hosts_they_have() {
    for (push_max, hosts, weight) in [(32, 1, 3), (32, 50, 1), (32, 50, 3), (8, 1, 3), (8, 50, 1), (64, 7, 2)]
    {
        let (bench, [acme, globex]) = share(push_max, hosts, weight).await;
        let (all, weight) = (acme + globex, usize::try_from(weight).unwrap());
        let wanted = all * weight / (weight + 1);
        assert!(
            acme.abs_diff(wanted) * 100 <= 4 * all,
            "{acme} and {globex} at {hosts} hosts, weight {weight}, {push_max} slots"
        );
        assert!(all >= 60 * push_max, "{all} of {push_max} slots are not enough for 4 s");
        let few = bench.submit("few", &host_named("other"), &[bench.clock.now(); 5]).await;
        bench.assert_prompt(&few, bench.clock.monotonic_ms()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_that_hang_cost_their_tenant_push_slots_and_nobody_else() {
    let bench = Bench::new(Config::default(), Some(20)).await;
    for (tenant, most) in [("acme", 768), ("globex", 171)] {
        for n in 0..6 {
            bench.submit(tenant, &host_named(&format!("hanging-{tenant}-{n}")), &past(&bench, 300)).await;
        }
        bench.clock.sleep_ms(1_000).await;
        assert_eq!(bench.starts_by(tenant), most, "all that may be under way, and no more");
        let few = bench.submit("few", &host(), &[bench.clock.now(); 5]).await;
        bench.assert_prompt(&few, bench.clock.monotonic_ms()).await;
    }
    bench.submit("many", &host(), &past(&bench, 2_000)).await;
    bench.clock.sleep_ms(4_000).await;
    assert_eq!(bench.starts_by("many"), 2_000, "what is left is used over and over");
}
