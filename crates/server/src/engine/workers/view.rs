//! What can be said of connected workers.

use std::sync::Arc;

use tidewheel_core::time::Timestamp;

use crate::engine::ready::Interest;

/// A connected worker, as others see it.
#[derive(Debug, Clone)]
pub struct WorkerView {
    /// Its public number.
    pub id: u64,
    /// Its place in the list.
    pub place: u64,
    /// Its name.
    pub name: Arc<str>,
    /// Queues it takes jobs of.
    pub queues: Arc<[Arc<str>]>,
    /// What of them it runs.
    pub interest: Arc<Interest>,
    /// How long a job is safe from others.
    pub lease_ms: i64,
    /// It is connected; if not, it may still come back.
    pub connected: bool,
    /// It wants no more jobs.
    pub draining: bool,
    /// Since when it is connected.
    pub connected_at: Timestamp,
    /// When it was last heard of.
    pub heard_at: Timestamp,
    /// Jobs it has room for.
    pub credits: usize,
    /// Jobs it works on.
    pub in_flight: usize,
}
