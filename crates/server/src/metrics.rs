//! What the server counts, in Prometheus' text form at `/metrics`. Names are documented in `docs/metrics.md`
//! and golden; no label has more values than the code has names for, or a bound of its own (`names`).

mod calls;
mod databases;
mod disk;
mod endings;
mod labels;
mod lag;
mod lags;
mod names;
mod queues;
mod recent;
mod record;
mod spans;
mod targets;
mod tenant_rates;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tidewheel_core::job::{Ending, Priority};

pub(crate) use self::calls::Call;
use self::calls::Calls;
use self::databases::Databases;
use self::disk::Disk;
pub use self::disk::DiskSpace;
pub(crate) use self::endings::Endings;
use self::labels::{LaneLabels, OutcomeLabels, PriorityLabels, StateLabels, StatusLabels};
pub(crate) use self::lag::LagCounts;
use self::lag::LagHistogram;
pub(crate) use self::lags::Lags;
use self::names::{Names, TENANTS_NAMED_COUNT_MAX, TenantLabels};
pub(crate) use self::queues::QueueLevel;
use self::queues::Queues;
use self::recent::Recent;
pub(crate) use self::recent::{SAMPLE_MS, Sample};
pub(crate) use self::spans::{DropReason, SpanCounts};
use self::targets::Targets;
pub(crate) use self::tenant_rates::Doings;
use self::tenant_rates::TenantRates;
pub(crate) use self::tls::Handshake;
pub use self::tls::TlsMetrics;

/// From 1 ms to 5 min, fine where it matters.
const LAG_BUCKETS_S: [f64; 20] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0,
    180.0, 300.0,
];
const SYNC_BUCKETS_S: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 2.5, 10.0, 60.0,
    300.0,
];

type Seconds = Gauge<f64, AtomicU64>;

