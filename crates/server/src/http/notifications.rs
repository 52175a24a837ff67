//! Where a tenant is told of dead letters, missed runs, failing targets and lag.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::notification_request::NotificationRequest;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::time::format_duration;

use super::answer;
use super::app::App;
use super::body::Text;
use super::call_key::{self, CallKey};
use super::caller::Caller;
use super::jobs::change::whole;
use super::problem::Problem;
use super::tenants::TenantPath;
use crate::directory::{Event, NotificationSettings};

/// `GET /v1/tenants/{id}/notifications`
pub(super) async fn one(
    State(app): State<Arc<App>>,
    TenantPath(tenant): TenantPath,
) -> Result<Response, Problem> {
    Ok(shown(app.access.directory().notifications(&tenant).as_deref()))
}

/// `PUT /v1/tenants/{id}/notifications`
pub(super) async fn put(
    State(app): State<Arc<App>>,
    TenantPath(tenant): TenantPath,
    caller: Caller,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    let request = whole(|faults| NotificationRequest::read(&body.text, &app.targets, faults))?;
    if request.url.is_some() {
        caller.identity.check_push()?;
    }
    let claim = call.claim(app.now(), &body.text)?;
    if call_key::is_repeat(&app, &caller.tenant, claim.as_ref()).await? {
        return Ok(shown(app.access.directory().notifications(&tenant).as_deref()));
    }
    let is_wanted = |event: &Event| request.events.contains(&event.as_str());
    let settings = request.url.as_ref().map(|url| NotificationSettings {
        url: url.clone(),
        events: Event::ALL.into_iter().filter(is_wanted).collect(),
        lag_budget_ms: request.lag_budget_ms,
    });
    app.access.directory().put_notifications(&tenant, settings.as_ref()).await?;
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    Ok(shown(settings.as_ref()))
}

fn shown(settings: Option<&NotificationSettings>) -> Response {
    let mut out = JsonWriter::with_capacity(256);
    out.object(|out| {
        out.key("url").text_or_null(settings.map(|settings| &*settings.url));
        out.key("events").array(|out| {
            let events = settings.into_iter().flat_map(|settings| &settings.events);
            events.for_each(|event| out.text(event.as_str()));
        });
        let budget = settings.map(|settings| format_duration(settings.lag_budget_ms));
        out.key("lag_budget").text_or_null(budget.as_deref());
    });
    answer::json(StatusCode::OK, out)
}
