//! What the checker knows of one job.

use std::collections::BTreeMap;

use tidewheel_core::job::{Ending, Job, Token};
use tidewheel_core::limits::ATTEMPTS_KEPT_COUNT_MAX;
use tidewheel_core::time::Timestamp;

use super::Promise;
use crate::history::{Asked, Start, Wish};
use crate::run::LATE_MS_MAX;

/// A promise broken, and how.
type Fault = (Promise, String);

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) asked: Asked,
    pub(super) acknowledged: bool,
    /// It may start from here on: as asked for, or as granted since.
    floor: Timestamp,
    /// Where in the record that was granted.
    floor_index: usize,
    /// As wished for, not yet answered.
    floor_wished: Option<Timestamp>,
    /// Somebody asked for another run and has no answer yet.
    rerun_open: bool,
    /// Where in the record somebody last had one.
    rerun_answered: Option<usize>,
    /// Wishes to run it again, each of which may have been granted.
    reruns: u32,
    may_be_discarded: bool,
    /// Where in the record its cancel was acknowledged.
    cancelled: Option<usize>,
    completed: bool,
    starts: u32,
    /// Ends of attempts that cost none, reported so far.
    free_ends: u32,
    run_key: Option<String>,
    last_start: Option<(usize, Token)>,
    last_attempt: u32,
    attempts: BTreeMap<Token, Attempt>,
}

#[derive(Debug, Default)]
struct Attempt {
    /// When its runner first told the server of its end.
    first_reported: Option<usize>,
    /// When it last did.
    reported: Option<usize>,
    /// What the server took.
    outcome: Option<Ending>,
    changes: u32,
    /// Wishes to run the job again that came before it.
    reruns_before: u32,
}

impl Seen {
    pub(super) fn new(asked: Asked) -> Self {
        Self {
            floor: asked.run_at,
            floor_index: 0,
            asked,
            acknowledged: false,
            floor_wished: None,
            rerun_open: false,
            rerun_answered: None,
            reruns: 0,
            may_be_discarded: false,
            cancelled: None,
            completed: false,
            starts: 0,
            free_ends: 0,
            run_key: None,
            last_start: None,
            last_attempt: 0,
            attempts: BTreeMap::new(),
        }
    }

    pub(super) fn wishing(&mut self, wish: Wish) {
        match wish {
            Wish::Cancel => {}
            Wish::RunNow => self.floor_wished = Some(Timestamp::MIN),
            Wish::Amend(at) => self.floor_wished = Some(at),
            Wish::Rerun(at) | Wish::Replay(at) => {
                self.floor_wished = Some(at);
                self.rerun_open = true;
                self.reruns += 1;
                self.cancelled = None;
                self.completed = false;
                // Whoever runs it again after it expired wants it run.
                self.asked.expires_at = self.asked.expires_at.filter(|expires_at| *expires_at > at);
            }
            Wish::Discard => self.may_be_discarded = true,
        }
    }

    pub(super) fn granted(&mut self, index: usize, wish: Wish) {
        self.answered(index, wish);
        if let Some(floor) = self.floor_wished.take() {
            (self.floor, self.floor_index) = (floor, index);
        }
        if wish == Wish::Cancel {
            self.cancelled = Some(index);
        }
    }

    pub(super) fn declined(&mut self, index: usize, wish: Wish) {
        self.answered(index, wish);
        // An earlier try of the same wish may have been granted although its answer was lost.
        self.floor = self.floor.min(self.floor_wished.take().unwrap_or(self.floor));
    }

    fn answered(&mut self, index: usize, wish: Wish) {
        self.rerun_open = false;
        // A replay is granted to dead jobs only, so that it crosses no success.
        if matches!(wish, Wish::Rerun(_)) {
            self.rerun_answered = Some(index);
        }
    }

    pub(super) fn reporting(&mut self, index: usize, token: Token, ending: Option<Ending>) {
        if matches!(ending, Some(Ending::Snoozed | Ending::Released)) {
            self.free_ends += 1;
        }
        let attempt = self.attempts.entry(token).or_default();
        attempt.first_reported.get_or_insert(index);
        attempt.reported = Some(index);
    }

