//! Runs one seed, or a range of them: `tidewheel-sim --seed 7 [--nodes 3] [--count 100] [--verbose]`.

use std::io::Write;
use std::process::ExitCode;

use tidewheel_sim::plan::Plan;
use tidewheel_sim::{report, run};

const USAGE: &str = "usage: tidewheel-sim --seed N [--nodes K] [--count N] [--verbose]
  --seed N    from 1000000 on, a seed stands for 3 to 5 nodes, before that for one
  --nodes K   as many nodes, whatever the seed stands for, at most 5";

struct Wanted {
    seed: u64,
    nodes: Option<usize>,
    count: u64,
    verbose: bool,
}

fn wanted(mut arguments: impl Iterator<Item = String>) -> Option<Wanted> {
    let mut wanted = Wanted { seed: 0, nodes: None, count: 1, verbose: false };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => wanted.seed = arguments.next()?.parse().ok()?,
            "--nodes" => wanted.nodes = Some(arguments.next()?.parse().ok()?),
            "--count" => wanted.count = arguments.next()?.parse().ok()?,
            "--verbose" => wanted.verbose = true,
            _ => return None,
        }
    }
    Some(wanted)
}

fn main() -> std::io::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let Some(wanted) = wanted(std::env::args().skip(1)) else {
        writeln!(out, "{USAGE}")?;
        return Ok(ExitCode::from(2));
    };
    let mut failed = 0_u64;
    for seed in (0..wanted.count).map(|n| wanted.seed.wrapping_add(n)) {
        let plan = wanted.nodes.map_or_else(|| Plan::of(seed), |nodes| Plan::with_nodes(seed, nodes));
        let run = run::run(plan)?;
        if wanted.verbose {
            write!(out, "{:#?}\n{}", run.plan, report::record(&run))?;
        }
        writeln!(out, "{}", report::summary(&run))?;
        write!(out, "{}", report::violations(&run))?;
        failed += u64::from(!run.violations.is_empty());
    }
    if wanted.count > 1 {
        writeln!(out, "{failed} of {} seeds failed", wanted.count)?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
