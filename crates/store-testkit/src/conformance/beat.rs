//! What the cases about schedules work with: definitions, and short ways to say the usual.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use jiff::civil::Date;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, State};
use tidewheel_core::limits::MINUTE_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{
    Dates, Definition, Entry, Exclude, Misfire, MisfirePolicy, NewSchedule, Outcome, Overlap, Rule, Schedule,
    Template, Timing, Zone, nominals,
};
use tidewheel_core::time::Timestamp;

use super::trial::{START, Trial, spec};
use super::walk;
use tidewheel_store::{
    Applied, Edited, Filter, IdempotencyClaim, ScheduleCommand, ScheduleOrder, ScheduleRefusal,
};

/// From one fire to the next, in most cases.
pub(super) const BEAT_MS: i64 = 10 * MINUTE_MS;
/// How late an occurrence may be in the cases without being missed.
pub(super) const GRACE_MS: i64 = MINUTE_MS;

/// A definition that fires every [`BEAT_MS`] from its creation on.
pub(super) fn beat() -> Definition {
    let spec = spec(START);
    Definition {
        rule: Arc::new(Rule {
            timing: Timing::Every { interval_ms: BEAT_MS, anchor: START },
            zone: Zone::utc(),
            dst: tidewheel_core::cron::Dst::default(),
            start_at: None,
            end_at: None,
            exclude: Exclude::default(),
        }),
        window_ms: 0,
        misfire: Misfire { policy: MisfirePolicy::FireLatest, grace_ms: GRACE_MS },
        overlap: Overlap::Allow,
        template: Template {
            kind: spec.kind,
            payload: spec.payload,
            destination: spec.destination,
            priority: spec.priority,
            retry: spec.retry,
            timeout_ms: spec.timeout_ms,
            labels: spec.labels,
        },
        idempotency_key: None,
        note: None,
    }
}

/// The same with another policy for runs that overlap.
pub(super) fn overlapping(overlap: Overlap) -> Definition {
    Definition { overlap, ..beat() }
}

/// The same with another policy for missed instants.
pub(super) fn missing(policy: MisfirePolicy) -> Definition {
    Definition { misfire: Misfire { policy, grace_ms: GRACE_MS }, ..beat() }
}

/// The same with another rule.
pub(super) fn ruled(edit: impl FnOnce(&mut Rule)) -> Definition {
    let mut definition = beat();
    edit(Arc::make_mut(&mut definition.rule));
    definition
}

/// The same with another payload.
pub(super) fn carrying(payload: &'static str) -> Definition {
    let mut definition = beat();
    definition.template.payload = Bytes::from_static(payload.as_bytes());
    definition
}

/// The same, twice as often.
pub(super) fn faster() -> Definition {
    ruled(|rule| rule.timing = Timing::Every { interval_ms: BEAT_MS / 2, anchor: START })
}

pub(super) fn update(definition: Definition) -> ScheduleCommand {
    ScheduleCommand::Update { definition: Box::new(definition), name: None, paused: None }
}

pub(super) fn ordering(schedule: &Schedule, command: ScheduleCommand) -> ScheduleOrder {
    ScheduleOrder { tenant: schedule.tenant.clone(), id: schedule.id, if_version: None, command, key: None }
}

/// The order to make a schedule.
pub(super) fn creating(new: NewSchedule, key: Option<IdempotencyClaim>) -> ScheduleOrder {
    let (tenant, id) = (new.tenant.clone(), new.id);
    ScheduleOrder {
        tenant,
        id,
        if_version: None,
        command: ScheduleCommand::Create { new: Box::new(new), fresh: false },
        key,
    }
}

/// The dates, in `year-month-day`.
pub(super) fn dates(texts: &[&str]) -> Dates {
    texts.iter().map(|text| text.parse::<Date>().expect("a date")).collect()
}

/// The instants that have an entry, oldest first; those of jobs outside the chain excepted.
pub(super) fn decided(entries: &[Entry], calendar: Option<&Dates>) -> Vec<Timestamp> {
    let chain = entries
        .iter()
        .filter(|entry| !matches!(entry.outcome, Outcome::Triggered { .. } | Outcome::Backfilled { .. }));
    let mut instants: Vec<_> = chain.flat_map(|entry| entry.instants(calendar).collect::<Vec<_>>()).collect();
    instants.sort();
    instants
}

/// What became of each instant, newest first, by name.
pub(super) fn outcomes(entries: &[Entry]) -> Vec<&'static str> {
    entries.iter().map(|entry| entry.outcome.as_str()).collect()
}

