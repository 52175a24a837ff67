//! `tidewheel cluster`: the nodes, and what they have in common.

use clap::{Args, Subcommand};
use tidewheel_api::client::{Call, Client};

use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::{Column, Out, Rows};
use crate::watch::{self, WatchArgs};

const STATUS_EXAMPLES: &str = "\
Examples:
  tidewheel cluster status
  tidewheel cluster status --watch=5s
  tidewheel cluster status -o json";

const EXAMPLES: &str = "\
Examples:
  tidewheel cluster status";

/// What to ask of a cluster.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum ClusterVerb {
    /// Shows the nodes, their shards, how far behind they are, and the tz database they go by
    Status(StatusArgs),
}

/// The flags of `cluster status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    watch: WatchArgs,
}

const COLUMNS: &[Column] = &[
    Column::whole("NODE", 5),
    Column::whole("VERSION", 7),
    Column::whole("STATE", 8),
    Column::whole("STARTED AT", 24).or_none(2),
    Column::whole("SHARDS", 6),
    Column::whole("EPOCH", 5).or_none(1),
    Column::whole("LAG", 6),
    Column::text("TZ DATABASE").or_none(3),
];

/// Does it.
pub(crate) async fn run(verb: ClusterVerb, link: Link) -> Result<(), Failure> {
    match verb {
        ClusterVerb::Status(args) => {
            let client = link.client()?;
            watch::repeat(args.watch, link.out, |out| status(&client, out)).await
        }
    }
}

async fn status(client: &Client, out: Out) -> Result<(), Failure> {
    let answer = client.send(&Call::get(&["cluster"])).await?;
    if out.is_json() {
        return Ok(out.json(&answer.body)?);
    }
    let cluster: Document = answer.json()?;
    let nodes = cluster.list("nodes").unwrap_or_default();
    out.table(COLUMNS, Rows { rows: nodes.iter().map(row).collect(), titled: true })?;
    out.note(&format!(
        "{} shards in the {} store",
        cluster.text("shards").unwrap_or_default(),
        cluster.text("store").unwrap_or_default()
    ));
    let databases = cluster.list("databases").unwrap_or_default();
    for (number, database) in (1..).zip(&databases) {
        if database.text("state").as_deref() == Some("down") {
            let [shards, reason] = ["shards", "reason"].map(|name| database.text(name).unwrap_or_default());
            let count = databases.len();
            out.note(&format!(
                "database {number} of {count} is down, and its {shards} shards stand still: {reason}"
            ));
        }
    }
    Ok(())
}

fn row(node: &Document) -> Vec<Option<String>> {
    // The newest: shards that change hands get a higher one.
    let epoch = node.list("leases").unwrap_or_default().iter().filter_map(|lease| lease.count("epoch")).max();
    let tz_database = node.inner("tz_database").map(|database| {
        let [version, source] = ["version", "source"].map(|name| database.text(name).unwrap_or_default());
        format!("{version} ({source})")
    });
    vec![
        node.text("id"),
        node.text("version"),
        node.text("state"),
        node.text("started_at"),
        node.text("shards"),
        epoch.map(|epoch| epoch.to_string()),
        node.text("lag_ms").map(|ms| format!("{ms} ms")),
        tz_database,
    ]
}
