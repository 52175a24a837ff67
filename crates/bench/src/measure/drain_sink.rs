//! Due jobs to a runner inside the process that succeeds at once: everything a server does for a job that is due,
//! claim and outcome included, without the delivery. In turn with the bare engine doing the same writes: what else goes on
//! on the machine, and how fast its disk is just then, hits both.

use std::sync::Arc;

use tidewheel_core::job::State;
use tidewheel_server::engine::Deliver;
use tidewheel_store::Store;

use super::bare;
use crate::Bench;
use crate::figures::{Figure, Meter, Rate};
use crate::jobs;
use crate::plan::REST;
use crate::sink::Sink;
use crate::stopwatch::{pause, wall_now};
use crate::subject::{open_store, start_engine, until_succeeded};

const FOLDER: &str = "drain-sink";
/// Due jobs are spread over this much time before now, as a backlog is.
pub(super) const BACKLOG_MS: i64 = 20_000;

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let (mut bare, mut sink) = (Vec::new(), Vec::new());
    for _ in 0..bench.plan.rounds {
        bare.push(bare::drain(bench).await?);
        sink.push(fresh(bench).await?);
    }
    Ok(vec![
        Figure::rates("bare.drain", "bare engine: read, claim and end jobs", &bare)?,
        Figure::rates("drain.sink", "drain of due jobs to a sink, claim and outcome included", &sink)?,
    ])
}

/// How fast an engine drains a store that holds nothing else.
pub(super) async fn fresh(bench: &Bench) -> anyhow::Result<Rate> {
    let rate = rate(bench, FOLDER).await?;
    bench.scratch.clear(FOLDER);
    Ok(rate)
}

/// How fast an engine drains what is due in the store of that folder, whatever else waits there.
pub(super) async fn rate(bench: &Bench, folder: &str) -> anyhow::Result<Rate> {
    let store = open_store(bench, folder).await?;
    preload(bench, &store).await?;
    // Opened again, as the bare engine is, so that neither has to finish what storing the jobs left to be done.
    store.close().await?;
    drop(store);
    let store = open_store(bench, folder).await?;
    pause(REST).await;
    let rate = drain(bench, &store).await?;
    store.close().await?;
    Ok(rate)
}

async fn preload(bench: &Bench, store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let due = (wall_now().plus_ms(-BACKLOG_MS), BACKLOG_MS);
    jobs::preload(store, &jobs::push(jobs::NOWHERE), bench.plan.sink_jobs, due, &bench.progress).await
}

async fn drain(bench: &Bench, store: &Arc<dyn Store>) -> anyhow::Result<Rate> {
    let count = bench.plan.sink_jobs;
    let before = store.counts(None).await?.of(State::Succeeded);
    let sink: Arc<dyn Deliver> = Arc::new(Sink::new()?);
    let meter = Meter::start()?;
    let engine = start_engine(store, sink).await?;
    until_succeeded(bench, store, before + count).await?;
    let rate = meter.stop(count)?;
    engine.drain(std::time::Duration::from_secs(1)).await;
    Ok(rate)
}
