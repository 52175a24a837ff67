//! Two servers on one PostgreSQL, each with half of the shards.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::postgres::Postgres;
use super::{Answer, Server, request, until, until_served};

pub(crate) const SHARDS: u16 = 64;

pub(crate) struct Cluster {
    pub(crate) nodes: [Server; 2],
    _data: TempDir,
    _postgres: Postgres,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let (postgres, data) = (Postgres::start(), TempDir::new().unwrap());
        let start = || Server::start_with(data.path(), &["--store", &postgres.url()]);
        let nodes = [start(), start()];
        until("the shards to be shared out", || {
            let cluster = nodes[0].get("/v1/cluster");
            let all = cluster["nodes"].as_array().unwrap();
            let is_half =
                |node: &Value| node["shards"] == u64::from(SHARDS / 2) && node["state"] == "serving";
            (all.len() == 2 && all.iter().all(is_half)).then_some(())
        });
        Self { nodes, _data: data, _postgres: postgres }
    }

    /// Sets a tenant up through one node, and waits until both go by it.
    pub(crate) fn set(&self, tenant: &str, settings: &Value) {
        let path = format!("/v1/tenants/{tenant}");
        let set = until_served("the tenant to be set up", || {
            call(self.nodes[0].address, tenant, "PUT", &path, settings)
        });
        assert_eq!(set.status, 200, "{}", set.text());
        until("both nodes to know", || {
            let shown = call(self.nodes[1].address, tenant, "GET", &path, &json!({})).json();
            (shown == set.json()).then_some(())
        });
    }
}

/// Calls a node as a tenant.
pub(crate) fn call(address: SocketAddr, tenant: &str, method: &str, path: &str, body: &Value) -> Answer {
    request(address, method, path, &[("tidewheel-tenant", tenant)], body.to_string().as_bytes()).unwrap()
}

/// Submits a job and returns its id. While the database is too busy to answer it asks again, under a key, so that it is one
/// job in the end.
pub(crate) fn submit_once(address: SocketAddr, tenant: &str, mut body: Value) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    body["idempotency_key"] = json!(format!("once-{}", NEXT.fetch_add(1, Ordering::SeqCst)));
    let answer =
        until_served("a submission to be taken", || call(address, tenant, "POST", "/v1/jobs", &body));
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}
