//! Changing jobs that exist.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tidewheel_api::wire::call_key::read_bare;
use tidewheel_api::wire::fault::{Code, Faults};
use tidewheel_api::wire::order_request::{AmendRequest, BulkRequest, RerunRequest};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, State as JobState};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Applied, IdempotencyClaim, Order, Refusal};

use crate::http::answer;
use crate::http::app::App;
use crate::http::body::Text;
use crate::http::bulk::Bulk;
use crate::http::call_key::CallKey;
use crate::http::caller::{Caller, JobPath};
use crate::http::problem::{Problem, refuse_faults};
use crate::http::retention::{Retention, may_concern_ended};
use crate::http::scope::{Act, Scope};
use crate::http::to_the_end::to_the_end;

/// The states a bulk cancel means that names none.
const CANCELLABLE: &[JobState] = &[JobState::Scheduled, JobState::Running, JobState::Retrying];
/// The states a bulk retry means that names none: running everything that ever succeeded again must be said.
const RERUNNABLE: &[JobState] = &[JobState::Dead];

/// `POST /v1/jobs/{id}/cancel`
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    whole(|faults| read_bare(&body.text, faults))?;
    let key = call.claim(app.now(), &body.text)?;
    Scope::of(&app, &caller, Act::Change).check_job(id).await?;
    changed(&app, &caller.tenant, id, Command::Cancel, key).await
}

/// `POST /v1/jobs/{id}/run`
pub(crate) async fn run_now(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    whole(|faults| read_bare(&body.text, faults))?;
    let key = call.claim(app.now(), &body.text)?;
    Scope::of(&app, &caller, Act::Run).check_job(id).await?;
    changed(&app, &caller.tenant, id, Command::RunNow, key).await
}

/// `POST /v1/jobs/{id}/retry`
pub(crate) async fn rerun(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    let request = whole(|faults| RerunRequest::read(&body.text, app.now(), faults))?;
    let key = call.claim(app.now(), &body.text)?;
    Scope::of(&app, &caller, Act::Run).check_job(id).await?;
    changed(&app, &caller.tenant, id, Command::Rerun { run_at: request.run_at }, key).await
}

/// `PATCH /v1/jobs/{id}`
pub(crate) async fn amend(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    let request = whole(|faults| AmendRequest::read(&body.text, app.now(), faults))?;
    let command = Command::Amend { run_at: request.run_at, priority: request.priority };
    let key = call.claim(app.now(), &body.text)?;
    // Whoever says when it runs has it run.
    let act = if request.run_at.is_some() { Act::Run } else { Act::Change };
    Scope::of(&app, &caller, act).check_job(id).await?;
    changed(&app, &caller.tenant, id, command, key).await
}

/// `POST /v1/jobs/cancel`
pub(crate) async fn cancel_many(
    State(app): State<Arc<App>>,
    caller: Caller,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    let request = whole(|faults| BulkRequest::read(&body.text, app.now(), faults))?;
    let key = call.claim(app.now(), &body.text)?;
    let command = |_: Timestamp| Command::Cancel;
    let scope = Scope::of(&app, &caller, Act::Change);
    Bulk { app: &app, scope, tenant: &caller.tenant, request, states_default: CANCELLABLE, command, key }
        .run()
        .await
}

/// `POST /v1/jobs/retry`
pub(crate) async fn rerun_many(
    State(app): State<Arc<App>>,
    caller: Caller,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    let request = whole(|faults| BulkRequest::read_run(&body.text, app.now(), faults))?;
    let key = call.claim(app.now(), &body.text)?;
    let command = |run_at: Timestamp| Command::Rerun { run_at };
    let scope = Scope::of(&app, &caller, Act::Run);
    Bulk { app: &app, scope, tenant: &caller.tenant, request, states_default: RERUNNABLE, command, key }
        .run()
        .await
}

/// Reads a request; what is wrong with it is the answer.
pub(crate) fn whole<T>(read: impl FnOnce(&mut Faults) -> Option<T>) -> Result<T, Problem> {
    let mut faults = Faults::default();
    let request = read(&mut faults);
    refuse_faults(faults)?;
    request.ok_or_else(|| Problem::new(Code::Internal, "a request was refused without a reason"))
}

/// Gives one order.
pub(crate) async fn order(
    app: &App,
    tenant: &Tenant,
    id: JobId,
    command: Command,
    key: Option<IdempotencyClaim>,
) -> Result<Result<Applied, Refusal>, Problem> {
    if may_concern_ended(&command)
        && !Retention::of(app, tenant).seen(app, tenant, vec![id]).await?.1.is_empty()
    {
        return Ok(Err(Refusal::NotFound));
    }
    let engine = app.engine.clone();
    let orders = vec![Order { tenant: tenant.clone(), id, command, key }];
    let results = to_the_end(async move { engine.command(orders).await }).await??;
    let no_answer = || Problem::new(Code::Internal, "the store did not answer for the job");
    results.into_iter().next().ok_or_else(no_answer)
}

/// Gives one order and answers with the job as it is then.
pub(crate) async fn changed(
    app: &App,
    tenant: &Tenant,
    id: JobId,
    command: Command,
    key: Option<IdempotencyClaim>,
) -> Result<Response, Problem> {
    let applied = order(app, tenant, id, command, key).await??;
    Ok(answer::changed_job(&applied.job, app.now()))
}
