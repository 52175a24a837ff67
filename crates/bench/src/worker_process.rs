//! A worker in a process of its own: the hidden verb that is one, and the handle on it.
//!
//! The benchmark talks to it over its pipes: it says `ready` once it is connected, works after `go`, and ends when its
//! stdin does, so that none outlives the benchmark.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use tidewheel_api::worker::{Context, Failure as JobFailure, Stopper, Worker, WorkerConfig};
use tidewheel_cli::out::{Format, Out};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use super::jobs::QUEUE;
use super::plan::PATIENCE;
use super::stopwatch::wall_us;

/// Handlers at once of a worker that drains: enough that the server is never without room.
const DRAIN_CONCURRENCY: usize = 4_096;
/// Workers that connect at once.
const CONNECTING_MAX: usize = 64;
const READY: &str = "ready";

/// What such a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Task {
    /// Ends every job at once.
    Drain,
    /// Ends every job at once, and says when it started.
    Tell,
    /// Nothing: many workers on a queue without jobs.
    Idle,
}

/// The flags of the hidden verb.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// What to do
    #[arg(value_enum)]
    task: Task,
    /// How many workers
    count: usize,
    /// Where the server is
    #[arg(long)]
    url: String,
    /// Work for every tenant
    #[arg(long)]
    all_tenants: bool,
}

/// Is such a worker, until stdin ends.
pub(crate) async fn run(args: WorkerArgs) -> anyhow::Result<()> {
    tidewheel_cli::serve::descriptors::raise();
    let mut workers = JoinSet::new();
    let mut stoppers = Vec::new();
    let mut connecting = JoinSet::new();
    for number in 0..args.count {
        if connecting.len() >= CONNECTING_MAX
            && let Some(worker) = connecting.join_next().await
        {
            start(worker??, args.task, &mut workers, &mut stoppers).await?;
        }
        let config = WorkerConfig { all_tenants: args.all_tenants, ..config(args.task, &args.url, number) };
        connecting.spawn(Worker::connect(config));
    }
    while let Some(worker) = connecting.join_next().await {
        start(worker??, args.task, &mut workers, &mut stoppers).await?;
    }
    if args.task == Task::Idle {
        say(READY)?;
    }
    while heard().await? {}
    stoppers.iter().for_each(Stopper::stop_now);
    while workers.join_next().await.is_some() {}
    Ok(())
}

fn config(task: Task, url: &str, number: usize) -> WorkerConfig {
    let name = format!("bench-{}-{number}", std::process::id());
    let concurrency = if task == Task::Drain { DRAIN_CONCURRENCY } else { 16 };
    let queue = if task == Task::Idle { "bench-idle" } else { QUEUE };
    WorkerConfig { name, concurrency, ..WorkerConfig::new(url, queue) }
}

async fn start(
    mut worker: Worker,
    task: Task,
    workers: &mut JoinSet<()>,
    stoppers: &mut Vec<Stopper>,
) -> anyhow::Result<()> {
    worker.handle_any(move |_: Context, _: Bytes| async move {
        if task == Task::Tell {
            say(&wall_us().to_string()).map_err(JobFailure::retry)?;
        }
        Ok::<_, JobFailure>(Bytes::new())
    });
    if task != Task::Idle {
        say(READY)?;
        heard().await?;
    }
    stoppers.push(worker.stopper());
    workers.spawn(async move {
        if let Err(error) = worker.run().await {
            Out::new(Format::Table).error(&error.to_string());
        }
    });
    Ok(())
}

/// Waits for a line; whether one came before stdin ended.
async fn heard() -> anyhow::Result<bool> {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    Ok(read.await?? > 0)
}

fn say(line: &str) -> std::io::Result<()> {
    Out::new(Format::Table).line(line)
}

/// A worker process; ends when dropped.
pub(super) struct WorkerProcess {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl WorkerProcess {
    /// Starts it, and waits until it is connected.
    pub(super) async fn start(task: &str, count: u64, url: &str) -> anyhow::Result<Self> {
        Self::start_with(task, count, url, &[]).await
    }

    /// One worker for all tenants.
    pub(super) async fn start_for_all(task: &str, url: &str) -> anyhow::Result<Self> {
        Self::start_with(task, 1, url, &["--all-tenants"]).await
    }

    async fn start_with(task: &str, count: u64, url: &str, flags: &[&str]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut child = Command::new(program)
            .args(["worker", task, &count.to_string(), "--url", url])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting a worker process")?;
        let stdin = child.stdin.take().context("a worker without stdin")?;
        let stdout = child.stdout.take().context("a worker without stdout")?;
        let mut process = Self { child, stdin, lines: BufReader::new(stdout).lines() };
        let said = process.line().await?;
        ensure!(said == READY, "a worker process said {said:?}");
        Ok(process)
    }

    /// Lets it work.
    pub(super) async fn go(&mut self) -> anyhow::Result<()> {
        self.stdin.write_all(b"\n").await.context("talking to a worker process")
    }

    /// The next line it says.
    pub(super) async fn line(&mut self) -> anyhow::Result<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await??;
        line.context("a worker process ended")
    }

    /// Ends it.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let Self { mut child, stdin, .. } = self;
        drop(stdin);
        tokio::time::timeout(PATIENCE, child.wait()).await.context("a worker process does not end")??;
        Ok(())
    }
}

/// Several, all connected.
pub(super) async fn start_many(
    task: &str,
    processes: usize,
    url: &str,
) -> anyhow::Result<Vec<WorkerProcess>> {
    let mut started = Vec::with_capacity(processes);
    for _ in 0..processes {
        started.push(WorkerProcess::start(task, 1, url).await?);
    }
    Ok(started)
}
