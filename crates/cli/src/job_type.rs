//! `tidewheel type`: what is registered for job types.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use tidewheel_api::client::{Call, Client, Error};
use tidewheel_core::job::Priority;

use crate::bulk;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::Column;
use crate::pages::{self, Layout, PageArgs};

const GET_EXAMPLES: &str = "\
Examples:
  tidewheel type get send-email
  tidewheel type get send-email -o json";

const SET_EXAMPLES: &str = "\
What is not given stays as it is; `none` takes it away.

Examples:
  tidewheel type set send-email --schema send-email.schema.json
  tidewheel type set send-email --queue mail --priority high --max-attempts 3 --timeout 10s
  tidewheel type set refund --submitter key_00f1a2b3c4d5e6f7 --submitter operator
  tidewheel type set send-email --schema none --submitter none";

const LIST_EXAMPLES: &str = "\
Examples:
  tidewheel type list";

const DELETE_EXAMPLES: &str = "\
Examples:
  tidewheel type delete send-email";

/// What takes something away.
const NONE: &str = "none";
/// What stands for stdin.
const STDIN: &str = "-";

const EXAMPLES: &str = "\
Examples:
  tidewheel type list
  tidewheel type set send-email --schema send-email.schema.json";

/// What to do with job types.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum TypeVerb {
    /// Shows what is registered for a job type
    Get(GetArgs),
    /// Registers a job type: its schema, who may submit it, its defaults
    Set(Box<SetArgs>),
    /// Lists the job types that are registered
    List(ListArgs),
    /// Forgets what is registered for a job type
    Delete(DeleteArgs),
}

/// The flags of `type get`.
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub(crate) struct GetArgs {
    /// The job type
    #[arg(value_name = "TYPE")]
    name: String,
}

/// The flags of `type set`.
#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
pub(crate) struct SetArgs {
    /// The job type
    #[arg(value_name = "TYPE")]
    name: String,
    /// A file with the JSON Schema that payloads must match; `-` is stdin
    #[arg(long, value_name = "FILE")]
    schema: Option<String>,
    /// A key's id or a role that may submit it; may be given more than once
    #[arg(long = "submitter", value_name = "KEY|ROLE")]
    submitters: Vec<String>,
    /// The queue of jobs that name neither a queue nor a target
    #[arg(long, value_name = "QUEUE", conflicts_with = "target")]
    queue: Option<String>,
    /// The target of jobs that name neither a queue nor a target
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// The priority of jobs that name none: critical, high, normal or low
    #[arg(long, value_name = "PRIORITY", value_parser = priority)]
    priority: Option<String>,
    /// Attempts of jobs that do not say how many
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<String>,
    /// How long one attempt may take, for jobs that do not say
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// What people should know
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// The flags of `type list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
}

/// The flags of `type delete`.
#[derive(Debug, Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub(crate) struct DeleteArgs {
    /// The job types
    #[arg(value_name = "TYPE", required = true)]
    names: Vec<String>,
}

fn priority(text: &str) -> Result<String, String> {
    if text == NONE || Priority::from_name(text).is_some() {
        return Ok(text.to_owned());
    }
    Err(format!("one of {}, or `none`", Priority::ALL.map(Priority::as_str).join(", ")))
}

const COLUMNS: Layout = Layout {
    columns: &[
        Column::whole("TYPE", 8),
        Column::whole("SCHEMA", 6),
        Column::whole("SUBMITTERS", 10),
        Column::whole("DEFAULTS", 8),
        Column::text("NOTE"),
    ],
    row,
};

fn row(job_type: &Document) -> Vec<Option<String>> {
    let submitters: Option<Vec<String>> =
        job_type.raw("submitters").and_then(|names| serde_json::from_str(names.get()).ok());
    vec![
        job_type.text("type"),
        Some(if job_type.text("schema").is_some() { "yes" } else { "no" }.to_owned()),
        submitters.map(|names| names.join(",")),
        job_type.text("defaults").filter(|defaults| defaults != "{}"),
        job_type.text("note"),
    ]
}

