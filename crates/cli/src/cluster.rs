//! `tidewheel cluster`: the nodes, and what they have in common.

use clap::{Args, Subcommand};
use tidewheel_api::client::Call;

use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::{Column, Rows};

const STATUS_EXAMPLES: &str = "\
Examples:
  tidewheel cluster status
  tidewheel cluster status -o json";

/// What to ask of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Shows the nodes, their shards, how far behind they are, and the tz database they go by
    Status(StatusArgs),
}

/// The flags of `cluster status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {}

const COLUMNS: &[Column] = &[
    Column::whole("NODE", 5),
    Column::whole("VERSION", 7),
    Column::whole("STATE", 8),
    Column::whole("STARTED AT", 24),
    Column::whole("SHARDS", 6),
    Column::whole("EPOCH", 5),
    Column::whole("LAG", 6),
    Column::text("TZ DATABASE"),
];

/// Does it.
pub(crate) async fn run(verb: ClusterVerb, link: Link) -> Result<(), Failure> {
    match verb {
        ClusterVerb::Status(StatusArgs {}) => status(&link).await,
    }
}

async fn status(link: &Link) -> Result<(), Failure> {
    let answer = link.client()?.send(&Call::get(&["cluster"])).await?;
    if link.out.is_json() {
        return Ok(link.out.json(&answer.body)?);
    }
    let cluster: Document = answer.json()?;
    let nodes = cluster.list("nodes").unwrap_or_default();
    link.out.table(COLUMNS, Rows { rows: nodes.iter().map(row).collect(), titled: true })?;
    link.out.note(&format!(
        "{} shards in the {} store",
        cluster.text("shards").unwrap_or_default(),
        cluster.text("store").unwrap_or_default()
    ));
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
