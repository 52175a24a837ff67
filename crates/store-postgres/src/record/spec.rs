//! What was asked of a job, beside its type and its payload, which have columns of their own. What is as usual is
//! left out. Instants are relative to the time in the job's id.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidewheel_core::job::{Destination, Occurrence, Priority, Spec, Target};
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;
use tidewheel_core::trace::TraceContext;

use super::{Unreadable, borrowed, nth, owned};

const METHOD_USUAL: &str = "POST";
const BACKOFFS: [Backoff; 3] = [Backoff::Fixed, Backoff::Exponential, Backoff::ExponentialJitter];

#[derive(Serialize, Deserialize)]
struct SpecRecord<'a> {
    #[serde(borrow)]
    destination: DestinationRecord<'a>,
    priority: u8,
    created_at: i64,
    retry: Option<RetryRecord>,
    timeout_ms: Option<i64>,
    expires_at: Option<i64>,
    idempotency_key: Option<&'a str>,
    labels: Vec<(&'a str, &'a str)>,
    occurrence: Option<Origin<'a>>,
}

/// The trace a job was submitted in.
#[derive(Serialize, Deserialize)]
struct TraceRecord<'a> {
    trace_id: u128,
    span_id: u64,
    flags: u8,
    state: &'a str,
}

/// Where a job goes.
#[derive(Serialize, Deserialize)]
pub(super) enum DestinationRecord<'a> {
    Queue(&'a str),
    Target {
        url: &'a str,
        method: Option<&'a str>,
        #[serde(borrow)]
        headers: Vec<(&'a str, &'a str)>,
    },
}

/// A retry policy that is not the usual one.
#[derive(Serialize, Deserialize)]
pub(super) struct RetryRecord {
    max_attempts: u32,
    backoff: u8,
    base_ms: i64,
    multiplier: f64,
    max_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct Origin<'a> {
    /// Its bytes; those of its text in records of before.
    schedule_id: &'a [u8],
    fire_at: i64,
    catch_up: bool,
}

pub(crate) fn encode(spec: &Spec, base: Timestamp) -> Vec<u8> {
    let record = SpecRecord {
        destination: DestinationRecord::of(&spec.destination),
        priority: spec.priority as u8,
        created_at: spec.created_at.since_ms(base),
        retry: RetryRecord::of(&spec.retry),
        timeout_ms: (spec.timeout_ms != TIMEOUT_MS_DEFAULT).then_some(spec.timeout_ms),
        expires_at: spec.expires_at.map(|at| at.since_ms(base)),
        idempotency_key: spec.idempotency_key.as_deref(),
        labels: borrowed(&spec.labels),
        occurrence: spec.occurrence.as_ref().map(|origin| Origin {
            schedule_id: origin.schedule_id.as_bytes(),
            fire_at: origin.fire_at.since_ms(base),
            catch_up: origin.catch_up,
        }),
    };
    match &spec.trace {
        None => super::encode(&record),
        Some(trace) => super::encode_more(&TraceRecord::of(trace), &record),
    }
}

impl Origin<'_> {
    fn read(&self, base: Timestamp) -> Result<Occurrence, Unreadable> {
        let schedule_id = ScheduleId::from_bytes_or_text(self.schedule_id);
        Ok(Occurrence {
            schedule_id: schedule_id.ok_or(Unreadable::Nonsense("its schedule"))?,
            fire_at: base.plus_ms(self.fire_at),
            catch_up: self.catch_up,
        })
    }
}

/// The columns of a job's body.
pub(crate) struct Body<'a> {
    pub(crate) kind: &'a str,
    pub(crate) spec: &'a [u8],
    pub(crate) payload: &'a [u8],
}

