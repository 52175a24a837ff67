//! One look at a server: what it said, put together.

use std::collections::BTreeMap;

use serde::Serialize;
use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::time::Timestamp;

use super::answers::{Cluster, Lag, Memory, Overview, Rates, Tenants, Worker, Workers};
use super::exposition::Metrics;

/// As many tenants with jobs waiting as an overview names.
const TENANTS_NAMED_COUNT_MAX: usize = 20;
/// Why jobs do not move, in the server's word, where nobody takes from their queue.
const NO_WORKER: &str = "no_worker";

/// Everything the server said at one look.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) url: String,
    /// The caller's tenant.
    pub(super) own: String,
    pub(super) overview: Overview,
    pub(super) cluster: Cluster,
    pub(super) workers: Workers,
    pub(super) tenants: Tenants,
    pub(super) metrics: Metrics,
    /// Jobs by state, of other tenants.
    pub(super) counts: BTreeMap<String, BTreeMap<String, u64>>,
    /// Tenants that were not asked about.
    pub(super) uncounted: usize,
    /// What the key may not see.
    pub(super) absent: Vec<&'static str>,
}

/// Attempts started by then.
#[derive(Debug)]
pub(super) struct Starts {
    pub(super) at_ms: i64,
    pub(super) by_tenant: BTreeMap<String, u64>,
    /// Whether tenants that are not among these have started some, too.
    pub(super) of_others: bool,
}

/// One look, as it is drawn, and printed with `-o json`.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Frame {
    pub(super) at: String,
    pub(super) url: String,
    pub(super) store: String,
    pub(super) shards: u64,
    pub(super) lag: Lag,
    pub(super) rates: Rates,
    /// Started per second, of the last minutes, oldest first.
    pub(super) started_history: Vec<f64>,
    pub(super) jobs: Jobs,
    /// Whose jobs those are; none is everybody's.
    pub(super) jobs_of: Option<String>,
    pub(super) memory: Memory,
    pub(super) backlog_age_ms: u64,
    pub(super) tenants: Vec<TenantRow>,
    pub(super) tenants_not_counted: usize,
    /// Whether jobs of yet other tenants wait.
    pub(super) tenants_more: bool,
    pub(super) lanes: Vec<LaneRow>,
    pub(super) workers: Vec<WorkerRow>,
    /// Whether there are more workers than these.
    pub(super) workers_more: bool,
    pub(super) nodes: Vec<NodeRow>,
    /// What the key may not see.
    pub(super) not_shown: Vec<&'static str>,
}

/// Jobs by what they do.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Jobs {
    pub(super) scheduled: u64,
    pub(super) running: u64,
    pub(super) retrying: u64,
    pub(super) succeeded: u64,
    pub(super) dead: u64,
}

impl Jobs {
    fn read(counts: &BTreeMap<String, u64>) -> Self {
        let of = |state: &str| counts.get(state).copied().unwrap_or_default();
        Self {
            scheduled: of("scheduled"),
            running: of("running"),
            retrying: of("retrying"),
            succeeded: of("succeeded"),
            dead: of("dead"),
        }
    }

    /// Those that will run by themselves.
    pub(super) const fn waiting(self) -> u64 {
        self.scheduled + self.retrying
    }
}

/// A tenant and its jobs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TenantRow {
    pub(super) name: String,
    pub(super) weight: Option<u64>,
    pub(super) jobs: Jobs,
    pub(super) started_per_s: Option<f64>,
}

/// Jobs that are due and go to one place.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LaneRow {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) due: u64,
    /// Whether there are more in the store.
    pub(super) more: bool,
    pub(super) oldest_ms: Option<i64>,
    pub(super) workers: Option<u64>,
    pub(super) waits_for: Option<String>,
}

/// A worker.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WorkerRow {
    pub(super) name: String,
    pub(super) queues: Vec<String>,
    pub(super) state: &'static str,
    pub(super) running: u64,
    pub(super) room: u64,
    pub(super) heard_ms: Option<i64>,
}

/// A server of the cluster.
#[derive(Debug, Clone, Serialize)]
pub(super) struct NodeRow {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) shards: u64,
    pub(super) epoch: Option<u64>,
    pub(super) lag_ms: Option<u64>,
    pub(super) version: String,
}

impl Answers {
    /// Puts them together. Rates of tenants come from what was started since the look before.
    pub(super) fn into_frame(self, before: Option<&Starts>, starts: &Starts) -> Frame {
        let tenants = self.tenant_rows(before, starts);
        let lanes = self.lane_rows();
        let now = self.overview.now.parse::<Timestamp>().ok();
        let knows_all = !self.metrics.jobs.is_empty();
        let jobs = if knows_all { &self.metrics.jobs } else { &self.overview.jobs };
        let tenants_more = self.has_more_waiting(&tenants);
        Frame {
            jobs: Jobs::read(jobs),
            jobs_of: (!knows_all).then(|| self.own.clone()),
            url: self.url,
            at: self.overview.now,
            store: self.cluster.store,
            shards: self.cluster.shards,
            lag: self.overview.lag,
            rates: self.overview.rates,
            started_history: self.overview.history.iter().map(|past| past.started).collect(),
            memory: self.overview.memory,
            backlog_age_ms: self.overview.backlog_age_ms,
            tenants,
            tenants_not_counted: self.uncounted,
            tenants_more,
            lanes,
            workers_more: self.workers.next_cursor.is_some(),
            workers: self.workers.items.into_iter().map(|worker| worker_row(worker, now)).collect(),
            nodes: self.cluster.nodes.into_iter().map(node_row).collect(),
            not_shown: self.absent,
        }
    }

