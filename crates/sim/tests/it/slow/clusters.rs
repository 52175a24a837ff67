//! Runs many seeds of several nodes that share a store, each a whole run with faults, and judges them. In parts, so that
//! they run beside each other. One seed again: `cargo run -p tidewheel-sim -- --seed 1000007`, with `--verbose` for its
//! whole record, or with `--nodes 4` for another number of nodes.

use std::collections::BTreeSet;

use tidewheel_core::place::Shard;
use tidewheel_sim::checker::Promise;
use tidewheel_sim::history::Event;
use tidewheel_sim::plan::{CLUSTER_SEED_MIN, Plan};
use tidewheel_sim::report;
use tidewheel_sim::run::{Run, run};
use tidewheel_store_testkit::memory::Written;

const PARTS: u64 = 10;
const SEEDS_PER_PART: u64 = 50;
/// Seeds that failed once, each for a fault of its own.
const FAILED_ONCE: [u64; 0] = [];

/// What the seeds of a part came to, to tell runs that prove something from some that do not.
#[derive(Default)]
struct Tally {
    submitted: usize,
    acknowledged: usize,
    starts: usize,
    fires: usize,
    decided: usize,
    nodes_gone: usize,
    faults: usize,
    /// Shards that went from one node to another.
    takeovers: usize,
    streamed: usize,
}

impl Tally {
    fn add(&mut self, run: &Run) {
        self.decided += run.decided;
        self.streamed += run.streamed;
        let mut epochs: BTreeSet<(Shard, u64)> = BTreeSet::new();
        for entry in &run.entries {
            let counted = match &entry.event {
                Event::Submitting(_) => &mut self.submitted,
                Event::Taken { .. } => &mut self.acknowledged,
                Event::Started(start) => {
                    self.fires += usize::from(start.occurrence.is_some());
                    &mut self.starts
                }
                Event::ServerGone { .. } => &mut self.nodes_gone,
                Event::Fault(what, _) if !what.starts_with("a worker") => &mut self.faults,
                Event::Witnessed { deed: Written::Leased { held, .. }, .. }
                    if epochs.insert((held.shard, held.epoch)) =>
                {
                    &mut self.takeovers
                }
                Event::Known { .. }
                | Event::SubmitUnclear { .. }
                | Event::Wishing { .. }
                | Event::Granted { .. }
                | Event::Declined { .. }
                | Event::ScheduleWishing(_)
                | Event::ScheduleGranted(_)
                | Event::ScheduleDeclined { .. }
                | Event::Reporting { .. }
                | Event::Accepted { .. }
                | Event::Refused { .. }
                | Event::ServerUp
                | Event::Witnessed { .. }
                | Event::ServedTwice { .. }
                | Event::Recovered
                | Event::Served { .. }
                | Event::Fault(..)
                | Event::FaultsOver
                | Event::Overdue { .. }
                | Event::Held { .. }
                | Event::TooManyPushes { .. } => continue,
            };
            *counted += 1;
        }
    }

    /// A checker that sees nothing happen has nothing to say.
    fn proves_something(&self) {
        assert!(self.acknowledged * 2 > self.submitted, "most submissions are acknowledged");
        for (count, least, what) in [
            (self.submitted, 3_000, "jobs submitted"),
            (self.starts, 3_000, "attempts"),
            (self.fires, 100, "attempts of schedules"),
            (self.decided, 100, "ledger entries"),
            (self.nodes_gone, 20, "nodes that went"),
            (self.faults, 50, "other faults"),
            (self.takeovers, 500, "shards taken"),
            (self.streamed, 500, "attempts over streams"),
        ] {
            assert!(count >= least, "{count} {what}, at least {least} expected");
        }
    }
}

fn every_promise_holds(seeds: impl Iterator<Item = u64>) -> Tally {
    let (mut tally, mut failures) = (Tally::default(), String::new());
    for seed in seeds {
        let run = run(Plan::of(seed)).unwrap();
        tally.add(&run);
        failures.push_str(&report::violations(&run));
    }
    assert!(failures.is_empty(), "{failures}");
    tally
}

fn every_promise_holds_in_part(part: u64) {
    let from = CLUSTER_SEED_MIN + part * SEEDS_PER_PART;
    every_promise_holds(from..from + SEEDS_PER_PART).proves_something();
}

#[test]
fn every_promise_holds_in_the_first_part() {
    every_promise_holds_in_part(0);
}

#[test]
fn every_promise_holds_in_the_second_part() {
    every_promise_holds_in_part(1);
}

#[test]
fn every_promise_holds_in_the_third_part() {
    every_promise_holds_in_part(2);
}

#[test]
fn every_promise_holds_in_the_fourth_part() {
    every_promise_holds_in_part(3);
}

#[test]
fn every_promise_holds_in_the_fifth_part() {
    every_promise_holds_in_part(4);
}

#[test]
fn every_promise_holds_in_the_sixth_part() {
    every_promise_holds_in_part(5);
}

#[test]
fn every_promise_holds_in_the_seventh_part() {
    every_promise_holds_in_part(6);
}

#[test]
fn every_promise_holds_in_the_eighth_part() {
    every_promise_holds_in_part(7);
}

#[test]
fn every_promise_holds_in_the_ninth_part() {
    every_promise_holds_in_part(8);
}

#[test]
fn every_promise_holds_in_the_last_part() {
    every_promise_holds_in_part(PARTS - 1);
    every_promise_holds(FAILED_ONCE.into_iter());
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    let seed = CLUSTER_SEED_MIN + 3;
    let (first, second) = (run(Plan::of(seed)).unwrap(), run(Plan::of(seed)).unwrap());
    assert!(first.plan.nodes > 1);
    assert_eq!(first.entries.len(), second.entries.len());
    for (a, b) in first.entries.iter().zip(&second.entries) {
        assert_eq!(a, b);
    }
    let other = run(Plan::with_nodes(seed, first.plan.nodes % 5 + 1)).unwrap();
    assert_ne!(first.entries, other.entries, "another number of nodes is another run");
}

/// Whether one of a few seeds, changed like this, breaks that promise.
fn is_found(promise: Promise, change: impl Fn(Plan) -> Plan) -> bool {
    (0..20).any(|n| {
        let broken = run(change(Plan::of(CLUSTER_SEED_MIN + n))).unwrap().violations;
        broken.iter().any(|violation| violation.promise == promise)
    })
}

/// The checker finds a fault that was planted: the store grants claims under any epoch.
#[test]
fn a_store_that_minds_no_epochs_is_found_out() {
    assert!(is_found(Promise::StaleEpochRefused, |plan| Plan { unfenced_claims: true, ..plan }));
}

/// The checker finds a fault that was planted: nodes count time too slowly, and so trust their leases for too long.
#[test]
fn nodes_that_trust_their_leases_for_too_long_are_found_out() {
    assert!(is_found(Promise::OneOwnerPerShard, |plan| Plan { clock_slowness: 3, ..plan }));
}
