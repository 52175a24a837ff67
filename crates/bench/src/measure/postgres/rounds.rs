//! Two sides, measured in turn.

use super::site::{Shape, Site};
use crate::Bench;
use crate::figures::{Figure, Rate};

/// One side of a comparison.
#[derive(Clone, Copy)]
pub(super) enum Side<'s> {
    /// An empty database in every round.
    Fresh(Shape),
    /// The same in all rounds.
    Kept(&'s Site),
}

/// What a side could do in each round.
#[derive(Debug, Default)]
pub(super) struct Speeds {
    submit: Vec<Rate>,
    drain: Vec<Rate>,
}

/// The names of a side's figures, and what they are about.
pub(super) struct Names {
    pub(super) submit: &'static str,
    pub(super) drain: &'static str,
    pub(super) about: String,
}

impl Speeds {
    pub(super) fn figures(&self, names: &Names) -> anyhow::Result<[Figure; 2]> {
        let what = |which: &str| format!("{}: {which}", names.about);
        Ok([
            Figure::rates(names.submit, what("submit in batches"), &self.submit)?,
            Figure::rates(names.drain, what("drain to a worker process"), &self.drain)?,
        ])
    }
}

/// Submits to and drains both sides in turn. The first round counts for nothing: in it caches fill, and what is old gets old.
///
/// Of sides that are made anew each comes first as often as the other: whoever comes second has the database write out what the
/// first one left. Those that are kept always come in the same order: one that came twice in a row would be given jobs for a time
/// that it has just gone through, which take a slower path.
///
/// Databases are dropped at the end: with each the server writes all it has in memory out, and then logs every page in full when it
/// is next touched. That would count against the side that has many. For the same reason it is made to write everything out before
/// each turn only where both sides have as much.
pub(super) async fn compare(bench: &Bench, sides: [Side<'_>; 2]) -> anyhow::Result<[Speeds; 2]> {
    let mut rounds = [Speeds::default(), Speeds::default()];
    let mut used = Vec::new();
    let take_turns = sides.iter().all(|side| matches!(side, Side::Fresh(_)));
    let writes_out = take_turns || sides.iter().all(|side| matches!(side, Side::Kept(_)));
    let counted = if take_turns { bench.plan.rounds.next_multiple_of(2) } else { bench.plan.rounds };
    for round in 0..=counted {
        let counts = round > 0;
        let mut turns: Vec<_> = sides.iter().zip(&mut rounds).collect();
        if take_turns && round % 2 == 1 {
            turns.reverse();
        }
        for (side, speeds) in turns {
            let (submit, drain) = match side {
                Side::Kept(site) => measure(bench, site, writes_out, counts).await?,
                Side::Fresh(shape) => {
                    let site = Site::make(bench, *shape).await?;
                    let measured = measure(bench, &site, writes_out, counts).await?;
                    used.push(site);
                    measured
                }
            };
            if counts {
                speeds.submit.push(submit);
                speeds.drain.push(drain);
            }
        }
    }
    for site in used {
        site.remove().await?;
    }
    Ok(rounds)
}

async fn measure(bench: &Bench, site: &Site, writes_out: bool, counts: bool) -> anyhow::Result<(Rate, Rate)> {
    if writes_out {
        // Otherwise the server writes out what others left whenever there is enough of it, and logs whole pages again: beside one
        // side and not the other.
        site.database.write_out().await;
    }
    Ok((site.submit(bench, counts).await?, site.drain(bench).await?.rate))
}
