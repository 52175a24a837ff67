//! The command line: the verbs, and the flags they share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tidewheel_core::zones::bundled_version;

use crate::audit::AuditVerb;
use crate::bench::BenchArgs;
use crate::cluster::ClusterVerb;
use crate::dlq::DlqVerb;
#[cfg(feature = "import")]
use crate::import::ImportVerb;
use crate::job::JobVerb;
use crate::job_type::TypeVerb;
use crate::key::KeyVerb;
use crate::manual::{CompletionsArgs, ManArgs};
use crate::migrate::MigrateArgs;
use crate::out::Format;
use crate::schedule::ScheduleVerb;
use crate::serve::ServeArgs;
use crate::tenant::TenantVerb;
use crate::top::TopArgs;
use crate::worker::WorkerVerb;

const EXAMPLES: &str = "\
Examples:
  tidewheel serve
  tidewheel job submit ping --payload '{\"n\": 1}' --delay 5s --target http://127.0.0.1:9000/
  tidewheel job list --state dead
  tidewheel schedule create --cron '0 9 * * MON-FRI' --timezone America/New_York --queue reports
  tidewheel worker run --queue mail -- ./send-mail.sh
  tidewheel dlq replay --type send-email --rate 10
  tidewheel top

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
    /// Registers job types: schemas of payloads, who may submit them, defaults
    #[command(subcommand)]
    Type(TypeVerb),
    /// Makes keys and ends them
    #[command(subcommand)]
    Key(KeyVerb),
    /// Shows who did what and what became of jobs, and checks that nothing of it was altered
    #[command(subcommand)]
    Audit(AuditVerb),
    /// Looks at the cluster: nodes, shards, the tz database
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Shows how a server is, live: lag, rates, what waits by tenant and by queue, workers, nodes
    Top(TopArgs),
    /// Brings a PostgreSQL database to the schema of this program
    Migrate(MigrateArgs),
    /// Makes schedules of what recurs elsewhere
    #[cfg(feature = "import")]
    #[command(subcommand)]
    Import(ImportVerb),
    /// Measures how fast a server is; needs the program tidewheel-bench
    Bench(BenchArgs),
    /// Prints what a shell needs to complete verbs and flags
    Completions(CompletionsArgs),
    /// Writes manual pages to a folder
    Man(ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Every verb that is shown, with the words that lead to it.
    fn verbs(of: &clap::Command, path: &str, all: &mut Vec<(String, String)>) {
        let help = of.get_after_help().map(ToString::to_string).unwrap_or_default();
        all.push((path.to_owned(), help));
        for verb in of.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            verbs(verb, &format!("{path} {}", verb.get_name()), all);
        }
    }

    fn examples(help: &str) -> Vec<String> {
        let after = help.split_once("Examples:\n").map(|(_, after)| after).unwrap_or_default();
        let after = after.split("\n\n").next().unwrap_or_default().replace("\\\n", " ");
        after.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// What the shell hands over: words, single quotes around those with spaces.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (index, part) in line.split('\'').enumerate() {
            if index % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words
    }

    #[test]
    fn every_verb_shows_an_example_of_itself() {
        let mut all = Vec::new();
        verbs(&Cli::command(), "tidewheel", &mut all);
        assert!(all.len() > 40);
        for (path, help) in all {
            let own = examples(&help).iter().any(|line| line.contains(&path));
            assert!(own, "{path} has no example:\n{help}");
        }
    }

    #[test]
    fn every_example_is_understood() {
        let mut all = Vec::new();
        verbs(&Cli::command(), "tidewheel", &mut all);
        for line in all.iter().flat_map(|(_, help)| examples(help)) {
            // Of a line of several commands, the one that is ours.
            let command =
                line.split(" | ").flat_map(|part| part.split(" && ")).find(|c| c.starts_with("tidewheel "));
            let command = command.unwrap_or_else(|| panic!("{line} runs no tidewheel"));
            let command = command.split(" >").next().unwrap();
            let parsed = Cli::try_parse_from(words(command));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
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
