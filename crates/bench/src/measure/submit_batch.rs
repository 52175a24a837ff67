//! Durable submissions over HTTP, a thousand to a request, run times spread over the next day.

use crate::Bench;
use crate::figures::{Figure, Rate};
use crate::jobs;
use crate::load::Load;
use crate::plan::{AHEAD_MS, BATCH_CONNECTIONS, BATCH_COUNT};
use crate::stopwatch::wall_now;
use crate::subject::{Subject, Sync};

/// Enough that no two in a row write to the same places.
const REQUESTS: usize = 8;
const FOLDER: &str = "submit-batch";

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let subject = Subject::start(bench, FOLDER, Sync::On).await?;
    let rate = rate(bench, &subject).await?;
    subject.stop().await?;
    bench.scratch.clear(FOLDER);
    let what = format!("submit, {BATCH_COUNT} a request, {BATCH_CONNECTIONS} connections");
    Ok(vec![Figure::rate("submit.batch", what, rate)])
}

/// How fast a server takes batches in.
pub(super) async fn rate(bench: &Bench, subject: &Subject) -> anyhow::Result<Rate> {
    let load = Load {
        connections: BATCH_CONNECTIONS,
        requests: REQUESTS,
        jobs: BATCH_COUNT as u64,
        time: bench.plan.rate_time,
    };
    load.send(subject, || subject.submit_batch(&jobs::json_batch(&jobs::on_queue(), wall_now(), AHEAD_MS)))
        .await
}
