//! Tenants: their weight and limits.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, RawQuery, State};
use axum::response::Response;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_api::wire::schedule_query;
use tidewheel_api::wire::tenant_request::TenantRequest;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::format_duration;
use tidewheel_store::IfVersion;

use super::answer;
use super::app::App;
use super::body::Text;
use super::call_key::{self, CallKey};
use super::caller::Caller;
use super::jobs::change::whole;
use super::problem::{Problem, refuse_faults};
use super::schedules::read::read_query;
use crate::directory::{TenantSettings, TenantShown};

/// The tenant named in the path, if the caller may know of it.
pub(super) struct TenantPath(pub(super) Tenant);

impl FromRequestParts<Arc<App>> for TenantPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        // Some addresses have more parts than this one.
        let Path(names) =
            Path::<Vec<(String, String)>>::from_request_parts(parts, app).await.map_err(|_| no_tenant())?;
        let name = names.iter().find(|(key, _)| key == "id").map(|(_, name)| name.as_str());
        let tenant = Tenant::new(name.unwrap_or_default()).map_err(|_| no_tenant())?;
        if tenant == caller.tenant || caller.identity.is_admin() {
            Ok(Self(tenant))
        } else {
            Err(no_tenant())
        }
    }
}

fn no_tenant() -> Problem {
    Problem::new(Code::TenantNotFound, "there is no such tenant")
}

/// `GET /v1/tenants`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::PAGE)?;
    let is_admin = caller.identity.is_admin();
    let mut known = app.access.directory().tenants();
    known.insert(caller.tenant.clone());
    let after = query.cursor.as_deref();
    let mut left = known
        .iter()
        .filter(|tenant| is_admin || **tenant == caller.tenant)
        .filter(|tenant| after.is_none_or(|after| tenant.as_str() > after));
    let mut items = JsonWriter::with_capacity(1_024);
    let mut last = None;
    for tenant in left.by_ref().take(query.limit) {
        write(&mut items, tenant, &app.access.directory().tenant(tenant));
        last = Some(tenant);
    }
    let next = left.next().and(last);
    Ok(answer::list(items, next.map(Tenant::as_str)))
}

/// `GET /v1/tenants/{id}`
pub(super) async fn one(
    State(app): State<Arc<App>>,
    TenantPath(tenant): TenantPath,
) -> Result<Response, Problem> {
    Ok(shown(&tenant, &app.access.directory().tenant(&tenant)))
}

/// `PUT /v1/tenants/{id}`
pub(super) async fn put(
    State(app): State<Arc<App>>,
    TenantPath(tenant): TenantPath,
    caller: Caller,
    headers: HeaderMap,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    let request = whole(|faults| TenantRequest::read(&body.text, faults))?;
    if request.id.as_ref().is_some_and(|id| id != tenant.as_str()) {
        return Err(Problem::new(Code::InvalidValue, "`id` is another than that of the address"));
    }
    check_retention(&app, request.retention_ms)?;
    check_sub_shards(&app, request.sub_shards)?;
    let claim = call.claim(app.now(), &body.text)?;
    if call_key::is_repeat(&app, &caller.tenant, claim.as_ref()).await? {
        return Ok(shown(&tenant, &app.access.directory().tenant(&tenant)));
    }
    let settings = settings(&request);
    match app.access.directory().put_tenant(&tenant, &settings, wanted(&headers)?).await? {
        Ok(stored) => {
            call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
            Ok(shown(&tenant, &stored))
        }
        Err(stale) => {
            let version = stale.version.unwrap_or(0);
            let detail = format!("the tenant's settings have version {version} by now; read them again");
            Err(Problem::new(Code::StaleVersion, detail))
        }
    }
}

