//! `tidewheel tenant`: weights and limits.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use tidewheel_api::client::Call;

use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::Column;
use crate::pages::{self, Layout, PageArgs};
use crate::watch::{self, WatchArgs};
use crate::webhook_secret::{self, SecretVerb};

const GET_EXAMPLES: &str = "\
Examples:
  tidewheel tenant get acme
  tidewheel tenant get acme -o json";

const SET_EXAMPLES: &str = "\
What is not given stays as it is; `none` takes a limit away.

Examples:
  tidewheel tenant set acme --weight 3
  tidewheel tenant set acme --submit-rate 100 --submit-burst 500 --waiting 100000
  tidewheel tenant set acme --min-interval 10s --concurrency none
  tidewheel tenant set acme --retention 7d
  tidewheel tenant set acme --sub-shards 4 --rate-cap 1000";

const NOTIFY_EXAMPLES: &str = "\
Without flags, shows what is set.

Examples:
  tidewheel tenant notify acme --to https://acme.example/ops
  tidewheel tenant notify acme --to https://acme.example/ops --events lag --lag-budget 30s
  tidewheel tenant notify acme --off";

const LIST_EXAMPLES: &str = "\
Examples:
  tidewheel tenant list";

const EXAMPLES: &str = "\
Examples:
  tidewheel tenant list
  tidewheel tenant set acme --weight 3 --submit-rate 100";

/// What to do with tenants.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum TenantVerb {
    /// Shows a tenant's weight and limits
    Get(GetArgs),
    /// Changes a tenant's weight and limits, at once
    Set(Box<SetArgs>),
    /// Lists tenants with their weights and limits
    List(ListArgs),
    /// Looks at the secrets a tenant's pushes are signed with, adds and removes them
    #[command(subcommand)]
    Secret(SecretVerb),
    /// Shows or sets where a tenant is told of dead letters, missed runs, failing targets and lag
    Notify(NotifyArgs),
}

/// The flags of `tenant get`.
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub(crate) struct GetArgs {
    /// The tenant
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    watch: WatchArgs,
}

/// The flags of `tenant set`.
#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
pub(crate) struct SetArgs {
    /// The tenant
    #[arg(value_name = "NAME")]
    name: String,
    /// Its share beside other tenants, 1 to 1000
    #[arg(long, value_name = "NUMBER")]
    weight: Option<u32>,
    /// Shards its new jobs are spread over, for a tenant that is too much for one node: 1, 2, 4, 8 or 16
    #[arg(long, value_name = "COUNT")]
    sub_shards: Option<u8>,
    /// Jobs it may submit per second, over time
    #[arg(long, value_name = "JOBS", value_parser = limit)]
    submit_rate: Option<Limit>,
    /// Jobs it may submit at once
    #[arg(long, value_name = "JOBS", value_parser = limit)]
    submit_burst: Option<Limit>,
    /// Jobs that may wait
    #[arg(long, value_name = "JOBS", value_parser = limit)]
    waiting: Option<Limit>,
    /// Attempts under way at a time
    #[arg(long, value_name = "COUNT", value_parser = limit)]
    concurrency: Option<Limit>,
    /// Attempts under way at a time in one queue, or at one host
    #[arg(long, value_name = "COUNT", value_parser = limit)]
    queue_concurrency: Option<Limit>,
    /// Attempts started per second
    #[arg(long, value_name = "COUNT", value_parser = limit)]
    rate_cap: Option<Limit>,
    /// Schedules
    #[arg(long, value_name = "COUNT", value_parser = limit)]
    schedules: Option<Limit>,
    /// Time between two fires of a schedule, at least
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    min_interval: Option<Limit>,
    /// Payload of one job
    #[arg(long, value_name = "BYTES", value_parser = limit)]
    payload_bytes: Option<Limit>,
    /// How long finished jobs are seen; at most as long as the server keeps them
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retention: Option<Limit>,
}

/// The flags of `tenant list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
}

/// The flags of `tenant notify`.
#[derive(Debug, Args)]
#[command(after_help = NOTIFY_EXAMPLES)]
pub(crate) struct NotifyArgs {
    /// The tenant
    #[arg(value_name = "NAME")]
    name: String,
    /// Where to push notifications
    #[arg(long, value_name = "URL", conflicts_with = "off")]
    to: Option<String>,
    /// Of what, with commas: dead_letter, missed_run, breaker_open, lag [default: all]
    #[arg(long, value_name = "EVENTS", requires = "to", value_delimiter = ',')]
    events: Vec<String>,
    /// How long a job may be due before that is told [default: 1m]
    #[arg(long, value_name = "DURATION", requires = "to")]
    lag_budget: Option<String>,
    /// Tell nothing any more
    #[arg(long)]
    off: bool,
}

