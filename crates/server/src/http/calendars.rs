//! Calendars: named sets of dates that schedules do not fire on.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::schedule_query;
use tidewheel_api::wire::schedule_request::CalendarRequest;
use tidewheel_api::wire::schedule_write;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, ScheduleId, check_name};
use tidewheel_store::{Error, ScheduleCommand, ScheduleOrder, SchedulePage, ScheduleQuery};

use super::app::App;
use super::body::Text;
use super::call_key::{CallKey, done_before};
use super::caller::{Caller, NamePath};
use super::jobs::change::whole;
use super::problem::Problem;
use super::schedules::read::read_query;
use super::to_the_end::to_the_end;
use super::{answer, call_key};
use crate::engine::Engine;

/// Schedules told of new dates in one write.
const PAGE_COUNT: usize = 500;

/// `GET /v1/calendars`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::PAGE)?;
    let names = app.engine.store().calendars(&caller.tenant).await?;
    let after = query.cursor.as_deref();
    let mut left = names.iter().filter(|name| after.is_none_or(|after| &***name > after));
    let mut items = JsonWriter::with_capacity(1_024);
    let mut last = None;
    for name in left.by_ref().take(query.limit) {
        items.object(|out| out.key("name").text(name));
        last = Some(name);
    }
    let next = left.next().and(last);
    Ok(answer::list(items, next.map(|name| &**name)))
}

/// `GET /v1/calendars/{name}`
pub(super) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamePath(name): NamePath,
) -> Result<Response, Problem> {
    let dates = find(&app, &caller.tenant, &name).await?;
    Ok(shown(StatusCode::OK, &name, &dates))
}

/// `PUT /v1/calendars/{name}`
pub(super) async fn put(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamePath(name): NamePath,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    check_name(&name).map_err(|fault| Problem::new(Code::InvalidValue, fault.to_string()))?;
    let CalendarRequest { dates } = whole(|faults| CalendarRequest::read(&body.text, faults))?;
    let claim = call.claim(app.now(), &body.text)?;
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    let before = app.engine.store().calendar(&caller.tenant, &name).await?;
    // Noted before it is made: a call that fails in between is sent again, and is to say that it has made it.
    let is_new = before.is_none() || call_key::has_made(&app, &caller.tenant, claim.as_ref()).await?;
    if before.is_none() {
        call_key::note_made(&app, &caller.tenant, claim.as_ref()).await?;
    }
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let response = shown(status, &name, &dates);
    let engine = app.engine.clone();
    to_the_end(async move { replace(&engine, caller.tenant, Arc::from(name), (before, dates)).await })
        .await??;
    Ok(response)
}

/// `DELETE /v1/calendars/{name}`
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamePath(name): NamePath,
    call: CallKey,
) -> Result<Response, Problem> {
    app.check_open()?;
    let claim = call.claim(app.now(), "")?;
    if let Err(problem) = find(&app, &caller.tenant, &name).await {
        let is_repeat = done_before(&app, &caller.tenant, claim.as_ref()).await?.is_some();
        return if is_repeat { Ok(answer::no_content()) } else { Err(problem) };
    }
    let shared: Arc<str> = Arc::from(name.as_str());
    let mut after = None;
    loop {
        let page = users(&app.engine, &caller.tenant, &shared, after, 1).await?;
        if let Some(user) = page.schedules.first() {
            let detail = format!("the schedule {} names the calendar, and perhaps others do", user.id);
            return Err(Problem::new(Code::CalendarInUse, detail));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    app.engine.store().put_calendar(&caller.tenant, &name, None).await?;
    Ok(answer::no_content())
}

/// Stores the dates, then tells the schedules that name the calendar.
async fn replace(
    engine: &Engine,
    tenant: Tenant,
    name: Arc<str>,
    (before, dates): (Option<Dates>, Dates),
) -> Result<(), Error> {
    engine.store().put_calendar(&tenant, &name, Some(dates)).await?;
    let before = before.map(Arc::new);
    let mut after = None;
    loop {
        let page = users(engine, &tenant, &name, after, PAGE_COUNT).await?;
        let orders: Vec<ScheduleOrder> = page
            .schedules
            .iter()
            .map(|schedule| ScheduleOrder {
                tenant: tenant.clone(),
                id: schedule.id,
                if_version: None,
                command: ScheduleCommand::Redate { name: Arc::clone(&name), before: before.clone() },
                key: None,
            })
            .collect();
        if !orders.is_empty() {
            engine.edit_schedules(orders).await?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Schedules that name a calendar.
async fn users(
    engine: &Engine,
    tenant: &Tenant,
    name: &Arc<str>,
    after: Option<ScheduleId>,
    count_max: usize,
) -> Result<SchedulePage, Error> {
    let query = ScheduleQuery {
        tenant: tenant.clone(),
        states: Vec::new(),
        kind: None,
        calendar: Some(Arc::clone(name)),
        after,
        count_max,
    };
    engine.store().list_schedules(query).await
}

async fn find(app: &App, tenant: &Tenant, name: &str) -> Result<Dates, Problem> {
    let missing = || Problem::new(Code::CalendarNotFound, "there is no such calendar");
    app.engine.store().calendar(tenant, name).await?.ok_or_else(missing)
}

fn shown(status: StatusCode, name: &str, dates: &Dates) -> Response {
    let mut out = JsonWriter::with_capacity(64 + 16 * dates.as_slice().len());
    out.object(|out| {
        out.key("name").text(name);
        out.key("dates");
        schedule_write::dates(out, dates);
    });
    answer::json(status, out)
}
