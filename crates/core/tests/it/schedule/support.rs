//! What the tests of schedules share: short ways to write definitions, and a world small enough to be
//! obviously right: one schedule, its jobs, and a clock that moves when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use jiff::tz::TimeZoneDatabase;
use tidewheel_core::cron::{Cron, Dst};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{self, Command, Destination, Job, Priority, transition};
use tidewheel_core::limits::TIMEOUT_MS_DEFAULT;
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::schedule::{
    Dates, Definition, Edit, Entry, Exclude, Misfire, NewSchedule, Outcome, Overlap, Rule, Schedule,
    ScheduleId, State, Template, Timing, Verdict, Zone, create, on_claim, on_finish,
};
use tidewheel_core::time::Timestamp;

pub(crate) const SECOND: i64 = 1_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn zone(name: &str) -> Zone {
    Zone::named(&TimeZoneDatabase::bundled(), name).unwrap()
}

pub(crate) fn cron(expression: &str, zone_name: &str) -> Rule {
    rule(Timing::Cron(Box::new(Cron::parse(expression).unwrap())), zone(zone_name))
}

pub(crate) fn every(interval_ms: i64, anchor: Timestamp) -> Rule {
    rule(Timing::Every { interval_ms, anchor }, Zone::utc())
}

fn rule(timing: Timing, zone: Zone) -> Rule {
    Rule { timing, zone, dst: Dst::default(), start_at: None, end_at: None, exclude: Exclude::default() }
}

pub(crate) fn definition(rule: Rule) -> Definition {
    Definition {
        rule: Arc::new(rule),
        window_ms: 0,
        misfire: Misfire::default(),
        overlap: Overlap::Allow,
        template: Template {
            kind: "report".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Queue("default".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: TIMEOUT_MS_DEFAULT,
            labels: Vec::new(),
        },
        idempotency_key: None,
        note: None,
    }
}

pub(crate) fn new_schedule(number: u128, definition: Definition) -> NewSchedule {
    let id = ScheduleId::from_bytes(number.to_be_bytes());
    NewSchedule { id, tenant: Tenant::default(), name: None, definition, paused: false }
}

/// A job that was given to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fired {
    pub(crate) fire_at: Timestamp,
    pub(crate) catch_up: bool,
    pub(crate) claimed_at: Timestamp,
}

/// One schedule and its jobs.
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) schedule: Schedule,
    pub(crate) calendar: Option<Dates>,
    /// Jobs that wait for their time.
    pub(crate) waiting: BTreeMap<JobId, Job>,
    pub(crate) running: BTreeSet<JobId>,
    pub(crate) ledger: Vec<Entry>,
    pub(crate) fired: Vec<Fired>,
    pub(crate) cancelled: Vec<JobId>,
}

impl World {
    pub(crate) fn new(definition: Definition, calendar: Option<Dates>, now: Timestamp) -> Self {
        let edit = create(new_schedule(7, definition), calendar.as_ref(), now);
        let mut world = Self {
            now,
            schedule: edit.schedule.clone(),
            calendar,
            waiting: BTreeMap::new(),
            running: BTreeSet::new(),
            ledger: Vec::new(),
            fired: Vec::new(),
            cancelled: Vec::new(),
        };
        world.apply(edit);
        world
    }

    /// Does what an edit says.
    pub(crate) fn apply(&mut self, edit: Edit) {
        if let Some(id) = edit.withdraw {
            self.waiting.remove(&id).expect("what is withdrawn waits");
        }
        self.waiting.extend(edit.put.map(|job| (job.id, job)));
        self.ledger.extend(edit.entries);
        self.schedule = edit.schedule;
        self.check();
    }

    /// Lets time pass with everything working: each job is claimed `lag_ms` after it is due.
    pub(crate) fn run_until(&mut self, until: Timestamp, lag_ms: i64) {
        while let Some(job) = self.first_due(until.plus_ms(-lag_ms)) {
            self.now = self.now.max(job.status.due_at.plus_ms(lag_ms));
            self.claim(&job);
        }
        self.now = self.now.max(until);
    }

    /// Lets time pass with nobody there.
    pub(crate) fn outage(&mut self, ms: i64) {
        self.now = self.now.plus_ms(ms);
    }

    fn first_due(&self, until: Timestamp) -> Option<Job> {
        let due = self.waiting.values().filter(|job| job.status.due_at <= until);
        due.min_by_key(|job| job.position()).cloned()
    }