/// A limit as it is sent; `null` takes it away.
#[derive(Debug, Clone)]
struct Limit(Value);

fn limit(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(Value::Null));
    }
    let number: Result<u32, _> = text.replace('_', "").parse();
    number.map(|number| Limit(number.into())).map_err(|_| "write a whole number, or `none`".to_owned())
}

fn duration(text: &str) -> Result<Limit, String> {
    Ok(Limit(if text == "none" { Value::Null } else { Value::from(text) }))
}

const LIMITS: [&str; 10] = [
    "submit_rate",
    "submit_burst",
    "waiting",
    "concurrency",
    "queue_concurrency",
    "rate_cap",
    "schedules",
    "min_interval",
    "payload_bytes",
    "retention",
];

const COLUMNS: Layout = Layout {
    columns: &[
        Column::whole("NAME", 8),
        Column::whole("WEIGHT", 6),
        Column::whole("RATE", 5),
        Column::whole("BURST", 5),
        Column::whole("WAITING", 7),
        Column::whole("CONCURRENCY", 11),
        Column::whole("PER QUEUE", 9).or_none(5),
        Column::whole("STARTS/S", 8).or_none(6),
        Column::whole("SCHEDULES", 9).or_none(1),
        Column::whole("INTERVAL", 8).or_none(2),
        Column::whole("PAYLOAD", 7).or_none(3),
        Column::text("RETENTION").or_none(4),
    ],
    row,
};

fn row(tenant: &Document) -> Vec<Option<String>> {
    let limits = tenant.inner("limits").unwrap_or_default();
    let own = [tenant.text("id"), tenant.text("weight")];
    own.into_iter().chain(LIMITS.map(|name| limits.text(name))).collect()
}

/// Does it.
pub(crate) async fn run(verb: TenantVerb, link: Link) -> Result<(), Failure> {
    let client = link.client()?;
    match verb {
        TenantVerb::Get(args) => {
            watch::document(args.watch, &link, || Call::get(&["tenants", &args.name])).await
        }
        TenantVerb::Set(args) => {
            let path = ["tenants", args.name.as_str()];
            let mut tenant: Map<String, Value> = client.send(&Call::get(&path)).await?.json()?;
            change(&mut tenant, &args);
            let body = Value::Object(tenant).to_string();
            let call = Call::new(Method::PUT, &path).json(body).repeatable();
            Ok(link.out.document(&client.send(&call).await?.body)?)
        }
        TenantVerb::Notify(args) => {
            let path = ["tenants", args.name.as_str(), "notifications"];
            let call = match notifications(&args) {
                Some(body) => Call::new(Method::PUT, &path).json(body.to_string()).repeatable(),
                None => Call::get(&path),
            };
            Ok(link.out.document(&client.send(&call).await?.body)?)
        }
        TenantVerb::List(args) => {
            pages::print(&client, || Call::get(&["tenants"]), &args.page, &COLUMNS, link.out).await
        }
        TenantVerb::Secret(verb) => webhook_secret::run(verb, link).await,
    }
}

/// What is to be set, if anything is.
fn notifications(args: &NotifyArgs) -> Option<Value> {
    if args.off {
        return Some(json!({ "url": null }));
    }
    let mut body = Map::from_iter([("url".to_owned(), Value::from(args.to.as_deref()?))]);
    if !args.events.is_empty() {
        body.insert("events".to_owned(), args.events.clone().into());
    }
    if let Some(budget) = &args.lag_budget {
        body.insert("lag_budget".to_owned(), budget.as_str().into());
    }
    Some(Value::Object(body))
}

/// What is given takes the place of what was.
fn change(tenant: &mut Map<String, Value>, args: &SetArgs) {
    if let Some(weight) = args.weight {
        tenant.insert("weight".to_owned(), weight.into());
    }
    if let Some(sub_shards) = args.sub_shards {
        tenant.insert("sub_shards".to_owned(), sub_shards.into());
    }
    let given = [
        &args.submit_rate,
        &args.submit_burst,
        &args.waiting,
        &args.concurrency,
        &args.queue_concurrency,
        &args.rate_cap,
        &args.schedules,
        &args.min_interval,
        &args.payload_bytes,
        &args.retention,
    ];
    let limits = tenant.entry("limits").or_insert_with(|| Value::Object(Map::new()));
    let Some(limits) = limits.as_object_mut() else { return };
    for (name, given) in LIMITS.into_iter().zip(given) {
        if let Some(Limit(value)) = given {
            limits.insert(name.to_owned(), value.clone());
        }
    }
    // A burst without a rate means nothing.
    if limits.get("submit_rate").is_none_or(Value::is_null) && args.submit_burst.is_none() {
        limits.insert("submit_burst".to_owned(), Value::Null);
    }
}
