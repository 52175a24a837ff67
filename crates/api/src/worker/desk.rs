//! What lies on a worker's desk: jobs that wait, run or have ended and are not yet answered for; and what there is to
//! say of them. It neither waits nor talks: it is told what happened and when, and hands out messages.
//!
//! Outcomes are gathered while earlier ones are being answered, so batches grow with the load and an idle worker reports
//! at once. Credits go out in lots, for the same reason.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tidewheel_core::limits::{WORKER_BATCH_COUNT_MAX, WORKER_HEARTBEAT_MS};
use tokio::time::Instant;

use super::attend::Ended;
use super::context::{Attempt, Stop};
use crate::proto::v1::{
    AddCredits, AttemptRef, CancelJobs, Heartbeat, HeartbeatAnswers, Heartbeats, JobBatch, LeasedJob,
    Outcome, OutcomeAnswer, OutcomeAnswers, Outcomes, Released, Started, TakeBack, outcome, worker_message,
};

/// Batches of outcomes that are being answered at once: one being stored, one behind it.
const OUTCOME_BATCHES_MAX: usize = 2;
/// Outcomes in one batch.
const OUTCOMES_COUNT_MAX: usize = 4_096;
/// Bytes of one batch, as one message is bounded.
const OUTCOMES_BYTES_MAX: usize = 1 << 20;
/// Outcomes that no server has answered for; beyond it no more jobs are asked for.
const UNANSWERED_COUNT_MAX: usize = 20_000;
/// Credits go out once they are this part of all.
const CREDITS_LOT: usize = 4;
/// A lease is extended once this part of it has passed.
const EXTEND_AFTER: u32 = 3;
/// How often what runs is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How far an attempt has come.
#[derive(Debug)]
enum Phase {
    Waiting,
    Running,
    Ended(outcome::Result),
}

#[derive(Debug)]
struct Held {
    attempt: Arc<Attempt>,
    phase: Phase,
    /// Since when its lease counts.
    leased_at: Instant,
    /// When the heartbeat was sent that is being answered.
    beat_at: Option<Instant>,
    /// The server knows that it has started.
    told_started: bool,
}

/// How often the server wants to hear of the worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beats {
    /// While it holds jobs.
    pub(super) busy: Duration,
    /// While it holds none.
    pub(super) idle: Duration,
}

impl Default for Beats {
    fn default() -> Self {
        let busy = Duration::from_millis(WORKER_HEARTBEAT_MS.unsigned_abs());
        Self { busy, idle: busy }
    }
}

/// What a desk has room for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) concurrency: usize,
    pub(super) capacity: usize,
    pub(super) lease: Duration,
    /// Reports name the tenant.
    pub(super) many_tenants: bool,
}

/// What lies on the desk.
pub(super) struct Desk {
    room: Room,
    held: FxHashMap<String, Held>,
    /// In the order they came; what is no longer waiting is passed over.
    queue: VecDeque<Arc<Attempt>>,
    waiting: usize,
    running: usize,
    /// Asked for and not yet come.
    credits: usize,
    /// Ended and not yet reported.
    due: VecDeque<Arc<Attempt>>,
    unanswered: usize,
    batches: usize,
    /// Started, and somebody asked.
    asked_back: Vec<AttemptRef>,
    draining: bool,
    beats_unanswered: bool,
    beat_at: Instant,
    beats: Beats,
    looked_at: Instant,
}

