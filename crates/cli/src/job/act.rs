//! `job cancel`, `job run` and `job retry`.

use clap::{ArgGroup, Args};
use tidewheel_api::client::Call;

use crate::bulk;
use crate::connect::Link;
use crate::failure::Failure;
use crate::filter::{FilterArgs, time};
use crate::submission::{Body, duration};

const CANCEL_EXAMPLES: &str = "\
Examples:
  tidewheel job cancel job_01JDQ5M8ZK0000000000000000
  tidewheel job cancel --type send-email --state scheduled
  tidewheel job cancel --label campaign=spring";

// What clap makes of "ids, or a filter" nobody can read.
const CANCEL_USAGE: &str = "\
tidewheel job cancel <ID>...
       tidewheel job cancel <WHICH JOBS>";

const RETRY_USAGE: &str = "\
tidewheel job retry [OPTIONS] <ID>...
       tidewheel job retry [OPTIONS] <WHICH JOBS>";

const RUN_EXAMPLES: &str = "\
Examples:
  tidewheel job run job_01JDQ5M8ZK0000000000000000";

const RETRY_EXAMPLES: &str = "\
Examples:
  tidewheel job retry job_01JDQ5M8ZK0000000000000000
  tidewheel job retry job_01JDQ5M8ZK0000000000000000 --delay 10m
  tidewheel job retry --type send-email --state cancelled --rate 50";

/// The flags of `job cancel`.
#[derive(Debug, Args)]
#[command(after_help = CANCEL_EXAMPLES, override_usage = CANCEL_USAGE)]
#[command(group = ArgGroup::new("which").args(["ids", "state", "kind", "queue", "schedule", "label", "from", "to"])
    .multiple(true).required(true))]
pub(crate) struct BulkArgs {
    /// The jobs' ids
    #[arg(value_name = "ID", conflicts_with_all = ["state", "kind", "queue", "schedule", "label", "from", "to"])]
    ids: Vec<String>,
    #[command(flatten)]
    filter: FilterArgs,
}

/// The flags of `job run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The jobs' ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

/// The flags of `job retry`.
#[derive(Debug, Args)]
#[command(after_help = RETRY_EXAMPLES, override_usage = RETRY_USAGE)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    which: BulkArgs,
    #[command(flatten)]
    start: StartArgs,
}

/// When jobs run again.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "When")]
pub(crate) struct StartArgs {
    /// When they run [default: now]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "delay")]
    pub(crate) at: Option<String>,
    /// How long from now they run
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) delay: Option<String>,
    /// At most so many start per second, where a filter chooses them
    #[arg(long, value_name = "JOBS", value_parser = rate, conflicts_with_all = ["ids", "at", "delay"])]
    pub(crate) rate: Option<f64>,
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| "a number above 0".to_owned())
}

impl StartArgs {
    /// As fields of a body, when `done` jobs of a bulk call were started before.
    pub(crate) fn add_to(&self, body: &mut Body, done: u64) {
        body.text("run_at", self.at.as_deref());
        body.text("delay", self.delay.as_deref());
        let Some(rate) = self.rate else { return };
        body.json("rate", &rate.to_string());
        if done > 0 {
            // Each step of a bulk call starts at its own beginning; this one follows those before it.
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 jobs")]
            let seconds = done as f64 / rate;
            body.json("delay", &format!("{seconds:.3}"));
        }
    }
}

/// Calls jobs off.
pub(crate) async fn cancel(args: BulkArgs, link: &Link) -> Result<(), Failure> {
    if !args.ids.is_empty() {
        return bulk::each(&args.ids, |id| Call::post(&["jobs", id, "cancel"]), link).await;
    }
    let step = |cursor: Option<&str>, _| {
        let body = filtered(&args.filter, cursor);
        Call::post(&["jobs", "cancel"]).json(body.finish())
    };
    let count = args.filter.query(Call::get(&["jobs", "count"]));
    bulk::all(&link.client()?, count, step, link).await
}

/// Runs waiting jobs now.
pub(crate) async fn run_now(args: RunArgs, link: &Link) -> Result<(), Failure> {
    bulk::each(&args.ids, |id| Call::post(&["jobs", id, "run"]), link).await
}

/// Runs finished jobs again.
pub(crate) async fn retry(args: RetryArgs, link: &Link) -> Result<(), Failure> {
    let RetryArgs { which, start } = args;
    if !which.ids.is_empty() {
        let call = |id: &str| {
            let mut body = Body::default();
            start.add_to(&mut body, 0);
            Call::post(&["jobs", id, "retry"]).json(body.finish())
        };
        return bulk::each(&which.ids, call, link).await;
    }
    let step = |cursor: Option<&str>, done| {
        let mut body = filtered(&which.filter, cursor);
        start.add_to(&mut body, done);
        Call::post(&["jobs", "retry"]).json(body.finish())
    };
    let count = which.filter.query(Call::get(&["jobs", "count"]));
    bulk::all(&link.client()?, count, step, link).await
}

fn filtered(filter: &FilterArgs, cursor: Option<&str>) -> Body {
    let mut body = Body::default();
    body.json("filter", &filter.document().to_string());
    body.text("cursor", cursor);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_bulk_call_at_a_rate_follow_each_other() {
        let start = StartArgs { rate: Some(0.5), ..StartArgs::default() };
        let body = |done| {
            let mut body = Body::default();
            start.add_to(&mut body, done);
            body.finish()
        };
        assert_eq!(body(0), r#"{"rate":0.5}"#);
        assert_eq!(body(1_000), r#"{"rate":0.5,"delay":2000.000}"#);
        assert!(rate("0").is_err() && rate("-1").is_err() && rate("inf").is_err() && rate("x").is_err());
    }
}
