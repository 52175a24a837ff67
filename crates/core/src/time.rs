//! Instants and durations: milliseconds inside, RFC 3339 and `1h30m` outside.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::limits::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

/// Digits of a second's fraction that jiff reads. RFC 3339 allows any number.
const FRACTION_DIGITS_MAX: usize = 9;
/// Bytes of an instant up to the digits of its fraction.
const BEFORE_FRACTION_BYTES: usize = "2026-12-01T09:00:00.".len();

/// An instant: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Before every instant a job can have.
    pub const MIN: Self = Self(0);
    /// After every instant a job can have.
    pub const MAX: Self = Self(i64::MAX);
    /// The last instant that can be written with a year of four digits, whatever the offset it is written with.
    pub const LATEST: Self = Self(253_402_207_200_000);

    /// The instant `ms` milliseconds after the epoch.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// This instant moved by `ms`, stopping at the ends of the range.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant; negative when it is the later one.
    #[must_use]
    pub const fn since_ms(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A fire's place in its window may lie a little after the last instant there is a text for. Whoever reads it
        // expects an instant.
        match jiff::Timestamp::from_millisecond(self.0.min(Self::LATEST.0)) {
            Ok(instant) => write!(f, "{instant:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// Why a text is not an instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTimestamp {
    /// It is none at all.
    #[error("{given:?} is not an RFC 3339 instant with an offset: write it like 2026-12-01T09:00:00Z")]
    Unreadable {
        /// The text, or its beginning.
        given: String,
    },
    /// It is one, but after [`Timestamp::LATEST`].
    #[error(
        "{given:?} is later than {}, the latest instant there is: write an earlier one",
        Timestamp::LATEST
    )]
    TooLate {
        /// The text, or its beginning.
        given: String,
    },
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read_instant(text).map(|instant| Self(instant.as_millisecond())).ok_or_else(|| {
            let given = text.chars().take(64).collect();
            if is_too_late(text) {
                InvalidTimestamp::TooLate { given }
            } else {
                InvalidTimestamp::Unreadable { given }
            }
        })
    }
}

fn read_instant(text: &str) -> Option<jiff::Timestamp> {
    // A second of 60 is refused rather than clamped: no clock here ever shows one.
    let leap = text.get(17..19) == Some("60");
    let instant = with_short_fraction(text).parse::<jiff::Timestamp>().ok();
    let instant = instant.filter(|_| !leap && !is_offset_too_far(text))?;
    (instant.as_millisecond() <= Timestamp::LATEST.0).then_some(instant)
}

/// The text without digits so far behind the point that they say nothing: what is finer than a millisecond is cut off
/// anyway.
fn with_short_fraction(text: &str) -> Cow<'_, str> {
    let split = text.split_at_checked(BEFORE_FRACTION_BYTES).filter(|(before, _)| before.ends_with('.'));
    let Some((before, behind)) = split else { return Cow::Borrowed(text) };
    let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
    match (behind.get(..FRACTION_DIGITS_MAX), behind.get(digits..)) {
        (Some(kept), Some(offset)) if digits > FRACTION_DIGITS_MAX => {
            Cow::Owned(format!("{before}{kept}{offset}"))
        }
        (Some(_) | None, Some(_) | None) => Cow::Borrowed(text),
    }
}

/// Whether a text that cannot be read is an instant all the same: then the year before has it too, for neither is a leap
/// year.
fn is_too_late(text: &str) -> bool {
    text.strip_prefix("9999-").is_some_and(|rest| read_instant(&format!("9998-{rest}")).is_some())
}

/// Whether the offset of an instant has more hours than a day: jiff takes up to 25.
fn is_offset_too_far(text: &str) -> bool {
    let time = text.get(11..).unwrap_or_default();
    let hours = time.rsplit_once(['+', '-']).and_then(|(_, offset)| offset.get(..2)?.parse::<u8>().ok());
    hours.is_some_and(|hours| hours > 23)
}

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a duration: write it like \"90s\", \"5m\", \"1h30m\" or \"PT90S\"")]
pub struct InvalidDuration {
    given: String,
}

