//! Job types: what is registered for them.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::header::ETAG;
use http::{HeaderMap, HeaderValue, StatusCode};
use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_api::wire::schedule_query;
use tidewheel_api::wire::type_request::TypeRequest;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::limits::TENANT_TYPES_COUNT_MAX;
use tidewheel_core::names::{Tenant, check_type};
use tidewheel_store::IfVersion;

use super::answer;
use super::app::App;
use super::body::Text;
use super::call_key::{self, CallKey};
use super::caller::{Caller, NamePath};
use super::jobs::change::whole;
use super::problem::{Problem, refuse_faults};
use super::registered::note;
use super::schedules::read::read_query;
use super::schedules::version::{Wanted, only_new};
use crate::directory::{JobType, TypeRefusal};
use crate::schema::Schema;

/// `GET /v1/types`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::PAGE)?;
    let book = app.access.directory().types(&caller.tenant).unwrap_or_default();
    let after = query.cursor.as_deref();
    let mut left = book.iter().filter(|(name, _)| after.is_none_or(|after| &***name > after));
    let mut items = JsonWriter::with_capacity(1_024);
    let mut last = None;
    for (name, job_type) in left.by_ref().take(query.limit) {
        job_type.definition.write(&mut items, name);
        last = Some(&**name);
    }
    let next = left.next().and(last);
    Ok(answer::list(items, next))
}

/// `GET /v1/types/{type}`
pub(super) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamePath(name): NamePath,
) -> Result<Response, Problem> {
    let found = find(&app, &caller.tenant, &name).ok_or_else(no_type)?;
    Ok(shown(StatusCode::OK, &name, &found))
}

/// `PUT /v1/types/{type}`
pub(super) async fn put(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamePath(name): NamePath,
    headers: HeaderMap,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    check_type(&name).map_err(|fault| Problem::new(Code::InvalidValue, fault.to_string()))?;
    caller.identity.check_type(&name)?;
    let request = whole(|faults| TypeRequest::read(&body.text, &app.targets, faults))?;
    if request.kind.as_ref().is_some_and(|kind| *kind != name) {
        return Err(Problem::new(Code::InvalidValue, "`type` is another than that of the address"));
    }
    check_schema(&request)?;
    let claim = call.claim(app.now(), &body.text)?;
    if call_key::is_repeat(&app, &caller.tenant, claim.as_ref()).await? {
        // One that was forgotten since is not registered again.
        let found = find(&app, &caller.tenant, &name).ok_or_else(no_type)?;
        let is_new = call_key::has_made(&app, &caller.tenant, claim.as_ref()).await?;
        return Ok(shown(put_status(is_new), &name, &found));
    }
    let current = find(&app, &caller.tenant, &name);
    let if_version = wanted(&headers, current.as_deref())?;
    let stored = app.access.directory().put_type(&caller.tenant, &name, &request, if_version).await?;
    let is_new = current.is_none();
    if is_new {
        call_key::note_made(&app, &caller.tenant, claim.as_ref()).await?;
    }
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    Ok(shown(put_status(is_new), &name, &stored))
}

fn put_status(is_new: bool) -> StatusCode {
    if is_new { StatusCode::CREATED } else { StatusCode::OK }
}

/// `DELETE /v1/types/{type}`
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamePath(name): NamePath,
    headers: HeaderMap,
    call: CallKey,
) -> Result<Response, Problem> {
    app.check_open()?;
    caller.identity.check_type(&name)?;
    let claim = call.claim(app.now(), "")?;
    if call_key::is_repeat(&app, &caller.tenant, claim.as_ref()).await? {
        return Ok(answer::no_content());
    }
    let current = find(&app, &caller.tenant, &name).ok_or_else(no_type)?;
    let if_version = wanted(&headers, Some(&current))?;
    app.access.directory().delete_type(&caller.tenant, &name, if_version).await?;
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    Ok(answer::no_content())
}

fn find(app: &App, tenant: &Tenant, name: &str) -> Option<Arc<JobType>> {
    app.access.directory().types(tenant)?.get(name).cloned()
}

fn no_type() -> Problem {
    Problem::new(Code::TypeNotFound, "nothing is registered for the type")
}

/// Refuses a schema that payloads cannot be checked with.
fn check_schema(request: &TypeRequest) -> Result<(), Problem> {
    let Some(text) = &request.schema else { return Ok(()) };
    let mut faults = Faults::default();
    if let Err(flaw) = Schema::compile(text) {
        note(Code::InvalidSchema, &At::ROOT.field("schema"), &flaw.path, &flaw.detail, &mut faults);
    }
    refuse_faults(faults)
}

/// Which version the caller means to replace.
fn wanted(headers: &HeaderMap, current: Option<&JobType>) -> Result<IfVersion, Problem> {
    if only_new(headers) {
        return Ok(IfVersion::Absent);
    }
    let current = current.map(|current| current.version);
    let version = match Wanted::of(headers) {
        Wanted::Any => return Ok(IfVersion::Any),
        Wanted::Existing => current,
        Wanted::OneOf(versions) => current.filter(|current| versions.contains(current)),
    };
    version.map(IfVersion::Is).ok_or_else(stale)
}

fn stale() -> Problem {
    Problem::new(Code::StaleVersion, "the type has another version by now, or none; read it again")
}

fn shown(status: StatusCode, name: &str, job_type: &JobType) -> Response {
    let mut out = JsonWriter::with_capacity(1_024);
    job_type.definition.write(&mut out, name);
    let mut response = answer::json(status, out);
    if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", job_type.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

impl From<TypeRefusal> for Problem {
    fn from(refusal: TypeRefusal) -> Self {
        match refusal {
            TypeRefusal::TooMany => {
                let detail = format!("the tenant has {TENANT_TYPES_COUNT_MAX} types, as many as it may");
                Self::new(Code::LimitReached, detail)
            }
            TypeRefusal::Stale => stale(),
            TypeRefusal::Store(error) => error.into(),
        }
    }
}
