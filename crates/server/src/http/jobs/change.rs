//! Changing jobs that exist.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tidewheel_api::wire::fault::{Code, Faults};
use tidewheel_api::wire::order_request::{AmendRequest, BulkRequest, RerunRequest};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, State as JobState};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Applied, Order};

use crate::http::answer;
use crate::http::app::{App, to_the_end};
use crate::http::body::Text;
use crate::http::bulk::Bulk;
use crate::http::caller::{Caller, JobPath};
use crate::http::problem::{Problem, refuse_faults};

/// The states a bulk cancel means that names none.
const CANCELLABLE: &[JobState] = &[JobState::Scheduled, JobState::Running, JobState::Retrying];
/// The states a bulk retry means that names none: running everything that ever succeeded again must be said.
const RERUNNABLE: &[JobState] = &[JobState::Dead];

/// `POST /v1/jobs/{id}/cancel`
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Response, Problem> {
    changed(&app, &caller.tenant, id, Command::Cancel).await
}

/// `POST /v1/jobs/{id}/run`
pub(crate) async fn run_now(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Response, Problem> {
    changed(&app, &caller.tenant, id, Command::RunNow).await
}

/// `POST /v1/jobs/{id}/retry`
pub(crate) async fn rerun(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    body: Text,
) -> Result<Response, Problem> {
    let request = whole(|faults| RerunRequest::read(&body.text, app.now(), faults))?;
    changed(&app, &caller.tenant, id, Command::Rerun { run_at: request.run_at }).await
}

/// `PATCH /v1/jobs/{id}`
pub(crate) async fn amend(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    body: Text,
) -> Result<Response, Problem> {
    let request = whole(|faults| AmendRequest::read(&body.text, app.now(), faults))?;
    let command = Command::Amend { run_at: request.run_at, priority: request.priority };
    changed(&app, &caller.tenant, id, command).await
}

/// `POST /v1/jobs/cancel`
pub(crate) async fn cancel_many(
    State(app): State<Arc<App>>,
    caller: Caller,
    body: Text,
) -> Result<Response, Problem> {
    let request = whole(|faults| BulkRequest::read(&body.text, app.now(), faults))?;
    let command = |_: Timestamp| Command::Cancel;
    Bulk { app: &app, tenant: &caller.tenant, request, states_default: CANCELLABLE, command }.run().await
}

/// `POST /v1/jobs/retry`
pub(crate) async fn rerun_many(
    State(app): State<Arc<App>>,
    caller: Caller,
    body: Text,
) -> Result<Response, Problem> {
    let request = whole(|faults| BulkRequest::read_run(&body.text, app.now(), faults))?;
    let command = |run_at: Timestamp| Command::Rerun { run_at };
    Bulk { app: &app, tenant: &caller.tenant, request, states_default: RERUNNABLE, command }.run().await
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
) -> Result<Applied, Problem> {
    let engine = app.engine.clone();
    let orders = vec![Order { tenant: tenant.clone(), id, command }];
    let results = to_the_end(async move { engine.command(orders).await }).await??;
    match results.into_iter().next() {
        Some(result) => Ok(result?),
        None => Err(Problem::new(Code::Internal, "the store did not answer for the job")),
    }
}

/// Gives one order and answers with the job as it is then.
pub(crate) async fn changed(
    app: &App,
    tenant: &Tenant,
    id: JobId,
    command: Command,
) -> Result<Response, Problem> {
    let applied = order(app, tenant, id, command).await?;
    Ok(answer::changed_job(&applied.job, app.now()))
}
