//! What a refused expression says: where, in which field, what is wrong, and what to write instead.

use std::fmt;

/// Why an expression was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// Where the mistake begins, in bytes from the start of the expression.
    pub position: usize,
    /// The field it is in; none if it concerns the expression as a whole.
    pub field: Option<Field>,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub hint: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, field, problem, hint } = self;
        match field {
            Some(field) => write!(f, "{field} field: {problem} (at byte {position}); {hint}"),
            None => write!(f, "{problem} (at byte {position}); {hint}"),
        }
    }
}

/// A field of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// 0 to 59; only in expressions of six fields.
    Second,
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31.
    DayOfMonth,
    /// 1 to 12, or names.
    Month,
    /// 0 to 7, both ends being Sunday, or names.
    DayOfWeek,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Second => "second",
            Field::Minute => "minute",
            Field::Hour => "hour",
            Field::DayOfMonth => "day-of-month",
            Field::Month => "month",
            Field::DayOfWeek => "day-of-week",
        })
    }
}

impl Field {
    /// The smallest value the field takes.
    pub(super) fn min(self) -> u32 {
        match self {
            Field::Second | Field::Minute | Field::Hour | Field::DayOfWeek => 0,
            Field::DayOfMonth | Field::Month => 1,
        }
    }

    /// The largest value the field takes.
    pub(super) fn max(self) -> u32 {
        match self {
            Field::Second | Field::Minute => 59,
            Field::Hour => 23,
            Field::DayOfMonth => 31,
            Field::Month => 12,
            Field::DayOfWeek => 7,
        }
    }

    /// The longest step that is taken for meant. The three fields of the date share the month's 31: crons
    /// have always read `*/20` in the month field as January alone, and crontabs that say so exist.
    pub(super) fn step_max(self) -> u32 {
        match self {
            Field::Second | Field::Minute => 60,
            Field::Hour => 24,
            Field::DayOfMonth | Field::Month | Field::DayOfWeek => 31,
        }
    }

    /// The names that stand for the field's values, from its smallest value on.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Field::Second | Field::Minute | Field::Hour | Field::DayOfMonth => &[],
            Field::Month => {
                &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
            }
            Field::DayOfWeek => &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
        }
    }

    /// What may be written in the field, for hints.
    pub(super) fn takes(self) -> &'static str {
        match self {
            Field::Second | Field::Minute => "write numbers from 0 to 59, such as 0,30 or */5",
            Field::Hour => "write numbers from 0 to 23, such as 9-17 or */2",
            Field::DayOfMonth => "write numbers from 1 to 31, L (last day), LW or 15W (nearest weekday)",
            Field::Month => "write numbers from 1 to 12 or JAN to DEC",
            Field::DayOfWeek => "write numbers from 0 to 7, SUN to SAT, FRI#2 (second) or 5L (last)",
        }
    }
}
