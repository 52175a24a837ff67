//! Counts what a job costs, by valgrind: `scripts/cost` builds what it needs and runs it, and `bench/COST.md` has the results
//! and says how they come about.
//!
//! | module | what it holds |
//! |---|---|
//! | [`entries`] | the operations that are counted |
//! | [`site`], [`database`] | what they work on: a store, a server under valgrind, PostgreSQL |
//! | [`sink`] | a server that delivers to nobody |
//! | [`watched`], [`profile`], [`trace`] | a process under valgrind, and what that writes down |
//! | [`proxy`], [`target`] | who counts round trips, and who is pushed to |
//! | [`costs`], [`table`] | counts, and the tables of them |
//! | [`jobs`], [`stopwatch`] | the jobs, and the clock |

mod costs;
mod database;
mod entries;
mod jobs;
mod profile;
mod proxy;
mod sink;
mod site;
mod stopwatch;
mod table;
mod target;
mod trace;
mod watched;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use self::database::Postgres;
use self::entries::{Count, Entry};
use self::site::{Site, Subject};
use self::stopwatch::Stopwatch;
use self::table::{Origin, Rows};

/// The server's own allocator: the sink is one too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EMBEDDED: &str = "Embedded store";
const POSTGRES: &str = "PostgreSQL";

/// Counts what a job costs. `scripts/cost` runs it.
#[derive(Debug, Parser)]
#[command(name = "tidewheel-cost")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure
    Measure(MeasureArgs),
    /// Tell how far two outputs of a measurement lie apart
    Compare {
        /// The first
        one: PathBuf,
        /// The second
        two: PathBuf,
    },
    /// Be a server that delivers to nobody
    #[command(hide = true)]
    Sink(sink::SinkArgs),
}

