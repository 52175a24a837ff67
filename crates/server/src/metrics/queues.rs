//! How queues are: for alerts on queues that nobody serves, and for whoever adds workers by depth.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::names::{Names, QUEUES_NAMED_COUNT_MAX, QueueLabels};
use super::{Seconds, level, seconds};

/// How one queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct QueueLevel {
    /// Jobs due and in memory.
    pub(crate) depth: usize,
    /// More are due that stay in the store until there is room.
    pub(crate) more: bool,
    /// How long the oldest of them has been due.
    pub(crate) oldest_age_ms: i64,
    /// Workers connected for it, and those who ask for its jobs over HTTP this moment.
    pub(crate) workers: usize,
}

/// The gauges of all queues.
#[derive(Debug)]
pub(super) struct Queues {
    depth: Family<QueueLabels, Gauge>,
    more: Family<QueueLabels, Gauge>,
    oldest_age: Family<QueueLabels, Seconds>,
    workers: Family<QueueLabels, Gauge>,
    names: Names,
    /// What each name stands at.
    shown: Mutex<BTreeMap<Arc<str>, QueueLevel>>,
}

impl Queues {
    pub(super) fn new() -> Self {
        Self {
            depth: Family::default(),
            more: Family::default(),
            oldest_age: Family::default(),
            workers: Family::default(),
            names: Names::new(QUEUES_NAMED_COUNT_MAX),
            shown: Mutex::default(),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("queue_depth", "Jobs due and in memory, by queue", self.depth.clone());
        registry.register(
            "queue_more",
            "1 if more jobs of a queue are due than are in memory",
            self.more.clone(),
        );
        registry.register_with_unit(
            "queue_oldest_age",
            "How long the oldest job in memory of a queue has been due",
            Unit::Seconds,
            self.oldest_age.clone(),
        );
        registry.register(
            "queue_workers",
            "Workers connected for a queue or asking for its jobs",
            self.workers.clone(),
        );
    }

    /// Sets them all; a queue that is not in `levels` is empty and has no workers.
    pub(super) fn set(&self, levels: &BTreeMap<&str, QueueLevel>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.values_mut().for_each(|sum| *sum = QueueLevel::default());
        for (name, queue) in levels {
            let sum = shown.entry(self.names.shown(name)).or_default();
            sum.depth += queue.depth;
            sum.more |= queue.more;
            sum.workers += queue.workers;
            sum.oldest_age_ms = sum.oldest_age_ms.max(queue.oldest_age_ms);
        }
        for (name, sum) in &*shown {
            self.set_one(Arc::clone(name), *sum);
        }
    }

    fn set_one(&self, queue: Arc<str>, to: QueueLevel) {
        let labels = QueueLabels { queue };
        self.depth.get_or_create(&labels).set(level(to.depth));
        self.more.get_or_create(&labels).set(i64::from(to.more));
        self.oldest_age.get_or_create(&labels).set(seconds(to.oldest_age_ms));
        self.workers.get_or_create(&labels).set(level(to.workers));
    }
}
