//! The fields of an expression as bit sets, and the search for the nearest local time they match.
//!
//! Local times are counted in seconds as if the wall clock were UTC, so that the search knows nothing of
//! zones. It steps from one matching month to the next and picks days and times out of bit sets.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;

pub(super) const DAY_S: i32 = 86_400;

/// No date is rarer than a weekday's 29 February, which can take 40 years to come round across a century
/// that is no leap year (2072 to 2112, for a Monday).
pub(super) const HORIZON_YEARS: i16 = 44;

/// Years that hold every shape of month and year there is: the calendar repeats after 28 years, until a
/// century that is no leap year, which brings no new shape.
const CALENDAR_CYCLE: std::ops::Range<i16> = 2000..2028;

const SUNDAY: i32 = 0;
const SATURDAY: i32 = 6;
/// Bits 1, 8, 15, 22 and 29: the days of a month that share the weekday of its first.
const WEEKLY: u64 = 1 << 1 | 1 << 8 | 1 << 15 | 1 << 22 | 1 << 29;

/// What each field matches; bit `n` of a set stands for the value `n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) days: Days,
    pub(super) months: u64,
    pub(super) weekdays: Weekdays,
    /// Neither minute nor hour begins with `*`: the time is meant, not the distance between times.
    pub(super) fixed_time: bool,
}

/// The day-of-month field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Days {
    pub(super) plain: u64,
    /// Bit `n`: `n` days before the month's last.
    pub(super) before_last: u64,
    /// Bit `n`: the weekday nearest to day `n`, within the month.
    pub(super) nearest_weekday: u64,
    pub(super) last_weekday: bool,
    pub(super) unrestricted: bool,
}

/// The day-of-week field; Sunday is 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Weekdays {
    pub(super) plain: u64,
    /// At index `n - 1`: the weekdays whose `n`th in the month is meant.
    pub(super) nth: [u64; 5],
    /// The weekdays whose last in the month is meant.
    pub(super) last: u64,
    pub(super) unrestricted: bool,
}

/// The way a search goes through time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Backward,
}

impl Way {
    fn step(self) -> i32 {
        match self {
            Way::Forward => 1,
            Way::Backward => -1,
        }
    }

    /// Where a search through the whole of a set begins.
    fn edge(self) -> i32 {
        match self {
            Way::Forward => 0,
            Way::Backward => 63,
        }
    }
}

impl Fields {
    /// The matching local time nearest to `from`, which may be `from` itself.
    pub(super) fn seek(&self, from: i64, way: Way) -> Option<i64> {
        let start = Offset::UTC.to_datetime(Timestamp::from_second(from).ok()?);
        let (mut year, mut month) = (start.year(), i32::from(start.month()));
        let mut day = i32::from(start.day());
        if self.days_of(year, month) & (1 << day) != 0 {
            let clock = [start.hour(), start.minute(), start.second()].map(i32::from);
            if let Some(clock) = self.seek_clock(clock, way) {
                return local_seconds(year, month, day, clock);
            }
        }
        day += way.step();
        while (year - start.year()).abs() <= HORIZON_YEARS {
            super::search::count_step();
            if let Some(day) = seek_bit(self.days_of(year, month), day, way) {
                return local_seconds(year, month, day, self.edge_clock(way)?);
            }
            month = match seek_bit(self.months, month + way.step(), way) {
                Some(month) => month,
                None => {
                    year += if way == Way::Forward { 1 } else { -1 };
                    seek_bit(self.months, way.edge(), way)?
                }
            };
            day = way.edge();
        }
        None
    }

    /// The days of a month that match; bit `n` is day `n`.
    pub(super) fn days_of(&self, year: i16, month: i32) -> u64 {
        if self.months & (1 << month) == 0 {
            return 0;
        }
        let Some(month) = Month::of(year, month) else { return 0 };
        let (days, weekdays) = (self.days.of(month), self.weekdays.of(month));
        // Cron's oldest trap: two restricted fields widen each other.
        if self.days.unrestricted || self.weekdays.unrestricted { days & weekdays } else { days | weekdays }
    }

    /// Each month of a whole turn of the calendar, with its matching days and its length.
    pub(super) fn calendar(&self) -> impl Iterator<Item = (u64, i32)> {
        CALENDAR_CYCLE.flat_map(|year| (1..=12).map(move |month| (year, month))).map(|(year, month)| {
            let length = Month::of(year, month).map_or(0, |month| month.length);
            (self.days_of(year, month), length)
        })
    }

