//! The shapes of what is told of a cluster.

use serde_json::{Value, json};

use super::reference;
use super::shapes::{open, open_but};

const LAG_NOTE: &str = "How long the oldest due job has waited for room in the memory of the node that is asked, in milliseconds.";

pub(super) fn answers() -> Value {
    json!({
        "Cluster": open_but(cluster(), &["databases"]),
        "Node": open_but(node(), &["address", "lag_ms", "tz_database"]),
        "Database": open_but(database(), &["reason"]),
        "TzDatabase": open(json!({
            "version": {"type": "string", "description": "Such as `2026a`."},
            "source": {"type": "string", "description": "`bundled`, or the folder it was read from."},
        })),
    })
}

fn node() -> Value {
    json!({
        "id": {"type": "string"},
        "address": {"type": "string", "description": "Where its peers reach it; not of a server on its own."},
        "version": {"type": "string"},
        "started_at": reference("Time"),
        "state": {"type": "string", "enum": ["serving", "draining", "silent"]},
        "shards": {"type": "integer", "description": "How many it has."},
        "leases": {"type": "array", "items": open(json!({
            "first_shard": {"type": "integer"},
            "last_shard": {"type": "integer"},
            "epoch": {"type": "integer", "description": "Rises whenever shards change hands."},
        }))},
        "lag_ms": {"type": "integer", "description": LAG_NOTE},
        "tz_database": reference("TzDatabase"),
    })
}

fn cluster() -> Value {
    json!({
        "store": {"type": "string", "description": "What kind of store it is: `embedded` or `postgres`."},
        "shards": {"type": "integer"},
        "lag_ms": {"type": "integer", "description": LAG_NOTE},
        "databases": {"type": "array", "items": reference("Database"), "description": "Of a `postgres` store."},
        "tz_database": reference("TzDatabase"),
        "nodes": {"type": "array", "items": reference("Node")},
    })
}

fn database() -> Value {
    json!({
        "index": {"type": "integer", "description": "Its place among the databases given with `--store`, from 0; texts count from 1."},
        "state": {
            "type": "string", "enum": ["up", "down"],
            "description": "`down`: it does not answer, or takes no writes. Only its own shards stand still.",
        },
        "shards": {"type": "integer", "description": "How many it keeps."},
        "reason": {"type": "string", "description": "What is wrong with it."},
    })
}
