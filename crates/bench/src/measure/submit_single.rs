//! Durable submissions over HTTP, one to a request, over many connections; then without waiting for the disk, which
//! shows what group commit leaves of that wait.

use crate::Bench;
use crate::figures::{Figure, Rate};
use crate::jobs;
use crate::load::Load;
use crate::plan::{AHEAD_MS, SINGLE_CONNECTIONS};
use crate::stopwatch::wall_now;
use crate::subject::{Subject, Sync};

const REQUESTS: usize = 64;
const FOLDER: &str = "submit-single";

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let durable = rate(bench, Sync::On).await?;
    let what = format!("submit, 1 a request, {SINGLE_CONNECTIONS} connections");
    let mut figures = vec![Figure::rate("submit.single", what.clone(), durable)];
    if bench.remote.is_none() {
        let loose = rate(bench, Sync::Off).await?;
        figures.push(Figure::rate("submit.single.no_sync", format!("{what}, sync off"), loose));
    }
    Ok(figures)
}

async fn rate(bench: &Bench, sync: Sync) -> anyhow::Result<Rate> {
    let subject = Subject::start(bench, FOLDER, sync).await?;
    let load =
        Load { connections: SINGLE_CONNECTIONS, requests: REQUESTS, jobs: 1, time: bench.plan.rate_time };
    let render = || {
        let at = jobs::instant_within(wall_now(), AHEAD_MS);
        subject.submit_one(&jobs::json(&jobs::on_queue(), Some(at)))
    };
    let rate = load.send(&subject, render).await?;
    subject.stop().await?;
    bench.scratch.clear(FOLDER);
    Ok(rate)
}
