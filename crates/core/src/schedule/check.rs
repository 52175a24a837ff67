//! What is refused of a definition, and for which field: each fault names the field as users write it.

use super::definition::{Definition, MisfirePolicy, Rule, Timing};
use super::exclude::Dates;
use super::nominal::{next_nominal, to_jiff};
use crate::cron::{Dst, Gap};
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
    /// In which way.
    pub kind: FaultKind,
}

/// In which way a field is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Fires would come too close together, or too far apart.
    Interval,
    /// No clock ever shows what the expression asks for.
    Never,
    /// Any other.
    Value,
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
        faults.0.push(check_beat(rule, now).err().unwrap_or_else(|| leaves_nothing(rule)));
    }
    faults.0
}

/// Checks that fires do not come closer together than the tenant's limits allow.
///
/// # Errors
/// With the fault of the field that is to blame, when they do.
pub fn check_interval(rule: &Rule, interval_ms_min: i64) -> Result<(), Fault> {
    let mut faults = Faults(Vec::new());
    faults.timing(&rule.timing, interval_ms_min.max(SCHEDULE_INTERVAL_MS_MIN));
    faults.0.pop().map_or(Ok(()), Err)
}

/// What is to blame when a beat comes, and no fire does.
fn leaves_nothing(rule: &Rule) -> Fault {
    let start = rule.start_at.filter(|start| !comes_after(rule, start.plus_ms(-1), rule.dst));
    let (field, detail) = match (start, rule.end_at) {
        (Some(_), _) => {
            let latest = Timestamp::LATEST;
            ("start_at", format!("leaves no fire at all up to {latest}, the latest instant there is"))
        }
        (None, Some(_)) => ("end_at", "leaves no fire at all".to_owned()),
        (None, None) => ("exclude", "leaves no fire at all".to_owned()),
    };
    Fault { field, detail, kind: FaultKind::Value }
}

/// Checks that the clock ever shows what a cron expression asks for, whatever else may leave out of it: one that
/// comes only on the days clocks are moved may be moved over each time. This is asked from `now` on also where the rule
/// starts later: near the end of time nothing comes any more, which is not the expression's fault.
///
/// # Errors
/// With the fault of the field that is to blame, when it never does.
pub fn check_beat(rule: &Rule, now: Timestamp) -> Result<(), Fault> {
    if comes_after(rule, now, rule.dst) {
        return Ok(());
    }
    let zone = rule.zone.name();
    if rule.dst.gap == Gap::Skip && comes_after(rule, now, Dst { gap: Gap::NextValid, ..rule.dst }) {
        let detail = format!(
            "`skip` leaves no fire at all: the clock of {zone} is moved over each of its times; write `next_valid`, or \
             another time"
        );
        return Err(Fault { field: "dst.gap", detail, kind: FaultKind::Value });
    }
    let detail =
        format!("never fires: the clock of {zone} is moved over each of its times; write another time");
    Err(Fault { field: "cron_expr", detail, kind: FaultKind::Never })
}

/// Whether the clock shows what a cron expression asks for after an instant. An interval comes always: it counts from its
/// own start.
fn comes_after(rule: &Rule, after: Timestamp, dst: Dst) -> bool {
    match &rule.timing {
        Timing::Cron(cron) => cron.next_after(to_jiff(after), &rule.zone, dst).is_some(),
        Timing::Every { .. } => true,
    }
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
        Err(Fault { field: "dates", detail, kind: FaultKind::Value })
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
        // Nothing else has been looked at yet.
        for fault in &mut self.0 {
            fault.kind = FaultKind::Interval;
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
        self.0.push(Fault { field, detail, kind: FaultKind::Value });
    }
}
