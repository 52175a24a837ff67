//! Taking many jobs in. The body is read as it arrives and never held as a whole; the jobs read from it are,
//! because all of them or none are taken in.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{RawQuery, Request, State};
use axum::response::Response;
use http::StatusCode;
use tidewheel_api::wire::fault::{At, Code, Faults, Place};
use tidewheel_api::wire::job_request::{JobReader, JobRequest};
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
use crate::http::app::{App, Targets};
use crate::http::body::{Intake, is_lines};
use crate::http::call_key::{self, batch_key, conflict, item_key};
use crate::http::caller::Caller;
use crate::http::idempotency::{digest, earliest_first, header_key};
use crate::http::overload::shed_beside_others;
use crate::http::problem::{Problem, refuse_faults};
use crate::http::registered::Registered;
use crate::http::repeats::{admit_each_new, admit_new, settle, taken_before};
use crate::http::to_the_end::to_the_end;
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
    let header_key = header_key(request.headers())?;
    let trace = header_trace(request.headers());
    let limits = SplitLimits { items_count_max: BATCH_COUNT_MAX, item_bytes_max: app.limits.body_bytes_max };
    let splitter = if is_lines(request.headers()) { Splitter::lines(limits) } else { Splitter::new(limits) };
    let mut splitter = splitter.with_key();
    let (parts, body) = request.into_parts();
    let mut intake = Intake::open(Arc::clone(&app), &parts.headers, body, app.limits.batch_bytes_max)?;
    let mut batch = Batch::new(&app, &caller, query.partial);
    batch.trace = trace;
    while let Some(bytes) = intake.next().await? {
        if let Err(fault) = splitter.push(&bytes, &mut |place, item| batch.add(place, item)) {
            intake.discard();
            return Err(fault.into());
        }
    }
    splitter.finish(&mut |place, item| batch.add(place, item))?;
    let prefix = if splitter.is_wrapped() { "/jobs" } else { "" };
    let key = batch_key(splitter.key(), header_key.as_ref())?;
    let (bound, claim) = batch.bind(key);
    let mut submissions = batch.refuse_late(bound).await?;
    let Batch { mut items, faults, .. } = batch;
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
    /// Of the request; an item may have its own.
    trace: Option<Box<TraceContext>>,
    partial: bool,
    /// With their places. They wait for the end of the body, which may be where its key stands.
    requests: Vec<(usize, JobRequest)>,
    /// What is wrong with those of them that are late, by their places. They may be repeats of what was not.
    late: BTreeMap<usize, Faults>,
    /// What is wrong with the whole.
    faults: Faults,
    /// For each item, when they are answered for one by one: `None` if it goes to the store.
    items: Vec<Option<Problem>>,
    count: usize,
}

impl<'a> Batch<'a> {
    fn new(app: &'a App, caller: &'a Caller, partial: bool) -> Self {
        let now = app.now();
        let reader = JobReader::new(now, &app.targets);
        let (requests, items) = (Vec::new(), Vec::new());
        let settings = settings(app, caller);
        Self {
            app,
            caller,
            placing: Placing::of(app, &caller.tenant, &settings),
            settings,
            registered: Registered::of(app, caller),
            reader,
            now,
            trace: None,
            partial,
            requests,
            late: BTreeMap::new(),
            faults: Faults::default(),
            items,
            count: 0,
        }
    }

    fn add(&mut self, place: Place, item: &[u8]) {
        let index = self.count;
        self.count += 1;
        if self.partial {
            self.items.push(None);
        }
        let mut faults = Faults::default();
        faults.read_from(place);
        if let Some(request) = self.read(item, &mut faults) {
            self.requests.push((index, request));
        } else if let Some(request) = self.read_late(item, &faults) {
            self.requests.push((index, request));
            self.late.insert(index, faults);
        } else {
            self.refuse(index, faults);
        }
    }

    fn read(&mut self, item: &[u8], faults: &mut Faults) -> Option<JobRequest> {
        let Ok(text) = std::str::from_utf8(item) else {
            faults.add(Code::MalformedJson, &At::ROOT, "the job is not UTF-8");
            return None;
        };
        let request = self.reader.read(text, &At::ROOT, faults)?;
        self.checked(request, faults)
    }

    /// What has these faults as it would have been read in time, if it is only late.
    fn read_late(&self, item: &[u8], faults: &Faults) -> Option<JobRequest> {
        let text = std::str::from_utf8(item).ok().filter(|_| faults.are_of_time())?;
        let mut faults = Faults::default();
        let mut reader = JobReader::new(earliest_first(self.now), &self.app.targets);
        let request = reader.read(text, &At::ROOT, &mut faults)?;
        self.checked(request, &mut faults)
    }