    /// Those with most waiting and running first.
    fn tenant_rows(&self, before: Option<&Starts>, starts: &Starts) -> Vec<TenantRow> {
        let own = std::iter::once((&self.own, &self.overview.jobs));
        let mut rows: Vec<TenantRow> = own
            .chain(self.counts.iter().filter(|(name, _)| **name != self.own))
            .map(|(name, counts)| TenantRow {
                name: name.clone(),
                weight: self
                    .tenants
                    .items
                    .iter()
                    .find(|tenant| tenant.id == *name)
                    .map(|tenant| tenant.weight),
                jobs: Jobs::read(counts),
                started_per_s: before.and_then(|before| rate(name, before, starts)),
            })
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.jobs.waiting() + row.jobs.running));
        rows
    }

    /// Whether jobs wait that are of none of these. What is counted over all tenants is a moment old and may differ for
    /// that alone, so it decides only where the server named as many tenants as it ever does.
    fn has_more_waiting(&self, rows: &[TenantRow]) -> bool {
        let named = self.overview.tenants.as_ref().map_or(0, Vec::len);
        let shown: u64 = rows.iter().map(|row| row.jobs.waiting()).sum();
        named >= TENANTS_NAMED_COUNT_MAX && shown < Jobs::read(&self.metrics.jobs).waiting()
    }

    /// The deepest first. Queues are known over all tenants only to those who may see the metrics.
    fn lane_rows(&self) -> Vec<LaneRow> {
        let now = self.overview.now.parse::<Timestamp>().ok();
        let mut rows: Vec<LaneRow> = Vec::new();
        for (name, queue) in self.metrics.queues.iter().filter(|(_, queue)| queue.depth + queue.workers > 0) {
            #[expect(clippy::cast_possible_truncation, reason = "an age in milliseconds")]
            let oldest_ms = (queue.oldest_age_s * 1_000.0) as i64;
            rows.push(LaneRow {
                kind: "queue".to_owned(),
                name: name.clone(),
                due: queue.depth,
                more: false,
                oldest_ms: (queue.depth > 0).then_some(oldest_ms),
                workers: Some(queue.workers),
                // The overview gives reasons for the own jobs alone; this one follows from the numbers.
                waits_for: (queue.depth > 0 && queue.workers == 0).then(|| NO_WORKER.to_owned()),
            });
        }
        for lane in &self.overview.lanes {
            let known = rows.iter_mut().find(|row| row.kind == lane.kind && row.name == lane.name);
            if let Some(row) = known {
                row.waits_for.clone_from(&lane.waits_for);
                row.more |= lane.more;
                row.due = row.due.max(lane.depth);
                continue;
            }
            let oldest = lane.oldest_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
            rows.push(LaneRow {
                kind: lane.kind.clone(),
                name: lane.name.clone(),
                due: lane.depth,
                more: lane.more,
                oldest_ms: now.zip(oldest).map(|(now, oldest)| now.since_ms(oldest).max(0)),
                workers: None,
                waits_for: lane.waits_for.clone(),
            });
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.due));
        rows
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
fn rate(tenant: &str, before: &Starts, now: &Starts) -> Option<f64> {
    // Who may not see the metrics sees no tenant in them.
    let ms = now.at_ms.checked_sub(before.at_ms).filter(|ms| *ms > 0 && !now.by_tenant.is_empty())?;
    // Those who are counted together have no rate of their own.
    if now.of_others && !now.by_tenant.contains_key(tenant) {
        return None;
    }
    let [earlier, later] = [before, now].map(|starts| starts.by_tenant.get(tenant).copied().unwrap_or(0));
    // A server that started anew counts from zero.
    Some(later.saturating_sub(earlier) as f64 * SECOND_MS as f64 / ms as f64)
}

fn worker_row(worker: Worker, now: Option<Timestamp>) -> WorkerRow {
    let heard = worker.last_heard_at.parse::<Timestamp>().ok();
    WorkerRow {
        name: if worker.name.is_empty() { worker.id } else { worker.name },
        queues: worker.queues,
        state: match (worker.connected, worker.draining) {
            (false, _) => "silent",
            (true, true) => "draining",
            (true, false) => "connected",
        },
        running: worker.in_flight,
        room: worker.credits,
        heard_ms: now.zip(heard).map(|(now, heard)| now.since_ms(heard).max(0)),
    }
}

fn node_row(node: super::answers::Node) -> NodeRow {
    NodeRow {
        epoch: node.leases.iter().map(|lease| lease.epoch).max(),
        id: node.id,
        state: node.state,
        shards: node.shards,
        lag_ms: node.lag_ms,
        version: node.version,
    }
}
