//! Traces: what a job went through, as spans of one trace, for a collector that speaks OTLP.
//!
//! | file | what it holds |
//! |---|---|
//! | `ids` | the ids of traces and spans |
//! | `span` | the spans of a job: its submission, its waits, its attempts |
//! | `otlp` | spans as a collector takes them |
//! | `export` | sending them, in batches |
//!
//! Nothing about spans is stored. Their ids are hashes of the job's id and the attempt's token, so that every node, before
//! and after a restart, names them alike; only the context a job was submitted with is kept, with the job. A job that came
//! without one is in a trace of its own, as soon as there is somebody to tell.

mod export;
mod ids;
mod otlp;
mod span;

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::time::Timestamp;
use tidewheel_core::trace::{TraceContext, TraceId};
use tidewheel_store::Submission;
use tokio::sync::mpsc;

pub use self::export::{ExportConfig, Exporter, endpoint};
use self::span::{Origin, Span};
use crate::clock::Clock;
use crate::metrics::{DropReason, Metrics, SpanCounts};

/// Spans that may wait to be sent. Those that come when there is no room are dropped, and counted.
const QUEUE_COUNT_MAX: usize = 8_192;

/// Takes spans in, if there is anybody to send them to. Cheap to clone; off by default.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Recorder>>);

impl PartialEq for Traces {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl Eq for Traces {}

#[derive(Debug)]
struct Recorder {
    /// Of the traces that begin here, those whose id is below this.
    sampled_below: u64,
    spans: mpsc::Sender<Span>,
    counts: SpanCounts,
}

impl Recorder {
    fn samples(&self, trace_id: TraceId) -> bool {
        ids::place(trace_id) < self.sampled_below
    }

    /// Never waits.
    fn send(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.counts.dropped(DropReason::QueueFull, 1);
        }
    }
}

impl Traces {
    /// Starts sending spans to a collector.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn start(
        config: ExportConfig,
        metrics: &Metrics,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Exporter), String> {
        let (spans, queue) = mpsc::channel(QUEUE_COUNT_MAX);
        let counts = metrics.spans().clone();
        let sampled_below = ids::share(config.sample_ratio);
        let exporter = Exporter::start(config, queue, counts.clone(), clock)?;
        Ok((Self(Some(Arc::new(Recorder { sampled_below, spans, counts }))), exporter))
    }

    /// The trace a job is in; `kept` is the one it was submitted in.
    pub(crate) fn trace_id(&self, id: JobId, kept: Option<TraceId>) -> Option<TraceId> {
        kept.or_else(|| self.0.as_ref().map(|_| ids::trace_id(id)))
    }

    /// The same, of a job that is at hand.
    pub(crate) fn trace_id_of(&self, job: &Job) -> Option<TraceId> {
        self.trace_id(job.id, job.spec.trace.as_ref().map(|trace| trace.trace_id))
    }

    /// What whoever runs the job's attempt goes on with.
    pub(crate) fn handed_on(&self, job: &Job) -> Option<TraceContext> {
        let span_id = || ids::attempt(job.id, job.status.token);
        match (&job.spec.trace, &self.0) {
            (Some(trace), _) => Some(trace.with_span(span_id())),
            (None, Some(recorder)) => {
                let trace_id = ids::trace_id(job.id);
                Some(TraceContext::new(trace_id, span_id(), recorder.samples(trace_id)))
            }
            (None, None) => None,
        }
    }

    /// The spans of what is about to be stored, with their places among it.
    pub(crate) fn submitting(&self, jobs: &[Submission]) -> Vec<(usize, Span)> {
        let Some(recorder) = &self.0 else { return Vec::new() };
        let jobs = jobs.iter().map(|submission| &submission.job).enumerate();
        jobs.filter_map(|(index, job)| Some((index, span::submit(job, &recorder.origin(job)?)))).collect()
    }

    /// Jobs were stored.
    pub(crate) fn submitted(&self, spans: impl Iterator<Item = Span>, now: Timestamp) {
        let Some(recorder) = &self.0 else { return };
        spans.for_each(|span| recorder.send(span.until(now)));
    }

    /// An attempt was claimed: the wait for it is over.
    pub(crate) fn started(&self, job: &Job) {
        self.note(job, span::wait);
    }

    /// An attempt ended.
    pub(crate) fn attempt_ended(&self, job: &Job) {
        self.note(job, span::attempt);
    }

    fn note(&self, job: &Job, make: impl FnOnce(&Job, &Origin) -> Option<Span>) {
        if let Some(recorder) = &self.0
            && let Some(origin) = recorder.origin(job)
            && let Some(span) = make(job, &origin)
        {
            recorder.send(span);
        }
    }
}

impl Recorder {
    /// Where a job's spans belong, if they are wanted. Whoever began a trace decides whether it is recorded.
    fn origin(&self, job: &Job) -> Option<Origin> {
        match &job.spec.trace {
            Some(trace) => trace.is_sampled().then(|| Origin {
                trace_id: trace.trace_id,
                parent: Some(trace.span_id),
                state: trace.state().into(),
            }),
            None => {
                let trace_id = ids::trace_id(job.id);
                self.samples(trace_id).then(|| Origin { trace_id, parent: None, state: Box::default() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