/// Does it.
pub(crate) async fn run(verb: TypeVerb, link: Link) -> Result<(), Failure> {
    let client = link.client()?;
    match verb {
        TypeVerb::Get(args) => {
            let job_type = client.send(&Call::get(&["types", &args.name])).await?;
            Ok(link.out.document(&job_type.body)?)
        }
        TypeVerb::Set(args) => {
            let path = ["types", args.name.as_str()];
            let mut job_type = current(&client, &path).await?;
            change(&mut job_type, &args)?;
            let body = Value::Object(job_type).to_string();
            let call = Call::new(Method::PUT, &path).json(body).repeatable();
            Ok(link.out.document(&client.send(&call).await?.body)?)
        }
        TypeVerb::List(args) => {
            pages::print(&client, || Call::get(&["types"]), &args.page, &COLUMNS, link.out).await
        }
        TypeVerb::Delete(args) => {
            for name in &args.names {
                client.send(&bulk::once(Call::delete(&["types", name]))).await?;
                link.out.note(&format!("nothing is registered for {name} any more"));
            }
            Ok(())
        }
    }
}

/// What is registered so far; nothing is a beginning, too.
async fn current(client: &Client, path: &[&str]) -> Result<Map<String, Value>, Failure> {
    match client.send(&Call::get(path)).await {
        Ok(answer) => Ok(answer.json()?),
        Err(error) if is_missing(&error) => Ok(Map::new()),
        Err(error) => Err(error.into()),
    }
}

fn is_missing(error: &Error) -> bool {
    error.problem().is_some_and(|problem| problem.code.as_deref() == Some("type_not_found"))
}

/// What is given takes the place of what was.
fn change(job_type: &mut Map<String, Value>, args: &SetArgs) -> Result<(), Failure> {
    if let Some(file) = &args.schema {
        job_type.insert("schema".to_owned(), schema(file)?);
    }
    if !args.submitters.is_empty() {
        let takes_away = args.submitters.iter().all(|name| name == NONE);
        let submitters = if takes_away { Value::Null } else { json!(args.submitters) };
        job_type.insert("submitters".to_owned(), submitters);
    }
    if let Some(note) = &args.note {
        job_type.insert("note".to_owned(), text_or_null(note));
    }
    let defaults = job_type.entry("defaults").or_insert_with(|| Value::Object(Map::new()));
    let Some(defaults) = defaults.as_object_mut() else { return Ok(()) };
    // Of the two places a job can go to, the one given now stands alone.
    if args.queue.is_some() || args.target.is_some() {
        defaults.remove("queue");
        defaults.remove("target");
    }
    if let Some(target) = args.target.as_ref().filter(|target| *target != NONE) {
        defaults.insert("target".to_owned(), json!({ "url": target }));
    }
    let texts = [("queue", &args.queue), ("priority", &args.priority), ("timeout", &args.timeout)];
    for (name, given) in texts {
        if let Some(given) = given {
            defaults.insert(name.to_owned(), text_or_null(given));
        }
    }
    if let Some(count) = &args.max_attempts {
        set_attempts(defaults, count)?;
    }
    Ok(())
}

fn text_or_null(text: &str) -> Value {
    if text == NONE { Value::Null } else { Value::from(text) }
}

/// The number of attempts is a part of the policy, whose other parts stay.
fn set_attempts(defaults: &mut Map<String, Value>, count: &str) -> Result<(), Failure> {
    if count == NONE {
        defaults.remove("retry");
        return Ok(());
    }
    let fault = |_| Failure::Usage("--max-attempts: write a whole number, or `none`".to_owned());
    let count: u32 = count.parse().map_err(fault)?;
    let retry = defaults.entry("retry").or_insert_with(|| Value::Object(Map::new()));
    if let Some(retry) = retry.as_object_mut() {
        retry.insert("max_attempts".to_owned(), count.into());
    }
    Ok(())
}

/// The schema in a file, or none.
fn schema(file: &str) -> Result<Value, Failure> {
    if file == NONE && !Path::new(file).exists() {
        return Ok(Value::Null);
    }
    let fault = |fault: &dyn std::fmt::Display| Failure::Usage(format!("--schema {file}: {fault}"));
    let text = if file == STDIN {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(file)
    };
    let text = text.map_err(|error| fault(&error))?;
    serde_json::from_str(&text).map_err(|error| fault(&error))
}
