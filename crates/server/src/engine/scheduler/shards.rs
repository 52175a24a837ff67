//! What the scheduler does when shards come to this node or leave it.

use tidewheel_core::job::{Ending, Job};
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::News;

use super::Scheduler;
use crate::engine::scan::Look;

impl Scheduler {
    /// Serves shards from now on: watches over the attempts under way there, and reads what waits, from the beginning.
    pub(super) fn gained(&mut self, shards: Vec<Shard>, running: &[Job], now: Timestamp) {
        let monotonic_ms = self.shared.clock.monotonic_ms();
        for job in running {
            self.leases.hold(job, now, monotonic_ms);
            self.ready.adopt(job);
        }
        self.allot_parts();
        let last = Bucket(self.next_bucket.0.saturating_sub(1));
        self.list_shards(shards, (Bucket(0), last), Look::First);
    }

    /// Forgets what waits of shards that others serve now. What is being delivered goes on: its token says whose it is.
    pub(super) fn lost(&mut self) {
        let territory = &self.shared.territory;
        self.scan.keep(|shard| territory.holds(shard));
        self.ready.keep(|shard| territory.holds(shard));
        self.allot_parts();
    }

    /// Tells whoever serves the job that it changed; says whether that is another node.
    pub(super) fn pass_on(&self, job: &Job) -> bool {
        let is_others = self.shared.territory.is_shared() && !self.shared.territory.holds_job(job);
        if is_others {
            let (tenant, id, token) = (job.tenant.clone(), job.id, job.status.token);
            let is_over = job.status.state.is_finished() && is_last_reported(job);
            self.shared.pass_on(if is_over {
                News::Ended { tenant, id, token }
            } else {
                News::Changed { tenant, id }
            });
        }
        is_others
    }
}

/// Whether a job's last attempt ended as its runner reported, so that nobody needs to be told to stop.
fn is_last_reported(job: &Job) -> bool {
    let ending = job.status.attempts.last().map(|last| last.ending);
    matches!(ending, Some(Ending::Succeeded | Ending::Failed | Ending::TimedOut))
}
