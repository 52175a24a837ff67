//! One line for each request. Ordinary ones are for whoever asks for them; what the server failed at is for all.
//! Fields are written by the subscriber, which escapes them.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderValue;
use http::header::X_CONTENT_TYPE_OPTIONS;

use crate::clock::Clock;

/// Paths are cut at this many characters.
const PATH_CHARS_MAX: usize = 256;

/// Answers and logs.
pub(super) async fn log(clock: Arc<dyn Clock>, request: Request, next: Next) -> Response {
    // Copies are made only for a line that somebody reads.
    let wanted = tracing::enabled!(target: "tidewheel::access", tracing::Level::WARN);
    let line = wanted.then(|| {
        let path: String = request.uri().path().chars().take(PATH_CHARS_MAX).collect();
        (request.method().clone(), path, clock.monotonic_ms())
    });
    let mut response = next.run(request).await;
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some((method, path, started_ms)) = line {
        let status = response.status();
        let took_ms = clock.monotonic_ms().saturating_sub(started_ms);
        if status.is_server_error() {
            tracing::warn!(target: "tidewheel::access", %method, ?path, status = status.as_u16(), took_ms, "request failed");
        } else {
            tracing::debug!(target: "tidewheel::access", %method, ?path, status = status.as_u16(), took_ms, "request");
        }
    }
    response
}
