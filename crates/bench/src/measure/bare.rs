//! The storage engine doing the writes a server does, without the server: what the rest is measured against.

use std::time::Duration;

use anyhow::Context;
use tidewheel_store_embedded::bare::{self, Rates};

use crate::Bench;
use crate::figures::{Figure, Meter, Rate};
use crate::jobs::payload_bytes;
use crate::plan::{BATCH_COUNT, REST};

const FOLDER: &str = "bare";
const DRAIN_FOLDER: &str = "bare-drain";
const SYNC: bool = true;

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    // As long as submissions are measured: the engine slows down as it fills.
    let time = bench.plan.rate_time;
    let folder = bench.scratch.folder(FOLDER);
    bench.progress.say("the bare engine, writing jobs");
    let rate =
        metered(move || Ok(bare::ingest(&folder, (u64::MAX, time), BATCH_COUNT, payload_bytes(), SYNC)?))
            .await?;
    bench.scratch.clear(FOLDER);
    Ok(vec![Figure::rate("bare.ingest", format!("bare engine: write jobs, {BATCH_COUNT} a sync"), rate)])
}

/// How fast it drains as many jobs as the server does.
pub(super) async fn drain(bench: &Bench) -> anyhow::Result<Rate> {
    let count = bench.plan.sink_jobs;
    let folder = bench.scratch.folder(DRAIN_FOLDER);
    bench.progress.say("the bare engine, draining jobs");
    let filled = folder.clone();
    metered(move || Ok(bare::ingest(&filled, (count, Duration::MAX), BATCH_COUNT, payload_bytes(), SYNC)?))
        .await?;
    let rate = metered(move || Ok(bare::drain(&folder, REST, BATCH_COUNT, payload_bytes(), SYNC)?)).await?;
    bench.scratch.clear(DRAIN_FOLDER);
    Ok(rate)
}

async fn metered(work: impl FnOnce() -> anyhow::Result<Rates> + Send + 'static) -> anyhow::Result<Rate> {
    let measured = tokio::task::spawn_blocking(move || {
        let meter = Meter::start()?;
        let rates = work()?;
        anyhow::Ok(meter.stop(rates.jobs)?.taking(rates.elapsed))
    });
    measured.await.context("the bare engine was cut short")?
}
