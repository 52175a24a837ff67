//! What was asked of a job, beside its type and its payload, which have columns of their own. What is as usual is
//! left out. Instants are relative to the time in the job's id.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidewheel_core::job::{Destination, Occurrence, Priority, Spec, Target};
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::time::Timestamp;

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
    schedule_id: &'a str,
    fire_at: i64,
    catch_up: bool,
}

pub(crate) fn encode(spec: &Spec, base: Timestamp) -> Vec<u8> {
    super::encode(&SpecRecord {
        destination: DestinationRecord::of(&spec.destination),
        priority: spec.priority as u8,
        created_at: spec.created_at.since_ms(base),
        retry: RetryRecord::of(&spec.retry),
        timeout_ms: (spec.timeout_ms != TIMEOUT_MS_DEFAULT).then_some(spec.timeout_ms),
        expires_at: spec.expires_at.map(|at| at.since_ms(base)),
        idempotency_key: spec.idempotency_key.as_deref(),
        labels: borrowed(&spec.labels),
        occurrence: spec.occurrence.as_ref().map(|origin| Origin {
            schedule_id: &origin.schedule_id,
            fire_at: origin.fire_at.since_ms(base),
            catch_up: origin.catch_up,
        }),
    })
}

/// The columns of a job's body.
pub(crate) struct Body<'a> {
    pub(crate) kind: &'a str,
    pub(crate) spec: &'a [u8],
    pub(crate) payload: &'a [u8],
}

pub(crate) fn decode(body: &Body<'_>, base: Timestamp) -> Result<Spec, Unreadable> {
    let record: SpecRecord<'_> = super::decode(body.spec, "a job")?;
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
        occurrence: record.occurrence.map(|origin| Occurrence {
            schedule_id: origin.schedule_id.into(),
            fire_at: base.plus_ms(origin.fire_at),
            catch_up: origin.catch_up,
        }),
        created_at: base.plus_ms(record.created_at),
    })
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