    pub(crate) fn claim(&mut self, job: &Job) {
        let running = &self.running;
        let is_unfinished = |id: JobId| running.contains(&id);
        let Some(decision) = on_claim(&self.schedule, job, self.calendar.as_ref(), &is_unfinished, self.now)
        else {
            return self.start(job);
        };
        let before = self.schedule.next.map(|next| next.fire_at);
        self.schedule = Arc::unwrap_or_clone(decision.schedule);
        if let Some(next) = decision.next.and_then(|next| next.job()) {
            assert!(next.spec.occurrence.as_ref().map(|o| o.fire_at) > before, "instants only rise");
            self.waiting.insert(next.id, next);
        }
        self.ledger.extend(decision.entries);
        for id in decision.cancel {
            assert!(self.running.remove(&id), "what is cancelled runs");
            self.cancelled.push(id);
        }
        match decision.verdict {
            Verdict::Fire(spec) => self.start(&Job { spec, ..job.clone() }),
            Verdict::Hold(job) => {
                assert!(job.status.due_at > self.now);
                self.waiting.insert(job.id, Arc::unwrap_or_clone(job));
            }
            Verdict::Drop(job) => {
                assert_eq!(job.status.state, job::State::Skipped);
                self.waiting.remove(&job.id);
            }
        }
        self.check();
    }

    fn start(&mut self, job: &Job) {
        let claim = Command::Claim { epoch: 1, worker: "w".into(), lease_ms: SECOND, detached: false };
        assert!(transition(job, &claim, self.now).is_ok(), "a claim that fires is granted");
        let occurrence = job.spec.occurrence.as_ref().unwrap();
        let fired =
            Fired { fire_at: occurrence.fire_at, catch_up: occurrence.catch_up, claimed_at: self.now };
        if !job.run_key().contains("trigger") {
            assert!(
                self.fired.iter().all(|earlier| earlier.fire_at != fired.fire_at),
                "{fired:?} fired twice"
            );
            self.fired.push(fired);
        }
        self.waiting.remove(&job.id);
        self.running.insert(job.id);
    }

    /// Ends a run.
    pub(crate) fn finish(&mut self, id: JobId) {
        self.running.remove(&id);
        self.ended(id);
    }

    /// Cancels a waiting job, as a user may.
    pub(crate) fn cancel_waiting(&mut self, id: JobId) {
        self.waiting.remove(&id).unwrap();
        self.ended(id);
    }

    fn ended(&mut self, id: JobId) {
        let running = &self.running;
        let is_unfinished = |id: JobId| running.contains(&id);
        let finish = on_finish(&self.schedule, id, self.calendar.as_ref(), &is_unfinished, self.now);
        let Some(finish) = finish else { return };
        self.schedule = finish.schedule;
        self.waiting.extend(finish.next.map(|job| (job.id, job)));
        self.ledger.extend(finish.entries);
        if let Some(id) = finish.release {
            self.waiting.get_mut(&id).unwrap().status.due_at = self.now;
        }
        self.check();
    }

    pub(crate) fn finish_all(&mut self) {
        for id in self.running.clone() {
            self.finish(id);
        }
    }

    /// What holds at all times: an active schedule has its one occurrence, and nothing else waits but what
    /// fired already.
    fn check(&self) {
        let schedule = &self.schedule;
        assert_eq!(schedule.state == State::Active, schedule.next.is_some());
        if let Some(next) = schedule.next {
            assert!(next.fire_at > schedule.decided_until, "what waits is undecided");
            assert_eq!(self.waiting[&next.job_id].status.due_at, next.run_at);
        }
        let unfired = self.waiting.values().filter(|job| {
            let is_trigger = job.run_key().contains("trigger");
            Some(job.id) != schedule.held && !is_trigger
        });
        assert_eq!(unfired.count(), usize::from(schedule.next.is_some()));
    }

    /// The ledger's instants with what became of them, oldest first, without jobs outside the chain.
    pub(crate) fn instants(&self) -> Vec<(Timestamp, Outcome)> {
        let chain = self.ledger.iter().filter(|entry| !matches!(entry.outcome, Outcome::Triggered { .. }));
        let mut all: Vec<_> = chain
            .flat_map(|entry| entry.instants(self.calendar.as_ref()).map(|instant| (instant, entry.outcome)))
            .collect();
        all.sort_by_key(|(instant, _)| *instant);
        all
    }

    /// The outcomes by name, oldest first.
    pub(crate) fn outcomes(&self) -> Vec<String> {
        self.instants()
            .into_iter()
            .map(|(instant, outcome)| {
                let catch_up = matches!(outcome, Outcome::Fired { catch_up: true, .. });
                format!("{} {outcome}{}", &instant.to_string()[11..16], if catch_up { " late" } else { "" })
            })
            .collect()
    }
}
