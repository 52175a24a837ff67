//! The shapes of schedules, ledgers and calendars.

use serde_json::{Value, json};
use tidewheel_core::limits::{
    ATTEMPTS_COUNT_MAX, BATCH_COUNT_MAX, CALENDAR_DATES_COUNT_MAX, EXCLUDED_DATES_COUNT_MAX,
    IDEMPOTENCY_KEY_CHARS_MAX, MISFIRE_CAP_COUNT_DEFAULT, MISFIRE_CAP_COUNT_MAX, PREVIEW_COUNT_DEFAULT,
    PREVIEW_COUNT_MAX, SCHEDULE_KEY_CHARS_MAX, SCHEDULE_NAME_BYTES_MAX, SCHEDULE_NOTE_BYTES_MAX,
    TYPE_BYTES_MAX,
};
use tidewheel_core::schedule::{Overlap, Reason, Roll, State};

use super::reference;
use super::shapes::{closed, described, keyed, open, or_null};

/// Properties that decide when a schedule fires.
fn time_fields() -> Value {
    json!({
        "cron_expr": {
            "type": "string",
            "examples": ["0 9 * * MON-FRI", "0 0 L * *", "@daily"],
            "description": "Five fields, or six with seconds first. Not with `every`; one of the two is needed.",
        },
        "every": described("Duration", "From one fire to the next, counted from `start_at` or from when it is asked for."),
        "timezone": {"type": "string", "default": "UTC", "examples": ["America/New_York"], "description": "An IANA name, spelled as the database has it."},
        "dst": described("Dst", "What a fixed time does when the zone's clock is moved."),
        "start_at": described("Time", "No fire before it."),
        "end_at": described("Time", "No fire after it."),
        "exclude": described("Exclude", "Dates it does not fire on."),
        "window": described("Duration", "Each occurrence starts within this of its time, at a place that is always the same; nought by default, at most a day."),
    })
}

/// Properties of a schedule that can be set, those above included.
fn fields() -> Value {
    let mut fields = json!({
        "name": {"type": "string", "maxLength": SCHEDULE_NAME_BYTES_MAX, "description": "Unique for its tenant: letters, digits and `. _ : @ -`."},
        "misfire": {"type": "string", "enum": ["fire_all", "fire_latest", "skip"], "default": "fire_latest", "description": "What becomes of instants that nobody was there to fire."},
        "misfire_cap": {"type": "integer", "minimum": 1, "maximum": MISFIRE_CAP_COUNT_MAX, "default": MISFIRE_CAP_COUNT_DEFAULT, "description": "With `fire_all`: how many are made up for, oldest first."},
        "misfire_grace": described("Duration", "How late an occurrence may start, after its window, and still count as on time; 1 min by default."),
        "overlap": {"type": "string", "enum": Overlap::ALL.map(Overlap::as_str), "default": Overlap::default().as_str(), "description": "What becomes of an instant that comes while an earlier run is not over."},
        "allow_overlap": {"type": "boolean", "description": "Short for `overlap`: `allow` or `skip`."},
        "type": {"type": "string", "maxLength": TYPE_BYTES_MAX, "description": "The type of the jobs; by default the schedule's name, or `scheduled`."},
        "payload": {"description": "The payload of the jobs: any JSON."},
        "queue": {"type": "string", "default": "default", "description": "Where pull workers take the jobs from. Not with a target."},
        "target": described("Target", "Where to push the jobs to."),
        "target_url": {"type": "string", "format": "uri", "description": "Short for `target` with only a `url`."},
        "priority": reference("Priority"),
        "retry": reference("Retry"),
        "max_attempts": {"type": "integer", "minimum": 1, "maximum": ATTEMPTS_COUNT_MAX, "description": "Short for `retry` with only `max_attempts`."},
        "timeout": described("Duration", "How long one attempt may take; 30 s by default."),
        "labels": reference("Labels"),
        "idempotency_key": {"type": "string", "minLength": 1, "maxLength": SCHEDULE_KEY_CHARS_MAX, "description": "The key of the creation, and what the keys of occurrences begin with: `KEY:2026-05-19T13:00:00.000Z`."},
        "note": {"type": "string", "maxLength": SCHEDULE_NOTE_BYTES_MAX},
        "paused": {"type": "boolean", "default": false},
    });
    extend(&mut fields, time_fields());
    fields
}

fn extend(fields: &mut Value, more: Value) {
    if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
        fields.extend(more);
    }
}

