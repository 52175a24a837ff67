//! From the sending of a submission to the arrival of the push, one job at a time on an idle server.

use std::time::Duration;

use anyhow::Context;

use crate::Bench;
use crate::figures::{Figure, Spread};
use crate::jobs;
use crate::plan::PATIENCE;
use crate::stopwatch::{pause, wall_us};
use crate::subject::{Subject, Sync};
use crate::target::Target;

const FOLDER: &str = "latency";
/// Between two jobs, so that the server is idle when the next comes.
const GAP: Duration = Duration::from_millis(5);

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let mut target = Target::listen().await?;
    let subject = Subject::start(bench, FOLDER, Sync::On).await?;
    let mut connection = subject.connect().await?;
    let request = subject.submit_one(&jobs::json(&jobs::to_target(&target.url()), None));
    let mut spread = Spread::new()?;
    for done in 0..bench.plan.latency_jobs {
        bench.progress.count("latency when idle", done, bench.plan.latency_jobs);
        pause(GAP).await;
        let sent_us = wall_us();
        connection.must(&request).await?;
        let arrival = tokio::time::timeout(PATIENCE, target.next()).await?.context("the target is gone")?;
        spread.record(arrival.at_us - sent_us);
    }
    subject.stop().await?;
    bench.scratch.clear(FOLDER);
    let what = |which| format!("submit to start, idle: {which}");
    Ok(vec![
        Figure::new("latency.p50", what("p50"), spread.quantile_ms(0.5), "ms"),
        Figure::new("latency.p99", what("p99"), spread.quantile_ms(0.99), "ms"),
        Figure::new("latency.max", what("max"), spread.max_ms(), "ms"),
    ])
}
