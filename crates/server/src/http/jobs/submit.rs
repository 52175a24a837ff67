//! Taking one job in.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_api::wire::filter::ShownState;
use tidewheel_api::wire::flat_request::is_flat;
use tidewheel_api::wire::job_request::{JobReader, JobRequest};
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Spec};
use tidewheel_core::limits::IDEMPOTENCY_WINDOW_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{IdempotencyClaim, KeyUse, OnConflict, Submission, Submitted};

use super::flat;
use super::placing::Placing;
use crate::directory::TenantSettings;
use crate::http::admission::objection;
use crate::http::answer;
use crate::http::app::App;
use crate::http::body::Text;
use crate::http::call_key::conflict;
use crate::http::caller::Caller;
use crate::http::idempotency::{choose_key, earliest_first, fingerprint, header_key};
use crate::http::problem::Problem;
use crate::http::registered::Registered;
use crate::http::repeats::{admit_new, settle};
use crate::http::retention::Retention;
use crate::http::to_the_end::to_the_end;
use crate::http::trace::header_trace;

/// `POST /v1/jobs`
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    submit(&app, caller, parts.headers, body).await.map(Answer::into_response)
}

/// What became of a submission.
pub(crate) enum Answer {
    Job(TakenIn),
    /// What was sent in the flat form is answered in it.
    Flat(Response),
}

/// The job of a submission: a new one, or the first under its key.
pub(crate) struct TakenIn {
    pub(crate) id: JobId,
    /// None if the first job under the key is gone: a dead letter can be discarded within the key's time.
    pub(crate) state: Option<&'static str>,
    pub(crate) run_at: Timestamp,
    key: Option<Arc<str>>,
    pub(crate) is_duplicate: bool,
}

/// Takes a job in for whoever calls.
pub(crate) async fn submit(
    app: &Arc<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, Problem> {
    let body = Text::read(app, &headers, body).await?;
    app.check_open()?;
    if is_flat(&body.text) {
        return flat::submit(app, caller, &headers, &body.text).await.map(Answer::Flat);
    }
    let now = app.now();
    let key = header_key(&headers)?;
    let sent = Sent { app, caller: &caller, headers: &headers, key, text: &body.text };
    let settings = settings(app, &caller);
    let mut faults = Faults::default();
    let Some((request, key)) = sent.read(&settings, now, &mut faults) else {
        return sent.repeat(&settings, now, faults).await.map(Answer::Job);
    };

    let placing = Placing::of(app, &caller.tenant, &settings);
    let submission = submission(app, &caller.tenant, request, key.clone(), now, &placing);
    let new = TakenIn {
        id: submission.job.id,
        state: Some(submission.job.status.state.as_str()),
        run_at: submission.job.status.due_at,
        key: key.clone(),
        is_duplicate: false,
    };
    let taken = match take_in(app, &caller.tenant, submission).await? {
        Some(Submitted::New) => Ok(new),
        Some(Submitted::Duplicate(id)) => duplicate(app, &caller.tenant, id, key).await,
        Some(Submitted::Conflict(used_for)) => Err(conflict(used_for)),
        None => Err(Problem::new(Code::Internal, "the store did not answer for the job")),
    };
    taken.map(Answer::Job)
}

/// A job as it was sent.
struct Sent<'a> {
    app: &'a App,
    caller: &'a Caller,
    headers: &'a HeaderMap,
    /// The one in the header.
    key: Option<Arc<str>>,
    text: &'a str,
}

impl Sent<'_> {
    /// What is asked for, and under which key, if it came at `now`; `None` when there are faults.
    fn read(
        &self,
        settings: &TenantSettings,
        now: Timestamp,
        faults: &mut Faults,
    ) -> Option<(JobRequest, Option<Arc<str>>)> {
        let mut request = JobReader::new(now, &self.app.targets).read(self.text, &At::ROOT, faults);
        let in_body = request.as_ref().and_then(|request| request.idempotency_key.as_ref());
        let key = choose_key(in_body, self.key.as_ref(), faults);
        if let Some(request) = &mut request {
            let registered = Registered::of(self.app, self.caller);
            check(settings, &registered, self.caller, request, &At::ROOT, faults);
            request.trace = request.trace.take().or_else(|| header_trace(self.headers));
        }
        request.filter(|_| faults.is_empty()).map(|request| (request, key))
    }

    /// Answers what was refused at `now`. If that is for its time alone, it may be the repeat of a request that came in time:
    /// one that finds its job is answered with it, however late it is.
    async fn repeat(
        &self,
        settings: &TenantSettings,
        now: Timestamp,
        faults: Faults,
    ) -> Result<TakenIn, Problem> {
        let tenant = &self.caller.tenant;
        if faults.are_of_time()
            && let Some((request, Some(key))) =
                self.read(settings, earliest_first(now), &mut Faults::default())
            && let Some(held) = self.app.engine.store().find_key(now, tenant, &key).await?
            && let KeyUse::Job(id) = held.used_for
            && held.fingerprint == fingerprint(&request)
        {
            return duplicate(self.app, tenant, id, Some(key)).await;
        }
        Err(Problem::from_faults(faults))
    }
}

