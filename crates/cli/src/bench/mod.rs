//! `tidewheel bench`: how fast a server is.
//!
//! | file | what it holds |
//! |---|---|
//! | `measure/` | what can be measured, one file each |
//! | `plan` | how much of everything |
//! | `subject` | the server under test |
//! | `load`, `connection`, `jobs` | the load generator |
//! | `target`, `sink`, `worker_process` | where jobs go |
//! | `figures`, `report`, `progress` | what came of it |
//! | `process`, `scratch`, `stopwatch` | memory, disk, time |

mod connection;
mod figures;
mod jobs;
mod load;
mod measure;
mod plan;
mod process;
mod progress;
mod report;
mod scratch;
mod sink;
mod stopwatch;
mod subject;
mod target;
mod worker_process;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use self::figures::Figure;
use self::measure::Part;
use self::plan::Plan;
use self::progress::Progress;
use self::scratch::Scratch;
use self::subject::Remote;
pub(crate) use self::worker_process::{BenchWorkerArgs, run as run_worker};
use crate::args::Format;
use crate::out::Out;

const EXAMPLES: &str = "\
Without --url it starts servers of its own in a scratch folder, and removes them at the end. With --url it measures
what can be measured over HTTP alone, and leaves its jobs there: name only a server made for it.

Examples:
  tidewheel bench --quick
  tidewheel bench --only sink target
  tidewheel bench --workers
  tidewheel bench --jobs 10000000 -o json
  tidewheel bench --url http://127.0.0.1:7400 --seconds 30";

/// The flags of `bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Jobs that wait while some of it is measured again [default: 1000000]
    #[arg(long, value_name = "COUNT")]
    jobs: Option<u64>,
    /// How long each measurement of a rate takes [default: 10]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// A minute instead of many: fewer jobs, shorter measurements
    #[arg(long)]
    quick: bool,
    /// Measure these alone; a ratio needs both its sides
    #[arg(long, value_name = "NAME", num_args = 1.., value_enum)]
    only: Vec<Part>,
    /// Measure workers alone, and the sink they are compared with; short for --only sink workers
    #[arg(long, conflicts_with = "only")]
    workers: bool,
    /// Where to keep data meanwhile [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// What all measurements share.
struct Bench {
    plan: Plan,
    scratch: Scratch,
    progress: Progress,
    /// The server that was named, if one was.
    remote: Option<Remote>,
}

/// Measures the server at `url`, or servers of its own.
pub(crate) async fn run(args: BenchArgs, url: Option<String>, format: Format) -> anyhow::Result<()> {
    crate::serve::huge_pages::go_without();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let remote = match url {
        Some(url) => Some(Remote::find(&url).await?),
        None => None,
    };
    let only = if args.workers { vec![Part::Sink, Part::Workers] } else { args.only };
    let parts = parts(&only, remote.as_ref())?;
    let bench = Bench {
        plan: Plan::new(args.quick, args.jobs, args.seconds),
        scratch: Scratch::create(args.scratch.as_deref())?,
        progress: Progress::new(parts.len()),
        remote,
    };
    let measured = tokio::select! {
        figures = measure(&bench, &parts) => figures,
        _ = terminate.recv() => Err(anyhow::anyhow!("interrupted")),
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
    };
    bench.progress.clear();
    drop(bench);
    report::print(&measured?, format)
}

/// What to measure: what was asked for, or all that can be.
fn parts(only: &[Part], remote: Option<&Remote>) -> anyhow::Result<Vec<Part>> {
    let out = Out::new(Format::Table);
    let mut chosen = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| only.is_empty() || only.contains(part)) {
        match remote {
            Some(_) if !part.is_remote() && only.is_empty() => {}
            Some(_) if !part.is_remote() => bail!("{} cannot be measured over HTTP alone", part.title()),
            Some(remote) if part.needs_target() && !remote.is_here() => {
                out.note(&format!(
                    "left out: {}; the server cannot reach a target on this machine",
                    part.title()
                ));
            }
            Some(_) | None => chosen.push(part),
        }
    }
    Ok(chosen)
}

async fn measure(bench: &Bench, parts: &[Part]) -> anyhow::Result<Vec<Figure>> {
    let mut measured = Vec::new();
    for part in parts {
        bench.progress.say(part.title());
        measured.push((*part, part.run(bench).await?));
        bench.progress.step();
    }
    // Told in the order of their names' declaration, whatever the order they were run in.
    measured.sort_by_key(|(part, _)| *part);
    let mut figures: Vec<Figure> = measured.into_iter().flat_map(|(_, figures)| figures).collect();
    if bench.remote.is_some() {
        // The server's CPU time is not ours to see, and the load generator's alone says nothing about it.
        figures.iter_mut().for_each(|figure| figure.cpu_us_per_job = None);
    }
    figures::relate(&mut figures);
    Ok(figures)
}
