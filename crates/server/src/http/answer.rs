//! Every answer that is not an error.

use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use tidewheel_api::wire::write::{self, JsonWriter, View};
use tidewheel_core::job::Job;
use tidewheel_core::time::Timestamp;

/// About what one job takes without its payload.
const JOB_BYTES: usize = 1_024;
/// About what a page takes beside its items.
const PAGE_BYTES: usize = 64;

/// JSON.
pub(super) fn json(status: StatusCode, out: JsonWriter) -> Response {
    let mut response = Response::new(out.into_bytes().into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A page of a list: its items, already written, and where the next page goes on.
pub(super) fn list(items: JsonWriter, next: Option<&str>) -> Response {
    json(StatusCode::OK, page(items, next))
}

/// The envelope that every list has.
fn page(items: JsonWriter, next: Option<&str>) -> JsonWriter {
    let items = items.into_bytes();
    let mut out = JsonWriter::with_capacity(items.len() + PAGE_BYTES);
    out.object(|out| {
        out.key("items").array(|out| {
            if !items.is_empty() {
                out.raw(&items);
            }
        });
        out.key("next_cursor").text_or_null(next);
    });
    out
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
