//! A tenant's limits over several servers on one PostgreSQL, from outside: they hold for all of them together, and no
//! part of them is kept for a server that nobody asks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "from outside, in real time, and it says what it saw"
)]

mod harness;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, SHARDS, call, submit_once};
use harness::{Server, until};
use serde_json::{Value, json};

/// What came of jobs that were submitted one after the other, as fast as it goes.
#[derive(Default)]
struct Pressed {
    taken: u32,
    longest: Duration,
}

fn press(address: SocketAddr, tenant: &str, until: Instant) -> Pressed {
    let job = json!({"type": "t", "delay": "1h"});
    let mut pressed = Pressed::default();
    while Instant::now() < until {
        let called = Instant::now();
        let answer = call(address, tenant, "POST", "/v1/jobs", &job);
        pressed.longest = pressed.longest.max(called.elapsed());
        match answer.status {
            201 => pressed.taken += 1,
            429 => {
                assert!(answer.header("retry-after").is_some());
                std::thread::sleep(Duration::from_millis(2));
            }
            other => panic!("{other}: {}", answer.text()),
        }
    }
    pressed
}

const RATE: u32 = 20;
/// Half a second's worth: little, so that the rate is what counts.
const BURST: u32 = RATE / 2;
const LONG: Duration = Duration::from_secs(10);
/// Callers at one node, so that it is always asked for more than the rate.
const CALLERS: usize = 4;
/// While all callers wait longer than a burst lasts, nobody asks for what comes meanwhile, and it is lost.
const CALL_MAX: Duration = Duration::from_millis(400);
const TRIES: usize = 4;

