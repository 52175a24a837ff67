//! `tidewheel-nemesis`: breaks a real cluster for a while, and says whether its promises held.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use tidewheel_nemesis::checker::Violation;
use tidewheel_nemesis::faketime::faketime;
use tidewheel_nemesis::network;
use tidewheel_nemesis::run::{Config, KINDS, Kind, run};

/// Violations of one kind that are shown.
const SHOWN_COUNT_MAX: usize = 10;

/// Breaks a real cluster for a while, and says whether its promises held
#[derive(Debug, Parser)]
#[command(name = "tidewheel-nemesis")]
struct Args {
    /// How long things are broken
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Chooses what is broken, and when
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many nodes
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Where to write what was seen, one JSON document a line
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// What may be broken [default: all of it]
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Stretches bounds in time, for a machine that is busy with other things
    #[arg(long, default_value_t = 1, value_name = "FACTOR")]
    slack: u32,
    /// The program under test [default: tidewheel, beside this one]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Where to keep the logs of the nodes
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Cuts lines by forwarders even where network namespaces can be made
    #[arg(long)]
    no_namespaces: bool,
}

fn main() -> ExitCode {
    match start(Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("the run failed: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn say(line: &str) {
    // Nobody may be reading any more.
    writeln!(std::io::stdout(), "{line}").ok();
}

/// The first few of each kind, and how many there are.
fn tell(violations: &[Violation]) {
    for group in violations.chunk_by(|one, other| one.promise == other.promise) {
        for violation in group.iter().take(SHOWN_COUNT_MAX) {
            say(&violation.to_string());
        }
        if group.len() > SHOWN_COUNT_MAX {
            say(&format!("and {} more like this", group.len() - SHOWN_COUNT_MAX));
        }
    }
}

fn start(args: Args) -> anyhow::Result<bool> {
    if !args.no_namespaces && !network::is_inside() && network::is_possible() {
        network::enter()?;
    }
    let cut_by = if network::is_inside() { "network namespaces" } else { "forwarders" };
    let kinds = if args.only.is_empty() { KINDS.to_vec() } else { args.only };
    say(&format!("seed {}, {} s, {} nodes, cut off by {cut_by}", args.seed, args.seconds, args.nodes));
    if kinds.contains(&Kind::Clock) && faketime().is_none() {
        say("clocks are left alone: libfaketime is not installed");
    }
    if args.slack > 1 {
        say(&format!("bounds in time are stretched {} times", args.slack));
    }
    let beside = std::env::current_exe()?.with_file_name("tidewheel");
    let program = args.program.unwrap_or(beside);
    let program = program.canonicalize().with_context(|| format!("there is no {}", program.display()))?;
    let report = run(&Config {
        program,
        length: Duration::from_secs(args.seconds),
        seed: args.seed,
        nodes: args.nodes.max(1),
        kinds,
        history: args.history,
        slack: args.slack,
        logs: args.logs,
    })?;
    say(&report.summary);
    tell(&report.violations);
    say(if report.violations.is_empty() { "all promises held" } else { "promises were broken" });
    Ok(report.violations.is_empty())
}
