//! A short run of the nemesis, with faults that can be made everywhere: three nodes on a PostgreSQL with a synchronous standby,
//! under load. `docs/nemesis.md` says how to run it for longer, and with everything.
#![allow(clippy::print_stdout, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tidewheel_core::limits::SHARD_LEASE_MS;
use tidewheel_nemesis::checker::Promise;
use tidewheel_nemesis::history::{Entry, Event};
use tidewheel_nemesis::run::{Config, Kind, run};

/// Tests run beside each other and on any machine.
const SLACK: u32 = 6;
/// What a machine that is too busy breaks by itself: starts come late, leases and timeouts run out. It is shown here, and judged
/// in runs that have the machine to themselves.
const BY_SPEED: [Promise; 4] =
    [Promise::LagRecovers, Promise::SubmissionsTaken, Promise::RollingRunsOnce, Promise::RollingOnTime];

/// How long the longest pause of a node was.
fn longest_pause_ms(history: &Path) -> i64 {
    let (mut begun, mut longest_ms) = (BTreeMap::new(), 0_i64);
    for line in std::fs::read_to_string(history).unwrap().lines() {
        let Entry { at_ms, event } = serde_json::from_str(line).unwrap();
        if let Event::Fault { fault, on } = event {
            begun.insert((fault, on), at_ms);
        } else if let Event::Mended { fault, on } = event
            && fault == "pause"
        {
            longest_ms = longest_ms.max(at_ms - begun[&(fault, on)]);
        }
    }
    longest_ms
}

fn hold(kinds: &[Kind], seed: u64) {
    let folder = TempDir::new().unwrap();
    let history = folder.path().join("history.jsonl");
    let report = run(&Config {
        program: PathBuf::from(env!("CARGO_BIN_EXE_tidewheel")),
        length: Duration::from_secs(12),
        seed,
        nodes: 3,
        kinds: kinds.to_vec(),
        history: Some(history.clone()),
        slack: SLACK,
        logs: None,
    })
    .unwrap();
    println!("{}", report.summary);
    let (slow, broken): (Vec<_>, Vec<_>) =
        report.violations.into_iter().partition(|violation| BY_SPEED.contains(&violation.promise));
    slow.iter().for_each(|violation| println!("not judged: {violation}"));
    let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    if kinds.contains(&Kind::Pause) {
        // Otherwise nobody woke up who believed to have what others have by then.
        let paused_ms = longest_pause_ms(&history);
        assert!(paused_ms > SHARD_LEASE_MS, "no node was paused for longer than {paused_ms} ms");
    }
}

#[test]
fn promises_hold_while_nodes_and_the_database_are_killed_paused_and_cut_off() {
    hold(&[Kind::Kill, Kind::Pause, Kind::Partition, Kind::Database], 1);
}

#[test]
fn promises_hold_while_the_clock_of_a_node_is_set() {
    if tidewheel_nemesis::faketime::faketime().is_none() {
        println!(
            "libfaketime is not installed (scripts/test does that on Debian, as root): clocks were not set"
        );
        return;
    }
    hold(&[Kind::Clock], 2);
}