impl Desk {
    pub(super) fn new(room: Room, now: Instant) -> Self {
        Self {
            room,
            held: FxHashMap::default(),
            queue: VecDeque::new(),
            waiting: 0,
            running: 0,
            credits: 0,
            due: VecDeque::new(),
            unanswered: 0,
            batches: 0,
            asked_back: Vec::new(),
            draining: false,
            beats_unanswered: false,
            beat_at: now,
            beats: Beats::default(),
            looked_at: now,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.running == 0
    }

    pub(super) fn unreported(&self) -> usize {
        self.held.len()
    }

    /// Everything in its hands, to resume a session with.
    pub(super) fn holding(&self) -> Vec<AttemptRef> {
        self.held.values().map(|held| reference(&held.attempt)).collect()
    }

    /// Begins anew over another connection; says how many jobs there is room for.
    pub(super) fn subscribe(&mut self) -> usize {
        self.credits = 0;
        self.batches = 0;
        self.beats_unanswered = false;
        self.due.clear();
        #[expect(clippy::iter_over_hash_type, reason = "in whatever order")]
        for held in self.held.values_mut() {
            held.beat_at = None;
            held.told_started = false;
            if matches!(held.phase, Phase::Ended(_)) {
                self.due.push_back(Arc::clone(&held.attempt));
            }
        }
        self.credits = self.missing();
        self.credits
    }

    /// The connection holds; if the session is another one, its server hears at once what is still held.
    pub(super) fn welcomed(&mut self, resumed: bool, beats: Beats, now: Instant) {
        self.beats = beats;
        self.beat_at = if resumed { now } else { now.checked_sub(beats.idle).unwrap_or(now) };
    }

    /// How often to say something: less often with empty hands.
    fn beat_every(&self) -> Duration {
        if self.held.is_empty() { self.beats.idle } else { self.beats.busy }
    }

    /// Since when a heartbeat waits for its answer, if one does.
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        self.beats_unanswered.then_some(self.beat_at)
    }

    fn missing(&self) -> usize {
        if self.draining || self.unanswered >= UNANSWERED_COUNT_MAX {
            return 0;
        }
        self.room.capacity.saturating_sub(self.credits + self.waiting + self.running)
    }

    pub(super) fn receive(&mut self, batch: JobBatch, now: Instant) {
        self.credits = self.credits.saturating_sub(batch.jobs.len());
        for job in batch.jobs {
            self.take_in(job, now);
        }
    }

    fn take_in(&mut self, job: LeasedJob, now: Instant) {
        if let Some(known) = self.held.get(&job.id) {
            if known.attempt.job.token >= job.token {
                return;
            }
            // A later attempt: the earlier one is over.
            let id = job.id.clone();
            self.forget(&id, Stop::LeaseOver);
        }
        let attempt = Arc::new(Attempt::new(job));
        let held = Held {
            attempt: Arc::clone(&attempt),
            phase: Phase::Waiting,
            leased_at: now,
            beat_at: None,
            told_started: false,
        };
        self.waiting += 1;
        self.held.insert(attempt.job.id.clone(), held);
        if self.draining {
            self.end(&attempt, outcome::Result::Released(Released {}));
        } else {
            self.queue.push_back(attempt);
        }
    }

    /// The next job to start, if one more may run.
    pub(super) fn next_to_start(&mut self, now: Instant) -> Option<Arc<Attempt>> {
        while self.running < self.room.concurrency {
            let attempt = self.queue.pop_front()?;
            let safe = self.safe_for();
            let Some(held) = self.of(&attempt) else { continue };
            if !matches!(held.phase, Phase::Waiting) {
                continue;
            }
            if now.saturating_duration_since(held.leased_at) >= safe {
                self.forget(&attempt.job.id, Stop::LeaseOver);
                continue;
            }
            held.phase = Phase::Running;
            self.waiting -= 1;
            self.running += 1;
            return Some(attempt);
        }
        None
    }

    /// A holder trusts its lease for less time than the server does.
    fn safe_for(&self) -> Duration {
        self.room.lease.mul_f32(0.9)
    }

    /// A handler has ended.
    pub(super) fn ended(&mut self, ended: Ended) {
        self.running = self.running.saturating_sub(1);
        let Some(held) = self.of(&ended.attempt) else { return };
        held.phase = Phase::Waiting;
        self.waiting += 1;
        match ended.outcome {
            Some(outcome) => self.end(&ended.attempt, outcome),
            None => self.forget(&ended.attempt.job.id, Stop::Cancelled),
        }
    }