impl Trial<'_> {
    /// A schedule to be, with an id of its own.
    pub(super) fn new_schedule(&mut self, tenant: &Tenant, definition: Definition) -> NewSchedule {
        let id = self.schedule_id();
        NewSchedule { id, tenant: tenant.clone(), name: None, definition, paused: false }
    }

    pub(super) async fn edits(&self, orders: Vec<ScheduleOrder>) -> Vec<Result<Edited, ScheduleRefusal>> {
        let count = orders.len();
        let answers = self.store.edit_schedules(self.now, orders).await.expect("the orders are answered");
        assert_eq!(answers.len(), count, "one answer per order");
        answers
    }

    pub(super) async fn try_edit(&self, order: ScheduleOrder) -> Result<Edited, ScheduleRefusal> {
        self.edits(vec![order]).await.remove(0)
    }

    /// Gives an order that must change the schedule.
    pub(super) async fn edit(&self, schedule: &Schedule, command: ScheduleCommand) -> Edited {
        let edited = self.try_edit(ordering(schedule, command)).await.expect("the order is granted");
        assert!(edited.changed, "the order changes something");
        edited
    }

    /// A schedule that is there.
    pub(super) async fn create(&mut self, tenant: &Tenant, definition: Definition) -> Schedule {
        let new = self.new_schedule(tenant, definition);
        self.create_as(new).await
    }

    pub(super) async fn create_as(&self, new: NewSchedule) -> Schedule {
        let made = self.try_edit(creating(new, None)).await.expect("the schedule is made");
        assert!(made.changed, "it is new");
        made.schedule
    }

    /// The schedule as it is now.
    pub(super) async fn now_of(&self, schedule: &Schedule) -> Schedule {
        self.find(schedule).await.expect("the schedule is there")
    }

    pub(super) async fn find(&self, schedule: &Schedule) -> Option<Schedule> {
        let found = self.store.schedules(&schedule.tenant, vec![schedule.id]).await.expect("looked up");
        assert_eq!(found.len(), 1, "one answer per id");
        found.into_iter().flatten().next()
    }

    /// The schedule's jobs, latest first.
    pub(super) async fn jobs_of(&self, schedule: &Schedule) -> Vec<Job> {
        let filter = Filter { schedule: Some(schedule.id), ..Filter::default() };
        walk::list(&*self.store, &schedule.tenant, &filter, 3).await
    }

    /// The job the schedule waits for, after a check that it is there, alone, and due when it should be.
    pub(super) async fn pending(&self, schedule: &Schedule) -> Option<Job> {
        let schedule = self.now_of(schedule).await;
        let jobs = self.jobs_of(&schedule).await;
        let outside: BTreeSet<JobId> = (self.ledger_of(&schedule).await.iter())
            .filter_map(|entry| match entry.outcome {
                Outcome::Fired { job_id, .. }
                | Outcome::Triggered { job_id }
                | Outcome::Backfilled { job_id } => Some(job_id),
                Outcome::Coalesced { .. } | Outcome::Skipped(_) | Outcome::Missed => None,
            })
            .collect();
        let waiting: Vec<_> = (jobs.into_iter())
            .filter(|job| job.status.state == State::Scheduled && !outside.contains(&job.id))
            .collect();
        let ids: Vec<_> = waiting.iter().map(|job| job.id).collect();
        let expected: Vec<_> = schedule.next.iter().map(|next| next.job_id).collect();
        assert_eq!(ids, expected, "the one undecided occurrence, if there is one");
        let job = waiting.into_iter().next()?;
        let due = self.due_in_bucket(&schedule.tenant, job.status.due_at).await;
        assert!(due.contains(&job.id), "what waits is found by those who look for what is due");
        Some(job)
    }

    /// Lets time pass until the pending occurrence is due, and claims it.
    pub(super) async fn fire(&mut self, schedule: &Schedule) -> Applied {
        let job = self.pending(schedule).await.expect("something is pending");
        self.now = self.now.max(job.status.due_at);
        self.try_order(&job, self.claiming()).await.expect("the claim is granted")
    }

    /// All of the schedule's ledger, latest first.
    pub(super) async fn ledger_of(&self, schedule: &Schedule) -> Vec<Entry> {
        walk::ledger(&*self.store, schedule, 2).await
    }

    /// Checks that every instant up to what is decided has exactly one entry. Holds for a schedule that has had
    /// one rule all its life.
    pub(super) async fn check_cover(&self, schedule: &Schedule) {
        let schedule = self.now_of(schedule).await;
        let rule = &schedule.definition.rule;
        let calendar = match &rule.exclude.calendar {
            Some(name) => self.store.calendar(&schedule.tenant, name).await.expect("read"),
            None => None,
        };
        let until = schedule.decided_until;
        let expected: Vec<_> = nominals(rule, calendar.as_ref(), schedule.created_at, until)
            .map(|nominal| nominal.fire_at)
            .collect();
        assert_eq!(decided(&self.ledger_of(&schedule).await, calendar.as_ref()), expected);
    }
}
