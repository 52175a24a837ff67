//! One line for each request. Ordinary ones are for whoever asks for them; what the server failed at is for all.
//! Fields are written by the subscriber, which escapes them.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Uri};

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
    let seen = Seen::of(&request, call_of(&request), &*clock);
    let response = next.run(request).await;
    seen.answered(response, &*clock, &metrics)
}

/// A request that is being answered.
pub(super) struct Seen {
    method: Method,
    uri: Uri,
    call: Call,
    started_ms: i64,
}

impl Seen {
    pub(super) fn of(request: &Request, call: Call, clock: &dyn Clock) -> Self {
        // Cheap copies; text is made only for a line that somebody reads.
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Self { method, uri, call, started_ms: clock.monotonic_ms() }
    }

    /// Counts and logs what it was answered.
    pub(super) fn answered(self, mut response: Response, clock: &dyn Clock, metrics: &Metrics) -> Response {
        let Self { method, uri, call, started_ms } = self;
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
