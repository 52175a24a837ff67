//! A job's record on disk. The tenant and the id are in the key and not repeated here.
//!
//! ```text
//! version u8 = 1 | flags u8 | body | extra, if flag 1 | trace, if flag 8 | status, if flag 2
//! ```
//!
//! The parts are postcard (varint numbers, zigzag when signed, length before text and bytes), in the order
//! of the fields below. `extra` is left out when all of it is as usual, `status` when nothing has happened to the
//! job yet, flag 4 says that the job goes to an HTTP target. Instants are milliseconds relative to the time in
//! the job's id, which keeps them short. A waiting job costs its type, queue and payload, and about a dozen
//! bytes. The attempt under way is never here but in `claims`, so starting one does not rewrite the record.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{
    Attempt, Destination, Ending, Job, Occurrence, Priority, Spec, State, Status, Target, Token,
};
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;
use tidewheel_core::trace::TraceContext;

use crate::append::append;
use crate::kv::Slice;

pub(crate) const VERSION: u8 = 1;
const HAS_EXTRA: u8 = 1;
const HAS_STATUS: u8 = 2;
const IS_PUSH: u8 = 4;
/// Was not there from the beginning: a program that does not know it refuses the record by its flags.
const HAS_TRACE: u8 = 8;
/// The record leaves to its schedule what it asks for, and is nothing like the others ([`crate::lean`]).
pub(crate) const IS_LEAN: u8 = 16;
const FLAGS_KNOWN: u8 = HAS_EXTRA | HAS_STATUS | IS_PUSH | HAS_TRACE;
/// What most records take beside their payload, at most.
const RECORD_BYTES_USUAL: usize = 160;
pub(crate) const METHOD_USUAL: &str = "POST";

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("a record of version {0}, which this program does not know; a newer one may")]
    Version(u8),
    #[error("a record that does not make sense ({0})")]
    Nonsense(&'static str),
    #[error("a schedule in the zone {0}, which the time zone database of this program does not have")]
    Zone(Box<str>),
}

#[derive(Serialize, Deserialize)]
struct Body<'a> {
    /// Text, as `destination` is: bytes here, because neighbours mostly have the same, which need not be looked at letter by
    /// letter again.
    #[serde(serialize_with = "in_one_go")]
    kind: &'a [u8],
    /// The queue, or the target's URL.
    #[serde(serialize_with = "in_one_go")]
    destination: &'a [u8],
    created_at: i64,
    #[serde(serialize_with = "in_one_go")]
    payload: &'a [u8],
}

#[derive(Serialize, Deserialize, PartialEq)]
struct Extra<'a> {
    priority: u8,
    retry: Option<Retry>,
    timeout_ms: Option<i64>,
    expires_at: Option<i64>,
    #[serde(borrow)]
    idempotency_key: Option<&'a str>,
    labels: Vec<(&'a str, &'a str)>,
    occurrence: Option<Origin<'a>>,
    method: Option<&'a str>,
    headers: Vec<(&'a str, &'a str)>,
}

/// A retry policy that is not the usual one.
#[derive(Serialize, Deserialize, PartialEq)]
pub(crate) struct Retry {
    max_attempts: u32,
    backoff: u8,
    base_ms: i64,
    multiplier: f64,
    max_ms: i64,
}

#[derive(Serialize, Deserialize, PartialEq)]
struct Origin<'a> {
    /// Its bytes; those of its text in records of before.
    schedule_id: &'a [u8],
    fire_at: i64,
    catch_up: bool,
}

/// The trace a job was submitted in.
#[derive(Serialize, Deserialize)]
struct Trace<'a> {
    trace_id: u128,
    span_id: u64,
    flags: u8,
    state: &'a str,
}

#[derive(Serialize, Deserialize)]
struct Standing<'a> {
    state: u8,
    due_at: i64,
    attempt: u32,
    failures: u32,
    lost: u32,
    token: u64,
    finished_at: Option<i64>,
    #[serde(borrow)]
    attempts: Vec<Ended<'a>>,
    reason: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct Ended<'a> {
    number: u32,
    token: u64,
    worker: &'a str,
    started_at: i64,
    finished_at: i64,
    ending: u8,
    status_code: Option<u16>,
    detail: &'a str,
}

/// Writes a job's record. An attempt under way is left out.
pub(crate) fn encode(job: &Job) -> Vec<u8> {
    append_record(Vec::with_capacity(RECORD_BYTES_USUAL + job.spec.payload.len()), job)
}

