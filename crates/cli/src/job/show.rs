//! `job get` and `job explain`: one job, and why it has not run yet.

use clap::Args;
use tidewheel_api::client::{Answer, Call, Client, Error};

use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::{Column, Out, Rows, excerpt};
use crate::watch::{self, WatchArgs};

const GET_EXAMPLES: &str = "\
Examples:
  tidewheel job get job_01JDQ5M8ZK0000000000000000
  tidewheel job get job_01JDQ5M8ZK0000000000000000 --watch
  tidewheel job get job_01JDQ5M8ZK0000000000000000 -o json";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tidewheel job explain job_01JDQ5M8ZK0000000000000000";

/// The flags of `job get`.
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub(crate) struct GetArgs {
    /// The job's id
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    watch: WatchArgs,
}

/// The flags of `job explain`.
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The job's id
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    watch: WatchArgs,
}

const ATTEMPT_COLUMNS: &[Column] = &[
    Column::whole("ATTEMPT", 7),
    Column::whole("STATE", 9),
    Column::whole("STARTED AT", 24),
    Column::whole("FINISHED AT", 24),
    Column::whole("STATUS", 6),
    Column::text("DETAIL"),
];

/// Shows a job.
pub(crate) async fn get(args: GetArgs, link: &Link) -> Result<(), Failure> {
    let (client, id) = (link.client()?, args.id.as_str());
    let show = |out| {
        let client = &client;
        async move {
            let job = client.send(&Call::get(&["jobs", id])).await?;
            print_job(&job, id, client, out).await
        }
    };
    watch::repeat(args.watch, link.out, show).await
}

/// Prints a job and, for people, its attempts below.
pub(crate) async fn print_job(job: &Answer, id: &str, client: &Client, out: Out) -> Result<(), Failure> {
    out.document(&job.body)?;
    if out.is_json() || job.json::<Document>()?.count("attempt") == Some(0) {
        return Ok(());
    }
    let rows: Vec<_> = attempts_of(id, client).await?.iter().map(attempt_row).collect();
    if !rows.is_empty() {
        out.line("")?;
        out.table(ATTEMPT_COLUMNS, Rows { rows, titled: true })?;
    }
    Ok(())
}

/// The attempts of a job, oldest first.
pub(crate) async fn attempts_of(id: &str, client: &Client) -> Result<Vec<Document>, Error> {
    let answer: Document = client.send(&Call::get(&["jobs", id, "attempts"])).await?.json()?;
    Ok(answer.list("items").unwrap_or_default())
}

fn attempt_row(attempt: &Document) -> Vec<Option<String>> {
    ["attempt", "state", "started_at", "finished_at", "status_code", "detail"]
        .into_iter()
        .map(|name| attempt.text(name).filter(|text| !text.is_empty()).map(|text| excerpt(&text)))
        .collect()
}

/// Tells why a job has not run yet.
pub(crate) async fn explain(args: ExplainArgs, link: &Link) -> Result<(), Failure> {
    watch::document(args.watch, link, || Call::get(&["jobs", &args.id, "explain"])).await
}