/// A tenant's history cannot be kept for longer than the server keeps any.
fn check_retention(app: &App, retention_ms: Option<i64>) -> Result<(), Problem> {
    let (kept_ms, mut faults) = (app.limits.history_ms, Faults::default());
    if let Some(asked_ms) = retention_ms.filter(|asked_ms| *asked_ms > kept_ms) {
        let [asked, kept] = [asked_ms, kept_ms].map(format_duration);
        let detail =
            format!("{asked} is longer than the server keeps finished jobs: {kept} (`serve --history`)");
        faults.add(Code::InvalidValue, &At::ROOT.field("limits").field("retention"), detail);
    }
    refuse_faults(faults)
}

/// A tenant cannot be spread over more shards than there are.
fn check_sub_shards(app: &App, asked: u8) -> Result<(), Problem> {
    let (shards, mut faults) = (app.engine.store().layout().shards, Faults::default());
    if u16::from(asked) > shards {
        let detail = format!("{asked} is more than the store has shards: {shards}");
        faults.add(Code::InvalidValue, &At::ROOT.field("sub_shards"), detail);
    }
    refuse_faults(faults)
}

fn settings(request: &TenantRequest) -> TenantSettings {
    TenantSettings {
        weight: request.weight,
        submit_per_s: request.submit_rate,
        submit_burst: request.submit_burst,
        waiting_count_max: request.waiting.map(u64::from),
        running_count_max: request.concurrency,
        queue_running_count_max: request.queue_concurrency,
        starts_per_s: request.rate_cap,
        schedules_count_max: request.schedules.map(u64::from),
        interval_ms_min: request.min_interval_ms,
        payload_bytes_max: request.payload_bytes,
        retention_ms: request.retention_ms,
        sub_shards: request.sub_shards,
        ..TenantSettings::default()
    }
}

/// Which version the caller means to replace.
fn wanted(headers: &HeaderMap) -> Result<IfVersion, Problem> {
    if headers.get(IF_NONE_MATCH).is_some_and(|value| value == "*") {
        return Ok(IfVersion::Absent);
    }
    let Some(value) = headers.get(IF_MATCH) else { return Ok(IfVersion::Any) };
    let text = value.to_str().unwrap_or_default().trim();
    match text.trim_matches('"').parse() {
        Ok(0) => Ok(IfVersion::Absent),
        Ok(version) => Ok(IfVersion::Is(version)),
        Err(_) => Err(Problem::new(Code::StaleVersion, "`If-Match` is no version the settings ever had")),
    }
}

fn shown(tenant: &Tenant, shown: &TenantShown) -> Response {
    let mut out = JsonWriter::with_capacity(512);
    write(&mut out, tenant, shown);
    let mut response = answer::json(StatusCode::OK, out);
    if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", shown.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn write(out: &mut JsonWriter, tenant: &Tenant, shown: &TenantShown) {
    let settings = &shown.settings;
    let limit = |out: &mut JsonWriter, value: Option<u64>| match value {
        Some(value) => out.number(value),
        None => out.null(),
    };
    out.object(|out| {
        out.key("id").text(tenant.as_str());
        out.key("weight").number(settings.weight);
        out.key("sub_shards").number(settings.sub_shards);
        out.key("limits").object(|out| {
            limit(out.key("submit_rate"), settings.submit_per_s.map(u64::from));
            limit(out.key("submit_burst"), settings.submit_burst.map(u64::from));
            limit(out.key("waiting"), settings.waiting_count_max);
            limit(out.key("concurrency"), settings.running_count_max.map(u64::from));
            limit(out.key("queue_concurrency"), settings.queue_running_count_max.map(u64::from));
            limit(out.key("rate_cap"), settings.starts_per_s.map(u64::from));
            limit(out.key("schedules"), settings.schedules_count_max);
            out.key("min_interval").text_or_null(settings.interval_ms_min.map(format_duration).as_deref());
            limit(out.key("payload_bytes"), settings.payload_bytes_max.map(u64::from));
            out.key("retention").text_or_null(settings.retention_ms.map(format_duration).as_deref());
        });
    });
}
