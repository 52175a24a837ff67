//! A transaction that somebody left open: nothing it could see may be vacuumed, so whoever updates rows in place gets slower
//! with every one. It is opened before the first round, which does not count, and is as old as the work since then; where an older
//! one is asked for, jobs are drained beside it until it is that old.

use super::rounds::{Names, Side, compare};
use super::site::{Shape, Site};
use crate::Bench;
use crate::figures::{Figure, number};
use crate::stopwatch::Stopwatch;

/// What is drained is stored ahead of its time: half of what is stored for the past, where a server has just been, would come in
/// late, and take another path.
const SHAPE: Shape = Shape { all_begin: true, ..Shape::ALONE };

pub(in crate::measure) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let plain = Site::make(bench, SHAPE).await?;
    let haunted = Site::make(bench, SHAPE).await?;
    // Over what was there before, as in a database that has been in use.
    haunted.drain(bench).await?;
    plain.drain(bench).await?;
    let transaction = haunted.database.hold_transaction().await?;
    grow_old(bench, [&haunted, &plain]).await?;
    let age = transaction.age().await?;
    let [none, held] = compare(bench, [Side::Kept(&plain), Side::Kept(&haunted)]).await?;
    // It fails if it is not there any more.
    transaction.age().await?;
    let none = none.figures(&Names {
        submit: "old_transaction.none.submit",
        drain: "old_transaction.none.drain",
        about: "no other transaction".to_owned(),
    })?;
    let held = held.figures(&Names {
        submit: "old_transaction.submit",
        drain: "old_transaction.drain",
        about: "an old transaction open".to_owned(),
    })?;
    let mut figures: Vec<Figure> = none.into_iter().chain(held).collect();
    let (none, held) = (plain.dead_rows().await?.left, haunted.dead_rows().await?.left);
    figures.push(Figure::new(
        "old_transaction.none.dead",
        "no other transaction: dead rows left",
        number(none),
        "rows",
    ));
    figures.push(Figure::new(
        "old_transaction.dead",
        "an old transaction open: dead rows left",
        number(held),
        "rows",
    ));
    figures.push(Figure::new(
        "old_transaction.age",
        "an old transaction open: since so long before the rounds",
        age.as_secs_f64(),
        "s",
    ));
    drop(transaction);
    plain.remove().await?;
    haunted.remove().await?;
    Ok(figures)
}

/// Has both databases drained in turn until the transaction is as old as was asked for. One beside which nobody works holds nothing
/// up; and without it, there would be as many jobs.
async fn grow_old(bench: &Bench, sites: [&Site; 2]) -> anyhow::Result<()> {
    let watch = Stopwatch::start();
    while watch.elapsed() < bench.plan.transaction_age {
        for site in sites {
            site.drain(bench).await?;
        }
    }
    Ok(())
}
