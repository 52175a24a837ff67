//! `tidewheel schedule`: what recurs. Single schedules by flags, or all of them from a file.
//!
//! | file | what it holds |
//! |---|---|
//! | `create`, `timing` | a schedule from flags, and the flags that say when it fires |
//! | `show` | get, list, next, firings, preview |
//! | `act` | pause, resume, trigger, delete |
//! | `backfill` | making up for a range of the past |
//! | `file`, `yaml` | a file of schedules, read and written |
//! | `check` | what the server would find wrong with a schedule of a file |
//! | `settled` | a schedule's fields in one form, so that two can be compared |
//! | `registered` | what is registered for job types, which speaks for schedules that do not |
//! | `remote` | the calls that plan, apply, export and the imports share |
//! | `plan`, `apply`, `export` | what a file would change, changing it, and writing such a file |

mod act;
pub(crate) mod apply;
mod backfill;
mod check;
mod create;
mod export;
pub(crate) mod file;
pub(crate) mod plan;
mod registered;
pub(crate) mod remote;
mod settled;
mod show;
mod timing;
mod yaml;

use clap::Subcommand;

use crate::connect::Link;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tidewheel schedule create --cron '0 9 * * MON-FRI' --timezone America/New_York --queue reports
  tidewheel schedule next sch_01JDQ5M8ZK0000000000000000
  tidewheel schedule apply schedules.yaml";

/// What to do with schedules.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum ScheduleVerb {
    /// Creates a schedule
    Create(Box<create::CreateArgs>),
    /// Shows a schedule
    Get(show::GetArgs),
    /// Lists schedules
    List(show::ListArgs),
    /// Shows the next fires of a schedule
    Next(show::NextArgs),
    /// Shows when a schedule would fire, without creating it
    Preview(Box<show::PreviewArgs>),
    /// Shows what became of each fire, latest first
    Firings(show::FiringsArgs),
    /// Stops schedules until they are resumed
    Pause(act::PauseArgs),
    /// Lets paused schedules go on
    Resume(act::ResumeArgs),
    /// Fires a schedule once, now
    Trigger(act::TriggerArgs),
    /// Fires once more, or for the first time, what lies in the past
    Backfill(backfill::BackfillArgs),
    /// Removes schedules
    Delete(act::DeleteArgs),
    /// Shows what applying a file would change
    Plan(plan::PlanArgs),
    /// Makes the schedules what a file says
    Apply(apply::ApplyArgs),
    /// Writes the schedules as a file
    Export(export::ExportArgs),
}

/// Does it.
pub(crate) async fn run(verb: ScheduleVerb, link: Link) -> Result<(), Failure> {
    match verb {
        ScheduleVerb::Create(args) => create::run(*args, &link).await,
        ScheduleVerb::Get(args) => show::get(args, &link).await,
        ScheduleVerb::List(args) => show::list(args, &link).await,
        ScheduleVerb::Next(args) => show::next(args, &link).await,
        ScheduleVerb::Preview(args) => show::preview(*args, &link).await,
        ScheduleVerb::Firings(args) => show::firings(args, &link).await,
        ScheduleVerb::Pause(args) => act::pause(args, &link).await,
        ScheduleVerb::Resume(args) => act::resume(args, &link).await,
        ScheduleVerb::Trigger(args) => act::trigger(args, &link).await,
        ScheduleVerb::Backfill(args) => backfill::run(args, &link).await,
        ScheduleVerb::Delete(args) => act::delete(args, &link).await,
        ScheduleVerb::Plan(args) => plan::run(args, &link).await,
        ScheduleVerb::Apply(args) => apply::run(args, &link).await,
        ScheduleVerb::Export(args) => export::run(args, &link).await,
    }
}
