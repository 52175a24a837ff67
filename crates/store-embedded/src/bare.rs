//! The engine's own speed: the same writes the store makes (jobs, claims, outcomes, the audit trail, counts), in the same
//! batches, without judging anything. What a benchmark measures the store against.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Finding, Job, Priority, Spec, Target, Token, transition};
use tidewheel_core::limits::{DAY_MS, LEASE_MS_DEFAULT, SHARDS_COUNT_DEFAULT, TIMEOUT_MS_DEFAULT};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::time::Timestamp;

use crate::attempts::{CLAIMS_PER_RECORD_MAX, Claim};
use crate::fjall_kv::FjallKv;
use crate::kv::{Batch, Day, Direction, Durability, Keyspace, Kv, KvError};
use crate::options::CACHE_BYTES_DEFAULT;
use crate::stopwatch::Stopwatch;
use crate::{keys, record, versioned};

const TENANTS_COUNT: u64 = 16;
const SAMPLES_COUNT: u64 = 4_096;
/// When the jobs' day begins; any day will do.
const DAY_START_MS: i64 = 20_000 * DAY_MS;
/// What the audit trail has of a change: the id, the states before and after, the attempt.
const CHANGE_BYTES: usize = 18;
/// What stands before the changes in a record of the audit trail: its format, two hashes, a tenant and a count.
const TRAIL_HEAD_BYTES: usize = 80;
/// How many jobs there are in each state.
const COUNTS_BYTES: usize = 16;

/// How fast it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Jobs written or drained.
    pub jobs: u64,
    /// In this time.
    pub elapsed: Duration,
    /// Bytes on disk afterwards.
    pub disk_bytes: u64,
}

impl Rates {
    /// Jobs in a second.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        let micros = self.elapsed.as_micros().max(1);
        u64::try_from(u128::from(self.jobs) * 1_000_000 / micros).unwrap_or(u64::MAX)
    }
}

/// A job of the benchmark: number `n` of jobs spread over a day and a few tenants.
#[must_use]
pub fn sample(n: u64, payload_bytes: usize) -> Job {
    let payload: Vec<u8> = (0..payload_bytes).map(|at| sample_digit(n, at)).collect();
    let spec = Spec {
        kind: "bench".into(),
        payload: Bytes::from(payload),
        destination: Destination::Target(Arc::new(target())),
        priority: Priority::Normal,
        retry: RetryPolicy::default(),
        timeout_ms: TIMEOUT_MS_DEFAULT,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at: Timestamp::from_ms(DAY_START_MS),
    };
    let id = sample_id(n);
    Job::new(sample_tenant(n), spec, id.run_at(), u128::from_be_bytes(*id.as_bytes()))
}

/// Where the jobs go that a server drains when it is measured; the records are to be of one size.
fn target() -> Target {
    Target { url: "http://127.0.0.1:9/bench".into(), method: "POST".into(), headers: Vec::new() }
}

/// Commits `count` waiting jobs, or as many as `time_max` allows, in groups of `batch` to a new store in `path`.
///
/// # Errors
/// When the engine fails.
pub fn ingest(
    path: &Path,
    (count, time_max): (u64, Duration),
    batch: usize,
    payload_bytes: usize,
    sync: bool,
) -> Result<Rates, KvError> {
    let kv = open(path)?;
    kv.create(audit())?;
    let values = samples(|job| record::encode(&job), payload_bytes);
    let tenants: Vec<_> = (0..TENANTS_COUNT).map(sample_tenant).collect();
    let stopwatch = Stopwatch::start();
    let mut writes = Batch::default();
    let mut jobs = 0;
    for ((n, tenant), value) in (0..count).zip(tenants.iter().cycle()).zip(values.iter().cycle()) {
        writes.put(Keyspace::Waiting, keys::job(SHARDS_COUNT_DEFAULT, tenant, sample_id(n)), value.clone());
        if writes.0.len() >= batch || n + 1 == count {
            let trail = trail(writes.0.iter().map(|write| &*write.key));
            write_beside(&mut writes, n, trail);
            kv.commit(std::mem::take(&mut writes), durability(sync))?;
            jobs = n + 1;
            if stopwatch.elapsed() >= time_max {
                break;
            }
        }
    }
    Ok(Rates { jobs, elapsed: stopwatch.elapsed(), disk_bytes: kv.disk_bytes()? })
}

