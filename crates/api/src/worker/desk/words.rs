//! What a desk has to say.
//!
//! Outcomes are gathered while earlier ones are being answered, so batches grow with the load and an idle worker reports
//! at once. While one batch is being answered only a lot makes the next. Credits go out in lots, for the same reason.

use tidewheel_core::limits::WORKER_BATCH_COUNT_MAX;
use tokio::time::Instant;

use super::{Batch, Desk, Held, Phase};
use crate::proto::v1::{
    AddCredits, AttemptRef, Drain, Heartbeat, Heartbeats, Outcome, Outcomes, Started, outcome, worker_message,
};
use crate::worker::context::Attempt;

/// Batches of outcomes that are being answered at once: one being stored, one behind it.
const OUTCOME_BATCHES_MAX: usize = 2;
/// Outcomes in one batch.
const OUTCOMES_COUNT_MAX: usize = 4_096;
/// Bytes of outcomes, or of progress, in one message: with all else in it, it stays well below what a server takes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// While a batch is being answered, outcomes go out once they are this part of all that can be held.
const OUTCOMES_LOT: usize = 16;
/// Credits go out once they are this part of all.
const CREDITS_LOT: usize = 4;
/// A lease is extended once this part of it has passed.
const EXTEND_AFTER: u32 = 3;

impl Desk {
    /// What there is to say now.
    pub(in crate::worker) fn words(&mut self, now: Instant) -> Vec<worker_message::Message> {
        let mut words = Vec::new();
        while self.reported.len() < OUTCOME_BATCHES_MAX
            && (self.reported.is_empty() || self.due.len() * OUTCOMES_LOT >= self.room.capacity)
            && let Some(outcomes) = self.outcomes()
        {
            words.push(worker_message::Message::Outcomes(outcomes));
        }
        let missing = self.missing();
        if missing > 0 && (missing * CREDITS_LOT >= self.room.capacity || self.credits == 0) {
            self.credits += missing;
            let credits = u32::try_from(missing).unwrap_or(u32::MAX);
            words.push(worker_message::Message::AddCredits(AddCredits { credits }));
        }
        if !self.asked_back.is_empty() {
            let jobs = std::mem::take(&mut self.asked_back);
            words.push(worker_message::Message::Started(Started { jobs }));
        }
        if now >= self.look_at() {
            self.looked_at = now;
            self.regular_words(now, &mut words);
        }
        words
    }

    /// What to say when it drains, before anything is handed back: whose handlers have begun. The others' have not, so the
    /// server may give those jobs away without asking.
    pub(in crate::worker) fn farewell(&mut self) -> Vec<worker_message::Message> {
        let told = |held: &mut Held| {
            held.told_started = true;
            reference(&held.attempt)
        };
        let begun: Vec<AttemptRef> =
            self.held.values_mut().filter(|held| held.has_begun()).map(told).collect();
        let started = |jobs: &[AttemptRef]| worker_message::Message::Started(Started { jobs: jobs.to_vec() });
        let mut words: Vec<_> = begun.chunks(WORKER_BATCH_COUNT_MAX).map(started).collect();
        words.push(worker_message::Message::Drain(Drain {}));
        words
    }

    fn outcomes(&mut self) -> Option<Outcomes> {
        let count = self.due.len().min(OUTCOMES_COUNT_MAX);
        let (mut jobs, mut attempts) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut bytes = 0;
        while jobs.len() < OUTCOMES_COUNT_MAX && bytes < MESSAGE_BYTES_MAX {
            let Some(attempt) = self.due.pop_front() else { break };
            let many_tenants = self.room.many_tenants;
            let Some(held) = self.of(&attempt) else { continue };
            let Phase::Ended(result) = &held.phase else { continue };
            bytes += size_of(result);
            let tenant = if many_tenants { attempt.job.tenant.clone() } else { String::new() };
            let (id, token, result) = (attempt.job.id.clone(), attempt.job.token, Some(result.clone()));
            jobs.push(Outcome { id, token, tenant, result });
            attempts.push(attempt);
        }
        if jobs.is_empty() {
            return None;
        }
        self.batches += 1;
        self.reported.push_back(Batch { number: self.batches, attempts });
        Some(Outcomes { jobs, batch: self.batches })
    }

    /// Starts that are worth telling, heartbeats of what needs one, and a sign of life.
    fn regular_words(&mut self, now: Instant, words: &mut Vec<worker_message::Message>) {
        let mut started = Vec::new();
        let (mut beats, mut bytes) = (Vec::new(), 0);
        let silent = now.saturating_duration_since(self.beat_at) >= self.beat_every();
        let introduces = std::mem::take(&mut self.introduces);
        #[expect(clippy::iter_over_hash_type, reason = "in whatever order")]
        for held in self.held.values_mut() {
            if matches!(held.phase, Phase::Running)
                && !held.told_started
                && started.len() < WORKER_BATCH_COUNT_MAX
            {
                held.told_started = true;
                started.push(reference(&held.attempt));
            }
            let ended = matches!(held.phase, Phase::Ended(_));
            if self.asked_at.is_some() || ended || beats.len() >= WORKER_BATCH_COUNT_MAX {
                continue;
            }
            // What is too much for one message waits for the next.
            let progress = if bytes < MESSAGE_BYTES_MAX { held.attempt.take_progress() } else { None };
            bytes += progress.as_ref().map_or(0, |progress| progress.len());
            let old = now.saturating_duration_since(held.leased_at) >= self.room.lease / EXTEND_AFTER;
            if old || introduces || progress.is_some() {
                held.beat_at = Some(now);
                beats.push(beat(&held.attempt, progress.unwrap_or_default(), self.room.many_tenants));
            }
        }
        if !started.is_empty() {
            words.push(worker_message::Message::Started(Started { jobs: started }));
        }
        if !beats.is_empty() || (silent && self.asked_at.is_none()) {
            self.asked_at = Some(now);
            self.beat_at = now;
            words.push(worker_message::Message::Heartbeats(Heartbeats { jobs: beats }));
        } else if silent {
            // The answer to the last one is late; it must not be asked about without end. But a worker that says nothing is
            // taken for dead, and the server may only be waiting for its store: this needs no answer.
            self.beat_at = now;
            words.push(worker_message::Message::Started(Started { jobs: Vec::new() }));
        }
    }
}

fn beat(attempt: &Attempt, progress: bytes::Bytes, names_tenant: bool) -> Heartbeat {
    let tenant = if names_tenant { attempt.job.tenant.clone() } else { String::new() };
    Heartbeat { id: attempt.job.id.clone(), token: attempt.job.token, extend: None, progress, tenant }
}

pub(super) fn reference(attempt: &Attempt) -> AttemptRef {
    AttemptRef { id: attempt.job.id.clone(), token: attempt.job.token }
}

/// About what an outcome takes in a message.
fn size_of(result: &outcome::Result) -> usize {
    const FIXED: usize = 64;
    FIXED
        + match result {
            outcome::Result::Succeeded(succeeded) => succeeded.result.len(),
            outcome::Result::Failed(failed) => failed.error.len(),
            outcome::Result::Cancelled(cancelled) => cancelled.error.len(),
            outcome::Result::Snoozed(_) | outcome::Result::Released(_) => 0,
        }
}
