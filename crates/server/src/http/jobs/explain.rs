//! Why a job has not run yet: what it waits for, and when it should start.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::filter::ShownState;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::breaker::BreakerState;
use tidewheel_core::job::{Destination, Job, State as JobState};
use tidewheel_core::time::{Timestamp, format_duration};
use tidewheel_store::Error;

use super::read::find;
use crate::engine::{BreakerView, Whereabouts};
use crate::http::answer;
use crate::http::app::App;
use crate::http::caller::{Caller, JobPath};
use crate::http::problem::Problem;

/// What a job waits for.
struct Explanation {
    /// A stable name for it; `None` when it waits for nothing.
    waits_for: Option<&'static str>,
    detail: String,
    expected_start: Option<Timestamp>,
}

/// `GET /v1/jobs/{id}/explain`
pub(crate) async fn explain(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Response, Problem> {
    let job = find(&app, &caller.tenant, id).await?;
    let now = app.now();
    let explanation = match job.status.state {
        JobState::Scheduled if is_held(&app, &job).await? => held(&job),
        JobState::Scheduled | JobState::Retrying if job.status.due_at > now => waiting(&job, now),
        JobState::Scheduled | JobState::Retrying => due(&job, app.engine.whereabouts(&job).await, now),
        JobState::Running => running(&job),
        JobState::Succeeded
        | JobState::Dead
        | JobState::Cancelled
        | JobState::Skipped
        | JobState::Expired => ended(&job),
    };
    let mut out = JsonWriter::with_capacity(512);
    out.object(|out| {
        out.key("id").plain(job.id);
        out.key("state").text(ShownState::of(&job, now).as_str());
        out.key("waits_for").text_or_null(explanation.waits_for);
        out.key("detail").text(&explanation.detail);
        out.key("expected_start").time(explanation.expected_start);
        out.key("run_at").plain(job.status.due_at);
        out.key("now").plain(now);
        out.key("attempt").number(job.status.attempt);
        out.key("max_attempts").number(job.spec.retry.max_attempts);
        out.key("failures").number(job.status.failures);
    });
    Ok(answer::json(StatusCode::OK, out))
}

/// Whether its schedule holds it until an earlier run is over. The time it is set for is then only when that is looked at
/// again, should nobody have said so.
async fn is_held(app: &App, job: &Job) -> Result<bool, Problem> {
    let Some(occurrence) = &job.spec.occurrence else { return Ok(false) };
    match app.engine.store().schedules(&job.tenant, vec![occurrence.schedule_id]).await {
        Ok(schedules) => Ok(schedules.into_iter().flatten().any(|schedule| schedule.held == Some(job.id))),
        // Of a schedule that cannot be read nobody knows whom it holds.
        Err(Error::Corrupt(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn held(job: &Job) -> Explanation {
    let fire_at = job.spec.occurrence.as_ref().map_or(job.id.run_at(), |occurrence| occurrence.fire_at);
    let detail = format!("an earlier run of its schedule is not over; it starts after that, for {fire_at}");
    Explanation { waits_for: Some("overlap"), detail, expected_start: None }
}

fn waiting(job: &Job, now: Timestamp) -> Explanation {
    let left = format_duration(job.status.due_at.since_ms(now));
    let (waits_for, detail) = match job.status.state {
        JobState::Retrying => {
            let (failures, max) = (job.status.failures, job.spec.retry.max_attempts);
            (
                "retry",
                format!(
                    "attempt {} ended; after {failures} of {max} failures it is tried again in {left}",
                    job.status.attempt
                ),
            )
        }
        JobState::Scheduled
        | JobState::Running
        | JobState::Succeeded
        | JobState::Dead
        | JobState::Cancelled
        | JobState::Skipped
        | JobState::Expired => ("time", format!("it is set for {}, in {left}", job.status.due_at)),
    };
    let expires = job.spec.expires_at.filter(|expires_at| *expires_at <= job.status.due_at);
    let detail = match expires {
        Some(expires_at) => format!("{detail}; it expires at {expires_at}, so it will not start"),
        None => detail,
    };
    let expected_start = Some(job.status.due_at).filter(|_| expires.is_none());
    Explanation { waits_for: Some(waits_for), detail, expected_start }
}

fn due(job: &Job, whereabouts: Whereabouts, now: Timestamp) -> Explanation {
    let late = format_duration(now.since_ms(job.status.due_at));
    let (waits_for, detail) = match whereabouts {
        Whereabouts::Store { backlog: true } => {
            ("backlog", "its lane is full; it is read from the store once there is room".to_owned())
        }
        Whereabouts::Store { backlog: false } => ("scan", "it is about to be read from the store".to_owned()),
        Whereabouts::HeldBack(breaker) => return held_back(&breaker, &late),
        Whereabouts::Paced => (
            "pace",
            "it was missed, backfilled or replayed, and such jobs start at a limited rate".to_owned(),
        ),
        Whereabouts::Wheel => ("promotion", "it is about to enter its lane".to_owned()),
        Whereabouts::Lane { depth, reason: Some("no_worker") } => {
            ("worker", format!("no worker asks for jobs of {}; {depth} are ready", place(job)))
        }
        Whereabouts::Lane { depth, reason: Some("workers_busy") } => {
            ("workers_busy", format!("the workers of {} have no room; {depth} are ready", place(job)))
        }
        Whereabouts::Lane { depth, reason: Some("host_limit") } => {
            ("host_limit", format!("as many pushes as may be are under way to its host; {depth} are ready"))
        }
        Whereabouts::Lane { depth, reason: Some("host_rate") } => {
            ("host_rate", format!("as many pushes per second as may be begin to its host; {depth} are ready"))
        }
        Whereabouts::Lane { depth, reason: Some("tenant_limit") } => (
            "tenant_limit",
            format!("the tenant has as many attempts under way as it may; {depth} are ready in its lane"),
        ),
        Whereabouts::Lane { depth, reason: Some(limit) } => {
            (limit, format!("as many deliveries as may be are under way; {depth} are ready"))
        }
        Whereabouts::Lane { depth, reason: None } => {
            ("turn", format!("it waits for its turn among {depth} ready in {}", place(job)))
        }
        Whereabouts::Claiming => ("claim", "its start is being written to the store".to_owned()),
        Whereabouts::Delivering => ("delivery", "it has been started just now".to_owned()),
    };
    let (expiry, is_over) = match job.spec.expires_at {
        Some(expires_at) if expires_at <= now => {
            (format!("; it expired at {expires_at} and will be ended without a start"), true)
        }
        Some(expires_at) => (format!("; it expires at {expires_at} unless it has started by then"), false),
        None => (String::new(), false),
    };
    let expected_start = Some(now).filter(|_| starts_at_once(waits_for) && !is_over);
    let detail = format!("due for {late}: {detail}{expiry}");
    Explanation { waits_for: Some(waits_for), detail, expected_start }
}

/// Whether nothing is in the way of what a job waits for. Of anything else nobody knows when it ends.
fn starts_at_once(waits_for: &str) -> bool {
    matches!(waits_for, "scan" | "promotion" | "turn" | "claim" | "delivery")
}

fn held_back(breaker: &BreakerView, late: &str) -> Explanation {
    let BreakerView { host, since, failures, reason, next_probe_at, .. } = breaker;
    let probe = match next_probe_at {
        Some(at) => format!("one job is tried at {at} to see whether it works"),
        None => "one job is being tried to see whether it works".to_owned(),
    };
    let why = match breaker.state {
        BreakerState::Held => format!("{host} asked at {since} to be left alone ({reason})"),
        BreakerState::Closed | BreakerState::Open | BreakerState::HalfOpen => format!(
            "the circuit breaker of {host} is {} since {since}, after {failures} failures; the last: {reason}",
            breaker.state.as_str().replace('_', "-")
        ),
    };
    let detail =
        format!("due for {late}: {why}; {probe}. Until then it waits in the store, and no attempt is used");
    Explanation { waits_for: Some("breaker"), detail, expected_start: *next_probe_at }
}

fn place(job: &Job) -> String {
    match &job.spec.destination {
        Destination::Queue(queue) => format!("the queue {queue:?}"),
        Destination::Target(_) => "the push lane".to_owned(),
    }
}

fn running(job: &Job) -> Explanation {
    let detail = match &job.status.running {
        Some(running) => format!(
            "attempt {} runs on {:?} since {}; its lease holds until {}",
            job.status.attempt, running.worker, running.started_at, running.lease_until
        ),
        None => format!("attempt {} runs", job.status.attempt),
    };
    let started = job.status.running.as_ref().map(|running| running.started_at);
    Explanation { waits_for: Some("outcome"), detail, expected_start: started }
}

fn ended(job: &Job) -> Explanation {
    let mut detail = format!("it has ended as {}", job.status.state.as_str());
    if let Some(finished_at) = job.status.finished_at {
        detail.push_str(&format!(" at {finished_at}"));
    }
    if let Some(reason) = &job.status.reason {
        detail.push_str(": ");
        detail.push_str(reason);
    }
    Explanation { waits_for: None, detail, expected_start: None }
}
