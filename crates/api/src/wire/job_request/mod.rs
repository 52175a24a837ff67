//! A job to be submitted, read from JSON.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::{Destination, Priority, Target};
use tidewheel_core::limits::{
    LABEL_KEY_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_COUNT_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX,
    TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX,
};
use tidewheel_core::names::{InvalidName, check_idempotency_key, check_queue, check_type};
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;
use tidewheel_core::trace::TraceContext;

use super::fault::{At, Code, Faults};
use super::read::{self, Field};
use crate::known_fields;

mod left_out;
mod retry;
mod start;
mod target;

pub use left_out::LeftOut;
pub(crate) use retry::{policy_name, read_retry};
pub use start::Start;
pub(crate) use start::read_start;
pub use target::TargetRules;
pub(crate) use target::{TargetFields, read_target};

/// The queue of a job that names neither a queue nor a target.
pub const QUEUE_DEFAULT: &str = "default";
/// The payload of a job that is sent without one.
pub const PAYLOAD_DEFAULT: &[u8] = b"null";
/// The shortest timeout.
const TIMEOUT_MS_MIN: i64 = 1;

/// A job as it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRequest {
    /// Its type.
    pub kind: Arc<str>,
    /// Its payload, byte for byte.
    pub payload: Bytes,
    /// When it starts.
    pub start: Start,
    /// Where it goes.
    pub destination: Destination,
    /// How urgent it is.
    pub priority: Priority,
    /// When to try again.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    pub timeout_ms: i64,
    /// When it is no longer worth starting.
    pub expires_at: Option<Timestamp>,
    /// The caller's key.
    pub idempotency_key: Option<Arc<str>>,
    /// The caller's labels, sorted by key.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// What it did not say.
    pub left_out: LeftOut,
    /// The trace the caller says it belongs to.
    pub trace: Option<Box<TraceContext>>,
}

known_fields!(JobFields {
    kind = "type",
    payload = "payload",
    run_at = "run_at",
    delay = "delay",
    queue = "queue",
    target = "target",
    target_url = "target_url",
    priority = "priority",
    retry = "retry",
    max_attempts = "max_attempts",
    timeout = "timeout",
    expires_at = "expires_at",
    idempotency_key = "idempotency_key",
    labels = "labels",
    traceparent = "traceparent",
    tracestate = "tracestate",
});

/// Reads jobs. Jobs of one batch mostly share their type, queue and target: what was read for the last one is
/// shared with the next.
#[derive(Debug)]
pub struct JobReader<'r, R> {
    now: Timestamp,
    rules: &'r R,
    last_kind: Option<Arc<str>>,
    last_queue: Option<Arc<str>>,
    last_target: Option<LastTarget>,
}

#[derive(Debug)]
struct LastTarget {
    /// The fields as they were sent.
    raw: (Option<Box<str>>, Option<Box<str>>),
    target: Arc<Target>,
    timeout_ms: Option<i64>,
}

impl<'r, R: TargetRules> JobReader<'r, R> {
    /// A reader of jobs that arrive at `now`.
    pub const fn new(now: Timestamp, rules: &'r R) -> Self {
        Self { now, rules, last_kind: None, last_queue: None, last_target: None }
    }

    /// Reads one job; `None` when there are faults.
    pub fn read(&mut self, text: &str, at: &At<'_>, faults: &mut Faults) -> Option<JobRequest> {
        let before = faults.count();
        let fields: JobFields<'_> = read::body(text, at, faults)?;
        let kind = self.kind(fields.kind, at, faults);
        let payload = match fields.payload {
            Some(field) => read_payload(&field, at, faults),
            None => Some(Bytes::from_static(PAYLOAD_DEFAULT)),
        };
        let start = read_start(fields.run_at, fields.delay, self.now, at, faults);
        let destination = self.destination(&fields, at, faults);
        let (destination, target_timeout) =
            destination.map_or((None, None), |(to, timeout)| (Some(to), timeout));
        let left_out = LeftOut {
            destination: fields.queue.or(fields.target).or(fields.target_url).is_none(),
            priority: fields.priority.is_none(),
            retry: fields.retry.is_none(),
            max_attempts: fields.retry.or(fields.max_attempts).is_none(),
            timeout: fields.timeout.is_none() && target_timeout.is_none(),
        };
        let timeout_ms = read_timeout(fields.timeout, target_timeout, at, faults);
        let priority =
            fields.priority.and_then(|field| read_priority(&field, at, faults)).unwrap_or_default();
        let retry = read_retry(fields.retry, fields.max_attempts, at, faults);
        let expires_at = fields.expires_at.and_then(|field| {
            let time = field.time(at, faults)?;
            self.check_expiry(&field, time, start, at, faults);
            Some(time)
        });
        let idempotency_key = fields.idempotency_key.and_then(|field| read_key(&field, at, faults));
        let labels = fields.labels.and_then(|field| read_labels(&field, at, faults)).unwrap_or_default();
        let trace = read_trace(fields.traceparent, fields.tracestate, at, faults);
        if faults.count() > before {
            return None;
        }
        Some(JobRequest {
            kind: kind?,
            payload: payload?,
            start: start?,
            destination: destination?,
            priority,
            retry,
            timeout_ms,
            expires_at,
            idempotency_key,
            labels,
            left_out,
            trace,
        })
    }

