//! `tidewheel dlq`: jobs that failed for good.

use clap::{ArgGroup, Args, Subcommand};
use tidewheel_api::client::Call;

use crate::bulk;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::filter::StatelessFilterArgs;
use crate::job::{StartArgs, attempts, print_job};
use crate::out::{Column, excerpt};
use crate::pages::{self, Layout, PageArgs};
use crate::submission::{Body, payload};
use crate::watch::{self, WatchArgs};

const LIST_EXAMPLES: &str = "\
Examples:
  tidewheel dlq list
  tidewheel dlq list --type send-email --from 2026-12-01T00:00:00Z
  tidewheel dlq list --watch=10s
  tidewheel dlq list --all -o json";

const SHOW_EXAMPLES: &str = "\
Examples:
  tidewheel dlq show job_01JDQ5M8ZK0000000000000000";

const REPLAY_EXAMPLES: &str = "\
Examples:
  tidewheel dlq replay job_01JDQ5M8ZK0000000000000000
  tidewheel dlq replay job_01JDQ5M8ZK0000000000000000 --payload @fixed.json
  tidewheel dlq replay --type send-email --rate 10
  tidewheel dlq replay --all --rate 100";

// What clap makes of "ids, or a filter, or all" nobody can read.
const REPLAY_USAGE: &str = "\
tidewheel dlq replay [OPTIONS] <ID>...
       tidewheel dlq replay [OPTIONS] --all
       tidewheel dlq replay [OPTIONS] <WHICH JOBS>";

const DISCARD_USAGE: &str = "\
tidewheel dlq discard <ID>...
       tidewheel dlq discard --all
       tidewheel dlq discard <WHICH JOBS>";

const DISCARD_EXAMPLES: &str = "\
Examples:
  tidewheel dlq discard job_01JDQ5M8ZK0000000000000000
  tidewheel dlq discard --type send-email --to 2026-12-01T00:00:00Z
  tidewheel dlq discard --all";

const EXAMPLES: &str = "\
Examples:
  tidewheel dlq list
  tidewheel dlq replay --type send-email --rate 10";

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum DlqVerb {
    /// Lists dead letters, latest first
    List(ListArgs),
    /// Shows a dead letter and its attempts
    Show(ShowArgs),
    /// Runs dead letters again, changed if need be
    Replay(Box<ReplayArgs>),
    /// Removes dead letters for good
    Discard(DiscardArgs),
}

/// The flags of `dlq list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: StatelessFilterArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// The flags of `dlq show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The job's id
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Which dead letters are meant: these, those that match, or all.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").args(["ids", "every", "kind", "queue", "schedule", "label", "from", "to"])
    .multiple(true).required(true))]
pub(crate) struct WhichArgs {
    /// The jobs' ids
    #[arg(value_name = "ID", conflicts_with_all = ["every", "kind", "queue", "schedule", "label", "from", "to"])]
    ids: Vec<String>,
    /// Every one there is
    #[arg(id = "every", long = "all", conflicts_with_all = ["kind", "queue", "schedule", "label", "from", "to"])]
    all: bool,
    #[command(flatten)]
    filter: StatelessFilterArgs,
}

/// The flags of `dlq replay`.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_EXAMPLES, override_usage = REPLAY_USAGE)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    start: StartArgs,
    /// Another payload: JSON, @FILE, or - for stdin
    #[arg(
        long,
        value_name = "JSON|@FILE|-",
        requires = "ids",
        allow_hyphen_values = true,
        help_heading = "Changes"
    )]
    payload: Option<String>,
    /// Another URL to push to
    #[arg(long, value_name = "URL", requires = "ids", help_heading = "Changes")]
    target: Option<String>,
}

/// The flags of `dlq discard`.
#[derive(Debug, Args)]
#[command(after_help = DISCARD_EXAMPLES, override_usage = DISCARD_USAGE)]
pub(crate) struct DiscardArgs {
    #[command(flatten)]
    which: WhichArgs,
}

const LAYOUT: Layout = Layout {
    columns: &[
        Column::whole("ID", 30),
        Column::whole("FINISHED AT", 24).or_none(2),
        Column::whole("ATTEMPT", 7).or_none(3),
        Column::text("TYPE").or_none(1),
        Column::text("LAST ERROR"),
    ],
    row,
};

