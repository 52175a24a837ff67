//! Changing schedules that exist.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use tidewheel_api::wire::call_key::read_bare;
use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_api::wire::schedule_request::ScheduleRequest;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::job::Priority;
use tidewheel_core::schedule::{Schedule, ScheduleId, State as ScheduleState, anchored, check_name};
use tidewheel_store::{Edited, IdempotencyClaim, KeyUse, ScheduleCommand, ScheduleOrder, ScheduleRefusal};

use super::check::Checker;
use super::create::{give, make, reader, shown};
use super::read::find;
use super::room::Room;
use super::version::{Wanted, only_new, stale};
use crate::http::admission::{Asked, admit};
use crate::http::answer;
use crate::http::app::App;
use crate::http::body::Text;
use crate::http::call_key::{CallKey, done_before};
use crate::http::caller::{Caller, NamePath, SchedulePath};
use crate::http::jobs::change::whole;
use crate::http::problem::{Problem, refuse_faults};
use crate::http::registered::Registered;
use crate::http::repeats::{is_by_limit, is_taken};
use crate::http::scope::{Act, Scope};

/// How often a change is worked out anew because another came in between.
const TRIES_MAX: usize = 5;

/// `PATCH /v1/schedules/{id}`
pub(crate) async fn amend(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
    headers: HeaderMap,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    let (wanted, claim) = (Wanted::of(&headers), call.claim_by_header(app.now(), &body.text));
    for _ in 0..TRIES_MAX {
        let current = find(&app, &caller.tenant, id).await?;
        // Asked after the schedule was read: if the first call is done in between, the version read is the old one.
        if done_before(&app, &caller.tenant, claim.as_ref()).await?.is_some() {
            return Ok(shown(StatusCode::OK, &current, None));
        }
        wanted.check(&current)?;
        let request = whole(|faults| reader(&app, app.now()).change(&body.text, &current, faults))?;
        check(&app, &caller, &request, &current).await?;
        match change(&app, &current, request, claim.clone()).await? {
            Err(ScheduleRefusal::StaleVersion { .. }) if !wanted.is_certain() => {}
            result => return Ok(shown(StatusCode::OK, &result?, None)),
        }
    }
    Err(busy())
}

/// `PUT /v1/schedules/by-name/{name}`
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    caller: Caller,
    NamePath(name): NamePath,
    headers: HeaderMap,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    app.check_open()?;
    check_name(&name).map_err(|fault| Problem::new(Code::InvalidValue, fault.to_string()))?;
    let (name, wanted) = (Arc::from(name), Wanted::of(&headers));
    let claim = call.claim_by_header(app.now(), &body.text);
    for _ in 0..TRIES_MAX {
        let now = app.now();
        let mut request = whole(|faults| reader(&app, now).read_named(&body.text, &name, faults))?;
        Registered::of(&app, &caller).fill_schedule(&mut request);
        let current = match app.engine.store().find_schedule(&caller.tenant, &name).await? {
            Some(id) => app.engine.store().schedules(&caller.tenant, vec![id]).await?.pop().flatten(),
            None => None,
        };
        if let Some(used_for) = done_before(&app, &caller.tenant, claim.as_ref()).await?
            && let Some(response) = put_before(&app, &caller, used_for).await?
        {
            return Ok(response);
        }
        let Some(current) = current else {
            if wanted != Wanted::Any {
                return Err(Problem::new(Code::StaleVersion, "there is no schedule of that name"));
            }
            let mut faults = Faults::default();
            let mut checker = Checker::new(&app, &caller, now);
            checker.check(&request, None, &At::ROOT, &mut faults).await?;
            refuse_faults(faults)?;
            let room = Room::for_one(&app, &caller.tenant, claim.as_ref()).await?;
            match make(&app, &caller.tenant, request, claim.clone(), room).await? {
                Err(ScheduleRefusal::NameTaken(_)) => continue,
                edited => return Ok(created(&edited?.schedule)),
            }
        };
        if only_new(&headers) {
            return Err(stale(current.version));
        }
        wanted.check(&current)?;
        // Said again, an interval goes on counting from where it did: that is no other rule.
        let rule = Arc::clone(&request.definition.rule);
        request.definition.rule = anchored(rule, Some(&current.definition.rule), now);
        check(&app, &caller, &request, &current).await?;
        match change(&app, &current, request, claim.clone()).await? {
            Err(ScheduleRefusal::StaleVersion { .. }) if !wanted.is_certain() => {}
            Err(ScheduleRefusal::NotFound) => {}
            result => return Ok(shown(StatusCode::OK, &result?, None)),
        }
    }
    Err(busy())
}

