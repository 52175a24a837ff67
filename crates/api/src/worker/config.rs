//! What a worker wants, and how it goes about it.

use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::limits::{
    LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN, WORKER_CREDITS_COUNT_MAX, WORKER_QUEUES_COUNT_MAX,
};

use super::error::Error;
use super::event::Event;
use crate::tls::TlsOptions;

/// Handlers that run at once unless told otherwise.
pub const CONCURRENCY_DEFAULT: usize = 16;
/// How long a handler may go on after it was asked to stop, before it is dropped.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(5);
/// How long handlers may go on after the worker was asked to drain.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(30);

/// Hears what happens to a worker.
pub type EventListener = Arc<dyn Fn(&Event) + Send + Sync>;

/// What a worker wants. Every field but the first two has a default.
#[derive(Clone)]
pub struct WorkerConfig {
    /// The server, such as `http://127.0.0.1:7400`.
    pub url: String,
    /// The queues it takes jobs of.
    pub queues: Vec<String>,
    /// The key to show, if the server asks for keys.
    pub key: Option<String>,
    /// The tenant to act for, where it is not the key's own.
    pub tenant: Option<String>,
    /// Whom to trust and what to show, if the URL begins with `https://`. The files are read for every connection.
    pub tls: TlsOptions,
    /// Its name, for people; different from those of other workers.
    pub name: String,
    /// Tenants it works for; none means the one it acts for.
    pub tenants: Vec<String>,
    /// It works for every tenant.
    pub all_tenants: bool,
    /// Job types it takes; none means those that have handlers, or every type if there is a handler for any.
    pub types: Vec<String>,
    /// The least urgent priority it takes: `critical`, `high`, `normal` or `low`.
    pub min_priority: Option<String>,
    /// Handlers that run at once.
    pub concurrency: usize,
    /// Jobs it asks for beyond those that run, so that the next is there when one ends. As many as run, by default.
    pub prefetch: Option<usize>,
    /// How long a job is safe from others after the last heartbeat, which the worker sends by itself.
    pub lease: Duration,
    /// Bound on one attempt, where it is shorter than the job's own.
    pub timeout: Option<Duration>,
    /// How long a handler may go on after it was asked to stop, before it is dropped.
    pub grace: Duration,
    /// How long handlers may go on after the worker was asked to drain.
    pub drain: Duration,
    /// Hears what happens to the worker's connection and its reports; see [`Self::on_event`].
    pub listener: Option<EventListener>,
}

impl WorkerConfig {
    /// A worker of one queue, without a key, for the tenant the server takes by itself.
    #[must_use]
    pub fn new(url: impl Into<String>, queue: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            queues: vec![queue.into()],
            key: None,
            tenant: None,
            tls: TlsOptions::default(),
            name: format!("worker-{}", std::process::id()),
            tenants: Vec::new(),
            all_tenants: false,
            types: Vec::new(),
            min_priority: None,
            concurrency: CONCURRENCY_DEFAULT,
            prefetch: None,
            lease: Duration::from_millis(LEASE_MS_DEFAULT.unsigned_abs()),
            timeout: None,
            grace: GRACE_DEFAULT,
            drain: DRAIN_DEFAULT,
            listener: None,
        }
    }

    /// Tells `listener` what happens to the worker's connection and its reports.
    #[must_use]
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Jobs in its hands at most: those that run and those that wait.
    pub(super) fn capacity(&self) -> usize {
        let prefetch = self.prefetch.unwrap_or(self.concurrency);
        self.concurrency.saturating_add(prefetch).min(WORKER_CREDITS_COUNT_MAX)
    }

    /// Whether the jobs it gets may be of more than one tenant.
    pub(super) fn is_of_many_tenants(&self) -> bool {
        self.all_tenants || self.tenants.len() > 1
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Setup(text));
        if self.queues.is_empty() || self.queues.len() > WORKER_QUEUES_COUNT_MAX {
            return refuse(format!("a worker takes jobs of 1 to {WORKER_QUEUES_COUNT_MAX} queues"));
        }
        if self.concurrency == 0 || self.concurrency > WORKER_CREDITS_COUNT_MAX {
            return refuse(format!("a worker runs 1 to {WORKER_CREDITS_COUNT_MAX} jobs at once"));
        }
        let lease_ms = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX);
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&lease_ms) {
            return refuse("a lease lasts 1 second to 1 day".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_before_anything_is_sent() {
        let config = WorkerConfig::new("http://a", "q");
        assert!(config.check().is_ok());
        assert_eq!(config.capacity(), 2 * CONCURRENCY_DEFAULT);
        for bad in [
            WorkerConfig { queues: Vec::new(), ..config.clone() },
            WorkerConfig { concurrency: 0, ..config.clone() },
            WorkerConfig { lease: Duration::from_millis(999), ..config },
        ] {
            assert!(matches!(bad.check(), Err(Error::Setup(_))));
        }
    }
}
