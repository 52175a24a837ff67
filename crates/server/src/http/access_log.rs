//! One line for each request. Ordinary ones are for whoever asks for them; what the server failed at is for all.
//! Fields are written by the subscriber, which escapes them.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

use crate::clock::Clock;
use crate::metrics::{Call, Metrics};

/// Paths are cut at this many characters.
const PATH_CHARS_MAX: usize = 256;

/// Answers, counts and logs.
pub(super) async fn log(
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    request: Request,
    next: Next,
) -> Response {
    // Cheap copies; text is made only for a line that somebody reads.
    let (method, uri, started_ms) = (request.method().clone(), request.uri().clone(), clock.monotonic_ms());
    let call = call_of(&request);
    let mut response = next.run(request).await;
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let status = response.status();
    let took_ms = clock.monotonic_ms().saturating_sub(started_ms);
    metrics.answered(call, status, took_ms);
    if status.is_server_error() {
        let (path, status) = (shortened(uri.path()), status.as_u16());
        tracing::warn!(target: "tidewheel::access", %method, path, status, took_ms, "request failed");
    } else if tracing::enabled!(target: "tidewheel::access", tracing::Level::DEBUG) {
        let (path, status) = (shortened(uri.path()), status.as_u16());
        tracing::debug!(target: "tidewheel::access", %method, path, status, took_ms, "request");
    }
    response
}

fn call_of(request: &Request) -> Call {
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if kind.starts_with(b"application/grpc") {
        return Call::Grpc;
    }
    let pattern = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    Call::of(request.method(), pattern)
}

fn shortened(path: &str) -> &str {
    path.char_indices().nth(PATH_CHARS_MAX).map_or(path, |(end, _)| path.get(..end).unwrap_or(path))
}
