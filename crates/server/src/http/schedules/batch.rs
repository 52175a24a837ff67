//! Making many schedules. The request is checked as a whole before anything is made; should a name or a key
//! turn out to be taken after all, what the call has made is taken back.

use std::sync::Arc;

use axum::extract::{RawQuery, Request, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::fault::{At, Code, Fault, Faults, Place};
use tidewheel_api::wire::query::{self, Query};
use tidewheel_api::wire::schedule_request::ScheduleRequest;
use tidewheel_api::wire::split::{SplitLimits, Splitter};
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::limits::{BATCH_COUNT_MAX, IDEMPOTENCY_WINDOW_MS};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Edited, IdempotencyClaim, ScheduleCommand, ScheduleOrder, ScheduleRefusal};

use super::check::Checker;
use super::create::{creation, creation_claim, fingerprint, reader};
use super::room::Room;
use crate::engine::Engine;
use crate::http::answer;
use crate::http::app::App;
use crate::http::body::{Intake, is_lines};
use crate::http::call_key::{self, batch_key, item_key};
use crate::http::caller::Caller;
use crate::http::idempotency::{digest, header_key};
use crate::http::problem::{Problem, refuse_faults};
use crate::http::registered::Registered;
use crate::http::repeats::is_late_repeat;
use crate::http::to_the_end::to_the_end;

/// The field that may hold the schedules, as it is written.
const WRAPPER: &str = "\"schedules\"";
/// Schedules made in one write.
const ORDERS_COUNT_MAX: usize = 1_000;
/// Faults told of one item when items are answered for one by one.
const ITEM_FAULTS_MAX: usize = 5;
/// About what one item of the answer takes.
const ITEM_BYTES: usize = 64;
/// The digest of a batch begins with this, that of a schedule or of a batch of jobs never does.
const MARK: &[u8] = b"\0schedules";

type Answer = Result<Edited, ScheduleRefusal>;

/// `POST /v1/schedules/batch`
pub(crate) async fn many(
    State(app): State<Arc<App>>,
    caller: Caller,
    RawQuery(text): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    app.check_open()?;
    let mut faults = Faults::default();
    let query = Query::read(text.as_deref().unwrap_or_default(), query::BATCH, &mut faults);
    refuse_faults(faults)?;
    let header_key = header_key(request.headers())?;
    let limits = SplitLimits { items_count_max: BATCH_COUNT_MAX, item_bytes_max: app.limits.body_bytes_max };
    let splitter = if is_lines(request.headers()) { Splitter::lines(limits) } else { Splitter::new(limits) };
    let mut splitter = splitter.wrapped_in(WRAPPER).with_key();
    let (parts, body) = request.into_parts();
    let mut intake = Intake::open(Arc::clone(&app), &parts.headers, body, app.limits.batch_bytes_max)?;
    let mut batch = Batch::new(&app, &caller, query.partial);
    while let Some(bytes) = intake.next().await? {
        if let Err(fault) = splitter.push(&bytes, &mut |place, item| batch.add(place, item)) {
            intake.discard();
            return Err(fault.into());
        }
    }
    splitter.finish(&mut |place, item| batch.add(place, item))?;
    let prefix = if splitter.is_wrapped() { "/schedules" } else { "" };
    batch.key = batch_key(splitter.key(), header_key.as_ref())?;
    let whole = batch.whole_print();
    let claim = batch.claim(whole.as_ref());
    batch.check(whole.as_ref()).await?;
    batch.whole().map_err(|problem| problem.under(prefix))?;
    call_key::check_free(&app, &caller.tenant, claim.as_ref()).await?;
    let room = batch.take_room().await?;
    batch.whole().map_err(|problem| problem.under(prefix))?;
    let items = batch.items;

    let mut orders = Vec::with_capacity(items.len());
    let mut problems = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Ok(order) => {
                orders.push(*order);
                problems.push(None);
            }
            Err(problem) => problems.push(Some(problem)),
        }
    }
    let engine = app.engine.clone();
    let made = async move {
        let answers = make(&engine, orders, query.partial).await;
        drop(room);
        answers
    };
    let answers = to_the_end(made).await??;
    drop(intake);
    if !query.partial {
        refuse_refused(&answers).map_err(|problem| problem.under(prefix))?;
    }
    // Only now: a batch that was refused may be mended, and sent again under its key.
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    Ok(answer_each(problems, answers, query.partial))
}