/// The same, put together in `scratch`.
pub(crate) fn encode_slice(job: &Job, scratch: &mut Vec<u8>) -> Slice {
    scratch.clear();
    *scratch = append_record(std::mem::take(scratch), job);
    Slice::from(&**scratch)
}

fn append_record(mut bytes: Vec<u8>, job: &Job) -> Vec<u8> {
    let base = job.id.run_at();
    let (spec, status) = (&*job.spec, &job.status);
    let extra = extra_of(spec, base);
    let extra = (extra != Extra::usual()).then_some(extra);
    let fresh = status.running.is_none() && *status == Status::scheduled(base);
    let (is_push, destination) = match &spec.destination {
        Destination::Queue(name) => (0, &**name),
        Destination::Target(target) => (IS_PUSH, &*target.url),
    };
    let flags = is_push
        | if extra.is_some() { HAS_EXTRA } else { 0 }
        | if spec.trace.is_some() { HAS_TRACE } else { 0 }
        | if fresh { 0 } else { HAS_STATUS };
    bytes.extend_from_slice(&[VERSION, flags]);
    let created_at = spec.created_at.since_ms(base);
    let (kind, destination) = (spec.kind.as_bytes(), destination.as_bytes());
    bytes = append(&Body { kind, destination, created_at, payload: &spec.payload }, bytes);
    if let Some(extra) = &extra {
        bytes = append(extra, bytes);
    }
    if let Some(trace) = &spec.trace {
        bytes = append(&trace_of(trace), bytes);
    }
    if !fresh {
        bytes = append(&standing_of(status, base), bytes);
    }
    bytes
}

/// Bytes as bytes. Left to itself, a slice is written one element after the other, to the same effect.
pub(crate) fn in_one_go<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// How many attempts a record knows of, without reading all of it when it knows of none.
pub(crate) fn attempt_of(tenant: &Tenant, id: JobId, bytes: &[u8]) -> Result<u32, Unreadable> {
    match bytes {
        [VERSION, flags, ..] if flags & HAS_STATUS == 0 => Ok(0),
        _ => decode(tenant, id, bytes).map(|job| job.status.attempt),
    }
}

/// Reads a job's record.
pub(crate) fn decode(tenant: &Tenant, id: JobId, bytes: &[u8]) -> Result<Job, Unreadable> {
    Decoder::new(tenant).decode(id, bytes)
}

/// Reads records of one tenant one after the other. Neighbours are often of one type and go to one place, which
/// is then kept once.
pub(crate) struct Decoder<'t> {
    tenant: &'t Tenant,
    kind: Option<Arc<str>>,
    destination: Option<Destination>,
}

impl<'t> Decoder<'t> {
    pub(crate) const fn new(tenant: &'t Tenant) -> Self {
        Self { tenant, kind: None, destination: None }
    }

    /// Reads a job's record.
    pub(crate) fn decode(&mut self, id: JobId, bytes: &[u8]) -> Result<Job, Unreadable> {
        let Parts { body, extra, trace, status, is_push } = read_parts(id.run_at(), bytes)?;
        let kind = match &self.kind {
            Some(kind) if *kind.as_bytes() == *body.kind => Arc::clone(kind),
            Some(_) | None => Arc::clone(self.kind.insert(text(body.kind)?.into())),
        };
        let method = extra.method.unwrap_or(METHOD_USUAL);
        let is_same = match &self.destination {
            Some(Destination::Queue(name)) => !is_push && *name.as_bytes() == *body.destination,
            Some(Destination::Target(target)) => {
                is_push
                    && *target.url.as_bytes() == *body.destination
                    && *target.method == *method
                    && target.headers.len() == extra.headers.len()
                    && target
                        .headers
                        .iter()
                        .zip(&extra.headers)
                        .all(|((a, b), (c, d))| **a == **c && **b == **d)
            }
            None => false,
        };
        if !is_same {
            self.destination = Some(read_destination(text(body.destination)?, &extra, method, is_push));
        }
        let destination = self.destination.clone().ok_or(Unreadable::Nonsense("its destination"))?;
        let spec = read_spec(&body, extra, (id.run_at(), trace), (kind, destination))?;
        Ok(Job { id, tenant: self.tenant.clone(), spec, status })
    }
}

struct Parts<'a> {
    body: Body<'a>,
    extra: Extra<'a>,
    trace: Option<TraceContext>,
    status: Status,
    is_push: bool,
}