#[derive(Debug, Args)]
struct MeasureArgs {
    /// The program to measure
    #[arg(long)]
    server: PathBuf,
    /// The page with the tables
    #[arg(long)]
    page: PathBuf,
    /// How the program was built
    #[arg(long)]
    profile: String,
    /// What it was built of
    #[arg(long)]
    commit: String,
    /// By what it was built
    #[arg(long)]
    rustc: String,
    /// The small form: few entries, the embedded store alone, compared with the table
    #[arg(long)]
    small: bool,
    /// One entry alone
    #[arg(long)]
    only: Option<String>,
    /// The embedded store or PostgreSQL alone
    #[arg(long, value_parser = ["embedded", "postgres"])]
    store: Option<String>,
    /// Write the tables into the page
    #[arg(long)]
    update: bool,
    /// A PostgreSQL server
    #[arg(long, env = "TIDEWHEEL_TEST_POSTGRES")]
    postgres: Option<String>,
    /// Where the processes of that server have valgrind write, if they run under it
    #[arg(long)]
    postgres_counted_in: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = runtime().and_then(|runtime| match Cli::parse().verb {
        Verb::Measure(args) => runtime.block_on(until_stopped(measure(args))),
        Verb::Compare { one, two } => compare(&one, &two),
        Verb::Sink(args) => runtime.block_on(sink::run(args)).map(|()| ExitCode::SUCCESS),
    });
    done.unwrap_or_else(|fault| {
        eprintln!("error: {fault:#}");
        ExitCode::FAILURE
    })
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// One that is told to stop drops what it has, and with it the servers that it started.
async fn until_stopped(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let [mut terminate, mut interrupt] = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    tokio::select! {
        done = work => done,
        _ = terminate.recv() => bail!("stopped"),
        _ = interrupt.recv() => bail!("stopped"),
    }
}

async fn measure(args: MeasureArgs) -> anyhow::Result<ExitCode> {
    let origin =
        Origin { profile: args.profile.clone(), commit: args.commit.clone(), rustc: args.rustc.clone() };
    let chosen: Vec<Entry> = entries::ALL
        .into_iter()
        .filter(|entry| args.only.as_ref().map_or(!args.small || entry.small, |only| only == entry.name))
        .collect();
    let names = || entries::ALL.map(|entry| entry.name).join(", ");
    ensure!(!chosen.is_empty(), "there is no such entry; there are {}", names());
    ensure!(!args.update || (args.only.is_none() && args.store.is_none()), "--update is of all entries");
    if args.small {
        return small(&args, &origin, &chosen).await;
    }
    let mut tables = Vec::new();
    if args.store.as_deref() != Some("postgres") {
        let subject = Subject { server: args.server.clone(), postgres: None };
        tables.push((EMBEDDED, count(&chosen, &subject, EMBEDDED).await?));
    }
    if args.store.as_deref() != Some("embedded") {
        let url = args.postgres.clone().context("no PostgreSQL: scripts/with-postgres has one")?;
        let postgres = Some(Postgres { url, counted_in: args.postgres_counted_in.clone() });
        let subject = Subject { server: args.server.clone(), postgres };
        tables.push((POSTGRES, count(&chosen, &subject, POSTGRES).await?));
    }
    for (title, rows) in &tables {
        say(&format!("\n{title}:\n\n{}", table::rendered(rows)))?;
    }
    if args.update {
        let tables: Vec<(&str, &Rows)> = tables.iter().map(|(title, rows)| (*title, rows)).collect();
        table::replace(&args.page, "full", &origin, &tables)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares with the page: more than a little more is refused, unless the page is changed as well.
async fn small(args: &MeasureArgs, origin: &Origin, chosen: &[Entry]) -> anyhow::Result<ExitCode> {
    let page = fs::read_to_string(&args.page).with_context(|| format!("reading {}", args.page.display()))?;
    let part = table::part(&page, "small")?;
    let rustc = table::rustc_of(part).unwrap_or("nobody yet");
    if !args.update && rustc != args.rustc {
        say(&format!(
            "Nothing is compared: the small table of bench/COST.md is of a build by {rustc}, and this one is by {}.\n\
             Another compiler makes other instructions. `scripts/cost --small --update` writes the table anew.\n",
            args.rustc
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let before = if args.update { Rows::new() } else { table::parse(part)? };
    let subject = Subject { server: args.server.clone(), postgres: None };
    let now = count(chosen, &subject, EMBEDDED).await?;
    say(&format!("\n{}", table::rendered(&now)))?;
    if args.update {
        table::replace(&args.page, "small", origin, &[(EMBEDDED, &now)])?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in table::shrunk(&before, &now) {
        say(&format!("less: {line}; `scripts/cost --small --update` keeps it so\n"))?;
    }
    for (name, _) in &now {
        ensure!(
            before.iter().any(|(known, _)| known == name),
            "{name} is not in the small table of bench/COST.md: `scripts/cost --small --update` writes it anew"
        );
    }
    let grown = table::grown(&before, &now);
    if grown.is_empty() {
        say("No entry costs more than bench/COST.md says, but for the 5 % that are let pass.\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in &grown {
        say(&format!("MORE: {line}\n"))?;
    }
    say(
        "\nA job costs over 5 % more than bench/COST.md says. If that is not meant, `scripts/cost --small --only ENTRY`\n\
         counts one entry alone. If it is, `scripts/cost --small --update` writes the table anew; commit it together with\n\
         the change, and say why in its message.\n",
    )?;
    Ok(ExitCode::FAILURE)
}

async fn count(chosen: &[Entry], subject: &Subject, title: &str) -> anyhow::Result<Rows> {
    let (mut rows, mut shared) = (Rows::new(), None);
    for entry in chosen {
        let watch = Stopwatch::start();
        let costs = match entry.count {
            Count::Alone(count) => count(subject).await,
            Count::Shared(count) => {
                if shared.is_none() {
                    shared = Some(Site::serve(subject).await?);
                }
                count(shared.as_mut().context("a server that was just started")?).await
            }
        };
        rows.push((entry.name.to_owned(), costs.with_context(|| entry.name)?));
        eprintln!("{title}: {}: counted in {} s", entry.name, watch.elapsed().as_secs());
    }
    if let Some(site) = shared {
        site.stop().await?;
    }
    Ok(rows)
}

/// For whoever wants to see that two runs count the same.
fn compare(one: &PathBuf, two: &PathBuf) -> anyhow::Result<ExitCode> {
    let read =
        |path: &PathBuf| fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    let (one, two) = (read(one)?, read(two)?);
    for title in [EMBEDDED, POSTGRES] {
        let table = |text: &str| {
            let (_, rest) = text.split_once(&format!("{title}:\n\n"))?;
            Some(table::parse(rest.split("\n\n").next()?))
        };
        let (Some(one), Some(two)) = (table(&one), table(&two)) else { continue };
        for (name, what, apart) in table::spread(&one?, &two?) {
            say(&format!("{title}: {name}: {what}: {apart:+.2} %\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