    /// The matching hour, minute and second nearest to the given, within the day.
    fn seek_clock(&self, [hour, minute, second]: [i32; 3], way: Way) -> Option<[i32; 3]> {
        let [_, edge_minute, edge_second] = self.edge_clock(way)?;
        if self.hours & (1 << hour) != 0 {
            if self.minutes & (1 << minute) != 0
                && let Some(second) = seek_bit(self.seconds, second, way)
            {
                return Some([hour, minute, second]);
            }
            if let Some(minute) = seek_bit(self.minutes, minute + way.step(), way) {
                return Some([hour, minute, edge_second]);
            }
        }
        let hour = seek_bit(self.hours, hour + way.step(), way)?;
        Some([hour, edge_minute, edge_second])
    }

    /// The first matching hour, minute and second that a search meets in a day.
    fn edge_clock(&self, way: Way) -> Option<[i32; 3]> {
        let edge = |set| seek_bit(set, way.edge(), way);
        Some([edge(self.hours)?, edge(self.minutes)?, edge(self.seconds)?])
    }
}

/// The shape of a month: all that decides which of its days match.
#[derive(Debug, Clone, Copy)]
struct Month {
    first_weekday: i32,
    length: i32,
}

impl Month {
    fn of(year: i16, month: i32) -> Option<Month> {
        let first = Date::new(year, i8::try_from(month).ok()?, 1).ok()?;
        let first_weekday = i32::from(first.weekday().to_sunday_zero_offset());
        Some(Month { first_weekday, length: i32::from(first.days_in_month()) })
    }

    fn weekday(self, day: i32) -> i32 {
        (self.first_weekday + day - 1) % 7
    }

    /// The day of the month's first such weekday.
    fn first(self, weekday: i32) -> i32 {
        1 + (weekday - self.first_weekday).rem_euclid(7)
    }

    /// The Monday to Friday nearest to `day`, without leaving the month.
    fn nearest_weekday(self, day: i32) -> i32 {
        match self.weekday(day) {
            SATURDAY if day == 1 => 3,
            SATURDAY => day - 1,
            SUNDAY if day == self.length => day - 2,
            SUNDAY => day + 1,
            _ => day,
        }
    }

    fn all_days(self) -> u64 {
        (1 << (self.length + 1)) - 2
    }
}

impl Days {
    fn of(&self, month: Month) -> u64 {
        let mut days = self.plain;
        for before in bits(self.before_last).filter(|before| *before < month.length) {
            days |= 1 << (month.length - before);
        }
        for day in bits(self.nearest_weekday) {
            days |= 1 << month.nearest_weekday(day);
        }
        if self.last_weekday {
            days |= 1 << month.nearest_weekday(month.length);
        }
        days & month.all_days()
    }
}

impl Weekdays {
    fn of(&self, month: Month) -> u64 {
        let mut days = 0;
        for weekday in bits(self.plain) {
            days |= WEEKLY << (month.first(weekday) - 1);
        }
        for (weeks, set) in (0..).zip(self.nth) {
            for weekday in bits(set) {
                days |= 1 << (month.first(weekday) + 7 * weeks);
            }
        }
        for weekday in bits(self.last) {
            let first = month.first(weekday);
            days |= 1 << (first + (month.length - first) / 7 * 7);
        }
        days & month.all_days()
    }
}

/// The values in a set, in ascending order.
pub(super) fn bits(set: u64) -> impl Iterator<Item = i32> {
    let first = seek_bit(set, 0, Way::Forward);
    std::iter::successors(first, move |bit| seek_bit(set, bit + 1, Way::Forward))
}

/// The value in `set` nearest to `from`, which may be `from` itself.
fn seek_bit(set: u64, from: i32, way: Way) -> Option<i32> {
    let from = u32::try_from(from).ok().filter(|from| *from < u64::BITS)?;
    let bit = match way {
        Way::Forward => (set & (u64::MAX << from)).trailing_zeros(),
        Way::Backward => 63_u32.checked_sub((set & (u64::MAX >> (63 - from))).leading_zeros())?,
    };
    i32::try_from(bit).ok().filter(|bit| *bit < 64)
}

fn local_seconds(year: i16, month: i32, day: i32, clock: [i32; 3]) -> Option<i64> {
    let [hour, minute, second] = clock.map(|part| i8::try_from(part).ok());
    let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    let local = DateTime::new(year, month, day, hour?, minute?, second?, 0).ok()?;
    Some(Offset::UTC.to_timestamp(local).ok()?.as_second())
}