fn read_parts(base: Timestamp, bytes: &[u8]) -> Result<Parts<'_>, Unreadable> {
    let (flags, rest) = match bytes {
        [VERSION, flags, rest @ ..] if flags & !FLAGS_KNOWN == 0 => (*flags, rest),
        [VERSION, ..] => return Err(Unreadable::Nonsense("unknown flags")),
        [version, ..] => return Err(Unreadable::Version(*version)),
        [] => return Err(Unreadable::Nonsense("empty")),
    };
    let (body, rest): (Body<'_>, _) =
        postcard::take_from_bytes(rest).map_err(|_| Unreadable::Nonsense("its body"))?;
    let (extra, rest) = if flags & HAS_EXTRA == 0 {
        (Extra::usual(), rest)
    } else {
        postcard::take_from_bytes(rest).map_err(|_| Unreadable::Nonsense("its extra part"))?
    };
    let (trace, rest) = if flags & HAS_TRACE == 0 {
        (None, rest)
    } else {
        let (trace, rest) = postcard::take_from_bytes(rest).map_err(|_| Unreadable::Nonsense("its trace"))?;
        (Some(read_trace(&trace)?), rest)
    };
    let status = if flags & HAS_STATUS == 0 {
        Status::scheduled(base)
    } else {
        let standing = postcard::from_bytes(rest).map_err(|_| Unreadable::Nonsense("its status"))?;
        read_standing(standing, base)?
    };
    Ok(Parts { body, extra, trace, status, is_push: flags & IS_PUSH != 0 })
}

impl Extra<'_> {
    const fn usual() -> Self {
        Self {
            priority: Priority::Normal as u8,
            retry: None,
            timeout_ms: None,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            method: None,
            headers: Vec::new(),
        }
    }
}

impl Retry {
    pub(crate) fn of(policy: &RetryPolicy) -> Option<Self> {
        (*policy != RetryPolicy::default()).then_some(Self {
            max_attempts: policy.max_attempts,
            backoff: match policy.backoff {
                Backoff::Fixed => 0,
                Backoff::Exponential => 1,
                Backoff::ExponentialJitter => 2,
            },
            base_ms: policy.base_ms,
            multiplier: policy.multiplier,
            max_ms: policy.max_ms,
        })
    }

    pub(crate) fn read(retry: Option<Self>) -> Result<RetryPolicy, Unreadable> {
        let Some(retry) = retry else { return Ok(RetryPolicy::default()) };
        Ok(RetryPolicy {
            max_attempts: retry.max_attempts,
            backoff: match retry.backoff {
                0 => Backoff::Fixed,
                1 => Backoff::Exponential,
                2 => Backoff::ExponentialJitter,
                _ => return Err(Unreadable::Nonsense("its backoff")),
            },
            base_ms: retry.base_ms,
            multiplier: retry.multiplier,
            max_ms: retry.max_ms,
        })
    }
}

fn extra_of(spec: &Spec, base: Timestamp) -> Extra<'_> {
    let target = match &spec.destination {
        Destination::Queue(_) => None,
        Destination::Target(target) => Some(target),
    };
    Extra {
        priority: spec.priority as u8,
        retry: Retry::of(&spec.retry),
        timeout_ms: (spec.timeout_ms != TIMEOUT_MS_DEFAULT).then_some(spec.timeout_ms),
        expires_at: spec.expires_at.map(|at| at.since_ms(base)),
        idempotency_key: spec.idempotency_key.as_deref(),
        labels: borrowed(&spec.labels),
        occurrence: spec.occurrence.as_ref().map(|origin| Origin {
            schedule_id: origin.schedule_id.as_bytes(),
            fire_at: origin.fire_at.since_ms(base),
            catch_up: origin.catch_up,
        }),
        method: target.map(|target| &*target.method).filter(|method| *method != METHOD_USUAL),
        headers: target.map_or_else(Vec::new, |target| borrowed(&target.headers)),
    }
}

fn trace_of(trace: &TraceContext) -> Trace<'_> {
    Trace {
        trace_id: trace.trace_id.as_u128(),
        span_id: trace.span_id.as_u64(),
        flags: trace.flags(),
        state: trace.state(),
    }
}

fn read_trace(trace: &Trace<'_>) -> Result<TraceContext, Unreadable> {
    TraceContext::from_parts(trace.trace_id, trace.span_id, trace.flags, trace.state)
        .ok_or(Unreadable::Nonsense("its trace"))
}

fn text(bytes: &[u8]) -> Result<&str, Unreadable> {
    std::str::from_utf8(bytes).map_err(|_| Unreadable::Nonsense("its body"))
}

