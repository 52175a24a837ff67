//! Runs many seeds, each a whole run with faults, and judges them. One seed again:
//! `TIDEWHEEL_SIM_SEED=7 cargo test -p tidewheel-sim --test it slow::seeds`, or with its whole record
//! `cargo run -p tidewheel-sim -- --seed 7 --verbose`.

use std::sync::atomic::{AtomicU64, Ordering};

use tidewheel_core::job::Ending;
use tidewheel_sim::checker::Promise;
use tidewheel_sim::history::Event;
use tidewheel_sim::plan::{Plan, Workforce};
use tidewheel_sim::report;
use tidewheel_sim::run::{Run, run};
use tidewheel_sim::stream_worker::Stroke;

const SEEDS: u64 = 200;
/// Seeds that failed once, each for a fault of its own.
const FAILED_ONCE: [u64; 7] = [1034, 1282, 5069, 5141, 6238, 7139, 7140];

/// What all seeds together came to, to tell a run that proves something from one that does not.
#[derive(Default)]
struct Tally {
    submitted: usize,
    acknowledged: usize,
    repeated: usize,
    starts: usize,
    granted: usize,
    refused: usize,
    crashed: usize,
    drained: usize,
    faults: usize,
    edits: usize,
    fires: usize,
    late_fires: usize,
    decided: usize,
    /// Schedules that are there in the end.
    kept: usize,
    /// Jobs that came over a stream.
    streamed: usize,
    /// What befell workers on streams.
    deaths: usize,
    resets: usize,
    stalls: usize,
    released: usize,
}

impl Tally {
    fn add(&mut self, run: &Run) {
        self.kept += run.schedules;
        self.decided += run.decided;
        self.streamed += run.streamed;
        for entry in &run.entries {
            match &entry.event {
                Event::Submitting(_) => self.submitted += 1,
                Event::Taken { .. } => self.acknowledged += 1,
                Event::Known { .. } => self.repeated += 1,
                Event::Started(start) => {
                    self.starts += 1;
                    self.fires += usize::from(start.occurrence.is_some());
                    let occurrence = start.occurrence.as_ref();
                    self.late_fires += usize::from(occurrence.is_some_and(|occurrence| occurrence.catch_up));
                }
                Event::ScheduleGranted(_) => self.edits += 1,
                Event::Granted { .. } => self.granted += 1,
                Event::Refused { .. } => self.refused += 1,
                Event::ServerGone { drained: false } => self.crashed += 1,
                Event::ServerGone { drained: true } => self.drained += 1,
                Event::Fault(what, _) if *what == Stroke::Death.name() => self.deaths += 1,
                Event::Fault(what, _) if *what == Stroke::Reset.name() => self.resets += 1,
                Event::Fault(what, _) if *what == Stroke::Stall.name() => self.stalls += 1,
                Event::Fault(..) => self.faults += 1,
                Event::Accepted { ending: Some(Ending::Released), .. } => self.released += 1,
                Event::ScheduleWishing(_)
                | Event::ScheduleDeclined { .. }
                | Event::SubmitUnclear { .. }
                | Event::Wishing { .. }
                | Event::Declined { .. }
                | Event::Reporting { .. }
                | Event::Accepted { .. }
                | Event::ServerUp
                | Event::FaultsOver
                | Event::Witnessed { .. }
                | Event::ServedTwice { .. }
                | Event::Recovered
                | Event::Served { .. }
                | Event::Overdue { .. }
                | Event::Held { .. }
                | Event::TooManyPushes { .. } => {}
            }
        }
    }
}

fn wanted() -> Vec<u64> {
    match std::env::var("TIDEWHEEL_SIM_SEED") {
        Ok(seed) => vec![seed.parse().expect("TIDEWHEEL_SIM_SEED is a number")],
        Err(_) => (0..SEEDS).chain(FAILED_ONCE).collect(),
    }
}

#[test]
fn every_promise_holds_in_every_seed() {
    let seeds = wanted();
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let results: Vec<(Tally, String)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let (mut tally, mut failures) = (Tally::default(), String::new());
                    while let Some(seed) =
                        seeds.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap())
                    {
                        let run = run(Plan::of(*seed)).expect("a runtime");
                        tally.add(&run);
                        failures.push_str(&report::violations(&run));
                    }
                    (tally, failures)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no seed panics")).collect()
    });
    let failures: String = results.iter().map(|(_, failures)| failures.as_str()).collect();
    assert!(failures.is_empty(), "{failures}");
    if seeds.len() > 1 {
        prove_something(&results.into_iter().map(|(tally, _)| tally).collect::<Vec<_>>());
    }
}

/// A checker that sees nothing happen has nothing to say.
fn prove_something(tallies: &[Tally]) {
    let sum = |field: fn(&Tally) -> usize| tallies.iter().map(field).sum::<usize>();
    let submitted = sum(|tally| tally.submitted);
    assert!(sum(|tally| tally.acknowledged) * 2 > submitted, "most submissions are acknowledged");
    for (count, least, what) in [
        (submitted, 20_000, "jobs submitted"),
        (sum(|tally| tally.starts), 20_000, "attempts"),
        (sum(|tally| tally.repeated), 500, "submissions repeated under their key"),
        (sum(|tally| tally.granted), 2_000, "wishes granted"),
        (sum(|tally| tally.refused), 100, "stale reports"),
        (sum(|tally| tally.crashed), 200, "crashes"),
        (sum(|tally| tally.drained), 50, "drains"),
        (sum(|tally| tally.faults), 200, "other faults"),
        (sum(|tally| tally.edits), 3_000, "orders for schedules granted"),
        (sum(|tally| tally.fires), 3_000, "attempts of schedules"),
        (sum(|tally| tally.late_fires), 500, "of them late"),
        (sum(|tally| tally.kept), 300, "schedules judged by their ledger"),
        (sum(|tally| tally.decided), 3_000, "ledger entries"),
        (sum(|tally| tally.streamed), 10_000, "attempts over streams"),
        (sum(|tally| tally.deaths), 500, "deaths of workers"),
        (sum(|tally| tally.resets), 500, "connections lost"),
        (sum(|tally| tally.stalls), 500, "workers that stood still"),
        (sum(|tally| tally.released), 50, "attempts handed back"),
    ] {
        assert!(count >= least, "{count} {what}, at least {least} expected");
    }
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    let (first, second) = (run(Plan::of(3)).unwrap(), run(Plan::of(3)).unwrap());
    assert_eq!(first.entries.len(), second.entries.len());
    for (a, b) in first.entries.iter().zip(&second.entries) {
        assert_eq!(a, b);
    }
}

/// The checker finds a fault that was planted: reports over streams are not held against their tokens.
#[test]
fn a_server_that_minds_no_tokens_is_found_out() {
    let found = (0..20).any(|seed| {
        let plan = Plan { unfenced: true, workforce: Workforce::Streaming, ..Plan::of(seed) };
        let broken = run(plan).unwrap().violations;
        broken.iter().any(|violation| {
            matches!(violation.promise, Promise::StaleTokenRefused | Promise::OneOutcomePerToken)
        })
    });
    assert!(found);
}
