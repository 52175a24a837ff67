//! The spans of a job. All are made when they end, of what the job itself says.

use http::Uri;
use tidewheel_core::job::{Destination, Ending, Job};
use tidewheel_core::time::Timestamp;
use tidewheel_core::trace::{SpanId, TraceId};

use super::ids;

/// Where a job's spans belong.
pub(super) struct Origin {
    pub(super) trace_id: TraceId,
    /// The span the job was submitted in.
    pub(super) parent: Option<SpanId>,
    pub(super) state: Box<str>,
}

/// One span.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) state: Box<str>,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// What went wrong, in a word.
    pub(super) error: Option<&'static str>,
}

impl Span {
    pub(super) fn until(self, end: Timestamp) -> Self {
        Self { end: end.max(self.start), ..self }
    }
}

/// What a span does for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Internal,
    Client,
    Producer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(i64),
}

/// From the arrival of a job to its being stored; the end comes later.
pub(super) fn submit(job: &Job, origin: &Origin) -> Span {
    let made = job.spec.created_at;
    Span {
        parent: origin.parent,
        attributes: facts(job),
        ..bare(origin, "tidewheel.submit", Kind::Producer, ids::submit(job.id), (made, made))
    }
}

/// From the arrival of a job, or the end of its last attempt, to its next one.
pub(super) fn wait(job: &Job, origin: &Origin) -> Option<Span> {
    let running = job.status.running.as_ref()?;
    let since = job.status.attempts.last().map_or(job.spec.created_at, |attempt| attempt.finished_at);
    let mut attributes = facts(job);
    attributes.push(("tidewheel.attempt", Value::Number(job.status.attempt.into())));
    attributes.push(("tidewheel.due_at", Value::Text(job.status.due_at.to_string())));
    let late_ms = running.started_at.since_ms(job.status.due_at.max(job.spec.created_at)).max(0);
    attributes.push(("tidewheel.lag_ms", Value::Number(late_ms)));
    let span_id = ids::wait(job.id, job.status.attempt);
    Some(Span {
        parent: Some(root(job)).filter(|root| *root != span_id).or(origin.parent),
        attributes,
        ..bare(origin, "tidewheel.wait", Kind::Internal, span_id, (since, running.started_at))
    })
}

/// From the claim of an attempt to its outcome.
pub(super) fn attempt(job: &Job, origin: &Origin) -> Option<Span> {
    let attempt = job.status.attempts.last().filter(|_| job.status.running.is_none())?;
    let mut attributes = facts(job);
    attributes.push(("tidewheel.attempt", Value::Number(attempt.number.into())));
    attributes.push(("tidewheel.outcome", Value::Text(attempt.ending.as_str().to_owned())));
    attributes.push(("tidewheel.state", Value::Text(job.status.state.as_str().to_owned())));
    attributes.push(("tidewheel.worker", Value::Text(attempt.worker.to_string())));
    if let Some(code) = attempt.status_code {
        attributes.push(("http.response.status_code", Value::Number(code.into())));
    }
    let kind = match job.spec.destination {
        Destination::Queue(_) => Kind::Producer,
        Destination::Target(_) => Kind::Client,
    };
    let error = match attempt.ending {
        Ending::Failed | Ending::TimedOut | Ending::LeaseExpired | Ending::Lost => {
            Some(attempt.ending.as_str())
        }
        Ending::Succeeded | Ending::Snoozed | Ending::Cancelled | Ending::Released => None,
    };
    let (span_id, times) = (ids::attempt(job.id, attempt.token), (attempt.started_at, attempt.finished_at));
    Some(Span {
        parent: Some(root(job)),
        attributes,
        error,
        ..bare(origin, "tidewheel.attempt", kind, span_id, times)
    })
}

/// The span that all others of a job hang on: its submission. An occurrence of a schedule was never submitted; its first
/// wait stands for that.
fn root(job: &Job) -> SpanId {
    match &job.spec.occurrence {
        Some(_) => ids::wait(job.id, 1),
        None => ids::submit(job.id),
    }
}

fn bare(
    origin: &Origin,
    name: &'static str,
    kind: Kind,
    span_id: SpanId,
    (start, end): (Timestamp, Timestamp),
) -> Span {
    Span {
        trace_id: origin.trace_id,
        span_id,
        parent: None,
        state: origin.state.clone(),
        name,
        kind,
        start,
        // Clocks are set, and those of two nodes differ.
        end: end.max(start),
        attributes: Vec::new(),
        error: None,
    }
}

/// What is said of a job in each of its spans. Of a target only its host: there may be secrets in the rest.
fn facts(job: &Job) -> Vec<(&'static str, Value)> {
    let mut facts = Vec::with_capacity(12);
    let mut text = |name: &'static str, value: &str| facts.push((name, Value::Text(value.to_owned())));
    text("tidewheel.job.id", &job.id.to_string());
    text("tidewheel.job.type", &job.spec.kind);
    text("tidewheel.tenant", job.tenant.as_str());
    match &job.spec.destination {
        Destination::Queue(queue) => text("tidewheel.queue", queue),
        Destination::Target(target) => {
            text("http.request.method", &target.method);
            if let Some(host) = target.url.parse::<Uri>().ok().as_ref().and_then(Uri::host) {
                text("server.address", host);
            }
        }
    }
    if let Some(occurrence) = &job.spec.occurrence {
        text("tidewheel.schedule.id", &occurrence.schedule_id.to_string());
    }
    facts
}
