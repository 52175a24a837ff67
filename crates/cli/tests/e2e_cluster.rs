//! Several servers on one PostgreSQL, from outside: shards are shared out evenly, every node takes every job, and a node
//! that dies or leaves is replaced by the others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod harness;

use std::collections::BTreeMap;

use harness::cluster::submit_once;
use harness::postgres::Postgres;
use harness::target::Target;
use harness::{Server, instant, until};
use serde_json::{Value, json};
use tempfile::TempDir;

const SHARDS: u64 = 64;

fn start(postgres: &Postgres, data: &TempDir) -> Server {
    Server::start_with(data.path(), &["--store", &postgres.url()])
}

/// How many shards each serving node has, as `server` sees it, least first.
fn shares(server: &Server) -> Vec<u64> {
    let cluster = server.get("/v1/cluster");
    let nodes = cluster["nodes"].as_array().unwrap().iter().filter(|node| node["state"] == "serving");
    let mut shares: Vec<u64> = nodes.map(|node| node["shards"].as_u64().unwrap()).collect();
    shares.sort_unstable();
    shares
}

fn until_shared(server: &Server, wanted: &[u64]) {
    until("the shards to be shared out", || (shares(server) == wanted).then_some(()));
}

/// Submits a job of a tenant of its own, so that all shards are met; gives its id.
fn submit(server: &Server, target: &Target, number: usize, delay_ms: i64) -> String {
    let body =
        json!({"type": "t", "target_url": target.url("/"), "run_at": instant(delay_ms), "payload": number});
    submit_once(server.address, &format!("tenant-{number}"), body)
}

/// How often each job was run.
fn runs_of(target: &Target) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for hit in target.hits() {
        *runs.entry(hit.header("tidewheel-job-id").to_owned()).or_default() += 1;
    }
    runs
}

fn until_all_ran(target: &Target, ids: &[String]) {
    until("all jobs to be run", || {
        let runs = runs_of(target);
        ids.iter().all(|id| runs.contains_key(id)).then_some(())
    });
}

#[test]
fn nodes_share_the_work_and_take_over_from_who_leaves_or_dies() {
    let (postgres, data, target) = (Postgres::start(), TempDir::new().unwrap(), Target::ok());
    let first = start(&postgres, &data);
    until_shared(&first, &[SHARDS]);
    let second = start(&postgres, &data);
    until_shared(&first, &[SHARDS / 2, SHARDS / 2]);

    // Both say the same of when each was started.
    let starts = |server: &Server| -> BTreeMap<String, Value> {
        let cluster = server.get("/v1/cluster");
        let nodes = cluster["nodes"].as_array().unwrap().iter();
        nodes.map(|node| (node["id"].to_string(), node["started_at"].clone())).collect()
    };
    assert_eq!(starts(&first), starts(&second));

    // Whoever takes a job, the node that has its shard runs it, once.
    let mut ids: Vec<String> = Vec::new();
    for number in 0..60 {
        ids.push(submit([&first, &second][number % 2], &target, number, [0, 400][number / 30]));
    }
    until_all_ran(&target, &ids);

    // One that is stopped hands its shards over and leaves nothing undone.
    for number in 60..90 {
        ids.push(submit(&second, &target, number, 500));
    }
    let (code, log) = second.terminate();
    assert_eq!(code, Some(0), "{log:#?}");
    until_shared(&first, &[SHARDS]);
    until_all_ran(&target, &ids);
    assert!(runs_of(&target).values().all(|runs| *runs == 1), "nobody died, so nothing runs twice");

    // One that dies is missed once its leases have run out.
    let third = start(&postgres, &data);
    until_shared(&first, &[SHARDS / 2, SHARDS / 2]);
    for number in 90..130 {
        ids.push(submit(&first, &target, number, [1_000, 3_000][number % 2]));
    }
    third.kill();
    until_all_ran(&target, &ids);
    until_shared(&first, &[SHARDS]);
    let cluster: Value = first.get("/v1/cluster");
    assert_eq!(cluster["store"], "postgres");
}
