//! `job list`.

use clap::Args;
use tidewheel_api::client::Call;

use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::filter::FilterArgs;
use crate::out::Column;
use crate::pages::{self, Layout, PageArgs};

const EXAMPLES: &str = "\
Examples:
  tidewheel job list
  tidewheel job list --state running --state retrying --type send-email
  tidewheel job list --label team=ops --from 2026-12-01T00:00:00Z --to 2026-12-02T00:00:00Z
  tidewheel job list --state running --watch
  tidewheel job list --state dead --all -o json";

/// The flags of `job list`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    page: PageArgs,
    /// With payloads, which only -o json shows
    #[arg(long)]
    payload: bool,
}

/// Columns of a list of jobs, the ones of a fixed width first.
const LAYOUT: Layout = Layout {
    columns: &[
        Column::whole("ID", 30),
        Column::whole("STATE", 9),
        Column::whole("RUN AT", 24).or_none(1),
        Column::whole("ATTEMPT", 7).or_none(3),
        Column::text("TYPE"),
        Column::text("TO").or_none(2),
    ],
    row,
};

fn row(job: &Document) -> Vec<Option<String>> {
    vec![
        job.text("id"),
        job.text("state"),
        job.text("run_at"),
        attempts(job),
        job.text("type"),
        destination(job),
    ]
}

/// Attempts made of those allowed, such as `1/5`.
pub(crate) fn attempts(job: &Document) -> Option<String> {
    let attempt = job.count("attempt")?;
    // A job that was run again counts on from where it was, past what one run allows.
    let max = job.count("max_attempts").filter(|max| attempt <= *max);
    Some(max.map_or_else(|| attempt.to_string(), |max| format!("{attempt}/{max}")))
}

/// The URL or the queue a job goes to.
pub(crate) fn destination(job: &Document) -> Option<String> {
    job.inner("target").and_then(|target| target.text("url")).or_else(|| job.text("queue"))
}

/// Lists jobs.
pub(crate) async fn run(args: ListArgs, link: &Link) -> Result<(), Failure> {
    let call = || {
        let call = args.filter.query(Call::get(&["jobs"]));
        if args.payload { call.query("payload", "true") } else { call }
    };
    pages::print(&link.client()?, call, &args.page, &LAYOUT, link.out).await
}