pub(super) fn requests() -> Value {
    let mut preview = time_fields();
    extend(
        &mut preview,
        json!({
            "schedule": {"type": "string", "description": "The id of a schedule that would be changed to this; without it a new \
                one is meant. It matters for an interval without `start_at`, which counts on from where that one does, and for \
                `run_at`: the place in the window is its own, and so is the window if none is given."},
            "from": described("Time", "Fires after this; now by default. An interval without `start_at` has no fires before now."),
            "count": {"type": "integer", "minimum": 1, "maximum": PREVIEW_COUNT_MAX, "default": PREVIEW_COUNT_DEFAULT},
        }),
    );
    let batch = json!({"type": "array", "maxItems": BATCH_COUNT_MAX, "items": reference("NewSchedule")});
    let dates =
        |max: usize| json!({"type": "array", "maxItems": max, "items": {"type": "string", "format": "date"}});
    let own_dates = dates(EXCLUDED_DATES_COUNT_MAX);
    json!({
        "NewSchedule": closed(&[], fields()),
        "SchedulePatch": closed(&[], fields()),
        "ScheduleBatch": {"anyOf": [batch, keyed(&["schedules"], json!({"schedules": batch}))]},
        "Preview": closed(&[], preview),
        "Dst": closed(&[], json!({
            "gap": {"type": "string", "enum": ["next_valid", "skip"], "default": "next_valid"},
            "fold": {"type": "string", "enum": ["first", "both"], "default": "first"},
        })),
        "Exclude": {
            "description": "Dates, the name of a calendar, or an object with either and a rule for the fires that fall on them.",
            "anyOf": [own_dates, {"type": "string"}, closed(&[], json!({
                "dates": own_dates,
                "calendar": {"type": ["string", "null"]},
                "roll": {"type": "string", "enum": Roll::ALL.map(Roll::as_str), "default": Roll::default().as_str()},
            }))],
        },
        "Backfill": keyed(&["from"], json!({
            "from": described("Time", "The first instant, included."),
            "to": described("Time", "The last instant, included; now by default."),
            "rate": {"type": "number", "exclusiveMinimum": 0, "maximum": 100_000, "description": "Jobs per second; without it all are due at once."},
        })),
        "NewCalendar": keyed(&["dates"], json!({"dates": dates(CALENDAR_DATES_COUNT_MAX)})),
        "FlatJob": closed(&["schedule_type", "job_name", "job_type"], json!({
            "schedule_type": {"type": "string", "enum": ["ONCE", "CRON"], "description": "A job, or a schedule."},
            "tenant_id": {"type": "string", "description": "The same as the header `Tidewheel-Tenant`."},
            "job_name": {"type": "string", "description": "The schedule's name; of a job, the label `job_name`."},
            "job_type": {"type": "string"},
            "cron_expression": {"type": "string", "description": "With `CRON`."},
            "timezone": {"type": "string", "default": "UTC"},
            "run_at": described("Time", "With `ONCE`; now by default."),
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": ATTEMPTS_COUNT_MAX},
            "allow_overlap": {"type": "boolean", "default": false},
            "misfire_policy": {"type": "string", "enum": ["FIRE_ONCE", "FIRE_IMMEDIATELY", "SKIP", "BACKFILL_ALL"], "default": "FIRE_ONCE", "description": "`fire_latest`, the same, `skip` and `fire_all`."},
            "payload": {},
            "idempotency_key": {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARS_MAX, "description": "The same as the header `Idempotency-Key`; of a schedule, also what the keys of its occurrences begin with, and then no longer than there."},
        })),
        "AnyNewJob": {"anyOf": [reference("NewJob"), reference("FlatJob")]},
    })
}

