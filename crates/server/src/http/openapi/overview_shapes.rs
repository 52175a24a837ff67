//! The shapes of the overview.

use serde_json::{Value, json};

use super::reference;
use super::shapes::{described, open, or_null};

pub(super) fn answers() -> Value {
    let ms = json!({"type": ["number", "null"], "description": "Null when nothing was started."});
    let rate = json!({"type": "number", "description": "Per second."});
    json!({
        "Overview": open(json!({
            "now": reference("Time"),
            "jobs": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "The tenant's jobs, by state; `ready` ones under the state they are stored in."},
            "lag": described("Lag", "How late the server's attempts started."),
            "rates": described("Rates", "What the tenant's jobs did, averaged over the window; all jobs of the server where an admin names no tenant."),
            "memory": open(json!({
                "held": {"type": "integer", "description": "The server's jobs that are near or due."},
                "in_flight": {"type": "integer", "description": "Attempts being claimed or delivered."},
                "leases": {"type": "integer", "description": "Attempts under way that hold a lease."},
            })),
            "backlog_age_ms": {"type": "integer", "description": "How long the server's oldest due job has waited for room in memory."},
            "lanes": {"type": "array", "items": reference("LaneDepth"), "description": "Where jobs of the tenant wait that are due, the deepest 200."},
            "tenants": or_null(json!({"type": "array", "items": reference("TenantBacklog"), "description": "The 20 tenants with the most jobs waiting, for an admin; null for others."})),
            "history": {"type": "array", "items": reference("OverviewSample"), "description": "The last 15 minutes of the server, every 5 seconds, oldest first."},
        })),
        "Lag": open(json!({
            "window": reference("Duration"),
            "count": {"type": "integer", "description": "Attempts started in it."},
            "p50_ms": ms, "p95_ms": ms, "p99_ms": ms, "p999_ms": ms,
        })),
        "Rates": open(json!({
            "window": reference("Duration"),
            "submitted": rate, "started": rate, "succeeded": rate, "failed": rate,
        })),
        "TenantBacklog": open(json!({
            "id": {"type": "string"},
            "waiting": {"type": "integer"}, "running": {"type": "integer"}, "dead": {"type": "integer"},
            "refused": {"type": "integer", "description": "Submissions this node has refused since it started, because of the tenant's rate or of how many wait."},
        })),
        "LaneDepth": open(json!({
            "kind": {"type": "string", "enum": ["queue", "push"]},
            "name": {"type": "string", "description": "The queue, or scheme, host and port of the targets."},
            "depth": {"type": "integer", "description": "Jobs in memory."},
            "more": {"type": "boolean", "description": "Whether more are due that stay in the store until there is room."},
            "oldest_at": described("Time", "Since when the longest waiting has been due."),
            "waits_for": {"type": ["string", "null"], "description": "Why it does not move: `no_worker`, `workers_busy`, `host_limit`, `host_rate`, `push_limit`; null when it does."},
        })),
        "OverviewSample": open(json!({
            "at": reference("Time"),
            "submitted": rate, "started": rate, "succeeded": rate, "failed": rate,
            "waiting": {"type": "integer"}, "running": {"type": "integer"}, "dead": {"type": "integer"},
            "lag_p50_ms": or_null(json!({"type": "number"})),
            "lag_p99_ms": or_null(json!({"type": "number"})),
        })),
    })
}
