//! Jobs as JSON, written straight into one buffer. Payloads, results and progress are JSON already and pass
//! through untouched.

use std::io::Write as _;

use serde_json::value::RawValue;
use tidewheel_core::job::{Attempt, Destination, Ending, Job, State};
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::{Timestamp, format_duration};
use tidewheel_core::trace::TraceContext;

use super::filter::ShownState;
use super::job_request::policy_name;

/// A buffer that is filled with JSON. Commas are its own business.
#[derive(Debug, Default)]
pub struct JsonWriter {
    bytes: Vec<u8>,
    needs_comma: bool,
}

impl JsonWriter {
    /// An empty buffer with room for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), needs_comma: false }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What was written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn separate(&mut self) {
        if self.needs_comma {
            self.bytes.push(b',');
        }
        self.needs_comma = true;
    }

    fn bracket(&mut self, open: u8, close: u8, fill: impl FnOnce(&mut Self)) {
        self.separate();
        self.bytes.push(open);
        self.needs_comma = false;
        fill(self);
        self.bytes.push(close);
        self.needs_comma = true;
    }

    /// Begins a field; its value comes next.
    pub fn key(&mut self, name: &str) -> &mut Self {
        self.separate();
        self.string(name);
        self.bytes.push(b':');
        self.needs_comma = false;
        self
    }

    /// An object, as an item, a field's value or the whole.
    pub fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.bracket(b'{', b'}', fill);
    }

    /// An array, as an item, a field's value or the whole.
    pub fn array(&mut self, fill: impl FnOnce(&mut Self)) {
        self.bracket(b'[', b']', fill);
    }

    /// Text.
    pub fn text(&mut self, text: &str) {
        self.separate();
        self.string(text);
    }

    fn string(&mut self, text: &str) {
        // Writing a string to memory cannot fail.
        drop(serde_json::to_writer(&mut self.bytes, text));
    }

    /// What `Display` says, which needs no escapes: ids, times, numbers within the buffer's own quotes.
    pub fn plain(&mut self, value: impl std::fmt::Display) {
        self.separate();
        drop(write!(self.bytes, "\"{value}\""));
    }

    /// A whole number.
    pub fn number(&mut self, value: impl Into<u64>) {
        self.separate();
        drop(write!(self.bytes, "{}", value.into()));
    }

    /// A count.
    pub fn count(&mut self, value: usize) {
        self.separate();
        drop(write!(self.bytes, "{value}"));
    }

    /// A number with a fraction.
    pub fn decimal(&mut self, value: f64) {
        self.separate();
        drop(serde_json::to_writer(&mut self.bytes, &value));
    }

    /// A truth.
    pub fn boolean(&mut self, value: bool) {
        self.raw(if value { b"true" } else { b"false" });
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.raw(b"null");
    }

    /// JSON that is there already.
    pub fn raw(&mut self, json: &[u8]) {
        self.separate();
        self.bytes.extend_from_slice(json);
    }

    /// A time that may be missing.
    pub fn time(&mut self, time: Option<Timestamp>) {
        match time {
            Some(time) => self.plain(time),
            None => self.null(),
        }
    }

    /// A text that may be missing.
    pub fn text_or_null(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.null(),
        }
    }
}

/// What of a job is shown, and as of when.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The instant that decides what is ready.
    pub now: Timestamp,
    /// Whether the payload is shown.
    pub payload: bool,
}

