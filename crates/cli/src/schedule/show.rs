//! `schedule get`, `list`, `next`, `preview` and `firings`.

use clap::Args;
use tidewheel_api::client::{Answer, Call};
use tidewheel_core::limits::PREVIEW_COUNT_MAX;

use super::timing::TimingArgs;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::filter::time;
use crate::job::destination;
use crate::out::{Column, Out, Rows, excerpt};
use crate::pages::{self, Layout, PageArgs};
use crate::submission::Body;
use crate::watch::{self, WatchArgs};

const GET_EXAMPLES: &str = "\
Examples:
  tidewheel schedule get sch_01JDQ5M8ZK0000000000000000
  tidewheel schedule get sch_01JDQ5M8ZK0000000000000000 -o json";

const LIST_EXAMPLES: &str = "\
Examples:
  tidewheel schedule list
  tidewheel schedule list --state paused --watch
  tidewheel schedule list --all -o json";

const NEXT_EXAMPLES: &str = "\
Examples:
  tidewheel schedule next sch_01JDQ5M8ZK0000000000000000
  tidewheel schedule next sch_01JDQ5M8ZK0000000000000000 --count 100";

const PREVIEW_EXAMPLES: &str = "\
Examples:
  tidewheel schedule preview --cron '0 9 * * MON-FRI' --timezone America/New_York
  tidewheel schedule preview --cron '30 2 * * *' --timezone Europe/Berlin --from 2026-03-27T00:00:00Z
  tidewheel schedule preview --every 90m --start-at 2026-12-01T00:00:00Z --count 20";

const FIRINGS_EXAMPLES: &str = "\
Examples:
  tidewheel schedule firings sch_01JDQ5M8ZK0000000000000000
  tidewheel schedule firings sch_01JDQ5M8ZK0000000000000000 --all -o json";

/// The flags of `schedule get`.
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub(crate) struct GetArgs {
    /// The schedule's id
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    watch: WatchArgs,
}

/// The flags of `schedule list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// In this state: active, paused or ended
    #[arg(long, value_name = "STATE", value_parser = ["active", "paused", "ended"], hide_possible_values = true)]
    state: Option<String>,
    /// Of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

/// The flags of `schedule next`.
#[derive(Debug, Args)]
#[command(after_help = NEXT_EXAMPLES)]
pub(crate) struct NextArgs {
    /// The schedule's id
    #[arg(value_name = "ID")]
    id: String,
    /// How many
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = count)]
    count: usize,
    #[command(flatten)]
    watch: WatchArgs,
}

/// The flags of `schedule preview`.
#[derive(Debug, Args)]
#[command(after_help = PREVIEW_EXAMPLES)]
pub(crate) struct PreviewArgs {
    #[command(flatten)]
    timing: TimingArgs,
    /// After this time [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<String>,
    /// How many
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = count)]
    count: usize,
}

/// The flags of `schedule firings`.
#[derive(Debug, Args)]
#[command(after_help = FIRINGS_EXAMPLES)]
pub(crate) struct FiringsArgs {
    /// The schedule's id
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    page: PageArgs,
}

fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=PREVIEW_COUNT_MAX).contains(count))
        .ok_or_else(|| format!("a number from 1 to {PREVIEW_COUNT_MAX}"))
}

const LIST_LAYOUT: Layout = Layout {
    columns: &[
        Column::whole("ID", 30),
        Column::whole("STATE", 6),
        Column::whole("NEXT FIRE AT", 24).or_none(1),
        Column::text("NAME"),
        Column::text("WHEN").or_none(2),
        Column::text("TO").or_none(3),
    ],
    row: schedule_row,
};

fn schedule_row(schedule: &Document) -> Vec<Option<String>> {
    vec![
        schedule.text("id"),
        schedule.text("state"),
        schedule.text("next_fire_at"),
        schedule.text("name"),
        beat(schedule),
        destination(schedule),
    ]
}

