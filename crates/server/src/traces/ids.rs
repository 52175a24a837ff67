//! The ids of traces and spans: hashes, so that nobody has to remember them.

use tidewheel_core::id::JobId;
use tidewheel_core::job::Token;
use tidewheel_core::trace::{SpanId, TraceId};
use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

/// What a hash is for. Never changes: a job may wait for years between two of its spans.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
enum Purpose {
    Trace = 1,
    Submit = 2,
    Wait = 3,
    Attempt = 4,
}

/// The trace of a job that came without one.
pub(super) fn trace_id(job: JobId) -> TraceId {
    TraceId::new(xxh3_128_with_seed(job.as_bytes(), Purpose::Trace as u64))
}

pub(super) fn submit(job: JobId) -> SpanId {
    span(job, Purpose::Submit, 0)
}

/// The wait for the attempt of that number.
pub(super) fn wait(job: JobId, attempt: u32) -> SpanId {
    span(job, Purpose::Wait, u64::from(attempt))
}

pub(super) fn attempt(job: JobId, token: Token) -> SpanId {
    span(job, Purpose::Attempt, token.as_u64())
}

fn span(job: JobId, purpose: Purpose, number: u64) -> SpanId {
    let mut hash = Xxh3::with_seed(purpose as u64);
    hash.update(job.as_bytes());
    hash.update(&number.to_be_bytes());
    SpanId::new(hash.digest())
}

/// Where a trace stands among all that could be.
pub(super) fn place(trace_id: TraceId) -> u64 {
    u64::try_from(trace_id.as_u128() & u128::from(u64::MAX)).unwrap_or(u64::MAX)
}

/// The places below which a share of all traces stands.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of all need not be exact, and the cast stops at both ends"
)]
pub(super) fn share(ratio: f64) -> u64 {
    (ratio * u64::MAX as f64) as u64
}
