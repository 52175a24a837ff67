//! What the server says, as far as `top` shows it. Whatever is missing is nothing, so that servers of other versions
//! can be looked at, too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /v1/overview`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Overview {
    pub(super) now: String,
    pub(super) jobs: BTreeMap<String, u64>,
    pub(super) lag: Lag,
    pub(super) rates: Rates,
    pub(super) memory: Memory,
    pub(super) backlog_age_ms: u64,
    pub(super) lanes: Vec<Lane>,
    /// Those with the most jobs waiting, most first; none for who may not see other tenants.
    pub(super) tenants: Option<Vec<Backlog>>,
    pub(super) history: Vec<Past>,
}

/// How late jobs started.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Lag {
    pub(super) window: String,
    pub(super) count: u64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) p999_ms: Option<f64>,
}

/// Jobs per second.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Rates {
    pub(super) window: String,
    pub(super) submitted: f64,
    pub(super) started: f64,
    pub(super) succeeded: f64,
    pub(super) failed: f64,
}

/// What the server holds in memory.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Memory {
    pub(super) held: u64,
    pub(super) in_flight: u64,
    pub(super) leases: u64,
}

/// A tenant's jobs that are due and go to one place.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lane {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) depth: u64,
    pub(super) more: bool,
    pub(super) oldest_at: Option<String>,
    pub(super) waits_for: Option<String>,
}

/// A tenant with jobs that wait. How many is asked for with all its other numbers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Backlog {
    pub(super) id: String,
}

/// Some seconds of the last minutes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Past {
    pub(super) started: f64,
}

/// `GET /v1/workers`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Workers {
    pub(super) items: Vec<Worker>,
    pub(super) next_cursor: Option<serde_json::Value>,
}

/// A connected worker.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Worker {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) queues: Vec<String>,
    pub(super) connected: bool,
    pub(super) draining: bool,
    pub(super) last_heard_at: String,
    pub(super) credits: u64,
    pub(super) in_flight: u64,
}

/// `GET /v1/cluster`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Cluster {
    pub(super) store: String,
    pub(super) shards: u64,
    pub(super) nodes: Vec<Node>,
}

/// A server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) version: String,
    pub(super) state: String,
    pub(super) shards: u64,
    pub(super) leases: Vec<Lease>,
    pub(super) lag_ms: Option<u64>,
}

/// Shards a node has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lease {
    pub(super) epoch: u64,
}

/// `GET /v1/tenants`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tenants {
    pub(super) items: Vec<Tenant>,
}

/// A tenant's settings.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tenant {
    pub(super) id: String,
    pub(super) weight: u64,
}

/// `GET /v1/jobs/count`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counted {
    pub(super) counts: BTreeMap<String, u64>,
}
