//! A database with servers on it: taking jobs in, and draining them through worker processes.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tidewheel_core::job::{Destination, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_server::engine::Config;
use tidewheel_store::Store;
use tidewheel_store_postgres::{Options, PostgresStore};

use crate::Bench;
use crate::database::{Database, DeadRows};
use crate::figures::{Meter, Rate};
use crate::jobs;
use crate::load::Load;
use crate::measure::drain_sink::BACKLOG_MS;
use crate::plan::{AHEAD_MS, BATCH_CONNECTIONS, BATCH_COUNT, LATER_MS, PATIENCE};
use crate::stopwatch::{Stopwatch, pause, wall_now};
use crate::subject::{Subject, Sync, unpaced};
use crate::worker_process::WorkerProcess;

/// How often a condition that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How often the servers are asked how many jobs are done: telling it costs them a little.
const LOOK_AT_DRAIN: Duration = Duration::from_millis(25);
/// How often the database is asked how many jobs are done, while the servers say that not all are.
const ASK: Duration = Duration::from_secs(1);
/// How long before their time the last of the jobs is stored that fall due when everybody is there.
const LEAD_MS: i64 = 20_000;
/// The same for one server, which need not share shards out with another.
const LEAD_ALONE_MS: i64 = 5_000;
/// How fast jobs are stored at least.
const STORED_PER_MS_MIN: u64 = 10;
/// How often jobs are stored, each time further ahead, so that everybody is there when they fall due.
const TRIES: usize = 4;
/// What is drained counts as through after 10 s and two looks 5 s apart.
const REST: Duration = Duration::from_secs(25);
/// Enough that no two in a row write to the same places.
const REQUESTS: usize = 8;

/// What works on a database.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) nodes: usize,
    pub(super) tenants: usize,
    /// Worker processes, at the nodes in turn.
    pub(super) workers: usize,
    /// Whether jobs fall due when all servers and workers are there, so that none has a start over the others. Otherwise
    /// they are due before, and servers read them as soon as they have a shard; and where a server has just been, those due some
    /// seconds before come in below what counts as through, and take a slower path than others.
    pub(super) all_begin: bool,
    /// Whether servers have a while after their start before submissions are measured: in a database that is used again they
    /// step over what was drained just before, until it counts as through.
    pub(super) rests: bool,
}

impl Shape {
    /// One of each.
    pub(super) const ALONE: Self = Self { nodes: 1, tenants: 1, workers: 1, all_begin: false, rests: false };

    /// Whose jobs: those of one tenant are all at one node.
    pub(super) fn tenants(self) -> anyhow::Result<Vec<Tenant>> {
        if self.tenants == 1 {
            return Ok(vec![Tenant::default()]);
        }
        (0..self.tenants).map(|number| Ok(Tenant::new(&format!("bench-{number}"))?)).collect()
    }
}

/// What one drain showed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    pub(super) rate: Rate,
    /// Jobs drained.
    pub(super) jobs: u64,
    /// Log written while they were stored.
    pub(super) wal_stored_bytes: u64,
    /// Log written while they were drained.
    pub(super) wal_drained_bytes: u64,
}

/// A database, and what works on it.
pub(super) struct Site {
    pub(super) database: Database,
    shape: Shape,
}

impl Site {
    /// A new database, without a job.
    pub(super) async fn make(bench: &Bench, shape: Shape) -> anyhow::Result<Self> {
        let server = bench.postgres.as_ref().context("no PostgreSQL was named")?;
        Ok(Self { database: server.make(Sync::On).await?, shape })
    }

