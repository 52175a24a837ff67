//! Delivers claimed jobs by HTTP: makes the request a target receives, and turns its answer into an outcome.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Failure, Finding, Job, Target};
use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::webhook;
use tokio::task::AbortHandle;

use super::{PushReport, PushRequest, Pusher, Verdict};
use crate::clock::Clock;
use crate::directory::Directory;
use crate::engine::{Deliver, Report, Reports};
use crate::metrics::Metrics;
use crate::random::Random;
use crate::traces::Traces;

const JOB_ID: HeaderName = HeaderName::from_static("tidewheel-job-id");
const TYPE: HeaderName = HeaderName::from_static("tidewheel-type");
const ATTEMPT: HeaderName = HeaderName::from_static("tidewheel-attempt");
const FENCING_TOKEN: HeaderName = HeaderName::from_static("tidewheel-fencing-token");
const FIRE_AT: HeaderName = HeaderName::from_static("tidewheel-fire-at");
const RUN_AT: HeaderName = HeaderName::from_static("tidewheel-run-at");
const CATCH_UP: HeaderName = HeaderName::from_static("tidewheel-catch-up");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const WEBHOOK_ID: HeaderName = HeaderName::from_static(webhook::ID_HEADER);
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static(webhook::TIMESTAMP_HEADER);
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static(webhook::SIGNATURE_HEADER);

/// Delivers by HTTP.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "made of trait objects")]
pub struct PushDeliverer {
    pusher: Pusher,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    directory: Arc<Directory>,
    metrics: Option<Arc<Metrics>>,
    traces: Traces,
    /// Requests under way, so that a job called off can be stopped.
    under_way: Arc<Mutex<FxHashMap<JobId, AbortHandle>>>,
}

impl PushDeliverer {
    /// Delivers through `pusher`, signed with the secrets in `directory`.
    #[must_use]
    pub fn new(
        pusher: Pusher,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        directory: Arc<Directory>,
    ) -> Self {
        Self {
            pusher,
            clock,
            random,
            directory,
            metrics: None,
            traces: Traces::default(),
            under_way: Arc::default(),
        }
    }

    /// Also notes how long pushes take.
    #[must_use]
    pub fn timed_by(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Also hands traces on of which nobody but the server knows.
    #[must_use]
    pub fn traced_by(mut self, traces: Traces) -> Self {
        self.traces = traces;
        self
    }

    async fn push(&self, job: &Job, target: &Target) -> Command {
        let token = job.status.token;
        let report = match self.request(job, target) {
            Ok(request) => {
                let started_ms = self.clock.monotonic_ms();
                let report = self.pusher.push(request).await;
                if let Some(metrics) = &self.metrics {
                    metrics.pushed(self.clock.monotonic_ms().saturating_sub(started_ms));
                }
                report
            }
            Err(excerpt) => PushReport { verdict: Verdict::Refused, status: None, excerpt, timed_out: false },
        };
        let finding = Finding { status_code: report.status, detail: report.excerpt.into_boxed_str() };
        let (retryable, retry_after_ms) = match report.verdict {
            Verdict::Done => return Command::Succeed { token, finding },
            Verdict::Accepted { lease } => return Command::Detach { token, lease_ms: millis(lease) },
            Verdict::Retry { after } => (true, after.map(millis)),
            Verdict::Dead | Verdict::Refused => (false, None),
        };
        let jitter = self.random.jitter();
        let timed_out = report.timed_out;
        Command::Fail { token, failure: Failure { finding, retryable, timed_out, retry_after_ms, jitter } }
    }

    /// What the target receives, as of now.
    fn request(&self, job: &Job, target: &Target) -> Result<PushRequest, String> {
        let mut request = request(job, target, Arc::clone(&self.clock))?;
        let timestamp_s = self.clock.now().as_ms().div_euclid(SECOND_MS);
        let id = job.id.to_string();
        let secrets = self.directory.webhook_secrets(&job.tenant);
        let signature = webhook::sign(&secrets, &id, timestamp_s, &request.body);
        request.headers.insert(WEBHOOK_ID, text(&id)?);
        request.headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(timestamp_s));
        request.headers.insert(WEBHOOK_SIGNATURE, text(&signature)?);
        if let Some(trace) = self.traces.handed_on(job) {
            request.headers.insert(TRACEPARENT, text(&trace.parent())?);
            if !trace.state().is_empty() {
                request.headers.insert(TRACESTATE, text(trace.state())?);
            }
        }
        Ok(request)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FxHashMap<JobId, AbortHandle>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deliver for PushDeliverer {
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports) {
        for job in jobs {
            let Destination::Target(target) = &job.spec.destination else { continue };
            let (this, reports, target) = (self.clone(), reports.clone(), Arc::clone(target));
            let id = job.id;
            // Held over the spawn, so that the task cannot remove itself before it is entered.
            let mut under_way = self.lock();
            let task = tokio::spawn(async move {
                let command = this.push(&job, &target).await;
                this.lock().remove(&job.id);
                reports.send(Report { tenant: job.tenant.clone(), id: job.id, command });
            });
            under_way.insert(id, task.abort_handle());
        }
    }

    fn abort(&self, id: &JobId) {
        if let Some(task) = self.lock().remove(id) {
            task.abort();
        }
    }
}

/// What the target receives.
fn request(job: &Job, target: &Target, clock: Arc<dyn Clock>) -> Result<PushRequest, String> {
    let spec = &job.spec;
    let mut headers = HeaderMap::with_capacity(16 + target.headers.len());
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &target.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("the header name {name:?} is not valid"))?;
        headers.insert(name, text(value)?);
    }
    headers.insert(JOB_ID, text(&job.id.to_string())?);
    headers.insert(TYPE, text(&spec.kind)?);
    headers.insert(ATTEMPT, HeaderValue::from(job.status.attempt));
    headers.insert(FENCING_TOKEN, HeaderValue::from(job.status.token.as_u64()));
    // The id keeps the time a job was first set for; moved, or tried again, it is due at another.
    let fire_at = spec.occurrence.as_ref().map_or(job.id.run_at(), |occurrence| occurrence.fire_at);
    headers.insert(FIRE_AT, text(&fire_at.to_string())?);
    headers.insert(RUN_AT, text(&job.status.due_at.to_string())?);
    let catch_up = spec.occurrence.as_ref().is_some_and(|occurrence| occurrence.catch_up);
    headers.insert(CATCH_UP, HeaderValue::from_static(if catch_up { "true" } else { "false" }));
    headers.insert(IDEMPOTENCY_KEY, text(&job.run_key())?);
    Ok(PushRequest {
        url: target.url.parse::<Uri>().map_err(|error| format!("the target's URL is not valid: {error}"))?,
        method: target.method.parse::<Method>().map_err(|error| format!("the target's method: {error}"))?,
        headers,
        body: spec.payload.clone(),
        timeout: Duration::from_millis(u64::try_from(spec.timeout_ms).unwrap_or(0)),
        clock,
    })
}

