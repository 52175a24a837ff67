//! Looking at jobs.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::fault::Faults;
use tidewheel_api::wire::filter::{JobFilter, ShownState};
use tidewheel_api::wire::query::{self, Query, cursor_text};
use tidewheel_api::wire::write::{self, JsonWriter, View};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, State as JobState};
use tidewheel_core::names::Tenant;

use crate::http::answer;
use crate::http::app::App;
use crate::http::caller::{Caller, JobPath, no_job};
use crate::http::problem::{Problem, refuse_faults};
use crate::http::retention::Retention;
use crate::http::walk::{Plan, Walk};

/// A page ends early beyond this.
const PAGE_BYTES_MAX: usize = 8 * 1_024 * 1_024;
/// Records looked at for one page, before it is handed over as it is, with a cursor.
const PAGE_LOOKED_COUNT_MAX: usize = 20_000;
/// Jobs read at once at least where many of them may not match.
const PAGE_READ_COUNT_MIN: usize = 50;
/// Records looked at for one count, before it is given as incomplete.
const COUNT_LOOKED_COUNT_MAX: usize = 100_000;

/// `GET /v1/jobs/{id}`
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Response, Problem> {
    let job = find(&app, &caller.tenant, id).await?;
    Ok(answer::whole_job(&job, app.now()))
}

/// `GET /v1/jobs/{id}/attempts`
pub(crate) async fn attempts(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Response, Problem> {
    let job = find(&app, &caller.tenant, id).await?;
    let mut out = JsonWriter::with_capacity(1_024);
    out.object(|out| {
        out.key("items");
        write::attempts(out, &job);
        out.key("next_cursor").null();
    });
    Ok(answer::json(StatusCode::OK, out))
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

/// `GET /v1/jobs/count`
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let filter = read_query(text.as_deref(), query::FILTER)?.filter;
    if filter.is_only_states() && !filter.states.contains(&ShownState::Ready) {
        return count_states(&app, &caller.tenant, &filter).await;
    }
    let (tenant, looked_max) = (&caller.tenant, COUNT_LOOKED_COUNT_MAX);
    let plan = Plan { tenant, filter, after: None, now: app.now(), looked_max };
    let mut walk = Walk::new(&app, plan);
    let mut found = 0;
    while let Some(jobs) = walk.next(usize::MAX).await? {
        found += jobs.len();
    }
    let mut out = JsonWriter::with_capacity(64);
    out.object(|out| {
        out.key("count").count(found);
        out.key("complete").boolean(walk.cursor().is_none());
    });
    Ok(answer::json(StatusCode::OK, out))
}

/// The job, if it is there and the tenant's own.
pub(super) async fn find(app: &App, tenant: &Tenant, id: JobId) -> Result<Job, Problem> {
    let found = app.engine.store().get(tenant, vec![id]).await?.into_iter().next().flatten();
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
    let items = items.into_bytes();
    let mut out = JsonWriter::with_capacity(items.len() + 64);
    out.object(|out| {
        out.key("items").array(|out| {
            if !items.is_empty() {
                out.raw(&items);
            }
        });
        out.key("next_cursor").text_or_null(next.map(cursor_text).as_deref());
    });
    Ok(answer::json(StatusCode::OK, out))
}

async fn count_states(app: &App, tenant: &Tenant, filter: &JobFilter) -> Result<Response, Problem> {
    let counts = app.engine.store().counts(Some(tenant)).await?;
    let wanted =
        |state: JobState| filter.states.is_empty() || filter.states.contains(&ShownState::Stored(state));
    let states = || JobState::ALL.into_iter().filter(|state| wanted(*state));
    let total: u64 = states().map(|state| counts.of(state)).sum();
    let mut out = JsonWriter::with_capacity(256);
    out.object(|out| {
        out.key("count").number(total);
        out.key("complete").boolean(true);
        out.key("counts").object(|out| {
            for state in states() {
                out.key(state.as_str()).number(counts.of(state));
            }
        });
        out.key("total").number(total);
    });
    Ok(answer::json(StatusCode::OK, out))
}
