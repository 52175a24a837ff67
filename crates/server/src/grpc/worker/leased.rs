//! A job on its way to a worker, written straight into the message: of thousands a second, none is first put together
//! field by field, each with memory of its own.

use std::fmt::Write as _;
use std::sync::Arc;

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, message};
use tidewheel_api::proto::job_batch::JobBatch;
use tidewheel_core::job::{Destination, Job};

use crate::grpc::instant::{duration, instant};
use crate::traces::Traces;

/// The fields of `LeasedJob`, as `proto/` numbers them.
mod field {
    pub(super) const ID: u32 = 1;
    pub(super) const TENANT: u32 = 2;
    pub(super) const TYPE: u32 = 3;
    pub(super) const PAYLOAD: u32 = 4;
    pub(super) const ATTEMPT: u32 = 5;
    pub(super) const TOKEN: u32 = 6;
    pub(super) const IDEMPOTENCY_KEY: u32 = 7;
    pub(super) const FIRE_AT: u32 = 8;
    pub(super) const RUN_AT: u32 = 9;
    pub(super) const CATCH_UP: u32 = 10;
    pub(super) const LEASE_UNTIL: u32 = 11;
    pub(super) const TIMEOUT: u32 = 12;
    pub(super) const LABELS: u32 = 13;
    pub(super) const QUEUE: u32 = 14;
    pub(super) const PRIORITY: u32 = 15;
    pub(super) const SCHEDULE_ID: u32 = 16;
    pub(super) const MAX_ATTEMPTS: u32 = 17;
    pub(super) const TRACEPARENT: u32 = 30;
    pub(super) const TRACESTATE: u32 = 31;
}

/// The fields of an entry of a map.
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// These jobs in a message, which are about so many `bytes`.
pub(super) fn batch(jobs: &[Arc<Job>], bytes: usize, traces: &Traces) -> JobBatch {
    let mut id = String::new();
    JobBatch::written(jobs.len(), bytes, |place, buffer| {
        if let Some(job) = jobs.get(place) {
            write(job, traces, &mut id, buffer);
        }
    })
}

/// Writes one job; its id is put together in `id`.
fn write(job: &Job, traces: &Traces, id: &mut String, buffer: &mut Vec<u8>) {
    let trace = traces.handed_on(job);
    let (spec, status, occurrence) = (&*job.spec, &job.status, job.spec.occurrence.as_ref());
    id.clear();
    // Writing to a text does not fail.
    write!(id, "{}", job.id).ok();
    text(field::ID, id, buffer);
    text(field::TENANT, job.tenant.as_str(), buffer);
    text(field::TYPE, &spec.kind, buffer);
    bytes(field::PAYLOAD, &spec.payload, buffer);
    number(field::ATTEMPT, status.attempt.into(), buffer);
    number(field::TOKEN, status.token.as_u64(), buffer);
    match (&spec.idempotency_key, occurrence) {
        (Some(key), _) => text(field::IDEMPOTENCY_KEY, key, buffer),
        (None, Some(_)) => text(field::IDEMPOTENCY_KEY, &job.run_key(), buffer),
        // A key that is the id need not be put together again.
        (None, None) => text(field::IDEMPOTENCY_KEY, id, buffer),
    }
    let fire_at = occurrence.map_or(job.id.run_at(), |occurrence| occurrence.fire_at);
    message::encode(field::FIRE_AT, &instant(fire_at), buffer);
    message::encode(field::RUN_AT, &instant(status.due_at), buffer);
    number(field::CATCH_UP, occurrence.is_some_and(|occurrence| occurrence.catch_up).into(), buffer);
    if let Some(running) = &status.running {
        message::encode(field::LEASE_UNTIL, &instant(running.lease_until), buffer);
    }
    message::encode(field::TIMEOUT, &duration(spec.timeout_ms), buffer);
    for (key, value) in &spec.labels {
        label(key, value, buffer);
    }
    if let Destination::Queue(queue) = &spec.destination {
        text(field::QUEUE, queue, buffer);
    }
    text(field::PRIORITY, spec.priority.as_str(), buffer);
    if let Some(occurrence) = occurrence {
        text(field::SCHEDULE_ID, &occurrence.schedule_id.to_string(), buffer);
    }
    number(field::MAX_ATTEMPTS, spec.retry.max_attempts.into(), buffer);
    if let Some(trace) = trace {
        text(field::TRACEPARENT, &trace.parent(), buffer);
        text(field::TRACESTATE, trace.state(), buffer);
    }
}

/// What is as usual is left out.
fn number(tag: u32, number: u64, buffer: &mut Vec<u8>) {
    if number != 0 {
        encode_key(tag, WireType::Varint, buffer);
        encode_varint(number, buffer);
    }
}

fn text(tag: u32, text: &str, buffer: &mut Vec<u8>) {
    bytes(tag, text.as_bytes(), buffer);
}

fn bytes(tag: u32, bytes: &[u8], buffer: &mut Vec<u8>) {
    if !bytes.is_empty() {
        encode_key(tag, WireType::LengthDelimited, buffer);
        encode_varint(bytes.len() as u64, buffer);
        buffer.extend_from_slice(bytes);
    }
}

