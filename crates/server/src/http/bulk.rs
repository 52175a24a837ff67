//! One order for many jobs: those named, or those that match.
//!
//! A call under an idempotency key takes the key, and with each job one made of the key and the job's id: sent
//! again, it acts on no job a second time, and goes on where it broke off.

use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::filter::ShownState;
use tidewheel_api::wire::order_request::{BulkRequest, Which};
use tidewheel_api::wire::query::cursor_text;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, State};
use tidewheel_core::limits::BULK_IDS_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Applied, IdempotencyClaim, Order, Refusal};

use super::app::App;
use super::problem::Problem;
use super::retention::Retention;
use super::scope::Scope;
use super::to_the_end::to_the_end;
use super::walk::{Plan, Walk};
use super::{answer, call_key, caller};

/// Orders given to the engine at once.
const ORDERS_COUNT_MAX: usize = 1_000;
/// Records looked at in one call, before it answers where to go on.
const LOOKED_COUNT_MAX: usize = 100_000;

/// What is done with each job.
pub(super) struct Bulk<'a> {
    pub(super) app: &'a App,
    pub(super) tenant: &'a Tenant,
    /// What the caller may act on.
    pub(super) scope: Scope<'a>,
    /// Which jobs, and when they start.
    pub(super) request: BulkRequest,
    /// The states a filter means that names none.
    pub(super) states_default: &'static [State],
    /// The order for a job that starts at this instant.
    pub(super) command: fn(Timestamp) -> Command,
    /// The key of the call.
    pub(super) key: Option<IdempotencyClaim>,
}

impl Bulk<'_> {
    /// Gives the orders and answers for each.
    pub(super) async fn run(self) -> Result<Response, Problem> {
        call_key::take(self.app, self.tenant, self.key.as_ref()).await?;
        let mut sheet = Sheet::new(self.app.now());
        let next = match &self.request.which {
            Which::Ids(ids) => {
                for ids in ids.chunks(ORDERS_COUNT_MAX) {
                    self.order(ids.to_vec(), &mut sheet).await?;
                }
                None
            }
            Which::Matching { filter, cursor } => {
                let mut filter = filter.clone();
                if filter.states.is_empty() {
                    filter.states = self.states_default.iter().copied().map(ShownState::Stored).collect();
                    if filter.states.contains(&ShownState::Stored(State::Scheduled)) {
                        filter.states.push(ShownState::Ready);
                    }
                }
                let plan = Plan {
                    tenant: self.tenant,
                    filter,
                    after: *cursor,
                    now: sheet.now,
                    looked_max: LOOKED_COUNT_MAX,
                };
                let mut walk = Walk::new(self.app, plan);
                while sheet.count < BULK_IDS_COUNT_MAX
                    && let Some(jobs) = walk.next(BULK_IDS_COUNT_MAX - sheet.count).await?
                {
                    self.order(jobs.into_iter().map(|job| job.id).collect(), &mut sheet).await?;
                }
                walk.cursor()
            }
        };
        Ok(sheet.answer(next))
    }

    async fn order(&self, ids: Vec<JobId>, sheet: &mut Sheet) -> Result<(), Problem> {
        if ids.is_empty() {
            return Ok(());
        }
        let (ids, beyond) = self.scope.sort(ids).await?;
        let (ids, hidden) = Retention::of(self.app, self.tenant).seen(self.app, self.tenant, ids).await?;
        let orders = ids.iter().enumerate().map(|(index, id)| Order {
            tenant: self.tenant.clone(),
            id: *id,
            command: (self.command)(self.request.start_of(sheet.count + index)),
            key: self.key.as_ref().map(|call| call_key::claim_for_job(call, *id)),
        });
        let (engine, orders) = (self.app.engine.clone(), orders.collect());
        let results = to_the_end(async move { engine.command(orders).await }).await??;
        for (id, result) in ids.into_iter().zip(results) {
            sheet.note(id, result.map_err(problem_of));
        }
        for id in hidden {
            sheet.note(id, Err(caller::no_job()));
        }
        for (id, problem) in beyond {
            sheet.note(id, Err(problem));
        }
        Ok(())
    }
}

/// Why an order was not obeyed.
fn problem_of(refusal: Refusal) -> Problem {
    if refusal == Refusal::NotFound { caller::no_job() } else { refusal.into() }
}

/// The answer, as it grows.
struct Sheet {
    items: JsonWriter,
    now: Timestamp,
    count: usize,
    done: usize,
}

impl Sheet {
    fn new(now: Timestamp) -> Self {
        Self { items: JsonWriter::default(), now, count: 0, done: 0 }
    }

    fn note(&mut self, id: JobId, result: Result<Applied, Problem>) {
        self.count += 1;
        let now = self.now;
        let (state, problem) = match result {
            Ok(applied) => (Some(ShownState::of(&applied.job, now)), None),
            Err(problem) => (None, Some(problem)),
        };
        self.done += usize::from(problem.is_none());
        self.items.object(|out| {
            out.key("id").plain(id);
            out.key("ok").boolean(problem.is_none());
            if let Some(state) = state {
                out.key("state").text(state.as_str());
            }
            if let Some(problem) = problem {
                out.key("error");
                problem.write(out);
            }
        });
    }

    fn answer(self, next: Option<JobId>) -> Response {
        let items = self.items.into_bytes();
        let mut out = JsonWriter::with_capacity(items.len() + 128);
        out.object(|out| {
            out.key("items").array(|out| {
                if !items.is_empty() {
                    out.raw(&items);
                }
            });
            out.key("count").count(self.done);
            out.key("refused").count(self.count - self.done);
            out.key("next_cursor").text_or_null(next.map(cursor_text).as_deref());
        });
        answer::json(StatusCode::OK, out)
    }
}
