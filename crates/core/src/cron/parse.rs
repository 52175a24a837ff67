//! Text to fields. Whatever is not certain to be meant is refused, with a word on what to write instead.

use super::error::{Field, ParseError};
use super::fields::{Days, Fields, Weekdays};

/// The longest expression that is read. One that lists every value of every field is half as long.
pub const EXPRESSION_BYTES_MAX: usize = 1024;

/// `nW` beyond this day would have no day to be nearest to in February.
const NEAREST_WEEKDAY_MAX: u32 = 28;
/// What may be written with a `W`, for hints. The other forms have ranges of their own too.
const NEAREST_WEEKDAY_TAKES: &str =
    "write 1W to 28W, the days every month has, or LW for a month's last weekday";
const BEFORE_LAST_TAKES: &str = "write L-1 to L-30, that many days before a month's last, or L for the last";
const NTH_TAKES: &str = "write #1 to #5, such as FRI#2 for a month's second, or 5L for its last";
/// How much of the expression a problem repeats.
const QUOTED_CHARS_MAX: usize = 24;

const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Reads a whole expression.
pub(super) fn fields(expr: &str) -> Result<Fields, ParseError> {
    let whole = |position, problem: String, hint: &str| ParseError {
        position,
        field: None,
        problem,
        hint: hint.to_owned(),
    };
    if expr.len() > EXPRESSION_BYTES_MAX {
        let problem = format!("the expression is {} bytes long", expr.len());
        let hint =
            format!("keep it within {EXPRESSION_BYTES_MAX} bytes, with ranges and steps in place of lists");
        return Err(whole(EXPRESSION_BYTES_MAX, problem, &hint));
    }
    let text = expr.trim_ascii();
    let margin = expr.len() - expr.trim_ascii_start().len();
    let strange = |c: &char| !c.is_ascii_graphic() && *c != ' ' && *c != '\t';
    if let Some((at, strange)) = text.char_indices().find(|(_, c)| strange(c)) {
        let problem = format!("'{}' has no meaning in cron", strange.escape_default());
        return Err(whole(margin + at, problem, "write letters, digits, spaces and * , - / ? # only"));
    }
    if text.starts_with('@') {
        let nickname = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        return match nickname {
            Some((_, meaning)) => fields(meaning),
            None => Err(whole(
                margin,
                format!("{} is not a known nickname", quoted(text)),
                "write @yearly, @monthly, @weekly, @daily or @hourly, or five fields",
            )),
        };
    }
    let words: Vec<Word<'_>> = words(expr).collect();
    match words.as_slice() {
        &[minute, hour, day, month, weekday] => {
            combine([Word { text: "0", at: minute.at }, minute, hour, day, month, weekday])
        }
        &[second, minute, hour, day, month, weekday] => combine([second, minute, hour, day, month, weekday]),
        other => Err(whole(
            other.get(6).map_or(expr.len(), |extra| extra.at),
            format!("there are {} fields", other.len()),
            "write five (minute, hour, day of month, month, day of week), or six with seconds first",
        )),
    }
}

/// A piece of the expression, and where it begins.
#[derive(Debug, Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Word<'a> {
    /// The pieces around the first `separator`, if there is one.
    fn split(self, separator: char) -> Option<(Word<'a>, Word<'a>)> {
        let (left, right) = self.text.split_once(separator)?;
        Some((Word { text: left, at: self.at }, Word { text: right, at: self.at + left.len() + 1 }))
    }

    /// The piece before `suffix`, whose letters may be of either case.
    fn before(self, suffix: &str) -> Option<Word<'a>> {
        let (left, right) = self.text.split_at_checked(self.text.len().checked_sub(suffix.len())?)?;
        right.eq_ignore_ascii_case(suffix).then_some(Word { text: left, at: self.at })
    }

    fn is(self, text: &str) -> bool {
        self.text.eq_ignore_ascii_case(text)
    }

    /// The items of a list, empty ones too.
    fn items(self) -> impl Iterator<Item = Word<'a>> {
        let mut at = self.at;
        self.text.split(',').map(move |text| {
            let item = Word { text, at };
            at += text.len() + 1;
            item
        })
    }
}