    /// How fast batches are taken in, of jobs that nobody works on. Nobody rests for what does not count.
    pub(super) async fn submit(&self, bench: &Bench, counts: bool) -> anyhow::Result<Rate> {
        bench.progress.say("submissions in batches");
        let nodes = self.start(bench, Config::default()).await?;
        if self.shape.rests && counts {
            pause(REST).await;
        }
        let first = nodes.first().context("a site without a server")?;
        let tenants = self.shape.tenants()?;
        let turns = RefCell::new(tenants.iter().cycle());
        let load = Load {
            connections: BATCH_CONNECTIONS,
            requests: REQUESTS,
            jobs: BATCH_COUNT as u64,
            time: bench.plan.rate_time,
        };
        let render = || {
            // Those that fall due in a database that is used again are looked at in every round: nobody takes them.
            let from = wall_now().plus_ms(LATER_MS);
            let batch = jobs::json_batch(&jobs::on_queue_of_later(), from, AHEAD_MS);
            let tenant = turns.borrow_mut().next().cloned().unwrap_or_default();
            first.submit_batch_for(&tenant, &batch)
        };
        let all: Vec<&Subject> = nodes.iter().collect();
        let rate = load.send_to(&all, render).await?;
        stop(nodes).await?;
        Ok(rate)
    }

    /// Stores due jobs, then has them drained.
    pub(super) async fn drain(&self, bench: &Bench) -> anyhow::Result<Drain> {
        let mut ahead_ms = lead_ms(self.shape.nodes, bench.plan.postgres_jobs);
        for _ in 0..TRIES {
            if let Some(drain) = self.drain_after(bench, ahead_ms).await? {
                return Ok(drain);
            }
            // The machine is busy: others are given more time.
            ahead_ms = ahead_ms.saturating_mul(3);
        }
        bail!("it took too long to begin")
    }

    /// The same, once. Where all begin together they do so after that long; nothing if they were not there by then.
    async fn drain_after(&self, bench: &Bench, ahead_ms: i64) -> anyhow::Result<Option<Drain>> {
        let count = bench.plan.postgres_jobs;
        let wal = self.database.wal_bytes().await?;
        let first = wall_now().plus_ms(if self.shape.all_begin { ahead_ms } else { -BACKLOG_MS });
        let span_ms = if self.shape.all_begin { 0 } else { BACKLOG_MS };
        let before = self.store(bench, &jobs::queue(), count, (first, span_ms)).await?;
        let wal_stored_bytes = self.database.wal_bytes().await? - wal;

        let mut config = unpaced();
        if self.shape.all_begin {
            // Together they hold as many jobs in memory as one does.
            config.held_count_max /= self.shape.nodes;
        }
        let nodes = self.start(bench, config).await?;
        let mut workers = self.workers(&nodes).await?;
        let wal = self.database.wal_bytes().await?;
        let mut meter = Meter::start()?;
        for worker in &mut workers {
            worker.go().await?;
        }
        let left_ms = first.since_ms(wall_now());
        let is_late = self.shape.all_begin && left_ms < 0;
        if self.shape.all_begin {
            pause(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))).await;
            meter = Meter::start()?;
        }
        until_succeeded(bench, &nodes, before, count).await?;
        let rate = meter.stop(count)?;
        let wal_drained_bytes = self.database.wal_bytes().await? - wal;
        for worker in workers {
            worker.stop().await?;
        }
        stop(nodes).await?;
        Ok((!is_late).then_some(Drain { rate, jobs: count, wal_stored_bytes, wal_drained_bytes }))
    }

    /// Stores jobs without a server; how many had succeeded before.
    pub(super) async fn store(
        &self,
        bench: &Bench,
        destination: &Destination,
        count: u64,
        when: (Timestamp, i64),
    ) -> anyhow::Result<u64> {
        let store = PostgresStore::open(Options::new(self.database.url())).await?;
        let store: Arc<dyn Store> = Arc::new(store);
        let before = store.counts(None).await?.of(State::Succeeded);
        let tenants = self.shape.tenants()?;
        jobs::preload_of(&tenants, &store, destination, count, when, &bench.progress).await?;
        store.close().await?;
        Ok(before)
    }

    /// Starts the servers, and waits until they have shared out the shards.
    pub(super) async fn start(&self, bench: &Bench, config: Config) -> anyhow::Result<Vec<Subject>> {
        let mut nodes = Vec::with_capacity(self.shape.nodes);
        for _ in 0..self.shape.nodes {
            nodes.push(Subject::start_on(bench, &self.database, config.clone()).await?);
        }
        let watch = Stopwatch::start();
        loop {
            let (mut held, mut all, mut idle) = (0, 0, false);
            for node in &nodes {
                let engine = node.engine()?;
                let own = engine.held().len();
                held += own;
                idle |= own == 0;
                all = usize::from(engine.store().layout().shards);
            }
            if held == all && !idle {
                return Ok(nodes);
            }
            ensure!(watch.elapsed() < PATIENCE, "the servers do not share out the shards: {held} of {all}");
            pause(LOOK).await;
        }
    }

    async fn workers(&self, nodes: &[Subject]) -> anyhow::Result<Vec<WorkerProcess>> {
        let mut workers = Vec::with_capacity(self.shape.workers);
        for node in nodes.iter().cycle().take(self.shape.workers) {
            workers.push(if self.shape.tenants == 1 {
                WorkerProcess::start("drain", 1, &node.url()).await?
            } else {
                WorkerProcess::start_for_all("drain", &node.url()).await?
            });
        }
        Ok(workers)
    }

    /// Rows of its tables that are dead.
    pub(super) async fn dead_rows(&self) -> anyhow::Result<DeadRows> {
        self.database.dead_rows().await
    }

    /// Drops the database.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        self.database.remove().await
    }
}

