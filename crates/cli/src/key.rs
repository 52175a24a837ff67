//! `tidewheel key`: who may call the server.

use clap::{Args, Subcommand};
use serde_json::json;
use tidewheel_api::client::Call;
use tidewheel_api::wire::key_request::ROLES;

use crate::bulk;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::Column;
use crate::pages::{self, Layout, PageArgs};

const CREATE_EXAMPLES: &str = "\
The key is printed once, on stdout, and kept nowhere.

Examples:
  tidewheel key create --role producer --tenant acme > acme.key
  tidewheel key create --role worker --queue mail --type send-email --name mailer
  tidewheel key create --role viewer --expires-in 30d -o json";

const LIST_EXAMPLES: &str = "\
Examples:
  tidewheel key list
  tidewheel key list --tenant acme -o json";

const REVOKE_EXAMPLES: &str = "\
Examples:
  tidewheel key revoke key_00f1a2b3c4d5e6f7";

const EXAMPLES: &str = "\
Examples:
  tidewheel key create --role producer --tenant acme > acme.key
  tidewheel key list";

/// What to do with keys.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum KeyVerb {
    /// Makes a key and prints it, this once
    Create(CreateArgs),
    /// Lists keys, without the keys themselves
    List(ListArgs),
    /// Ends keys at once
    Revoke(RevokeArgs),
}

/// The flags of `key create`.
#[derive(Debug, Args)]
#[command(after_help = CREATE_EXAMPLES)]
pub(crate) struct CreateArgs {
    /// What it is for: admin, operator, producer, worker or viewer; may be given more than once
    #[arg(long, value_name = "ROLE", required = true, value_parser = clap::builder::PossibleValuesParser::new(ROLES),
        hide_possible_values = true)]
    role: Vec<String>,
    /// A job type it is limited to; may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// A queue it is limited to; may be given more than once
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Who gets it, for people
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// How long it lasts, such as 30d
    #[arg(long, value_name = "DURATION")]
    expires_in: Option<String>,
}

/// The flags of `key list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
}

/// The flags of `key revoke`.
#[derive(Debug, Args)]
#[command(after_help = REVOKE_EXAMPLES)]
pub(crate) struct RevokeArgs {
    /// The keys' ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

const COLUMNS: Layout = Layout {
    columns: &[
        Column::whole("ID", 20),
        Column::whole("TENANT", 6),
        Column::whole("ROLES", 5),
        Column::whole("LAST USED AT", 24).or_none(1),
        Column::whole("EXPIRES AT", 24),
        Column::text("NAME"),
    ],
    row,
};

fn row(key: &Document) -> Vec<Option<String>> {
    let roles: Option<Vec<String>> =
        key.raw("roles").and_then(|roles| serde_json::from_str(roles.get()).ok());
    vec![
        key.text("id"),
        key.text("tenant"),
        roles.map(|roles| roles.join(",")),
        key.text("last_used_at"),
        key.text("expires_at"),
        key.text("name"),
    ]
}

/// Does it.
pub(crate) async fn run(verb: KeyVerb, link: Link) -> Result<(), Failure> {
    let client = link.client()?;
    match verb {
        KeyVerb::Create(args) => {
            let some = |names: Vec<String>| (!names.is_empty()).then_some(names);
            let wanted = json!({
                "roles": args.role,
                "types": some(args.types),
                "queues": some(args.queues),
                "name": args.name,
                "expires_in": args.expires_in,
            });
            let made = client.send(&bulk::once(Call::post(&["keys"]).json(wanted.to_string()))).await?;
            let key: Document = made.json()?;
            let (id, tenant) = (key.text("id").unwrap_or_default(), key.text("tenant").unwrap_or_default());
            let Some(secret) = key.text("secret") else {
                // It was made at the first try, whose answer was lost.
                let detail = "was made, but the answer that showed it was lost: revoke it, and make another";
                return Err(Failure::Refused(format!("{id} of tenant {tenant} {detail}")));
            };
            if link.out.is_json() {
                return Ok(link.out.json(&made.body)?);
            }
            link.out.line(&secret)?;
            link.out.note(&format!("{id} of tenant {tenant}; it is not shown again"));
            Ok(())
        }
        KeyVerb::List(args) => {
            pages::print(&client, || Call::get(&["keys"]), &args.page, &COLUMNS, link.out).await
        }
        KeyVerb::Revoke(args) => bulk::each(&args.ids, |id| Call::delete(&["keys", id]), &link).await,
    }
}
