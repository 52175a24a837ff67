//! Two sides, measured in turn.

use super::site::{Drain, Shape, Site};
use crate::bench::Bench;
use crate::bench::figures::{Figure, Rate};

/// One side of a comparison.
#[derive(Clone, Copy)]
pub(super) enum Side<'s> {
    /// An empty database in every round.
    Fresh(Shape),
    /// The same in all rounds.
    Kept(&'s Site),
}

/// What a side can do, at the median.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    pub(super) submit: Rate,
    pub(super) drain: Drain,
}

/// The names of a side's figures, and what they are about.
pub(super) struct Names {
    pub(super) submit: &'static str,
    pub(super) drain: &'static str,
    pub(super) about: String,
}

impl Speed {
    pub(super) fn figures(self, names: &Names) -> [Figure; 2] {
        let what = |which: &str| format!("{}: {which}", names.about);
        [
            Figure::rate(names.submit, what("submit in batches"), self.submit),
            Figure::rate(names.drain, what("drain to a worker process"), self.drain.rate),
        ]
    }
}

/// Submits to and drains both sides in turn. The first round counts for nothing: in it caches fill, and what is old gets old.
///
/// Of sides that are made anew each comes first as often as the other: whoever comes second has the database write out what the
/// first one left. Those that are kept always come in the same order: one that came twice in a row would be given jobs for a time
/// that it has just gone through, which take a slower path.
///
/// Databases are dropped at the end: with each the server writes all it has in memory out, and then logs every page in full when it
/// is next touched. That would count against the side that has many.
pub(super) async fn compare(bench: &Bench, sides: [Side<'_>; 2]) -> anyhow::Result<[Speed; 2]> {
    let mut rounds = [Vec::new(), Vec::new()];
    let mut used = Vec::new();
    let take_turns = sides.iter().all(|side| matches!(side, Side::Fresh(_)));
    let counted = if take_turns { bench.plan.rounds.next_multiple_of(2) } else { bench.plan.rounds };
    for round in 0..=counted {
        let counts = round > 0;
        let mut turns: Vec<_> = sides.iter().zip(&mut rounds).collect();
        if take_turns && round % 2 == 1 {
            turns.reverse();
        }
        for (side, speeds) in turns {
            let speed = match side {
                Side::Kept(site) => speed(bench, site, counts).await?,
                Side::Fresh(shape) => {
                    let site = Site::make(bench, *shape).await?;
                    let speed = speed(bench, &site, counts).await?;
                    used.push(site);
                    speed
                }
            };
            if counts {
                speeds.push(speed);
            }
        }
    }
    for site in used {
        site.remove().await?;
    }
    let [one, other] = rounds;
    Ok([middle(one)?, middle(other)?])
}

async fn speed(bench: &Bench, site: &Site, counts: bool) -> anyhow::Result<Speed> {
    // Otherwise the server writes out what others left whenever there is enough of it, and logs whole pages again: beside one side
    // and not the other.
    site.database.write_out().await;
    Ok(Speed { submit: site.submit(bench, counts).await?, drain: site.drain(bench).await? })
}

fn middle(speeds: Vec<Speed>) -> anyhow::Result<Speed> {
    let submit = median(speeds.iter().map(|speed| speed.submit).collect(), Rate::per_second)?;
    let drain = median(speeds.iter().map(|speed| speed.drain).collect(), |drain| drain.rate.per_second())?;
    Ok(Speed { submit, drain })
}

/// The one in the middle; of an even number, the lower.
pub(super) fn median<T: Copy>(mut all: Vec<T>, size: impl Fn(T) -> f64) -> anyhow::Result<T> {
    all.sort_by(|one, other| size(*one).total_cmp(&size(*other)));
    let middle = all.len().saturating_sub(1) / 2;
    all.get(middle).copied().ok_or_else(|| anyhow::anyhow!("nothing was measured"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0], |value| value).unwrap(), 2.0);
        assert_eq!(median(vec![4.0, 1.0], |value| value).unwrap(), 1.0);
        assert!(median(Vec::<f64>::new(), |value| value).is_err());
    }
}
