//! The jobs that are counted: as JSON, as a message, and as a store takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewheel_api::proto::v1::NewJob;
use tidewheel_core::job::{Destination, Job, Priority, Spec, Target};
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Submission;

/// Jobs in a batch.
pub(crate) const BATCH_COUNT: u64 = 1_000;
/// The type of every job.
const KIND: &str = "cost";
/// Nobody works on it unless an entry has a worker.
pub(crate) const QUEUE: &str = "cost";
/// A target nobody connects to, for jobs that go to the sink.
const NOWHERE: &str = "http://127.0.0.1:9/cost";
/// Hexadecimal digits in a payload; the whole of it is 128 bytes, as in the benchmark.
const DIGITS_COUNT: usize = 117;

/// Numbers that look random, never repeat, and are the same in every run.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let seed = NEXT.fetch_add(1, Ordering::Relaxed);
    // The finaliser of splitmix64: every input has its own output.
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A JSON payload that does not compress.
pub(crate) fn payload() -> String {
    let mut digits = String::with_capacity(DIGITS_COUNT + 16);
    while digits.len() < DIGITS_COUNT {
        digits.push_str(&format!("{:016x}", next_number()));
    }
    digits.truncate(DIGITS_COUNT);
    format!(r#"{{"data":"{digits}"}}"#)
}

/// Where a job of the API goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goes<'a> {
    ToQueue,
    ToTarget(&'a str),
}

/// A job as JSON.
pub(crate) fn json(goes: Goes<'_>, run_at: Timestamp) -> String {
    let goes = match goes {
        Goes::ToQueue => format!(r#""queue":"{QUEUE}""#),
        Goes::ToTarget(url) => format!(r#""target_url":"{url}""#),
    };
    format!(r#"{{"type":"{KIND}",{goes},"run_at":"{run_at}","payload":{}}}"#, payload())
}

/// That many of them, as a JSON array.
pub(crate) fn json_batch(goes: Goes<'_>, run_at: Timestamp, count: u64) -> String {
    let jobs: Vec<String> = (0..count).map(|_| json(goes, run_at)).collect();
    format!("[{}]", jobs.join(","))
}

/// A job as a message.
pub(crate) fn message(run_at: Timestamp) -> NewJob {
    let ms = run_at.as_ms();
    let nanos = i32::try_from(ms.rem_euclid(1_000) * 1_000_000).unwrap_or(0);
    NewJob {
        r#type: KIND.to_owned(),
        payload: payload().into_bytes().into(),
        run_at: Some(prost_types::Timestamp { seconds: ms.div_euclid(1_000), nanos }),
        queue: QUEUE.to_owned(),
        ..NewJob::default()
    }
}

/// A job for a store, pushed to nobody.
pub(crate) fn submission(run_at: Timestamp, now: Timestamp) -> Submission {
    let target = Target { url: NOWHERE.into(), method: "POST".into(), headers: Vec::new() };
    let spec = Spec {
        kind: KIND.into(),
        payload: payload().into_bytes().into(),
        destination: Destination::Target(Arc::new(target)),
        priority: Priority::Normal,
        retry: RetryPolicy::default(),
        timeout_ms: TIMEOUT_MS_DEFAULT,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at: now,
    };
    let job = Job::new(Tenant::default(), spec, run_at, u128::from(next_number()));
    Submission { job, key: None, fresh: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_json_of_128_bytes() {
        let text = payload();
        assert_eq!(text.len(), 128);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        assert_ne!(text, payload());
    }

    #[test]
    fn a_batch_is_json() {
        let text = json_batch(Goes::ToQueue, Timestamp::from_ms(1_796_118_896_000), 3);
        let jobs: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(jobs.len(), 3);
        assert_eq!(jobs[0]["queue"], QUEUE);
    }
}
