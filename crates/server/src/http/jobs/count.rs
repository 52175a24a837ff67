//! `GET /v1/jobs/count`: how many jobs a list would show.
//!
//! The store knows how many it keeps in each state, at no cost. A list goes by the clock, too: what waits and is due is
//! `ready`, and neither `scheduled` nor `retrying`. Where that decides, what is due is looked at, as far as a count may look.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::filter::{JobFilter, ShownState};
use tidewheel_api::wire::query;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::job::State as JobState;
use tidewheel_core::names::Tenant;
use tidewheel_store::Counts;

use super::read::read_query;
use crate::http::answer;
use crate::http::app::App;
use crate::http::caller::Caller;
use crate::http::problem::Problem;
use crate::http::retention::Retention;
use crate::http::walk::{Plan, Walk};

/// Records looked at for one count, before it is given as incomplete.
const LOOKED_COUNT_MAX: usize = 100_000;

/// Answers with the number of jobs that match, and with that of each state where only states are asked for.
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let filter = read_query(text.as_deref(), query::FILTER)?.filter;
    if filter.is_only_states()
        && let Some(counted) = by_state(&app, &caller.tenant, &filter.states).await?
    {
        return Ok(answer_states(&counted));
    }
    let mut walk = Walk::new(&app, plan(&app, &caller.tenant, filter));
    let mut found = 0;
    while let Some(jobs) = walk.next(usize::MAX).await? {
        found += jobs.len();
    }
    let mut out = JsonWriter::with_capacity(64);
    out.object(|out| {
        out.key("count").count(found);
        out.key("complete").boolean(walk.cursor().is_none());
    });
    Ok(answer::json(StatusCode::OK, out))
}

fn plan<'a>(app: &App, tenant: &'a Tenant, filter: JobFilter) -> Plan<'a> {
    Plan { tenant, filter, after: None, now: app.now(), looked_max: LOOKED_COUNT_MAX }
}

/// How many there are in each of some states, and whether that is exact.
struct Counted {
    states: Vec<(ShownState, u64)>,
    is_complete: bool,
}

/// How many there are in each of these states, or of all states as they are kept if none is named; `None` where only looking
/// at the jobs tells.
async fn by_state(app: &App, tenant: &Tenant, wanted: &[ShownState]) -> Result<Option<Counted>, Problem> {
    let retention = Retention::of(app, tenant);
    if wanted.iter().any(|state| matches!(state, ShownState::Stored(state) if retention.may_hide(*state))) {
        return Ok(None);
    }
    let mut kept = app.engine.store().counts(Some(tenant)).await?;
    let (mut due, mut is_complete) = (Counts::default(), true);
    if kept.waiting() > 0 && wanted.iter().any(|state| is_by_the_clock(*state)) {
        (due, is_complete) = look_at_due(app, tenant).await?;
    }
    if due.waiting() > 0 {
        // What was claimed meanwhile is not kept as waiting any more, and must not be taken off once more.
        let before = std::mem::replace(&mut kept, app.engine.store().counts(Some(tenant)).await?);
        is_complete &= before.waiting() == kept.waiting();
    }
    let count = |state: ShownState| match state {
        ShownState::Ready => due.waiting(),
        ShownState::Stored(state) => kept.of(state).saturating_sub(due.of(state)),
    };
    let all = JobState::ALL.map(ShownState::Stored);
    let states = if wanted.is_empty() { all.as_slice() } else { wanted };
    Ok(Some(Counted { states: states.iter().map(|state| (*state, count(*state))).collect(), is_complete }))
}

/// Whether the state that is kept does not say alone if a job is shown in this one.
const fn is_by_the_clock(state: ShownState) -> bool {
    match state {
        ShownState::Ready | ShownState::Stored(JobState::Scheduled | JobState::Retrying) => true,
        ShownState::Stored(
            JobState::Running
            | JobState::Succeeded
            | JobState::Dead
            | JobState::Cancelled
            | JobState::Skipped
            | JobState::Expired,
        ) => false,
    }
}

/// What waits and is due, by the state that is kept, and whether that is all of it.
async fn look_at_due(app: &App, tenant: &Tenant) -> Result<(Counts, bool), Problem> {
    let _turn = app.answers.turn().await;
    let ready = JobFilter { states: vec![ShownState::Ready], ..JobFilter::default() };
    let mut walk = Walk::new(app, plan(app, tenant, ready));
    let mut due = Counts::default();
    while let Some(jobs) = walk.next(usize::MAX).await? {
        for job in &jobs {
            if let Some(count) = due.0.get_mut(job.status.state.index()) {
                *count += 1;
            }
        }
    }
    Ok((due, walk.cursor().is_none()))
}

fn answer_states(counted: &Counted) -> Response {
    let total: u64 = counted.states.iter().map(|(_, count)| count).sum();
    let mut out = JsonWriter::with_capacity(256);
    out.object(|out| {
        out.key("count").number(total);
        out.key("complete").boolean(counted.is_complete);
        out.key("counts").object(|out| {
            for (state, count) in &counted.states {
                out.key(state.as_str()).number(*count);
            }
        });
        out.key("total").number(total);
    });
    answer::json(StatusCode::OK, out)
}
