//! Judges what was seen in a run against what is promised. It knows the history and nothing else, so it cannot share the
//! errors of what it judges; and it reads any history, of whoever wrote it.

mod job;
mod ledger;
#[cfg(test)]
mod tests;
mod timing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::history::{Entry, Event, Phase};
use job::Seen;
use ledger::SeenSchedule;

/// A promise that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// What was acknowledged is there, and succeeds.
    NothingLost,
    /// Nothing starts before its time.
    NothingEarly,
    /// Nothing starts that nobody asked for.
    NothingUnexpected,
    /// A key makes one job.
    OneJobPerKey,
    /// The run key is the same for all attempts, and no other job has it.
    RunKeyStable,
    /// Tokens rise with every attempt, and an attempt is started once.
    TokensRise,
    /// An attempt has one outcome.
    OneOutcomePerToken,
    /// An outcome with a token that is not the newest is refused.
    StaleTokenRefused,
    /// Nothing starts after its completion was acknowledged.
    NoStartAfterCompletion,
    /// Every instant of a schedule is in its ledger, once, and fires as one job or not at all.
    LedgerExact,
    /// After faults, what is due starts.
    LagRecovers,
    /// Enough submissions are taken meanwhile.
    SubmissionsTaken,
    /// Nodes do not end by themselves.
    NodesStayUp,
    /// While nodes are restarted one by one, nothing starts twice.
    RollingRunsOnce,
    /// Nor late.
    RollingOnTime,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub promise: Promise,
    /// By what.
    pub subject: String,
    /// How.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}: {}", self.promise, self.subject, self.text)
    }
}

/// Bounds in time. They are for an idle machine; on a busy one they are stretched.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How late a job may start.
    pub lag_ms_max: i64,
    /// How long after everything is mended it may be until that holds: a lease, and ten seconds.
    pub recovery_ms_max: i64,
}

impl Bounds {
    /// The promised bounds, times a factor.
    #[must_use]
    pub fn stretched(factor: u32) -> Self {
        let factor = i64::from(factor.max(1));
        Self { lag_ms_max: 5_000 * factor, recovery_ms_max: 25_000 * factor }
    }
}

/// A submission.
#[derive(Debug, Clone)]
struct Asked {
    at_ms: i64,
    run_at_ms: i64,
    /// Acknowledged as which jobs.
    ids: BTreeSet<String>,
    taken_at_ms: Option<i64>,
}

/// What the checker has gathered.
#[derive(Debug, Default)]
struct Checker {
    phases: Vec<(i64, Phase)>,
    /// By tenant and key.
    asked: BTreeMap<(String, String), Asked>,
    jobs: BTreeMap<String, Seen>,
    schedules: BTreeMap<String, SeenSchedule>,
    died: Vec<(usize, Option<i32>)>,
    violations: Vec<Violation>,
}

/// Finds everything that is wrong with a run.
#[must_use]
pub fn check(entries: &[Entry], bounds: Bounds) -> Vec<Violation> {
    let mut checker = Checker::default();
    for entry in entries {
        checker.hear(entry);
    }
    checker.judge_jobs();
    checker.judge_schedules();
    checker.judge_times(bounds);
    let mut violations = checker.violations;
    violations.sort_by(|one, other| (one.promise, &one.subject).cmp(&(other.promise, &other.subject)));
    violations
}

impl Checker {
    fn blame(&mut self, promise: Promise, subject: impl Into<String>, text: impl Into<String>) {
        self.violations.push(Violation { promise, subject: subject.into(), text: text.into() });
    }

    fn hear(&mut self, entry: &Entry) {
        let at_ms = entry.at_ms;
        match &entry.event {
            Event::Phase { phase } => self.phases.push((at_ms, *phase)),
            Event::Submitting { tenant, key, run_at_ms, .. } => {
                let asked = Asked { at_ms, run_at_ms: *run_at_ms, ids: BTreeSet::new(), taken_at_ms: None };
                self.asked.insert((tenant.clone(), key.clone()), asked);
            }
            Event::Submitted { tenant, key, id } => {
                if let Some(asked) = self.asked.get_mut(&(tenant.clone(), key.clone())) {
                    asked.ids.insert(id.clone());
                    asked.taken_at_ms.get_or_insert(at_ms);
                }
                self.jobs.entry(id.clone()).or_default().acknowledged = true;
            }
            Event::Schedule { id, first_ms, every_ms, .. } => {
                self.schedules.insert(id.clone(), SeenSchedule::new(*first_ms, *every_ms));
            }
            Event::Started { id, run_key, attempt, token, fire_at_ms, .. } => {
                let start = job::Start {
                    at_ms,
                    run_key: run_key.clone(),
                    attempt: *attempt,
                    token: *token,
                    fire_at_ms: *fire_at_ms,
                };
                self.jobs.entry(id.clone()).or_default().started(start);
            }
            Event::Reporting { id, token, .. } => {
                self.jobs.entry(id.clone()).or_default().reporting(*token);
            }
            Event::Reported { id, token, status, verdict } => {
                self.jobs.entry(id.clone()).or_default().reported(*token, status, *verdict);
            }
            Event::NodeDied { node, code } => self.died.push((*node, *code)),
            Event::Pausing { id } => self.with_schedule(id, |seen| seen.pausing_at_ms = Some(at_ms)),
            Event::Paused { id } => self.with_schedule(id, |seen| seen.paused_at_ms = Some(at_ms)),
            Event::Firing { schedule, fire_at_ms, outcome, job_id } => {
                self.with_schedule(schedule, |seen| seen.entry(*fire_at_ms, outcome, job_id.as_deref()));
            }
            Event::Job { id, state, .. } => {
                self.jobs.entry(id.clone()).or_default().end = Some(state.clone());
            }
            Event::GivenUp { .. }
            | Event::Fault { .. }
            | Event::Mended { .. }
            | Event::NodeStopped { .. }
            | Event::Shared {} => {}
        }
    }

