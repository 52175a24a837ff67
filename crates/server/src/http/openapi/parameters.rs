//! Parameters of the API's operations, by name.

use serde_json::{Map, Value, json};
use tidewheel_core::limits::{
    IDEMPOTENCY_KEY_CHARS_MAX, PAGE_COUNT_DEFAULT, PAGE_COUNT_MAX, PREVIEW_COUNT_MAX,
};

/// Name, place, name on the wire, schema, description.
type Row = (&'static str, &'static str, &'static str, fn() -> Value, &'static str);

const ROWS: &[Row] = &[
    (
        "Tenant",
        "header",
        "Tidewheel-Tenant",
        text,
        "The tenant that is meant; without it the key's own, or `default`.",
    ),
    (
        "IdempotencyKey",
        "header",
        "Idempotency-Key",
        key,
        "The same key within 24 h makes one job. Of a batch, item number i has the key followed by `:i`, unless it has one of its own; another batch under the same key is a conflict, unless its items are answered for one by one.",
    ),
    (
        "CallKey",
        "header",
        "Idempotency-Key",
        key,
        "The same call again under the same key within 24 h does nothing a second time and is answered as the first was, with what it was about as it is by then; another call under that key is `409 idempotency_conflict`. A call that was refused leaves its key free. A key is for one call of any kind: those that submit and create share it.",
    ),
    ("JobId", "path", "id", job_id, "The job."),
    ("ScheduleId", "path", "id", schedule_id, "The schedule."),
    ("Name", "path", "name", text, "The name."),
    (
        "IfMatch",
        "header",
        "If-Match",
        text,
        "The `ETag` of the version that is meant; another one is refused.",
    ),
    ("ScheduleState", "query", "state", text, "States, separated by commas: `active`, `paused`, `ended`."),
    ("OfType", "query", "type", text, "Schedules whose jobs have this type."),
    ("OfName", "query", "name", text, "The schedule of this name."),
    ("OfCalendar", "query", "calendar", text, "Schedules that name this calendar."),
    ("SchedulePayload", "query", "payload", truth_by_default, "Whether payloads are shown."),
    ("Count", "query", "count", next_count, "How many fires."),
    ("Limits", "query", "limits", truth, "Refuse what the tenant's minimum interval does not allow."),
    ("TenantId", "path", "id", text, "The tenant."),
    ("TypeName", "path", "type", text, "The job type."),
    ("KeyId", "path", "id", text, "The key's id."),
    ("SecretId", "path", "secret", text, "The secret's id."),
    ("AuditTenant", "query", "tenant", text, "What concerns this tenant; an admin may ask for any."),
    ("AuditActor", "query", "actor", text, "Asked for by this one: the id of a key, or `anonymous`."),
    (
        "AuditAction",
        "query",
        "action",
        text,
        "Of this action, such as `keys.create`, or all of a noun, such as `keys`. Changes of jobs are `jobs.state`.",
    ),
    ("AuditObject", "query", "object", text, "About this job, schedule or key, by id or name."),
    ("AuditKind", "query", "kind", text, "`act`: what was asked for; `changes`: what became of jobs."),
    ("AuditFrom", "query", "from", time, "At this instant or later."),
    ("AuditTo", "query", "to", time, "Before this instant."),
    ("AuditOrder", "query", "order", text, "`newest` or `oldest` first."),
    ("AuditFormat", "query", "format", text, "`json`, or `ndjson` for one record a line."),
    ("Queue", "path", "queue", text, "The queue."),
    ("Partial", "query", "partial", truth, "Take what can be taken and answer for each item."),
    ("State", "query", "state", text, "States, separated by commas, as they are shown."),
    ("Type", "query", "type", text, "Jobs of this type."),
    ("OfQueue", "query", "queue", text, "Jobs for this queue."),
    ("Schedule", "query", "schedule", text, "Jobs made by this schedule."),
    ("Label", "query", "label.KEY", text, "Jobs with this label; may be given for several keys."),
    ("From", "query", "from", time, "Jobs first set for this instant or later."),
    ("To", "query", "to", time, "Jobs first set for before this instant."),
    (
        "Limit",
        "query",
        "limit",
        limit,
        "Items on one page. A page may be shorter, even empty, and still have a `next_cursor`.",
    ),
    ("Cursor", "query", "cursor", text, "The `next_cursor` of the page before."),
    ("Payload", "query", "payload", truth, "Whether payloads are shown."),
    ("All", "query", "all", truth, "Means all of them; needed where no filter is given."),
];

/// All parameters.
pub(super) fn all() -> Value {
    let mut all = Map::new();
    for (id, place, name, schema, description) in ROWS {
        let parameter = json!({
            "name": name, "in": place, "required": *place == "path", "schema": schema(), "description": description,
        });
        all.insert((*id).to_owned(), parameter);
    }
    Value::Object(all)
}

fn text() -> Value {
    json!({"type": "string"})
}

fn truth() -> Value {
    json!({"type": "boolean", "default": false})
}

fn truth_by_default() -> Value {
    json!({"type": "boolean", "default": true})
}

fn schedule_id() -> Value {
    json!({"type": "string", "pattern": "^sch_[0-9A-HJKMNP-TV-Z]{26}$"})
}

fn next_count() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": PREVIEW_COUNT_MAX, "default": 10})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn key() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARS_MAX})
}

fn job_id() -> Value {
    json!({"type": "string", "pattern": "^job_[0-9A-HJKMNP-TV-Z]{26}$"})
}

fn limit() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": PAGE_COUNT_MAX, "default": PAGE_COUNT_DEFAULT})
}
