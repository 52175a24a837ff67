//! The shapes of the audit trail.

use serde_json::{Value, json};
use tidewheel_core::audit::Kind;

use super::reference;
use super::shapes::{open, or_null};

pub(super) fn answers() -> Value {
    let text = || json!({"type": "string"});
    let number = || json!({"type": "integer"});
    let hash = || json!({"type": "string", "pattern": "^[0-9a-f]{64}$"});
    let link = || {
        open(json!({
            "seq": {"type": "integer", "description": "0 before the first record."},
            "at": or_null(reference("Time")),
            "hash": hash(),
        }))
    };
    let mut record = open(json!({
        "chain": {"type": "integer", "description": "The shard."},
        "seq": {"type": "integer", "minimum": 1, "description": "Its number in the chain, without gaps."},
        "at": reference("Time"),
        "kind": {"type": "string", "enum": Kind::ALL.map(Kind::as_str)},
        "previous": hash(),
        "hash": hash(),
    }));
    let more = json!({
        "tenant": {"type": "string", "description": "Of an act: whom it concerns."},
        "actor": {"type": "string", "description": "The id of a key, or `anonymous`."},
        "address": or_null(text()),
        "action": {"type": "string", "examples": ["schedules.pause"]},
        "object": or_null(json!({"type": "string", "description": "The id or name of what it is about."})),
        "call": {"type": "string", "description": "Method and route."},
        "request_id": or_null(json!({"type": "string", "description": "The header `X-Request-Id`, or one made for it."})),
        "status": number(),
        "fields": {"type": "array", "items": text(), "description": "Fields that were sent, by name."},
        "count": {"type": "integer", "description": "Calls it stands for: those of jobs are summed up by the second."},
        "changes": {"type": "array", "items": reference("AuditChange")},
        "partial": {"type": "boolean", "description": "Changes of other jobs are left out."},
        "unreadable": {"type": "string", "description": "What a damaged record says, in hexadecimal digits."},
    });
    if let (Some(properties), Value::Object(more)) =
        (record.get_mut("properties").and_then(Value::as_object_mut), more)
    {
        properties.extend(more);
    }
    json!({
        "AuditChange": open(json!({
            "tenant": text(),
            "job": text(),
            "from": or_null(json!({"type": "string", "description": "Its state before; null if it was new."})),
            "to": or_null(json!({"type": "string", "description": "Its state after; null if it was discarded."})),
            "attempt": number(),
        })),
        "AuditRecord": record,
        "AuditPage": page("AuditRecord"),
        "AuditChain": open(json!({"chain": number(), "anchor": link(), "head": link()})),
        "AuditChainPage": page("AuditChain"),
    })
}

fn page(of: &str) -> Value {
    open(json!({
        "items": {"type": "array", "items": reference(of)},
        "next_cursor": or_null(json!({"type": "string"})),
    }))
}