pub(super) fn answers() -> Value {
    let next_cursor = json!({"type": ["string", "null"]});
    let page = |shape: &str| {
        open(json!({"items": {"type": "array", "items": reference(shape)}, "next_cursor": next_cursor}))
    };
    json!({
        "ScheduleId": {"type": "string", "pattern": "^sch_[0-9A-HJKMNP-TV-Z]{26}$", "examples": ["sch_01JDQ5M8ZK0000000000000000"]},
        "Schedule": schedule(),
        "SchedulePage": page("Schedule"),
        "CreatedSchedules": {
            "type": "object",
            "required": ["schedules", "count"],
            "properties": {
                "schedules": {"type": "array", "items": {"type": "object", "properties": {
                    "id": reference("ScheduleId"),
                    "duplicate": {"type": "boolean"},
                    "error": described("Problem", "With `partial=true`: why this one was not created."),
                }}},
                "count": {"type": "integer", "description": "Schedules created, duplicates included."},
                "refused": {"type": "integer", "description": "With `partial=true`: schedules not created."},
            },
        },
        "Fires": {
            "type": "object",
            "required": ["fires"],
            "properties": {
                "fires": {"type": "array", "items": open(json!({
                    "fire_at": described("Time", "The nominal time."),
                    "run_at": described("Time", "The effective time."),
                    "note": {"type": ["string", "null"], "description": "Why it is not where the beat alone would have it: `dst_gap`, `dst_fold` or `rolled`."},
                }))},
                "state": {"type": "string", "description": "Of a schedule that exists."},
            },
        },
        "Triggered": open(json!({
            "job_id": reference("JobId"),
            "schedule_id": reference("ScheduleId"),
            "state": reference("State"),
            "run_at": reference("Time"),
        })),
        "Backfilled": open(json!({
            "count": {"type": "integer", "description": "Jobs made."},
            "duplicates": {"type": "integer", "description": "Instants that were made up for before."},
            "last_run_at": or_null(reference("Time")),
            "next_from": or_null(described("Time", "Where the next call goes on; null at the end.")),
        })),
        "FiringPage": page("Firing"),
        "Firing": firing(),
        "Calendar": open(json!({"name": {"type": "string"}, "dates": {"type": "array", "items": {"type": "string", "format": "date"}}})),
        "CalendarPage": open(json!({
            "items": {"type": "array", "items": open(json!({"name": {"type": "string"}}))},
            "next_cursor": next_cursor,
        })),
        "SubmittedFlatJob": open(json!({
            "job_id": {"type": "string", "description": "Of a schedule, the schedule's id."},
            "status": {"type": "string", "enum": ["ACTIVE"]},
            "next_scheduled_run": or_null(json!({"type": "string", "format": "date-time", "description": "With the zone's offset.", "examples": ["2026-06-07T09:00:00-04:00"]})),
        })),
        "AnySubmittedJob": {"anyOf": [reference("SubmittedJob"), reference("SubmittedFlatJob")]},
    })
}

fn firing() -> Value {
    let reasons = Reason::ALL.map(|reason| format!("`{}`", reason.as_str())).join(", ");
    open(json!({
        "fire_at": described("Time", "The nominal time."),
        "outcome": {"type": "string", "enum": ["fired", "coalesced", "skipped", "missed", "triggered", "backfilled"]},
        "reason": {"type": ["string", "null"], "description": format!("Why it was skipped: {reasons}.")},
        "coalesced_into": or_null(described("Time", "The instant that was fired for it too.")),
        "job_id": or_null(reference("JobId")),
        "catch_up": {"type": "boolean", "description": "Fired late, to make up for a missed time."},
        "run_at": or_null(described("Time", "When it was set to start.")),
        "started_at": or_null(reference("Time")),
        "finished_at": or_null(reference("Time")),
        "lag": or_null(described("Duration", "From when it was set to start to when it did; of a missed one, from its own time.")),
        "attempts": {"type": ["integer", "null"]},
        "state": or_null(described("State", "The job's; null when its history was dropped.")),
        "decided_at": reference("Time"),
    }))
}

fn schedule() -> Value {
    json!({
        "type": "object",
        "required": ["id", "tenant", "state", "paused", "version", "next_fire_at", "next_run_at", "last_fire_at", "name", "timezone"],
        "properties": {
            "id": reference("ScheduleId"),
            "tenant": {"type": "string"},
            "name": {"type": ["string", "null"]},
            "state": {"type": "string", "enum": State::ALL.map(State::as_str)},
            "paused": {"type": "boolean"},
            "version": {"type": "integer", "description": "Rises with every change, never with a fire."},
            "next_fire_at": or_null(described("Time", "The nominal time of the next fire.")),
            "next_run_at": or_null(described("Time", "Its effective time.")),
            "last_fire_at": or_null(described("Time", "The nominal time of the last fire.")),
            "cron_expr": {"type": "string"},
            "every": reference("Duration"),
            "timezone": {"type": "string"},
            "dst": reference("Dst"),
            "start_at": or_null(reference("Time")),
            "end_at": or_null(reference("Time")),
            "exclude": or_null(reference("Exclude")),
            "window": reference("Duration"),
            "misfire": {"type": "string"},
            "misfire_cap": {"type": ["integer", "null"]},
            "misfire_grace": reference("Duration"),
            "overlap": {"type": "string"},
            "type": {"type": "string"},
            "queue": {"type": "string"},
            "target": reference("Target"),
            "priority": reference("Priority"),
            "retry": reference("Retry"),
            "timeout": reference("Duration"),
            "labels": reference("Labels"),
            "idempotency_key": {"type": ["string", "null"]},
            "note": {"type": ["string", "null"]},
            "payload": {},
            "created_at": reference("Time"),
            "updated_at": reference("Time"),
            "duplicate": {"type": "boolean", "description": "Of an answer to a creation: whether it was a repeat."},
        },
    })
}
