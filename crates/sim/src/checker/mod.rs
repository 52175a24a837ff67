//! Judges the record of a run against what is promised: nothing acknowledged is lost, nothing starts early,
//! nothing is accepted under a stale token, and once faults are over the server catches up. Of schedules: every
//! instant ends in exactly one way, edits hold from when they are acknowledged, and the chain goes on.

mod overlap;
mod ownership;
mod schedules;
mod seen;
mod timeline;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;

pub use schedules::KeptSchedule;

use crate::history::{Asked, Entry, Event, Start};
use ownership::Ownership;
use schedules::SeenSchedule;
use seen::Seen;

/// A promise that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// What was acknowledged is there, and ends.
    NothingLost,
    /// Nothing starts before its time, nor after it expired.
    NothingEarly,
    /// Nothing starts that nobody asked for, or for another tenant.
    NothingUnexpected,
    /// Nothing starts after its cancel was acknowledged.
    NoStartAfterCancel,
    /// Nothing starts after its completion was acknowledged.
    NoStartAfterCompletion,
    /// Tokens rise with every attempt.
    TokensRise,
    /// An attempt has one outcome, and it is kept.
    OneOutcomePerToken,
    /// A stale token is refused.
    StaleTokenRefused,
    /// A key makes one job.
    OneJobPerKey,
    /// The run key is the same for all attempts, and no other job has it.
    RunKeyStable,
    /// No more attempts than the policy allows.
    AttemptsBounded,
    /// After faults, what is due starts.
    LagRecovers,
    /// Memory and deliveries under way stay within their bounds.
    Bounded,
    /// Every nominal instant of a schedule ends, as fired, coalesced, skipped or missed.
    EveryInstantEnds,
    /// It does so once; if it fires, as one job.
    OneFirePerInstant,
    /// What a schedule was told to be holds from when it was told: by the old definition or by the new one, and
    /// never while it is paused or after it was deleted.
    EditsHold,
    /// Runs of a schedule overlap only where its policy lets them.
    NoOverlap,
    /// A schedule that goes on has one occurrence waiting, and one that does not has none.
    ChainUnbroken,
    /// A shard has one node at a time, and nobody else serves it.
    OneOwnerPerShard,
    /// Whoever lost a shard claims nothing in it.
    StaleEpochRefused,
    /// Without a reason, no shard moves.
    ShardsStay,
    /// No node serves more than its share of the shards, and every shard is served.
    SharesEven,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub promise: Promise,
    /// For which job, if for one.
    pub id: Option<JobId>,
    /// For which schedule, if for one.
    pub schedule: Option<ScheduleId>,
    /// How.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.text)?;
        if let Some(id) = self.schedule {
            write!(f, " ({id})")?;
        }
        self.id.map_or(Ok(()), |id| write!(f, " ({id})"))
    }
}

/// What is left in the end.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// The jobs in the store.
    pub jobs: BTreeMap<JobId, Job>,
    /// The schedules in the store.
    pub schedules: BTreeMap<ScheduleId, KeptSchedule>,
    /// How far the wall clock of a node was from the true time, at most.
    pub skew_ms_max: i64,
    /// How long a call to the store took at most; none if times of the wall clock do not tell what came first.
    pub call_ms_max: Option<i64>,
    /// What the wall clock shows.
    pub ended_at: Timestamp,
}

/// Finds everything that is wrong with a run.
#[must_use]
pub fn check(entries: &[Entry], ledger: &Ledger) -> Vec<Violation> {
    // Between clocks that differ, time can go back.
    let mut checker = Checker { is_set_back: ledger.skew_ms_max > 0, ..Checker::default() };
    for (index, entry) in entries.iter().enumerate() {
        checker.is_stepped_back |= entry.wall < checker.last_wall;
        checker.is_set_back |= checker.is_stepped_back;
        checker.last_wall = entry.wall;
        checker.latest_wall = checker.latest_wall.max(entry.wall.plus_ms(ledger.skew_ms_max));
        checker.hear(index, &entry.event);
    }
    checker.close(ledger);
    checker.violations
}