    fn with_schedule(&mut self, id: &str, change: impl FnOnce(&mut SeenSchedule)) {
        if let Some(seen) = self.schedules.get_mut(id) {
            change(seen);
        }
    }

    /// When a phase began.
    fn began(&self, wanted: Phase) -> Option<i64> {
        self.phases.iter().find(|(_, phase)| *phase == wanted).map(|(at_ms, _)| *at_ms)
    }

    /// When the phase after it began.
    fn ended(&self, wanted: Phase) -> Option<i64> {
        let began = self.phases.iter().position(|(_, phase)| *phase == wanted)?;
        self.phases.get(began + 1).map(|(at_ms, _)| *at_ms)
    }

    fn judge_jobs(&mut self) {
        let mut faults: Vec<(Promise, String, String)> = Vec::new();
        let mut run_keys: BTreeMap<&str, &str> = BTreeMap::new();
        for (id, seen) in &self.jobs {
            faults.extend(seen.faults().into_iter().map(|(promise, text)| (promise, id.clone(), text)));
            let Some(run_key) = seen.run_key() else { continue };
            // Keys are a tenant's own; these runs give each tenant keys that no other has, or its schedules' ids.
            let first = run_keys.entry(run_key).or_insert(id);
            if *first != id {
                faults.push((
                    Promise::RunKeyStable,
                    id.clone(),
                    format!("{run_key} is the key of {first}, too"),
                ));
            }
        }
        for ((tenant, key), asked) in &self.asked {
            let name = format!("{tenant}/{key}");
            if asked.ids.len() > 1 {
                faults.push((Promise::OneJobPerKey, name.clone(), format!("it made {:?}", asked.ids)));
            }
            for id in &asked.ids {
                let Some(start_ms) = self.jobs.get(id).and_then(Seen::first_start_ms) else { continue };
                if start_ms < asked.run_at_ms {
                    let text = format!("started {} ms before its time", asked.run_at_ms - start_ms);
                    faults.push((Promise::NothingEarly, id.clone(), text));
                }
            }
        }
        self.judge_strangers(&mut faults);
        for (promise, subject, text) in faults {
            self.blame(promise, subject, text);
        }
    }

    /// Everything that starts was asked for: by its id, by its key if the answer was lost, or by a schedule.
    fn judge_strangers(&self, faults: &mut Vec<(Promise, String, String)>) {
        let keys: BTreeMap<&str, i64> =
            self.asked.iter().map(|((_, key), asked)| (key.as_str(), asked.run_at_ms)).collect();
        for (id, seen) in self.jobs.iter().filter(|(_, seen)| !seen.acknowledged) {
            let (Some(run_key), Some(start_ms)) = (seen.run_key(), seen.first_start_ms()) else { continue };
            let due_ms = match run_key.split_once(':') {
                Some((schedule, _)) if self.schedules.contains_key(schedule) => seen.fire_at_ms(),
                Some(_) | None => keys.get(run_key).copied(),
            };
            match due_ms {
                None => {
                    let text = format!("started with the key {run_key}, but nobody asked for it");
                    faults.push((Promise::NothingUnexpected, id.clone(), text));
                }
                Some(due_ms) if start_ms < due_ms => {
                    let text = format!("started {} ms before its time", due_ms - start_ms);
                    faults.push((Promise::NothingEarly, id.clone(), text));
                }
                Some(_) => {}
            }
        }
    }

    fn judge_schedules(&mut self) {
        let mut faults: Vec<(String, String)> = Vec::new();
        for (id, seen) in &self.schedules {
            let jobs = |job: &str| self.jobs.get(job);
            faults.extend(seen.faults(jobs).into_iter().map(|text| (id.clone(), text)));
            // What ran, fired.
            for (job, ran) in &self.jobs {
                let of = ran.run_key().and_then(|key| key.split_once(':')).map(|(schedule, _)| schedule);
                if of == Some(id.as_str()) && !seen.has_fired(job) {
                    faults.push((id.clone(), format!("{job} ran, but is not in the ledger as fired")));
                }
            }
        }
        for (subject, text) in faults {
            self.blame(Promise::LedgerExact, subject, text);
        }
    }
}