/// Reads `90s`, `5m`, `1h30m`, `250ms`, `1d`, ISO 8601 (`PT90S`) or a plain number of seconds, as milliseconds.
///
/// # Errors
/// When the text is none of these, is negative, or does not fit.
pub fn parse_duration(text: &str) -> Result<i64, InvalidDuration> {
    let invalid = || InvalidDuration { given: text.chars().take(64).collect() };
    let trimmed = text.trim();
    let iso = trimmed.strip_prefix(['P', 'p']);
    let body = iso.unwrap_or(trimmed);
    if body.is_empty() || !body.is_ascii() {
        return Err(invalid());
    }
    if iso.is_none()
        && let Some(ms) = decimal_ms(body, SECOND_MS)
    {
        return Ok(ms);
    }
    let mut total: i64 = 0;
    let mut rest = body;
    let mut in_time = iso.is_none();
    let mut last_unit = i64::MAX;
    while !rest.is_empty() {
        if iso.is_some()
            && !in_time
            && let Some(after) = rest.strip_prefix(['T', 't'])
        {
            in_time = true;
            rest = after;
            if rest.is_empty() {
                return Err(invalid());
            }
            continue;
        }
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(invalid)?;
        let (number, after) = rest.split_at(digits);
        let letters =
            after.find(|c: char| c.is_ascii_digit() || matches!(c, 'T' | 't')).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit_ms = unit_ms(unit, iso.is_some(), in_time).ok_or_else(invalid)?;
        // Units come once each, largest first: "5m1h" is more likely a slip than a wish.
        if unit_ms >= last_unit {
            return Err(invalid());
        }
        last_unit = unit_ms;
        let part = decimal_ms(number, unit_ms).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    Ok(total)
}

fn unit_ms(unit: &str, iso: bool, in_time: bool) -> Option<i64> {
    if iso {
        return match (unit.to_ascii_uppercase().as_str(), in_time) {
            ("W", false) => Some(7 * DAY_MS),
            ("D", false) => Some(DAY_MS),
            ("H", true) => Some(HOUR_MS),
            ("M", true) => Some(MINUTE_MS),
            ("S", true) => Some(SECOND_MS),
            _ => None,
        };
    }
    match unit {
        "w" => Some(7 * DAY_MS),
        "d" => Some(DAY_MS),
        "h" => Some(HOUR_MS),
        "m" | "min" => Some(MINUTE_MS),
        "s" => Some(SECOND_MS),
        "ms" => Some(1),
        _ => None,
    }
}

/// `number` × `unit_ms`, reading at most three decimals and never through floating point.
fn decimal_ms(number: &str, unit_ms: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.len() > 9 {
        return None;
    }
    if !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut ms = whole.parse::<i64>().ok()?.checked_mul(unit_ms)?;
    if !fraction.is_empty() {
        let scale = 10_i64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let part = fraction.parse::<i64>().ok()?.checked_mul(unit_ms)?;
        ms = ms.checked_add(part.checked_div(scale)?)?;
    }
    Some(ms)
}

/// Writes a duration the way [`parse_duration`] reads it first: `1h30m`, `90s` as `1m30s`, `250ms`.
#[must_use]
pub fn format_duration(ms: i64) -> String {
    if ms <= 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    let mut rest = ms;
    for (unit_ms, unit) in [(DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m"), (SECOND_MS, "s"), (1, "ms")] {
        let count = rest / unit_ms;
        rest %= unit_ms;
        if count > 0 {
            text.push_str(&count.to_string());
            text.push_str(unit);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_every_form_of_a_duration() {
        for (text, ms) in [
            ("90s", 90_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("PT90S", 90_000),
            ("PT1H30M", 5_400_000),
            ("P1DT2H", 93_600_000),
            ("p1dt2h", 93_600_000),
            ("P1W", 604_800_000),
            ("90", 90_000),
            ("0.5", 500),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for text in [
            "",
            " ",
            "-5s",
            "5 m",
            "5x",
            "h",
            "PT",
            "P",
            "P1M",
            "1h1h",
            "5m1h",
            "1.",
            ".5s",
            "1e3",
            "99999999999999d",
            "٥s",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn instants_have_milliseconds_and_refuse_leap_seconds_and_local_times() {
        let instant: Timestamp = "2026-12-01T10:00:00.5+01:00".parse().unwrap();
        assert_eq!(instant.to_string(), "2026-12-01T09:00:00.500Z");
        let far: Timestamp = "2026-12-31T23:00:00-23:59".parse().unwrap();
        assert_eq!(far.to_string(), "2027-01-01T22:59:00.000Z");
        for text in [
            "2026-12-01T10:00:00",
            "2016-12-31T23:59:60Z",
            "tomorrow",
            "",
            "2026-13-01T00:00:00Z",
            "2026-12-01T09:00:00+24:00",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_fraction_may_have_any_number_of_digits() {
        for (text, read) in [
            ("2026-12-01T10:00:00.1234567890+01:00", "2026-12-01T09:00:00.123Z"),
            ("2026-12-01T09:00:00.99999999999999999999Z", "2026-12-01T09:00:00.999Z"),
            ("9999-12-30T22:00:00.0000000000001Z", "9999-12-30T22:00:00.000Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().map(|instant| instant.to_string()), Ok(read.to_owned()));
        }
        let long = format!("2026-12-01T09:00:00.5{}Z", "0".repeat(10_000));
        assert_eq!(long.parse::<Timestamp>(), "2026-12-01T09:00:00.5Z".parse::<Timestamp>());
        for text in
            ["2026-12-01T09:00:00.1234567890", "2026-12-01T09:00:60.1234567890Z", "2026-12-01T09:00:00.Z"]
        {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
        let late = "9999-12-31T00:00:00.1234567890Z";
        assert_eq!(late.parse::<Timestamp>(), Err(InvalidTimestamp::TooLate { given: late.to_owned() }));
    }

    #[test]
    fn the_latest_instant_is_read_and_written_and_later_ones_are_told_from_nonsense() {
        assert_eq!(Timestamp::LATEST.as_ms(), jiff::Timestamp::MAX.as_second() * SECOND_MS);
        assert_eq!(Timestamp::LATEST.to_string(), "9999-12-30T22:00:00.000Z");
        assert_eq!("9999-12-30T22:00:00.000Z".parse::<Timestamp>(), Ok(Timestamp::LATEST));
        for beyond in [Timestamp::LATEST.plus_ms(1), Timestamp::MAX] {
            assert_eq!(beyond.to_string(), Timestamp::LATEST.to_string());
        }
        for late in
            ["9999-12-30T22:00:00.001Z", "9999-12-31T23:59:59Z", "9999-12-30T23:59:59.999999999-23:59"]
        {
            let refused = late.parse::<Timestamp>().unwrap_err();
            assert_eq!(refused, InvalidTimestamp::TooLate { given: late.to_owned() });
            assert!(refused.to_string().contains("later than 9999-12-30T22:00:00.000Z"), "{refused}");
        }
        for none in [
            "9999-12-31T23:59:60Z",
            "9999-12-32T00:00:00Z",
            "9999-02-29T00:00:00Z",
            "9999-",
            "10000-01-01T00:00:00Z",
        ] {
            let refused = none.parse::<Timestamp>().unwrap_err();
            assert_eq!(refused, InvalidTimestamp::Unreadable { given: none.to_owned() });
        }
    }

    proptest! {
        #[test]
        fn durations_survive_the_round_trip(ms in 1_i64..10_000 * DAY_MS) {
            prop_assert_eq!(parse_duration(&format_duration(ms)), Ok(ms));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC{0,40}") {
            drop(parse_duration(&text));
            drop(text.parse::<Timestamp>());
        }
    }
}
