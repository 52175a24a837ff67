//! The jobs of the benchmark: as the store takes them, and as JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidewheel_core::job::{Destination, Job, Priority, Spec, Target};
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{OnConflict, Store, Submission};
use tokio::task::JoinSet;

use super::plan::{BATCH_CONNECTIONS, BATCH_COUNT};
use super::progress::Progress;
use super::stopwatch::wall_now;

/// Bytes of every payload, unless others are asked for.
pub(super) const PAYLOAD_BYTES_DEFAULT: usize = 128;
/// More would be about something else than jobs.
pub(super) const PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// JSON around no data.
const PAYLOAD_BYTES_MIN: usize = r#"{"data":""}"#.len();
static PAYLOAD_BYTES: AtomicUsize = AtomicUsize::new(PAYLOAD_BYTES_DEFAULT);
/// The type of every job.
const KIND: &str = "bench";
/// The queue of jobs that are drained.
pub(super) const QUEUE: &str = "bench";
/// Nobody works on this queue.
const QUEUE_OF_LATER: &str = "bench-later";
/// A target nobody connects to, for jobs that only wait or go to the sink.
pub(super) const NOWHERE: &str = "http://127.0.0.1:9/bench";

/// Numbers that look random and never repeat, so that payloads do not compress and ids do not collide.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    scatter(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The finaliser of splitmix64: every input has its own output.
const fn scatter(seed: u64) -> u64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Makes payloads of that size from now on.
pub(super) fn set_payload_bytes(bytes: usize) {
    PAYLOAD_BYTES.store(bytes.clamp(PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX), Ordering::Relaxed);
}

/// How large payloads are.
pub(super) fn payload_bytes() -> usize {
    PAYLOAD_BYTES.load(Ordering::Relaxed)
}

/// A JSON payload of exactly [`payload_bytes`].
pub(super) fn payload() -> String {
    let wanted = payload_bytes() - PAYLOAD_BYTES_MIN;
    let mut digits = String::with_capacity(wanted);
    while digits.len() < wanted {
        digits.push_str(&format!("{:016x}", next_number()));
    }
    digits.truncate(wanted);
    format!(r#"{{"data":"{digits}"}}"#)
}

/// An instant in the `spread_ms` after `from`.
pub(super) fn instant_within(from: Timestamp, spread_ms: i64) -> Timestamp {
    let offset = next_number() % u64::try_from(spread_ms).unwrap_or(1).max(1);
    from.plus_ms(i64::try_from(offset).unwrap_or(0))
}

/// Pushed to `url`.
pub(super) fn push(url: &str) -> Destination {
    Destination::Target(Arc::new(Target { url: url.into(), method: "POST".into(), headers: Vec::new() }))
}

/// A job for the store.
pub(super) fn submission(destination: &Destination, run_at: Timestamp, now: Timestamp) -> Submission {
    submission_of(&Tenant::default(), destination, run_at, now)
}

fn submission_of(
    tenant: &Tenant,
    destination: &Destination,
    run_at: Timestamp,
    now: Timestamp,
) -> Submission {
    let spec = Spec {
        kind: KIND.into(),
        payload: payload().into_bytes().into(),
        destination: destination.clone(),
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
    Submission {
        job: Job::new(tenant.clone(), spec, run_at, u128::from(next_number())),
        key: None,
        fresh: true,
    }
}

/// Stores that many jobs, each at a time within `spread_ms` after `from`, without a server.
pub(super) async fn preload(
    store: &Arc<dyn Store>,
    destination: &Destination,
    count: u64,
    when: (Timestamp, i64),
    progress: &Progress,
) -> anyhow::Result<()> {
    preload_of(&[Tenant::default()], store, destination, count, when, progress).await
}

/// The same, shared out among tenants.
pub(super) async fn preload_of(
    tenants: &[Tenant],
    store: &Arc<dyn Store>,
    destination: &Destination,
    count: u64,
    (from, spread_ms): (Timestamp, i64),
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut under_way = JoinSet::new();
    let (mut sent, mut stored) = (0, 0);
    let mut turns = tenants.iter().cycle();
    let share = count.div_ceil(tenants.len().max(1) as u64).min(BATCH_COUNT as u64);
    while stored < count {
        while sent < count
            && under_way.len() < BATCH_CONNECTIONS
            && let Some(tenant) = turns.next()
        {
            let size = (count - sent).min(share);
            sent += size;
            let (store, destination, tenant) = (Arc::clone(store), destination.clone(), tenant.clone());
            under_way.spawn(async move {
                let now = wall_now();
                let jobs = (0..size)
                    .map(|_| submission_of(&tenant, &destination, instant_within(from, spread_ms), now))
                    .collect();
                store.submit(now, jobs, OnConflict::KeepOthers).await.map(|_| size)
            });
        }
        let Some(done) = under_way.join_next().await else { break };
        stored += done??;
        progress.count("storing jobs", stored, count);
    }
    Ok(())
}

/// A job as JSON; `goes_to` is its queue or target field.
pub(super) fn json(goes_to: &str, run_at: Option<Timestamp>) -> String {
    let time = run_at.map(|at| format!(r#""run_at":"{at}","#)).unwrap_or_default();
    format!(r#"{{"type":"{KIND}",{goes_to},{time}"payload":{}}}"#, payload())
}

/// The field of a job that waits on a queue.
pub(super) fn on_queue() -> String {
    format!(r#""queue":"{QUEUE}""#)
}

/// The field of a job that nobody takes.
pub(super) fn on_queue_of_later() -> String {
    format!(r#""queue":"{QUEUE_OF_LATER}""#)
}

/// For workers.
pub(super) fn queue() -> Destination {
    Destination::Queue(QUEUE.into())
}

/// For nobody.
pub(super) fn queue_of_later() -> Destination {
    Destination::Queue(QUEUE_OF_LATER.into())
}

/// The field of a job that is pushed.
pub(super) fn to_target(url: &str) -> String {
    format!(r#""target_url":"{url}""#)
}

/// A batch of jobs as a JSON array, spread over `spread_ms` after `from`.
pub(super) fn json_batch(goes_to: &str, from: Timestamp, spread_ms: i64) -> String {
    let jobs: Vec<String> =
        (0..BATCH_COUNT).map(|_| json(goes_to, Some(instant_within(from, spread_ms)))).collect();
    format!("[{}]", jobs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_json_of_the_promised_size() {
        let text = payload();
        assert_eq!(text.len(), payload_bytes());
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        assert_ne!(text, payload());
    }

    #[test]
    fn a_batch_is_json() {
        let text = json_batch(&to_target(NOWHERE), Timestamp::from_ms(1_796_118_896_000), 1_000);
        let jobs: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(jobs.len(), BATCH_COUNT);
        assert_eq!(jobs[0]["target_url"], NOWHERE);
    }
}
