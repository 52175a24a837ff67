//! `schedule pause`, `resume`, `trigger` and `delete`.

use clap::Args;
use tidewheel_api::client::Call;

use crate::bulk;
use crate::connect::Link;
use crate::failure::Failure;

const PAUSE_EXAMPLES: &str = "\
Examples:
  tidewheel schedule pause sch_01JDQ5M8ZK0000000000000000";

const RESUME_EXAMPLES: &str = "\
Examples:
  tidewheel schedule resume sch_01JDQ5M8ZK0000000000000000";

const TRIGGER_EXAMPLES: &str = "\
Its next fire stays where it is.

Examples:
  tidewheel schedule trigger sch_01JDQ5M8ZK0000000000000000";

const DELETE_EXAMPLES: &str = "\
Jobs that have started go on.

Examples:
  tidewheel schedule delete sch_01JDQ5M8ZK0000000000000000";

/// The flags of `schedule pause`.
#[derive(Debug, Args)]
#[command(after_help = PAUSE_EXAMPLES)]
pub(crate) struct PauseArgs {
    /// The schedules' ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

/// The flags of `schedule resume`.
#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub(crate) struct ResumeArgs {
    /// The schedules' ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

/// The flags of `schedule trigger`.
#[derive(Debug, Args)]
#[command(after_help = TRIGGER_EXAMPLES)]
pub(crate) struct TriggerArgs {
    /// The schedule's id
    #[arg(value_name = "ID")]
    id: String,
}

/// The flags of `schedule delete`.
#[derive(Debug, Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub(crate) struct DeleteArgs {
    /// The schedules' ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

/// Stops schedules until they are resumed.
pub(super) async fn pause(args: PauseArgs, link: &Link) -> Result<(), Failure> {
    bulk::each(&args.ids, |id| Call::post(&["schedules", id, "pause"]), link).await
}

/// Lets paused schedules go on.
pub(super) async fn resume(args: ResumeArgs, link: &Link) -> Result<(), Failure> {
    bulk::each(&args.ids, |id| Call::post(&["schedules", id, "resume"]), link).await
}

/// Fires a schedule once, now.
pub(super) async fn trigger(args: TriggerArgs, link: &Link) -> Result<(), Failure> {
    let call = bulk::once(Call::post(&["schedules", &args.id, "trigger"]));
    let answer = link.client()?.send(&call).await?;
    Ok(link.out.document(&answer.body)?)
}

/// Removes schedules.
pub(super) async fn delete(args: DeleteArgs, link: &Link) -> Result<(), Failure> {
    bulk::each(&args.ids, |id| Call::delete(&["schedules", id]), link).await
}
