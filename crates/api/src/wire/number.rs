//! Numbers of a request, exactly as they were written. JSON knows one kind of number: `5`, `5.0`, `0.5e1` and `50e-1` are the
//! same, and no reader may make another one of it on the way through floating point.

use std::borrow::Cow;

use tidewheel_core::time::{format_duration, parse_duration};

use super::fault::{At, Code, Faults, shown};
use super::read::Field;

/// Decimals of a second that count; what is finer is cut off.
const SECOND_DECIMALS: i64 = 3;
/// Stands for an exponent that is longer than any that matters.
const EXPONENT_MAX: i64 = i64::MAX / 4;

/// A number as it was written: digits, and a power of ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decimal<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
    exponent: i64,
}

/// What a number comes to, counted in some power of ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Units {
    /// So many, and nothing is left.
    Exactly(u64),
    /// So many, and a part of one.
    AndSome(u64),
    /// More than can be counted.
    TooMany,
    /// Less than nothing.
    Negative,
}

impl<'a> Decimal<'a> {
    /// Reads a JSON number; `None` if it is something else.
    fn read(raw: &'a str) -> Option<Self> {
        let (is_negative, digits) = match raw.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, raw),
        };
        let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (digits, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = !whole.is_empty() && is_digits(whole) && is_digits(fraction);
        is_number.then_some(Self { is_negative, whole, fraction, exponent })
    }

    /// How often 10^-`decimals` is in it.
    fn units(&self, decimals: i64) -> Units {
        let digits = || self.whole.bytes().chain(self.fraction.bytes()).map(|byte| u64::from(byte - b'0'));
        if digits().all(|digit| digit == 0) {
            return Units::Exactly(0);
        }
        if self.is_negative {
            return Units::Negative;
        }
        let length = |text: &str| i64::try_from(text.len()).unwrap_or(EXPONENT_MAX);
        // So many digits stand before the point, if it is where units end.
        let mut counted = length(self.whole).saturating_add(self.exponent).saturating_add(decimals);
        let (mut units, mut is_exact) = (0_u64, true);
        for digit in digits() {
            if counted > 0 {
                counted -= 1;
                match times_ten_plus(units, digit) {
                    Some(more) => units = more,
                    None => return Units::TooMany,
                }
            } else {
                is_exact &= digit == 0;
            }
        }
        while counted > 0 && units > 0 {
            counted -= 1;
            match times_ten_plus(units, 0) {
                Some(more) => units = more,
                None => return Units::TooMany,
            }
        }
        if is_exact { Units::Exactly(units) } else { Units::AndSome(units) }
    }
}

fn times_ten_plus(units: u64, digit: u64) -> Option<u64> {
    units.checked_mul(10)?.checked_add(digit)
}

fn read_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse::<i64>().unwrap_or(EXPONENT_MAX).min(EXPONENT_MAX);
    Some(if text.starts_with('-') { -size } else { size })
}