fn read_destination(destination: &str, extra: &Extra<'_>, method: &str, is_push: bool) -> Destination {
    if is_push {
        Destination::Target(Arc::new(Target {
            url: destination.into(),
            method: method.into(),
            headers: owned(&extra.headers),
        }))
    } else {
        Destination::Queue(destination.into())
    }
}

fn read_spec(
    body: &Body<'_>,
    extra: Extra<'_>,
    (base, trace): (Timestamp, Option<TraceContext>),
    (kind, destination): (Arc<str>, Destination),
) -> Result<Arc<Spec>, Unreadable> {
    Ok(Arc::new(Spec {
        kind,
        payload: Bytes::copy_from_slice(body.payload),
        destination,
        priority: Priority::ALL
            .get(usize::from(extra.priority))
            .copied()
            .ok_or(Unreadable::Nonsense("its priority"))?,
        retry: Retry::read(extra.retry)?,
        timeout_ms: extra.timeout_ms.unwrap_or(TIMEOUT_MS_DEFAULT),
        expires_at: extra.expires_at.map(|ms| base.plus_ms(ms)),
        idempotency_key: extra.idempotency_key.map(Into::into),
        labels: owned(&extra.labels),
        occurrence: extra.occurrence.map(|origin| read_origin(&origin, base)).transpose()?,
        trace: trace.map(Box::new),
        created_at: base.plus_ms(body.created_at),
    }))
}

fn read_origin(origin: &Origin<'_>, base: Timestamp) -> Result<Occurrence, Unreadable> {
    let schedule_id = ScheduleId::from_bytes_or_text(origin.schedule_id);
    Ok(Occurrence {
        schedule_id: schedule_id.ok_or(Unreadable::Nonsense("its schedule"))?,
        fire_at: base.plus_ms(origin.fire_at),
        catch_up: origin.catch_up,
    })
}

fn standing_of(status: &Status, base: Timestamp) -> Standing<'_> {
    Standing {
        state: status.state as u8,
        due_at: status.due_at.since_ms(base),
        attempt: status.attempt,
        failures: status.failures,
        lost: status.lost,
        token: status.token.as_u64(),
        finished_at: status.finished_at.map(|at| at.since_ms(base)),
        attempts: status
            .attempts
            .iter()
            .map(|attempt| Ended {
                number: attempt.number,
                token: attempt.token.as_u64(),
                worker: &attempt.worker,
                started_at: attempt.started_at.since_ms(base),
                finished_at: attempt.finished_at.since_ms(attempt.started_at),
                ending: attempt.ending as u8,
                status_code: attempt.status_code,
                detail: &attempt.detail,
            })
            .collect(),
        reason: status.reason.as_deref(),
    }
}

fn read_standing(standing: Standing<'_>, base: Timestamp) -> Result<Status, Unreadable> {
    let state = State::ALL
        .get(usize::from(standing.state))
        .copied()
        .filter(|state| *state != State::Running)
        .ok_or(Unreadable::Nonsense("its state"))?;
    let attempts =
        standing.attempts.into_iter().map(|ended| read_ended(&ended, base)).collect::<Result<_, _>>()?;
    Ok(Status {
        state,
        due_at: base.plus_ms(standing.due_at),
        attempt: standing.attempt,
        failures: standing.failures,
        lost: standing.lost,
        token: Token::from_u64(standing.token),
        running: None,
        finished_at: standing.finished_at.map(|ms| base.plus_ms(ms)),
        attempts,
        reason: standing.reason.map(Into::into),
    })
}

fn read_ended(ended: &Ended<'_>, base: Timestamp) -> Result<Attempt, Unreadable> {
    let started_at = base.plus_ms(ended.started_at);
    Ok(Attempt {
        number: ended.number,
        token: Token::from_u64(ended.token),
        worker: ended.worker.into(),
        started_at,
        finished_at: started_at.plus_ms(ended.finished_at),
        ending: Ending::ALL
            .get(usize::from(ended.ending))
            .copied()
            .ok_or(Unreadable::Nonsense("how an attempt ended"))?,
        status_code: ended.status_code,
        detail: ended.detail.into(),
    })
}

pub(crate) fn borrowed(pairs: &[(Box<str>, Box<str>)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (&**name, &**value)).collect()
}

pub(crate) fn owned(pairs: &[(&str, &str)]) -> Vec<(Box<str>, Box<str>)> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

#[cfg(test)]
mod tests;
