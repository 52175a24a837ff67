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
        let cluster = Self { nodes: [start(), start()], _data: data, _postgres: postgres };
        cluster.until_shared_out();
        cluster
    }

    /// Waits until each node has half of the shards; gives [`Self::leases`].
    pub(crate) fn until_shared_out(&self) -> Vec<Value> {
        until("the shards to be shared out", || {
            let cluster = self.nodes[0].get("/v1/cluster");
            let all = cluster["nodes"].as_array().unwrap();
            let is_half =
                |node: &Value| node["shards"] == u64::from(SHARDS / 2) && node["state"] == "serving";
            (all.len() == 2 && all.iter().all(is_half)).then(|| leases_of(&cluster))
        })
    }

    /// Which shards each node has, and since which epochs; those of the first node first. While it stays the same, no node has
    /// lost a shard, as one does that stands still for longer than its leases last.
    pub(crate) fn leases(&self) -> Vec<Value> {
        leases_of(&self.nodes[0].get("/v1/cluster"))
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

fn leases_of(cluster: &Value) -> Vec<Value> {
    cluster["nodes"].as_array().unwrap().iter().map(|node| node["leases"].clone()).collect()
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
