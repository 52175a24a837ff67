//! A tenant's limits over several servers on one PostgreSQL, from outside: they hold for all of them together, and no
//! part of them is kept for a server that nobody asks.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "from outside, in real time, and it says what it saw"
)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::cluster::{Cluster, SHARDS, call, submit_once};
use crate::harness::{Server, until, until_served};

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
            // The database is too slow for it, and so is the machine for what follows from here.
            503 => pressed.longest = pressed.longest.max(CALL_MAX),
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

/// Nothing is taken, either, while the database is too slow; and what is taken then is not told.
fn take(server: &Server, tenant: &str, wait: &str) -> Vec<Value> {
    let body = json!({"worker": "w", "max": 10, "wait": wait, "lease": "10m"});
    let answer = call(server.address, tenant, "POST", "/v1/queues/q/take", &body);
    assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
    answer.json()["jobs"].as_array().cloned().unwrap_or_default()
}

/// The jobs of a tenant that run.
fn running(server: &Server, tenant: &str) -> Vec<Value> {
    let page = until_served("what runs", || {
        call(server.address, tenant, "GET", "/v1/jobs?state=running&limit=100", &json!({}))
    });
    page.json()["items"].as_array().unwrap().clone()
}

/// Takes at these nodes in turn, until so many run.
fn take_until(nodes: &[&Server], tenant: &str, count: usize) {
    let mut turns = nodes.iter().cycle();
    until(&format!("{count} of {tenant} to run"), || {
        take(turns.next()?, tenant, "1s");
        (running(nodes[0], tenant).len() >= count).then_some(())
    });
    assert_eq!(running(nodes[0], tenant).len(), count, "{tenant}");
}

#[test]
fn caps_hold_for_all_nodes_together_and_over_the_death_of_one() {
    let cluster = Cluster::start();
    let nodes = &cluster.nodes;
    let job = json!({"type": "t", "queue": "q"});
    // Two tenants, so that each node serves at least one of them or the other node's.
    for tenant in ["globex", "initech"] {
        cluster.set(tenant, &json!({"limits": {"concurrency": 3}}));
        for _ in 0..20 {
            submit_once(nodes[0].address, tenant, job.clone());
        }
        take_until(&[&nodes[0], &nodes[1]], tenant, 3);
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
        let under_way = running(&first, tenant);
        assert_eq!(under_way.len(), 3, "{tenant}");
        let path = format!("/v1/jobs/{}/cancel", under_way[0]["id"].as_str().unwrap());
        let cancelled = until_served(&path, || call(first.address, tenant, "POST", &path, &json!({})));
        assert_eq!(cancelled.status, 200, "{}", cancelled.text());
        // One is over, so one may start.
        take_until(&[&first], tenant, 3);
        assert!(take(&first, tenant, "300ms").is_empty(), "{tenant}");
    }
}

const WAITING: usize = 20;

/// What came of submissions at a cap.
struct Filled {
    taken: usize,
    /// Those the database was too slow for; they may wait as well.
    unsure: usize,
}

/// Gives a tenant a cap, and submits for it with so many callers at both nodes, each so often.
fn fill(cluster: &Cluster, tenant: &str, waiting: usize, callers: usize, each: usize) -> Filled {
    cluster.set(tenant, &json!({"limits": {"waiting": waiting}}));
    let addresses = [cluster.nodes[0].address, cluster.nodes[1].address];
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let callers = (0..callers).map(|n| {
            scope.spawn(move || {
                let later = json!({"type": "t", "delay": "1h"});
                let submit = || call(addresses[n % 2], tenant, "POST", "/v1/jobs", &later).status;
                (0..each).map(|_| submit()).collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = callers.collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let of = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    let filled = Filled { taken: of(201), unsure: of(503) };
    println!("{} and perhaps {} of {waiting}", filled.taken, filled.unsure);
    assert!(filled.taken <= 2 * waiting, "{} wait, {waiting} may", filled.taken);
    assert!(filled.taken + filled.unsure >= waiting, "{} wait, {waiting} may", filled.taken);
    filled
}

/// Whether no node takes another.
fn are_full(cluster: &Cluster, tenant: &str) -> bool {
    let later = json!({"type": "t", "delay": "1h"});
    let is_full = |node: &Server| call(node.address, tenant, "POST", "/v1/jobs", &later).status == 429;
    cluster.nodes.iter().all(is_full)
}

/// Near the cap a node takes no more than its part, counting what it stored a moment ago. A machine that stands still for longer
/// lets more through, at most the whole cap at each node; so it has to hold in one round of several.
fn is_within_a_tenth(filled: &Filled, waiting: usize) -> bool {
    filled.taken + filled.unsure <= waiting + waiting / 10
}

#[test]
fn many_callers_at_once_exceed_a_cap_by_a_tenth_at_most() {
    let cluster = Cluster::start();
    let is_kept_by_few = (0..TRIES).any(|round| {
        let tenant = format!("few-{round}");
        is_within_a_tenth(&fill(&cluster, &tenant, 50, 2, 100), 50) && are_full(&cluster, &tenant)
    });
    assert!(is_kept_by_few, "one caller at each node: more than a tenth too many wait, every time");
    let is_kept_by_many = (0..TRIES).any(|round| {
        let filled = fill(&cluster, &format!("many-{round}"), WAITING, 32, 5);
        is_within_a_tenth(&filled, WAITING)
    });
    assert!(is_kept_by_many, "more than a tenth too many wait, every time");
}