/// Drains what [`ingest`] left in `path`, some time after opening it: reads `batch` jobs, commits their claims, commits
/// their outcomes.
///
/// # Errors
/// When the engine fails.
pub fn drain(
    path: &Path,
    rest: Duration,
    batch: usize,
    payload_bytes: usize,
    sync: bool,
) -> Result<Rates, KvError> {
    let kv = open(path)?;
    std::thread::park_timeout(rest);
    let history = Keyspace::History(Day::of(Timestamp::from_ms(DAY_START_MS)));
    kv.create(history)?;
    kv.create(audit())?;
    let running = attempt(&sample(0, payload_bytes));
    let values = samples(|job| record::encode(&succeeded(&attempt(&job))), payload_bytes);
    let stopwatch = Stopwatch::start();
    let mut jobs = 0;
    let mut claim_number = 0_u64;
    let mut commits = 0..;
    let mut after: Vec<u8> = Vec::new();
    loop {
        let entries = scan(&*kv, &after, batch)?;
        let Some(last) = entries.last() else { break };
        after.clone_from(last);
        jobs += u64::try_from(entries.len()).unwrap_or(0);
        let first_claim = claim_number;
        let mut claims = Batch::default();
        for chunk in entries.chunks(CLAIMS_PER_RECORD_MAX) {
            let record: Vec<_> = chunk.iter().filter_map(|_| Claim::of(&running)).collect();
            claims.put(Keyspace::Claims, claim_number.to_be_bytes().to_vec(), versioned::encode(&record));
            claim_number += 1;
        }
        let trail = trail(entries.iter().map(Vec::as_slice));
        write_beside(&mut claims, commits.next().unwrap_or(0), trail.clone());
        kv.commit(claims, durability(sync))?;
        let mut outcomes = Batch::default();
        for number in first_claim..claim_number {
            outcomes.delete(Keyspace::Claims, number.to_be_bytes().to_vec());
        }
        for (key, value) in entries.into_iter().zip(values.iter().cycle()) {
            outcomes.put(history, key.clone(), value.clone());
            outcomes.delete(Keyspace::Waiting, key);
        }
        write_beside(&mut outcomes, commits.next().unwrap_or(0), trail);
        kv.commit(outcomes, durability(sync))?;
    }
    Ok(Rates { jobs, elapsed: stopwatch.elapsed(), disk_bytes: kv.disk_bytes()? })
}

fn audit() -> Keyspace {
    Keyspace::Audit(Day::of(Timestamp::from_ms(DAY_START_MS)))
}

/// A record of the audit trail for changes of the jobs with these keys; without the hashes, which are no writes.
fn trail<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<u8> {
    let mut record = vec![0; TRAIL_HEAD_BYTES];
    for key in keys {
        record.extend_from_slice(key.last_chunk::<CHANGE_BYTES>().unwrap_or(&[0; CHANGE_BYTES]));
    }
    record
}

/// What the store writes beside the jobs in every commit: what became of them, and how many there are now.
fn write_beside(batch: &mut Batch, number: u64, trail: Vec<u8>) {
    batch.put(audit(), number.to_be_bytes().to_vec(), trail);
    batch.put(Keyspace::Meta, keys::meta::tenant(&sample_tenant(0)), vec![0; COUNTS_BYTES]);
}

fn open(path: &Path) -> Result<Arc<dyn Kv>, KvError> {
    Ok(Arc::new(FjallKv::open(path, CACHE_BYTES_DEFAULT)?))
}

fn durability(sync: bool) -> Durability {
    if sync { Durability::Synced } else { Durability::Buffered }
}

/// Up to `count` keys after `after`; the records are read and thrown away.
fn scan(kv: &dyn Kv, after: &[u8], count: usize) -> Result<Vec<Vec<u8>>, KvError> {
    let mut entries = Vec::with_capacity(count);
    let mut bytes = 0;
    let range = (Bound::Excluded(after), Bound::Unbounded);
    kv.snapshot().scan(Keyspace::Waiting, range, Direction::Up, &mut |key, value| {
        bytes += value.len();
        entries.push(key.to_vec());
        if entries.len() >= count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(entries)
}

/// Records to write over and over, made before the clock runs. So many that none comes twice within what a
/// compressor looks at.
fn samples<T>(encode: impl Fn(Job) -> T, payload_bytes: usize) -> Vec<T> {
    (0..SAMPLES_COUNT).map(|n| encode(sample(n, payload_bytes))).collect()
}

/// A hexadecimal digit that looks random.
fn sample_digit(n: u64, at: usize) -> u8 {
    let place = u64::try_from(at).unwrap_or(0);
    let mixed = xxhash_rust::xxh3::xxh3_64_with_seed(&place.to_be_bytes(), n);
    let digit = u8::try_from(mixed % 16).unwrap_or(0);
    if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
}

fn sample_tenant(n: u64) -> Tenant {
    Tenant::new(&format!("tenant-{:02}", n % TENANTS_COUNT)).unwrap_or_default()
}

/// The id of [`sample`] number `n`: spread over the day as by a random source, but the same every time.
#[must_use]
pub fn sample_id(n: u64) -> JobId {
    let mixed = xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes());
    let ms = i64::try_from(mixed % 86_400_000).unwrap_or(0);
    JobId::new(Timestamp::from_ms(DAY_START_MS + ms), mixed)
}

fn attempt(job: &Job) -> Job {
    let claim =
        Command::Claim { epoch: 1, worker: "bench".into(), lease_ms: LEASE_MS_DEFAULT, detached: false };
    changed(job, &claim)
}

fn succeeded(job: &Job) -> Job {
    changed(job, &Command::Succeed { token: Token::new(1, 1), finding: Finding::default() })
}

fn changed(job: &Job, command: &Command) -> Job {
    match transition(job, command, job.id.run_at()) {
        Ok(tidewheel_core::job::Change::To(next)) => next,
        Ok(_) | Err(_) => job.clone(),
    }
}
