//! Attempts under way: signs of life, and what came of them. Whoever holds the token may report: a pull worker,
//! or a target that took a push over. The token makes
//! every report safe to repeat; an idempotency key adds nothing to it and is only checked for its form.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use tidewheel_api::wire::worker_request::{HeartbeatRequest, OutcomeRequest, Report};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Failure, Finding};
use tidewheel_store::Order;

use super::app::App;
use super::body::Text;
use super::call_key::check_key;
use super::caller::{Caller, JobPath};
use super::jobs::change::{changed, whole};
use super::problem::Problem;
use super::scope::check_report;

/// `POST /v1/jobs/{id}/heartbeat`
pub(super) async fn heartbeat(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    headers: HeaderMap,
    body: Text,
) -> Result<Response, Problem> {
    check_key(&headers, &body.text)?;
    let HeartbeatRequest { token, extend_ms, progress } =
        whole(|faults| HeartbeatRequest::read(&body.text, faults))?;
    reported(&app, caller, id, Command::Heartbeat { token, extend_ms, progress }).await
}

/// `POST /v1/jobs/{id}/outcome`
pub(super) async fn outcome(
    State(app): State<Arc<App>>,
    caller: Caller,
    JobPath(id): JobPath,
    headers: HeaderMap,
    body: Text,
) -> Result<Response, Problem> {
    check_key(&headers, &body.text)?;
    let OutcomeRequest { token, report } = whole(|faults| OutcomeRequest::read(&body.text, faults))?;
    let finding = |detail: Box<str>| Finding { status_code: None, detail };
    let command = match report {
        Report::Succeeded { result } => Command::Succeed { token, finding: finding(result) },
        Report::Snoozed { delay_ms } => Command::Snooze { token, delay_ms },
        Report::Cancelled { error } => Command::Abandon { token, finding: finding(error) },
        Report::Failed { error, retryable, retry_after_ms } => {
            let jitter = app.engine.random().jitter();
            let failure =
                Failure { finding: finding(error), retryable, timed_out: false, retry_after_ms, jitter };
            Command::Fail { token, failure }
        }
    };
    reported(&app, caller, id, command).await
}

async fn reported(app: &App, caller: Caller, id: JobId, command: Command) -> Result<Response, Problem> {
    let Caller { tenant, identity, .. } = caller;
    let order = Order { tenant, id, command, key: None };
    let Order { tenant, command, .. } = check_report(&identity, &**app.engine.store(), order).await?;
    changed(app, &tenant, id, command, None).await
}
