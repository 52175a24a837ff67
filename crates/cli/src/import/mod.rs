//! `tidewheel import`: schedules from elsewhere. What cannot be carried over is told line by line.

mod carry;
mod crontab;
mod run;

use clap::Subcommand;

use crate::connect::Link;
use crate::failure::Failure;

/// What to import.
#[derive(Debug, Subcommand)]
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
