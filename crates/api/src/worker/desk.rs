//! What lies on a worker's desk: jobs that wait, run or have ended and are not yet answered for; and what there is to
//! say of them. It neither waits nor talks: it is told what happened and when, and hands out messages (`words`).

mod words;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use prost::DecodeError;
use rustc_hash::{FxHashMap, FxHashSet};
use tidewheel_core::limits::WORKER_HEARTBEAT_MS;
use tokio::time::Instant;

use super::attend::Ended;
use super::context::{Attempt, Key, Stop};
use super::refusal;
use crate::proto::job_batch::JobBatch;
use crate::proto::v1::{
    AttemptRef, CancelJobs, HeartbeatAnswers, OutcomeAnswer, OutcomeAnswers, Released, TakeBack, outcome,
};

/// Outcomes that no server has answered for; beyond it no more jobs are asked for.
const UNANSWERED_COUNT_MAX: usize = 20_000;
/// Attempts that are over, kept for the texts of others.
const EMPTIED_COUNT_MAX: usize = 4_096;
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
    token: u64,
    phase: Phase,
    /// Since when its lease counts.
    leased_at: Instant,
    /// When the heartbeat was sent that is being answered.
    beat_at: Option<Instant>,
    /// The server knows that it has started.
    told_started: bool,
    /// What came of it was refused once, and is reported as a failure now.
    refused: bool,
}

impl Held {
    /// Whether its handler has begun, however far it has come since.
    fn has_begun(&self) -> bool {
        match &self.phase {
            Phase::Waiting => false,
            Phase::Running => true,
            Phase::Ended(outcome) => !matches!(outcome, outcome::Result::Released(_)),
        }
    }

    /// Whether it is being handed back.
    fn is_handed_back(&self) -> bool {
        matches!(self.phase, Phase::Ended(outcome::Result::Released(_)))
    }
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

/// Outcomes that were reported together.
struct Batch {
    number: u64,
    attempts: Vec<Arc<Attempt>>,
}

/// What lies on the desk.
pub(super) struct Desk {
    room: Room,
    held: FxHashMap<Key, Held>,
    /// In the order they came; what is no longer waiting is passed over.
    queue: VecDeque<Arc<Attempt>>,
    waiting: usize,
    running: usize,
    /// Asked for and not yet come.
    credits: usize,
    /// Ended and not yet reported.
    due: VecDeque<Arc<Attempt>>,
    unanswered: usize,
    /// Reported and not yet answered for, oldest first.
    reported: VecDeque<Batch>,
    /// Batches reported so far.
    batches: u64,
    /// Attempts that are over and answered for, to be used again.
    emptied: Vec<Arc<Attempt>>,
    /// Started, and somebody asked.
    asked_back: Vec<AttemptRef>,
    draining: bool,
    /// The server is to hear of everything that is held: it may not know who holds it.
    introduces: bool,
    /// When the heartbeat was sent that has no answer yet.
    asked_at: Option<Instant>,
    /// When something was last said for being heard of.
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
            reported: VecDeque::new(),
            batches: 0,
            emptied: Vec::new(),
            asked_back: Vec::new(),
            draining: false,
            introduces: false,
            asked_at: None,
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
        self.held.values().map(|held| words::reference(&held.attempt)).collect()
    }

    /// Begins anew over another connection; says how many jobs there is room for.
    pub(super) fn subscribe(&mut self) -> usize {
        self.credits = 0;
        self.reported.clear();
        self.asked_at = None;
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
        self.introduces = !resumed;
        self.beat_at = if resumed { now } else { now.checked_sub(beats.idle).unwrap_or(now) };
    }

    /// How often to say something: less often with empty hands.
    fn beat_every(&self) -> Duration {
        if self.held.is_empty() { self.beats.idle } else { self.beats.busy }
    }

