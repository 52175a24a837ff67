//! `tidewheel import`: schedules from elsewhere. What cannot be carried over is told line by line.

mod carry;
mod crontab;
mod run;

use clap::Subcommand;

use crate::connect::Link;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tidewheel import crontab jobs.cron --timezone America/New_York --queue commands";

/// What to import.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum ImportVerb {
    /// Makes a schedule of each entry of a crontab
    Crontab(run::CrontabArgs),
}

/// Does it.
pub(crate) async fn run(verb: ImportVerb, link: Link) -> Result<(), Failure> {
    match verb {
        ImportVerb::Crontab(args) => run::crontab(args, &link).await,
    }
}
