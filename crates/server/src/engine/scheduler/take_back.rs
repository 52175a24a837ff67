//! Moving jobs from workers that have not started them to workers that have nothing to do.

use std::collections::BTreeMap;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Token;

use super::Scheduler;
use crate::engine::workers::{Push, SessionId};

/// Jobs of one queue looked at in one go.
const LOOK_COUNT_MAX: usize = 1_024;

impl Scheduler {
    /// Asks workers to hand back jobs that lie unstarted since before, where somebody idle would take them. At most half
    /// of them at a time, so that a worker that is only a little slower is not left with nothing.
    pub(super) fn take_back(&mut self, before_ms: i64) {
        for queue in self.workers.queues_unstarted() {
            let unstarted = self.workers.unstarted_before(&queue, before_ms, LOOK_COUNT_MAX);
            let mut room = unstarted.len().div_ceil(2);
            let mut asked: BTreeMap<SessionId, Vec<(JobId, Token)>> = BTreeMap::new();
            // The newest go first: the oldest are the next that their worker starts.
            for job in unstarted.iter().rev() {
                if room == 0 {
                    break;
                }
                let holder = self.workers.get(job.session).and_then(|session| session.subscriber);
                let idle = self.ready.idle_for(&queue, job.tenant.as_str(), (job.priority, &job.kind));
                let Some((idle, credits)) = idle.filter(|(idle, _)| Some(*idle) != holder) else { continue };
                room = room.min(credits);
                if room == 0 {
                    break;
                }
                room -= 1;
                tracing::trace!(job_id = %job.id, idle, "asked back for an idle worker");
                asked.entry(job.session).or_default().push((job.id, job.token));
            }
            for (session, jobs) in asked {
                jobs.iter().for_each(|(id, _)| self.workers.no_longer_unstarted(id));
                if let Some(session) = self.workers.get(session) {
                    session.push(Push::TakeBack(jobs));
                    if let Some(subscriber) = session.subscriber {
                        self.ready.set_lags(subscriber, true);
                    }
                }
            }
        }
    }
}