    /// Since when a heartbeat waits for its answer, if one does.
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        self.asked_at
    }

    fn missing(&self) -> usize {
        if self.draining || self.unanswered >= UNANSWERED_COUNT_MAX {
            return 0;
        }
        self.room.capacity.saturating_sub(self.credits + self.waiting + self.running)
    }

    /// Takes in what was sent, up to what cannot be read.
    pub(super) fn receive(&mut self, batch: JobBatch, now: Instant) -> Result<(), DecodeError> {
        self.credits = self.credits.saturating_sub(batch.len());
        for encoded in batch.into_encoded() {
            let attempt = Attempt::read(encoded, self.emptied.pop())?;
            self.take_in(attempt, now);
        }
        Ok(())
    }

    fn take_in(&mut self, attempt: Arc<Attempt>, now: Instant) {
        let token = attempt.job.token;
        if let Some(known) = self.held.get(&attempt.key) {
            if known.token >= token {
                return;
            }
            // A later attempt: the earlier one is over.
            self.forget(attempt.key, Stop::LeaseOver);
        }
        let held = Held {
            attempt: Arc::clone(&attempt),
            token,
            phase: Phase::Waiting,
            leased_at: now,
            beat_at: None,
            told_started: false,
            refused: false,
        };
        self.waiting += 1;
        self.held.insert(attempt.key, held);
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
                self.forget(attempt.key, Stop::LeaseOver);
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
        match ended.outcome {
            Some(outcome) => {
                held.phase = Phase::Ended(outcome);
                self.reports(ended.attempt);
            }
            None => self.forget(ended.attempt.key, Stop::Cancelled),
        }
    }

    /// A waiting attempt comes to its end.
    fn end(&mut self, attempt: &Arc<Attempt>, outcome: outcome::Result) {
        let Some(held) = self.of(attempt) else { return };
        held.phase = Phase::Ended(outcome);
        self.waiting -= 1;
        self.reports(Arc::clone(attempt));
    }

    /// What came of an attempt is to be reported.
    fn reports(&mut self, attempt: Arc<Attempt>) {
        self.unanswered += 1;
        self.due.push_back(attempt);
    }

    /// The attempt, if it is the one that is held.
    fn of(&mut self, attempt: &Arc<Attempt>) -> Option<&mut Held> {
        self.held.get_mut(&attempt.key).filter(|held| Arc::ptr_eq(&held.attempt, attempt))
    }

    /// The attempt no longer counts.
    fn forget(&mut self, key: Key, why: Stop) {
        let Some(held) = self.held.remove(&key) else { return };
        held.attempt.stop(why);
        match held.phase {
            Phase::Waiting => self.waiting -= 1,
            // Counted until its handler returns.
            Phase::Running => {}
            Phase::Ended(_) => self.unanswered -= 1,
        }
    }

    fn is_held(&self, key: Key, token: u64) -> bool {
        self.held.get(&key).is_some_and(|held| held.token == token)
    }

    /// Takes answers to outcomes; returns those that refuse.
    pub(super) fn outcomes_answered(&mut self, answers: OutcomeAnswers) -> Vec<OutcomeAnswer> {
        let attempts = self.answered_batch(answers.batch);
        let mut named: FxHashSet<Key> = FxHashSet::default();
        let mut refused = Vec::new();
        for answer in answers.jobs {
            let key = Key::of(&answer.id);
            named.insert(key);
            let is_taken = matches!(answer.code.as_str(), "accepted" | "already");
            // A job that was to be handed back and is taken already is where it should be.
            let is_fine = is_taken || self.held.get(&key).is_some_and(Held::is_handed_back);
            if self.is_held(key, answer.token) && (is_taken || !self.fails_instead(key, &answer)) {
                self.forget(key, Stop::LeaseOver);
            }
            if !is_fine {
                refused.push(answer);
            }
        }
        for attempt in attempts {
            if !named.contains(&attempt.key) && self.of(&attempt).is_some() {
                self.forget(attempt.key, Stop::LeaseOver);
                if self.emptied.len() < EMPTIED_COUNT_MAX {
                    self.emptied.extend(Attempt::emptied(attempt));
                }
            }
        }
        refused
    }

    /// What was reported as the batch of that number, if it was answered briefly. A server that names every outcome gives no
    /// number, and has answered some batch.
    fn answered_batch(&mut self, number: u64) -> Vec<Arc<Attempt>> {
        if number == 0 {
            self.reported.pop_front();
            return Vec::new();
        }
        let place = self.reported.iter().position(|batch| batch.number == number);
        place.and_then(|place| self.reported.remove(place)).map(|batch| batch.attempts).unwrap_or_default()
    }

    /// An attempt that still counts, but not with what was said of it, has failed for good. Says whether it is one. That is
    /// said once: a server that refuses even this is not asked without end.
    fn fails_instead(&mut self, key: Key, answer: &OutcomeAnswer) -> bool {
        let Some(instead) = refusal::instead(answer) else { return false };
        let Some(held) = self.held.get_mut(&key) else { return false };
        if held.refused || held.is_handed_back() {
            return false;
        }
        let Phase::Ended(outcome) = &mut held.phase else { return false };
        *outcome = instead;
        held.refused = true;
        self.due.push_back(Arc::clone(&held.attempt));
        true
    }

    /// Takes answers to heartbeats. What is refused no longer counts.
    pub(super) fn heartbeats_answered(&mut self, answers: &HeartbeatAnswers) {
        self.asked_at = None;
        for answer in &answers.jobs {
            let key = Key::of(&answer.id);
            if answer.code != "accepted" && answer.code != "already" {
                if self.is_held(key, answer.token) {
                    self.forget(key, Stop::LeaseOver);
                }
            } else if let Some(held) = self.held.get_mut(&key)
                && let Some(beat_at) = held.beat_at.take()
            {
                held.leased_at = beat_at;
            }
        }
    }

    /// The server says that attempts no longer count.
    pub(super) fn called_off(&mut self, cancels: &CancelJobs) {
        for job in &cancels.jobs {
            let key = Key::of(&job.id);
            if self.is_held(key, job.token) {
                let why = if job.reason == "cancelled" { Stop::Cancelled } else { Stop::LeaseOver };
                self.forget(key, why);
            }
        }
    }

    /// The server wants back what has not started.
    pub(super) fn asked_back(&mut self, asked: TakeBack) {
        for job in asked.jobs {
            let Some(held) = self.held.get_mut(&Key::of(&job.id)) else { continue };
            if held.token != job.token {
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

    /// Without a connection nothing is said. What would be due must not keep the next look from being waited for.
    pub(super) fn rest(&mut self, now: Instant) {
        if now >= self.look_at() {
            self.looked_at = now;
            self.beat_at = now;
        }
    }

    /// Looks at what runs: leases that ran out by the worker's own clock. Also needed without a connection.
    pub(super) fn look(&mut self, now: Instant) {
        let safe = self.safe_for();
        let over = |held: &Held| {
            !matches!(held.phase, Phase::Ended(_)) && now.saturating_duration_since(held.leased_at) >= safe
        };
        let over: Vec<Key> = self.held.iter().filter(|(_, held)| over(held)).map(|(key, _)| *key).collect();
        for key in over {
            self.forget(key, Stop::LeaseOver);
        }
    }
}