    fn checked(&self, mut request: JobRequest, faults: &mut Faults) -> Option<JobRequest> {
        request.trace = request.trace.or_else(|| self.trace.clone());
        check(&self.settings, &self.registered, self.caller, &mut request, &At::ROOT, faults);
        faults.is_empty().then_some(request)
    }

    fn refuse(&mut self, index: usize, faults: Faults) {
        if !self.partial {
            self.faults.append(&At::ROOT.item(index), faults);
        } else if let Some(item) = self.items.get_mut(index) {
            *item = Some(Problem::from_faults(faults).shortened(ITEM_FAULTS_MAX));
        }
    }
}

/// The jobs of a batch as they go to the store.
#[derive(Default)]
struct Bound {
    submissions: Vec<Submission>,
    /// Where they stand in the body.
    places: Vec<usize>,
    /// Which of them have their keys from the request's.
    keyed_by_batch: Vec<bool>,
}

impl Batch<'_> {
    /// The jobs as they go to the store, each under its key, and what the request's key itself stands for.
    ///
    /// The request's key is for the request as a whole: with a job more or a job less it is another one. Jobs that are
    /// answered for one by one are each a request of their own, and their key is that of any such batch.
    fn bind(&mut self, key: Option<Arc<str>>) -> (Bound, Option<IdempotencyClaim>) {
        let mut bound = self.under_keys(key.as_ref());
        let Some(key) = key else { return (bound, None) };
        let until = self.now.plus_ms(IDEMPOTENCY_WINDOW_MS);
        if self.partial {
            return (bound, Some(IdempotencyClaim { key, fingerprint: digest(&[MARK]), until }));
        }
        let claims = bound.submissions.iter().flat_map(|job| job.key.as_ref());
        let prints = claims.flat_map(|claim| claim.fingerprint);
        let whole = digest(&[&prints.collect::<Vec<u8>>()]);
        for (job, is_keyed_by_batch) in bound.submissions.iter_mut().zip(&bound.keyed_by_batch) {
            if let (Some(key), true) = (&mut job.key, is_keyed_by_batch) {
                key.fingerprint = digest(&[&whole, &key.fingerprint]);
            }
        }
        let claims = bound.submissions.iter().flat_map(|job| job.key.as_ref());
        let keys = claims.map(|claim| claim.key.as_bytes());
        let fingerprint = digest(&[MARK, &whole].into_iter().chain(keys).collect::<Vec<&[u8]>>());
        (bound, Some(IdempotencyClaim { key, fingerprint, until }))
    }

    /// Gives the jobs their keys.
    fn under_keys(&mut self, batch: Option<&Arc<str>>) -> Bound {
        let requests = std::mem::take(&mut self.requests);
        let mut bound = Bound::default();
        bound.submissions.reserve(requests.len());
        for (index, request) in requests {
            let own = request.idempotency_key.as_ref();
            let mut faults = Faults::default();
            let key = item_key(batch, own, index, &At::ROOT, &mut faults);
            if !faults.is_empty() {
                self.refuse(index, faults);
                continue;
            }
            bound.places.push(index);
            bound.keyed_by_batch.push(own.is_none() && key.is_some());
            let tenant = &self.caller.tenant;
            bound.submissions.push(submission(self.app, tenant, request, key, self.now, &self.placing));
        }
        bound
    }

    /// Refuses what is late, unless it was taken in before, when it was not. Gives the others.
    async fn refuse_late(&mut self, bound: Bound) -> Result<Vec<Submission>, Problem> {
        let Bound { mut submissions, places, .. } = bound;
        if self.late.is_empty() {
            return Ok(submissions);
        }
        let mut late = std::mem::take(&mut self.late);
        let jobs = places.iter().zip(&submissions).filter(|(place, _)| late.contains_key(*place));
        let (asked, claims): (Vec<usize>, Vec<_>) =
            jobs.map(|(place, job)| (*place, job.key.as_ref())).unzip();
        let taken = taken_before(self.app, &self.caller.tenant, &claims).await?;
        for (place, _) in asked.iter().zip(taken).filter(|(_, is_taken)| *is_taken) {
            late.remove(place);
        }
        let mut places = places.into_iter();
        submissions.retain(|_| places.next().is_none_or(|place| !late.contains_key(&place)));
        for (place, faults) in late {
            self.refuse(place, faults);
        }
        Ok(submissions)
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
