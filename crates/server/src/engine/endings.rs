//! The end of an attempt: how it is known, and who hears of it.

use std::sync::Arc;

use tidewheel_core::job::{Attempt, Command, Ending, Job};
use tidewheel_store::Applied;

use super::{Shared, named};
use crate::metrics::Endings;

/// What a granted command does to an attempt under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// It says how the attempt ended.
    Always,
    /// It ends the job, and with it the attempt, if there is one.
    IfRunning,
    /// Nothing.
    Never,
}

impl Ends {
    pub(super) const fn of(command: &Command) -> Self {
        match command {
            Command::Succeed { .. }
            | Command::Fail { .. }
            | Command::Snooze { .. }
            | Command::Release { .. }
            | Command::Abandon { .. } => Self::Always,
            Command::Cancel => Self::IfRunning,
            Command::Claim { .. }
            | Command::Heartbeat { .. }
            | Command::Detach { .. }
            | Command::LeaseOver { .. }
            | Command::Lost { .. }
            | Command::WorkerGone { .. }
            | Command::RunNow
            | Command::Amend { .. }
            | Command::Rerun { .. }
            | Command::Replay { .. }
            | Command::Discard => Self::Never,
        }
    }

    /// Whether an attempt ended with what was applied. An attempt before it must not count twice.
    pub(super) fn attempt_of(self, applied: &Applied) -> bool {
        let status = &applied.job.status;
        let cut_short = |last: &Attempt| {
            last.ending == Ending::Cancelled && status.finished_at.is_some_and(|at| at <= last.finished_at)
        };
        applied.changed
            && match self {
                Self::Always => true,
                Self::IfRunning => status.attempts.last().is_some_and(cut_short),
                Self::Never => false,
            }
    }
}

impl Shared {
    /// Notes, traces, tells and logs that an attempt of the job ended. What is noted is counted by whoever gathers it.
    pub(super) fn attempt_ended(&self, job: &Arc<Job>, endings: &mut Endings) {
        endings.note(job);
        self.traces.attempt_ended(job);
        self.tell_of_end(job);
        if let Some(attempt) = job.status.attempts.last().filter(|_| job.status.running.is_none()) {
            tracing::debug!(
                job_id = named(&job.id),
                trace_id = self.traces.trace_id_of(job).map(tracing::field::display),
                tenant = %job.tenant,
                attempt = attempt.number,
                outcome = attempt.ending.as_str(),
                state = job.status.state.as_str(),
                "an attempt ended"
            );
        }
    }
}