/// Stores one job, if there is room for it; says what became of it.
pub(super) async fn take_in(
    app: &Arc<App>,
    tenant: &Tenant,
    submission: Submission,
) -> Result<Option<Submitted>, Problem> {
    let jobs = vec![submission];
    let admitted = admit_new(app, tenant, &jobs).await?;
    let engine = app.engine.clone();
    let submitted = async move {
        let answers = engine.submit(jobs, OnConflict::KeepOthers).await;
        // Not before: the caller may be gone long before the store has answered.
        settle(admitted, answers.as_deref().unwrap_or_default());
        answers
    };
    Ok(to_the_end(submitted).await??.first().copied())
}

/// What is set for the caller's tenant.
pub(super) fn settings(app: &App, caller: &Caller) -> Arc<TenantSettings> {
    app.access.directory().tenant(&caller.tenant).settings
}

/// Has the job's type say what the job did not, and notes what the caller's key, the tenant's limits and the type have
/// against it.
pub(super) fn check(
    settings: &TenantSettings,
    registered: &Registered<'_>,
    caller: &Caller,
    request: &mut JobRequest,
    at: &At<'_>,
    faults: &mut Faults,
) {
    registered.fill(request);
    let JobRequest { kind, destination, payload, .. } = request;
    if let Some((code, field, detail)) =
        objection(&caller.identity, settings, kind, destination, payload.len())
    {
        faults.add(code, &at.field(field), detail);
        return;
    }
    registered.check(kind, payload, at, faults);
}

/// A job as it goes to the store.
pub(super) fn submission(
    app: &App,
    tenant: &Tenant,
    request: JobRequest,
    key: Option<Arc<str>>,
    now: Timestamp,
    placing: &Placing,
) -> Submission {
    let claim = key.clone().map(|key| IdempotencyClaim {
        key,
        fingerprint: fingerprint(&request),
        until: now.plus_ms(IDEMPOTENCY_WINDOW_MS),
    });
    let run_at = request.start.at(now);
    let spec = Spec {
        kind: request.kind,
        payload: request.payload,
        destination: request.destination,
        priority: request.priority,
        retry: request.retry,
        timeout_ms: request.timeout_ms,
        expires_at: request.expires_at,
        idempotency_key: key,
        labels: request.labels,
        occurrence: None,
        trace: request.trace,
        created_at: now,
    };
    Submission {
        job: Job::with_id(tenant.clone(), spec, placing.id(run_at, app.engine.random().tail())),
        key: claim,
        fresh: true,
    }
}

impl Answer {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Job(TakenIn { is_duplicate: true, .. }) => StatusCode::OK,
            Self::Job(_) => StatusCode::CREATED,
            Self::Flat(response) => response.status(),
        }
    }

    pub(crate) fn into_response(self) -> Response {
        match self {
            Self::Job(taken) => taken.into_response(),
            Self::Flat(response) => response,
        }
    }
}

impl TakenIn {
    /// The key that is told: a new job without one goes by its id, as [`Job::run_key`] has it.
    pub(crate) fn key_or<'a>(&'a self, id: &'a str) -> Option<&'a str> {
        self.key.as_deref().or((!self.is_duplicate).then_some(id))
    }

    fn into_response(self) -> Response {
        let id = self.id.to_string();
        let mut out = JsonWriter::with_capacity(256);
        out.object(|out| {
            out.key("id").text(&id);
            out.key("state").text_or_null(self.state);
            out.key("run_at").plain(self.run_at);
            out.key("idempotency_key").text_or_null(self.key_or(&id));
            out.key("duplicate").boolean(self.is_duplicate);
        });
        if self.is_duplicate {
            return answer::json(StatusCode::OK, out);
        }
        let mut response = answer::json(StatusCode::CREATED, out);
        if let Ok(location) = HeaderValue::try_from(["/v1/jobs/", &id].concat()) {
            response.headers_mut().insert(LOCATION, location);
        }
        response
    }
}

/// The first job under the key, as it is now.
async fn duplicate(app: &App, tenant: &Tenant, id: JobId, key: Option<Arc<str>>) -> Result<TakenIn, Problem> {
    let first = app.engine.store().get(tenant, vec![id]).await?.into_iter().next().flatten();
    let first = first.filter(|job| !Retention::of(app, tenant).hides(job));
    let now = app.now();
    Ok(TakenIn {
        id,
        state: first.as_ref().map(|job| ShownState::of(job, now).as_str()),
        run_at: first.as_ref().map_or(id.run_at(), |job| job.status.due_at),
        key,
        is_duplicate: true,
    })
}
