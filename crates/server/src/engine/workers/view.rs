//! What can be said of connected workers.

use std::sync::Arc;

use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use crate::engine::ready::Interest;

/// Which workers somebody may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) enum Whose {
    /// Those that work for a tenant, whoever else they work for.
    Serving(Tenant),
    /// Those that work for a tenant and for nobody else.
    Own(Tenant),
}

impl Whose {
    /// Whether a worker with that interest is among them.
    pub(in crate::engine) fn includes(&self, interest: &Interest) -> bool {
        match self {
            Self::Serving(tenant) => interest.covers(tenant.as_str()),
            Self::Own(tenant) => interest.only_tenant() == Some(tenant),
        }
    }
}

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
