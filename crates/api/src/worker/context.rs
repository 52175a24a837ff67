//! What a handler knows of its job, and how it is told to stop.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use prost::{DecodeError, Message as _};
use serde::Serialize;
use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::time::Timestamp;
use tokio::sync::Notify;
use xxhash_rust::xxh3::xxh3_128;

use super::bounds;
use super::failure::Failure;
use crate::proto::v1::LeasedJob;

/// Why an attempt is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Somebody called the job off. What the handler returns no longer counts.
    Cancelled,
    /// The lease ran out: another worker may have the job. What the handler returns no longer counts.
    LeaseOver,
    /// The attempt took too long. It counts as failed, unless the handler still succeeds within the grace.
    TimedOut,
    /// The worker is ending. The job is given to others, unless the handler still succeeds within the grace.
    Shutdown,
}

impl Stop {
    const ALL: [Self; 4] = [Self::Cancelled, Self::LeaseOver, Self::TimedOut, Self::Shutdown];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|stop| stop.code() == code)
    }

    const fn code(self) -> u8 {
        match self {
            Self::Cancelled => 1,
            Self::LeaseOver => 2,
            Self::TimedOut => 3,
            Self::Shutdown => 4,
        }
    }
}

/// A job's id, for tables: told from others without a look at their texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(u128);

impl Key {
    pub(super) fn of(id: &str) -> Self {
        Self(xxh3_128(id.as_bytes()))
    }
}

/// An attempt in the worker's hands.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) job: LeasedJob,
    pub(super) key: Key,
    /// The code of the first reason to stop; 0 while there is none.
    stop: AtomicU8,
    stopped: Notify,
    progress: Mutex<Option<Bytes>>,
}

impl Attempt {
    pub(super) fn new(job: LeasedJob) -> Self {
        let (key, stop) = (Key::of(&job.id), AtomicU8::new(0));
        Self { job, key, stop, stopped: Notify::new(), progress: Mutex::new(None) }
    }

    /// Reads a job to where it stays: with all its fields it is too large to be moved about. That is in the place of one that is
    /// over, if there is one: what its texts took is used again.
    pub(super) fn read(encoded: Bytes, emptied: Option<Arc<Self>>) -> Result<Arc<Self>, DecodeError> {
        let mut attempt = emptied.unwrap_or_else(|| Arc::new(Self::new(LeasedJob::default())));
        // Nobody else has it yet.
        if let Some(attempt) = Arc::get_mut(&mut attempt) {
            attempt.job.merge(encoded)?;
            attempt.key = Key::of(&attempt.job.id);
        }
        Ok(attempt)
    }

    /// Empties one that is over for another job; nothing if somebody still has it, as a handler's task may.
    pub(super) fn emptied(mut attempt: Arc<Self>) -> Option<Arc<Self>> {
        let Self { job, key: _, stop, stopped, progress } = Arc::get_mut(&mut attempt)?;
        job.clear();
        (*stop, *stopped, *progress) = (AtomicU8::new(0), Notify::new(), Mutex::new(None));
        Some(attempt)
    }

    /// Asks it to stop; the first reason stands.
    pub(super) fn stop(&self, why: Stop) {
        if self.stop.compare_exchange(0, why.code(), Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.stopped.notify_waiters();
        }
    }

    pub(super) fn stopping(&self) -> Option<Stop> {
        Stop::from_code(self.stop.load(Ordering::SeqCst))
    }

    pub(super) async fn stopped(&self) -> Stop {
        loop {
            let notified = self.stopped.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            if let Some(why) = self.stopping() {
                return why;
            }
            notified.await;
        }
    }

