//! `tidewheel audit`: who did what, what became of jobs, and whether the record of it is whole.

mod read;
mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::value::RawValue;
use tidewheel_api::client::{Call, Client, ClientConfig};
use tidewheel_api::wire::audit::Line;
use tidewheel_api::wire::audit_ends::Tally;

use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::{Column, Out};
use crate::pages::{self, Layout, PageArgs};

const LIST_EXAMPLES: &str = "\
Examples:
  tidewheel audit list
  tidewheel audit list --kind act --actor key_00f1a2b3c4d5e6f7
  tidewheel audit list --action schedules.pause --from 2026-11-01T00:00:00Z
  tidewheel audit list --object job_01JCR3VYT0ABCDEFGHJKMNPQRS -o json";

const EXPORT_EXAMPLES: &str = "\
One JSON object a line, oldest first; the last line says from where to where it goes in each chain.
Without filters the export can be checked by itself, with `tidewheel audit verify --file`.

Examples:
  tidewheel audit export > audit.ndjson
  tidewheel audit export --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z > november.ndjson";

const VERIFY_EXAMPLES: &str = "\
Reads every record of every chain and computes its hash anew. Exit code 1 and the first broken link if
something was altered, taken out or put in, or if an export has no end line: it broke off, its end was
cut off, or it was made by a version that wrote none, which --without-end allows.

Examples:
  tidewheel audit verify
  tidewheel audit verify --file audit.ndjson
  tidewheel audit export | tidewheel audit verify --file -";

const EXAMPLES: &str = "\
Examples:
  tidewheel audit list
  tidewheel audit verify";

/// What to do with the audit trail.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum AuditVerb {
    /// Lists what was done and what became of jobs, newest first
    List(ListArgs),
    /// Prints records as lines of JSON, oldest first
    Export(ExportArgs),
    /// Checks that nothing was altered, taken out or put in
    Verify(VerifyArgs),
}

/// Which records.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which")]
struct WhichArgs {
    /// Asked for by this one: the id of a key, or `anonymous`
    #[arg(long, value_name = "ID")]
    actor: Option<String>,
    /// Of this action, such as keys.create, or all of a noun, such as keys
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// About this: a job, a schedule, a key, by id or name
    #[arg(long, value_name = "ID")]
    object: Option<String>,
    /// Only what was asked for (act), or what became of jobs (changes)
    #[arg(long, value_name = "KIND", value_parser = ["act", "changes"], hide_possible_values = true)]
    kind: Option<String>,
    /// At this instant or later
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Before this instant
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

impl WhichArgs {
    fn call(&self) -> Call {
        let mut call = Call::get(&["audit"]);
        for (name, value) in [
            ("actor", &self.actor),
            ("action", &self.action),
            ("object", &self.object),
            ("kind", &self.kind),
            ("from", &self.from),
            ("to", &self.to),
        ] {
            if let Some(value) = value {
                call = call.query(name, value);
            }
        }
        call
    }
}

/// The flags of `audit list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// The flags of `audit export`.
#[derive(Debug, Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    which: WhichArgs,
}

/// The flags of `audit verify`.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// An export to check, without a server; - for stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The export may have no end line; whether its first and last records are there is not checked then
    #[arg(long, requires = "file")]
    without_end: bool,
}

const COLUMNS: Layout = Layout {
    columns: &[
        Column::whole("AT", 24),
        Column::text("TENANT"),
        Column::text("ACTOR"),
        Column::text("ADDRESS"),
        Column::text("ACTION"),
        Column::text("OBJECT"),
        Column::text("WHAT"),
    ],
    row,
};

fn row(line: &Document) -> Vec<Option<String>> {
    let Some(changes) = line.list("changes") else {
        let fields: Option<Vec<String>> =
            line.raw("fields").and_then(|fields| serde_json::from_str(fields.get()).ok());
        let what = match line.count("count") {
            Some(count) if count > 1 => Some(format!("{count} calls")),
            Some(_) | None => fields.filter(|fields| !fields.is_empty()).map(|fields| fields.join(",")),
        };
        let [at, tenant, actor, address, action, object] =
            ["at", "tenant", "actor", "address", "action", "object"].map(|name| line.text(name));
        return vec![at, tenant, actor, address, action, object, what];
    };
    let first = changes.first();
    let text = |name: &str| first.and_then(|change| change.text(name));
    let what = match changes.len() {
        1 => {
            let state = |name: &str| text(name).unwrap_or_else(|| "-".to_owned());
            format!("{} to {}", state("from"), state("to"))
        }
        many => format!("{many} changes"),
    };
    let object = text("job").filter(|_| changes.len() == 1);
    let tenants: std::collections::BTreeSet<_> = changes.iter().map(|change| change.text("tenant")).collect();
    let tenant = text("tenant").filter(|_| tenants.len() == 1);
    vec![line.text("at"), tenant, None, None, Some("jobs.state".to_owned()), object, Some(what)]
}

/// Does it.
pub(crate) async fn run(verb: AuditVerb, link: Link) -> Result<(), Failure> {
    match verb {
        AuditVerb::List(args) => {
            let client = link.client()?;
            pages::print(&client, || args.which.call(), &args.page, &COLUMNS, link.out).await
        }
        AuditVerb::Export(args) => {
            let client = link.client()?;
            export(&client, &args.which, link.out).await
        }
        AuditVerb::Verify(VerifyArgs { file: Some(file), without_end }) => {
            verify::told(verify::file(&file, without_end, link.out), link.out)
        }
        AuditVerb::Verify(VerifyArgs { file: None, .. }) => {
            // Chains are made of what concerns all tenants.
            let client = Client::new(ClientConfig { tenant: None, ..link.config()? })?;
            verify::told(verify::server(&client, link.out).await, link.out)
        }
    }
}

async fn export(client: &Client, which: &WhichArgs, out: Out) -> Result<(), Failure> {
    let mut tally = Tally::default();
    let print = |text: &RawValue| {
        let line: Line = serde_json::from_str(text.get())
            .map_err(|fault| Failure::Refused(format!("the server sent no record: {fault}")))?;
        tally.note(&line);
        Ok(out.line(text.get())?)
    };
    read::each_page(client, || which.call(), print).await?;
    let end = serde_json::to_string(&tally.end_line());
    let end = end.map_err(|fault| Failure::Refused(format!("the end line cannot be written: {fault}")))?;
    Ok(out.line(&end)?)
}