/// `DELETE /v1/schedules/{id}`
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
    headers: HeaderMap,
    call: CallKey,
) -> Result<Response, Problem> {
    let key = call.claim(app.now(), "")?;
    match order(&app, &caller, id, &headers, (ScheduleCommand::Delete, key)).await? {
        Ok(_) | Err(ScheduleRefusal::Gone) => Ok(answer::no_content()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// `POST /v1/schedules/{id}/pause`
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
    headers: HeaderMap,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    let key = bare_key(&app, &call, &body)?;
    let edited = order(&app, &caller, id, &headers, (ScheduleCommand::Pause, key)).await??;
    Ok(shown(StatusCode::OK, &edited.schedule, None))
}

/// `POST /v1/schedules/{id}/resume`
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
    headers: HeaderMap,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    let key = bare_key(&app, &call, &body)?;
    let edited = order(&app, &caller, id, &headers, (ScheduleCommand::Resume, key)).await??;
    Ok(shown(StatusCode::OK, &edited.schedule, None))
}

/// `POST /v1/schedules/{id}/trigger`
pub(crate) async fn trigger(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
    headers: HeaderMap,
    call: CallKey,
    body: Text,
) -> Result<Response, Problem> {
    let key = bare_key(&app, &call, &body)?;
    // One more job, as if it were submitted; how urgent it is, is not worth a look.
    let admitted = match admit(&app, &caller.tenant, Asked::one(Priority::Normal)).await {
        Ok(admitted) => Some(admitted),
        Err(problem) if is_by_limit(&problem) && is_taken(&app, &caller.tenant, key.as_ref()).await? => None,
        Err(problem) => return Err(problem),
    };
    let edited = order(&app, &caller, id, &headers, (ScheduleCommand::Trigger, key)).await;
    if let Some(admitted) = admitted
        && !matches!(&edited, Ok(Ok(edited)) if edited.repeats.is_none())
    {
        admitted.give_back(1);
    }
    let edited = edited??;
    let Some(job) = edited.jobs.last() else {
        return Err(Problem::new(Code::Internal, "the schedule was triggered, but made no job"));
    };
    let mut out = JsonWriter::with_capacity(256);
    out.object(|out| {
        out.key("job_id").plain(job.id);
        out.key("schedule_id").plain(id);
        out.key("state").text(job.status.state.as_str());
        out.key("run_at").plain(job.status.due_at);
    });
    Ok(located(answer::json(StatusCode::CREATED, out), &format!("/v1/jobs/{}", job.id)))
}

/// Refuses a change that the caller's key, the tenant's limits or calendars do not allow.
async fn check(
    app: &App,
    caller: &Caller,
    request: &ScheduleRequest,
    current: &Schedule,
) -> Result<(), Problem> {
    Scope::of(app, caller, act_of(request, current)).check_template(&current.definition.template)?;
    let mut faults = Faults::default();
    let mut checker = Checker::new(app, caller, app.now());
    checker.check(request, Some(&current.definition), &At::ROOT, &mut faults).await?;
    refuse_faults(faults)
}

/// Whoever changes when a schedule fires, or has it go on, has its jobs run.
fn act_of(request: &ScheduleRequest, current: &Schedule) -> Act {
    let (new, old) = (&request.definition, &current.definition);
    let fires_alike = new.rule == old.rule
        && new.window_ms == old.window_ms
        && new.misfire == old.misfire
        && new.overlap == old.overlap;
    let goes_on = request.paused == Some(false) && current.state == ScheduleState::Paused;
    if fires_alike && !goes_on { Act::Change } else { Act::Run }
}

/// The key of a call that needs no body.
fn bare_key(app: &App, call: &CallKey, body: &Text) -> Result<Option<IdempotencyClaim>, Problem> {
    whole(|faults| read_bare(&body.text, faults))?;
    call.claim(app.now(), &body.text)
}

/// The answer to a repeated `PUT`: the schedule it was about, if that is still there.
async fn put_before(app: &App, caller: &Caller, used_for: KeyUse) -> Result<Option<Response>, Problem> {
    let (id, is_new) = match used_for {
        KeyUse::NewSchedule(id) => (id, true),
        KeyUse::Schedule(id) => (id, false),
        KeyUse::Job(_) | KeyUse::Call => return Ok(None),
    };
    let found = app.engine.store().schedules(&caller.tenant, vec![id]).await?.pop().flatten();
    Ok(found.map(|schedule| if is_new { created(&schedule) } else { shown(StatusCode::OK, &schedule, None) }))
}

/// Makes a schedule what is asked for, all of it by one order: what is refused changes nothing.
async fn change(
    app: &App,
    current: &Schedule,
    request: ScheduleRequest,
    key: Option<IdempotencyClaim>,
) -> Result<Result<Schedule, ScheduleRefusal>, Problem> {
    let ScheduleRequest { name, paused, definition, left_out: _, excludes_by_object: _ } = request;
    let command = ScheduleCommand::Update { definition: Box::new(definition), name, paused };
    let (tenant, id, if_version) = (current.tenant.clone(), current.id, Some(current.version));
    let edited = give(app, ScheduleOrder { tenant, id, if_version, command, key }).await?;
    Ok(edited.map(|edited| edited.schedule))
}

/// Gives one order for the version the caller means.
async fn order(
    app: &App,
    caller: &Caller,
    id: ScheduleId,
    headers: &HeaderMap,
    (command, key): (ScheduleCommand, Option<IdempotencyClaim>),
) -> Result<Result<Edited, ScheduleRefusal>, Problem> {
    app.check_open()?;
    let runs = matches!(command, ScheduleCommand::Trigger | ScheduleCommand::Resume);
    let act = if runs { Act::Run } else { Act::Change };
    Scope::of(app, caller, act).check_schedule(id).await?;
    let wanted = Wanted::of(headers);
    let mut if_version = None;
    if wanted.is_certain() {
        // One that is not there is for the store to answer, which knows whether this call has removed it.
        let current = app.engine.store().schedules(&caller.tenant, vec![id]).await?.pop().flatten();
        if let Some(current) = current
            && done_before(app, &caller.tenant, key.as_ref()).await?.is_none()
        {
            wanted.check(&current)?;
            if_version = Some(current.version);
        }
    }
    give(app, ScheduleOrder { tenant: caller.tenant.clone(), id, if_version, command, key }).await
}

fn created(schedule: &Schedule) -> Response {
    let response = shown(StatusCode::CREATED, schedule, None);
    located(response, &format!("/v1/schedules/{}", schedule.id))
}

fn located(mut response: Response, path: &str) -> Response {
    if let Ok(location) = HeaderValue::try_from(path) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn busy() -> Problem {
    Problem::new(Code::StaleVersion, "others keep changing the schedule; try again")
}
