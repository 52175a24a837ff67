//! Jobs and schedules submitted in the flat form: `schedule_type` says which of the two it is.

use std::sync::Arc;

use axum::response::Response;
use http::{HeaderMap, StatusCode};
use jiff::tz::TimeZone;
use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_api::wire::flat_request::{Flat, FlatRequest};
use tidewheel_api::wire::job_request::JobRequest;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Submitted;

use super::placing::Placing;
use super::submit::{check, settings, submission, take_in};
use crate::http::answer;
use crate::http::app::App;
use crate::http::call_key::conflict;
use crate::http::caller::Caller;
use crate::http::idempotency::{choose_key, fingerprint, header_key};
use crate::http::jobs::change::whole;
use crate::http::problem::{Problem, refuse_faults};
use crate::http::registered::Registered;
use crate::http::schedules::check::Checker;
use crate::http::schedules::create::{creation_claim, make};
use crate::http::schedules::room::Room;
use crate::http::trace::header_trace;

/// Takes a job or a schedule in.
pub(super) async fn submit(
    app: &Arc<App>,
    mut caller: Caller,
    headers: &HeaderMap,
    text: &str,
) -> Result<Response, Problem> {
    let now = app.now();
    let header_key = header_key(headers)?;
    let FlatRequest { tenant, zone, what } =
        whole(|faults| FlatRequest::read(text, now, app.engine.zones(), faults))?;
    let mut faults = Faults::default();
    caller.tenant = match tenant {
        Some(tenant) if caller.named.is_some() && tenant != caller.tenant => {
            let detail = "the header Tidewheel-Tenant is given too, and differs";
            faults.add(Code::ConflictingFields, &At::ROOT.field("tenant_id"), detail);
            tenant
        }
        Some(tenant) => caller.identity.tenant(Some(tenant))?,
        None => caller.tenant,
    };
    let tenant = caller.tenant.clone();
    let body_key = match &what {
        Flat::Recurring(request) => request.definition.idempotency_key.as_ref(),
        Flat::Once(request) => request.idempotency_key.as_ref(),
    };
    let key = choose_key(body_key, header_key.as_ref(), &mut faults);
    match what {
        Flat::Recurring(mut request) => {
            let claim = creation_claim(key, &request, now);
            Registered::of(app, &caller).fill_schedule(&mut request);
            let mut checker = Checker::new(app, &caller, now).with_cron_field("cron_expression");
            checker.check(&request, None, &At::ROOT, &mut faults).await?;
            refuse_faults(faults)?;
            let room = Room::for_one(app, &tenant, claim.as_ref()).await?;
            let edited = make(app, &tenant, *request, claim, room).await??;
            let next = edited.schedule.next.map(|next| next.fire_at);
            Ok(answered(edited.changed, &edited.schedule.id.to_string(), next, zone.rules()))
        }
        Flat::Once(mut request) => {
            request.trace = header_trace(headers);
            let registered = Registered::of(app, &caller);
            let settings = settings(app, &caller);
            check(&settings, &registered, &caller, &mut request, &At::ROOT, &mut faults);
            refuse_faults(faults)?;
            let placing = Placing::of(app, &tenant, &settings);
            let asked_for = fingerprint_of(&request);
            let mut submission = submission(app, &tenant, *request, key, now, &placing);
            if let Some(claim) = &mut submission.key {
                claim.fingerprint = asked_for;
            }
            let (id, run_at) = (submission.job.id, submission.job.status.due_at);
            match take_in(app, &tenant, submission).await? {
                Some(Submitted::New) => Ok(answered(true, &id.to_string(), Some(run_at), zone.rules())),
                Some(Submitted::Duplicate(first)) => {
                    Ok(answered(false, &first.to_string(), Some(first.run_at()), zone.rules()))
                }
                Some(Submitted::Conflict(first)) => Err(conflict(first)),
                None => Err(Problem::new(Code::Internal, "the store did not answer for the job")),
            }
        }
    }
}

/// A digest of what was asked for. When a run that is skipped if it is missed expires follows from when it was asked for;
/// that it expires is all that was said.
fn fingerprint_of(request: &JobRequest) -> [u8; 16] {
    let expires_at = request.expires_at.map(|_| Timestamp::MIN);
    fingerprint(&JobRequest { expires_at, ..request.clone() })
}

fn answered(is_new: bool, id: &str, next: Option<Timestamp>, zone: &TimeZone) -> Response {
    let mut out = JsonWriter::with_capacity(128);
    out.object(|out| {
        out.key("job_id").text(id);
        out.key("status").text("ACTIVE");
        out.key("next_scheduled_run").text_or_null(next.map(|next| local(next, zone)).as_deref());
    });
    answer::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, out)
}

/// An instant as the zone's clock shows it, with its distance from UTC: `2026-06-07T09:00:00-04:00`.
fn local(at: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_millisecond(at.as_ms()) {
        Ok(instant) => instant.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        Err(_) => at.to_string(),
    }
}
