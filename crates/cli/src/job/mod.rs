//! `tidewheel job`: submitting jobs, looking at them, changing them.

mod act;
mod file;
mod history;
mod lines;
mod list;
mod show;
mod submit;
mod watch;

use clap::Subcommand;

pub(crate) use self::act::StartArgs;
pub(crate) use self::list::{attempts, destination};
pub(crate) use self::show::print_job;

use crate::connect::Link;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tidewheel job submit send-email --payload '{\"to\": \"a@example.com\"}' --delay 5s
  tidewheel job list --state dead
  tidewheel job explain job_01JDQ5M8ZK0000000000000000";

/// What to do with jobs.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum JobVerb {
    /// Submits a job, or a file of them
    Submit(Box<submit::SubmitArgs>),
    /// Shows a job
    Get(show::GetArgs),
    /// Lists jobs, latest first
    List(list::ListArgs),
    /// Calls jobs off
    Cancel(act::BulkArgs),
    /// Runs waiting jobs now
    Run(act::RunArgs),
    /// Runs finished jobs again
    Retry(act::RetryArgs),
    /// Tells why a job has not run yet
    Explain(show::ExplainArgs),
    /// Follows a job to its end
    Watch(watch::WatchArgs),
}

/// Does it.
pub(crate) async fn run(verb: JobVerb, link: Link) -> Result<(), Failure> {
    match verb {
        JobVerb::Submit(args) => submit::run(*args, &link).await,
        JobVerb::Get(args) => show::get(args, &link).await,
        JobVerb::List(args) => list::run(args, &link).await,
        JobVerb::Cancel(args) => act::cancel(args, &link).await,
        JobVerb::Run(args) => act::run_now(args, &link).await,
        JobVerb::Retry(args) => act::retry(args, &link).await,
        JobVerb::Explain(args) => show::explain(args, &link).await,
        JobVerb::Watch(args) => watch::run(args, &link).await,
    }
}
