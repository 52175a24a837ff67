//! Handing claimed jobs to whoever runs them, and hearing back.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job};
use tidewheel_core::names::Tenant;
use tokio::sync::mpsc;

/// What a runner reports of a job.
#[derive(Debug)]
pub struct Report {
    /// Whose job.
    pub tenant: Tenant,
    /// Which job.
    pub id: JobId,
    /// What came of the attempt.
    pub command: Command,
}

/// Where reports go. Reports are written to the store in batches.
#[derive(Debug, Clone)]
pub struct Reports(pub(super) mpsc::UnboundedSender<Vec<Report>>);

impl Reports {
    /// Reports what came of an attempt.
    pub fn send(&self, report: Report) {
        self.send_all(vec![report]);
    }

    /// Reports what came of some attempts.
    pub fn send_all(&self, reports: Vec<Report>) {
        if reports.is_empty() {
            return;
        }
        // The receiver lives as long as the engine; after that nobody needs the report, since the store still
        // knows the attempt as running and the next start will take it up.
        drop(self.0.send(reports));
    }
}

/// Delivers claimed jobs to their targets.
pub trait Deliver: Send + Sync + 'static {
    /// Starts delivering these running jobs and returns at once. Each is reported on exactly once, unless it
    /// is aborted.
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports);

    /// Stops delivering a job that was called off.
    fn abort(&self, id: &JobId);
}