#[derive(Default)]
struct Checker {
    jobs: BTreeMap<JobId, Seen>,
    schedules: BTreeMap<ScheduleId, SeenSchedule>,
    keys: BTreeMap<(Tenant, Arc<str>), JobId>,
    run_keys: BTreeMap<String, JobId>,
    servers_gone: u32,
    ownership: Ownership,
    /// The latest that any clock can have shown.
    latest_wall: Timestamp,
    last_wall: Timestamp,
    is_set_back: bool,
    /// One clock was: whatever goes by it sees times again.
    is_stepped_back: bool,
    violations: Vec<Violation>,
}

impl Checker {
    fn blame(&mut self, promise: Promise, id: impl Into<Option<JobId>>, text: impl Into<String>) {
        self.violations.push(Violation { promise, id: id.into(), schedule: None, text: text.into() });
    }

    fn blame_schedule(&mut self, id: ScheduleId, faults: Vec<schedules::Fault>) {
        self.violations.extend(faults.into_iter().map(|(promise, job_id, text)| Violation {
            promise,
            id: job_id,
            schedule: Some(id),
            text,
        }));
    }

    fn hear(&mut self, index: usize, event: &Event) {
        match event {
            Event::Submitting(asked) => {
                self.jobs.insert(asked.id, Seen::new(asked.clone()));
            }
            Event::Taken { id } => self.taken(*id),
            Event::Known { tenant, key, id } => {
                self.taken(*id);
                self.keyed(tenant, key, *id);
            }
            Event::Wishing { id, wish } => self.with(*id, |seen| seen.wishing(*wish)),
            Event::Granted { id, wish } => self.with(*id, |seen| seen.granted(index, *wish)),
            Event::Declined { id, wish } => self.with(*id, |seen| seen.declined(index, *wish)),
            Event::ScheduleWishing(wish) => self.schedules.entry(wish.id).or_default().wishing(wish),
            Event::ScheduleGranted(answer) => {
                let id = answer.schedule.id;
                let faults = self.schedules.entry(id).or_default().granted(answer, self.latest_wall);
                self.blame_schedule(id, faults);
            }
            Event::ScheduleDeclined { id, deed } => {
                self.schedules.entry(*id).or_default().declined(*deed, self.latest_wall);
            }
            Event::Started(start) => self.started(index, start),
            Event::Reporting { id, token, ending } => {
                self.with(*id, |seen| seen.reporting(index, *token, *ending));
            }
            Event::Accepted { id, token, ending, changed } => {
                let faults = self.jobs.get_mut(id).map(|seen| seen.accepted(*token, *ending, *changed));
                for (promise, text) in faults.into_iter().flatten() {
                    self.blame(promise, *id, text);
                }
            }
            Event::ServerGone { .. } => self.servers_gone += 1,
            Event::Witnessed { deed, .. } => {
                if let Some((promise, id, text)) = self.ownership.hear(index, self.last_wall, deed) {
                    self.blame(promise, id, text);
                }
            }
            Event::ServedTwice { shard } => {
                self.blame(Promise::OneOwnerPerShard, None, format!("two nodes serve shard {shard}"));
            }
            Event::Recovered => self.ownership.settled(),
            Event::Served { shards, counts } => self.shared_out(*shards, counts),
            Event::Overdue { id, state, since } => {
                self.overdue(*id, &format!("{state:?} since {}", since.as_ms()))
            }
            Event::Held { count, bound } if count > bound => {
                self.blame(
                    Promise::Bounded,
                    None,
                    format!("{count} jobs in memory, at most {bound} allowed"),
                );
            }
            Event::TooManyPushes { count, bound } => {
                self.blame(
                    Promise::Bounded,
                    None,
                    format!("{count} deliveries under way, at most {bound} allowed"),
                );
            }
            Event::Held { .. }
            | Event::SubmitUnclear { .. }
            | Event::Refused { .. }
            | Event::ServerUp
            | Event::Fault(..)
            | Event::FaultsOver => {}
        }
    }

    fn shared_out(&mut self, shards: usize, counts: &[usize]) {
        let share = shards.div_ceil(counts.len().max(1));
        if counts.iter().sum::<usize>() != shards || counts.iter().any(|count| *count > share) {
            self.blame(Promise::SharesEven, None, format!("{shards} shards are served as {counts:?}"));
        }
    }

    fn with(&mut self, id: JobId, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.jobs.get_mut(&id) {
            change(seen);
        }
    }

