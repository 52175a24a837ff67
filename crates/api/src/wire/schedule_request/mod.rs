//! A schedule to be made or changed, read from JSON.
//!
//! A new schedule starts from the defaults, a change from what the schedule is: the same code reads both. In a
//! change, a field that is `null` goes back to its default; objects are replaced as a whole.

mod backfill;
mod calendar;
mod policy;
mod preview;
mod template;
#[cfg(test)]
mod tests;
mod timing;

use std::sync::Arc;

use tidewheel_core::limits::{FIRE_WINDOW_MS_MAX, SCHEDULE_KEY_CHARS_MAX, SCHEDULE_NOTE_BYTES_MAX};
use tidewheel_core::schedule::{Definition, Schedule, check_name};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;

pub use backfill::{BACKFILL_COUNT_MAX, BackfillRequest};
pub use calendar::CalendarRequest;
pub use preview::PreviewRequest;
use template::TemplateFields;
pub(crate) use timing::{TimeFields, fold_name, gap_name, read_rule, read_zone};

use super::fault::{At, Code, Faults, shown};
use super::job_request::{LeftOut, TargetRules, named, read_key};
use super::read::{self, Field};
use crate::known_fields;

/// The type of occurrences of a schedule that has neither a type nor a name.
pub const TYPE_DEFAULT: &str = "scheduled";

/// A schedule as it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRequest {
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Whether it is to wait until it is resumed; nothing said leaves it as it is.
    pub paused: Option<bool>,
    /// What it does. What only its tenant's limits and calendars can tell is not checked yet.
    pub definition: Definition,
    /// What it did not say of its jobs. A change leaves nothing out: it keeps what there was.
    pub left_out: LeftOut,
    /// Whether `exclude` is an object, and its calendar a field within it.
    pub excludes_by_object: bool,
}

known_fields!(ScheduleFields {
    name = "name",
    cron_expr = "cron_expr",
    every = "every",
    timezone = "timezone",
    dst = "dst",
    start_at = "start_at",
    end_at = "end_at",
    exclude = "exclude",
    window = "window",
    misfire = "misfire",
    misfire_cap = "misfire_cap",
    misfire_grace = "misfire_grace",
    overlap = "overlap",
    allow_overlap = "allow_overlap",
    kind = "type",
    payload = "payload",
    queue = "queue",
    target = "target",
    target_url = "target_url",
    priority = "priority",
    retry = "retry",
    max_attempts = "max_attempts",
    timeout = "timeout",
    labels = "labels",
    idempotency_key = "idempotency_key",
    note = "note",
    paused = "paused",
});

impl<'a> ScheduleFields<'a> {
    const fn time(&self) -> TimeFields<'a> {
        TimeFields {
            cron_expr: self.cron_expr,
            every: self.every,
            timezone: self.timezone,
            dst: self.dst,
            start_at: self.start_at,
            end_at: self.end_at,
            exclude: self.exclude,
        }
    }

    const fn template(&self) -> TemplateFields<'a> {
        TemplateFields {
            kind: self.kind,
            payload: self.payload,
            queue: self.queue,
            target: self.target,
            target_url: self.target_url,
            priority: self.priority,
            retry: self.retry,
            max_attempts: self.max_attempts,
            timeout: self.timeout,
            labels: self.labels,
        }
    }
}

/// Reads schedules.
#[derive(Debug)]
pub struct ScheduleReader<'r, R> {
    /// When the request arrived.
    pub now: Timestamp,
    /// Which targets are allowed.
    pub rules: &'r R,
    /// Which zones there are.
    pub zones: &'r Zones,
}

