//! What most jobs of these tests ask for.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::{Destination, Priority, Spec};
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;

/// A job for the queue `q`, with everything else as it is by default.
pub(crate) fn queued(created_at: Timestamp) -> Spec {
    Spec {
        kind: Arc::from("t"),
        payload: Bytes::from_static(b"{}"),
        destination: Destination::Queue(Arc::from("q")),
        priority: Priority::Normal,
        retry: RetryPolicy::default(),
        timeout_ms: TIMEOUT_MS_DEFAULT,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at,
    }
}
