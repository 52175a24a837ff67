//! The rule of Debian's cron daemon, followed as the daemon follows it: awake at every minute (or second),
//! comparing the wall clock with the time it has got to so far.
//!
//! Expressions are made here from their parts, so that the oracle never reads one.

#![expect(clippy::wildcard_enum_match_arm, reason = "an item means one thing in few fields")]

use jiff::civil::{DateTime, Weekday};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::super::{Dst, Fold, Gap, zone};

/// One item of a field.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Any,
    AnyStep(i64),
    One(i64),
    Range(i64, i64, i64),
    FromStep(i64, i64),
    LastDay,
    LastWeekday,
    NearestWeekday(i64),
    Nth(i64, i64),
    LastOf(i64),
}

#[derive(Debug, Clone)]
pub(super) struct Expression {
    /// Absent from an expression of five fields.
    pub(super) second: Option<Vec<Item>>,
    pub(super) minute: Vec<Item>,
    pub(super) hour: Vec<Item>,
    pub(super) day: Vec<Item>,
    pub(super) month: Vec<Item>,
    pub(super) weekday: Vec<Item>,
}

impl Item {
    fn text(&self) -> String {
        match self {
            Item::Any => "*".to_owned(),
            Item::AnyStep(step) => format!("*/{step}"),
            Item::One(value) => value.to_string(),
            Item::Range(low, high, 1) => format!("{low}-{high}"),
            Item::Range(low, high, step) => format!("{low}-{high}/{step}"),
            Item::FromStep(low, step) => format!("{low}/{step}"),
            Item::LastDay => "L".to_owned(),
            Item::LastWeekday => "LW".to_owned(),
            Item::NearestWeekday(day) => format!("{day}W"),
            Item::Nth(weekday, nth) => format!("{weekday}#{nth}"),
            Item::LastOf(weekday) => format!("{weekday}L"),
        }
    }

    fn has(&self, value: i64, min: i64) -> bool {
        match *self {
            Item::Any => true,
            Item::AnyStep(step) => (value - min) % step == 0,
            Item::One(one) => value == one,
            Item::Range(low, high, step) => low <= value && value <= high && (value - low) % step == 0,
            Item::FromStep(low, step) => low <= value && (value - low) % step == 0,
            _ => false,
        }
    }

    fn has_day(&self, at: DateTime) -> bool {
        let workday = |day: &i64| {
            let date = at.date().with().day(i8::try_from(*day).unwrap()).build().unwrap();
            !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday)
        };
        let (day, length) = (i64::from(at.day()), i64::from(at.days_in_month()));
        match *self {
            Item::LastDay => day == length,
            Item::LastWeekday => (1..=length).rfind(workday) == Some(day),
            Item::NearestWeekday(to) => {
                (1..=length).filter(workday).min_by_key(|other| (other - to).abs()) == Some(day)
            }
            _ => self.has(day, 1),
        }
    }

    fn has_weekday(&self, at: DateTime) -> bool {
        let weekday = i64::from(at.weekday().to_sunday_zero_offset());
        let (day, length) = (i64::from(at.day()), i64::from(at.days_in_month()));
        match *self {
            Item::Nth(of, nth) => weekday == of % 7 && (day - 1) / 7 + 1 == nth,
            Item::LastOf(of) => weekday == of % 7 && day + 7 > length,
            _ => self.has(weekday, 0) || weekday == 0 && self.has(7, 0),
        }
    }
}

impl Expression {
    pub(super) fn text(&self) -> String {
        let fields = [&self.minute, &self.hour, &self.day, &self.month, &self.weekday];
        let fields = self.second.iter().chain(fields);
        let text = |items: &Vec<Item>| items.iter().map(Item::text).collect::<Vec<_>>().join(",");
        fields.map(text).collect::<Vec<_>>().join(" ")
    }

    fn matches(&self, at: DateTime) -> bool {
        let plain = |items: &[Item], value: i8, min| items.iter().any(|item| item.has(value.into(), min));
        let free = |items: &[Item]| items.iter().any(|item| matches!(item, Item::Any | Item::AnyStep(1)));
        let day = || self.day.iter().any(|item| item.has_day(at));
        let weekday = || self.weekday.iter().any(|item| item.has_weekday(at));
        self.second.as_ref().map_or(at.second() == 0, |second| plain(second, at.second(), 0))
            && plain(&self.minute, at.minute(), 0)
            && plain(&self.hour, at.hour(), 0)
            && plain(&self.month, at.month(), 1)
            && if free(&self.day) || free(&self.weekday) { day() && weekday() } else { day() || weekday() }
    }

