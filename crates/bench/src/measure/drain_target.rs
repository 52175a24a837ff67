//! Due jobs to an HTTP target on this machine, by a server with its usual bounds.

use anyhow::Context;
use tidewheel_core::job::State;
use tidewheel_server::engine::Config;

use crate::Bench;
use crate::figures::{Figure, Meter};
use crate::jobs;
use crate::plan::PATIENCE;
use crate::stopwatch::wall_now;
use crate::subject::{Subject, Sync, open_store, unpaced, until_succeeded};
use crate::target::Target;

use super::drain_sink::BACKLOG_MS;

const FOLDER: &str = "drain-target";

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let count = bench.plan.target_jobs;
    let mut target = Target::listen().await?;
    let store = open_store(bench, FOLDER).await?;
    let due = (wall_now().plus_ms(-BACKLOG_MS), BACKLOG_MS);
    jobs::preload(&store, &jobs::push(&target.url()), count, due, &bench.progress).await?;
    store.close().await?;
    drop(store);
    let config = Config { catch_up_per_second: unpaced().catch_up_per_second, ..Config::default() };
    let subject = Subject::start_own(bench, FOLDER, Sync::On, config).await?;
    // Starting up is measured elsewhere. It drains while it gets ready, so what is done by now does not count.
    tokio::time::timeout(PATIENCE, target.next()).await?.context("the target is gone")?;
    let store = subject.engine()?.store();
    let done = store.counts(None).await?.of(State::Succeeded);
    let meter = Meter::start()?;
    until_succeeded(bench, store, count).await?;
    let rate = meter.stop(count.saturating_sub(done))?;
    subject.stop().await?;
    bench.scratch.clear(FOLDER);
    Ok(vec![Figure::rate("drain.target", "drain of due jobs to a local HTTP target", rate)])
}
