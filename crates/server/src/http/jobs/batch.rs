//! Taking many jobs in. The body is read as it arrives and never held as a whole; the jobs read from it are,
//! because all of them or none are taken in.

use std::sync::Arc;

use axum::extract::{RawQuery, Request, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::fault::{At, Code, Faults, Place};
use tidewheel_api::wire::job_request::JobReader;
use tidewheel_api::wire::query::{self, Query};
use tidewheel_api::wire::split::{SplitLimits, Splitter};
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Priority;
use tidewheel_core::limits::{BATCH_COUNT_MAX, IDEMPOTENCY_WINDOW_MS};
use tidewheel_core::time::Timestamp;
use tidewheel_core::trace::TraceContext;
use tidewheel_store::{IdempotencyClaim, OnConflict, Submission, Submitted};

use super::placing::Placing;
use super::submit::{check, settings, submission};
use crate::directory::TenantSettings;
use crate::http::answer;
use crate::http::app::{App, Targets, to_the_end};
use crate::http::body::{Intake, is_lines};
use crate::http::call_key::{self, conflict, item_key};
use crate::http::caller::Caller;
use crate::http::idempotency::{digest, header_key};
use crate::http::overload::shed_beside_others;
use crate::http::problem::{Problem, refuse_faults};
use crate::http::registered::Registered;
use crate::http::repeats::{admit_each_new, admit_new, settle};
use crate::http::trace::header_trace;

/// Faults told of one item when items are answered for one by one.
const ITEM_FAULTS_MAX: usize = 5;
/// About what one item of the answer takes.
const ITEM_BYTES: usize = 64;
/// The digest of a batch begins with this, that of a job never does.
const MARK: &[u8] = b"\0batch";

/// `POST /v1/jobs/batch`
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
    let key = header_key(request.headers())?;
    let trace = header_trace(request.headers());
    let limits = SplitLimits { items_count_max: BATCH_COUNT_MAX, item_bytes_max: app.limits.body_bytes_max };
    let mut splitter =
        if is_lines(request.headers()) { Splitter::lines(limits) } else { Splitter::new(limits) };
    let mut intake = Intake::open(Arc::clone(&app), request, app.limits.batch_bytes_max).await?;
    let mut batch = Batch::new(&app, &caller, key, query.partial);
    batch.trace = trace;
    while let Some(bytes) = intake.next().await? {
        if let Err(fault) = splitter.push(&bytes, &mut |place, item| batch.add(place, item)) {
            intake.discard();
            return Err(fault.into());
        }
    }
    splitter.finish(&mut |place, item| batch.add(place, item))?;
    let prefix = if splitter.is_wrapped() { "/jobs" } else { "" };
    let claim = batch.bind();
    let Batch { mut submissions, mut items, faults, .. } = batch;
    refuse_faults(faults).map_err(|problem| problem.under(prefix))?;
    call_key::check_free(&app, &caller.tenant, claim.as_ref()).await?;

    let admitted = if query.partial {
        admit_each_new(&app, &caller.tenant, &submissions).await?.map(|some| {
            leave_out(&some.shed, &mut submissions, &mut items);
            some.admitted
        })
    } else {
        admit_new(&app, &caller.tenant, &submissions).await?
    };
    let ids: Vec<JobId> = submissions.iter().map(|submission| submission.job.id).collect();
    let engine = app.engine.clone();
    let on_conflict = if query.partial { OnConflict::KeepOthers } else { OnConflict::KeepNone };
    let submitted = async move {
        let answers = engine.submit(submissions, on_conflict).await;
        settle(admitted, answers.as_deref().unwrap_or_default());
        answers
    };
    let answers = to_the_end(submitted).await??;
    drop(intake);
    if !query.partial {
        refuse_conflicts(&answers).map_err(|problem| problem.under(prefix))?;
    }
    // Only now: a batch that was refused may be mended, and sent again under its key.
    call_key::take(&app, &caller.tenant, claim.as_ref()).await?;
    Ok(if query.partial { answer_each(items, &ids, &answers) } else { answer_all(&ids, &answers) })
}

/// The jobs read so far.
struct Batch<'a> {
    app: &'a App,
    caller: &'a Caller,
    settings: Arc<TenantSettings>,
    registered: Registered<'a>,
    reader: JobReader<'a, Targets>,
    now: Timestamp,
    placing: Placing,
    key: Option<Arc<str>>,
    /// Of the request; an item may have its own.
    trace: Option<Box<TraceContext>>,
    partial: bool,
    submissions: Vec<Submission>,
    /// Which of them have their keys from the request's.
    keyed_by_batch: Vec<bool>,
    /// What is wrong with the whole.
    faults: Faults,
    /// For each item, when they are answered for one by one: `None` if it goes to the store.
    items: Vec<Option<Problem>>,
    count: usize,
}

impl<'a> Batch<'a> {
    fn new(app: &'a App, caller: &'a Caller, key: Option<Arc<str>>, partial: bool) -> Self {
        let now = app.now();
        let reader = JobReader::new(now, &app.targets);
        let (submissions, items) = (Vec::new(), Vec::new());
        let settings = settings(app, caller);
        Self {
            app,
            caller,
            placing: Placing::of(app, &caller.tenant, &settings),
            settings,
            registered: Registered::of(app, caller),
            reader,
            now,
            key,
            trace: None,
            partial,
            submissions,
            keyed_by_batch: Vec::new(),
            faults: Faults::default(),
            items,
            count: 0,
        }
    }