    pub(super) fn started(
        &mut self,
        (index, claimed_index): (usize, usize),
        start: &Start,
        latest_wall: Timestamp,
        servers_gone: u32,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut blame = |promise, text: String| faults.push((promise, text));
        // An attempt may have ended that never reached its runner; then the server had set another time since. Or it was claimed
        // before somebody was granted another time, and reaches its runner only now.
        let is_next = start.attempt == self.last_attempt + 1 && self.floor_index <= claimed_index;
        let floor =
            if is_next { self.floor.min(self.floor_wished.unwrap_or(self.floor)) } else { Timestamp::MIN };
        let claimed_at = start.claimed_at;
        if claimed_at < start.due_at || claimed_at < floor || claimed_at > latest_wall {
            let times = [claimed_at, start.due_at, floor, latest_wall].map(Timestamp::as_ms);
            blame(
                Promise::NothingEarly,
                format!("claimed at, due at, allowed from, latest clock: {times:?}"),
            );
        }
        if self.asked.expires_at.is_some_and(|expires_at| expires_at <= claimed_at) {
            blame(Promise::NothingEarly, format!("claimed at {} although expired", claimed_at.as_ms()));
        }
        if self.asked.deserted {
            blame(Promise::NothingUnexpected, "started, but nobody takes jobs of its queue".to_owned());
        }
        // What one node has claimed may be on its way to the runner while another acknowledges a cancel.
        if self.cancelled.is_some_and(|cancelled| cancelled < claimed_index) {
            blame(Promise::NoStartAfterCancel, format!("attempt {} after its cancel", start.attempt));
        }
        if self.completed {
            blame(Promise::NoStartAfterCompletion, format!("attempt {} after its completion", start.attempt));
        }
        if self.last_start.is_some_and(|(_, last)| start.token <= last) {
            let last = self.last_start.map_or(0, |(_, token)| token.as_u64());
            blame(Promise::TokensRise, format!("token {} after token {last}", start.token.as_u64()));
        }
        let run_key = self.run_key.get_or_insert_with(|| start.run_key.clone());
        if *run_key != start.run_key {
            blame(Promise::RunKeyStable, format!("run key {} was {run_key}", start.run_key));
        }
        self.starts += 1;
        let allowed = self.asked.max_attempts * (1 + self.reruns) + servers_gone + self.free_ends;
        if self.starts > allowed {
            blame(Promise::AttemptsBounded, format!("{} starts, at most {allowed} allowed", self.starts));
        }
        self.last_start = Some((index, start.token));
        self.attempts.entry(start.token).or_default().reruns_before = self.reruns;
        self.last_attempt = start.attempt;
        // Its next time is the server's to decide, by a clock that may have been set back.
        self.floor = Timestamp::MIN;
        self.floor_wished = None;
        faults
    }

    pub(super) fn accepted(&mut self, token: Token, ending: Option<Ending>, changed: bool) -> Vec<Fault> {
        let mut faults = Vec::new();
        let attempt = self.attempts.entry(token).or_default();
        let newer = self.last_start.filter(|(_, last)| *last > token);
        // Judged by when it was sent: an answer may be slow, and the next attempt faster than it.
        if newer.is_some_and(|(index, _)| attempt.reported.is_none_or(|reported| index < reported)) {
            faults.push((Promise::StaleTokenRefused, format!("token {} was accepted", token.as_u64())));
        }
        let Some(ending) = ending else { return faults };
        attempt.changes += u32::from(changed);
        let first = *attempt.outcome.get_or_insert(ending);
        if first != ending || attempt.changes > 1 {
            let text = format!("{first:?} and {ending:?} both accepted under token {}", token.as_u64());
            faults.push((Promise::OneOutcomePerToken, text));
        }
        // Said again after the job was asked for once more, it is about a run that is history. So it may be where that was
        // answered after the end was told: nobody outside knows which of the two came first.
        let is_crossed = self.rerun_answered > attempt.first_reported;
        let is_history = self.rerun_open || is_crossed || attempt.reruns_before != self.reruns;
        if ending == Ending::Succeeded && !is_history {
            self.completed = true;
        }
        faults
    }

    /// Compares with what the store has in the end.
    pub(super) fn left(&self, job: Option<&Job>, ended_at: Timestamp) -> Vec<Fault> {
        let mut faults = Vec::new();
        let Some(job) = job else {
            if self.acknowledged && !self.may_be_discarded {
                faults.push((Promise::NothingLost, "acknowledged, and gone from the store".to_owned()));
            }
            return faults;
        };
        // Schedules go on to the end of the run, so one of their jobs may just be under way.
        let lease_until = job.status.running.as_ref().map(|running| running.lease_until);
        let moves_by = job.armed_at().or(lease_until.filter(|_| job.spec.occurrence.is_some()));
        let late_ms = if job.spec.occurrence.is_some() { LATE_MS_MAX } else { 0 };
        let waits = self.asked.deserted || moves_by.is_some_and(|at| at.plus_ms(late_ms) > ended_at);
        if !job.status.state.is_finished() && !waits {
            faults.push((Promise::NothingLost, format!("never ended: {:?}", job.status.state)));
        }
        for (token, attempt) in &self.attempts {
            let Some(outcome) = attempt.outcome else { continue };
            let kept = job.status.attempts.iter().find(|kept| kept.token == *token).map(|kept| kept.ending);
            let may_be_forgotten = job.status.attempts.len() >= ATTEMPTS_KEPT_COUNT_MAX;
            if kept != Some(outcome) && !(kept.is_none() && may_be_forgotten) {
                let text =
                    format!("{outcome:?} was accepted under token {}, kept is {kept:?}", token.as_u64());
                faults.push((Promise::OneOutcomePerToken, text));
            }
        }
        faults
    }
}