    fn kind(&mut self, field: Option<Field<'_>>, at: &At<'_>, faults: &mut Faults) -> Option<Arc<str>> {
        let Some(field) = field else {
            faults.add(Code::MissingField, &at.field("type"), "a job needs a type");
            return None;
        };
        let text = field.text(at, faults)?;
        if let Some(last) = self.last_kind.as_ref().filter(|last| ***last == *text) {
            return Some(Arc::clone(last));
        }
        named(check_type(&text), &field, at, faults)?;
        let kind: Arc<str> = Arc::from(text);
        self.last_kind = Some(Arc::clone(&kind));
        Some(kind)
    }

    /// Where the job goes, and the timeout its target names.
    fn destination(
        &mut self,
        fields: &JobFields<'_>,
        at: &At<'_>,
        faults: &mut Faults,
    ) -> Option<(Destination, Option<i64>)> {
        if let (Some(queue), Some(target)) = (fields.queue, fields.target.or(fields.target_url)) {
            let detail =
                format!("`queue` and `{}` exclude each other: a job is pulled or pushed", target.name());
            queue.refuse(Code::ConflictingFields, at, faults, detail);
            return None;
        }
        if fields.target.is_none() && fields.target_url.is_none() {
            return self.queue(fields.queue, at, faults).map(|queue| (Destination::Queue(queue), None));
        }
        let raw = (fields.target.map(|f| f.raw()), fields.target_url.map(|f| f.raw()));
        if let Some(last) = &self.last_target
            && (last.raw.0.as_deref(), last.raw.1.as_deref()) == raw
        {
            return Some((Destination::Target(Arc::clone(&last.target)), last.timeout_ms));
        }
        let (target, timeout_ms) = read_target(
            &TargetFields { target: fields.target, target_url: fields.target_url },
            self.rules,
            at,
            faults,
        )?;
        let target = Arc::new(target);
        let raw = (raw.0.map(Box::from), raw.1.map(Box::from));
        self.last_target = Some(LastTarget { raw, target: Arc::clone(&target), timeout_ms });
        Some((Destination::Target(target), timeout_ms))
    }

    fn queue(&mut self, field: Option<Field<'_>>, at: &At<'_>, faults: &mut Faults) -> Option<Arc<str>> {
        let text = match &field {
            Some(field) => field.text(at, faults)?,
            None => QUEUE_DEFAULT.into(),
        };
        if let Some(last) = self.last_queue.as_ref().filter(|last| ***last == *text) {
            return Some(Arc::clone(last));
        }
        if let Some(field) = &field {
            named(check_queue(&text), field, at, faults)?;
        }
        let queue: Arc<str> = Arc::from(text);
        self.last_queue = Some(Arc::clone(&queue));
        Some(queue)
    }

    fn check_expiry(
        &self,
        field: &Field<'_>,
        expires_at: Timestamp,
        start: Option<Start>,
        at: &At<'_>,
        faults: &mut Faults,
    ) {
        if let Some(start) = start
            && expires_at <= start.at(self.now)
        {
            let detail = format!("it expires at {expires_at}, before it starts at {}", start.at(self.now));
            field.refuse(Code::InvalidValue, at, faults, detail);
        }
    }
}

