//! `job watch`: follows one job to its end.

use std::io;
use std::time::Duration;

use clap::Args;
use tidewheel_api::client::{Call, Patience};
use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::time::Timestamp;
use tidewheel_server::clock::{Clock, SystemClock};

use super::history::{self, Event};
use super::show::attempts_of;
use crate::connect::Link;
use crate::document::Document;
use crate::failure::Failure;
use crate::out::{excerpt, printable};

const EXAMPLES: &str = "\
Prints each change as it happens, and ends with 0 if the job succeeded, with 1 if it ended otherwise.
With -o json, each change is a line of JSON.

Examples:
  tidewheel job watch job_01JDQ5M8ZK0000000000000000
  tidewheel job submit ping --delay 5s -o json | jq -r .id | xargs tidewheel job watch";

/// Between two looks at a job that may change any moment.
const LOOK_MS_MIN: i64 = 100;
/// Between two looks at a job whose time is far: it may be called off or moved.
const LOOK_MS_MAX: i64 = 2 * SECOND_MS;

/// The longest name of a state or of an attempt's end.
const STATE_CHARS_MAX: usize = "lease_expired".len();

/// The flags of `job watch`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArgs {
    /// The job's id
    #[arg(value_name = "ID")]
    id: String,
}

/// Follows a job.
pub(crate) async fn run(args: WatchArgs, link: &Link) -> Result<(), Failure> {
    let out = link.out;
    let client = link
        .patient_client(Patience::LONG)?
        .on_retry(move |error, _| out.note(&format!("{error}; still trying")));
    let clock = SystemClock::new();
    let mut told: Vec<Event> = Vec::new();
    let mut last_seen = None;
    loop {
        let job: Document = client.send(&Call::get(&["jobs", &args.id])).await?.json()?;
        let seen = (job.text("state"), job.text("attempt"), job.text("run_at"));
        if last_seen.as_ref() != Some(&seen) {
            let attempts = attempts_of(&args.id, &client).await?;
            for event in history::of(&job, &attempts) {
                if !told.iter().any(|known| known.is(&event)) {
                    tell(&event, link)?;
                    told.push(event);
                }
            }
            last_seen = Some(seen);
        }
        if history::has_ended(&job) {
            let succeeded = job.text("state").as_deref() == Some("succeeded");
            return if succeeded { Ok(()) } else { Err(Failure::Said) };
        }
        clock.sleep(until_next_look(&job, clock.now())).await;
    }
}

fn tell(event: &Event, link: &Link) -> io::Result<()> {
    let Event { at, state, attempt, detail } = event;
    if link.out.is_json() {
        let at = if at.is_empty() { serde_json::Value::Null } else { at.as_str().into() };
        let event = serde_json::json!({"at": at, "state": state, "attempt": attempt, "detail": detail});
        return link.out.line(&event.to_string());
    }
    let padding = " ".repeat(STATE_CHARS_MAX.saturating_sub(state.chars().count()));
    let line = format!("{at:<24}  {}{padding}  {}", link.out.state(state), printable(&excerpt(detail)));
    link.out.line(line.trim_end())
}

/// Half of what is left until the job's time, within bounds; little for a job that has no time to wait for.
fn until_next_look(job: &Document, now: Timestamp) -> Duration {
    let waits = matches!(job.text("state").as_deref(), Some("scheduled" | "retrying"));
    let due = job.text("run_at").and_then(|text| text.parse::<Timestamp>().ok()).filter(|_| waits);
    let ms = due.map_or(LOOK_MS_MIN, |due| (due.since_ms(now) / 2).clamp(LOOK_MS_MIN, LOOK_MS_MAX));
    Duration::from_millis(ms.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_the_time_the_closer_the_look() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (state, run_at, ms) in [
            ("scheduled", "2026-01-02T00:00:00Z", 2_000),
            ("scheduled", "2026-01-01T00:00:01Z", 500),
            ("retrying", "2026-01-01T00:00:00Z", 100),
            ("scheduled", "2025-01-01T00:00:00Z", 100),
            ("running", "2026-01-02T00:00:00Z", 100),
        ] {
            let job = serde_json::from_str(&format!(r#"{{"state":"{state}","run_at":"{run_at}"}}"#)).unwrap();
            assert_eq!(until_next_look(&job, now), Duration::from_millis(ms), "{state} {run_at}");
        }
    }
}
