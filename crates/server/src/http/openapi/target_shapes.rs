//! The shapes of targets that fail.

use serde_json::{Value, json};
use tidewheel_core::breaker::BreakerState;

use super::reference;
use super::shapes::{described, open, or_null};

pub(super) fn answers() -> Value {
    json!({
        "TargetHealth": open(json!({
            "host": {"type": "string", "description": "Scheme, host and port."},
            "state": {"type": "string", "enum": BreakerState::ALL.map(BreakerState::as_str), "description": "`closed`: pushes go there. `open`: none does, it failed too often. `held`: none does, it asked to wait. `half_open`: one job is tried."},
            "since": described("Time", "Since when it is so; while closed, since the first of the failures."),
            "failures": {"type": "integer", "description": "Failures in a row; of those lately, if their share opened it."},
            "reason": {"type": "string", "description": "The last of them."},
            "next_probe_at": or_null(reference("Time")),
        })),
        "TargetPage": open(json!({
            "items": {"type": "array", "items": reference("TargetHealth")},
            "next_cursor": or_null(json!({"type": "string"})),
        })),
    })
}
