//! Many jobs that wait for a later day: speed beside them, against an empty database, and what they take on disk.

use super::rounds::{Names, Side, compare};
use super::site::{Shape, Site};
use crate::Bench;
use crate::figures::{Figure, number};
use crate::jobs;
use crate::plan::{AHEAD_MS, LATER_MS};
use crate::stopwatch::wall_now;

/// What is drained is stored ahead of its time: a server has just been there for the submissions, so that half of what is stored
/// for the past would come in late, and take another path. Both sides rest, though only what is used again needs to: it is a
/// rest for the disk, too.
const SHAPE: Shape = Shape { all_begin: true, rests: true, ..Shape::ALONE };
/// Of so many one more is stored at the end. Some 120 stand in a page of the index, so that next to none is left out.
const TOUCHED_OF: u64 = 12;

pub(in crate::measure) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let count = bench.plan.waiting;
    let full = Site::make(bench, SHAPE).await?;
    let when = (wall_now().plus_ms(LATER_MS), AHEAD_MS);
    full.store(bench, &jobs::queue_of_later(), 0, when).await?;
    let empty_bytes = full.database.disk_bytes().await?;
    full.store(bench, &jobs::queue_of_later(), count, when).await?;
    let full_bytes = full.database.disk_bytes().await?;
    bench.progress.say("writing out what waits");
    full.database.settle().await;
    // The server logs a page in full when it is touched for the first time since it was written out. That is so after every
    // checkpoint, once in many minutes; it would not be a small part of seconds that follow one.
    full.store(bench, &jobs::queue_of_later(), count / TOUCHED_OF, when).await?;

    let [none, beside] = compare(bench, [Side::Fresh(SHAPE), Side::Kept(&full)]).await?;
    full.remove().await?;
    let none = none.figures(&Names {
        submit: "waiting.none.submit",
        drain: "waiting.none.drain",
        about: "nothing waiting".to_owned(),
    })?;
    let beside = beside.figures(&Names {
        submit: "waiting.submit",
        drain: "waiting.drain",
        about: format!("with {count} waiting"),
    })?;
    let bytes = number(full_bytes.saturating_sub(empty_bytes)) / number(count.max(1));
    let disk = Figure::new("waiting.disk", format!("with {count} waiting: on disk"), bytes, "bytes/job");
    Ok(none.into_iter().chain(beside).chain([disk]).collect())
}
