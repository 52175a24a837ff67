//! Every answer that is not an error.

use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use tidewheel_api::wire::write::{self, JsonWriter, View};
use tidewheel_core::job::Job;
use tidewheel_core::time::Timestamp;

/// About what one job takes without its payload.
const JOB_BYTES: usize = 1_024;

/// JSON.
pub(super) fn json(status: StatusCode, out: JsonWriter) -> Response {
    let mut response = Response::new(out.into_bytes().into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// One job with its payload.
pub(super) fn whole_job(job: &Job, now: Timestamp) -> Response {
    let mut out = JsonWriter::with_capacity(JOB_BYTES + job.spec.payload.len());
    write::job(&mut out, job, View { now, payload: true });
    json(StatusCode::OK, out)
}

/// One job after a change, without its payload.
pub(super) fn changed_job(job: &Job, now: Timestamp) -> Response {
    let mut out = JsonWriter::with_capacity(JOB_BYTES);
    write::job(&mut out, job, View { now, payload: false });
    json(StatusCode::OK, out)
}

/// Nothing to say.
pub(super) fn no_content() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
