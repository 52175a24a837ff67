//! What the server counts, in Prometheus' text form at `/metrics`. Names are documented in `docs/metrics.md`
//! and golden; no label has more values than the code has names for.

mod lag;
mod recent;

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tidewheel_core::job::{Ending, Job, State};
use tidewheel_core::time::Timestamp;
use tidewheel_store::Counts;

pub(crate) use lag::LagCounts;
use lag::LagHistogram;
use recent::Recent;
pub(crate) use recent::{SAMPLE_MS, Sample};

const SYNC_BUCKETS_S: [f64; 12] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    lane: LaneKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the label's values, as they are written")]
enum LaneKind {
    queue,
    push,
}

type Seconds = Gauge<f64, AtomicU64>;

/// All counters, gauges and histograms.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    lag: LagHistogram,
    submissions: Counter,
    duplicates: Counter,
    deliveries: Family<OutcomeLabels, Counter>,
    jobs: Family<StateLabels, Gauge>,
    held: Gauge,
    in_flight: Gauge,
    leases: Gauge,
    workers: Family<StateLabels, Gauge>,
    ready: Family<LaneLabels, Gauge>,
    oldest_unpromoted: Seconds,
    sync: Histogram,
    recoveries: Counter,
    caught_up: Counter,
    recent: Recent,
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
            lag: LagHistogram::default(),
            submissions: Counter::default(),
            duplicates: Counter::default(),
            deliveries: Family::default(),
            jobs: Family::default(),
            held: Gauge::default(),
            in_flight: Gauge::default(),
            leases: Gauge::default(),
            workers: Family::default(),
            ready: Family::default(),
            oldest_unpromoted: Seconds::default(),
            sync: Histogram::new(SYNC_BUCKETS_S),
            recoveries: Counter::default(),
            caught_up: Counter::default(),
            recent: Recent::default(),
        };
        metrics.register();
        metrics.set_workers(0, 0);
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

    /// Everything in Prometheus' text form.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        encode(&mut text, &self.registry).ok();
        text
    }

    pub(crate) fn submitted(&self, new: usize, duplicates: usize) {
        self.submissions.inc_by(count(new));
        self.duplicates.inc_by(count(duplicates));
    }

    pub(crate) fn started(&self, lag_ms: i64) {
        self.lag.observe(u64::try_from(lag_ms).unwrap_or(0));
    }

    pub(crate) fn attempt_ended(&self, job: &Job) {
        let outcome = job.status.attempts.last().map(|attempt| attempt.ending.as_str());
        if let Some(outcome) = outcome.filter(|_| job.status.running.is_none()) {
            self.deliveries.get_or_create(&OutcomeLabels { outcome }).inc();
        }
    }

    pub(crate) fn recovered(&self, attempts: usize) {
        self.recoveries.inc_by(count(attempts));
    }

    pub(crate) fn caught_up(&self, jobs: usize) {
        self.caught_up.inc_by(count(jobs));
    }

    pub(crate) fn set_memory(&self, held: usize, in_flight: usize, leases: usize) {
        self.held.set(level(held));
        self.in_flight.set(level(in_flight));
        self.leases.set(level(leases));
    }

    pub(crate) fn set_workers(&self, connected: usize, disconnected: usize) {
        for (state, workers) in [("connected", connected), ("disconnected", disconnected)] {
            self.workers.get_or_create(&StateLabels { state }).set(level(workers));
        }
    }

    pub(crate) fn set_ready(&self, queues: usize, pushes: usize) {
        self.ready.get_or_create(&LaneLabels { lane: LaneKind::queue }).set(level(queues));
        self.ready.get_or_create(&LaneLabels { lane: LaneKind::push }).set(level(pushes));
    }

    pub(crate) fn set_oldest_unpromoted(&self, age_ms: i64) {
        #[expect(clippy::cast_precision_loss, reason = "ages are far below 2^52 ms")]
        self.oldest_unpromoted.set(age_ms as f64 / 1_000.0);
    }

    pub(crate) fn set_backlog(&self, counts: &Counts) {
        for state in State::ALL {
            let gauge = self.jobs.get_or_create(&StateLabels { state: state.as_str() });
            gauge.set(i64::try_from(counts.of(state)).unwrap_or(i64::MAX));
        }
    }

    /// Keeps what has been counted up to now among the samples of the last minutes, if it is time for one.
    pub(crate) fn note_recent(&self, now: Timestamp) {
        self.recent.note(now, || self.sample(now));
    }

    /// The samples of the last minutes, oldest first.
    pub(crate) fn recent(&self) -> Vec<Sample> {
        self.recent.samples()
    }

    /// What has been counted up to now.
    pub(crate) fn sample(&self, now: Timestamp) -> Sample {
        let ended =
            |ending: Ending| self.deliveries.get_or_create(&OutcomeLabels { outcome: ending.as_str() }).get();
        let jobs = |state: State| {
            let gauge = self.jobs.get_or_create(&StateLabels { state: state.as_str() }).get();
            u64::try_from(gauge).unwrap_or(0)
        };
        let succeeded = ended(Ending::Succeeded);
        Sample {
            at: now,
            submitted: self.submissions.get(),
            succeeded,
            failed: Ending::ALL.into_iter().map(ended).sum::<u64>().saturating_sub(succeeded),
            lag: self.lag.counts(),
            waiting: jobs(State::Scheduled) + jobs(State::Retrying),
            running: jobs(State::Running),
            dead: jobs(State::Dead),
        }
    }

    /// What is in memory: jobs near or due, attempts being claimed or delivered, attempts that hold a lease.
    pub(crate) fn memory(&self) -> [u64; 3] {
        [&self.held, &self.in_flight, &self.leases].map(|gauge| u64::try_from(gauge.get()).unwrap_or(0))
    }

    /// A group of writes became durable.
    pub fn synced(&self, took: std::time::Duration) {
        self.sync.observe(took.as_secs_f64());
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn level(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
