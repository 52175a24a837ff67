//! How late jobs start that are spread evenly over time: arrival at the target after `run_at`.

use anyhow::Context;

use crate::Bench;
use crate::figures::{Figure, Spread, number};
use crate::jobs;
use crate::plan::{BATCH_COUNT, PATIENCE};
use crate::stopwatch::wall_now;
use crate::subject::{Subject, Sync};
use crate::target::Target;

const FOLDER: &str = "lag";
/// The first job is due that long after the first submission, by when all should be stored.
const LEAD_MS: i64 = 4_000;

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let (count, spread_ms) = (bench.plan.lag_jobs, bench.plan.lag_spread_ms);
    let mut target = Target::listen().await?;
    let subject = Subject::start(bench, FOLDER, Sync::On).await?;
    let mut connection = subject.connect().await?;
    let goes_to = jobs::to_target(&target.url());
    let from = wall_now().plus_ms(LEAD_MS);
    for _ in 0..count / BATCH_COUNT as u64 {
        connection.must(&subject.submit_batch(&jobs::json_batch(&goes_to, from, spread_ms))).await?;
    }
    let mut lag = Spread::new()?;
    while lag.count() < count {
        let arrival = tokio::time::timeout(PATIENCE, target.next()).await?.context("the target is gone")?;
        lag.record(arrival.at_us - arrival.run_at.as_ms() * 1_000);
        if lag.count() % 100 == 0 {
            bench.progress.count("lag of jobs spread over time", lag.count(), count);
        }
    }
    subject.stop().await?;
    bench.scratch.clear(FOLDER);
    let what = |which| format!("lag of {count} jobs spread over {} s: {which}", spread_ms / 1_000);
    Ok(vec![
        Figure::new("lag.p50", what("p50"), lag.quantile_ms(0.5), "ms"),
        Figure::new("lag.p99", what("p99"), lag.quantile_ms(0.99), "ms"),
        Figure::new("lag.max", what("max"), lag.max_ms(), "ms"),
        Figure::new("lag.early", what("started before their time"), number(lag.early()), "jobs"),
    ])
}