    pub(super) fn take_progress(&self) -> Option<Bytes> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a handler knows of its job. Clones are of the same attempt.
#[derive(Debug, Clone)]
pub struct Context {
    attempt: Arc<Attempt>,
}

impl Context {
    pub(super) fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt }
    }

    /// Everything that came with the job: queue, priority, labels, timeout and more.
    #[must_use]
    pub fn job(&self) -> &LeasedJob {
        &self.attempt.job
    }

    /// The job's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.attempt.job.id
    }

    /// The number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt.job.attempt
    }

    /// The fencing token: rises with every attempt of a job. Hand it to whatever must refuse a late writer.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.attempt.job.token
    }

    /// Stable over all attempts: what makes a side effect happen once.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        &self.attempt.job.idempotency_key
    }

    /// The nominal time: of a schedule's occurrence its instant, else the first time the job was to start.
    #[must_use]
    pub fn fire_at(&self) -> Option<Timestamp> {
        self.attempt.job.fire_at.as_ref().map(timestamp)
    }

    /// When it was to start.
    #[must_use]
    pub fn run_at(&self) -> Option<Timestamp> {
        self.attempt.job.run_at.as_ref().map(timestamp)
    }

    /// Whether it makes up for an instant that was missed.
    #[must_use]
    pub fn is_catch_up(&self) -> bool {
        self.attempt.job.catch_up
    }

    /// W3C trace context of this attempt, if the job is in a trace: what the handler's own spans go on from.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        Some(&*self.attempt.job.traceparent).filter(|parent| !parent.is_empty())
    }

    /// What goes with it; may be empty.
    #[must_use]
    pub fn tracestate(&self) -> &str {
        &self.attempt.job.tracestate
    }

    /// Says how far it is. Sent with the next heartbeat, the latest word alone.
    ///
    /// # Errors
    /// [`Failure::Final`] when it is no JSON, larger than 8,192 bytes, or nests deeper than 128 levels.
    pub fn progress(&self, progress: &impl Serialize) -> Result<(), Failure> {
        let json = serde_json::to_vec(progress).map_err(Failure::permanent)?;
        bounds::check_json("this progress", &json)?;
        *self.attempt.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(json.into());
        Ok(())
    }

    /// Whether the attempt is to stop, and why.
    #[must_use]
    pub fn stopping(&self) -> Option<Stop> {
        self.attempt.stopping()
    }

    /// Waits until the attempt is to stop. A handler that does not listen is dropped at its next `await` once the grace
    /// is over.
    pub async fn stopped(&self) -> Stop {
        self.attempt.stopped().await
    }
}

fn timestamp(time: &prost_types::Timestamp) -> Timestamp {
    const NANOS_PER_MS: i32 = 1_000_000;
    Timestamp::from_ms(
        time.seconds.saturating_mul(SECOND_MS).saturating_add((time.nanos / NANOS_PER_MS).into()),
    )
}

#[cfg(test)]
mod tests {
    use tidewheel_core::limits::{PAYLOAD_DEPTH_MAX, RESULT_BYTES_MAX};

    use super::*;

    #[tokio::test]
    async fn the_first_reason_to_stop_stands_and_wakes_who_waits() {
        let attempt = Arc::new(Attempt::new(LeasedJob::default()));
        let context = Context::new(Arc::clone(&attempt));
        assert_eq!(context.stopping(), None);
        let waiting = tokio::spawn({
            let context = context.clone();
            async move { context.stopped().await }
        });
        tokio::task::yield_now().await;
        attempt.stop(Stop::TimedOut);
        attempt.stop(Stop::Cancelled);
        assert_eq!(waiting.await.ok(), Some(Stop::TimedOut));
        assert_eq!(context.stopped().await, Stop::TimedOut);
    }

    #[test]
    fn only_the_latest_progress_is_kept() {
        let attempt = Arc::new(Attempt::new(LeasedJob::default()));
        let context = Context::new(Arc::clone(&attempt));
        assert!(context.progress(&1).is_ok() && context.progress(&2).is_ok());
        assert_eq!(attempt.take_progress().as_deref(), Some(b"2".as_slice()));
        assert_eq!(attempt.take_progress(), None);
        assert!(context.progress(&"x".repeat(RESULT_BYTES_MAX)).is_err());
        let deep = (0..PAYLOAD_DEPTH_MAX).fold(serde_json::json!([]), |inner, _| serde_json::json!([inner]));
        assert!(context.progress(&deep).is_err());
        assert_eq!(attempt.take_progress(), None, "what is refused is not sent");
    }
}
