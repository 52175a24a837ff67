//! The shapes of what goes in and out.

use serde_json::{Map, Value, json};
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::filter::ShownState;
use tidewheel_api::wire::worker_request::{TAKE_COUNT_DEFAULT, TAKE_COUNT_MAX};
use tidewheel_core::job::{Ending, Priority};
use tidewheel_core::limits::{
    ATTEMPTS_COUNT_DEFAULT, ATTEMPTS_COUNT_MAX, BATCH_COUNT_MAX, BULK_IDS_COUNT_MAX,
    IDEMPOTENCY_KEY_CHARS_MAX, LABELS_COUNT_MAX, PAYLOAD_BYTES_MAX, TRACE_STATE_BYTES_MAX, TYPE_BYTES_MAX,
    URL_BYTES_MAX,
};

use super::{
    admin_shapes, audit_shapes, cluster_shapes, overview_shapes, reference, schedule_shapes, session_paths,
    target_shapes, type_shapes,
};

/// All shapes, by name.
pub(super) fn all() -> Value {
    let mut all = Map::new();
    for shapes in [
        scalars(),
        new_job(),
        job(),
        job_answers(),
        orders(),
        bulk_answers(),
        workers(),
        server(),
        cluster_shapes::answers(),
        admin_shapes::requests(),
        admin_shapes::answers(),
        audit_shapes::answers(),
        overview_shapes::answers(),
        session_paths::shapes(),
        target_shapes::answers(),
        schedule_shapes::requests(),
        schedule_shapes::answers(),
        type_shapes::requests(),
        type_shapes::answers(),
    ] {
        if let Value::Object(shapes) = shapes {
            all.extend(shapes);
        }
    }
    Value::Object(all)
}

/// An object with these fields and no others.
pub(super) fn closed(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
}

/// A body with these fields and no others, but the call's key.
pub(super) fn keyed(required: &[&str], mut properties: Value) -> Value {
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("idempotency_key".to_owned(), reference("CallKey"));
    }
    closed(required, properties)
}

/// An object with at least these fields, all of which are there but the named.
pub(super) fn open_but(properties: Value, optional: &[&str]) -> Value {
    let mut shape = open(properties);
    if let Some(required) = shape.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name.as_str().is_none_or(|name| !optional.contains(&name)));
    }
    shape
}

/// An object with at least these fields, all of which are there.
pub(super) fn open(properties: Value) -> Value {
    let required: Vec<String> =
        properties.as_object().map(|p| p.keys().cloned().collect()).unwrap_or_default();
    json!({"type": "object", "required": required, "properties": properties})
}

pub(super) fn or_null(shape: Value) -> Value {
    json!({"anyOf": [shape, {"type": "null"}]})
}

pub(super) fn described(shape: &str, description: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{shape}"), "description": description})
}

fn scalars() -> Value {
    json!({
        "JobId": {"type": "string", "pattern": "^job_[0-9A-HJKMNP-TV-Z]{26}$", "examples": ["job_01JDQ5M8ZK0000000000000000"]},
        "Time": {"type": "string", "format": "date-time", "examples": ["2026-12-01T09:00:00.000Z"]},
        "Duration": {
            "type": ["string", "number"], "examples": ["90s", "1h30m", "PT90S", 90],
            "description": "A text such as `90s`, `5m`, `1h30m` or `PT90S`, or a number of seconds.",
        },
        "State": {"type": "string", "enum": ShownState::ALL.map(ShownState::as_str)},
        "Priority": {"type": "string", "enum": Priority::ALL.map(Priority::as_str), "default": Priority::default().as_str()},
        "Token": {
            "type": ["integer", "string"],
            "description": "Proof of the newest claim of a job; rises with every attempt. At most 53 bits. A text of its digits is taken too.",
        },
        "Labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": LABELS_COUNT_MAX},
    })
}

