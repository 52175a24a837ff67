//! Many jobs due at one instant, to the sink: how long after it the last one started.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tidewheel_server::engine::Deliver;
use tidewheel_store::OnConflict;

use crate::Bench;
use crate::figures::{Figure, Spread, number};
use crate::jobs;
use crate::plan::BATCH_COUNT;
use crate::sink::Sink;
use crate::stopwatch::wall_now;
use crate::subject::{open_store, start_engine, until_succeeded};

const FOLDER: &str = "herd";

/// Each try gives the jobs twice the time of the one before to be stored.
const TRIES_MAX: u32 = 4;

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let mut ahead_ms = bench.plan.herd_ahead_ms;
    for _ in 0..TRIES_MAX {
        if let Some(figures) = stampede(bench, ahead_ms).await? {
            return Ok(figures);
        }
        ahead_ms *= 2;
    }
    bail!("the herd could not be stored before its instant: this machine is too busy to tell")
}

/// `None` when the instant came before all jobs were stored.
async fn stampede(bench: &Bench, ahead_ms: i64) -> anyhow::Result<Option<Vec<Figure>>> {
    let count = bench.plan.herd_jobs;
    let store = open_store(bench, FOLDER).await?;
    let sink = Arc::new(Sink::new()?);
    let engine = start_engine(&store, Arc::clone(&sink) as Arc<dyn Deliver>).await?;
    let instant = wall_now().plus_ms(ahead_ms);
    let (nowhere, mut left) = (jobs::push(jobs::NOWHERE), count);
    while left > 0 {
        let size = left.min(BATCH_COUNT as u64);
        left -= size;
        let batch = (0..size).map(|_| jobs::submission(&nowhere, instant, wall_now())).collect();
        engine.submit(batch, OnConflict::KeepOthers).await?;
        bench.progress.count("storing a herd", count - left, count);
    }
    let in_time = wall_now() < instant;
    if in_time {
        until_succeeded(bench, &store, count).await?;
    }
    engine.drain(Duration::from_secs(1)).await;
    store.close().await?;
    drop((engine, store));
    bench.scratch.clear(FOLDER);
    Ok(in_time.then(|| sink.lateness(|late| figures(count, late))))
}

fn figures(count: u64, late: &Spread) -> Vec<Figure> {
    let what = |which: &str| format!("herd of {count} at one instant: {which}");
    vec![
        Figure::new("herd.p50", what("p50 started"), late.quantile_ms(0.5), "ms"),
        Figure::new("herd.p99", what("p99 started"), late.quantile_ms(0.99), "ms"),
        Figure::new("herd.last", what("last started"), late.max_ms(), "ms"),
        Figure::new("herd.early", what("started before their time"), number(late.early()), "jobs"),
    ]
}
