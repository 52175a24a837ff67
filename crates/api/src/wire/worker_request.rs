//! What pull workers say: give me jobs, I am alive, this came of it.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::Token;
use tidewheel_core::limits::{
    EXCERPT_BYTES_MAX, LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN, MINUTE_MS, PAYLOAD_DEPTH_MAX,
    RESULT_BYTES_MAX, RETRY_DELAY_MS_MAX, SECOND_MS,
};
use tidewheel_core::names::check_worker;

use super::fault::{At, Code, Faults, shown};
use super::job_request::{depth, named};
use super::read::{self, Field};
use crate::known_fields;

/// Jobs taken at once, unless the worker asks otherwise.
pub const TAKE_COUNT_DEFAULT: usize = 1;
/// Jobs taken at once, at most.
pub const TAKE_COUNT_MAX: usize = 1_000;
/// How long a worker may wait for jobs.
pub const TAKE_WAIT_MS_MAX: i64 = MINUTE_MS;
/// How much later a snoozed job is tried, unless the worker says otherwise.
pub const SNOOZE_MS_DEFAULT: i64 = 30 * SECOND_MS;
/// Name of a worker that gives none.
const WORKER_DEFAULT: &str = "worker";

/// A wish for jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeRequest {
    /// Who asks.
    pub worker: Arc<str>,
    /// How many at most.
    pub count_max: usize,
    /// How long to wait for the first.
    pub wait_ms: i64,
    /// How long they are safe from others.
    pub lease_ms: i64,
}

known_fields!(TakeFields {
    worker = "worker",
    max = "max",
    wait = "wait",
    lease = "lease",
    idempotency_key = "idempotency_key",
});