/// Writes a job.
pub fn job(out: &mut JsonWriter, job: &Job, view: View) {
    out.object(|out| {
        let (spec, status) = (&*job.spec, &job.status);
        out.key("id").plain(job.id);
        out.key("tenant").text(job.tenant.as_str());
        out.key("type").text(&spec.kind);
        out.key("state").text(ShownState::of(job, view.now).as_str());
        out.key("run_at").plain(status.due_at);
        out.key("created_at").plain(spec.created_at);
        destination(out, &spec.destination, spec.timeout_ms);
        out.key("priority").text(spec.priority.as_str());
        retry(out, &spec.retry);
        out.key("timeout").plain(format_duration(spec.timeout_ms));
        out.key("expires_at").time(spec.expires_at);
        run_key(out, job);
        labels(out, &spec.labels);
        if view.payload {
            out.key("payload").raw(&spec.payload);
        }
        out.key("attempt").number(status.attempt);
        out.key("max_attempts").number(spec.retry.max_attempts);
        outcome(out, job);
        running(out, job);
        occurrence(out, job);
        if let Some(trace) = &spec.trace {
            out.key("trace_id").plain(trace.trace_id);
        }
        out.key("reason").text_or_null(status.reason.as_deref());
    });
}

/// Writes what a pull worker needs to know of a job it has taken, and the trace it goes on with.
pub fn taken_job(out: &mut JsonWriter, job: &Job, trace: Option<&TraceContext>) {
    out.object(|out| {
        let (spec, status) = (&*job.spec, &job.status);
        out.key("id").plain(job.id);
        out.key("tenant").text(job.tenant.as_str());
        out.key("type").text(&spec.kind);
        out.key("payload").raw(&spec.payload);
        out.key("attempt").number(status.attempt);
        out.key("max_attempts").number(spec.retry.max_attempts);
        out.key("token").number(status.token.as_u64());
        run_key(out, job);
        out.key("run_at").plain(status.due_at);
        out.key("created_at").plain(spec.created_at);
        destination(out, &spec.destination, spec.timeout_ms);
        out.key("priority").text(spec.priority.as_str());
        out.key("timeout").plain(format_duration(spec.timeout_ms));
        out.key("expires_at").time(spec.expires_at);
        labels(out, &spec.labels);
        out.key("lease_until").time(status.running.as_ref().map(|running| running.lease_until));
        occurrence(out, job);
        if let Some(trace) = trace {
            out.key("traceparent").plain(trace.parent());
            out.key("tracestate").text(trace.state());
        }
    });
}

/// Writes a job's attempts after that number, oldest first, the one under way last, at most so many. Gives the number of
/// the last one that was written, if there are more.
pub fn attempts(out: &mut JsonWriter, job: &Job, after: u32, count_max: usize) -> Option<u32> {
    let ended = job.status.attempts.iter().map(|attempt| (attempt.number, Some(attempt)));
    let under_way = job.status.running.iter().map(|_| (job.status.attempt, None));
    let mut left = ended.chain(under_way).filter(|(number, _)| *number > after);
    let mut last = None;
    for (number, attempt) in left.by_ref().take(count_max) {
        match attempt {
            Some(attempt) => ended_attempt(out, attempt),
            None => attempt_under_way(out, job),
        }
        last = Some(number);
    }
    left.next().and(last)
}

/// Writes the field `idempotency_key`, as it is for every attempt.
pub fn run_key(out: &mut JsonWriter, job: &Job) {
    out.key("idempotency_key").text(&job.run_key());
}

fn attempt_under_way(out: &mut JsonWriter, job: &Job) {
    let Some(running) = &job.status.running else { return };
    out.object(|out| {
        out.key("attempt").number(job.status.attempt);
        out.key("state").text(State::Running.as_str());
        out.key("worker").text(&running.worker);
        out.key("started_at").plain(running.started_at);
        out.key("finished_at").null();
        out.key("status_code").null();
        out.key("detail").text("");
        out.key("lease_until").plain(running.lease_until);
        progress(out, job);
    });
}

fn ended_attempt(out: &mut JsonWriter, attempt: &Attempt) {
    out.object(|out| {
        out.key("attempt").number(attempt.number);
        out.key("state").text(attempt.ending.as_str());
        out.key("worker").text(&attempt.worker);
        out.key("started_at").plain(attempt.started_at);
        out.key("finished_at").plain(attempt.finished_at);
        out.key("status_code");
        match attempt.status_code {
            Some(code) => out.number(code),
            None => out.null(),
        }
        out.key("detail").text(&attempt.detail);
        out.key("lease_until").null();
        out.key("progress").null();
    });
}