fn row(job: &Document) -> Vec<Option<String>> {
    let error = job.first_text(&["last_error", "reason"]).map(|text| excerpt(&text));
    vec![job.text("id"), job.text("finished_at"), attempts(job), job.text("type"), error]
}

/// Does it.
pub(crate) async fn run(verb: DlqVerb, link: Link) -> Result<(), Failure> {
    match verb {
        DlqVerb::List(args) => {
            let call = || args.filter.query(Call::get(&["dead-letters"]));
            pages::print(&link.client()?, call, &args.page, &LAYOUT, link.out).await
        }
        DlqVerb::Show(args) => show(args, &link).await,
        DlqVerb::Replay(args) => replay(*args, &link).await,
        DlqVerb::Discard(args) => discard(args, &link).await,
    }
}

async fn show(args: ShowArgs, link: &Link) -> Result<(), Failure> {
    let (client, id) = (link.client()?, args.id.as_str());
    let show = |out| {
        let client = &client;
        async move {
            let job = client.send(&Call::get(&["jobs", id])).await?;
            let state = job.json::<Document>()?.text("state").unwrap_or_default();
            if state != "dead" {
                let hint = "so it is no dead letter; `tidewheel job get` shows it";
                return Err(Failure::Refused(format!("{id} is {state}, {hint}")));
            }
            print_job(&job, id, client, out).await
        }
    };
    watch::repeat(args.watch, link.out, show).await
}

async fn replay(args: ReplayArgs, link: &Link) -> Result<(), Failure> {
    let ReplayArgs { which, start, payload: argument, target } = args;
    if which.ids.is_empty() {
        let step = |cursor: Option<&str>, done| {
            let mut body = Body::default();
            body.json("filter", &which.filter.document().to_string());
            body.text("cursor", cursor);
            start.add_to(&mut body, done);
            Call::post(&["dead-letters", "replay"]).json(body.finish())
        };
        return bulk::all(&link.client()?, count_of(&which), step, link).await;
    }
    let payload = argument.as_deref().map(payload).transpose()?;
    let call = |id: &str| {
        let mut body = Body::default();
        if let Some(payload) = &payload {
            body.json("payload", payload);
        }
        body.text("target_url", target.as_deref());
        start.add_to(&mut body, 0);
        Call::post(&["dead-letters", id, "replay"]).json(body.finish())
    };
    bulk::each(&which.ids, call, link).await
}

async fn discard(args: DiscardArgs, link: &Link) -> Result<(), Failure> {
    let which = args.which;
    if !which.ids.is_empty() {
        return bulk::each(&which.ids, |id| Call::delete(&["dead-letters", id]), link).await;
    }
    let step = |cursor: Option<&str>, _| {
        let mut call = which.filter.query(Call::delete(&["dead-letters"]));
        if which.all {
            call = call.query("all", "true");
        }
        if let Some(cursor) = cursor {
            call = call.query("cursor", cursor);
        }
        call
    };
    bulk::all(&link.client()?, count_of(&which), step, link).await
}

/// Asks how many dead letters are meant.
fn count_of(which: &WhichArgs) -> Call {
    which.filter.query(Call::get(&["jobs", "count"]).query("state", "dead"))
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;
    use clap::Parser;

    #[test]
    fn nobody_replays_or_discards_everything_by_leaving_something_out() {
        for line in [
            "dlq replay",
            "dlq discard",
            "job cancel",
            "job retry",
            "dlq replay --rate 5",
            "job retry --delay 5s",
        ] {
            assert!(Cli::try_parse_from(format!("tidewheel {line}").split(' ')).is_err(), "{line}");
        }
        for line in [
            "dlq replay --all",
            "dlq replay --all --rate 5",
            "dlq discard --type a",
            "dlq replay a b --payload 1",
            "job cancel --state scheduled",
            "job retry a --delay 5s",
            "job retry --type a --rate 0.5",
        ] {
            let parsed = Cli::try_parse_from(format!("tidewheel {line}").split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for line in [
            "dlq discard --all --type a",
            "dlq discard a --type b",
            "job cancel a --type b",
            "job retry a --rate 5",
        ] {
            assert!(Cli::try_parse_from(format!("tidewheel {line}").split(' ')).is_err(), "{line}");
        }
    }
}