/// Submits at these nodes, with callers that do not wait for each other; compares what was taken with the rate. Whether as much
/// is taken as may be shows only while the machine answers; if it never does so for long enough, what is known is that it
/// was not more.
fn press_all(tenant: &str, addresses: &[SocketAddr]) -> Option<f64> {
    (0..TRIES).find_map(|_| {
        let began = Instant::now();
        let all: Vec<Pressed> = std::thread::scope(|scope| {
            let callers = addresses.iter().flat_map(|address| std::iter::repeat_n(*address, CALLERS));
            let threads: Vec<_> =
                callers.map(|address| scope.spawn(move || press(address, tenant, began + LONG))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let allowed = f64::from(RATE) * began.elapsed().as_secs_f64();
        let taken: u32 = all.iter().map(|pressed| pressed.taken).sum();
        let longest = all.iter().map(|pressed| pressed.longest).max().unwrap();
        println!("{tenant}: {taken} of {allowed:.1}, the longest call {longest:?}");
        let part = f64::from(taken) / allowed;
        assert!(part <= 1.1, "{tenant}: {part:.3} of the rate");
        (longest < CALL_MAX).then_some(part)
    })
}

#[test]
fn a_rate_holds_for_all_nodes_together_whoever_is_asked() {
    let cluster = Cluster::start();
    let [first, second] = [cluster.nodes[0].address, cluster.nodes[1].address];
    for tenant in ["even", "uneven", "moving"] {
        cluster.set(tenant, &json!({"limits": {"submit_rate": RATE, "submit_burst": BURST}}));
    }
    let even = press_all("even", &[first, second]);
    assert!(even.is_none_or(|even| even >= 0.9), "asked evenly, {even:?} of the rate");
    let uneven = press_all("uneven", &[second]);
    assert!(uneven.is_none_or(|uneven| uneven >= 0.9), "only one is asked, {uneven:?} of the rate");
    if let (Some(one), Some(other)) = (press_all("moving", &[first]), press_all("moving", &[second])) {
        assert!((one + other) / 2.0 >= 0.9, "{one:.3}, then {other:.3} of the rate at the other");
    }
}

fn take(server: &Server, tenant: &str, wait: &str) -> Vec<Value> {
    let body = json!({"worker": "w", "max": 10, "wait": wait, "lease": "10m"});
    let answer = call(server.address, tenant, "POST", "/v1/queues/q/take", &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["jobs"].as_array().unwrap().clone()
}

#[test]
fn caps_hold_for_all_nodes_together_and_over_the_death_of_one() {
    let cluster = Cluster::start();
    let nodes = &cluster.nodes;
    cluster.set("acme", &json!({"limits": {"waiting": 50}}));
    let job = json!({"type": "t", "queue": "q"});
    let later = json!({"type": "t", "delay": "1h"});
    let taken: usize = std::thread::scope(|scope| {
        let fill = |address| {
            move || {
                let submit =
                    || call(address, "acme", "POST", "/v1/jobs", &json!({"type": "t", "delay": "1h"})).status;
                (0..100).filter(|_| submit() == 201).count()
            }
        };
        let threads = [0, 1].map(|at| scope.spawn(fill(nodes[at].address)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!((50..=55).contains(&taken), "{taken} wait, 50 may");
    for node in nodes {
        assert_eq!(call(node.address, "acme", "POST", "/v1/jobs", &later).status, 429);
    }

    // Two tenants, so that each node serves at least one of them or the other node's.
    for tenant in ["globex", "initech"] {
        cluster.set(tenant, &json!({"limits": {"concurrency": 3}}));
        for _ in 0..20 {
            submit_once(nodes[0].address, tenant, job.clone());
        }
        let mut held = Vec::new();
        until("as many as may to run", || {
            held.extend(take(&nodes[held.len() % 2], tenant, "1s"));
            (held.len() >= 3).then_some(())
        });
        assert_eq!(held.len(), 3, "{tenant}");
        for node in nodes {
            assert!(take(node, tenant, "300ms").is_empty(), "{tenant}");
        }
    }

    // Whoever takes over knows what is under way.
    let Cluster { nodes: [first, second], .. } = cluster;
    assert_eq!(second.terminate().0, Some(0));
    until("all shards to be served", || {
        let cluster = first.get("/v1/cluster");
        let nodes = cluster["nodes"].as_array().unwrap();
        (nodes.len() == 1 && nodes[0]["shards"] == SHARDS).then_some(())
    });
    for tenant in ["globex", "initech"] {
        assert!(take(&first, tenant, "500ms").is_empty(), "{tenant}");
        let page = call(first.address, tenant, "GET", "/v1/jobs?state=running&limit=1", &json!({})).json();
        let id = page["items"][0]["id"].as_str().unwrap();
        assert_eq!(
            call(first.address, tenant, "POST", &format!("/v1/jobs/{id}/cancel"), &json!({})).status,
            200
        );
        assert_eq!(take(&first, tenant, "40s").len(), 1, "{tenant}: one is over, so one may start");
        assert!(take(&first, tenant, "300ms").is_empty(), "{tenant}");
    }
}

const WAITING: usize = 20;

/// Gives a tenant a cap, and submits for it with many callers at both nodes; how many were taken.
fn fill(cluster: &Cluster, tenant: &str) -> usize {
    cluster.set(tenant, &json!({"limits": {"waiting": WAITING}}));
    let addresses = [cluster.nodes[0].address, cluster.nodes[1].address];
    std::thread::scope(|scope| {
        let callers = (0..32).map(|n| {
            scope.spawn(move || {
                let later = json!({"type": "t", "delay": "1h"});
                let submit = || call(addresses[n % 2], tenant, "POST", "/v1/jobs", &later).status;
                (0..5).filter(|_| submit() == 201).count()
            })
        });
        let threads: Vec<_> = callers.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// Near the cap a node takes no more than its part, counting what it stored a moment ago. A machine that stands still for longer
/// lets more through, at most the whole cap at each node; so it has to hold in one round of several.
#[test]
fn many_callers_at_once_exceed_a_cap_by_a_tenth_at_most() {
    let cluster = Cluster::start();
    let is_kept = (0..TRIES).any(|round| {
        let taken = fill(&cluster, &format!("tenant-{round}"));
        println!("{taken} of {WAITING}");
        assert!((WAITING..=2 * WAITING).contains(&taken), "{taken} wait, {WAITING} may");
        taken <= WAITING + WAITING / 10
    });
    assert!(is_kept, "more than a tenth too many wait, every time");
}
