//! Due jobs of one tenant to one worker process, what that makes the database write, and how soon a handler starts.

use super::site::{Drain, Shape, Site};
use crate::Bench;
use crate::database::DeadRows;
use crate::figures::{Figure, median, number};
use crate::measure::workers::latency;

pub(in crate::measure) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let mut drains = Vec::new();
    for _ in 0..bench.plan.rounds {
        let site = Site::make(bench, Shape::ALONE).await?;
        let drain = site.drain(bench).await?;
        drains.push((drain, site.dead_rows().await?));
        site.remove().await?;
    }
    let (drain, dead) = median(drains, |(drain, _)| drain.rate.per_second())?;
    let mut figures = figures(drain, dead);
    figures.extend(latency(bench).await?);
    Ok(figures)
}

fn figures(drain: Drain, dead: DeadRows) -> Vec<Figure> {
    let per_job = |bytes: u64| number(bytes) / number(drain.jobs.max(1));
    let (stored, drained) = (drain.wal_stored_bytes, drain.wal_drained_bytes);
    let what = "drain of due jobs to a worker process over gRPC; CPU of the server alone, without PostgreSQL";
    vec![
        Figure::rate("workers.drain", what, drain.rate),
        Figure::new("wal.stored", "log written per job stored", per_job(stored), "bytes/job"),
        Figure::new("wal.drained", "log written per job claimed and ended", per_job(drained), "bytes/job"),
        Figure::new("wal", "log written per executed job, in all", per_job(stored + drained), "bytes/job"),
        Figure::new(
            "dead.made",
            "rows updated or deleted per executed job",
            number(dead.made) / number(drain.jobs.max(1)),
            "rows/job",
        ),
        Figure::new("dead.left", "dead rows left after the drain", number(dead.left), "rows"),
    ]
}
