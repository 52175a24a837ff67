//! The shapes of job types.

use serde_json::{Value, json};
use tidewheel_core::limits::{
    ATTEMPTS_COUNT_MAX, SCHEMA_BYTES_MAX, TYPE_NOTE_BYTES_MAX, TYPE_SUBMITTERS_COUNT_MAX,
};

use super::reference;
use super::shapes::{closed, described, keyed, open, or_null};

pub(super) fn requests() -> Value {
    json!({
        "NewJobType": keyed(&[], json!({
            "type": {"type": "string", "description": "That of the address; may be left out."},
            "schema": or_null(json!({
                "type": "object",
                "description": format!("The JSON Schema payloads must match, at most {SCHEMA_BYTES_MAX} bytes."),
            })),
            "submitters": or_null(json!({
                "type": "array", "items": {"type": "string"}, "maxItems": TYPE_SUBMITTERS_COUNT_MAX,
                "description": "Who may submit it: ids of keys (`key_…`) and roles. Left out: whoever may submit. Admins always may.",
            })),
            "defaults": reference("TypeDefaults"),
            "note": or_null(json!({"type": "string", "maxLength": TYPE_NOTE_BYTES_MAX, "description": "For people."})),
        })),
        "TypeDefaults": closed(&[], json!({
            "queue": {"type": "string", "description": "Not with a target."},
            "target": reference("Target"),
            "target_url": {"type": "string", "format": "uri", "description": "Short for `target` with only a `url`."},
            "priority": reference("Priority"),
            "retry": reference("Retry"),
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": ATTEMPTS_COUNT_MAX, "description": "Short for `retry` with only `max_attempts`."},
            "timeout": described("Duration", "How long one attempt may take."),
        })),
    })
}

pub(super) fn answers() -> Value {
    json!({
        "JobType": open(json!({
            "type": {"type": "string"},
            "schema": or_null(json!({"type": "object"})),
            "submitters": or_null(json!({"type": "array", "items": {"type": "string"}})),
            "defaults": reference("TypeDefaults"),
            "note": or_null(json!({"type": "string"})),
        })),
        "JobTypePage": open(json!({
            "items": {"type": "array", "items": reference("JobType")},
            "next_cursor": or_null(json!({"type": "string"})),
        })),
    })
}
