//! The shapes of tenants and keys.

use serde_json::{Value, json};
use tidewheel_api::wire::key_request::ROLES;
use tidewheel_api::wire::notification_request::EVENTS;
use tidewheel_api::wire::tenant_request::LIMIT_MAX;
use tidewheel_core::limits::{
    KEY_NAME_BYTES_MAX, KEY_NAMES_COUNT_MAX, PAYLOAD_BYTES_MAX, SUB_SHARDS_COUNT_MAX, TENANT_WEIGHT_DEFAULT,
    TENANT_WEIGHT_MAX,
};

use super::reference;
use super::shapes::{described, keyed, open, or_null};

pub(super) fn requests() -> Value {
    let names = || json!({"type": "array", "items": {"type": "string"}, "maxItems": KEY_NAMES_COUNT_MAX});
    let role = || json!({"type": "string", "enum": ROLES});
    json!({
        "NewTenantSettings": keyed(&[], json!({
            "id": {"type": "string", "description": "That of the address; may be left out."},
            "weight": {"type": "integer", "minimum": 1, "maximum": TENANT_WEIGHT_MAX, "default": TENANT_WEIGHT_DEFAULT},
            "sub_shards": {"type": "integer", "minimum": 1, "maximum": SUB_SHARDS_COUNT_MAX, "default": 1, "description": "Shards its new jobs are spread over: 1, 2, 4, 8 or 16, not more than the store has. Caps are split over them, and none may be less."},
            "limits": {"type": "object", "additionalProperties": false, "properties": {
                "submit_rate": count(1, "Jobs submitted per second, over time."),
                "submit_burst": count(1, "Jobs submitted at once; those of one second unless set."),
                "waiting": count(0, "Jobs that wait."),
                "concurrency": count(1, "Attempts under way at a time."),
                "queue_concurrency": count(1, "Attempts under way at a time in one queue, or at one host."),
                "rate_cap": count(1, "Attempts started per second."),
                "schedules": count(0, "Schedules."),
                "min_interval": reference("Duration"),
                "payload_bytes": {"type": "integer", "minimum": 1, "maximum": PAYLOAD_BYTES_MAX},
                "retention": described("Duration", "How long finished jobs are seen; at most as long as the server keeps them."),
            }},
        })),
        "NewNotifications": keyed(&[], json!({
            "url": {"type": ["string", "null"], "format": "uri", "description": "Where to; held to the rules of targets. Null or left out: nowhere."},
            "events": {"type": "array", "items": {"type": "string", "enum": EVENTS}, "description": "All of them unless set."},
            "lag_budget": {"$ref": "#/components/schemas/Duration", "description": "How long a job may be due before `lag` is told: 1 s to 1 d, 1 m unless set."},
        })),
        "NewWebhookSecret": keyed(&[], json!({
            "secret": {"type": "string", "description": "`whsec_` and Base64 of 24 to 64 bytes; made if left out."},
        })),
        "NewKey": keyed(&[], json!({
            "tenant": {"type": "string", "description": "Whose it is; the tenant acted for unless set."},
            "roles": {"type": "array", "minItems": 1, "items": role()},
            "role": {"type": "string", "enum": ROLES, "description": "Short for `roles` with one role."},
            "types": names(),
            "queues": names(),
            "name": {"type": "string", "maxLength": KEY_NAME_BYTES_MAX, "description": "Who gets it, for people."},
            "expires_at": reference("Time"),
            "expires_in": reference("Duration"),
        })),
    })
}

fn count(min: u32, description: &str) -> Value {
    or_null(json!({"type": "integer", "minimum": min, "maximum": LIMIT_MAX, "description": description}))
}

pub(super) fn answers() -> Value {
    let number = || or_null(json!({"type": "integer"}));
    let names = || or_null(json!({"type": "array", "items": {"type": "string"}}));
    let mut secret = open(json!({"id": {"type": "string"}, "created_at": or_null(reference("Time"))}));
    show_once(&mut secret);
    let mut key = open(json!({
        "id": {"type": "string", "pattern": "^key_[0-9a-f]{16}$"},
        "tenant": {"type": "string"},
        "name": or_null(json!({"type": "string"})),
        "roles": {"type": "array", "items": {"type": "string", "enum": ROLES}},
        "types": names(),
        "queues": names(),
        "created_at": or_null(reference("Time")),
        "expires_at": or_null(reference("Time")),
        "last_used_at": or_null(reference("Time")),
    }));
    show_once(&mut key);
    json!({
        "TenantSettings": open(json!({
            "id": {"type": "string"},
            "weight": {"type": "integer"},
            "sub_shards": {"type": "integer", "description": "Shards its new jobs are spread over."},
            "limits": open(json!({
                "submit_rate": number(),
                "submit_burst": number(),
                "waiting": number(),
                "concurrency": number(),
                "queue_concurrency": number(),
                "rate_cap": number(),
                "schedules": number(),
                "min_interval": or_null(reference("Duration")),
                "payload_bytes": number(),
                "retention": or_null(reference("Duration")),
            })),
        })),
        "TenantPage": page("TenantSettings"),
        "Notifications": open(json!({
            "url": or_null(json!({"type": "string"})),
            "events": {"type": "array", "items": {"type": "string", "enum": EVENTS}},
            "lag_budget": or_null(reference("Duration")),
        })),
        "WebhookSecret": secret,
        "WebhookSecretPage": page("WebhookSecret"),
        "Key": key,
        "KeyPage": page("Key"),
    })
}

/// Adds the secret, which is there only when it is shown.
fn show_once(shape: &mut Value) {
    if let Some(properties) = shape.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("secret".to_owned(), json!({"type": "string", "description": "Shown once."}));
    }
}

fn page(of: &str) -> Value {
    open(json!({
        "items": {"type": "array", "items": reference(of)},
        "next_cursor": or_null(json!({"type": "string"})),
    }))
}
