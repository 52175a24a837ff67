//! Dates a schedule does not fire on, and where fires that fall on them go instead.

use std::sync::Arc;

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};

use crate::limits::ROLL_DAYS_MAX;

/// What a schedule excludes. A date is one of the schedule's zone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exclude {
    /// Its own dates.
    pub dates: Dates,
    /// A calendar of its tenant whose dates are excluded too. One that does not exist excludes nothing.
    pub calendar: Option<Arc<str>>,
    /// What becomes of a fire on an excluded date.
    pub roll: Roll,
}

impl Exclude {
    /// Whether two calendars leave the same fires on the dates from `first` to `last`. Where they differ close by, they
    /// may be said to differ.
    pub(super) fn is_same_by(
        &self,
        one: Option<&Dates>,
        other: Option<&Dates>,
        (first, last): (Date, Date),
    ) -> bool {
        let reach = match self.roll {
            // A clock that is moved across midnight may show the date before again.
            Roll::None => 1.day(),
            Roll::NextBusinessDay | Roll::PreviousBusinessDay => {
                i32::try_from(ROLL_DAYS_MAX).unwrap_or(i32::MAX).days()
            }
        };
        let (first, last) = (first.saturating_sub(reach), last.saturating_add(reach));
        let one = one.map(|dates| dates.between(first, last)).unwrap_or_default();
        let other = other.map(|dates| dates.between(first, last)).unwrap_or_default();
        one == other
    }
}

/// What becomes of a fire on an excluded date. A moved fire keeps its local time; where it meets another, or
/// several are moved to one instant, they are one fire. A business day is a Monday to Friday that is not
/// excluded; if there is none within [`ROLL_DAYS_MAX`], the fire is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Roll {
    /// It is dropped.
    #[default]
    None,
    /// It is moved to the next business day.
    NextBusinessDay,
    /// It is moved to the business day before.
    PreviousBusinessDay,
}

impl Roll {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::NextBusinessDay, Self::PreviousBusinessDay];

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NextBusinessDay => "next_business_day",
            Self::PreviousBusinessDay => "previous_business_day",
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|roll| roll.as_str() == name)
    }
}

/// A set of dates, in order: a schedule's own, or a named calendar's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dates(Box<[Date]>);

impl FromIterator<Date> for Dates {
    fn from_iter<T: IntoIterator<Item = Date>>(dates: T) -> Self {
        let mut dates: Vec<Date> = dates.into_iter().collect();
        dates.sort_unstable();
        dates.dedup();
        Self(dates.into())
    }
}

impl Dates {
    /// The dates, earliest first.
    #[must_use]
    pub const fn as_slice(&self) -> &[Date] {
        &self.0
    }

    fn contains(&self, date: Date) -> bool {
        self.0.binary_search(&date).is_ok()
    }

    fn between(&self, first: Date, last: Date) -> &[Date] {
        let from = self.0.partition_point(|known| *known < first);
        let to = self.0.partition_point(|known| *known <= last);
        self.0.get(from..to).unwrap_or_default()
    }

    fn at_or_after(&self, date: Date) -> Option<Date> {
        self.0.get(self.0.partition_point(|known| *known < date)).copied()
    }

    fn at_or_before(&self, date: Date) -> Option<Date> {
        let later = self.0.partition_point(|known| *known <= date);
        later.checked_sub(1).and_then(|last| self.0.get(last)).copied()
    }
}

/// The way a search goes through time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Backward,
}

/// All dates a rule excludes: its own and its calendar's.
pub(super) struct Excluded<'a> {
    own: &'a Dates,
    calendar: Option<&'a Dates>,
    roll: Roll,
}

impl<'a> Excluded<'a> {
    pub(super) fn new(exclude: &'a Exclude, calendar: Option<&'a Dates>) -> Self {
        Self { own: &exclude.dates, calendar, roll: exclude.roll }
    }

    pub(super) fn count(&self) -> usize {
        self.own.0.len() + self.calendar.map_or(0, |calendar| calendar.0.len())
    }

    pub(super) fn contains(&self, date: Date) -> bool {
        self.own.contains(date) || self.calendar.is_some_and(|calendar| calendar.contains(date))
    }

    /// Where a fire on the excluded `date` goes.
    pub(super) fn rolled(&self, date: Date) -> Option<Date> {
        let step = match self.roll {
            Roll::None => return None,
            Roll::NextBusinessDay => 1,
            Roll::PreviousBusinessDay => -1,
        };
        std::iter::successors(date.checked_add(step.days()).ok(), |day| day.checked_add(step.days()).ok())
            .take(ROLL_DAYS_MAX)
            .find(|day| self.is_business_day(*day))
    }

    /// The first excluded date, on the way, whose fires may be moved to `target` or beyond it.
    pub(super) fn first_rolling_to(&self, target: Date, way: Way) -> Option<Date> {
        let reach = i32::try_from(ROLL_DAYS_MAX).unwrap_or(i32::MAX).days();
        let from = match (self.roll, way) {
            (Roll::None, _) => return None,
            (Roll::NextBusinessDay, Way::Forward) => target.checked_sub(reach).ok()?,
            (Roll::PreviousBusinessDay, Way::Backward) => target.checked_add(reach).ok()?,
            (Roll::PreviousBusinessDay, Way::Forward) | (Roll::NextBusinessDay, Way::Backward) => target,
        };
        self.nearest(from, way)
    }

    /// The excluded date nearest to `from`, which may be `from` itself.
    pub(super) fn nearest(&self, from: Date, way: Way) -> Option<Date> {
        match way {
            Way::Forward => {
                let theirs = self.calendar.and_then(|calendar| calendar.at_or_after(from));
                self.own.at_or_after(from).into_iter().chain(theirs).min()
            }
            Way::Backward => {
                let theirs = self.calendar.and_then(|calendar| calendar.at_or_before(from));
                self.own.at_or_before(from).into_iter().chain(theirs).max()
            }
        }
    }

    fn is_business_day(&self, date: Date) -> bool {
        !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday) && !self.contains(date)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn rolls_over_weekends_and_further_excluded_dates() {
        // Christmas 2026 is a Friday; the 28th a Monday.
        let mut exclude = Exclude {
            dates: [date(2026, 12, 25), date(2026, 12, 24)].into_iter().collect(),
            calendar: None,
            roll: Roll::NextBusinessDay,
        };
        let calendar: Dates = [date(2026, 12, 28)].into_iter().collect();
        let rolled = |exclude: &Exclude| Excluded::new(exclude, Some(&calendar)).rolled(date(2026, 12, 25));
        assert_eq!(rolled(&exclude), Some(date(2026, 12, 29)));
        exclude.roll = Roll::PreviousBusinessDay;
        assert_eq!(rolled(&exclude), Some(date(2026, 12, 23)));
        exclude.roll = Roll::None;
        assert_eq!(rolled(&exclude), None);
    }

    #[test]
    fn a_month_without_business_days_is_too_far() {
        let first = date(2026, 1, 1);
        let dates = (0..60).map(|day| first.checked_add(day.days()).unwrap()).collect();
        let exclude = Exclude { dates, calendar: None, roll: Roll::NextBusinessDay };
        assert_eq!(Excluded::new(&exclude, None).rolled(first), None);
        assert_eq!(Excluded::new(&exclude, None).rolled(date(2026, 2, 20)), Some(date(2026, 3, 2)));
    }
}
