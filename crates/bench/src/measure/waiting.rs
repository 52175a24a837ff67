//! What many waiting jobs cost: disk, memory, start-up, and speed.

use tidewheel_server::engine::Config;

use super::{drain_sink, submit_batch};
use crate::Bench;
use crate::figures::{Figure, number};
use crate::jobs;
use crate::plan::{AHEAD_MS, REST};
use crate::process::{disk_bytes, resident_bytes};
use crate::stopwatch::{Stopwatch, pause, wall_now};
use crate::subject::{Subject, Sync};

const FOLDER: &str = "waiting";
/// None is due before the benchmark is over.
const LEAD_MS: i64 = 3 * 60 * 60 * 1_000;
const MB: f64 = 1e6;

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let count = bench.plan.waiting;
    let folder = bench.scratch.folder(FOLDER);
    let subject = Subject::start_own(bench, FOLDER, Sync::On, Config::default()).await?;
    let empty = resident_bytes()?;
    let when = (wall_now().plus_ms(LEAD_MS), AHEAD_MS);
    jobs::preload(subject.engine()?.store(), &jobs::push(jobs::NOWHERE), count, when, &bench.progress)
        .await?;
    let loaded = resident_bytes()?;
    subject.stop().await?;
    let disk = disk_bytes(&folder)?;

    bench.progress.say("starting with jobs waiting");
    let watch = Stopwatch::start();
    let subject = Subject::start_own(bench, FOLDER, Sync::On, Config::default()).await?;
    let start_up = watch.elapsed();
    let started = resident_bytes()?;
    // What it recovered is still being flushed, and the empty store it is compared with had nothing to recover.
    pause(REST).await;
    bench.progress.say("submissions in batches with jobs waiting");
    let submit = submit_batch::rate(bench, &subject).await?;
    subject.stop().await?;

    bench.progress.say("drain to a sink with jobs waiting");
    let drain = drain_sink::rate(bench, FOLDER).await?;
    bench.scratch.clear(FOLDER);

    let with = |what| format!("with {count} waiting: {what}");
    let growth = number(loaded) - number(empty);
    Ok(vec![
        Figure::new("waiting.disk", with("on disk"), number(disk) / number(count.max(1)), "bytes/job"),
        Figure::new("waiting.memory", with("resident memory while storing"), number(loaded) / MB, "MB"),
        Figure::new(
            "waiting.memory.growth",
            with("memory over an empty server"),
            growth / number(count.max(1)),
            "bytes/job",
        ),
        Figure::new(
            "waiting.start_up.memory",
            with("resident memory after a start"),
            number(started) / MB,
            "MB",
        ),
        Figure::new("waiting.start_up", with("start-up until ready"), start_up.as_secs_f64() * 1e3, "ms"),
        Figure::rate("waiting.submit.batch", with("submit in batches"), submit),
        Figure::rate("waiting.drain.sink", with("drain to a sink"), drain),
    ])
}
