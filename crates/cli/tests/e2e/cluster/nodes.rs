//! Several servers on one PostgreSQL, from outside: shards are shared out evenly, every node takes every job, and a node
//! that dies or leaves is replaced by the others.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;

use crate::harness::cluster::submit_once;
use crate::harness::postgres::Postgres;
use crate::harness::target::Target;
use crate::harness::{Server, instant, until};

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

/// While nobody dies, a job runs again only when its attempt was not over in time: on a machine that stands still for longer.
fn check_none_ran_twice(target: &Target) {
    let mut last_ms = BTreeMap::new();
    for hit in target.hits() {
        let id = hit.header("tidewheel-job-id").to_owned();
        if let Some(before_ms) = last_ms.insert(id.clone(), hit.at_ms) {
            let apart_ms = hit.at_ms - before_ms;
            assert!(apart_ms >= TIMEOUT_MS_DEFAULT, "nobody died, and {id} runs again after {apart_ms} ms");
        }
    }
}

fn until_all_ran(target: &Target, ids: &[String]) {
    until("all jobs to be run", || {
        let ran = target.jobs();
        ids.iter().all(|id| ran.contains(id)).then_some(())
    });
}

#[test]
fn nodes_share_the_work_and_take_over_from_who_leaves_or_dies() {
    let (postgres, data, target) = (Postgres::start(), TempDir::new().unwrap(), Target::ok());
    let first = start(&postgres, &data);
    until_shared(&first, &[SHARDS]);
    let second = start(&postgres, &data);
    until_shared(&first, &[SHARDS / 2, SHARDS / 2]);

    // Both say the same of when each was started. While the database is slow, only of themselves.
    let starts = |server: &Server| -> BTreeMap<String, Value> {
        let cluster = server.get("/v1/cluster");
        let nodes = cluster["nodes"].as_array().unwrap().iter();
        nodes.map(|node| (node["id"].to_string(), node["started_at"].clone())).collect()
    };
    until("both to say the same", || {
        let told = [&first, &second].map(starts);
        (told[0].len() == 2 && told[0] == told[1]).then_some(())
    });

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
    check_none_ran_twice(&target);

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