fn new_job() -> Value {
    json!({
        "NewJob": closed(&["type"], json!({
            "type": {"type": "string", "minLength": 1, "maxLength": TYPE_BYTES_MAX, "description": "What the worker or target is to do; visible ASCII."},
            "payload": {"description": format!("Any JSON, at most {PAYLOAD_BYTES_MAX} bytes as sent, kept byte for byte. `null` when left out.")},
            "run_at": described("Time", "When to run. Not with `delay`; without either: now. At most a day back and ten years ahead."),
            "delay": described("Duration", "How much later to run."),
            "queue": {"type": "string", "default": "default", "description": "Where pull workers take it from. Not with a target."},
            "target": described("Target", "Where to push it to."),
            "target_url": {"type": "string", "format": "uri", "description": "Short for `target` with only a `url`."},
            "priority": reference("Priority"),
            "retry": reference("Retry"),
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": ATTEMPTS_COUNT_MAX, "description": "Short for `retry` with only `max_attempts`."},
            "timeout": described("Duration", "How long one attempt may take; 30 s by default, at most a day."),
            "expires_at": described("Time", "When it is no longer worth starting: one that waits then is ended as `expired`."),
            "idempotency_key": {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARS_MAX},
            "labels": reference("Labels"),
            "traceparent": {"type": "string", "description": "W3C trace context of the submission, instead of the request's header of the same name. What is not well formed is left aside."},
            "tracestate": {"type": "string", "description": format!("What goes with it; at most {TRACE_STATE_BYTES_MAX} bytes are kept.")},
        })),
        "Target": closed(&["url"], json!({
            "url": {"type": "string", "format": "uri", "maxLength": URL_BYTES_MAX},
            "method": {"type": "string", "default": "POST", "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "timeout": described("Duration", "The same as the job's `timeout`."),
        })),
        "Retry": closed(&[], json!({
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": ATTEMPTS_COUNT_MAX, "default": ATTEMPTS_COUNT_DEFAULT},
            "policy": {"type": "string", "enum": ["fixed", "exponential", "exponential_jitter"], "default": "exponential_jitter"},
            "base": described("Duration", "The first wait; 1 s by default."),
            "multiplier": {"type": "number", "minimum": 1, "maximum": 100, "default": 2},
            "max": described("Duration", "The longest wait; 1 h by default, at most 7 days."),
        })),
        "JobBatch": {
            "anyOf": [
                {"type": "array", "maxItems": BATCH_COUNT_MAX, "items": reference("NewJob")},
                keyed(&["jobs"], json!({"jobs": {"type": "array", "maxItems": BATCH_COUNT_MAX, "items": reference("NewJob")}})),
            ],
        },
    })
}

fn job() -> Value {
    let mut job = open(json!({
        "id": reference("JobId"),
        "tenant": {"type": "string"},
        "type": {"type": "string"},
        "state": reference("State"),
        "run_at": described("Time", "When it starts next, or was to."),
        "created_at": reference("Time"),
        "priority": reference("Priority"),
        "retry": reference("Retry"),
        "timeout": reference("Duration"),
        "expires_at": or_null(reference("Time")),
        "idempotency_key": {"type": "string", "description": "The caller's, or the job's id; stable over all attempts."},
        "labels": reference("Labels"),
        "attempt": {"type": "integer", "description": "Attempts started so far."},
        "max_attempts": {"type": "integer"},
        "last_error": {"type": ["string", "null"]},
        "result": {"description": "What a worker handed back, as JSON; what a target answered, as text; otherwise null."},
        "started_at": or_null(reference("Time")),
        "finished_at": or_null(reference("Time")),
        "worker": {"type": ["string", "null"]},
        "lease_until": or_null(reference("Time")),
        "progress": {"description": "What the worker last said of its progress."},
        "schedule_id": {"type": ["string", "null"]},
        "fire_at": described("Time", "Its nominal time."),
        "catch_up": {"type": "boolean"},
        "reason": {"type": ["string", "null"], "description": "Why it ended as it did, where the last error does not say it."},
    }));
    // There is one of queue and target, a payload only where it is asked for, and not every job is in a trace.
    for (name, shape) in [
        ("queue", json!({"type": "string"})),
        ("target", reference("Target")),
        ("payload", json!({"description": "As it was sent. Left out of lists and of answers to changes."})),
        (
            "trace_id",
            json!({"type": "string", "description": "The trace it was submitted in, if it was in one."}),
        ),
    ] {
        if let Some(properties) = job.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert(name.to_owned(), shape);
        }
    }
    json!({ "Job": job })
}

