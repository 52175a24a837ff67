//! `tidewheel tenant secret`: what a tenant's pushes are signed with.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use tidewheel_api::client::Call;

use crate::bulk;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::{Column, Rows};

const LIST_EXAMPLES: &str = "\
Examples:
  tidewheel tenant secret list acme";

const ADD_EXAMPLES: &str = "\
Pushes are signed with every secret there is. To replace one: add another, teach it to the receivers, remove the old one.
A fresh secret is printed once, on stdout; one that was given is not.

Examples:
  tidewheel tenant secret add acme > acme.whsec
  tidewheel tenant secret add acme --secret-file acme.whsec";

const SHOW_EXAMPLES: &str = "\
Only the secret that a tenant has without having added one, `default`, can be shown.

Examples:
  tidewheel tenant secret show acme
  tidewheel tenant secret show acme default -o json";

const REMOVE_EXAMPLES: &str = "\
Examples:
  tidewheel tenant secret remove acme default
  tidewheel tenant secret remove acme whs_0a1b2c3d4e5f";

const EXAMPLES: &str = "\
Examples:
  tidewheel tenant secret list acme
  tidewheel tenant secret add acme > acme.whsec";

/// What to do with a tenant's webhook secrets.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum SecretVerb {
    /// Lists a tenant's secrets, without the secrets themselves
    List(ListArgs),
    /// Adds a secret, a fresh one unless it is given
    Add(AddArgs),
    /// Prints the secret of a tenant that has added none
    Show(ShowArgs),
    /// Takes secrets out of use at once
    Remove(RemoveArgs),
}

/// The flags of `tenant secret list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// The tenant
    #[arg(value_name = "NAME")]
    name: String,
}

/// The flags of `tenant secret add`.
#[derive(Debug, Args)]
#[command(after_help = ADD_EXAMPLES)]
pub(crate) struct AddArgs {
    /// The tenant
    #[arg(value_name = "NAME")]
    name: String,
    /// A file that holds the secret, `whsec_…`
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// The flags of `tenant secret show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The tenant
    #[arg(value_name = "NAME")]
    name: String,
    /// The secret's id
    #[arg(value_name = "ID", default_value = "default")]
    id: String,
}

/// The flags of `tenant secret remove`.
#[derive(Debug, Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct RemoveArgs {
    /// The tenant
    #[arg(value_name = "NAME")]
    name: String,
    /// The secrets' ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

const COLUMNS: &[Column] = &[Column::whole("ID", 16), Column::whole("CREATED AT", 24)];

/// Does it.
pub(crate) async fn run(verb: SecretVerb, link: Link) -> Result<(), Failure> {
    let client = link.client()?;
    match verb {
        SecretVerb::List(args) => {
            let answer = client.send(&Call::get(&["tenants", &args.name, "webhook-secrets"])).await?;
            if link.out.is_json() {
                return Ok(link.out.json(&answer.body)?);
            }
            let secrets = answer.json::<Document>()?.list("items").unwrap_or_default();
            let rows = secrets.iter().map(|secret| vec![secret.text("id"), secret.text("created_at")]);
            Ok(link.out.table(COLUMNS, Rows { rows: rows.collect(), titled: true })?)
        }
        SecretVerb::Add(args) => {
            let given = args.secret_file.as_deref().map(read).transpose()?;
            let call = Call::post(&["tenants", &args.name, "webhook-secrets"]);
            let call = bulk::once(call.json(json!({ "secret": given }).to_string()));
            let answer = client.send(&call).await?;
            let added: Document = answer.json()?;
            let (id, secret) = (added.text("id").unwrap_or_default(), added.text("secret"));
            if given.is_none() && secret.is_none() {
                // It was added at the first try, whose answer was lost.
                let detail = "was added, but the answer that showed it was lost: remove it, and add another";
                return Err(Failure::Refused(format!("{id} of tenant {} {detail}", args.name)));
            }
            if link.out.is_json() {
                return Ok(link.out.json(&answer.body)?);
            }
            if given.is_none() {
                link.out.line(&secret.unwrap_or_default())?;
            }
            link.out.note(&format!("{id} signs pushes of tenant {} from now on", args.name));
            Ok(())
        }
        SecretVerb::Show(args) => {
            let path = ["tenants", &args.name, "webhook-secrets", &args.id];
            let shown = client.send(&Call::get(&path)).await?;
            if link.out.is_json() {
                return Ok(link.out.json(&shown.body)?);
            }
            match shown.json::<Document>()?.text("secret") {
                Some(secret) => Ok(link.out.line(&secret)?),
                None => {
                    let detail = format!("{} was shown when it was added, and never again", args.id);
                    Err(Failure::Refused(detail))
                }
            }
        }
        SecretVerb::Remove(args) => {
            for id in &args.ids {
                let call = Call::delete(&["tenants", &args.name, "webhook-secrets", id]);
                client.send(&bulk::once(call)).await?;
                link.out.note(&format!("{id} is no longer used"));
            }
            Ok(())
        }
    }
}

/// The secret in a file. It is not taken from a flag: other users see a process's flags.
fn read(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|fault| Failure::Usage(format!("--secret-file {}: {fault}", path.display())))?;
    Ok(text.trim().to_owned())
}
