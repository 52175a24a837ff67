//! A worker's door to time. It lives in the caller's process, which has no server's clock.

use std::time::Duration;

use tokio::time::Instant;

#[expect(clippy::disallowed_methods, reason = "this is the door")]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
pub(super) async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at).await;
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
pub(super) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
