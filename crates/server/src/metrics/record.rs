//! What happens, and how things stand, as it is noted in the figures.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewheel_core::job::{Ending, Priority, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Counts, Database};

use super::labels::{LaneKind, LaneLabels, OutcomeLabels, PriorityLabels, StateLabels};
use super::names::TenantLabels;
use super::{Call, Doings, Endings, Lags, Metrics, QueueLevel, Sample, SpanCounts, count, level, seconds};

impl Metrics {
    /// Jobs of one tenant were submitted.
    pub(crate) fn submitted(&self, tenant: Option<&Tenant>, new: usize, duplicates: usize) {
        if let Some(tenant) = tenant.filter(|_| new > 0) {
            self.by_tenant.add(tenant, |doings| doings.submitted += count(new));
        }
        self.submissions.inc_by(count(new));
        self.duplicates.inc_by(count(duplicates));
    }

    /// Jobs were turned away, of which this is the least urgent.
    pub(crate) fn shed(&self, priority: Priority, jobs: usize) {
        self.shed.get_or_create(&PriorityLabels { priority: priority.as_str() }).inc_by(count(jobs));
    }

    /// How many jobs are on their way into the store.
    pub(crate) fn set_storing(&self, jobs: usize) {
        self.storing.set(level(jobs));
    }

    /// What one claim started.
    pub(crate) fn started(&self, lags: &Lags) {
        for (tenant, lags) in &lags.by_tenant {
            let labels = TenantLabels { tenant: self.tenants.shown(tenant.as_str()) };
            self.by_tenant.add(tenant, |doings| doings.started += count(lags.len()));
            let histogram = self.lag.get_or_create(&labels);
            for lag_ms in lags {
                histogram.observe(seconds(*lag_ms));
                self.all_lag.observe(lag_ms.unsigned_abs());
            }
        }
        for (priority, (jobs, sum_ms)) in Priority::ALL.into_iter().zip(lags.by_priority) {
            if jobs > 0 {
                let labels = PriorityLabels { priority: priority.as_str() };
                self.starts.get_or_create(&labels).inc_by(jobs);
                self.start_lag.get_or_create(&labels).inc_by(Duration::from_millis(sum_ms).as_secs_f64());
            }
        }
    }

    /// What one write told of attempts that ended.
    pub(crate) fn ended(&self, endings: &Endings) {
        for (ending, attempts) in Ending::ALL.into_iter().zip(endings.by_ending) {
            if attempts > 0 {
                self.deliveries.get_or_create(&OutcomeLabels { outcome: ending.as_str() }).inc_by(attempts);
            }
        }
        for (tenant, more) in &endings.by_tenant {
            self.by_tenant.add(tenant, |doings| doings.add_ended(*more));
        }
        self.dead_letters.inc_by(endings.dead);
        self.retries.inc_by(endings.retries);
    }

    pub(crate) fn claims_refused(&self, jobs: usize) {
        self.claims_refused.inc_by(count(jobs));
    }

    pub(crate) fn pushed(&self, took_ms: i64) {
        self.push.observe(seconds(took_ms));
    }

    pub(crate) fn answered(&self, call: Call, status: http::StatusCode, took_ms: i64) {
        self.calls.answered(call, status, Duration::from_millis(took_ms.max(0).unsigned_abs()));
    }

    pub(crate) fn spans(&self) -> &SpanCounts {
        &self.spans
    }

    pub(crate) fn set_writable(&self, is_writable: bool) {
        self.writable.set(i64::from(is_writable));
    }

    pub(crate) fn set_databases(&self, databases: &[Database]) {
        self.databases.set(databases);
    }

    pub(crate) fn set_start_time(&self, at: Timestamp) {
        self.start_time.set(seconds(at.as_ms()));
    }

    pub(crate) fn set_shards(&self, all: u16, owned: usize) {
        self.shards.set(i64::from(all));
        self.shards_owned.set(level(owned));
    }

    pub(crate) fn set_queues(&self, levels: &BTreeMap<&str, QueueLevel>) {
        self.queues.set(levels);
    }

    pub(crate) fn set_oldest_ready(&self, queues_ms: i64, pushes_ms: i64) {
        self.oldest_ready.get_or_create(&LaneLabels { lane: LaneKind::queue }).set(seconds(queues_ms));
        self.oldest_ready.get_or_create(&LaneLabels { lane: LaneKind::push }).set(seconds(pushes_ms));
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
        self.oldest_unpromoted.set(seconds(age_ms));
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
        self.by_tenant.note(now);
    }

    /// What a tenant's jobs did within the window, or since `began`, and over how many milliseconds.
    pub(crate) fn doings(
        &self,
        tenant: &Tenant,
        span: (Timestamp, Timestamp),
        window_ms: i64,
    ) -> (Doings, i64) {
        self.by_tenant.within(tenant, span, window_ms)
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
            lag: self.all_lag.counts(),
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
    pub fn synced(&self, took: Duration) {
        self.sync.observe(took.as_secs_f64());
    }
}
