//! Due jobs to an HTTP target on this machine, by a server with its usual bounds.

use tidewheel_server::engine::Config;

use crate::bench::Bench;
use crate::bench::figures::{Figure, Meter};
use crate::bench::jobs;
use crate::bench::stopwatch::wall_now;
use crate::bench::subject::{Subject, Sync, open_store, unpaced, until_succeeded};
use crate::bench::target::Target;

use super::drain_sink::BACKLOG_MS;

const FOLDER: &str = "drain-target";

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let count = bench.plan.target_jobs;
    let target = Target::listen().await?;
    let store = open_store(bench, FOLDER).await?;
    let due = (wall_now().plus_ms(-BACKLOG_MS), BACKLOG_MS);
    jobs::preload(&store, &jobs::push(&target.url()), count, due, &bench.progress).await?;
    store.close().await?;
    drop(store);
    let config = Config { catch_up_per_second: unpaced().catch_up_per_second, ..Config::default() };
    let meter = Meter::start()?;
    let subject = Subject::start_own(bench, FOLDER, Sync::On, config).await?;
    until_succeeded(bench, subject.engine()?.store(), count).await?;
    let rate = meter.stop(count)?;
    subject.stop().await?;
    bench.scratch.clear(FOLDER);
    Ok(vec![Figure::rate("drain.target", "drain of due jobs to a local HTTP target", rate)])
}
