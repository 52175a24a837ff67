//! The one binary: the server, and a client of it.
//!
//! | module | what it holds |
//! |---|---|
//! | `args` | the command line: verbs and the flags they share |
//! | `serve`, `config` | starting a server, and everything about it that can be set |
//! | `job`, `schedule`, `dlq`, `tenant`, `webhook_secret`, `job_type`, `key`, `audit`, `cluster` | the verbs of a client |
//! | `import` | schedules from a crontab |
//! | `top` | how a server is, live |
//! | `worker` | running a command per job |
//! | `bench` | hands over to the program that measures a server |
//! | `filter`, `pages`, `bulk`, `submission` | what verbs share: choosing jobs, listing them, changing many, describing one |
//! | `connect` | from flags to a client of the API |
//! | `document`, `json` | answers of the server, kept as they came |
//! | `out`, `fit` | the one door to stdout and stderr: tables that fit, JSON, colours |
//! | `watch`, `progress` | looking again and again; bars for what takes long |
//! | `manual` | completions and man pages |
//! | `failure` | what went wrong, in words and as an exit code |

mod args;
mod audit;
mod bench;
mod bulk;
mod cluster;
pub mod config;
mod connect;
mod dlq;
mod document;
pub mod failure;
mod filter;
mod fit;
#[cfg(feature = "import")]
mod import;
mod job;
mod job_type;
mod json;
mod key;
mod manual;
mod migrate;
pub mod out;
mod pages;
pub mod progress;
mod schedule;
pub mod serve;
mod submission;
mod tenant;
mod top;
mod watch;
mod webhook_secret;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use self::args::{Cli, Verb};
use self::connect::Link;
use self::failure::Failure;
use self::out::Out;

/// Does what the command line says.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let out = Out::new(cli.globals.output);
    match run(cli, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&out),
    }
}

fn run(cli: Cli, out: Out) -> Result<(), Failure> {
    match cli.verb {
        Verb::Serve(args) => runtime(Builder::new_multi_thread())?.block_on(serve::start(args)),
        Verb::Migrate(args) => runtime(Builder::new_current_thread())?.block_on(migrate::run(args, out)),
        Verb::Bench(args) => Err(bench::hand_over(&args, &cli.globals)),
        Verb::Completions(args) => manual::completions(&args, out),
        Verb::Man(args) => manual::man(&args, out),
        Verb::Job(verb) => {
            runtime(Builder::new_current_thread())?.block_on(job::run(verb, Link::new(cli.globals, out)))
        }
        Verb::Schedule(verb) => {
            runtime(Builder::new_current_thread())?.block_on(schedule::run(verb, Link::new(cli.globals, out)))
        }
        #[cfg(feature = "import")]
        Verb::Import(verb) => {
            runtime(Builder::new_current_thread())?.block_on(import::run(verb, Link::new(cli.globals, out)))
        }
        Verb::Worker(verb) => {
            runtime(Builder::new_current_thread())?.block_on(worker::run(verb, Link::new(cli.globals, out)))
        }
        Verb::Dlq(verb) => {
            runtime(Builder::new_current_thread())?.block_on(dlq::run(verb, Link::new(cli.globals, out)))
        }
        Verb::Tenant(verb) => {
            runtime(Builder::new_current_thread())?.block_on(tenant::run(verb, Link::new(cli.globals, out)))
        }
        Verb::Type(verb) => {
            runtime(Builder::new_current_thread())?.block_on(job_type::run(verb, Link::new(cli.globals, out)))
        }
        Verb::Key(verb) => {
            runtime(Builder::new_current_thread())?.block_on(key::run(verb, Link::new(cli.globals, out)))
        }
        Verb::Top(args) => {
            runtime(Builder::new_current_thread())?.block_on(top::run(args, Link::new(cli.globals, out)))
        }
        Verb::Audit(verb) => {
            runtime(Builder::new_current_thread())?.block_on(audit::run(verb, Link::new(cli.globals, out)))
        }
        Verb::Cluster(verb) => {
            runtime(Builder::new_current_thread())?.block_on(cluster::run(verb, Link::new(cli.globals, out)))
        }
    }
}

/// Threads to run on.
///
/// # Errors
///
/// The operating system has none.
pub fn runtime(mut builder: Builder) -> Result<Runtime, Failure> {
    builder.enable_all().build().map_err(|fault| Failure::Refused(format!("no threads to run on: {fault}")))
}