    fn has_fixed_time(&self) -> bool {
        let starts_with_star = |items: &[Item]| matches!(items[0], Item::Any | Item::AnyStep(_));
        !starts_with_star(&self.minute) && !starts_with_star(&self.hour)
    }

    /// All fires after `from` up to `until`.
    pub(super) fn fires(&self, tz: &str, dst: Dst, from: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let tz = zone(tz).unwrap();
        let unit =
            if self.second.is_some() { SignedDuration::from_secs(1) } else { SignedDuration::from_mins(1) };
        let units =
            |later: DateTime, earlier: DateTime| later.duration_since(earlier).as_secs() / unit.as_secs();
        let three_hours = 3 * 3600 / unit.as_secs();
        let fixed = self.has_fixed_time();

        // Up and running long enough before to know of a fold that `from` lies in.
        let mut now = from - SignedDuration::from_hours(3);
        now -= SignedDuration::from_secs(now.as_second().rem_euclid(60));
        let mut reached = tz.to_datetime(now);
        let mut found = Vec::new();
        while now < until {
            now += unit;
            let clock = tz.to_datetime(now);
            let ahead = units(clock, reached);
            let runs = if ahead == 1 || ahead > three_hours || !fixed {
                self.matches(clock)
            } else if ahead > 1 {
                let skipped = (1..ahead).any(|n| self.matches(reached + unit * i32::try_from(n).unwrap()));
                self.matches(clock) || skipped && dst.gap == Gap::NextValid
            } else {
                self.matches(clock) && dst.fold == Fold::Both
            };
            reached = reached.max(clock);
            if runs && now > from && now <= until {
                found.push(now);
            }
        }
        found
    }
}

/// Any field of numbers; `common` says how often it is just `*`.
fn field(min: i64, max: i64, common: u32) -> impl Strategy<Value = Vec<Item>> {
    let value = move || min..=max;
    let item = prop_oneof![
        4 => value().prop_map(Item::One),
        2 => (value(), value(), 1..=7i64).prop_map(|(a, b, step)| Item::Range(a.min(b), a.max(b), step)),
        1 => (value(), 1..=12i64).prop_map(|(low, step)| Item::FromStep(low, step)),
        1 => (1..=12i64).prop_map(Item::AnyStep),
        1 => Just(Item::Any),
    ];
    prop_oneof![
        common => Just(vec![Item::Any]),
        4 => prop::collection::vec(item, 1..4),
    ]
}

fn day_field() -> impl Strategy<Value = Vec<Item>> {
    let special = prop_oneof![
        Just(Item::LastDay),
        Just(Item::LastWeekday),
        (1..=28i64).prop_map(Item::NearestWeekday),
    ];
    prop_oneof![4 => field(1, 28, 8), 1 => prop::collection::vec(special, 1..3)]
}

fn weekday_field() -> impl Strategy<Value = Vec<Item>> {
    let special = prop_oneof![
        ((0..=7i64), (1..=5i64)).prop_map(|(weekday, nth)| Item::Nth(weekday, nth)),
        (0..=7i64).prop_map(Item::LastOf),
    ];
    let plain = field(0, 7, 8).prop_map(|items| {
        let ranged = |item| match item {
            Item::FromStep(low, step) => Item::Range(low, 7, step),
            other => other,
        };
        items.into_iter().map(ranged).collect()
    });
    prop_oneof![4 => plain, 1 => prop::collection::vec(special, 1..3)]
}

/// Expressions of five fields.
pub(super) fn expression() -> impl Strategy<Value = Expression> {
    (field(0, 59, 1), field(0, 23, 1), day_field(), field(1, 12, 12), weekday_field()).prop_map(
        |(minute, hour, day, month, weekday)| Expression { second: None, minute, hour, day, month, weekday },
    )
}

/// Expressions of six fields.
pub(super) fn expression_with_seconds() -> impl Strategy<Value = Expression> {
    (expression(), field(0, 59, 1))
        .prop_map(|(expression, second)| Expression { second: Some(second), ..expression })
}
