//! What is registered for a job's type, applied where the job comes in: its defaults, who may submit it, and what its
//! payload must look like. A tenant that has registered nothing pays one lookup.

use std::sync::Arc;

use tidewheel_api::wire::fault::{At, Code, Faults};
use tidewheel_api::wire::job_request::JobRequest;
use tidewheel_api::wire::schedule_request::ScheduleRequest;

use super::app::App;
use super::caller::Caller;
use super::problem::Problem;
use crate::directory::{JobType, TypeBook};
use crate::schema::Flaw;

/// What was registered for the caller's tenant when a request came in.
pub(super) struct Registered<'a> {
    app: &'a App,
    caller: &'a Caller,
    book: Option<Arc<TypeBook>>,
}

impl<'a> Registered<'a> {
    pub(super) fn of(app: &'a App, caller: &'a Caller) -> Self {
        Self { app, caller, book: app.access.directory().types(&caller.tenant) }
    }

    fn find(&self, kind: &str) -> Option<&Arc<JobType>> {
        self.book.as_ref()?.get(kind)
    }

    /// Whether nothing is registered for the tenant.
    pub(super) fn is_empty(&self) -> bool {
        self.book.is_none()
    }

    /// Refuses whoever may not submit jobs of this type.
    pub(super) fn check_submitter(&self, kind: &str) -> Result<(), Problem> {
        match self.find(kind).and_then(|found| found.definition.submitters.as_ref()) {
            Some(submitters) => self.caller.identity.check_submitter(kind, submitters),
            None => Ok(()),
        }
    }

    /// Has the type say what a job did not say itself.
    pub(super) fn fill(&self, job: &mut JobRequest) {
        if let Some(found) = self.find(&job.kind) {
            found.definition.defaults.fill(job);
        }
    }

    /// Has the type say what a new schedule did not say of its jobs.
    pub(super) fn fill_schedule(&self, request: &mut ScheduleRequest) {
        let template = &mut request.definition.template;
        if let Some(found) = self.find(&template.kind) {
            found.definition.defaults.fill_template(request.left_out, template);
        }
    }

    /// Notes what the type has against a job: who submits it, or else its payload.
    pub(super) fn check(&self, kind: &str, payload: &[u8], at: &At<'_>, faults: &mut Faults) {
        let Some(found) = self.find(kind) else { return };
        if let Err(problem) = self.check_submitter(kind) {
            faults.add(problem.code(), &at.field("type"), problem.detail());
            return;
        }
        let Some(text) = &found.definition.schema else { return };
        match self.app.schemas.get(found.version, text) {
            Ok(schema) => {
                let at = at.field("payload");
                for flaw in schema.check(payload) {
                    note(Code::InvalidPayload, &at, &flaw.path, &flaw.detail, faults);
                }
            }
            Err(Flaw { detail, .. }) => {
                let detail = format!("the schema registered for the type cannot be used: {detail}");
                faults.add(Code::InvalidSchema, &at.field("type"), detail);
            }
        }
    }
}

/// Notes a flaw some steps further down.
pub(super) fn note(code: Code, at: &At<'_>, path: &[String], detail: &str, faults: &mut Faults) {
    match path.split_first() {
        Some((step, rest)) => note(code, &at.field(step), rest, detail, faults),
        None => faults.add(code, at, detail),
    }
}
