//! Dead letters: jobs that were given up and wait to be replayed or discarded.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_api::wire::filter::{JobFilter, ShownState};
use tidewheel_api::wire::order_request::{BulkRequest, ReplayRequest, Which};
use tidewheel_api::wire::query;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, State as JobState};
use tidewheel_core::time::Timestamp;
use tidewheel_store::Refusal;

use super::admission::too_large;
use super::answer;
use super::app::App;
use super::body::Text;
use super::bulk::Bulk;
use super::call_key::CallKey;
use super::caller::{Caller, JobPath};
use super::jobs::change::{changed, order, whole};
use super::jobs::read::{page, read_query};
use super::problem::{Problem, refuse_faults};
use super::registered::Registered;
use super::scope::{Act, Scope};

const DEAD: &[JobState] = &[JobState::Dead];

/// `GET /v1/dead-letters`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let mut query = read_query(text.as_deref(), query::DEAD_LIST)?;
    query.filter.states = vec![ShownState::Stored(JobState::Dead)];
    page(&app, &caller.tenant, query).await
}

/// `POST /v1/dead-letters/{id}/replay`
pub(super) async fn replay(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    let request = whole(|faults| ReplayRequest::read(&body.text, app.now(), &app.targets, faults))?;
    let ReplayRequest { run_at, payload, target, timeout_ms } = request;
    Scope::of(&app, &caller, Act::Run).check_job(id).await?;
    if let Some(payload) = &payload {
        check_payload(&app, &caller, id, payload).await?;
    }
    if target.is_some() {
        caller.identity.check_push()?;
    }
    let key = call.claim(app.now(), &body.text)?;
    let command = Command::Replay { run_at, payload, target, timeout_ms };
    changed(&app, &caller.tenant, id, command, key).await
}

/// Refuses a payload that the tenant's limits or the job's type do not allow.
async fn check_payload(app: &App, caller: &Caller, id: JobId, payload: &[u8]) -> Result<(), Problem> {
    let settings = app.access.directory().tenant(&caller.tenant).settings;
    if let Some(detail) = too_large(&settings, payload.len()) {
        let mut faults = Faults::default();
        faults.add(Code::PayloadTooLarge, &At::ROOT.field("payload"), detail);
        return refuse_faults(faults);
    }
    if app.access.directory().types(&caller.tenant).is_none() {
        return Ok(());
    }
    // One that is not there is for the order to answer.
    let job = app.engine.store().get(&caller.tenant, vec![id]).await?.pop().flatten();
    let mut faults = Faults::default();
    if let Some(job) = job {
        Registered::of(app, caller).check(&job.spec.kind, payload, &At::ROOT, &mut faults);
    }
    refuse_faults(faults)
}

/// `POST /v1/dead-letters/replay`
pub(super) async fn replay_many(
    State(app): State<Arc<App>>,
    caller: Caller,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    let mut request = whole(|faults| BulkRequest::read_run(&body.text, app.now(), faults))?;
    only_dead(&mut request)?;
    let key = call.claim(app.now(), &body.text)?;
    let command =
        |run_at: Timestamp| Command::Replay { run_at, payload: None, target: None, timeout_ms: None };
    let scope = Scope::of(&app, &caller, Act::Run);
    Bulk { app: &app, scope, tenant: &caller.tenant, request, states_default: DEAD, command, key }.run().await
}

/// `DELETE /v1/dead-letters/{id}`
pub(super) async fn discard(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    call: CallKey,
) -> Result<Response, Problem> {
    let key = call.claim(app.now(), "")?;
    Scope::of(&app, &caller, Act::Change).check_job(id).await?;
    match order(&app, &caller.tenant, id, Command::Discard, key).await? {
        Ok(_) | Err(Refusal::Gone) => Ok(answer::no_content()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// `DELETE /v1/dead-letters`
pub(super) async fn discard_many(
    State(app): State<Arc<App>>,
    caller: Caller,
    call: CallKey,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), query::DEAD_DISCARD)?;
    if query.filter == JobFilter::default() && !query.all {
        let detail = "say which dead letters: give a filter, or `all=true` for all of them";
        return Err(Problem::new(Code::InvalidParameter, detail));
    }
    let which = Which::Matching { filter: query.filter, cursor: query.cursor };
    let request = BulkRequest { which, run_at: app.now(), rate: None };
    let key = call.claim(app.now(), "")?;
    let command = |_: Timestamp| Command::Discard;
    let scope = Scope::of(&app, &caller, Act::Change);
    Bulk { app: &app, scope, tenant: &caller.tenant, request, states_default: DEAD, command, key }.run().await
}

/// A filter here is for dead letters; one that asks for other states was not meant.
fn only_dead(request: &mut BulkRequest) -> Result<(), Problem> {
    if let Which::Matching { filter, .. } = &mut request.which
        && filter.states.iter().any(|state| *state != ShownState::Stored(JobState::Dead))
    {
        return Err(Problem::new(
            Code::InvalidValue,
            "dead letters are in the state `dead`; leave `state` out",
        ));
    }
    Ok(())
}
