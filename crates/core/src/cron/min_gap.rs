//! How close together an expression can fire, so that a minimum interval can be asked of it when it is made.

use super::fields::{DAY_S, Fields, bits};

const YEAR_S: i32 = 365 * DAY_S;

/// The shortest distance between two matching local times.
pub(super) fn seconds(fields: &Fields) -> u64 {
    let (second, seconds_wide) = spacing(fields.seconds);
    let (minute, minutes_wide) = spacing(fields.minutes);
    let (hour, hours_wide) = spacing(fields.hours);
    // Neighbours in a larger unit are nearest from the last time in one to the first time in the next.
    let within_minute = 60 * minutes_wide + seconds_wide;
    let within_day = 3600 * hours_wide + within_minute;
    let gaps = [
        second,
        minute.map(|gap| 60 * gap - seconds_wide),
        hour.map(|gap| 3600 * gap - within_minute),
        Some(days_apart(fields).map_or(YEAR_S, |gap| DAY_S * gap - within_day)),
    ];
    gaps.into_iter().flatten().min().and_then(|gap| u64::try_from(gap).ok()).unwrap_or(0)
}

/// The shortest distance between neighbours in a set, and that from its first to its last.
fn spacing(set: u64) -> (Option<i32>, i32) {
    let nearest = bits(set).zip(bits(set).skip(1)).map(|(one, next)| next - one).min();
    let first = bits(set).next().unwrap_or(0);
    (nearest, bits(set).last().unwrap_or(first) - first)
}

/// The fewest days from one matching date to the next; none if they are a year or more apart.
fn days_apart(fields: &Fields) -> Option<i32> {
    let mut nearest = None;
    let mut since_last: Option<i32> = None;
    for (days, length) in fields.calendar() {
        for day in bits(days) {
            nearest = since_last.map(|since| since + day).into_iter().chain(nearest).min();
            since_last = Some(-day);
        }
        if nearest == Some(1) {
            break;
        }
        since_last = since_last.map(|since| since + length);
    }
    nearest.filter(|days| *days < 365)
}