    fn taken(&mut self, id: JobId) {
        let Some(seen) = self.jobs.get_mut(&id) else {
            self.blame(Promise::NothingUnexpected, id, "acknowledged, but nobody submitted it");
            return;
        };
        seen.acknowledged = true;
        let (tenant, key) = (seen.asked.tenant.clone(), seen.asked.key.clone());
        if let Some(key) = key {
            self.keyed(&tenant, &key, id);
        }
    }

    fn keyed(&mut self, tenant: &Tenant, key: &Arc<str>, id: JobId) {
        let first = *self.keys.entry((tenant.clone(), Arc::clone(key))).or_insert(id);
        if first != id {
            self.blame(Promise::OneJobPerKey, id, format!("key {key} already made {first}"));
        }
    }

    /// A job of a schedule is known from its first start on.
    fn fired(&mut self, start: &Start) {
        let Some(occurrence) = &start.occurrence else { return };
        let id = Some(occurrence.schedule_id);
        let schedule = id.and_then(|id| self.schedules.get_mut(&id));
        let Some(schedule) = schedule.filter(|schedule| schedule.is_of(&start.tenant)) else { return };
        schedule.started(start, self.latest_wall);
        let max_attempts = schedule.attempts_max;
        // One that fired and waited for another may start by a clock that was set back since.
        let run_at = occurrence.fire_at;
        let run_at = if self.is_set_back { run_at.min(start.claimed_at) } else { run_at };
        self.jobs.entry(start.id).or_insert_with(|| {
            let mut seen = Seen::new(Asked {
                tenant: start.tenant.clone(),
                id: start.id,
                key: None,
                run_at,
                expires_at: None,
                max_attempts,
                deserted: false,
            });
            seen.acknowledged = true;
            seen
        });
    }

    fn started(&mut self, index: usize, start: &Start) {
        self.fired(start);
        let id = start.id;
        let claimed_index = self.ownership.claimed_at(id, start.token).unwrap_or(index);
        let Some(seen) = self.jobs.get_mut(&id).filter(|seen| seen.asked.tenant == start.tenant) else {
            self.blame(Promise::NothingUnexpected, id, "started, but its tenant never submitted it");
            return;
        };
        let faults = seen.started((index, claimed_index), start, self.latest_wall, self.servers_gone);
        for (promise, text) in faults {
            self.blame(promise, id, text);
        }
        if start.occurrence.is_some() {
            // Made up for by hand, an instant has the key it had; that it has one job is checked by the instant.
            return;
        }
        let first = *self.run_keys.entry(start.run_key.clone()).or_insert(id);
        if first != id {
            self.blame(Promise::OneJobPerKey, id, format!("run key {} belongs to {first}", start.run_key));
        }
    }

    fn overdue(&mut self, id: JobId, text: &str) {
        let known = self.violations.iter().any(|v| v.promise == Promise::LagRecovers && v.id == Some(id));
        if !known {
            self.blame(Promise::LagRecovers, id, format!("still {text}"));
        }
    }

    fn close(&mut self, ledger: &Ledger) {
        let jobs = std::mem::take(&mut self.jobs);
        for (id, seen) in &jobs {
            for (promise, text) in seen.left(ledger.jobs.get(id), ledger.ended_at) {
                self.blame(promise, *id, text);
            }
        }
        let schedules = std::mem::take(&mut self.schedules);
        let is_planned = |job: &Job| {
            let occurrence = job.spec.occurrence.as_ref();
            occurrence.is_some_and(|occurrence| schedules.contains_key(&occurrence.schedule_id))
        };
        let unknown = ledger.jobs.values().filter(|job| !jobs.contains_key(&job.id) && !is_planned(job));
        for job in unknown {
            self.blame(Promise::NothingUnexpected, job.id, "in the store, but nobody submitted it");
        }
        for (id, seen) in &schedules {
            self.blame_schedule(*id, seen.left(*id, ledger, (self.is_set_back, self.is_stepped_back)));
        }
        for id in ledger.schedules.keys().filter(|id| !schedules.contains_key(id)) {
            let text = "there is a schedule that nobody asked for".to_owned();
            self.blame_schedule(*id, vec![(Promise::NothingUnexpected, None, text)]);
        }
    }
}