pub(super) fn destination(out: &mut JsonWriter, destination: &Destination, timeout_ms: i64) {
    match destination {
        Destination::Queue(queue) => out.key("queue").text(queue),
        Destination::Target(target) => out.key("target").object(|out| {
            out.key("url").text(&target.url);
            out.key("method").text(&target.method);
            out.key("headers").object(|out| {
                for (name, value) in &target.headers {
                    out.key(name).text(value);
                }
            });
            out.key("timeout").plain(format_duration(timeout_ms));
        }),
    }
}

pub(super) fn retry(out: &mut JsonWriter, retry: &RetryPolicy) {
    out.key("retry").object(|out| {
        out.key("max_attempts").number(retry.max_attempts);
        out.key("policy").text(policy_name(retry.backoff));
        out.key("base").plain(format_duration(retry.base_ms));
        out.key("multiplier").decimal(retry.multiplier);
        out.key("max").plain(format_duration(retry.max_ms));
    });
}

pub(super) fn labels(out: &mut JsonWriter, labels: &[(Box<str>, Box<str>)]) {
    out.key("labels").object(|out| {
        for (key, value) in labels {
            out.key(key).text(value);
        }
    });
}

/// The last error, the result, and when they came.
fn outcome(out: &mut JsonWriter, job: &Job) {
    let last = job.status.attempts.last();
    let failed = job.status.attempts.iter().rev().find(|attempt| is_failure(attempt.ending));
    out.key("last_error");
    match failed {
        Some(Attempt { status_code: Some(code), detail, .. }) if detail.is_empty() => {
            out.plain(format_args!("HTTP {code}"))
        }
        Some(Attempt { status_code: Some(code), detail, .. }) => out.text(&format!("HTTP {code}: {detail}")),
        Some(attempt) => out.text(&attempt.detail),
        None => out.null(),
    }
    out.key("result");
    match last.filter(|attempt| attempt.ending == Ending::Succeeded && job.status.state == State::Succeeded) {
        // A worker's result is JSON; a target's answer is text.
        Some(attempt) if attempt.status_code.is_none() => {
            match serde_json::from_str::<&RawValue>(&attempt.detail) {
                Ok(json) => out.raw(json.get().as_bytes()),
                Err(_) => out.null(),
            }
        }
        Some(attempt) => out.text(&attempt.detail),
        None => out.null(),
    }
    let started = job.status.running.as_ref().map(|running| running.started_at);
    out.key("started_at").time(started.or(last.map(|attempt| attempt.started_at)));
    out.key("finished_at").time(job.status.finished_at);
}

fn running(out: &mut JsonWriter, job: &Job) {
    let running = job.status.running.as_ref();
    out.key("worker").text_or_null(running.map(|running| &*running.worker));
    out.key("lease_until").time(running.map(|running| running.lease_until));
    progress(out, job);
}

fn progress(out: &mut JsonWriter, job: &Job) {
    out.key("progress");
    match job.status.running.as_ref().and_then(|running| running.progress.as_ref()) {
        Some(progress) => out.raw(progress),
        None => out.null(),
    }
}

/// A job without a schedule has fired by itself, at the time it was first set for.
fn occurrence(out: &mut JsonWriter, job: &Job) {
    let occurrence = job.spec.occurrence.as_ref();
    out.key("schedule_id").text_or_null(occurrence.map(|of| of.schedule_id.to_string()).as_deref());
    out.key("fire_at").plain(occurrence.map_or(job.id.run_at(), |occurrence| occurrence.fire_at));
    out.key("catch_up").boolean(occurrence.is_some_and(|occurrence| occurrence.catch_up));
}

const fn is_failure(ending: Ending) -> bool {
    matches!(ending, Ending::Failed | Ending::TimedOut | Ending::LeaseExpired | Ending::Lost)
}