fn job_answers() -> Value {
    let next_cursor = json!({"type": ["string", "null"]});
    let attempt_states: Vec<_> = std::iter::once("running").chain(Ending::ALL.map(Ending::as_str)).collect();
    json!({
        "SubmittedJob": open(json!({
            "id": reference("JobId"),
            "state": or_null(reference("State")),
            "run_at": reference("Time"),
            "idempotency_key": {"type": "string"},
            "duplicate": {"type": "boolean"},
        })),
        "SubmittedBatch": {
            "type": "object",
            "required": ["jobs", "count"],
            "properties": {
                "jobs": {"type": "array", "items": {"type": "object", "properties": {
                    "id": reference("JobId"),
                    "duplicate": {"type": "boolean"},
                    "error": described("Problem", "With `partial=true`: why this one was not taken in."),
                }}},
                "count": {"type": "integer", "description": "Jobs taken in, duplicates included."},
                "refused": {"type": "integer", "description": "With `partial=true`: jobs not taken in."},
            },
        },
        "JobPage": open(json!({"items": {"type": "array", "items": reference("Job")}, "next_cursor": next_cursor})),
        "JobCount": {
            "type": "object",
            "required": ["count", "complete"],
            "properties": {
                "count": {"type": "integer"},
                "complete": {"type": "boolean", "description": "Whether all jobs were looked at."},
                "counts": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "By state, where only states are asked for."},
                "total": {"type": "integer"},
            },
        },
        "AttemptPage": open(json!({"items": {"type": "array", "items": reference("Attempt")}, "next_cursor": next_cursor})),
        "Attempt": open(json!({
            "attempt": {"type": "integer", "minimum": 1},
            "state": {"type": "string", "enum": attempt_states},
            "worker": {"type": "string"},
            "started_at": reference("Time"),
            "finished_at": or_null(reference("Time")),
            "status_code": {"type": ["integer", "null"], "description": "What the target answered with."},
            "detail": {"type": "string", "description": "An excerpt of the answer, the result or the error."},
            "lease_until": or_null(reference("Time")),
            "progress": {},
        })),
        "Explanation": open(json!({
            "id": reference("JobId"),
            "state": reference("State"),
            "waits_for": {
                "type": ["string", "null"],
                "description": "One of `time`, `retry`, `overlap`, `scan`, `backlog`, `pace`, `promotion`, `turn`, `worker`, `workers_busy`, `tenant_limit`, `host_limit`, `host_rate`, `push_limit`, `breaker`, `claim`, `delivery`, `outcome`; null when it has ended.",
            },
            "detail": {"type": "string"},
            "expected_start": or_null(reference("Time")),
            "run_at": reference("Time"),
            "now": reference("Time"),
            "attempt": {"type": "integer"},
            "max_attempts": {"type": "integer"},
            "failures": {"type": "integer", "description": "Failures that count against `max_attempts`."},
        })),
    })
}

fn orders() -> Value {
    let ids = json!({"type": "array", "maxItems": BULK_IDS_COUNT_MAX, "items": reference("JobId")});
    let cursor = json!({"type": "string", "description": "The `next_cursor` of the call before."});
    json!({
        "CallKey": {
            "type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARS_MAX,
            "description": "The call's idempotency key, if it is not in the header.",
        },
        "KeyOnly": keyed(&[], json!({})),
        "JobPatch": keyed(&[], json!({"run_at": reference("Time"), "delay": reference("Duration"), "priority": reference("Priority")})),
        "Restart": keyed(&[], json!({"run_at": reference("Time"), "delay": reference("Duration")})),
        "Replay": keyed(&[], json!({
            "run_at": reference("Time"),
            "delay": reference("Duration"),
            "payload": {"description": "Another payload; `null` is one too."},
            "target": described("Target", "Another target. Without a `timeout` there, the job keeps its own."),
            "target_url": {"type": "string", "format": "uri"},
        })),
        "Filter": closed(&[], json!({
            "state": {"type": ["string", "array"], "items": {"type": "string"}},
            "type": {"type": "string"},
            "queue": {"type": "string"},
            "schedule": {"type": "string"},
            "labels": reference("Labels"),
            "from": reference("Time"),
            "to": reference("Time"),
        })),
        "Bulk": keyed(&[], json!({"ids": ids, "filter": reference("Filter"), "cursor": cursor})),
        "BulkRestart": keyed(&[], json!({
            "ids": ids,
            "filter": reference("Filter"),
            "cursor": cursor,
            "run_at": described("Time", "When the first one starts; now by default."),
            "delay": reference("Duration"),
            "rate": {"type": "number", "description": "Jobs per second; without it all start at once.", "exclusiveMinimum": 0, "maximum": 100_000},
        })),
    })
}