impl TakeRequest {
    /// Reads the wish; everything in it may be left out.
    pub fn read(text: &str, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: TakeFields<'_> = read::optional_body(text, at, faults)?;
        let worker = fields.worker.and_then(|field| {
            let text = field.text(at, faults)?;
            named(check_worker(&text), &field, at, faults)?;
            Some(Arc::from(text))
        });
        let count = fields.max.and_then(|field| field.whole(1, TAKE_COUNT_MAX as u64, at, faults));
        let wait_ms = fields.wait.and_then(|field| field.duration_within(0, TAKE_WAIT_MS_MAX, at, faults));
        let lease_ms = fields.lease.and_then(|field| read_lease(&field, at, faults));
        Some(Self {
            worker: worker.unwrap_or_else(|| Arc::from(WORKER_DEFAULT)),
            count_max: count.and_then(|count| usize::try_from(count).ok()).unwrap_or(TAKE_COUNT_DEFAULT),
            wait_ms: wait_ms.unwrap_or(0),
            lease_ms: lease_ms.unwrap_or(LEASE_MS_DEFAULT),
        })
    }
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatRequest {
    /// Of which attempt.
    pub token: Token,
    /// How long it is safe from others, from now.
    pub extend_ms: i64,
    /// How far it is, as JSON.
    pub progress: Option<Bytes>,
}

known_fields!(HeartbeatFields {
    token = "token",
    extend = "extend",
    progress = "progress",
    idempotency_key = "idempotency_key",
});

impl HeartbeatRequest {
    /// Reads a sign of life.
    pub fn read(text: &str, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: HeartbeatFields<'_> = read::body(text, at, faults)?;
        let extend_ms =
            fields.extend.and_then(|field| read_lease(&field, at, faults)).unwrap_or(LEASE_MS_DEFAULT);
        let progress = fields.progress.and_then(|field| read_small_json(&field, at, faults));
        let progress = progress.map(|raw| Bytes::copy_from_slice(raw.as_bytes()));
        Some(Self { token: read_token(fields.token, at, faults)?, extend_ms, progress })
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRequest {
    /// Of which attempt.
    pub token: Token,
    /// What.
    pub report: Report,
}

/// What a worker says came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It did what it should.
    Succeeded {
        /// What came out, as JSON; empty when nothing did.
        result: Box<str>,
    },
    /// It failed.
    Failed {
        /// How, for humans.
        error: Box<str>,
        /// Whether another attempt could help.
        retryable: bool,
        /// Not before this has passed.
        retry_after_ms: Option<i64>,
    },
    /// It is to be run again later, at no cost.
    Snoozed {
        /// How much later.
        delay_ms: i64,
    },
    /// The worker gave it up as called off.
    Cancelled {
        /// Why, for humans.
        error: Box<str>,
    },
}

#[derive(Clone, Copy)]
enum ReportKind {
    Succeeded,
    Failed,
    Snoozed,
    Cancelled,
}

const REPORTS: [(&str, ReportKind); 4] = [
    ("succeeded", ReportKind::Succeeded),
    ("failed", ReportKind::Failed),
    ("snoozed", ReportKind::Snoozed),
    ("cancelled", ReportKind::Cancelled),
];

known_fields!(OutcomeFields {
    token = "token",
    status = "status",
    result = "result",
    error = "error",
    retryable = "retryable",
    retry_after = "retry_after",
    idempotency_key = "idempotency_key",
});

impl OutcomeRequest {
    /// Reads an outcome.
    pub fn read(text: &str, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: OutcomeFields<'_> = read::body(text, at, faults)?;
        let result = fields.result.and_then(|field| read_small_json(&field, at, faults)).unwrap_or_default();
        let error = fields.error.and_then(|field| read_error(&field, at, faults)).unwrap_or_default();
        let retryable = fields.retryable.and_then(|field| field.boolean(at, faults)).unwrap_or(true);
        let retry_after_ms =
            fields.retry_after.and_then(|field| field.duration_within(0, RETRY_DELAY_MS_MAX, at, faults));
        let token = read_token(fields.token, at, faults);
        let Some(status) = fields.status else {
            faults.add(Code::MissingField, &at.field("status"), "an outcome needs a status");
            return None;
        };
        let parse = |text: &str| REPORTS.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
        let report = match status.one_of(&REPORTS.map(|(name, _)| name), parse, at, faults)? {
            ReportKind::Succeeded => Report::Succeeded { result: result.into() },
            ReportKind::Failed => Report::Failed { error, retryable, retry_after_ms },
            ReportKind::Snoozed => Report::Snoozed { delay_ms: retry_after_ms.unwrap_or(SNOOZE_MS_DEFAULT) },
            ReportKind::Cancelled => Report::Cancelled { error },
        };
        Some(Self { token: token?, report })
    }
}

fn read_lease(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<i64> {
    field.duration_within(LEASE_MS_MIN, LEASE_MS_MAX, at, faults)
}

/// A token is a number; as text it survives readers that make every number a float.
fn read_token(field: Option<Field<'_>>, at: &At<'_>, faults: &mut Faults) -> Option<Token> {
    let Some(field) = field else {
        faults.add(Code::MissingField, &at.field("token"), "the attempt's token is needed");
        return None;
    };
    let text = if field.raw().starts_with('"') { field.text(at, faults)? } else { field.raw().into() };
    let token = text.parse().ok().map(Token::from_u64);
    if token.is_none() {
        field.refuse(Code::InvalidValue, at, faults, format!("{:?} is not a token", shown(&text)));
    }
    token
}

fn read_small_json<'a>(field: &Field<'a>, at: &At<'_>, faults: &mut Faults) -> Option<&'a str> {
    let raw = field.raw();
    match check_size(raw) {
        Ok(()) => Some(raw),
        Err((code, detail)) => {
            field.refuse(code, at, faults, detail);
            None
        }
    }
}

fn check_size(json: &str) -> Result<(), (Code, String)> {
    if json.len() > RESULT_BYTES_MAX {
        let detail = format!("it has {} bytes; at most {RESULT_BYTES_MAX} are kept", json.len());
        return Err((Code::PayloadTooLarge, detail));
    }
    if depth(json) > PAYLOAD_DEPTH_MAX {
        return Err((Code::PayloadTooDeep, format!("it nests deeper than {PAYLOAD_DEPTH_MAX} levels")));
    }
    Ok(())
}

/// Checks a result or a progress that came as bytes: JSON within the bounds of one, or nothing at all.
///
/// # Errors
/// With what is wrong.
pub fn check_small_json(bytes: &[u8]) -> Result<&str, (Code, String)> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err((Code::MalformedJson, "it is not UTF-8".to_owned()));
    };
    check_size(text)?;
    if !text.is_empty() {
        serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map_err(|fault| (Code::MalformedJson, format!("it is not JSON: {fault}")))?;
    }
    Ok(text)
}

/// An error is a text, or any JSON, of which the beginning is kept.
fn read_error(field: &Field<'_>, at: &At<'_>, faults: &mut Faults) -> Option<Box<str>> {
    let text = if field.raw().starts_with('"') { field.free_text(at, faults)? } else { field.raw().into() };
    Some(error_excerpt(&text).into())
}

/// What is kept of an error: its beginning.
#[must_use]
pub fn error_excerpt(text: &str) -> &str {
    let mut end = text.len().min(EXCERPT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
