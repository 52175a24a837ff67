//! Workers in processes of their own, over the gRPC stream: how fast they drain a backlog, how soon a handler starts, and
//! what workers cost that only wait.

use std::time::Duration;

use anyhow::Context;
use tidewheel_core::limits::WORKER_IDLE_HEARTBEAT_MS_DEFAULT;
use tidewheel_core::names::Tenant;
use tidewheel_server::engine::Config;

use super::drain_sink::{self, BACKLOG_MS};
use crate::Bench;
use crate::figures::{Figure, Meter, Rate, Spread, number};
use crate::jobs;
use crate::plan::REST;
use crate::process::{cpu_seconds, resident_bytes};
use crate::stopwatch::{Stopwatch, pause, wall_now, wall_us};
use crate::subject::{Subject, Sync, open_store, unpaced, until_succeeded};
use crate::worker_process::{WorkerProcess, start_many};

const FOLDER: &str = "workers";
const LATENCY_FOLDER: &str = "workers-latency";
const IDLE_FOLDER: &str = "workers-idle";
/// Between two jobs, so that everybody is idle when the next comes.
const GAP: Duration = Duration::from_millis(5);
const MB: f64 = 1e6;

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    // Memory first, before the others have used any.
    let mut figures = idle(bench).await?;
    let (mut sink, mut one, mut two) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.plan.rounds {
        sink.push(drain_sink::fresh(bench).await?);
        // Who comes last has the disk write out beside it what the others left.
        let turns =
            if round % 2 == 0 { [(1, &mut one), (2, &mut two)] } else { [(2, &mut two), (1, &mut one)] };
        for (processes, rates) in turns {
            rates.push(drain(bench, processes).await?);
        }
    }
    let what = |who: &str| format!("drain of due jobs to {who} over gRPC; CPU of the server alone");
    figures.push(Figure::rates("workers.sink", "drain of due jobs to a sink, in turn with workers", &sink)?);
    figures.push(Figure::rates("workers.drain", what("a worker process"), &one)?);
    figures.push(Figure::rates("workers.drain.two", what("two worker processes"), &two)?);
    figures.extend(latency(bench).await?);
    Ok(figures)
}

async fn drain(bench: &Bench, processes: usize) -> anyhow::Result<Rate> {
    let count = bench.plan.sink_jobs;
    let store = open_store(bench, FOLDER).await?;
    let due = (wall_now().plus_ms(-BACKLOG_MS), BACKLOG_MS);
    jobs::preload(&store, &jobs::queue(), count, due, &bench.progress).await?;
    store.close().await?;
    drop(store);
    let subject = Subject::start_own(bench, FOLDER, Sync::On, unpaced()).await?;
    let mut workers = start_many("drain", processes, &subject.url()).await?;
    pause(REST).await;
    let meter = Meter::start()?;
    for worker in &mut workers {
        worker.go().await?;
    }
    until_succeeded(bench, subject.engine()?.store(), count).await?;
    let rate = meter.stop(count)?;
    for worker in workers {
        worker.stop().await?;
    }
    subject.stop().await?;
    bench.scratch.clear(FOLDER);
    Ok(rate)
}

pub(super) async fn latency(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let subject = Subject::start(bench, LATENCY_FOLDER, Sync::On).await?;
    let mut worker = WorkerProcess::start("tell", 1, &subject.url()).await?;
    worker.go().await?;
    let request = subject.submit_one(&jobs::json(&jobs::on_queue(), None));
    let spread = until_handled(bench, &subject, &request, &mut worker).await?;
    worker.stop().await?;
    subject.stop().await?;
    bench.scratch.clear(LATENCY_FOLDER);
    let what = |which| format!("submit to handler of a worker process, idle: {which}");
    Ok(vec![
        Figure::new("workers.latency.p50", what("p50"), spread.quantile_ms(0.5), "ms"),
        Figure::new("workers.latency.p99", what("p99"), spread.quantile_ms(0.99), "ms"),
        Figure::new("workers.latency.max", what("max"), spread.max_ms(), "ms"),
    ])
}

/// From the sending of a request to the start of the handler, one job at a time.
pub(super) async fn until_handled(
    bench: &Bench,
    subject: &Subject,
    request: &[u8],
    worker: &mut WorkerProcess,
) -> anyhow::Result<Spread> {
    let mut connection = subject.connect().await?;
    let mut spread = Spread::new()?;
    for done in 0..bench.plan.latency_jobs {
        bench.progress.count("submit to handler, idle", done, bench.plan.latency_jobs);
        pause(GAP).await;
        let sent_us = wall_us();
        connection.must(request).await?;
        let started_us: i64 = worker.line().await?.parse().context("when a handler started")?;
        spread.record(started_us - sent_us);
    }
    Ok(spread)
}

async fn idle(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let count = bench.plan.idle_workers;
    let subject = Subject::start_own(bench, IDLE_FOLDER, Sync::On, Config::default()).await?;
    let empty = resident_bytes()?;
    bench.progress.say("connecting idle workers");
    let workers = WorkerProcess::start("idle", count, &subject.url()).await?;
    until_connected(bench, &subject, count).await?;
    bench.progress.say("watching idle workers");
    // A whole round of the heartbeats of idle workers.
    let time = Duration::from_millis(WORKER_IDLE_HEARTBEAT_MS_DEFAULT.unsigned_abs());
    let (watch, before) = (Stopwatch::start(), cpu_seconds()?);
    pause(time).await;
    let cpu = (cpu_seconds()? - before) / watch.elapsed().as_secs_f64();
    let resident = resident_bytes()?.max(empty);
    workers.stop().await?;
    subject.stop().await?;
    bench.scratch.clear(IDLE_FOLDER);
    let what = |which: &str| format!("{count} idle workers: {which}");
    Ok(vec![
        Figure::new("workers.idle.cpu", what("the server's CPU"), cpu * 100.0, "% of a core"),
        Figure::new("workers.idle.memory", what("memory they take"), number(resident - empty) / MB, "MB"),
    ])
}

async fn until_connected(bench: &Bench, subject: &Subject, count: u64) -> anyhow::Result<()> {
    let watch = Stopwatch::start();
    loop {
        let all = usize::try_from(count).unwrap_or(usize::MAX);
        let connected = subject.engine()?.workers(Tenant::default(), 0, all).await.len() as u64;
        if connected >= count {
            return Ok(());
        }
        anyhow::ensure!(watch.elapsed() < crate::plan::PATIENCE, "only {connected} workers connected");
        bench.progress.count("connecting idle workers", connected, count);
        pause(Duration::from_millis(50)).await;
    }
}
