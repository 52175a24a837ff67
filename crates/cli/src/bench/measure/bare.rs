//! The storage engine doing the writes a server does, without the server: what the rest is measured against.

use std::time::Duration;

use anyhow::Context;
use tidewheel_store_embedded::bare;

use crate::bench::Bench;
use crate::bench::figures::{Figure, Meter};
use crate::bench::jobs::payload_bytes;
use crate::bench::plan::BATCH_COUNT;

const FOLDER: &str = "bare";
const DRAIN_FOLDER: &str = "bare-drain";
const SYNC: bool = true;

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let (count, time) = (bench.plan.sink_jobs, bench.plan.rate_time);
    let (folder, drained) = (bench.scratch.folder(FOLDER), bench.scratch.folder(DRAIN_FOLDER));
    let progress = bench.progress.clone();
    let measured = tokio::task::spawn_blocking(move || {
        // As long as submissions are measured, and as many as the server drains: the engine slows down as it fills.
        progress.say("the bare engine, writing jobs");
        let meter = Meter::start()?;
        let ingest = bare::ingest(&folder, (u64::MAX, time), BATCH_COUNT, payload_bytes(), SYNC)?;
        let ingest = meter.stop(ingest.jobs)?.taking(ingest.elapsed);
        progress.say("the bare engine, draining jobs");
        bare::ingest(&drained, (count, Duration::MAX), BATCH_COUNT, payload_bytes(), SYNC)?;
        let meter = Meter::start()?;
        let drain = bare::drain(&drained, BATCH_COUNT, payload_bytes(), SYNC)?;
        let drain = meter.stop(drain.jobs)?.taking(drain.elapsed);
        anyhow::Ok((ingest, drain))
    });
    let (ingest, drain) = measured.await.context("the bare engine was cut short")??;
    bench.scratch.clear(FOLDER);
    bench.scratch.clear(DRAIN_FOLDER);
    Ok(vec![
        Figure::rate("bare.ingest", format!("bare engine: write jobs, {BATCH_COUNT} a sync"), ingest),
        Figure::rate("bare.drain", "bare engine: read, claim and end jobs", drain),
    ])
}
