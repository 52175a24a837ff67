//! `schedule backfill`: fires what lies in the past, step by step, with a bar to watch.

use std::time::Duration;

use clap::Args;
use indicatif::HumanCount;
use serde_json::json;
use tidewheel_api::client::{Call, Patience};
use tidewheel_core::time::Timestamp;
use tidewheel_server::clock::{Clock, SystemClock};

use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::filter::time;
use crate::progress::Progress;
use crate::submission::Body;

const EXAMPLES: &str = "\
Fires every nominal time from --from to --to, both included, oldest first, by the schedule as it is
now. One that has fired by itself fires once more, with the idempotency key it had then, by which
its target or worker can tell. One that was backfilled before does not, as long as its job is kept.

Examples:
  tidewheel schedule backfill sch_01JDQ5M8ZK0000000000000000 --from 2026-11-01T00:00:00Z \\
      --to 2026-11-08T00:00:00Z
  tidewheel schedule backfill sch_01JDQ5M8ZK0000000000000000 --from 2026-11-01T00:00:00Z \\
      --to 2026-12-01T00:00:00Z --rate 2";

/// The flags of `schedule backfill`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BackfillArgs {
    /// The schedule's id
    #[arg(value_name = "ID")]
    id: String,
    /// The first time to fire
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: String,
    /// The last time to fire
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: String,
    /// At most so many start per second
    #[arg(long, value_name = "JOBS", value_parser = rate)]
    rate: Option<f64>,
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| "a number above 0".to_owned())
}

/// What was done so far.
#[derive(Debug, Default)]
struct Done {
    /// Jobs that were made.
    count: u64,
    /// Instants that had their job already.
    duplicates: u64,
}

/// Fires what lies in the past.
pub(super) async fn run(args: BackfillArgs, link: &Link) -> Result<(), Failure> {
    let bar = Progress::new("jobs", Some(position(&args, &args.to)));
    let client = bar.told_of(link.patient_client(Patience::LONG)?);
    let mut done = Done::default();
    let clock = SystemClock::new();
    let mut from = args.from.clone();
    loop {
        let mut body = Body::default();
        body.text("from", Some(&from));
        body.text("to", Some(&args.to));
        if let Some(rate) = args.rate {
            body.json("rate", &rate.to_string());
        }
        // The job of an instant always has the same key, so a step that is repeated makes none twice.
        let call = Call::post(&["schedules", &args.id, "backfill"]).json(body.finish()).repeatable();
        let answer: Document = client.send(&call).await?.json()?;
        done.count += answer.count("count").unwrap_or_default();
        done.duplicates += answer.count("duplicates").unwrap_or_default();
        let Some(next) = answer.text("next_from").filter(|next| *next != from) else { break };
        bar.reach(position(&args, &next), done.count);
        if args.rate.is_some() {
            // Each step starts at its own beginning; at a rate, it must not start before the last one is through.
            clock.sleep(until(answer.text("last_run_at").as_deref(), clock.now())).await;
        }
        from = next;
    }
    bar.clear();
    if link.out.is_json() {
        let summary = json!({"count": done.count, "duplicates": done.duplicates});
        return Ok(link.out.line(&summary.to_string())?);
    }
    link.out.line(&format!("{} submitted", jobs(done.count)))?;
    if done.duplicates > 0 {
        link.out.line(&format!("{} there already", jobs(done.duplicates)))?;
    }
    Ok(())
}

/// How long it is until then.
fn until(at: Option<&str>, now: Timestamp) -> Duration {
    let ms = at.and_then(|at| at.parse::<Timestamp>().ok()).map_or(0, |at| at.since_ms(now));
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

fn jobs(count: u64) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{} jobs", HumanCount(count)) }
}

/// How far from the range's beginning an instant lies.
fn position(args: &BackfillArgs, at: &str) -> u64 {
    let [from, at] = [&args.from, at].map(|text| text.parse::<Timestamp>().map_or(0, Timestamp::as_ms));
    u64::try_from(at.saturating_sub(from)).unwrap_or_default()
}