    /// A waiting attempt comes to its end.
    fn end(&mut self, attempt: &Arc<Attempt>, outcome: outcome::Result) {
        let Some(held) = self.of(attempt) else { return };
        held.phase = Phase::Ended(outcome);
        self.waiting -= 1;
        self.unanswered += 1;
        self.due.push_back(Arc::clone(attempt));
    }

    /// The attempt, if it is the one that is held.
    fn of(&mut self, attempt: &Arc<Attempt>) -> Option<&mut Held> {
        self.held.get_mut(&attempt.job.id).filter(|held| Arc::ptr_eq(&held.attempt, attempt))
    }

    /// The attempt no longer counts.
    fn forget(&mut self, id: &str, why: Stop) {
        let Some(held) = self.held.remove(id) else { return };
        held.attempt.stop(why);
        match held.phase {
            Phase::Waiting => self.waiting -= 1,
            // Counted until its handler returns.
            Phase::Running => {}
            Phase::Ended(_) => self.unanswered -= 1,
        }
    }

    fn is_held(&self, id: &str, token: u64) -> bool {
        self.held.get(id).is_some_and(|held| held.attempt.job.token == token)
    }

    /// Takes answers to outcomes; returns those that refuse.
    pub(super) fn outcomes_answered(&mut self, answers: OutcomeAnswers) -> Vec<OutcomeAnswer> {
        self.batches = self.batches.saturating_sub(1);
        let mut refused = Vec::new();
        for answer in answers.jobs {
            if self.is_held(&answer.id, answer.token) {
                self.forget(&answer.id, Stop::LeaseOver);
            }
            if !matches!(answer.code.as_str(), "accepted" | "already") {
                refused.push(answer);
            }
        }
        refused
    }

    /// Takes answers to heartbeats. What is refused no longer counts.
    pub(super) fn heartbeats_answered(&mut self, answers: &HeartbeatAnswers) {
        self.beats_unanswered = false;
        for answer in &answers.jobs {
            if answer.code != "accepted" && answer.code != "already" {
                if self.is_held(&answer.id, answer.token) {
                    self.forget(&answer.id, Stop::LeaseOver);
                }
            } else if let Some(held) = self.held.get_mut(&answer.id)
                && let Some(beat_at) = held.beat_at.take()
            {
                held.leased_at = beat_at;
            }
        }
    }

    /// The server says that attempts no longer count.
    pub(super) fn called_off(&mut self, cancels: &CancelJobs) {
        for job in &cancels.jobs {
            if self.is_held(&job.id, job.token) {
                let why = if job.reason == "cancelled" { Stop::Cancelled } else { Stop::LeaseOver };
                self.forget(&job.id, why);
            }
        }
    }

    /// The server wants back what has not started.
    pub(super) fn asked_back(&mut self, asked: TakeBack) {
        for job in asked.jobs {
            let Some(held) = self.held.get_mut(&job.id) else { continue };
            if held.attempt.job.token != job.token {
                continue;
            }
            match held.phase {
                Phase::Waiting => {
                    let attempt = Arc::clone(&held.attempt);
                    self.end(&attempt, outcome::Result::Released(Released {}));
                }
                Phase::Running => {
                    held.told_started = true;
                    self.asked_back.push(job);
                }
                Phase::Ended(_) => {}
            }
        }
    }