impl<R: TargetRules> ScheduleReader<'_, R> {
    /// Reads a new schedule; `None` when there are faults.
    pub fn read(&self, text: &str, at: &At<'_>, faults: &mut Faults) -> Option<ScheduleRequest> {
        let before = faults.count();
        let fields: ScheduleFields<'_> = read::body(text, at, faults)?;
        self.request(&fields, None, at, faults).filter(|_| faults.count() == before)
    }

    /// Reads a schedule that has its name from elsewhere; one in the body must be the same.
    pub fn read_named(&self, text: &str, name: &Arc<str>, faults: &mut Faults) -> Option<ScheduleRequest> {
        let (at, before) = (&At::ROOT, faults.count());
        let fields: ScheduleFields<'_> = read::body(text, at, faults)?;
        if let Some(field) = fields.name
            && let Some(own) = field.text(at, faults)
            && *own != **name
        {
            let detail = format!("the address names {:?}, and the body {:?}", shown(name), shown(&own));
            field.refuse(Code::ConflictingFields, at, faults, detail);
        }
        let request = self.with_name(&fields, Some(Arc::clone(name)), None, at, faults);
        request.filter(|_| faults.count() == before)
    }

    /// Reads a change of `current`; `None` when there are faults.
    pub fn change(&self, text: &str, current: &Schedule, faults: &mut Faults) -> Option<ScheduleRequest> {
        let (at, before) = (&At::ROOT, faults.count());
        let fields: ScheduleFields<'_> = read::changes(text, at, faults)?;
        self.request(&fields, Some(current), at, faults).filter(|_| faults.count() == before)
    }

    fn request(
        &self,
        fields: &ScheduleFields<'_>,
        current: Option<&Schedule>,
        at: &At<'_>,
        faults: &mut Faults,
    ) -> Option<ScheduleRequest> {
        let kept = current.map(|current| current.name.clone());
        let name = settle(fields.name, kept, || None, |field| read_name(field, at, faults).map(Some));
        self.with_name(fields, name, current, at, faults)
    }

    fn with_name(
        &self,
        fields: &ScheduleFields<'_>,
        name: Option<Arc<str>>,
        current: Option<&Schedule>,
        at: &At<'_>,
        faults: &mut Faults,
    ) -> Option<ScheduleRequest> {
        let base = current.map(|current| &*current.definition);
        let rule =
            read_rule(&fields.time(), base.map(|base| &*base.rule), (self.now, self.zones), at, faults);
        let window_ms = settle(
            fields.window,
            base.map(|base| base.window_ms),
            || 0,
            |field| field.duration_within(0, FIRE_WINDOW_MS_MAX, at, faults),
        );
        let misfire = policy::read_misfire(fields, base.map(|base| base.misfire), at, faults);
        let overlap = policy::read_overlap(fields, base.map(|base| base.overlap), at, faults);
        let kind_default = name.clone().unwrap_or_else(|| Arc::from(TYPE_DEFAULT));
        let template = fields.template();
        let left_out = if current.is_some() { LeftOut::default() } else { template.left_out() };
        let template = template.read(base.map(|base| &base.template), &kind_default, self.rules, at, faults);
        let idempotency_key = settle(
            fields.idempotency_key,
            base.map(|base| base.idempotency_key.clone()),
            || None,
            |field| read_schedule_key(field, at, faults).map(Some),
        );
        let note = settle(
            fields.note,
            base.map(|base| base.note.clone()),
            || None,
            |field| read_note(field, at, faults).map(Some),
        );
        let paused = fields.paused.filter(|field| !field.is_null());
        let paused = paused.and_then(|field| field.boolean(at, faults));
        let rule = Arc::new(rule?);
        let definition =
            Definition { rule, window_ms, misfire, overlap, template: template?, idempotency_key, note };
        let excludes_by_object = fields.time().excludes_by_object();
        Some(ScheduleRequest { name, paused, definition, left_out, excludes_by_object })
    }
}

/// What a field comes to: what it says; its default when it is `null`; without it, what there was before.
fn settle<T>(
    field: Option<Field<'_>>,
    kept: Option<T>,
    default: impl FnOnce() -> T,
    read: impl FnOnce(&Field<'_>) -> Option<T>,
) -> T {
    let said = match &field {
        None => kept,
        Some(field) if field.is_null() => None,
        // A fault was noted, so it does not matter what comes of it.
        Some(field) => read(field),
    };
    said.unwrap_or_else(default)
}

/// Reads the name of a schedule or a calendar.
fn read_name(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Arc<str>> {
    let text = field.text(at, faults)?;
    named(check_name(&text), field, at, faults)?;
    Some(Arc::from(text))
}

pub(super) fn read_schedule_key(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Arc<str>> {
    let key = read_key(field, at, faults)?;
    let chars = key.chars().count();
    if chars > SCHEDULE_KEY_CHARS_MAX {
        let detail = format!(
            "it has {chars} characters; at most {SCHEDULE_KEY_CHARS_MAX} leave room for the time of each fire"
        );
        field.refuse(Code::InvalidValue, at, faults, detail);
        return None;
    }
    Some(key)
}

fn read_note(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Box<str>> {
    let note = field.free_text(at, faults)?;
    if note.len() > SCHEDULE_NOTE_BYTES_MAX {
        let detail = format!("it has {} bytes; at most {SCHEDULE_NOTE_BYTES_MAX} are allowed", note.len());
        field.refuse(Code::InvalidValue, at, faults, detail);
        return None;
    }
    Some(note.into())
}
