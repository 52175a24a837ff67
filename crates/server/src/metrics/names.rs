//! Labels whose values come from users. Only so many names are shown as they are; what comes after them is counted
//! together, so that nobody can make a server's page, or the memory of whoever scrapes it, grow without end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;

/// Tenants with numbers of their own; each has a histogram.
pub(super) const TENANTS_NAMED_COUNT_MAX: usize = 50;
/// Queues with numbers of their own.
pub(super) const QUEUES_NAMED_COUNT_MAX: usize = 100;
/// All others together. No tenant or queue can have this name.
const OTHERS: &str = "(other)";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TenantLabels {
    pub(super) tenant: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct QueueLabels {
    pub(super) queue: Arc<str>,
}

/// Who has a name of its own: the first to come, and for good, so that numbers go to zero and do not vanish.
#[derive(Debug)]
pub(super) struct Names {
    named: Mutex<BTreeSet<Arc<str>>>,
    count_max: usize,
    others: Arc<str>,
}

impl Names {
    pub(super) fn new(count_max: usize) -> Self {
        Self { named: Mutex::default(), count_max, others: Arc::from(OTHERS) }
    }

    /// The name to show.
    pub(super) fn shown(&self, name: &str) -> Arc<str> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = named.get(name) {
            return Arc::clone(known);
        }
        if named.len() >= self.count_max {
            return Arc::clone(&self.others);
        }
        let name: Arc<str> = Arc::from(name);
        named.insert(Arc::clone(&name));
        name
    }
}
