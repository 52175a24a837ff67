//! Nominal instants: when a rule says a schedule fires, before windows, outages and pauses have their say.
//!
//! A rule's beat ([`Timing`]) gives instants; those on excluded dates are dropped or moved. What is left is a
//! set of instants, and [`next_nominal`] and [`prev_nominal`] walk it in either direction, strictly and in
//! bounded work: excluded dates are leapt over, never walked through.

use jiff::civil::{Date, DateTime};
use jiff::tz::AmbiguousOffset;

use super::definition::{Rule, Timing};
use super::exclude::{Dates, Excluded, Way};
use crate::cron;
use crate::limits::{HOUR_MS, SECOND_MS};
use crate::time::Timestamp;

/// One nominal instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nominal {
    /// When.
    pub fire_at: Timestamp,
    /// Why it is not where the beat alone would have it, if it is not.
    pub note: Option<Note>,
}

/// Why an instant is not where, or not as often as, the beat alone would have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// Local times that a gap skipped run here.
    DstGap,
    /// The local time of this instant comes twice.
    DstFold,
    /// Moved here from an excluded date.
    Rolled,
}

impl Note {
    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DstGap => "dst_gap",
            Self::DstFold => "dst_fold",
            Self::Rolled => "rolled",
        }
    }
}

/// The first nominal instant strictly after `after`.
#[must_use]
pub fn next_nominal(rule: &Rule, calendar: Option<&Dates>, after: Timestamp) -> Option<Nominal> {
    let after = rule.start_at.map_or(after, |start| after.max(start.plus_ms(-1)));
    let found = Search::new(rule, calendar).nearest(after, Way::Forward)?;
    rule.end_at.is_none_or(|end| found.fire_at <= end).then_some(found)
}

/// The last nominal instant strictly before `before`: the inverse of [`next_nominal`].
#[must_use]
pub fn prev_nominal(rule: &Rule, calendar: Option<&Dates>, before: Timestamp) -> Option<Nominal> {
    let before = rule.end_at.map_or(before, |end| before.min(end.plus_ms(1)));
    let found = Search::new(rule, calendar).nearest(before, Way::Backward)?;
    rule.start_at.is_none_or(|start| found.fire_at >= start).then_some(found)
}

/// The nominal instants after `after`, up to and including `until`.
pub fn nominals<'a>(
    rule: &'a Rule,
    calendar: Option<&'a Dates>,
    after: Timestamp,
    until: Timestamp,
) -> impl Iterator<Item = Nominal> + 'a {
    let next = move |after| next_nominal(rule, calendar, after).filter(|found| found.fire_at <= until);
    std::iter::successors(next(after), move |found| next(found.fire_at))
}

/// More steps than a search through the fires of one date takes, even of one with a fire each second and a
/// clock that is moved.
const MOVED_STEPS_MAX: usize = 20_000;
/// Wider than any fold but a date line's.
const FOLD_MS_MAX: i64 = 3 * HOUR_MS;

struct Search<'a> {
    rule: &'a Rule,
    excluded: Excluded<'a>,
}

impl<'a> Search<'a> {
    fn new(rule: &'a Rule, calendar: Option<&'a Dates>) -> Self {
        Self { rule, excluded: Excluded::new(&rule.exclude, calendar) }
    }

    fn nearest(&self, from: Timestamp, way: Way) -> Option<Nominal> {
        if self.excluded.count() == 0 {
            return self.beat(from, way);
        }
        let kept = self.kept(from, way);
        match (kept, self.moved(from, way, kept)) {
            (Some(kept), Some(moved)) => {
                Some(if nearer(way, moved, kept.fire_at) { rolled(moved) } else { kept })
            }
            (kept, moved) => kept.or(moved.map(rolled)),
        }
    }

    /// The nearest instant of the beat that is not on an excluded date.
    fn kept(&self, mut from: Timestamp, way: Way) -> Option<Nominal> {
        for _ in 0..=self.excluded.count() {
            let found = self.beat(from, way)?;
            let date = self.local(found.fire_at).date();
            if !self.excluded.contains(date) {
                return Some(found);
            }
            let edge = self.edge(beyond(date, way)?, way)?;
            from = if nearer(way, found.fire_at, edge) { edge } else { found.fire_at };
        }
        None
    }

    /// The nearest instant that comes from an excluded date, unless `kept` is nearer.
    fn moved(&self, from: Timestamp, way: Way, kept: Option<Nominal>) -> Option<Timestamp> {
        let today = self.local(from).date();
        let mut best: Option<Timestamp> = None;
        let mut next = self.excluded.first_rolling_to(today, way);
        while let Some(date) = next {
            // Before its first beat or after its last there is nothing more to move.
            let Some(has_beat) = self.beat_date(date, way) else { break };
            if has_beat != date {
                // Nothing to move on the dates in between.
                next = self.excluded.nearest(has_beat, way);
                continue;
            }
            next = beyond(date, way).and_then(|date| self.excluded.nearest(date, way));
            let Some(target) = self.excluded.rolled(date) else { continue };
            let bound = best.or(kept.map(|kept| kept.fire_at)).map(|bound| self.local(bound).date());
            let (is_past, is_out_of_bounds) = match way {
                Way::Forward => (target < today, bound.is_some_and(|bound| target > bound)),
                Way::Backward => (target > today, bound.is_some_and(|bound| target < bound)),
            };
            if is_out_of_bounds {
                break;
            }
            let found = if is_past { None } else { self.moved_between(date, target, from, way) };
            best = best
                .into_iter()
                .chain(found)
                .reduce(|one, other| if nearer(way, one, other) { one } else { other });
        }
        best
    }

