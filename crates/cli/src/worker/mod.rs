//! `tidewheel worker`: running jobs on this machine.

mod command;
mod run;
mod tail;

use clap::Subcommand;

use crate::connect::Link;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tidewheel worker run --queue mail -- ./send-mail.sh";

/// What to do as a worker.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum WorkerVerb {
    /// Runs a command for each job of a queue
    Run(Box<run::RunArgs>),
}

/// Does it.
pub(crate) async fn run(verb: WorkerVerb, link: Link) -> Result<(), Failure> {
    match verb {
        WorkerVerb::Run(args) => run::run(*args, &link).await,
    }
}