fn bulk_answers() -> Value {
    json!({
        "BulkAnswer": open(json!({
            "items": {"type": "array", "items": {"type": "object", "required": ["id", "ok"], "properties": {
                "id": reference("JobId"),
                "ok": {"type": "boolean"},
                "state": reference("State"),
                "error": reference("Problem"),
            }}},
            "count": {"type": "integer", "description": "Jobs for which it was done."},
            "refused": {"type": "integer"},
            "next_cursor": {"type": ["string", "null"]},
        })),
    })
}

fn workers() -> Value {
    json!({
        "Take": keyed(&[], json!({
            "worker": {"type": "string", "description": "Who asks."},
            "max": {"type": "integer", "minimum": 1, "maximum": TAKE_COUNT_MAX, "default": TAKE_COUNT_DEFAULT},
            "wait": described("Duration", "How long to wait for the first; not at all by default, at most 1 min."),
            "lease": described("Duration", "How long the jobs are safe from others; 30 s by default, from 1 s to a day."),
        })),
        "TakenJobs": open(json!({"jobs": {"type": "array", "items": reference("TakenJob")}})),
        "TakenJob": open_but(json!({
            "id": reference("JobId"),
            "tenant": {"type": "string"},
            "type": {"type": "string"},
            "payload": {},
            "attempt": {"type": "integer", "minimum": 1},
            "max_attempts": {"type": "integer"},
            "token": reference("Token"),
            "idempotency_key": {"type": "string"},
            "run_at": reference("Time"),
            "created_at": reference("Time"),
            "queue": {"type": "string"},
            "priority": reference("Priority"),
            "timeout": reference("Duration"),
            "expires_at": or_null(reference("Time")),
            "labels": reference("Labels"),
            "lease_until": or_null(reference("Time")),
            "schedule_id": {"type": ["string", "null"]},
            "fire_at": reference("Time"),
            "catch_up": {"type": "boolean"},
            "traceparent": {"type": "string", "description": "W3C trace context of this attempt; left out of a job that is in no trace."},
            "tracestate": {"type": "string", "description": "What goes with it; may be empty."},
        }), &["traceparent", "tracestate"]),
        "WorkerPage": open(json!({
            "items": {"type": "array", "items": reference("Worker")},
            "next_cursor": {"type": ["string", "null"]},
        })),
        "Worker": open(json!({
            "id": {"type": "string", "description": "`wrk_…`, as long as its session lasts."},
            "name": {"type": "string"},
            "queues": {"type": "array", "items": {"type": "string"}},
            "tenants": {"type": ["array", "null"], "items": {"type": "string"}, "description": "Whom it works for; null for everybody."},
            "types": {"type": "array", "items": {"type": "string"}, "description": "What it runs; none named means every type."},
            "min_priority": reference("Priority"),
            "lease": reference("Duration"),
            "connected": {"type": "boolean"},
            "draining": {"type": "boolean", "description": "It wants no more jobs."},
            "connected_at": reference("Time"),
            "last_heard_at": reference("Time"),
            "credits": {"type": "integer", "description": "Jobs it has room for."},
            "in_flight": {"type": "integer", "description": "Jobs it works on."},
        })),
        "Heartbeat": keyed(&["token"], json!({
            "token": reference("Token"),
            "extend": described("Duration", "How long the lease holds from now; 30 s by default. A lease is never shortened."),
            "progress": {"description": "Any JSON, at most 8,192 bytes."},
        })),
        "Outcome": keyed(&["token", "status"], json!({
            "token": reference("Token"),
            "status": {"type": "string", "enum": ["succeeded", "failed", "snoozed", "cancelled"]},
            "result": {"description": "Any JSON, at most 8,192 bytes."},
            "error": {"description": "A text, or any JSON; the first 2,048 bytes are kept."},
            "retryable": {"type": "boolean", "default": true},
            "retry_after": described("Duration", "Not before this has passed; of a snooze, how much later (30 s by default)."),
        })),
    })
}

fn server() -> Value {
    json!({
        "Status": open_but(
            json!({
                "status": {"type": "string"},
                "databases": {"type": "array", "items": reference("Database"), "description": "Where the store is in databases."},
            }),
            &["databases"],
        ),
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status", "detail", "code"],
            "properties": {
                "type": {"type": "string", "format": "uri-reference"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "detail": {"type": "string"},
                "code": {"type": "string", "enum": Code::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>()},
                "errors": {"type": "array", "items": open(json!({
                    "pointer": {"type": "string", "description": "Where in the body, as a JSON pointer."},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                }))},
            },
        },
    })
}
