//! What the checker knows of one schedule: its instants follow from how it was made.

use std::collections::BTreeMap;

use super::job::Seen;

const FIRED: &str = "fired";
const OUTCOMES: [&str; 4] = [FIRED, "coalesced", "skipped", "missed"];
/// Instants of one schedule.
const INSTANTS_COUNT_MAX: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct SeenSchedule {
    first_ms: i64,
    every_ms: i64,
    pub(super) pausing_at_ms: Option<i64>,
    pub(super) paused_at_ms: Option<i64>,
    entries: BTreeMap<i64, Vec<(String, Option<String>)>>,
}

impl SeenSchedule {
    pub(super) fn new(first_ms: i64, every_ms: i64) -> Self {
        let every_ms = every_ms.max(1);
        Self { first_ms, every_ms, pausing_at_ms: None, paused_at_ms: None, entries: BTreeMap::new() }
    }

    pub(super) fn entry(&mut self, fire_at_ms: i64, outcome: &str, job_id: Option<&str>) {
        let entry = (outcome.to_owned(), job_id.map(str::to_owned));
        self.entries.entry(fire_at_ms).or_default().push(entry);
    }

    pub(super) fn has_fired(&self, job: &str) -> bool {
        let mut entries = self.entries.values().flatten();
        entries.any(|(outcome, id)| outcome == FIRED && id.as_deref() == Some(job))
    }

    fn is_instant(&self, at_ms: i64) -> bool {
        at_ms >= self.first_ms && (at_ms - self.first_ms) % self.every_ms == 0
    }

    pub(super) fn faults<'a>(&self, job: impl Fn(&str) -> Option<&'a Seen>) -> Vec<String> {
        let mut faults = Vec::new();
        let Some(pausing_at_ms) = self.pausing_at_ms else {
            faults.push("it was not paused in the end, so its ledger is not known to be whole".to_owned());
            return faults;
        };
        let until_ms = pausing_at_ms.min(self.first_ms.saturating_add(INSTANTS_COUNT_MAX * self.every_ms));
        let mut at_ms = self.first_ms;
        while at_ms <= until_ms {
            if !self.entries.contains_key(&at_ms) {
                faults.push(format!("nothing became of {at_ms}"));
            }
            at_ms += self.every_ms;
        }
        for (at_ms, entries) in &self.entries {
            let names: Vec<&str> = entries.iter().map(|(outcome, _)| outcome.as_str()).collect();
            if entries.len() > 1 {
                faults.push(format!("{at_ms} is in the ledger as {names:?}"));
            }
            if !self.is_instant(*at_ms) {
                faults.push(format!("{at_ms} is none of its instants, and is {names:?}"));
            }
            for (outcome, job_id) in entries {
                self.judge_entry(*at_ms, outcome, job_id.as_deref(), &job, &mut faults);
            }
        }
        faults
    }

    fn judge_entry<'a>(
        &self,
        at_ms: i64,
        outcome: &str,
        job_id: Option<&str>,
        job: &impl Fn(&str) -> Option<&'a Seen>,
        faults: &mut Vec<String>,
    ) {
        if !OUTCOMES.contains(&outcome) {
            faults.push(format!("{at_ms} is {outcome}, which nobody asked for"));
        }
        if outcome != FIRED {
            return;
        }
        if self.paused_at_ms.is_some_and(|paused_at_ms| paused_at_ms < at_ms) {
            faults.push(format!("{at_ms} fired although it was paused"));
        }
        match job_id.map(|id| (id, job(id))) {
            None => faults.push(format!("{at_ms} fired as no job")),
            Some((id, seen)) if !seen.is_some_and(Seen::has_succeeded) => {
                faults.push(format!("{at_ms} fired as {id}, which did not succeed"));
            }
            Some((id, Some(seen))) if seen.fire_at_ms().is_some_and(|fire_at_ms| fire_at_ms != at_ms) => {
                faults.push(format!("{at_ms} fired as {id}, which was for another instant"));
            }
            Some(_) => {}
        }
    }
}
