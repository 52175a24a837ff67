//! Going through a tenant's jobs, page by page. `ready` is not stored, so a filter on it is applied here.

use tidewheel_api::wire::filter::{JobFilter, ShownState};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Filter, ListQuery, PageCursor};

use super::app::App;
use super::problem::Problem;
use super::retention::Retention;

/// Jobs read at once: with the largest payloads, some 13 MB.
const CHUNK_COUNT_MAX: usize = 200;

/// A walk through the jobs that match, latest first.
pub(super) struct Walk<'a> {
    app: &'a App,
    tenant: &'a Tenant,
    stored: Filter,
    shown: Vec<ShownState>,
    retention: Retention,
    now: Timestamp,
    after: Option<JobId>,
    looked: usize,
    looked_max: usize,
    ended: bool,
}

/// What a walk is through, and how far it may go.
pub(super) struct Plan<'a> {
    pub(super) tenant: &'a Tenant,
    pub(super) filter: JobFilter,
    pub(super) after: Option<JobId>,
    pub(super) now: Timestamp,
    /// Records that are looked at, before the walk is broken off; the last read may look at some more.
    pub(super) looked_max: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(app: &'a App, plan: Plan<'a>) -> Self {
        let Plan { tenant, filter, after, now, looked_max } = plan;
        let stored = Filter {
            states: stored_states(&filter.states),
            kind: filter.kind,
            queue: filter.queue,
            schedule: filter.schedule,
            labels: filter.labels,
            from: filter.from,
            to: filter.to,
            due_by: (filter.states == [ShownState::Ready]).then_some(now),
        };
        let shown = if needs_clock(&filter.states) { filter.states } else { Vec::new() };
        let retention = Retention::of(app, tenant);
        Self { app, tenant, stored, shown, retention, now, after, looked: 0, looked_max, ended: false }
    }

    /// The next jobs, perhaps none; `None` when the walk has ended or gone far enough.
    pub(super) async fn next(&mut self, count_max: usize) -> Result<Option<Vec<Job>>, Problem> {
        if self.ended || self.looked >= self.looked_max {
            return Ok(None);
        }
        let query = ListQuery {
            tenant: self.tenant.clone(),
            filter: self.stored.clone(),
            after: self.after.map(PageCursor),
            count_max: count_max.clamp(1, CHUNK_COUNT_MAX),
        };
        let page = self.app.engine.store().list(query).await?;
        self.looked += page.looked.max(1);
        match page.next {
            Some(PageCursor(last)) => self.after = Some(last),
            None => self.ended = true,
        }
        let mut jobs = page.jobs;
        let is_shown = |job: &Job| {
            let state = || ShownState::of(job, self.now);
            !self.retention.hides(job) && (self.shown.is_empty() || self.shown.contains(&state()))
        };
        jobs.retain(is_shown);
        Ok(Some(jobs))
    }

    /// Where a later walk goes on; `None` when there is nothing more.
    pub(super) fn cursor(&self) -> Option<JobId> {
        self.after.filter(|_| !self.ended)
    }
}

fn stored_states(shown: &[ShownState]) -> Vec<State> {
    let mut states = Vec::new();
    let mut add = |state: State| {
        if !states.contains(&state) {
            states.push(state);
        }
    };
    for state in shown {
        match state {
            ShownState::Stored(state) => add(*state),
            ShownState::Ready => {
                add(State::Scheduled);
                add(State::Retrying);
            }
        }
    }
    states
}

/// Whether the stored state alone does not say if a job matches.
fn needs_clock(shown: &[ShownState]) -> bool {
    let has = |state: ShownState| shown.contains(&state);
    let waiting = [has(ShownState::Stored(State::Scheduled)), has(ShownState::Stored(State::Retrying))];
    match has(ShownState::Ready) {
        true => waiting.contains(&false),
        false => waiting.contains(&true),
    }
}