    fn add(&mut self, place: Place, item: &[u8]) {
        let index = self.count;
        self.count += 1;
        if !self.partial {
            let mut faults = std::mem::take(&mut self.faults);
            faults.read_from(place);
            self.read(item, index, &At::ROOT.item(index), &mut faults);
            self.faults = faults;
            return;
        }
        let mut faults = Faults::default();
        faults.read_from(place);
        self.read(item, index, &At::ROOT, &mut faults);
        let problem = (!faults.is_empty()).then(|| Problem::from_faults(faults).shortened(ITEM_FAULTS_MAX));
        self.items.push(problem);
    }

    fn read(&mut self, item: &[u8], index: usize, at: &At<'_>, faults: &mut Faults) {
        let Ok(text) = std::str::from_utf8(item) else {
            faults.add(Code::MalformedJson, at, "the job is not UTF-8");
            return;
        };
        let Some(mut request) = self.reader.read(text, at, faults) else { return };
        request.trace = request.trace.or_else(|| self.trace.clone());
        let before = faults.count();
        check(&self.settings, &self.registered, self.caller, &mut request, at, faults);
        let key = item_key(self.key.as_ref(), request.idempotency_key.as_ref(), index, at, faults);
        if faults.count() > before {
            return;
        }
        self.keyed_by_batch.push(request.idempotency_key.is_none() && key.is_some());
        let tenant = &self.caller.tenant;
        self.submissions.push(submission(self.app, tenant, request, key, self.now, &self.placing));
    }
}

impl Batch<'_> {
    /// The request's key is for the request as a whole: with a job more or a job less it is another one. Jobs that are
    /// answered for one by one are each a request of their own, and their key is that of any such batch. Gives what the key
    /// itself stands for.
    fn bind(&mut self) -> Option<IdempotencyClaim> {
        let key = Arc::clone(self.key.as_ref()?);
        let until = self.now.plus_ms(IDEMPOTENCY_WINDOW_MS);
        if self.partial {
            return Some(IdempotencyClaim { key, fingerprint: digest(&[MARK]), until });
        }
        let prints = self.submissions.iter().flat_map(|job| job.key.as_ref()).flat_map(|key| key.fingerprint);
        let whole = digest(&[&prints.collect::<Vec<u8>>()]);
        for (job, is_keyed_by_batch) in self.submissions.iter_mut().zip(&self.keyed_by_batch) {
            if let (Some(key), true) = (&mut job.key, is_keyed_by_batch) {
                key.fingerprint = digest(&[&whole, &key.fingerprint]);
            }
        }
        let keys = self.submissions.iter().flat_map(|job| job.key.as_ref()).map(|key| key.key.as_bytes());
        let parts: Vec<&[u8]> = [MARK, &whole].into_iter().chain(keys).collect();
        Some(IdempotencyClaim { key, fingerprint: digest(&parts), until })
    }
}

/// Leaves out jobs of priorities that are not taken now, with an answer for each.
fn leave_out(shed: &[Priority], submissions: &mut Vec<Submission>, items: &mut [Option<Problem>]) {
    if shed.is_empty() {
        return;
    }
    let is_shed = |submission: &Submission| shed.contains(&submission.job.spec.priority);
    let going = items.iter_mut().filter(|item| item.is_none());
    for (item, submission) in going.zip(submissions.iter()) {
        *item = is_shed(submission).then(|| shed_beside_others(submission.job.spec.priority));
    }
    submissions.retain(|submission| !is_shed(submission));
}

fn refuse_conflicts(answers: &[Submitted]) -> Result<(), Problem> {
    let mut faults = Faults::default();
    for (index, answer) in answers.iter().enumerate() {
        if let Submitted::Conflict(first) = answer {
            let detail = format!("the key belongs to {first}, which this is not");
            let item = At::ROOT.item(index);
            faults.add(Code::IdempotencyConflict, &item.field("idempotency_key"), detail);
        }
    }
    refuse_faults(faults)
}

fn answer_all(ids: &[JobId], answers: &[Submitted]) -> Response {
    let mut out = JsonWriter::with_capacity(ITEM_BYTES * ids.len() + 64);
    out.object(|out| {
        out.key("jobs").array(|out| {
            for (id, answer) in ids.iter().zip(answers) {
                write_taken(out, *id, *answer);
            }
        });
        out.key("count").count(ids.len());
    });
    answer::json(StatusCode::CREATED, out)
}

/// Answers for each item: taken, or why not. Nothing taken at all is not `201`.
fn answer_each(items: Vec<Option<Problem>>, ids: &[JobId], answers: &[Submitted]) -> Response {
    let mut stored = ids.iter().zip(answers);
    let (mut taken, mut refused) = (0, 0);
    let mut out = JsonWriter::with_capacity(ITEM_BYTES * items.len() + 64);
    out.object(|out| {
        out.key("jobs").array(|out| {
            for item in items {
                let problem = match item {
                    Some(problem) => problem,
                    None => match stored.next() {
                        Some((_, Submitted::Conflict(first))) => conflict(*first),
                        Some((id, answer)) => {
                            taken += 1;
                            write_taken(out, *id, *answer);
                            continue;
                        }
                        None => Problem::new(Code::Internal, "the store did not answer for the job"),
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
        out.key("refused").count(refused);
    });
    answer::json(if taken > 0 { StatusCode::CREATED } else { StatusCode::OK }, out)
}

fn write_taken(out: &mut JsonWriter, id: JobId, answer: Submitted) {
    let (id, duplicate) = match answer {
        Submitted::New | Submitted::Conflict(_) => (id, false),
        Submitted::Duplicate(first) => (first, true),
    };
    out.object(|out| {
        out.key("id").plain(id);
        out.key("duplicate").boolean(duplicate);
    });
}