fn text(value: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(value.as_bytes()).map_err(|_| format!("{value:?} cannot be sent as a header"))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidewheel_core::job::{Change, Priority, Spec, transition};
    use tidewheel_core::names::Tenant;
    use tidewheel_core::retry::{Backoff, RetryPolicy};
    use tidewheel_core::time::Timestamp;

    use super::*;
    use crate::clock::SystemClock;

    const FIRST: Timestamp = Timestamp::from_ms(1_800_000_000_000);

    fn job() -> Job {
        let target = Target { url: "http://a.example/".into(), method: "POST".into(), headers: Vec::new() };
        let spec = Spec {
            kind: "test".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Target(Arc::new(target)),
            priority: Priority::Normal,
            retry: RetryPolicy { backoff: Backoff::Fixed, base_ms: 5_000, ..RetryPolicy::default() },
            timeout_ms: 60_000,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            trace: None,
            created_at: FIRST,
        };
        Job::new(Tenant::default(), spec, FIRST, 7)
    }

    fn after(job: &Job, command: &Command, now: Timestamp) -> Job {
        match transition(job, command, now) {
            Ok(Change::To(next)) => next,
            other => panic!("{command:?}: {other:?}"),
        }
    }

    /// What its target is told when it fired and when it is due.
    fn told(job: &Job) -> [String; 2] {
        let Destination::Target(target) = &job.spec.destination else { panic!("it has a target") };
        let headers = request(job, target, Arc::new(SystemClock::new())).unwrap().headers;
        [FIRE_AT, RUN_AT].map(|name| headers.get(name).unwrap().to_str().unwrap().to_owned())
    }

    #[test]
    fn a_job_that_was_moved_or_is_tried_again_tells_the_time_it_is_due() {
        let claim = Command::Claim { epoch: 1, worker: "w".into(), lease_ms: 1_000, detached: false };
        let on_time = after(&job(), &claim, FIRST);
        assert_eq!(told(&on_time), [FIRST.to_string(), FIRST.to_string()]);

        let later = FIRST.plus_ms(3_600_000);
        let moved = after(&job(), &Command::Amend { run_at: Some(later), priority: None }, FIRST);
        let moved = after(&moved, &claim, later.plus_ms(20));
        assert_eq!(told(&moved), [FIRST.to_string(), later.to_string()]);

        let failure = Failure {
            finding: Finding { status_code: Some(500), detail: "no".into() },
            retryable: true,
            timed_out: false,
            retry_after_ms: None,
            jitter: 0,
        };
        let failed = after(&moved, &Command::Fail { token: moved.status.token, failure }, later.plus_ms(30));
        let again = after(&failed, &claim, later.plus_ms(9_000));
        assert_eq!(told(&again), [FIRST.to_string(), later.plus_ms(5_030).to_string()]);
    }
}
