//! `tidewheel-bench`, which `tidewheel bench` hands over to: how fast a server is. A program of its own, so that nobody who
//! only wants a server builds it.
//!
//! | file | what it holds |
//! |---|---|
//! | `measure/` | what can be measured, one file each |
//! | `plan` | how much of everything |
//! | `subject`, `database` | the server under test, the PostgreSQL it is on |
//! | `load`, `connection`, `jobs` | the load generator |
//! | `target`, `sink`, `worker_process` | where jobs go |
//! | `figures`, `report`, `progress` | what came of it |
//! | `process`, `scratch`, `stopwatch` | memory, disk, time |

mod connection;
mod database;
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
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tidewheel_cli::config::{secure, values};
use tidewheel_cli::failure::Failure;
use tidewheel_cli::out::{Format, Out};
use tidewheel_cli::runtime;
use tidewheel_core::time::parse_duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use self::database::PostgresServer;
use self::figures::Figure;
use self::measure::Part;
use self::plan::{Plan, TRANSACTION_AGE_MAX, Wanted};
use self::progress::Progress;
use self::scratch::Scratch;
use self::subject::Remote;
use self::worker_process::WorkerArgs;

const EXAMPLES: &str = "\
Without --url it starts servers of its own in a scratch folder, and removes them at the end. With --url it measures
what can be measured over HTTP alone, and leaves its jobs there: name only a server made for it. With --store its servers
are on databases that it makes in that PostgreSQL and drops at the end; the database of the URL is not touched.

Examples:
  tidewheel bench --quick
  tidewheel bench --only sink target
  tidewheel bench --workers
  tidewheel bench --jobs 10000000 -o json
  tidewheel bench --url http://127.0.0.1:7400 --seconds 30
  tidewheel bench --store postgres://tidewheel@127.0.0.1/postgres --quick
  tidewheel bench --store postgres://tidewheel@127.0.0.1/postgres --only old-transaction nodes
  tidewheel bench --store postgres://tidewheel@127.0.0.1/postgres --only old-transaction \\
      --old-transaction-age 10m";

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures how fast a server is.
#[derive(Debug, Parser)]
#[command(name = "tidewheel-bench", bin_name = "tidewheel bench", version, after_help = EXAMPLES)]
#[command(max_term_width = 110, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    args: BenchArgs,
    #[command(subcommand)]
    part: Option<ProcessOfItsOwn>,
}

/// What the benchmark starts this program as.
#[derive(Debug, Subcommand)]
enum ProcessOfItsOwn {
    /// A worker of the benchmark, in a process of its own
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// The flags.
#[derive(Debug, Args)]
struct BenchArgs {
    /// The server to measure, instead of ones of its own: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How to print the figures
    #[arg(long, short, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    /// Jobs that wait while some of it is measured again [default: 1000000]
    #[arg(long, value_name = "COUNT")]
    jobs: Option<u64>,
    /// How long each measurement of a rate takes [default: 10]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// A minute instead of many: fewer jobs, shorter measurements
    #[arg(long)]
    quick: bool,
    /// Due jobs of each drain [default: 500000; 200000 with --store]
    #[arg(long, value_name = "COUNT")]
    drain: Option<u64>,
    /// Bytes of every payload
    #[arg(long, value_name = "BYTES", default_value_t = jobs::PAYLOAD_BYTES_DEFAULT)]
    payload: usize,
    /// Measure servers on this PostgreSQL: postgres://user:password@host:5432/name
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// A file that holds that URL
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    store_file: Option<PathBuf>,
    /// How often what is compared is measured, one side after the other [default: 5]
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// Drain jobs beside the old transaction until it is so old, before speed beside it is measured [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = transaction_age)]
    old_transaction_age: Option<Duration>,
    /// Measure these alone; a ratio needs both its sides
    #[arg(long, value_name = "NAME", num_args = 1.., value_enum)]
    only: Vec<Part>,
    /// Measure workers alone, and the sink they are compared with; short for --only workers
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
    /// The database server that was named, if one was.
    postgres: Option<Arc<PostgresServer>>,
}

impl BenchArgs {
    /// The database server to use, from flags alone: a benchmark must only touch one that was named for it.
    fn store(&self) -> Result<Option<String>, Failure> {
        // Checked here, not by the parser of flags: that one would repeat a password that is in it.
        let (flag, url) = match (&self.store, &self.store_file) {
            (None, None) => return Ok(None),
            (Some(url), _) => ("--store".to_owned(), values::store(url)),
            (None, Some(file)) => {
                let url = secure::secret_in(file).and_then(|url| values::store(&url));
                (format!("--store-file: {}", file.display()), url)
            }
        };
        url.map(Some).map_err(|fault| Failure::Usage(format!("{flag}: {fault}")))
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            waiting: self.jobs,
            seconds: self.seconds,
            drained: self.drain,
            rounds: self.rounds,
            transaction_age: self.old_transaction_age,
        }
    }
}

