//! Queues: where pull workers take their jobs from.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::worker_request::TakeRequest;
use tidewheel_api::wire::write::{self, JsonWriter};
use tidewheel_core::names::check_queue;
use tidewheel_store::Error;

use super::answer;
use super::app::App;
use super::body::Text;
use super::call_key::check_key;
use super::caller::Caller;
use super::jobs::change::whole;
use super::problem::Problem;
use crate::engine::{Take, Tenants};

/// About what one job takes besides its payload.
const JOB_BYTES: usize = 768;

/// The queue named in the path.
pub(super) struct QueuePath(Arc<str>);

impl FromRequestParts<Arc<App>> for QueuePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let no_queue = |detail: String| Problem::new(Code::InvalidValue, detail);
        let Path(name) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|_| no_queue("the queue's name is not UTF-8".to_owned()))?;
        check_queue(&name).map_err(|fault| no_queue(fault.to_string()))?;
        Ok(Self(Arc::from(name)))
    }
}

/// `POST /v1/queues/{queue}/take`
pub(super) async fn take(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueuePath(queue): QueuePath,
    headers: HeaderMap,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    // A key adds nothing: what is taken and never heard of is given back by its lease.
    check_key(&headers, &body.text)?;
    let TakeRequest { worker, count_max, wait_ms, lease_ms } =
        whole(|faults| TakeRequest::read(&body.text, faults))?;
    caller.identity.check_queue(&queue)?;
    // What is kept of the request is not kept through a long wait.
    drop(body);
    let kinds = caller.identity.kinds()?;
    let tenants = Tenants::Only(vec![caller.tenant]);
    let take = Take { tenants, queue, kinds, worker, count_max, wait_ms, lease_ms };
    let taken = app.engine.take(take).await;
    if matches!(taken, Err(Error::Closed)) {
        app.check_open()?;
    }
    let jobs = taken?;
    let bytes = jobs.iter().map(|job| JOB_BYTES + job.spec.payload.len()).sum::<usize>();
    let mut out = JsonWriter::with_capacity(bytes + 16);
    out.object(|out| {
        out.key("jobs").array(|out| {
            for job in &jobs {
                write::taken_job(out, job, app.engine.traces().handed_on(job).as_ref());
            }
        });
    });
    Ok(answer::json(StatusCode::OK, out))
}