/// Makes schedules; unless some may be refused, all of them or none.
async fn make(
    engine: &Engine,
    orders: Vec<ScheduleOrder>,
    partial: bool,
) -> Result<Vec<Answer>, tidewheel_store::Error> {
    let mut answers = Vec::with_capacity(orders.len());
    let mut orders = orders.into_iter();
    loop {
        let some: Vec<_> = orders.by_ref().take(ORDERS_COUNT_MAX).collect();
        if some.is_empty() {
            break;
        }
        answers.extend(engine.edit_schedules(some).await?);
        if !partial && answers.iter().any(Result::is_err) {
            break;
        }
    }
    if !partial && answers.iter().any(Result::is_err) {
        let made = answers.iter().flatten().filter(|edited| edited.changed);
        let taken_back: Vec<ScheduleOrder> = made
            .map(|edited| ScheduleOrder {
                tenant: edited.schedule.tenant.clone(),
                id: edited.schedule.id,
                if_version: None,
                command: ScheduleCommand::Delete,
                key: None,
            })
            .collect();
        engine.edit_schedules(taken_back).await?;
    }
    Ok(answers)
}

/// The schedules read so far.
struct Batch<'a> {
    app: &'a App,
    caller: &'a Caller,
    now: Timestamp,
    /// Known at the end of the body, which may be where it stands.
    key: Option<Arc<str>>,
    partial: bool,
    requests: Vec<Result<ScheduleRequest, Problem>>,
    /// What is wrong with the whole.
    faults: Faults,
    items: Vec<Result<Box<ScheduleOrder>, Problem>>,
}

impl<'a> Batch<'a> {
    fn new(app: &'a App, caller: &'a Caller, partial: bool) -> Self {
        let (requests, items) = (Vec::new(), Vec::new());
        Self { app, caller, now: app.now(), key: None, partial, requests, faults: Faults::default(), items }
    }

    fn add(&mut self, place: Place, item: &[u8]) {
        let index = self.requests.len();
        let mut faults = Faults::default();
        faults.read_from(place);
        let request = self.read(item, &mut faults).ok_or_else(|| self.refusal(index, faults));
        self.requests.push(request);
    }

    fn read(&self, item: &[u8], faults: &mut Faults) -> Option<ScheduleRequest> {
        let Ok(text) = std::str::from_utf8(item) else {
            faults.add(Code::MalformedJson, &At::ROOT, "the schedule is not UTF-8");
            return None;
        };
        reader(self.app, self.now).read(text, &At::ROOT, faults)
    }

    /// What an item with these faults is answered with. Unless they are answered for one by one, the whole is refused for them.
    fn refusal(&mut self, index: usize, faults: Faults) -> Problem {
        if self.partial {
            return Problem::from_faults(faults).shortened(ITEM_FAULTS_MAX);
        }
        self.faults.append(&At::ROOT.item(index), faults);
        Problem::new(Code::Internal, "a schedule was refused without a reason")
    }

    /// Checks all of them, and turns them into orders.
    async fn check(&mut self, whole: Option<&[u8; 16]>) -> Result<(), Problem> {
        let mut checker = Checker::new(self.app, self.caller, self.now);
        let registered = Registered::of(self.app, self.caller);
        for (index, request) in std::mem::take(&mut self.requests).into_iter().enumerate() {
            let mut request = match request {
                Ok(request) => request,
                Err(problem) => {
                    self.items.push(Err(problem));
                    continue;
                }
            };
            let mut faults = Faults::default();
            let own = request.definition.idempotency_key.as_ref();
            let key = item_key(self.key.as_ref(), own, index, &At::ROOT, &mut faults);
            let mut claim = creation_claim(key, &request, self.now);
            if let (Some(claim), Some(whole), None) = (&mut claim, whole, own) {
                claim.fingerprint = digest(&[whole, &claim.fingerprint]);
            }
            registered.fill_schedule(&mut request);
            checker.check(&request, None, &At::ROOT, &mut faults).await?;
            let tenant = &self.caller.tenant;
            let is_fine =
                faults.is_empty() || is_late_repeat(self.app, tenant, claim.as_ref(), &faults).await?;
            let item = if is_fine {
                Ok(Box::new(creation(self.app, tenant, request, claim)))
            } else {
                Err(self.refusal(index, faults))
            };
            self.items.push(item);
        }
        Ok(())
    }
}

