//! Making up for a stretch of instants by hand.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::schedule_request::{BACKFILL_COUNT_MAX, BackfillRequest};
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::job::Job;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId, backfill_job, next_nominal};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{ScheduleCommand, ScheduleOrder};

use super::create::give;
use super::read::{calendar_of, find};
use crate::http::admission::{Asked, admit};
use crate::http::answer;
use crate::http::app::App;
use crate::http::body::Text;
use crate::http::call_key::{self, CallKey};
use crate::http::caller::{Caller, SchedulePath};
use crate::http::jobs::change::whole;
use crate::http::problem::Problem;
use crate::http::repeats::is_by_limit;
use crate::http::scope::{Act, Scope};

/// Jobs stored at once.
const STEP_COUNT: usize = 500;

/// `POST /v1/schedules/{id}/backfill`
pub(crate) async fn backfill(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    let now = app.now();
    let request = whole(|faults| BackfillRequest::read(&body.text, now, faults))?;
    let schedule = find(&app, &caller.tenant, id).await?;
    Scope::of(&app, &caller, Act::Run).check_template(&schedule.definition.template)?;
    let claim = call.claim(now, &body.text)?;
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    let calendar = calendar_of(&app, &schedule).await?;
    let mut stretch = Stretch { schedule: &schedule, calendar, request, now, count: 0, next: None };
    stretch.next = stretch.after(request.from.plus_ms(-1));
    let (mut stored, mut last_run_at) = (0, None);
    while stretch.count < BACKFILL_COUNT_MAX {
        let before = (stretch.count, stretch.next);
        let jobs = stretch.step();
        let Some(last_at) = jobs.last().map(|last| last.status.due_at) else { break };
        let asked = Asked { count: jobs.len(), least: schedule.definition.template.priority };
        let admitted = match admit(&app, &caller.tenant, asked).await {
            Ok(admitted) => Some(admitted),
            Err(problem) if is_by_limit(&problem) && are_there(&app, &caller, &jobs).await? => None,
            // What was stored is; the caller is told where to go on.
            Err(_) if before.0 > 0 => {
                (stretch.count, stretch.next) = before;
                break;
            }
            Err(problem) => return Err(problem),
        };
        let count = jobs.len();
        let new = store(&app, &caller, id, jobs).await?;
        // Jobs that were there already run when they were to run.
        last_run_at = if new > 0 { Some(last_at) } else { last_run_at };
        if let Some(admitted) = admitted {
            admitted.give_back(count - new.min(count));
        }
        stored += new;
    }
    let mut out = JsonWriter::with_capacity(256);
    out.object(|out| {
        out.key("count").count(stored);
        out.key("duplicates").count(stretch.count - stored);
        out.key("last_run_at").time(last_run_at);
        out.key("next_from").time(stretch.next);
    });
    Ok(answer::json(StatusCode::OK, out))
}

/// Whether all of these were made before: asked for again, they are not made again.
async fn are_there(app: &App, caller: &Caller, jobs: &[Job]) -> Result<bool, Problem> {
    let ids = jobs.iter().map(|job| job.id).collect();
    Ok(app.engine.store().get(&caller.tenant, ids).await?.iter().all(Option::is_some))
}

async fn store(app: &App, caller: &Caller, id: ScheduleId, jobs: Vec<Job>) -> Result<usize, Problem> {
    let command = ScheduleCommand::Backfill(jobs);
    let order = ScheduleOrder { tenant: caller.tenant.clone(), id, if_version: None, command, key: None };
    Ok(give(app, order).await??.jobs.len())
}

/// The instants to make up for.
struct Stretch<'a> {
    schedule: &'a Schedule,
    calendar: Option<Dates>,
    request: BackfillRequest,
    now: Timestamp,
    /// Instants dealt with.
    count: usize,
    /// The first that is not.
    next: Option<Timestamp>,
}

impl Stretch<'_> {
    fn after(&self, at: Timestamp) -> Option<Timestamp> {
        let found = next_nominal(&self.schedule.definition.rule, self.calendar.as_ref(), at)?;
        Some(found.fire_at).filter(|fire_at| *fire_at <= self.request.to)
    }

    /// Jobs for the next few instants; none at the end.
    fn step(&mut self) -> Vec<Job> {
        let mut jobs = Vec::new();
        while jobs.len() < STEP_COUNT
            && let Some(fire_at) = self.next
        {
            // Set for its own instant and moved from there: asked for again, it is the same job.
            let (mut job, _) = backfill_job(self.schedule, fire_at, fire_at, self.now);
            job.status.due_at = self.request.start_of(self.count, self.now);
            jobs.push(job);
            self.count += 1;
            self.next = self.after(fire_at);
        }
        jobs
    }
}