fn label(key: &str, value: &str, buffer: &mut Vec<u8>) {
    let length = |text: &str| {
        let (bytes, is_there) = (text.len(), !text.is_empty());
        if is_there { 1 + encoded_len_varint(bytes as u64) + bytes } else { 0 }
    };
    encode_key(field::LABELS, WireType::LengthDelimited, buffer);
    encode_varint((length(key) + length(value)) as u64, buffer);
    text(KEY, key, buffer);
    text(VALUE, value, buffer);
}

#[cfg(test)]
mod tests {
    use tidewheel_api::proto::v1::LeasedJob;
    use tidewheel_core::job::{Command, Occurrence, Priority, Spec, Target, transition};
    use tidewheel_core::names::Tenant;
    use tidewheel_core::retry::RetryPolicy;
    use tidewheel_core::schedule::ScheduleId;
    use tidewheel_core::time::Timestamp;
    use tidewheel_core::trace::TraceContext;

    use super::*;
    use crate::engine::sent_bytes;

    fn spec() -> Spec {
        Spec {
            kind: "email".into(),
            payload: "{\"n\": 1}".into(),
            destination: Destination::Queue("mail".into()),
            priority: Priority::High,
            retry: RetryPolicy::default(),
            timeout_ms: 90_500,
            expires_at: None,
            idempotency_key: None,
            labels: Vec::new(),
            occurrence: None,
            trace: None,
            created_at: Timestamp::from_ms(0),
        }
    }

    fn running(spec: Spec) -> Arc<Job> {
        let now = Timestamp::from_ms(1_800_000_000_123);
        let job = Job::new(Tenant::new("acme").unwrap(), spec, now, 7);
        let claim = Command::Claim { epoch: 3, worker: "w".into(), lease_ms: 30_000, detached: true };
        match transition(&job, &claim, now.plus_ms(5)) {
            Ok(tidewheel_core::job::Change::To(next)) => Arc::new(next),
            other => panic!("not claimed: {other:?}"),
        }
    }

    fn read(job: &Arc<Job>) -> LeasedJob {
        let jobs = batch(&[Arc::clone(job), Arc::clone(job)], 0, &Traces::default()).jobs().unwrap();
        assert_eq!((jobs.len(), &jobs[0]), (2, &jobs[1]));
        jobs[0].clone()
    }

    #[test]
    fn a_worker_reads_what_was_written() {
        let job = running(spec());
        let expected = LeasedJob {
            id: job.id.to_string(),
            tenant: "acme".into(),
            r#type: "email".into(),
            payload: "{\"n\": 1}".into(),
            attempt: 1,
            token: job.status.token.as_u64(),
            idempotency_key: job.id.to_string(),
            fire_at: Some(instant(job.id.run_at())),
            run_at: Some(instant(job.id.run_at())),
            catch_up: false,
            lease_until: Some(instant(Timestamp::from_ms(1_800_000_030_128))),
            timeout: Some(duration(90_500)),
            labels: [].into(),
            queue: "mail".into(),
            priority: "high".into(),
            schedule_id: String::new(),
            max_attempts: RetryPolicy::default().max_attempts,
            traceparent: String::new(),
            tracestate: String::new(),
        };
        assert_eq!(read(&job), expected);
    }

    #[test]
    fn what_only_some_jobs_have_is_written_too() {
        let fire_at = Timestamp::from_ms(1_800_000_000_000);
        let schedule_id = ScheduleId::from_bytes([9; 16]);
        let state = "vendor=1";
        let trace = TraceContext::from_parts(5, 6, 1, state).unwrap();
        let labels: Vec<(Box<str>, Box<str>)> =
            vec![("a".into(), "x".repeat(300).into()), ("empty".into(), "".into())];
        let occurrence = Some(Occurrence { schedule_id, fire_at, catch_up: true });
        let job = running(Spec { labels, occurrence, trace: Some(Box::new(trace)), ..spec() });
        let leased = read(&job);
        assert_eq!(leased.labels.len(), 2);
        assert_eq!((leased.labels["a"].len(), &*leased.labels["empty"]), (300, ""));
        assert_eq!(leased.idempotency_key, job.run_key());
        assert_eq!(leased.schedule_id, schedule_id.to_string());
        assert_eq!((leased.fire_at, leased.catch_up), (Some(instant(fire_at)), true));
        assert_eq!((&*leased.tracestate, leased.traceparent.len()), (state, 55));
        assert!(leased.traceparent.contains(&format!("{:032x}", 5)), "{}", leased.traceparent);

        let key = Some("own".into());
        let target = Target { url: "http://a/".into(), method: "POST".into(), headers: Vec::new() };
        let destination = Destination::Target(Arc::new(target));
        let leased = read(&running(Spec { idempotency_key: key, destination, ..spec() }));
        assert_eq!((&*leased.idempotency_key, &*leased.queue), ("own", ""));
    }

    #[test]
    fn a_job_takes_no_more_than_is_set_aside_for_it() {
        let job = running(spec());
        let encoded = batch(&[Arc::clone(&job)], 0, &Traces::default()).into_encoded();
        let bytes: usize = encoded.map(|encoded| encoded.len()).sum();
        assert!(bytes <= sent_bytes(&job), "{bytes}");
    }
}
