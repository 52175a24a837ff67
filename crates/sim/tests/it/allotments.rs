//! Under virtual time: what tenants share by, how fast they may start, and how waiting raises a priority.

use std::sync::{Arc, Mutex};

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Finding, Job, Priority, Spec, Target};
use tidewheel_core::names::Tenant;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Allotment, Config, Deliver, Engine, FairBy, Parts, Report, Reports};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::random::Random;
use tidewheel_sim::clock::SimClock;
use tidewheel_sim::dice::Dice;
use tidewheel_store::{Layout, OnConflict, Submission};
use tidewheel_store_testkit::memory::MemoryStore;

use crate::nodes;

/// A target that takes as long for a job as its tenant's name says, and notes what it started when.
struct Paced {
    clock: Arc<SimClock>,
    started: Mutex<Vec<(Arc<Job>, i64)>>,
}

impl Deliver for Paced {
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports) {
        for job in jobs {
            self.started.lock().unwrap().push((Arc::clone(&job), self.clock.monotonic_ms()));
            let (clock, reports) = (Arc::clone(&self.clock), reports.clone());
            tokio::spawn(async move {
                clock.sleep_ms(takes_ms(&job.tenant)).await;
                let command = Command::Succeed { token: job.status.token, finding: Finding::default() };
                reports.send(Report { tenant: job.tenant.clone(), id: job.id, command });
            });
        }
    }

    fn abort(&self, _: &JobId) {}
}

/// `slow-40` takes 40 ms.
fn takes_ms(tenant: &Tenant) -> i64 {
    tenant.as_str().rsplit('-').next().unwrap().parse().unwrap()
}

struct Bench {
    engine: Engine,
    clock: Arc<SimClock>,
    dice: Dice,
    target: Arc<Paced>,
}

impl Bench {
    async fn new(config: Config) -> Self {
        let clock = Arc::new(SimClock::new());
        let target = Arc::new(Paced { clock: Arc::clone(&clock), started: Mutex::default() });
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

    /// Submits so many jobs that are due now.
    async fn submit(&self, tenant: &str, count: usize, priority: Priority) {
        let (url, method) = ("http://target.example/".into(), "POST".into());
        let target = Arc::new(Target { url, method, headers: Vec::new() });
        let now = self.clock.now();
        let job = || {
            let spec = Spec { priority, ..nodes::spec(Destination::Target(Arc::clone(&target)), now) };
            let job = Job::new(Tenant::new(tenant).unwrap(), spec, now, self.dice.tail());
            Submission { job, key: None, fresh: true }
        };
        let jobs = (0..count).map(|_| job()).collect();
        self.engine.submit(jobs, OnConflict::KeepOthers).await.unwrap();
    }

    /// When jobs of a tenant started, from `from_ms` on.
    fn starts(&self, tenant: &str, from_ms: i64) -> Vec<i64> {
        let started = self.target.started.lock().unwrap();
        let of_tenant = started.iter().filter(|(job, _)| job.tenant.as_str() == tenant);
        of_tenant.map(|(_, at_ms)| *at_ms).filter(|at_ms| *at_ms >= from_ms).collect()
    }
}

fn allotment(tenant: &str) -> Allotment {
    Allotment {
        tenant: Tenant::new(tenant).unwrap(),
        weight: 1,
        running_count_max: None,
        queue_running_count_max: None,
        starts_per_s: None,
        spread: 1,
    }
}

/// What each of two tenants had of the time, in the same stretch.
async fn run_times(fair_by: FairBy, weight: u32) -> [i64; 2] {
    let bench = Bench::new(Config { fair_by, push_max: 8, ..Config::default() }).await;
    bench.engine.allot(vec![Allotment { weight, ..allotment("slow-40") }]);
    for tenant in ["slow-40", "quick-10"] {
        bench.submit(tenant, 8_000, Priority::Normal).await;
    }
    // What they take is learned first.
    bench.clock.sleep_ms(1_000).await;
    let from_ms = bench.clock.monotonic_ms();
    bench.clock.sleep_ms(10_000).await;
    ["slow-40", "quick-10"].map(|tenant| {
        let count = i64::try_from(bench.starts(tenant, from_ms).len()).unwrap();
        count * takes_ms(&Tenant::new(tenant).unwrap())
    })
}

#[tokio::test(start_paused = true)]
async fn tenants_share_by_run_time_where_that_is_what_counts() {
    let [slow, quick] = run_times(FairBy::Count, 1).await;
    assert!(slow > 3 * quick, "as many attempts each are four times the time: {slow} and {quick}");
    let [slow, quick] = run_times(FairBy::RunTime, 1).await;
    assert!(slow.abs_diff(quick) * 20 <= (slow + quick).unsigned_abs(), "{slow} and {quick} ms");
    let [slow, quick] = run_times(FairBy::RunTime, 3).await;
    assert!((3 * quick).abs_diff(slow) * 20 <= (3 * quick + slow).unsigned_abs(), "{slow} and {quick} ms");
}

#[tokio::test(start_paused = true)]
async fn a_rate_cap_holds_in_every_second_and_holds_up_nobody_else() {
    const CAP: usize = 50;
    let bench = Bench::new(Config::default()).await;
    bench.engine.allot(vec![Allotment { starts_per_s: Some(50), ..allotment("capped-5") }]);
    let began_ms = bench.clock.monotonic_ms();
    bench.submit("capped-5", 1_000, Priority::Normal).await;
    bench.submit("free-5", 1_000, Priority::Normal).await;
    bench.clock.sleep_ms(1_000).await;
    assert_eq!(bench.starts("free-5", 0).len(), 1_000);
    bench.clock.sleep_ms(9_000).await;
    let starts = bench.starts("capped-5", 0);
    let in_second = |from: &i64| starts.iter().filter(|at| (*from..*from + 1_000).contains(*at)).count();
    let most = starts.iter().map(in_second).max().unwrap();
    assert!(most <= CAP, "{most} in one second");
    assert!((CAP * 9..=CAP * 10).contains(&starts.len()), "{} in ten seconds", starts.len());
    // Changed under way, it holds for what waits.
    bench.engine.allot(vec![Allotment { starts_per_s: Some(500), ..allotment("capped-5") }]);
    bench.clock.sleep_ms(2_000).await;
    assert_eq!(bench.starts("capped-5", began_ms).len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn waiting_raises_a_priority_until_nothing_comes_before_it() {
    let last_low_ms = async |aging_ms| {
        let bench = Bench::new(Config { push_max: 1, aging_ms, ..Config::default() }).await;
        bench.submit("acme-100", 40, Priority::Low).await;
        bench.clock.sleep_ms(50).await;
        let began_ms = bench.clock.monotonic_ms();
        bench.submit("acme-100", 2_000, Priority::Critical).await;
        bench.clock.sleep_ms(60_000).await;
        let started = bench.target.started.lock().unwrap();
        let low: Vec<i64> = started
            .iter()
            .filter(|(job, _)| job.spec.priority == Priority::Low)
            .map(|(_, at_ms)| at_ms - began_ms)
            .collect();
        assert_eq!(low.len(), 40, "none is starved");
        low.into_iter().max().unwrap()
    };
    let by_share_ms = last_low_ms(0).await;
    assert!(by_share_ms > 25_000, "one start of nine is theirs: {by_share_ms}");
    let aged_ms = last_low_ms(1_000).await;
    assert!(aged_ms < 12_000, "three steps make them critical: {aged_ms}");
}