/// When a schedule fires, in a few words.
pub(super) fn beat(schedule: &Document) -> Option<String> {
    if let Some(every) = schedule.text("every") {
        return Some(format!("every {every}"));
    }
    let cron = schedule.text("cron_expr")?;
    Some(match schedule.text("timezone") {
        Some(zone) if zone != "UTC" => format!("{cron} {zone}"),
        Some(_) | None => cron,
    })
}

const FIRE_COLUMNS: &[Column] =
    &[Column::whole("FIRE AT", 24), Column::whole("RUN AT", 24), Column::text("NOTE")];

const FIRING_LAYOUT: Layout = Layout {
    columns: &[
        Column::whole("FIRE AT", 24),
        Column::whole("OUTCOME", 10),
        Column::whole("LAG", 8).or_none(2),
        Column::whole("ATTEMPTS", 8).or_none(3),
        Column::whole("STATE", 9),
        Column::whole("JOB", 0),
        Column::text("DETAIL").or_none(1),
    ],
    row: firing_row,
};

fn firing_row(firing: &Document) -> Vec<Option<String>> {
    let detail = firing
        .text("reason")
        .or_else(|| firing.text("coalesced_into").map(|into| format!("into {into}")))
        .or_else(|| (firing.text("catch_up").as_deref() == Some("true")).then(|| "catch-up".to_owned()));
    vec![
        firing.text("fire_at"),
        firing.text("outcome"),
        firing.text("lag"),
        firing.text("attempts"),
        firing.text("state"),
        firing.text("job_id"),
        detail.map(|text| excerpt(&text)),
    ]
}

/// Shows a schedule.
pub(super) async fn get(args: GetArgs, link: &Link) -> Result<(), Failure> {
    watch::document(args.watch, link, || Call::get(&["schedules", &args.id])).await
}

/// Lists schedules.
pub(super) async fn list(args: ListArgs, link: &Link) -> Result<(), Failure> {
    let call = || {
        let filters = [("state", &args.state), ("type", &args.kind)];
        filters.into_iter().fold(Call::get(&["schedules"]), |call, (name, value)| match value {
            Some(value) => call.query(name, value),
            None => call,
        })
    };
    pages::print(&link.client()?, call, &args.page, &LIST_LAYOUT, link.out).await
}

/// Shows the next fires of a schedule.
pub(super) async fn next(args: NextArgs, link: &Link) -> Result<(), Failure> {
    let call = Call::get(&["schedules", &args.id, "next"]).query("count", &args.count.to_string());
    let client = link.client()?;
    let show = |out| {
        let (client, call) = (&client, &call);
        async move { print_fires(&client.send(call).await?, out) }
    };
    watch::repeat(args.watch, link.out, show).await
}

/// Shows when a schedule would fire.
pub(super) async fn preview(args: PreviewArgs, link: &Link) -> Result<(), Failure> {
    let mut body = Body::default();
    args.timing.add_to(&mut body);
    body.text("from", args.from.as_deref());
    body.json("count", &args.count.to_string());
    // Nothing is created, so asking twice is like once.
    let call = Call::post(&["schedules", "preview"]).json(body.finish()).repeatable();
    print_fires(&link.client()?.send(&call).await?, link.out)
}

fn print_fires(answer: &Answer, out: Out) -> Result<(), Failure> {
    if out.is_json() {
        return Ok(out.json(&answer.body)?);
    }
    let answer = answer.json::<Document>()?;
    let fires = answer.list("fires").unwrap_or_default();
    if fires.is_empty() {
        let is_paused = answer.text("state").as_deref() == Some("paused");
        out.note(if is_paused { "It is paused." } else { "It does not fire any more." });
        return Ok(());
    }
    let row = |fire: &Document| ["fire_at", "run_at", "note"].map(|name| fire.text(name)).to_vec();
    Ok(out.table(FIRE_COLUMNS, Rows { rows: fires.iter().map(row).collect(), titled: true })?)
}

/// Shows what became of each fire.
pub(super) async fn firings(args: FiringsArgs, link: &Link) -> Result<(), Failure> {
    let call = || Call::get(&["schedules", &args.id, "firings"]);
    pages::print(&link.client()?, call, &args.page, &FIRING_LAYOUT, link.out).await
}