fn transaction_age(text: &str) -> Result<Duration, String> {
    let ms = parse_duration(text).map_err(|fault| fault.to_string())?;
    let age = Duration::from_millis(ms.unsigned_abs());
    if age > TRANSACTION_AGE_MAX {
        return Err(format!("{text} is more than {} minutes", TRANSACTION_AGE_MAX.as_secs() / 60));
    }
    Ok(age)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let out = Out::new(cli.args.output);
    let done = runtime(Builder::new_multi_thread()).and_then(|runtime| match cli.part {
        Some(ProcessOfItsOwn::Worker(args)) => {
            runtime.block_on(worker_process::run(args)).map_err(Failure::Server)
        }
        None => runtime.block_on(run(cli.args)),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&out),
    }
}

/// Measures the server at `--url`, or servers of its own. What is wrong with the flags is told before anybody is asked.
async fn run(args: BenchArgs) -> Result<(), Failure> {
    tidewheel_cli::serve::huge_pages::go_without();
    let store = args.store()?;
    let (url, format) = (args.url.clone(), args.output);
    if url.is_some() && store.is_some() {
        let text = "--url names a server, --store has one started: give one of them";
        return Err(Failure::Usage(text.to_owned()));
    }
    let remote = match url {
        Some(url) => Some(Remote::find(&url).await?),
        None => None,
    };
    let on = match (&remote, &store) {
        (Some(remote), _) => On::Http { here: remote.is_here() },
        (None, Some(_)) => On::Postgres,
        (None, None) => On::Embedded,
    };
    let plan = Plan::new(args.quick, args.wanted());
    jobs::set_payload_bytes(args.payload);
    let only = if args.workers { vec![Part::Workers] } else { args.only };
    let parts = parts(&only, on).map_err(Failure::Usage)?;
    if let Some(remote) = &remote {
        remote.must_be_there().await?;
    }
    let postgres = match store {
        Some(url) => Some(find_postgres(&url).await?),
        None => None,
    };
    let bench = Bench {
        plan,
        scratch: Scratch::create(args.scratch.as_deref()).map_err(Failure::Server)?,
        progress: Progress::new(parts.len()),
        remote,
        postgres,
    };
    Box::pin(measure_and_tell(bench, &parts, format)).await.map_err(Failure::Server)
}

/// Measures, leaves nothing behind, and prints the figures.
async fn measure_and_tell(bench: Bench, parts: &[Part], format: Format) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let measured = tokio::select! {
        figures = measure(&bench, parts) => figures,
        _ = terminate.recv() => Err(anyhow::anyhow!("interrupted")),
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
    };
    bench.progress.clear();
    let Bench { postgres, .. } = bench;
    if let Some(server) = &postgres
        && let Err(fault) = server.clear().await
    {
        Out::new(Format::Table).note(&format!("{fault:#}"));
    }
    report::print(&measured?, postgres.as_ref().map(|server| server.about()), format)
}

/// What the measured servers are, or are on.
#[derive(Debug, Clone, Copy)]
enum On {
    Embedded,
    Postgres,
    /// Named, and perhaps not on this machine.
    Http {
        here: bool,
    },
}

async fn find_postgres(url: &str) -> Result<Arc<PostgresServer>, Failure> {
    let server = PostgresServer::find(url).await?;
    if let Some(warning) = server.warning() {
        Out::new(Format::Table).note(&format!("warning: {warning}"));
    }
    Ok(server)
}

/// What to measure: what was asked for, or all that can be.
fn parts(only: &[Part], on: On) -> Result<Vec<Part>, String> {
    let mut chosen = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| only.is_empty() || only.contains(part)) {
        let obstacle = match on {
            On::Embedded => part.is_shared().then_some("needs a database: name one with --store"),
            On::Postgres => (!part.is_on_postgres()).then_some("cannot be measured with --store"),
            On::Http { .. } => (!part.is_remote()).then_some("cannot be measured over HTTP alone"),
        };
        match (obstacle, on) {
            (Some(_), _) if only.is_empty() => {}
            (Some(obstacle), _) => return Err(format!("{} {obstacle}", part.title())),
            (None, On::Http { here: false }) if part.needs_target() => {
                Out::new(Format::Table).note(&format!(
                    "left out: {}; the server cannot reach a target on this machine",
                    part.title()
                ));
            }
            (None, On::Embedded | On::Postgres | On::Http { .. }) => chosen.push(part),
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
