//! A schedule's ledger: one row for each nominal instant and each job made by hand, newest first.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use tidewheel_api::wire::schedule_query;
use tidewheel_api::wire::schedule_write::{self, job_of};
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::schedule::Schedule;

use super::ledger::{Cursor, Row, Walk};
use super::read::{calendar_of, find, read_query};
use crate::http::answer;
use crate::http::app::App;
use crate::http::caller::{Caller, SchedulePath};
use crate::http::problem::Problem;
use crate::http::retention::Retention;
use crate::http::scope::look_up;

/// Jobs read at once: with the largest payloads, some 13 MB.
const READ_COUNT_MAX: usize = 200;

/// `GET /v1/schedules/{id}/firings`
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::PAGE)?;
    let cursor = query.cursor.map(|cursor| cursor.parse::<Cursor>()).transpose()?;
    let schedule = find(&app, &caller.tenant, id).await?;
    let calendar = calendar_of(&app, &schedule).await?;
    let _turn = app.answers.turn().await;
    let walk = Walk { app: &app, schedule: &schedule, calendar, limit: query.limit };
    let (rows, next) = walk.page(cursor.unwrap_or_default()).await?;
    let mut items = JsonWriter::with_capacity(256 * rows.len());
    for some in rows.chunks(READ_COUNT_MAX) {
        write(&mut items, &app, &schedule, some).await?;
    }
    Ok(answer::list(items, next.map(|next| next.to_string()).as_deref()))
}

/// Writes rows, each with what became of its job.
async fn write(items: &mut JsonWriter, app: &App, schedule: &Schedule, rows: &[Row]) -> Result<(), Problem> {
    let tenant = &schedule.tenant;
    let ids: Vec<JobId> = rows.iter().filter_map(|row| job_of(&row.entry)).collect();
    // A row whose job cannot be read says no more than one whose job is gone.
    let found = look_up(&**app.engine.store(), tenant, &ids).await?.into_iter().flatten();
    let retention = Retention::of(app, tenant);
    let seen = found.flatten().filter(|job| !retention.hides(job));
    let jobs: BTreeMap<JobId, Job> = seen.map(|job| (job.id, job)).collect();
    let now = app.now();
    for row in rows {
        let job = job_of(&row.entry).and_then(|id| jobs.get(&id));
        schedule_write::firing(items, schedule, (row.at, &row.entry), job, now);
    }
    Ok(())
}
