//! Looking at jobs.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use tidewheel_api::wire::fault::Faults;
use tidewheel_api::wire::query::{self, Query, cursor_text};
use tidewheel_api::wire::write::{self, JsonWriter, View};
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_store::Error;

use crate::http::answer;
use crate::http::app::App;
use crate::http::caller::{Caller, JobPath, no_job};
use crate::http::problem::{Problem, refuse_faults, unreadable_job};
use crate::http::retention::Retention;
use crate::http::walk::{Plan, Walk};

/// A page ends early beyond this.
const PAGE_BYTES_MAX: usize = 8 * 1_024 * 1_024;
/// Records looked at for one page, before it is handed over as it is, with a cursor.
const PAGE_LOOKED_COUNT_MAX: usize = 20_000;
/// Jobs read at once at least where many of them may not match.
const PAGE_READ_COUNT_MIN: usize = 50;

/// `GET /v1/jobs/{id}`
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Response, Problem> {
    let job = find(&app, &caller.tenant, id).await?;
    Ok(answer::whole_job(&job, app.now()))
}

/// `GET /v1/jobs`
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), query::LIST)?;
    page(&app, &caller.tenant, query).await
}

/// The job, if it is there and the tenant's own.
pub(super) async fn find(app: &App, tenant: &Tenant, id: JobId) -> Result<Job, Problem> {
    let found = match app.engine.store().get(tenant, vec![id]).await {
        Err(error @ Error::Corrupt(_)) => return Err(unreadable_job(id, &error)),
        found => found?.into_iter().next().flatten(),
    };
    found.filter(|job| !Retention::of(app, tenant).hides(job)).ok_or_else(no_job)
}

/// Reads a query that may have these parameters.
pub(crate) fn read_query(text: Option<&str>, known: &[&str]) -> Result<Query, Problem> {
    let mut faults = Faults::default();
    let query = Query::read(text.unwrap_or_default(), known, &mut faults);
    refuse_faults(faults)?;
    Ok(query)
}

/// One page of what a query asks for.
pub(crate) async fn page(app: &App, tenant: &Tenant, query: Query) -> Result<Response, Problem> {
    let _turn = app.answers.turn().await;
    let now = app.now();
    let (filter, after, looked_max) = (query.filter, query.cursor, PAGE_LOOKED_COUNT_MAX);
    let plan = Plan { tenant, filter, after, now, looked_max };
    let mut walk = Walk::new(app, plan);
    let mut items = JsonWriter::with_capacity(4_096);
    let (mut count, mut stopped_at) = (0, None);
    while count < query.limit
        && stopped_at.is_none()
        && let Some(jobs) = walk.next((query.limit - count).max(PAGE_READ_COUNT_MIN)).await?
    {
        let read = jobs.len();
        for (index, job) in jobs.iter().enumerate() {
            write::job(&mut items, job, View { now, payload: query.payload });
            count += 1;
            let full = count == query.limit || items.len() > PAGE_BYTES_MAX;
            if full && index + 1 < read {
                stopped_at = Some(job.id);
            }
            if full {
                break;
            }
        }
        if items.len() > PAGE_BYTES_MAX {
            break;
        }
    }
    let next = stopped_at.or(walk.cursor());
    Ok(answer::list(items, next.map(cursor_text).as_deref()))
}
