//! What two servers on one PostgreSQL owe to telling each other, rather than to looking for themselves: shards change hands
//! before any lease is over, and a job starts that came in where its shard is not served.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "from outside, in real time, and it says what it saw"
)]

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_core::limits::{SHARD_LEASE_MS, SHARD_RENEW_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;

use crate::harness::cluster::{Cluster, SHARDS, call, submit_once};
use crate::harness::postgres::Postgres;
use crate::harness::target::{Target, answer};
use crate::harness::{Server, signal, until, until_served};

/// Tenants, so many that each node serves some.
const TENANTS: usize = 40;
/// Leases are extended so often that none is over sooner after its node has fallen silent; a little less, because extending them
/// takes time.
const BEFORE_ANY_LEASE_IS_OVER: Duration =
    Duration::from_millis((SHARD_LEASE_MS - SHARD_RENEW_MS).unsigned_abs() - 2_000);
/// Hand-overs that are tried, and how many if none of them was quick.
const ROUNDS: usize = 3;
const ROUNDS_MAX: usize = 8;
/// How often a node looks for jobs of its shards that it was not told of.
const SWEEP: Duration = Duration::from_secs(30);

/// The nodes, as `server` sees them: itself first.
fn nodes(server: &Server) -> Vec<Value> {
    server.get("/v1/cluster")["nodes"].as_array().unwrap().clone()
}

/// Tenants whose jobs `owner` serves, as `server` sees it. There are none while the database is slow, or when the owner's leases
/// have run out; both pass.
fn tenants_of(owner: &Server, server: &Server) -> Vec<String> {
    until("the tenants of a node", || {
        Some(tenants_of_now(owner, server)).filter(|tenants| !tenants.is_empty())
    })
}

fn tenants_of_now(owner: &Server, server: &Server) -> Vec<String> {
    let (nodes, address) = (nodes(server), owner.url());
    let of_owner = nodes.iter().find(|node| node["address"] == address);
    let leases = of_owner.map(|node| node["leases"].as_array().unwrap().as_slice()).unwrap_or_default();
    let is_theirs = |name: &String| {
        let shard = u64::from(Shard::of(&Tenant::new(name).unwrap(), SHARDS).0);
        let has = |lease: &Value| {
            (lease["first_shard"].as_u64().unwrap()..=lease["last_shard"].as_u64().unwrap()).contains(&shard)
        };
        leases.iter().any(has)
    };
    (0..TENANTS).map(|number| format!("tenant-{number}")).filter(is_theirs).collect()
}

fn submit(server: &Server, tenant: &str, target: &Target) -> String {
    let body = json!({"type": "t", "target_url": target.url("/"), "timeout": "10m"});
    submit_once(server.address, tenant, body)
}

#[test]
fn a_node_that_is_stopped_hands_its_shards_over_before_any_lease_is_over() {
    let (postgres, data) = (Postgres::start(), TempDir::new().unwrap());
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let target = Target::answering(move |_| {
        gate.lock().unwrap().recv().ok();
        answer(200, "", "")
    });
    // The attempt may end only after the other node was seen to have all shards.
    let start = || Server::start_with(data.path(), &["--store", &postgres.url(), "--drain", "2m"]);
    let staying = start();
    let mut hand_overs: Vec<Duration> = Vec::new();
    let is_quick = |took: &Duration| *took < BEFORE_ANY_LEASE_IS_OVER;
    // Leases that had to end by themselves would take longer in every round; a machine that is busy or stands still does so in
    // some.
    while hand_overs.len() < ROUNDS || (hand_overs.len() < ROUNDS_MAX && !hand_overs.iter().any(is_quick)) {
        let leaving = start();
        until("the shards to be shared out", || {
            let nodes = nodes(&staying);
            let serving: Vec<&Value> = nodes.iter().filter(|node| node["state"] == "serving").collect();
            let is_half = |node: &&Value| node["shards"] == u64::from(SHARDS / 2);
            (serving.len() == 2 && serving.iter().all(is_half)).then_some(())
        });
        let tenant = tenants_of(&leaving, &staying).remove(0);
        let id = submit(&leaving, &tenant, &target);
        target.until_hits(hand_overs.len() + 1);

        let stopped = Instant::now();
        signal(leaving.pid(), "TERM");
        until("the other node to have all shards", || {
            (nodes(&staying)[0]["shards"] == u64::from(SHARDS)).then_some(())
        });
        let took = stopped.elapsed();
        println!("handed over in {} ms", took.as_millis());
        hand_overs.push(took);

        // What it delivers is not waited for, and ends.
        let job = || {
            let path = format!("/v1/jobs/{id}");
            until_served(&path, || call(staying.address, &tenant, "GET", &path, &json!({}))).json()
        };
        assert_eq!(job()["state"], "running", "{}", job());
        release.send(()).unwrap();
        let (code, log) = leaving.terminate();
        assert_eq!(code, Some(0), "{log:#?}");
        let ended = until("the attempt to end", || Some(job()).filter(|job| job["state"] == "succeeded"));
        assert_eq!(ended["attempt"], 1, "{ended}");
    }
    assert_eq!(target.count(), hand_overs.len(), "nobody died, so nothing runs twice");
    assert!(hand_overs.iter().any(is_quick), "{hand_overs:?}");
}

#[test]
fn a_job_that_comes_in_where_its_shard_is_not_served_starts_because_its_owner_is_told() {
    let (cluster, target) = (Cluster::start(), Target::ok());
    let [asked, owner] = &cluster.nodes;
    let tenants = tenants_of(owner, asked);
    let mut waits: Vec<Duration> = Vec::new();
    // One after the other: one that is found by looking makes the next wait for a whole round.
    for tenant in tenants.iter().cycle().take(20) {
        let submitted = Instant::now();
        submit(asked, tenant, &target);
        target.until_hits(waits.len() + 1);
        waits.push(submitted.elapsed());
    }
    waits.sort_unstable();
    let (median, longest) = (waits[10], waits[19]);
    println!("started after {} ms, at most {} ms", median.as_millis(), longest.as_millis());
    assert!(median < SWEEP / 3, "{waits:?}");
}
