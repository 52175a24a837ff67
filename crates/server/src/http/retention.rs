//! What a tenant no longer sees because its own retention is over. The store drops history for all tenants by the day; a
//! tenant that keeps less has its finished jobs hidden as soon as their time is over, and their space follows with the day.

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use super::app::App;
use super::problem::Problem;
use super::scope::look_up;

/// What of a tenant's history is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retention {
    /// What ended before this is not seen; `None` if all is that is there.
    before: Option<Timestamp>,
}

impl Retention {
    /// As of now.
    pub(super) fn of(app: &App, tenant: &Tenant) -> Self {
        let kept_ms = app.access.directory().tenant(tenant).settings.retention_ms;
        Self { before: kept_ms.map(|kept_ms| app.now().plus_ms(-kept_ms)) }
    }

    /// Whether a job is not seen any more. Dead letters are, until somebody decides about them.
    pub(super) fn hides(self, job: &Job) -> bool {
        has_ended(job.status.state)
            && self.before.is_some_and(|before| job.status.finished_at.is_some_and(|end| end < before))
    }

    /// Whether there may be jobs in this state that are not seen any more.
    pub(super) const fn may_hide(self, state: State) -> bool {
        self.before.is_some() && has_ended(state)
    }

    /// The jobs of these that are seen, cannot be read or are not there at all, which is for whoever looks to find out; and
    /// those that are not seen any more.
    pub(super) async fn seen(
        self,
        app: &App,
        tenant: &Tenant,
        ids: Vec<JobId>,
    ) -> Result<(Vec<JobId>, Vec<JobId>), Problem> {
        if self.before.is_none() {
            return Ok((ids, Vec::new()));
        }
        let jobs = look_up(&**app.engine.store(), tenant, &ids).await?;
        let mut hidden = jobs.into_iter().map(|job| job.ok().flatten().is_some_and(|job| self.hides(&job)));
        Ok(ids.into_iter().partition(|_| !hidden.next().unwrap_or(false)))
    }
}

const fn has_ended(state: State) -> bool {
    match state {
        State::Succeeded | State::Cancelled | State::Skipped | State::Expired => true,
        State::Scheduled | State::Retrying | State::Running | State::Dead => false,
    }
}

/// Whether a command may be for a job that has ended. The others are for attempts under way and for dead letters, which
/// are never hidden, and need no look.
pub(super) const fn may_concern_ended(command: &Command) -> bool {
    matches!(command, Command::Cancel | Command::RunNow | Command::Rerun { .. } | Command::Amend { .. })
}