/// The pieces of the expression between blanks.
fn words(expr: &str) -> impl Iterator<Item = Word<'_>> {
    let mut at = 0;
    expr.split(|c: char| c.is_ascii_whitespace())
        .map(move |text| {
            let word = Word { text, at };
            at += text.len() + 1;
            word
        })
        .filter(|word| !word.text.is_empty())
}

fn combine([second, minute, hour, day, month, weekday]: [Word<'_>; 6]) -> Result<Fields, ParseError> {
    let fields = Fields {
        seconds: plain_field(Field::Second, second)?,
        minutes: plain_field(Field::Minute, minute)?,
        hours: plain_field(Field::Hour, hour)?,
        days: days(day)?,
        months: plain_field(Field::Month, month)?,
        weekdays: weekdays(weekday)?,
        fixed_time: !minute.text.starts_with('*') && !hour.text.starts_with('*'),
    };
    if fields.calendar().all(|(days, _)| days == 0) {
        let problem = format!("{} never comes in month {}", quoted(day.text), quoted(month.text));
        return Err(error(
            Field::DayOfMonth,
            day,
            problem,
            "write a day these months have, or L for the last",
        ));
    }
    Ok(fields)
}

fn plain_field(field: Field, word: Word<'_>) -> Result<u64, ParseError> {
    word.items().try_fold(0, |set, item| Ok(set | plain_item(field, item)?))
}

fn days(word: Word<'_>) -> Result<Days, ParseError> {
    const FIELD: Field = Field::DayOfMonth;
    let mut days = Days::default();
    for item in word.items() {
        if is_unrestricted(item) {
            days.unrestricted = true;
            days.plain |= span(FIELD.min(), FIELD.max(), 1);
        } else if item.is("L") {
            days.before_last |= 1;
        } else if item.is("LW") {
            days.last_weekday = true;
        } else if let Some((_, before)) = item.split('-').filter(|(left, _)| left.is("L")) {
            days.before_last |= 1 << number_among(FIELD, before, (1, 30), BEFORE_LAST_TAKES)?;
        } else if let Some(day) = item.before("W") {
            let days_taken = (1, NEAREST_WEEKDAY_MAX);
            days.nearest_weekday |= 1 << number_among(FIELD, day, days_taken, NEAREST_WEEKDAY_TAKES)?;
        } else {
            days.plain |= plain_item(FIELD, item)?;
        }
    }
    Ok(days)
}

fn weekdays(word: Word<'_>) -> Result<Weekdays, ParseError> {
    const FIELD: Field = Field::DayOfWeek;
    let mut weekdays = Weekdays::default();
    for item in word.items() {
        if is_unrestricted(item) {
            weekdays.unrestricted = true;
            weekdays.plain |= span(FIELD.min(), FIELD.max(), 1);
        } else if let Some((weekday, nth)) = item.split('#') {
            let weekday = 1 << value(FIELD, weekday)?;
            let nth = number_among(FIELD, nth, (1, 5), NTH_TAKES)?;
            for (_, set) in (1..).zip(&mut weekdays.nth).filter(|(week, _)| *week == nth) {
                *set |= sunday_as_zero(weekday);
            }
        } else if let Some(weekday) = item.before("L") {
            weekdays.last |= sunday_as_zero(1 << value(FIELD, weekday)?);
        } else {
            weekdays.plain |= plain_item(FIELD, item)?;
        }
    }
    weekdays.plain = sunday_as_zero(weekdays.plain);
    Ok(weekdays)
}

fn sunday_as_zero(set: u64) -> u64 {
    (set | set >> 7) & 0x7f
}

/// The items that leave a day field without a say, so that the other day field alone decides.
fn is_unrestricted(item: Word<'_>) -> bool {
    matches!(item.text, "*" | "?" | "*/1")
}

/// `*`, a value or a range, each with or without a step.
fn plain_item(field: Field, item: Word<'_>) -> Result<u64, ParseError> {
    let (base, step) = match item.split('/') {
        Some((base, step)) => (base, Some((step, step_of(field, step)?))),
        None => (item, None),
    };
    let every = step.map_or(1, |(_, every)| every);
    if base.text == "*" {
        return Ok(span(field.min(), field.max(), every));
    }
    if let Some((first, last)) = base.split('-').filter(|(first, _)| !first.text.is_empty()) {
        let (low, high) = (value(field, first)?, value(field, last)?);
        if low > high {
            let problem = format!("the range {} runs backwards", quoted(base.text));
            return Err(error(field, base, problem, backwards_hint(field, first, last)));
        }
        return Ok(span(low, high, every));
    }
    let low = value(field, base)?;
    match step {
        None => Ok(span(low, low, 1)),
        Some((step, _)) if field == Field::DayOfWeek => {
            let problem =
                format!("a step after a single weekday, {}, is read in different ways", quoted(item.text));
            let hint = format!("write the range, such as {}-6/{}, or list the days", base.text, step.text);
            Err(error(field, item, problem, hint))
        }
        Some(_) => Ok(span(low, field.max(), every)),
    }
}

fn backwards_hint(field: Field, first: Word<'_>, last: Word<'_>) -> String {
    if field == Field::DayOfWeek && (last.is("SUN") || last.text == "0") {
        return format!("Sunday begins the week here: write {}-6,0", first.text);
    }
    let (top, bottom) = (field.max(), field.min());
    format!("write two ranges: {}-{top},{bottom}-{}", first.text, last.text)
}

fn step_of(field: Field, word: Word<'_>) -> Result<u32, ParseError> {
    let step = number(field, word)?;
    if step == 0 || step > field.step_max() {
        let problem = format!("the step {} does not fit the field", quoted(word.text));
        let hint = format!("write a step from 1 to {}", field.step_max());
        return Err(error(field, word, problem, hint));
    }
    Ok(step)
}

/// A number or a name that the field takes.
fn value(field: Field, word: Word<'_>) -> Result<u32, ParseError> {
    if let Some((value, _)) = (field.min()..).zip(field.names()).find(|(_, name)| word.is(name)) {
        return Ok(value);
    }
    number_among(field, word, (field.min(), field.max()), field.takes())
}

/// A number from `min` to `max`; `takes` says what to write in place of another.
fn number_among(
    field: Field,
    word: Word<'_>,
    (min, max): (u32, u32),
    takes: &str,
) -> Result<u32, ParseError> {
    let number = number(field, word)?;
    if number < min || number > max {
        let problem = format!("{} is not between {min} and {max}", quoted(word.text));
        return Err(error(field, word, problem, takes));
    }
    Ok(number)
}

fn number(field: Field, word: Word<'_>) -> Result<u32, ParseError> {
    if word.text.is_empty() {
        return Err(error(field, word, "something is missing here".to_owned(), field.takes()));
    }
    if !word.text.bytes().all(|byte| byte.is_ascii_digit()) {
        let problem = format!("{} is not something this field understands", quoted(word.text));
        return Err(error(field, word, problem, field.takes()));
    }
    // What does not fit 32 bits is out of every range, like the largest number that does.
    Ok(word.text.parse().unwrap_or(u32::MAX))
}

/// Every `step`th value from `low` to `high`.
fn span(low: u32, high: u32, step: u32) -> u64 {
    (low..=high).filter(|value| (value - low).is_multiple_of(step)).fold(0, |set, value| set | 1 << value)
}

fn error(field: Field, word: Word<'_>, problem: String, hint: impl Into<String>) -> ParseError {
    ParseError { position: word.at, field: Some(field), problem, hint: hint.into() }
}

fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    let more = if shown.len() < text.len() { "..." } else { "" };
    format!("'{shown}{more}'")
}
