//! Looking at schedules.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::fault::{Code, Faults};
use tidewheel_api::wire::schedule_query::{self, ScheduleQuery};
use tidewheel_api::wire::schedule_write::{self, ScheduleView};
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId, State as ScheduleState, preview};
use tidewheel_store::{SchedulePage, ScheduleQuery as StoreQuery};

use super::create::shown;
use crate::http::answer;
use crate::http::app::App;
use crate::http::caller::{Caller, SchedulePath, no_schedule};
use crate::http::problem::{Problem, refuse_faults};

/// A page ends early beyond this.
const PAGE_BYTES_MAX: usize = 8 * 1_024 * 1_024;
/// Reads of the store for one page.
const PAGE_READS_MAX: usize = 20;
/// Schedules read at once.
const READ_COUNT_MAX: usize = 200;

/// `GET /v1/schedules/{id}`
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
) -> Result<Response, Problem> {
    let schedule = find(&app, &caller.tenant, id).await?;
    Ok(shown(StatusCode::OK, &schedule, None))
}

/// `GET /v1/schedules`
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::LIST)?;
    let mut after = match &query.cursor {
        Some(cursor) => Some(cursor.parse::<ScheduleId>().map_err(|_| bad_cursor())?),
        None => None,
    };
    let view = ScheduleView { payload: query.payload, duplicate: None };
    let _turn = app.answers.turn().await;
    let mut items = JsonWriter::with_capacity(4_096);
    let mut count = 0;
    for _ in 0..PAGE_READS_MAX {
        let wanted = (query.limit - count).min(READ_COUNT_MAX);
        let page = read_page(&app, &caller.tenant, &query, after, wanted).await?;
        after = page.next;
        for (index, schedule) in page.schedules.iter().enumerate() {
            schedule_write::schedule(&mut items, schedule, view);
            count += 1;
            if items.len() > PAGE_BYTES_MAX {
                let is_last = index + 1 == page.schedules.len();
                after = if is_last { after } else { Some(schedule.id) };
                break;
            }
        }
        if after.is_none() || count >= query.limit || items.len() > PAGE_BYTES_MAX {
            break;
        }
    }
    Ok(answer::list(items, after.map(|id| id.to_string()).as_deref()))
}

/// `GET /v1/schedules/{id}/next`
pub(crate) async fn next(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::NEXT)?;
    let schedule = find(&app, &caller.tenant, id).await?;
    let calendar = calendar_of(&app, &schedule).await?;
    let now = app.now();
    let is_active = schedule.state == ScheduleState::Active;
    // One that is due, and about to start, is still the next one.
    let due = schedule.next.filter(|next| is_active && next.fire_at <= now);
    let left = if is_active { query.count - usize::from(due.is_some()) } else { 0 };
    let from = now.max(schedule.goes_on_after());
    let fires = preview(&schedule.definition, Some(id), calendar.as_ref(), from, left);
    let mut out = JsonWriter::with_capacity(128 * query.count + 64);
    out.object(|out| {
        out.key("fires").array(|out| {
            if let Some(due) = due {
                schedule_write::fire(out, due.fire_at, due.run_at, None);
            }
            for fire in fires {
                schedule_write::fire(out, fire.fire_at, fire.run_at, fire.note);
            }
        });
        out.key("state").text(schedule.state.as_str());
    });
    Ok(answer::json(StatusCode::OK, out))
}

/// The schedule, if it is there and the tenant's own.
pub(super) async fn find(app: &App, tenant: &Tenant, id: ScheduleId) -> Result<Schedule, Problem> {
    app.engine.store().schedules(tenant, vec![id]).await?.into_iter().next().flatten().ok_or_else(no_schedule)
}

/// The dates of the calendar a schedule names.
pub(super) async fn calendar_of(app: &App, schedule: &Schedule) -> Result<Option<Dates>, Problem> {
    match &schedule.definition.rule.exclude.calendar {
        Some(name) => Ok(app.engine.store().calendar(&schedule.tenant, name).await?),
        None => Ok(None),
    }
}

pub(crate) fn read_query(text: Option<&str>, known: &[&str]) -> Result<ScheduleQuery, Problem> {
    let mut faults = Faults::default();
    let query = ScheduleQuery::read(text.unwrap_or_default(), known, &mut faults);
    refuse_faults(faults)?;
    Ok(query)
}

pub(crate) fn bad_cursor() -> Problem {
    Problem::new(Code::InvalidCursor, "the query parameter \"cursor\": it is not one that a list handed out")
}

/// A name has one schedule at most, and leads straight to it.
async fn read_page(
    app: &App,
    tenant: &Tenant,
    query: &ScheduleQuery,
    after: Option<ScheduleId>,
    count_max: usize,
) -> Result<SchedulePage, Problem> {
    let store = app.engine.store();
    let asked = StoreQuery {
        tenant: tenant.clone(),
        states: query.states.clone(),
        kind: query.kind.clone(),
        calendar: query.calendar.clone(),
        after,
        count_max,
    };
    let Some(name) = &query.name else { return Ok(store.list_schedules(asked).await?) };
    let mut schedules = Vec::new();
    if let Some(id) = store.find_schedule(tenant, name).await?.filter(|_| after.is_none()) {
        let found = store.schedules(tenant, vec![id]).await?;
        schedules.extend(found.into_iter().flatten().filter(|schedule| asked.matches(schedule)));
    }
    Ok(SchedulePage { schedules, next: None })
}
