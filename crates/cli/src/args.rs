//! The command line: the verbs, and the flags they share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidewheel_core::zones::bundled_version;

use crate::bench::{BenchArgs, BenchWorkerArgs};
use crate::cluster::ClusterVerb;
use crate::dlq::DlqVerb;
use crate::import::ImportVerb;
use crate::job::JobVerb;
use crate::key::KeyVerb;
use crate::migrate::MigrateArgs;
use crate::schedule::ScheduleVerb;
use crate::serve::ServeArgs;
use crate::tenant::TenantVerb;
use crate::worker::WorkerVerb;

const EXAMPLES: &str = "\
Examples:
  tidewheel serve
  tidewheel job submit ping --payload '{\"n\": 1}' --delay 5s --target http://127.0.0.1:9000/
  tidewheel job list --state dead
  tidewheel schedule create --cron '0 9 * * MON-FRI' --timezone America/New_York --queue reports
  tidewheel worker run --queue mail -- ./send-mail.sh
  tidewheel dlq replay --type send-email --rate 10

Exit codes: 0 done, 1 refused, 2 wrong usage, 3 server unreachable.";

/// Runs work later: now, at an instant, after a delay, or on a schedule, without losing a job.
#[derive(Debug, Parser)]
#[command(name = "tidewheel", version = version(), after_help = EXAMPLES, arg_required_else_help = true)]
#[command(max_term_width = 110)]
pub(crate) struct Cli {
    /// What every verb knows.
    #[command(flatten)]
    pub(crate) globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

fn version() -> String {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let tz = bundled_version();
    format!("{} ({os} {arch}, {build} build; tz database {tz}, bundled)", env!("CARGO_PKG_VERSION"))
}

/// The flags every verb knows.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Flags of every verb")]
pub(crate) struct Globals {
    // Not through clap's `env`: a benchmark must only touch a server that was named for it.
    /// The server to talk to [env: TIDEWHEEL_URL] [default: http://127.0.0.1:7400]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The tenant to act for [env: TIDEWHEEL_TENANT] [default: the key's own, or `default`]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// A file that holds the key to show [default: the key in TIDEWHEEL_KEY, if any]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Authorities the server's certificate must be from [env: TIDEWHEEL_CA_FILE] [default: the system's]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// A certificate to show to a server that asks for one [env: TIDEWHEEL_CLIENT_CERT]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) client_cert: Option<PathBuf>,
    /// That certificate's private key [env: TIDEWHEEL_CLIENT_KEY] [default: in the same file]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,
    /// How to print what was asked for
    #[arg(long, short, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// How to print data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // Plain comments: a text per value would spread every verb's help over three times the lines.
    // For people.
    Table,
    // For programs: the server's own documents.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Starts a server
    Serve(Box<ServeArgs>),
    /// Submits jobs, looks at them, changes them
    #[command(subcommand)]
    Job(JobVerb),
    /// Creates schedules, looks at them, changes them, one by one or from a file
    #[command(subcommand)]
    Schedule(ScheduleVerb),
    /// Runs jobs on this machine
    #[command(subcommand)]
    Worker(WorkerVerb),
    /// Looks at dead letters: jobs that failed for good, kept until replayed or discarded
    #[command(subcommand)]
    Dlq(DlqVerb),
    /// Sets what tenants may do, and how much of it
    #[command(subcommand)]
    Tenant(TenantVerb),
    /// Makes keys and ends them
    #[command(subcommand)]
    Key(KeyVerb),
    /// Looks at the cluster: nodes, shards, the tz database
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Brings a PostgreSQL database to the schema of this program
    Migrate(MigrateArgs),
    /// Makes schedules of what recurs elsewhere
    #[command(subcommand)]
    Import(ImportVerb),
    /// Measures how fast a server is
    Bench(BenchArgs),
    /// A worker of the benchmark, in a process of its own
    #[command(hide = true)]
    BenchWorker(BenchWorkerArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_every_verb_stand_before_or_after_it() {
        for line in
            ["tidewheel --url http://a -o json job get x", "tidewheel job get x --url http://a -o json"]
        {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.globals.url.as_deref(), Some("http://a"));
            assert_eq!(cli.globals.output, Format::Json);
        }
    }
}