pub(crate) fn decode(body: &Body<'_>, base: Timestamp) -> Result<Spec, Unreadable> {
    let (trace, record): (Option<TraceRecord<'_>>, SpecRecord<'_>) = super::decode_more(body.spec, "a job")?;
    Ok(Spec {
        kind: body.kind.into(),
        payload: Bytes::copy_from_slice(body.payload),
        destination: record.destination.read(),
        priority: nth(&Priority::ALL, record.priority, "a priority")?,
        retry: RetryRecord::read(record.retry)?,
        timeout_ms: record.timeout_ms.unwrap_or(TIMEOUT_MS_DEFAULT),
        expires_at: record.expires_at.map(|ms| base.plus_ms(ms)),
        idempotency_key: record.idempotency_key.map(Into::into),
        labels: owned(&record.labels),
        occurrence: record.occurrence.map(|origin| origin.read(base)).transpose()?,
        trace: trace.map(TraceRecord::read).transpose()?.map(Box::new),
        created_at: base.plus_ms(record.created_at),
    })
}

impl<'a> TraceRecord<'a> {
    fn of(trace: &'a TraceContext) -> Self {
        Self {
            trace_id: trace.trace_id.as_u128(),
            span_id: trace.span_id.as_u64(),
            flags: trace.flags(),
            state: trace.state(),
        }
    }

    fn read(self) -> Result<TraceContext, Unreadable> {
        TraceContext::from_parts(self.trace_id, self.span_id, self.flags, self.state)
            .ok_or(Unreadable::Nonsense("a trace"))
    }
}

impl<'a> DestinationRecord<'a> {
    pub(super) fn of(destination: &'a Destination) -> Self {
        match destination {
            Destination::Queue(name) => Self::Queue(name),
            Destination::Target(target) => Self::Target {
                url: &target.url,
                method: Some(&*target.method).filter(|method| *method != METHOD_USUAL),
                headers: borrowed(&target.headers),
            },
        }
    }

    pub(super) fn read(self) -> Destination {
        match self {
            Self::Queue(name) => Destination::Queue(name.into()),
            Self::Target { url, method, headers } => Destination::Target(Arc::new(Target {
                url: url.into(),
                method: method.unwrap_or(METHOD_USUAL).into(),
                headers: owned(&headers),
            })),
        }
    }
}

impl RetryRecord {
    pub(super) fn of(policy: &RetryPolicy) -> Option<Self> {
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

    pub(super) fn read(retry: Option<Self>) -> Result<RetryPolicy, Unreadable> {
        let Some(retry) = retry else { return Ok(RetryPolicy::default()) };
        Ok(RetryPolicy {
            max_attempts: retry.max_attempts,
            backoff: nth(&BACKOFFS, retry.backoff, "a backoff")?,
            base_ms: retry.base_ms,
            multiplier: retry.multiplier,
            max_ms: retry.max_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Timestamp = Timestamp::from_ms(1_796_118_896_000);

    fn spec(trace: Option<TraceContext>) -> Spec {
        Spec {
            kind: "t".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Queue("default".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: TIMEOUT_MS_DEFAULT,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            trace: trace.map(Box::new),
            created_at: BASE.plus_ms(-6_000),
        }
    }

    /// Changing these bytes makes databases that exist unreadable: make a new version instead.
    #[test]
    fn the_bytes_of_a_job_never_change_and_a_trace_comes_before_them() {
        let body = |spec: &[u8]| decode(&Body { kind: "t", spec, payload: b"{}" }, BASE);
        let first = [1, 0, 7, 100, 101, 102, 97, 117, 108, 116, 2, 0xdf, 0x5d, 0, 0, 0, 0, 0, 0];
        assert_eq!(encode(&spec(None), BASE), first);
        assert_eq!(body(&first), Ok(spec(None)));
        let trace = TraceContext::from_parts(9, 7, 1, "a=1").unwrap();
        let second = encode(&spec(Some(trace.clone())), BASE);
        assert_eq!(second[..8], [2, 9, 7, 1, 3, b'a', b'=', b'1']);
        assert_eq!(second[8..], first[1..]);
        assert_eq!(body(&second), Ok(spec(Some(trace))));
        let unsound = [&[2, 0, 7, 1, 0], &first[1..]].concat();
        assert_eq!(body(&unsound), Err(Unreadable::Nonsense("a trace")));
        assert_eq!(body(&[3, 0]), Err(Unreadable::Version(3)));
    }
}