impl Field<'_> {
    /// Its value as a duration in milliseconds: a number of seconds, or a text. What is finer than a millisecond is cut off.
    pub fn duration(&self, at: &At<'_>, faults: &mut Faults) -> Option<i64> {
        let text = match Decimal::read(self.raw()) {
            Some(seconds) => match seconds.units(SECOND_DECIMALS) {
                Units::Exactly(ms) | Units::AndSome(ms) if i64::try_from(ms).is_ok() => {
                    return i64::try_from(ms).ok();
                }
                // Whatever is wrong with it is told as it is of a text.
                Units::Exactly(_) | Units::AndSome(_) | Units::TooMany | Units::Negative => {
                    Cow::Borrowed(self.raw())
                }
            },
            None if self.raw().starts_with('"') => self.free_text(at, faults)?,
            None => {
                self.expected("a duration: a string such as \"90s\", or a number of seconds", at, faults);
                return None;
            }
        };
        match parse_duration(&text) {
            Ok(ms) => Some(ms),
            Err(fault) => {
                self.refuse(Code::InvalidDuration, at, faults, fault.to_string());
                None
            }
        }
    }

    /// Its value as a duration within bounds.
    pub fn duration_within(&self, min_ms: i64, max_ms: i64, at: &At<'_>, faults: &mut Faults) -> Option<i64> {
        let ms = self.duration(at, faults)?;
        if (min_ms..=max_ms).contains(&ms) {
            return Some(ms);
        }
        let [given, min, max] = [ms, min_ms, max_ms].map(format_duration);
        self.refuse(Code::InvalidValue, at, faults, format!("{given} is not between {min} and {max}"));
        None
    }

    /// Its value as a whole number within bounds.
    pub fn whole(&self, min: u64, max: u64, at: &At<'_>, faults: &mut Faults) -> Option<u64> {
        let Some(number) = Decimal::read(self.raw()) else {
            self.expected("a whole number", at, faults);
            return None;
        };
        let given = shown(self.raw());
        let detail = match number.units(0) {
            Units::Exactly(number) if (min..=max).contains(&number) => return Some(number),
            Units::Exactly(_) => format!("{given} is not between {min} and {max}"),
            Units::AndSome(_) | Units::TooMany | Units::Negative => {
                format!("{given} is not a whole number between {min} and {max}")
            }
        };
        self.refuse(Code::InvalidValue, at, faults, detail);
        None
    }

    /// Its value as a number within bounds.
    pub fn number(&self, min: f64, max: f64, at: &At<'_>, faults: &mut Faults) -> Option<f64> {
        let (Some(_), Ok(number)) = (Decimal::read(self.raw()), self.raw().parse::<f64>()) else {
            self.expected("a number", at, faults);
            return None;
        };
        if number >= min && number <= max {
            return Some(number);
        }
        let given = shown(self.raw());
        self.refuse(Code::InvalidValue, at, faults, format!("{given} is not between {min} and {max}"));
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn units(raw: &str, decimals: i64) -> Units {
        Decimal::read(raw).unwrap_or_else(|| panic!("{raw} is a number")).units(decimals)
    }

    /// A field's value, or the codes of what is wrong with it.
    fn judged<T>(
        raw: &str,
        read: impl Fn(&Field<'_>, &At<'_>, &mut Faults) -> Option<T>,
    ) -> Result<T, Vec<(&'static str, String)>> {
        let mut faults = Faults::default();
        let value = read(&Field::item(raw), &At::ROOT, &mut faults);
        let told = faults.into_list().into_iter().map(|fault| (fault.code.as_str(), fault.detail)).collect();
        value.ok_or(told)
    }

    fn seconds(raw: &str) -> Result<i64, Vec<(&'static str, String)>> {
        judged(raw, |field, at, faults| field.duration(at, faults))
    }

    fn whole(raw: &str) -> Result<u64, Vec<(&'static str, String)>> {
        judged(raw, |field, at, faults| field.whole(1, 100, at, faults))
    }

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        for raw in ["100", "100.0", "1e2", "1E2", "1.0e+2", "0.1e3", "1000e-1", "100.000e0", "0.0001e00006"] {
            assert_eq!(units(raw, 0), Units::Exactly(100), "{raw}");
            assert_eq!(whole(raw), Ok(100), "{raw}");
        }
        for raw in ["0", "-0", "0.000", "0e999999999999999999999", "-0.0e-99"] {
            assert_eq!(units(raw, 3), Units::Exactly(0), "{raw}");
        }
        assert_eq!(units("18446744073709551615", 0), Units::Exactly(u64::MAX));
        assert_eq!(units("18446744073709551616", 0), Units::TooMany);
        assert_eq!(units("9007199254740993", 0), Units::Exactly(9_007_199_254_740_993), "floats cannot");
        assert_eq!(units("1e99999999999999999999999", 0), Units::TooMany);
        assert_eq!(units("1e-99999999999999999999999", 0), Units::AndSome(0));
        assert_eq!(units("-1e-9", 0), Units::Negative);
    }

    #[test]
    fn seconds_count_to_the_millisecond_and_no_further() {
        for (raw, ms) in [
            ("90", 90_000),
            ("1e3", 1_000_000),
            ("1.5e0", 1_500),
            ("0.1000000000000000055", 100),
            ("0.29999999999999998", 299),
            ("1.0009999999999", 1_000),
            ("1e-3", 1),
            ("1e-4", 0),
            ("123456.789e-3", 123_456),
            ("\"90s\"", 90_000),
            ("\"1.5\"", 1_500),
        ] {
            assert_eq!(seconds(raw), Ok(ms), "{raw}");
        }
        for raw in ["-1", "-1e-9", "1e400", "9223372036854775808", "1e16", "\"1e3\"", "\"soon\""] {
            assert_eq!(seconds(raw).unwrap_err()[0].0, "invalid_duration", "{raw}");
        }
        for raw in ["true", "[]", "{}"] {
            assert_eq!(seconds(raw).unwrap_err()[0].0, "wrong_type", "{raw}");
        }
    }

    #[test]
    fn what_is_no_whole_number_within_its_bounds_is_refused() {
        for (raw, said) in [
            ("0.5", "0.5 is not a whole number between 1 and 100"),
            ("1.000000000000000001", "1.000000000000000001 is not a whole number between 1 and 100"),
            ("-1", "-1 is not a whole number between 1 and 100"),
            ("1e400", "1e400 is not a whole number between 1 and 100"),
            ("101", "101 is not between 1 and 100"),
            ("0", "0 is not between 1 and 100"),
        ] {
            assert_eq!(whole(raw), Err(vec![("invalid_value", said.to_owned())]), "{raw}");
        }
        for raw in ["\"5\"", "null", "[5]"] {
            assert_eq!(whole(raw).unwrap_err()[0].0, "wrong_type", "{raw}");
        }
    }

    #[test]
    fn fractions_are_read_where_they_are_meant() {
        let number = |raw: &str| judged(raw, |field, at, faults| field.number(0.5, 10.0, at, faults));
        assert_eq!(number("2"), Ok(2.0));
        assert_eq!(number("25e-1"), Ok(2.5));
        assert_eq!(number("1.10000000000000008881784197001252"), Ok(1.1));
        assert_eq!(
            number("1e400"),
            Err(vec![("invalid_value", "1e400 is not between 0.5 and 10".to_owned())])
        );
        assert_eq!(number("0.25").unwrap_err()[0].0, "invalid_value");
        assert_eq!(number("\"2\"").unwrap_err()[0].0, "wrong_type");
    }

    #[test]
    fn what_is_no_number_is_none() {
        for raw in ["", "-", ".5", "e5", "1e", "1e+", "1.5.5", "0x10", "inf", "NaN", "1_000", "٥", "+1"] {
            assert_eq!(Decimal::read(raw), None, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn moving_the_point_changes_nothing(digits in 0_u64..1_000_000_000_000, places in 0_usize..12) {
            let text = format!("{digits:012}");
            let (whole, fraction) = text.split_at(text.len() - places);
            let whole = if whole.is_empty() { "0" } else { whole };
            let moved = format!("{whole}.{fraction}0e{places}");
            prop_assert_eq!(units(&moved, 0), Units::Exactly(digits));
        }

        #[test]
        fn anything_is_read_or_refused_and_never_breaks(raw in "[-+0-9.eE]{0,40}") {
            if let Some(number) = Decimal::read(&raw) {
                drop(format!("{:?}", number.units(3)));
            }
        }
    }
}