/// Reads a payload: any JSON, kept as it was sent.
pub(crate) fn read_payload(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Bytes> {
    let raw = field.raw();
    if raw.len() > PAYLOAD_BYTES_MAX {
        let detail = format!("the payload has {} bytes; at most {PAYLOAD_BYTES_MAX} are allowed", raw.len());
        field.refuse(Code::PayloadTooLarge, at, faults, detail);
        return None;
    }
    // Nearly every payload opens fewer brackets than would make it too deep, and counting them is much cheaper
    // than following them.
    let opened = raw.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if opened > PAYLOAD_DEPTH_MAX && depth(raw) > PAYLOAD_DEPTH_MAX {
        let detail = format!("the payload nests deeper than {PAYLOAD_DEPTH_MAX} levels");
        field.refuse(Code::PayloadTooDeep, at, faults, detail);
        return None;
    }
    Some(Bytes::copy_from_slice(raw.as_bytes()))
}

/// How deep valid JSON nests.
#[must_use]
pub fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Reads a priority.
pub(crate) fn read_priority(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Priority> {
    field.one_of(&Priority::ALL.map(Priority::as_str), Priority::from_name, at, faults)
}

/// Reads `timeout`, or the one a target names.
pub(crate) fn read_timeout(
    field: Option<Field<'_>>,
    of_target: Option<i64>,
    at: &At<'_>,
    faults: &mut Faults,
) -> i64 {
    let own = field.and_then(|field| read_timeout_field(&field, at, faults));
    if let (Some(own), Some(of_target), Some(field)) = (own, of_target, &field)
        && own != of_target
    {
        field.refuse(
            Code::ConflictingFields,
            at,
            faults,
            "`timeout` and `target.timeout` differ; give one of them",
        );
    }
    own.or(of_target).unwrap_or(TIMEOUT_MS_DEFAULT)
}

pub(crate) fn read_timeout_field(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<i64> {
    field.duration_within(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX, at, faults)
}

/// Reads an idempotency key.
pub(crate) fn read_key(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Arc<str>> {
    let text = field.text(at, faults)?;
    named(check_idempotency_key(&text), field, at, faults)?;
    Some(Arc::from(text))
}

/// Reads labels, sorted by their keys.
pub(crate) fn read_labels(
    field: &Field<'_>,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Vec<(Box<str>, Box<str>)>> {
    let entries = field.texts(at, faults)?;
    if entries.len() > LABELS_COUNT_MAX {
        let detail = format!("{} labels are given; at most {LABELS_COUNT_MAX} are allowed", entries.len());
        field.refuse(Code::InvalidValue, at, faults, detail);
        return None;
    }
    let labels_at = at.field(field.name());
    let mut labels: Vec<(Box<str>, Box<str>)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        if key.is_empty() || key.len() > LABEL_KEY_BYTES_MAX {
            let detail =
                format!("a label's key has 1 to {LABEL_KEY_BYTES_MAX} bytes, this one {}", key.len());
            faults.add(Code::InvalidValue, &labels_at.field(&key), detail);
        }
        if value.len() > LABEL_VALUE_BYTES_MAX {
            let detail = format!(
                "a label's value has at most {LABEL_VALUE_BYTES_MAX} bytes, this one {}",
                value.len()
            );
            faults.add(Code::InvalidValue, &labels_at.field(&key), detail);
        }
        labels.push((key.into(), value.into()));
    }
    labels.sort_unstable();
    for pair in labels.windows(2) {
        if let [(first, _), (second, _)] = pair
            && first == second
        {
            faults.add(Code::DuplicateField, &labels_at.field(first), "the label is given twice");
        }
    }
    Some(labels)
}

/// Reads a trace context. One that is not well formed is left aside: it must not be a reason to refuse work.
fn read_trace(
    parent: Option<Field<'_>>,
    state: Option<Field<'_>>,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<Box<TraceContext>> {
    let state = state.and_then(|field| field.free_text(at, faults));
    let parent = parent.and_then(|field| field.free_text(at, faults))?;
    TraceContext::read(&parent, &state.unwrap_or_default()).map(Box::new)
}

/// Notes a name that is refused.
pub(crate) fn named(
    checked: Result<(), InvalidName>,
    field: &Field<'_>,
    at: &At<'_>,
    faults: &mut Faults,
) -> Option<()> {
    checked.map_err(|fault| field.refuse(Code::InvalidValue, at, faults, fault.to_string())).ok()
}

#[cfg(test)]
mod tests;