/// How long before their time that many jobs begin to be stored, so that all are, and everybody is there, when it comes.
fn lead_ms(nodes: usize, count: u64) -> i64 {
    let lead_ms = if nodes == 1 { LEAD_ALONE_MS } else { LEAD_MS };
    lead_ms.saturating_add(i64::try_from(count / STORED_PER_MS_MIN).unwrap_or(i64::MAX))
}

/// Stops all servers.
pub(super) async fn stop(nodes: Vec<Subject>) -> anyhow::Result<()> {
    for node in nodes {
        node.stop().await?;
    }
    Ok(())
}

/// Waits until that many more have succeeded. The servers are asked often, the database seldom: it is what is measured.
async fn until_succeeded(bench: &Bench, nodes: &[Subject], before: u64, count: u64) -> anyhow::Result<()> {
    let (watch, mut asked) = (Stopwatch::start(), Stopwatch::start());
    let store = nodes.first().context("a site without a server")?.engine()?.store();
    loop {
        let mut told = 0;
        for node in nodes {
            told += deliveries(&node.engine()?.metrics().render());
        }
        bench.progress.count("draining", told, count);
        if told >= count || asked.elapsed() > ASK {
            let done = store.counts(None).await?.of(State::Succeeded).saturating_sub(before);
            if done >= count {
                return Ok(());
            }
            ensure!(
                watch.elapsed() < PATIENCE,
                "only {done} of {count} jobs were done in {} s",
                PATIENCE.as_secs()
            );
            asked = Stopwatch::start();
        }
        pause(LOOK_AT_DRAIN).await;
    }
}

/// How many attempts have succeeded, by a server's metrics.
fn deliveries(metrics: &str) -> u64 {
    const NAME: &str = "tidewheel_deliveries_total{outcome=\"succeeded\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(NAME)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_jobs_are_stored_longer_before_their_time() {
        assert_eq!((lead_ms(1, 0), lead_ms(2, 0)), (LEAD_ALONE_MS, LEAD_MS));
        // However many there are, as much is left for servers and workers to start.
        assert_eq!(lead_ms(2, 1_000_000), LEAD_MS + 100_000);
        assert!(lead_ms(2, u64::MAX) > LEAD_MS);
    }

    #[test]
    fn the_servers_metrics_tell_what_is_done() {
        let text = tidewheel_server::metrics::Metrics::new().render();
        assert!(text.contains("tidewheel_deliveries_total{outcome=\"succeeded\"} 0"), "{text}");
        assert_eq!(deliveries("a 1\ntidewheel_deliveries_total{outcome=\"succeeded\"} 42\n"), 42);
    }
}