    /// Takes no more, and hands back what has not started.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        self.queue.clear();
        let waiting: Vec<Arc<Attempt>> = self
            .held
            .values()
            .filter(|held| matches!(held.phase, Phase::Waiting))
            .map(|held| Arc::clone(&held.attempt))
            .collect();
        for attempt in waiting {
            self.end(&attempt, outcome::Result::Released(Released {}));
        }
    }

    /// Asks everything that runs to stop.
    pub(super) fn stop_all(&self) {
        #[expect(clippy::iter_over_hash_type, reason = "in whatever order")]
        for held in self.held.values() {
            held.attempt.stop(Stop::Shutdown);
        }
    }

    /// When to look again.
    pub(super) fn look_at(&self) -> Instant {
        let beat = self.beat_at + self.beat_every();
        if self.held.is_empty() { beat } else { beat.min(self.looked_at + LOOK) }
    }

    /// Looks at what runs: leases that ran out by the worker's own clock. Also needed without a connection.
    pub(super) fn look(&mut self, now: Instant) {
        let safe = self.safe_for();
        let over = |held: &Held| {
            !matches!(held.phase, Phase::Ended(_)) && now.saturating_duration_since(held.leased_at) >= safe
        };
        let over: Vec<String> =
            self.held.values().filter(|held| over(held)).map(|held| held.attempt.job.id.clone()).collect();
        for id in over {
            self.forget(&id, Stop::LeaseOver);
        }
    }

    /// What there is to say now.
    pub(super) fn words(&mut self, now: Instant) -> Vec<worker_message::Message> {
        let mut words = Vec::new();
        while self.batches < OUTCOME_BATCHES_MAX
            && let Some(jobs) = self.outcomes()
        {
            self.batches += 1;
            words.push(worker_message::Message::Outcomes(Outcomes { jobs }));
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

    fn outcomes(&mut self) -> Option<Vec<Outcome>> {
        let (mut jobs, mut bytes) = (Vec::with_capacity(self.due.len().min(OUTCOMES_COUNT_MAX)), 0);
        while jobs.len() < OUTCOMES_COUNT_MAX && bytes < OUTCOMES_BYTES_MAX {
            let Some(attempt) = self.due.pop_front() else { break };
            let many_tenants = self.room.many_tenants;
            let Some(held) = self.of(&attempt) else { continue };
            let Phase::Ended(result) = &held.phase else { continue };
            bytes += size_of(result);
            let tenant = if many_tenants { attempt.job.tenant.clone() } else { String::new() };
            let (id, token, result) = (attempt.job.id.clone(), attempt.job.token, Some(result.clone()));
            jobs.push(Outcome { id, token, tenant, result });
        }
        (!jobs.is_empty()).then_some(jobs)
    }

    /// Starts that are worth telling, heartbeats of what needs one, and a sign of life.
    fn regular_words(&mut self, now: Instant, words: &mut Vec<worker_message::Message>) {
        let mut started = Vec::new();
        let mut beats = Vec::new();
        let silent = now.saturating_duration_since(self.beat_at) >= self.beat_every();
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
            if self.beats_unanswered || ended || beats.len() >= WORKER_BATCH_COUNT_MAX {
                continue;
            }
            let progress = held.attempt.take_progress();
            let old = now.saturating_duration_since(held.leased_at) >= self.room.lease / EXTEND_AFTER;
            if old || progress.is_some() {
                held.beat_at = Some(now);
                beats.push(beat(&held.attempt, progress.unwrap_or_default(), self.room.many_tenants));
            }
        }
        if !started.is_empty() {
            words.push(worker_message::Message::Started(Started { jobs: started }));
        }
        if !beats.is_empty() || (silent && !self.beats_unanswered) {
            self.beats_unanswered = true;
            self.beat_at = now;
            words.push(worker_message::Message::Heartbeats(Heartbeats { jobs: beats }));
        } else if silent {
            // The answer to the last one is late; it must not be asked about without end.
            self.beat_at = now;
        }
    }
}

fn beat(attempt: &Attempt, progress: bytes::Bytes, names_tenant: bool) -> Heartbeat {
    let tenant = if names_tenant { attempt.job.tenant.clone() } else { String::new() };
    Heartbeat { id: attempt.job.id.clone(), token: attempt.job.token, extend: None, progress, tenant }
}

fn reference(attempt: &Attempt) -> AttemptRef {
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
