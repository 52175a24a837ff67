//! Making schedules.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use tidewheel_api::wire::fault::{At, Code, Fault, Faults};
use tidewheel_api::wire::schedule_request::{ScheduleReader, ScheduleRequest};
use tidewheel_api::wire::schedule_write::{self, ScheduleView};
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::limits::IDEMPOTENCY_WINDOW_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{NewSchedule, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Edited, IdempotencyClaim, ScheduleCommand, ScheduleOrder, ScheduleRefusal};

use super::check::Checker;
use super::room::Room;
use super::version::tagged;
use crate::http::answer;
use crate::http::app::{App, Targets};
use crate::http::body::Text;
use crate::http::call_key::conflict;
use crate::http::caller::Caller;
use crate::http::idempotency::{choose_key, digest, header_key};
use crate::http::problem::{Problem, refuse_faults};
use crate::http::registered::Registered;
use crate::http::repeats::is_late_repeat;
use crate::http::to_the_end::to_the_end;

/// About what one schedule takes without its payload.
const SCHEDULE_BYTES: usize = 1_024;

/// `POST /v1/schedules`
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    let now = app.now();
    let header_key = header_key(&headers)?;
    let mut faults = Faults::default();
    let mut request = reader(&app, now).read(&body.text, &At::ROOT, &mut faults);
    let body_key = request.as_ref().and_then(|request| request.definition.idempotency_key.as_ref());
    let key = choose_key(body_key, header_key.as_ref(), &mut faults);
    let claim = request.as_ref().and_then(|request| creation_claim(key, request, now));
    if let Some(request) = &mut request {
        Registered::of(&app, &caller).fill_schedule(request);
        let mut checker = Checker::new(&app, &caller, now);
        checker.check(request, None, &At::ROOT, &mut faults).await?;
    }
    // One that repeats another is answered as such even if its time is over by now.
    if !is_late_repeat(&app, &caller.tenant, claim.as_ref(), &faults).await? {
        refuse_faults(faults)?;
    }
    let request =
        request.ok_or_else(|| Problem::new(Code::Internal, "a schedule was refused without a reason"))?;
    let room = Room::for_one(&app, &caller.tenant, claim.as_ref()).await?;
    let edited = make(&app, &caller.tenant, request, claim, room).await??;
    Ok(made(&edited))
}

pub(super) fn reader(app: &App, now: Timestamp) -> ScheduleReader<'_, Targets> {
    ScheduleReader { now, rules: &app.targets, zones: app.engine.zones() }
}

/// The order that makes a schedule.
pub(super) fn creation(
    app: &App,
    tenant: &Tenant,
    request: ScheduleRequest,
    key: Option<IdempotencyClaim>,
) -> ScheduleOrder {
    let ScheduleRequest { name, paused, definition, left_out: _, excludes_by_object: _ } = request;
    let id = ScheduleId::from_bytes(app.engine.random().tail().to_be_bytes());
    let paused = paused.unwrap_or(false);
    let new = Box::new(NewSchedule { id, tenant: tenant.clone(), name, definition, paused });
    let command = ScheduleCommand::Create { new, fresh: true };
    ScheduleOrder { tenant: tenant.clone(), id, if_version: None, command, key }
}

/// The claim of a key for a schedule that is to be made.
pub(crate) fn creation_claim(
    key: Option<Arc<str>>,
    request: &ScheduleRequest,
    now: Timestamp,
) -> Option<IdempotencyClaim> {
    let until = now.plus_ms(IDEMPOTENCY_WINDOW_MS);
    key.map(|key| IdempotencyClaim { key, fingerprint: fingerprint(request), until })
}

/// Makes a schedule that was checked.
pub(crate) async fn make(
    app: &App,
    tenant: &Tenant,
    request: ScheduleRequest,
    key: Option<IdempotencyClaim>,
    room: Room,
) -> Result<Result<Edited, ScheduleRefusal>, Problem> {
    keeping(room, app, creation(app, tenant, request, key)).await
}

/// Gives one order.
pub(super) async fn give(
    app: &App,
    order: ScheduleOrder,
) -> Result<Result<Edited, ScheduleRefusal>, Problem> {
    keeping((), app, order).await
}

/// Gives one order, and keeps something until the store has answered: the caller may be gone long before.
pub(super) async fn keeping<T: Send + 'static>(
    kept: T,
    app: &App,
    order: ScheduleOrder,
) -> Result<Result<Edited, ScheduleRefusal>, Problem> {
    let engine = app.engine.clone();
    let edited = async move {
        let results = engine.edit_schedules(vec![order]).await;
        drop(kept);
        results
    };
    let results = to_the_end(edited).await??;
    let no_answer = || Problem::new(Code::Internal, "the store did not answer for the schedule");
    results.into_iter().next().ok_or_else(no_answer)
}

/// A digest of what was asked for, to tell a repeat from another request under the same key.
pub(super) fn fingerprint(request: &ScheduleRequest) -> [u8; 16] {
    let mut out = JsonWriter::with_capacity(SCHEDULE_BYTES);
    out.object(|out| {
        schedule_write::definition(out, request.name.as_ref(), &request.definition);
        out.key("paused").boolean(request.paused.unwrap_or(false));
    });
    digest(&[&out.into_bytes(), &request.definition.template.payload])
}

/// The answer to a creation, which may have been a repeat.
pub(super) fn made(edited: &Edited) -> Response {
    let schedule = &edited.schedule;
    let status = if edited.changed { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = shown(status, schedule, Some(!edited.changed));
    if edited.changed
        && let Ok(location) = HeaderValue::try_from(format!("/v1/schedules/{}", schedule.id))
    {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// A schedule with its payload.
pub(super) fn shown(status: StatusCode, schedule: &Schedule, duplicate: Option<bool>) -> Response {
    let bytes = SCHEDULE_BYTES + schedule.definition.template.payload.len();
    let mut out = JsonWriter::with_capacity(bytes);
    schedule_write::schedule(&mut out, schedule, ScheduleView { payload: true, duplicate });
    tagged(answer::json(status, out), schedule)
}

impl From<ScheduleRefusal> for Problem {
    fn from(refusal: ScheduleRefusal) -> Self {
        let (code, pointer) = match &refusal {
            ScheduleRefusal::KeyConflict(used_for) => return conflict(*used_for),
            ScheduleRefusal::NotFound | ScheduleRefusal::Gone => (Code::ScheduleNotFound, None),
            ScheduleRefusal::NameTaken(_) => (Code::NameTaken, Some("/name")),
            ScheduleRefusal::StaleVersion { .. } => (Code::StaleVersion, None),
            ScheduleRefusal::NoCalendar(_) => (Code::UnknownCalendar, Some("/exclude")),
            ScheduleRefusal::Unreadable(_) => (Code::Internal, None),
        };
        let detail = refusal.to_string();
        let errors =
            pointer.map(|pointer| Fault { code, pointer: pointer.to_owned(), detail: detail.clone() });
        Self::new(code, detail).with_errors(errors.into_iter().collect())
    }
}