    /// The date of the first beat a search through `date` meets.
    fn beat_date(&self, date: Date, way: Way) -> Option<Date> {
        let found = self.beat(self.edge(date, way)?, way)?;
        let found = self.local(found.fire_at).date();
        // A clock that is moved across midnight may show the date before again.
        Some(match way {
            Way::Forward => found.max(date),
            Way::Backward => found.min(date),
        })
    }

    /// Just outside `date`, on the side a search comes from.
    fn edge(&self, date: Date, way: Way) -> Option<Timestamp> {
        match way {
            Way::Forward => Some(self.instant(midnight(date))?.plus_ms(-1)),
            Way::Backward => self.instant(midnight(date.tomorrow().ok()?)),
        }
    }

    /// The nearest of the instants that are moved from `date` to `target`.
    fn moved_between(&self, date: Date, target: Date, from: Timestamp, way: Way) -> Option<Timestamp> {
        let mut cursor = self.start_within(date, target, from, way)?;
        for _ in 0..MOVED_STEPS_MAX {
            let found = self.beat(cursor, way)?;
            let local = self.local(found.fire_at);
            if local.date() != date {
                return None;
            }
            let moved = self.instant(target.to_datetime(local.time()))?;
            if nearer(way, from, moved) {
                return Some(moved);
            }
            cursor = found.fire_at;
        }
        None
    }

    /// Where on `date` to begin, so that what is moved from there to `target` lies close to `from`.
    fn start_within(&self, date: Date, target: Date, from: Timestamp, way: Way) -> Option<Timestamp> {
        let edge = self.edge(date, way)?;
        let local = self.local(from);
        if local.date() != target {
            return Some(edge);
        }
        let same_time = self.instant(date.to_datetime(local.time()))?;
        Some(match way {
            Way::Forward => edge.max(same_time.plus_ms(-SECOND_MS)),
            Way::Backward => {
                // On the second pass of a fold, later local times have been on the first.
                let change = self.rule.zone.rules().preceding(to_jiff(from)).next();
                let since_ms =
                    change.map(|change| from.as_ms().saturating_sub(change.timestamp().as_millisecond()));
                let may_repeat = since_ms.is_some_and(|since_ms| since_ms < FOLD_MS_MAX);
                edge.min(same_time.plus_ms(if may_repeat { FOLD_MS_MAX } else { SECOND_MS }))
            }
        })
    }

    /// The nearest instant of the bare beat.
    fn beat(&self, from: Timestamp, way: Way) -> Option<Nominal> {
        match &self.rule.timing {
            Timing::Cron(cron) => {
                let (zone, dst) = (&self.rule.zone, self.rule.dst);
                let fire = match way {
                    Way::Forward => cron.next_after(to_jiff(from), zone, dst)?,
                    Way::Backward => cron.prev_before(to_jiff(from), zone, dst)?,
                };
                let note = fire.note.map(|note| match note {
                    cron::Note::DstGap => Note::DstGap,
                    cron::Note::DstFold => Note::DstFold,
                });
                Some(Nominal { fire_at: Timestamp::from_ms(fire.at.as_millisecond()), note })
            }
            Timing::Every { interval_ms, anchor } => {
                let fire_at = interval(*interval_ms, *anchor, from, way)?;
                Some(Nominal { fire_at, note: None })
            }
        }
    }

    fn local(&self, at: Timestamp) -> DateTime {
        self.rule.zone.rules().to_datetime(to_jiff(at))
    }

    /// The instant at which the wall clock shows `local`: the first pass of a fold, the end of a gap.
    fn instant(&self, local: DateTime) -> Option<Timestamp> {
        let zone = self.rule.zone.rules();
        let instant = match zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok()?,
            AmbiguousOffset::Gap { after, .. } => {
                let within_old_time = after.to_timestamp(local).ok()?;
                zone.following(within_old_time).next()?.timestamp()
            }
        };
        Some(Timestamp::from_ms(instant.as_millisecond()))
    }
}

fn interval(interval_ms: i64, anchor: Timestamp, from: Timestamp, way: Way) -> Option<Timestamp> {
    let interval_ms = interval_ms.max(1);
    // Whoever asks for the last one asks from beyond the last instant there is.
    let from = from.min(Timestamp::LATEST.plus_ms(1));
    let passed = from.as_ms().checked_sub(anchor.as_ms())?;
    let count = match way {
        Way::Forward if passed < 0 => 0,
        Way::Forward => passed / interval_ms + 1,
        Way::Backward if passed <= 0 => return None,
        Way::Backward => (passed - 1) / interval_ms,
    };
    let found = anchor.as_ms().checked_add(count.checked_mul(interval_ms)?).map(Timestamp::from_ms);
    found.filter(|found| *found <= Timestamp::LATEST)
}

/// Whether `one` comes before `other` on the way.
fn nearer(way: Way, one: Timestamp, other: Timestamp) -> bool {
    match way {
        Way::Forward => one < other,
        Way::Backward => one > other,
    }
}

fn beyond(date: Date, way: Way) -> Option<Date> {
    match way {
        Way::Forward => date.tomorrow().ok(),
        Way::Backward => date.yesterday().ok(),
    }
}

fn rolled(fire_at: Timestamp) -> Nominal {
    Nominal { fire_at, note: Some(Note::Rolled) }
}

fn midnight(date: Date) -> DateTime {
    date.at(0, 0, 0, 0)
}

/// Instants beyond what a calendar knows are brought to its ends.
pub(super) fn to_jiff(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(at.as_ms()).unwrap_or(if at.as_ms() < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    })
}
