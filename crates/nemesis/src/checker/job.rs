//! What the checker knows of one job.

use std::collections::{BTreeMap, BTreeSet};

use super::Promise;
use crate::history::Verdict;

const SUCCEEDED: &str = "succeeded";

#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) at_ms: i64,
    pub(super) run_key: String,
    pub(super) attempt: u32,
    pub(super) token: u64,
    pub(super) fire_at_ms: Option<i64>,
}

#[derive(Debug, Default)]
struct Attempt {
    /// Reports of it were sent before; that the same is said again is no news.
    was_reported: bool,
    /// The newest token that was seen when its outcome was sent for the first time.
    newest_then: u64,
    accepted: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) acknowledged: bool,
    pub(super) starts: Vec<Start>,
    attempts: BTreeMap<u64, Attempt>,
    /// The token of the success that was acknowledged, and the newest token that was seen after it.
    completed: Option<u64>,
    after_completion: Option<u64>,
    stale_accepted: Vec<u64>,
    /// As a node had it in the end; the inner is its state.
    pub(super) end: Option<Option<String>>,
}

impl Seen {
    pub(super) fn started(&mut self, start: Start) {
        // A late delivery of an older claim is no new start.
        if self.completed.is_some_and(|token| token < start.token) {
            self.after_completion.get_or_insert(start.token);
        }
        self.starts.push(start);
    }

    fn newest(&self) -> u64 {
        self.starts.iter().map(|start| start.token).max().unwrap_or(0)
    }

    pub(super) fn reporting(&mut self, token: u64) {
        let newest = self.newest();
        let attempt = self.attempts.entry(token).or_default();
        if !attempt.was_reported {
            attempt.was_reported = true;
            attempt.newest_then = newest;
        }
    }

    pub(super) fn reported(&mut self, token: u64, status: &str, verdict: Verdict) {
        if verdict != Verdict::Accepted {
            return;
        }
        let attempt = self.attempts.entry(token).or_default();
        let is_first = attempt.accepted.is_empty();
        attempt.accepted.insert(status.to_owned());
        if is_first && token < attempt.newest_then {
            self.stale_accepted.push(token);
        }
        if status == SUCCEEDED {
            self.completed.get_or_insert(token);
        }
    }

    pub(super) fn first_start_ms(&self) -> Option<i64> {
        self.starts.iter().map(|start| start.at_ms).min()
    }

    pub(super) fn fire_at_ms(&self) -> Option<i64> {
        self.starts.first()?.fire_at_ms
    }

    pub(super) fn run_key(&self) -> Option<&str> {
        self.starts.first().map(|start| start.run_key.as_str())
    }

    pub(super) fn has_succeeded(&self) -> bool {
        matches!(&self.end, Some(Some(state)) if state == SUCCEEDED)
    }

    /// What is wrong with it by itself.
    pub(super) fn faults(&self) -> Vec<(Promise, String)> {
        let mut faults = Vec::new();
        self.judge_end(&mut faults);
        self.judge_starts(&mut faults);
        for (token, attempt) in self.attempts.iter().filter(|(_, attempt)| attempt.accepted.len() > 1) {
            let text = format!("under the token {token} it has {:?}", attempt.accepted);
            faults.push((Promise::OneOutcomePerToken, text));
        }
        let succeeded = self.attempts.iter().filter(|(_, attempt)| attempt.accepted.contains(SUCCEEDED));
        let tokens: Vec<u64> = succeeded.map(|(token, _)| *token).collect();
        if tokens.len() > 1 {
            faults.push((Promise::OneOutcomePerToken, format!("it succeeded under {tokens:?}")));
        }
        for token in &self.stale_accepted {
            let text = format!("an outcome was taken under {token}, though a newer token was out");
            faults.push((Promise::StaleTokenRefused, text));
        }
        if let (Some(completed), Some(token)) = (self.completed, self.after_completion) {
            let text = format!("it succeeded under {completed}, and was started under {token} later");
            faults.push((Promise::NoStartAfterCompletion, text));
        }
        faults
    }

    fn judge_end(&self, faults: &mut Vec<(Promise, String)>) {
        match &self.end {
            _ if !self.acknowledged => {}
            None => faults.push((Promise::NothingLost, "it was not asked for in the end".to_owned())),
            Some(None) => faults.push((Promise::NothingLost, "it was acknowledged and is gone".to_owned())),
            Some(Some(state)) if state != SUCCEEDED => {
                faults.push((Promise::NothingLost, format!("it is {state} in the end")));
            }
            Some(Some(_)) if self.starts.is_empty() => {
                faults.push((Promise::NothingLost, "it succeeded, and never reached anybody".to_owned()));
            }
            Some(Some(_)) => {}
        }
    }

    fn judge_starts(&self, faults: &mut Vec<(Promise, String)>) {
        let keys: BTreeSet<&str> = self.starts.iter().map(|start| start.run_key.as_str()).collect();
        if keys.len() > 1 {
            faults.push((Promise::RunKeyStable, format!("its attempts have the keys {keys:?}")));
        }
        let mut starts: Vec<(u32, u64)> =
            self.starts.iter().map(|start| (start.attempt, start.token)).collect();
        starts.sort_unstable();
        for (before, after) in starts.iter().zip(starts.iter().skip(1)) {
            if before.0 == after.0 {
                let text = format!("attempt {} was started under {} and {}", before.0, before.1, after.1);
                faults.push((Promise::TokensRise, text));
            } else if after.1 <= before.1 {
                let text = format!("attempt {} has the token {}, after {}", after.0, after.1, before.1);
                faults.push((Promise::TokensRise, text));
            }
        }
    }
}
