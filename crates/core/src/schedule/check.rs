//! What is refused of a definition, and for which field: each fault names the field as users write it.

use super::definition::{Definition, MisfirePolicy, Timing};
use super::exclude::Dates;
use super::nominal::next_nominal;
use crate::limits::{
    CALENDAR_DATES_COUNT_MAX, EXCLUDED_DATES_COUNT_MAX, FIRE_WINDOW_MS_MAX, MISFIRE_CAP_COUNT_MAX,
    MISFIRE_GRACE_MS_MAX, MISFIRE_GRACE_MS_MIN, SCHEDULE_INTERVAL_MS_MAX, SCHEDULE_INTERVAL_MS_MIN,
    SCHEDULE_KEY_CHARS_MAX, SCHEDULE_NAME_BYTES_MAX, SCHEDULE_NOTE_BYTES_MAX,
};
use crate::names::{InvalidName, check_idempotency_key, plain_name};
use crate::time::{Timestamp, format_duration};

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field, as users write it; dots lead into it.
    pub field: &'static str,
    /// What is wrong, and what to write instead.
    pub detail: String,
}

/// All that is wrong with a definition that is to hold from `now` on. `interval_ms_min` is what the tenant's
/// limits ask for between two fires. The job's own fields are checked where jobs are.
#[must_use]
pub fn check(
    definition: &Definition,
    calendar: Option<&Dates>,
    interval_ms_min: i64,
    now: Timestamp,
) -> Vec<Fault> {
    let mut faults = Faults(Vec::new());
    let rule = &definition.rule;
    faults.timing(&rule.timing, interval_ms_min.max(SCHEDULE_INTERVAL_MS_MIN));
    faults.duration("window", definition.window_ms, (0, FIRE_WINDOW_MS_MAX));
    faults.duration(
        "misfire_grace",
        definition.misfire.grace_ms,
        (MISFIRE_GRACE_MS_MIN, MISFIRE_GRACE_MS_MAX),
    );
    if let MisfirePolicy::FireAll { cap } = definition.misfire.policy {
        let is_fine = (1..=MISFIRE_CAP_COUNT_MAX).contains(&cap);
        faults.unless(is_fine, "misfire_cap", || format!("write a number from 1 to {MISFIRE_CAP_COUNT_MAX}"));
    }
    let dates = rule.exclude.dates.as_slice().len();
    faults.unless(dates <= EXCLUDED_DATES_COUNT_MAX, "exclude.dates", || {
        format!("has {dates} dates; at most {EXCLUDED_DATES_COUNT_MAX} are allowed: put more into a calendar")
    });
    if let Some(name) = &rule.exclude.calendar {
        faults.name("exclude.calendar", plain_name("the calendar", name, SCHEDULE_NAME_BYTES_MAX));
    }
    if let Some(key) = &definition.idempotency_key {
        faults.name("idempotency_key", check_idempotency_key(key));
        let chars = key.chars().count();
        faults.unless(chars <= SCHEDULE_KEY_CHARS_MAX, "idempotency_key", || {
            format!("has {chars} characters; at most {SCHEDULE_KEY_CHARS_MAX} leave room for the time of each fire")
        });
    }
    let note = definition.note.as_deref().map_or(0, str::len);
    faults.unless(note <= SCHEDULE_NOTE_BYTES_MAX, "note", || {
        format!("has {note} bytes; at most {SCHEDULE_NOTE_BYTES_MAX} are allowed")
    });
    let is_backwards = matches!((rule.start_at, rule.end_at), (Some(start), Some(end)) if end < start);
    faults.unless(!is_backwards, "end_at", || "lies before start_at".to_owned());
    if faults.0.is_empty() && next_nominal(rule, calendar, now).is_none() {
        let field = if rule.end_at.is_some() { "end_at" } else { "exclude" };
        faults.add(field, "leaves no fire at all".to_owned());
    }
    faults.0
}

/// Checks the name of a schedule.
///
/// # Errors
/// When it is empty, too long, or has a character that is not plain.
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    plain_name("the name", name, SCHEDULE_NAME_BYTES_MAX)
}

impl Dates {
    /// Checks that a calendar of these dates is not too large.
    ///
    /// # Errors
    /// With the fault of its field `dates`, when it is.
    pub fn check_calendar(&self) -> Result<(), Fault> {
        let given = self.as_slice().len();
        if given <= CALENDAR_DATES_COUNT_MAX {
            return Ok(());
        }
        let detail = format!("has {given} dates; at most {CALENDAR_DATES_COUNT_MAX} are allowed");
        Err(Fault { field: "dates", detail })
    }
}

struct Faults(Vec<Fault>);

impl Faults {
    fn timing(&mut self, timing: &Timing, min_ms: i64) {
        match timing {
            Timing::Cron(cron) => {
                let gap_ms = i64::try_from(cron.min_gap_seconds()).unwrap_or(i64::MAX).saturating_mul(1_000);
                self.unless(gap_ms >= min_ms, "cron_expr", || {
                    let (gap, min) = (format_duration(gap_ms), format_duration(min_ms));
                    format!("fires {gap} apart; the tenant's minimum interval is {min}")
                });
            }
            Timing::Every { interval_ms, .. } => {
                self.duration("every", *interval_ms, (min_ms, SCHEDULE_INTERVAL_MS_MAX));
            }
        }
    }

    fn duration(&mut self, field: &'static str, given_ms: i64, (min_ms, max_ms): (i64, i64)) {
        self.unless((min_ms..=max_ms).contains(&given_ms), field, || {
            let [given, min, max] = [given_ms, min_ms, max_ms].map(format_duration);
            format!("is {given}; it must be from {min} to {max}")
        });
    }

    fn name(&mut self, field: &'static str, checked: Result<(), InvalidName>) {
        if let Err(refused) = checked {
            self.add(field, refused.to_string());
        }
    }

    fn unless(&mut self, is_fine: bool, field: &'static str, detail: impl FnOnce() -> String) {
        if !is_fine {
            self.add(field, detail());
        }
    }

    fn add(&mut self, field: &'static str, detail: String) {
        self.0.push(Fault { field, detail });
    }
}