/// All counters, gauges and histograms.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    lag: Family<TenantLabels, Histogram, fn() -> Histogram>,
    tenants: Names,
    starts: Family<PriorityLabels, Counter>,
    start_lag: Family<PriorityLabels, Counter<f64, AtomicU64>>,
    /// All of it together, to be read.
    all_lag: LagHistogram,
    submissions: Counter,
    duplicates: Counter,
    shed: Family<PriorityLabels, Counter>,
    storing: Gauge,
    deliveries: Family<OutcomeLabels, Counter>,
    retries: Counter,
    dead_letters: Counter,
    claims_refused: Counter,
    push: Histogram,
    calls: Calls,
    spans: SpanCounts,
    queues: Queues,
    targets: Targets,
    disk: Option<Disk>,
    writable: Gauge,
    databases: Databases,
    start_time: Seconds,
    shards: Gauge,
    shards_owned: Gauge,
    jobs: Family<StateLabels, Gauge>,
    held: Gauge,
    in_flight: Gauge,
    leases: Gauge,
    workers: Family<StateLabels, Gauge>,
    ready: Family<LaneLabels, Gauge>,
    oldest_ready: Family<LaneLabels, Seconds>,
    oldest_unpromoted: Seconds,
    sync: Histogram,
    recoveries: Counter,
    caught_up: Counter,
    recent: Recent,
    by_tenant: TenantRates,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Everything at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("tidewheel"),
            lag: Family::new_with_constructor((|| Histogram::new(LAG_BUCKETS_S)) as fn() -> Histogram),
            tenants: Names::new(TENANTS_NAMED_COUNT_MAX),
            starts: Family::default(),
            start_lag: Family::default(),
            all_lag: LagHistogram::default(),
            submissions: Counter::default(),
            duplicates: Counter::default(),
            shed: Family::default(),
            storing: Gauge::default(),
            deliveries: Family::default(),
            retries: Counter::default(),
            dead_letters: Counter::default(),
            claims_refused: Counter::default(),
            push: Histogram::new(LAG_BUCKETS_S),
            calls: Calls::new(),
            spans: SpanCounts::default(),
            queues: Queues::new(),
            targets: Targets::default(),
            disk: None,
            writable: Gauge::default(),
            databases: Databases::default(),
            start_time: Seconds::default(),
            shards: Gauge::default(),
            shards_owned: Gauge::default(),
            jobs: Family::default(),
            held: Gauge::default(),
            in_flight: Gauge::default(),
            leases: Gauge::default(),
            workers: Family::default(),
            ready: Family::default(),
            oldest_ready: Family::default(),
            oldest_unpromoted: Seconds::default(),
            sync: Histogram::new(SYNC_BUCKETS_S),
            recoveries: Counter::default(),
            caught_up: Counter::default(),
            recent: Recent::default(),
            by_tenant: TenantRates::default(),
        };
        metrics.register();
        metrics.register_more();
        metrics.set_workers(0, 0);
        metrics.set_writable(true);
        for priority in Priority::ALL {
            let labels = PriorityLabels { priority: priority.as_str() };
            drop(metrics.starts.get_or_create(&labels));
            drop(metrics.start_lag.get_or_create(&labels));
            drop(metrics.shed.get_or_create(&labels));
        }
        for ending in Ending::ALL {
            drop(metrics.deliveries.get_or_create(&OutcomeLabels { outcome: ending.as_str() }));
        }
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "scheduling_lag",
            "From when a job should have started to when its attempt was claimed",
            Unit::Seconds,
            self.lag.clone(),
        );
        registry.register("submissions", "Jobs taken in", self.submissions.clone());
        registry.register(
            "submission_duplicates",
            "Submissions that pointed at a job already there",
            self.duplicates.clone(),
        );
        registry.register("deliveries", "Attempts that ended, by how they ended", self.deliveries.clone());
        registry.register("jobs", "Jobs kept, by state", self.jobs.clone());
        registry.register("held_jobs", "Jobs in memory, near or due", self.held.clone());
        registry.register("in_flight", "Attempts being claimed or delivered", self.in_flight.clone());
        registry.register("leases", "Attempts under way that hold a lease", self.leases.clone());
        registry.register(
            "workers",
            "Workers on streams, by whether they are connected",
            self.workers.clone(),
        );
        registry.register("ready_depth", "Jobs due and in memory, by kind of lane", self.ready.clone());
        registry.register_with_unit(
            "oldest_unpromoted_age",
            "How long the oldest due job has been waiting in the store for room in memory",
            Unit::Seconds,
            self.oldest_unpromoted.clone(),
        );
        registry.register_with_unit(
            "store_sync_duration",
            "How long the store took to make a group of writes durable",
            Unit::Seconds,
            self.sync.clone(),
        );
        registry.register(
            "recoveries",
            "Attempts found under way at start, left behind by a server that died",
            self.recoveries.clone(),
        );
        registry.register(
            "catch_up",
            "Jobs started late because the server was down at their time",
            self.caught_up.clone(),
        );
    }

    fn register_more(&mut self) {
        let registry = &mut self.registry;
        registry.register("starts", "Attempts started, by priority", self.starts.clone());
        registry.register_with_unit(
            "start_lag",
            "How late attempts started, all together, by priority",
            Unit::Seconds,
            self.start_lag.clone(),
        );
        registry.register(
            "shed",
            "Submitted jobs that were turned away because the server was overloaded, by priority",
            self.shed.clone(),
        );
        registry.register(
            "submissions_in_flight",
            "Jobs taken from callers and not stored yet: the sign of overload",
            self.storing.clone(),
        );
        registry.register("retries", "Attempts that failed and will be made again", self.retries.clone());
        registry.register("dead_letters", "Jobs given up", self.dead_letters.clone());
        registry.register(
            "claims_refused",
            "Jobs that turned out to be taken, changed or gone when they were to start",
            self.claims_refused.clone(),
        );
        registry.register_with_unit(
            "push_duration",
            "From the start of a push to its target's answer, or to giving it up",
            Unit::Seconds,
            self.push.clone(),
        );
        registry.register_with_unit(
            "oldest_ready_age",
            "How long the oldest job in memory has been due, by kind of lane",
            Unit::Seconds,
            self.oldest_ready.clone(),
        );
        registry.register("store_writable", "1 if the store takes writes", self.writable.clone());
        registry.register_with_unit(
            "start_time",
            "When the server started, in seconds since 1970",
            Unit::Seconds,
            self.start_time.clone(),
        );
        registry.register("shards", "Shards of the store", self.shards.clone());
        registry.register("shards_owned", "Shards this server serves", self.shards_owned.clone());
        self.databases.register(registry);
        self.queues.register(registry);
        self.targets.register(registry);
        self.calls.register(registry);
        self.spans.register(registry);
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "What runs", Info::new(version));
    }

    /// Also tells the room on a device, which is measured whenever somebody looks.
    #[must_use]
    pub fn measuring_disk(mut self, measure: impl Fn() -> Option<DiskSpace> + Send + Sync + 'static) -> Self {
        self.disk = Some(Disk::new(&mut self.registry, Box::new(measure)));
        self
    }

    /// Also tells of the server's certificate and of handshakes.
    #[must_use]
    pub fn serving_tls(mut self, tls: &TlsMetrics) -> Self {
        tls.register(&mut self.registry);
        self
    }

    /// Everything in Prometheus' text form.
    #[must_use]
    pub fn render(&self) -> String {
        if let Some(disk) = &self.disk {
            disk.measure();
        }
        let mut text = String::new();
        // Writing into a String cannot fail.
        encode(&mut text, &self.registry).ok();
        text
    }
}

fn level(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn seconds(ms: i64) -> f64 {
    Duration::from_millis(ms.max(0).unsigned_abs()).as_secs_f64()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