impl Batch<'_> {
    /// The request's key is for the request as a whole: with a schedule more or a schedule less it is another one. Schedules
    /// that are answered for one by one are each a request of their own.
    fn whole_print(&self) -> Option<[u8; 16]> {
        if self.partial || self.key.is_none() {
            return None;
        }
        let prints = self.requests.iter().flatten().flat_map(fingerprint);
        Some(digest(&[&prints.collect::<Vec<u8>>()]))
    }

    /// What the request's key itself stands for. That of schedules that are answered for one by one is that of any such
    /// batch.
    fn claim(&self, whole: Option<&[u8; 16]>) -> Option<IdempotencyClaim> {
        let key = Arc::clone(self.key.as_ref()?);
        let parts: Vec<&[u8]> = std::iter::once(MARK).chain(whole.map(<[u8; 16]>::as_slice)).collect();
        let until = self.now.plus_ms(IDEMPOTENCY_WINDOW_MS);
        Some(IdempotencyClaim { key, fingerprint: digest(&parts), until })
    }

    /// Refuses the whole if something is wrong with it.
    fn whole(&mut self) -> Result<(), Problem> {
        refuse_faults(std::mem::take(&mut self.faults))
    }

    /// Takes room for those that are not refused yet, and refuses those for which there is none.
    async fn take_room(&mut self) -> Result<Room, Problem> {
        let going =
            self.items.iter().enumerate().filter_map(|(index, item)| Some((index, item.as_ref().ok()?)));
        let (places, claims): (Vec<_>, Vec<_>) =
            going.map(|(index, order)| (index, order.key.as_ref())).unzip();
        let room = Room::take(self.app, &self.caller.tenant, &claims).await?;
        for (going, detail) in room.refused() {
            let Some(index) = places.get(*going).copied() else { continue };
            if !self.partial {
                self.faults.add(Code::LimitReached, &At::ROOT.item(index), detail.clone());
            } else if let Some(item) = self.items.get_mut(index) {
                *item = Err(Problem::new(Code::LimitReached, detail.clone()));
            }
        }
        Ok(room)
    }
}

/// What is taken after all, for each item it concerns.
fn refuse_refused(answers: &[Answer]) -> Result<(), Problem> {
    let mut faults = Faults::default();
    for (index, answer) in answers.iter().enumerate() {
        if let Err(refusal) = answer {
            let Fault { code, pointer, detail } = Problem::from(refusal.clone()).into_fault();
            let item = At::ROOT.item(index);
            match pointer.strip_prefix('/') {
                Some(field) => faults.add(code, &item.field(field), detail),
                None => faults.add(code, &item, detail),
            }
        }
    }
    refuse_faults(faults)
}

fn answer_each(problems: Vec<Option<Problem>>, answers: Vec<Answer>, partial: bool) -> Response {
    let mut answers = answers.into_iter();
    let (mut taken, mut refused) = (0, 0);
    let mut out = JsonWriter::with_capacity(ITEM_BYTES * problems.len() + 64);
    out.object(|out| {
        out.key("schedules").array(|out| {
            for problem in problems {
                let problem = match problem {
                    Some(problem) => problem,
                    None => match answers.next() {
                        Some(Ok(edited)) => {
                            taken += 1;
                            out.object(|out| {
                                out.key("id").plain(edited.schedule.id);
                                out.key("duplicate").boolean(!edited.changed);
                            });
                            continue;
                        }
                        Some(Err(refusal)) => Problem::from(refusal),
                        None => Problem::new(Code::Internal, "the store did not answer for the schedule"),
                    },
                };
                refused += 1;
                out.object(|out| {
                    out.key("error");
                    problem.write(out);
                });
            }
        });
        out.key("count").count(taken);
        if partial {
            out.key("refused").count(refused);
        }
    });
    answer::json(if taken > 0 || !partial { StatusCode::CREATED } else { StatusCode::OK }, out)
}
