//! What all handlers share.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_api::wire::fault::Code;
use tidewheel_api::wire::job_request::TargetRules;
use tidewheel_core::limits::{
    HISTORY_MS_DEFAULT, SCHEDULE_INTERVAL_MS_MIN_DEFAULT, SUBMISSIONS_IN_FLIGHT_COUNT_MAX_DEFAULT,
};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tokio::sync::Semaphore;

use super::admission::Admission;
use super::large_answer::Answers;
use super::openapi;
use super::overload::Overload;
use super::problem::Problem;
use super::reservations::{Kept, Reservations};
use crate::access::Access;
use crate::engine::Engine;
use crate::push::{AddressPolicy, check_headers, check_method};
use crate::schema::CompiledSchemas;

/// What the API is made of.
#[expect(missing_debug_implementations, reason = "the engine is made of trait objects")]
pub struct HttpParts {
    /// Who does the work.
    pub engine: Engine,
    /// Which targets may be submitted.
    pub targets: AddressPolicy,
    /// What requests may cost.
    pub limits: HttpLimits,
    /// Who may do what.
    pub access: Arc<Access>,
}

/// What requests may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// One body that is not a batch.
    pub body_bytes_max: usize,
    /// The body of one batch.
    pub batch_bytes_max: usize,
    /// All bodies being read or worked on together.
    pub bodies_bytes_max: usize,
    /// Within this long at least [`Self::body_progress_bytes_min`] of a body must arrive, or its end.
    pub body_progress_ms: u64,
    /// See [`Self::body_progress_ms`].
    pub body_progress_bytes_min: usize,
    /// All large answers that are not read yet, together.
    pub answers_bytes_max: usize,
    /// Within this long some of a large answer must be read, or it is given up.
    pub answer_progress_ms: u64,
    /// Pages of lists read from the store at once; further ones wait for their turn.
    pub pages_count_max: usize,
    /// Jobs taken from callers and not stored yet; the less urgent a job, the sooner it is turned away.
    pub submissions_count_max: usize,
    /// Time between two fires of a schedule, at least.
    pub schedule_interval_ms_min: i64,
    /// How long finished jobs are kept, at most.
    pub history_ms: i64,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 512 * 1_024,
            batch_bytes_max: 64 * 1_024 * 1_024,
            bodies_bytes_max: 256 * 1_024 * 1_024,
            body_progress_ms: 10_000,
            body_progress_bytes_min: 4_096,
            answers_bytes_max: 64 * 1_024 * 1_024,
            answer_progress_ms: 30_000,
            pages_count_max: 16,
            submissions_count_max: SUBMISSIONS_IN_FLIGHT_COUNT_MAX_DEFAULT,
            schedule_interval_ms_min: SCHEDULE_INTERVAL_MS_MIN_DEFAULT,
            history_ms: HISTORY_MS_DEFAULT,
        }
    }
}

/// What all handlers share.
pub(super) struct App {
    pub(super) engine: Engine,
    pub(super) targets: Targets,
    pub(super) limits: HttpLimits,
    pub(super) access: Arc<Access>,
    pub(super) admission: Admission,
    /// Room for jobs that wait, of tenants that may have only so many.
    pub(super) waiting: Arc<Reservations>,
    /// The same for schedules.
    pub(super) scheduled: Arc<Reservations>,
    pub(super) schemas: CompiledSchemas,
    pub(super) overload: Overload,
    /// One permit for every byte of a body that is held.
    pub(super) bodies: Arc<Semaphore>,
    pub(super) answers: Arc<Answers>,
    pub(super) openapi: Bytes,
    pub(super) docs: Bytes,
    pub(super) errors: Bytes,
}

impl App {
    pub(super) fn new(parts: HttpParts) -> Self {
        let document = openapi::document();
        let metrics = Arc::clone(parts.engine.metrics());
        let overload = Overload::new(parts.limits.submissions_count_max, metrics);
        let answers = Answers::new(&parts.limits, Arc::clone(parts.engine.clock()));
        Self {
            engine: parts.engine,
            targets: Targets(parts.targets),
            limits: parts.limits,
            access: parts.access,
            admission: Admission::default(),
            waiting: Reservations::new(Kept::WaitingJobs),
            scheduled: Reservations::new(Kept::Schedules),
            schemas: CompiledSchemas::default(),
            overload,
            bodies: Arc::new(Semaphore::new(parts.limits.bodies_bytes_max.min(Semaphore::MAX_PERMITS))),
            answers: Arc::new(answers),
            docs: Bytes::from(super::docs::render(&document)),
            errors: Bytes::from(super::docs::render_errors()),
            openapi: Bytes::from(document.to_string()),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.engine.clock().now()
    }

    /// Time between two fires of a tenant's schedules, at least.
    pub(super) fn min_interval_ms(&self, tenant: &Tenant) -> i64 {
        let settings = self.access.directory().tenant(tenant).settings;
        settings.interval_ms_min.unwrap_or(self.limits.schedule_interval_ms_min)
    }

    /// Refuses new work while the server stops.
    pub(super) fn check_open(&self) -> Result<(), Problem> {
        if self.engine.is_draining() {
            return Err(Problem::new(Code::Draining, "the server is stopping; try again, here or elsewhere"));
        }
        Ok(())
    }
}

/// Which targets may be submitted.
pub(super) struct Targets(AddressPolicy);

impl TargetRules for Targets {
    fn check_url(&self, url: &str) -> Result<(), String> {
        self.0.check_url(url).map(drop).map_err(|fault| fault.to_string())
    }

    fn check_method(&self, method: &str) -> Result<(), String> {
        check_method(method).map(drop).map_err(|fault| fault.to_string())
    }

    fn check_headers(&self, headers: &[(Box<str>, Box<str>)]) -> Result<(), String> {
        let pairs = headers.iter().map(|(name, value)| (&**name, &**value));
        check_headers(pairs).map(drop).map_err(|fault| fault.to_string())
    }
}
