//! What a claim of an occurrence decides, and what the end of a run sets free.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::definition::{MisfirePolicy, Overlap};
use super::exclude::Dates;
use super::ledger::{Entry, Outcome, Reason};
use super::plan::{Plan, plan};
use super::upcoming::Upcoming;
use super::{Next, Schedule};
use crate::id::JobId;
use crate::job::{Job, Spec, State};
use crate::limits::{HELD_RECHECK_MS, SCHEDULE_ACTIVE_COUNT_MAX};
use crate::time::Timestamp;

/// What a claim of an occurrence does, all of it in one durable batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What becomes of the occurrence.
    pub verdict: Verdict,
    /// The schedule is now this.
    pub schedule: Arc<Schedule>,
    /// The occurrence to wait for from now on, to be stored.
    pub next: Option<Upcoming>,
    /// Earlier runs to cancel.
    pub cancel: Vec<JobId>,
    /// What became of the instants that are decided now, oldest first. Nearly always one.
    pub entries: SmallVec<[Entry; 1]>,
}

/// What becomes of a claimed occurrence.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It runs, and this is what it asks for.
    Fire(Arc<Spec>),
    /// It has fired but waits for an earlier run: this is the job now, and the claim is refused as not due.
    Hold(Arc<Job>),
    /// It ends without having run: this is the job now.
    Drop(Arc<Job>),
}

/// Decides about `job`, which is due and being claimed at `now`. None if the schedule has nothing to say to
/// it: a retry, a job made by hand, or an occurrence decided before. `is_unfinished` says of a job of this
/// tenant whether it exists and has not ended; it is asked only about [`Schedule::active`].
#[must_use]
pub fn on_claim(
    schedule: &Schedule,
    job: &Job,
    calendar: Option<&Dates>,
    is_unfinished: &dyn Fn(JobId) -> bool,
    now: Timestamp,
) -> Option<Decision> {
    if schedule.held == Some(job.id) {
        return Some(claim_held(Arc::new(schedule.clone()), job, is_unfinished, now));
    }
    let next = schedule.next.filter(|next| next.job_id == job.id)?;
    // Made once, and handed on until it is stored.
    let schedule = Arc::new(schedule.clone());
    let is_late = is_late(&schedule, &next, job, now);
    if is_late && !next.catch_up {
        if next.is_of_old_rule() {
            // Its rule is gone, so there is nothing to coalesce it with: it is skipped, or it fires.
            if schedule.definition.misfire.policy == MisfirePolicy::Skip {
                return Some(pass_over(schedule, job, &next, Reason::Misfire, calendar, now));
            }
        } else {
            let plan = plan(&schedule.definition, calendar, schedule.goes_on_after(), now);
            if plan.next.is_none_or(|planned| planned.fire_at != next.fire_at) {
                return Some(miss(schedule, job, &next, plan, now));
            }
        }
    }
    let running = running(&schedule, is_unfinished);
    let has_room = match schedule.definition.overlap {
        Overlap::Allow | Overlap::CancelRunning => true,
        Overlap::Skip => running.is_empty() && schedule.held.is_none(),
        Overlap::BufferOne => schedule.held.is_none(),
    };
    if !has_room {
        return Some(pass_over(schedule, job, &next, Reason::Overlap, calendar, now));
    }
    let mut spec = Arc::clone(&job.spec);
    let catch_up = next.catch_up || is_late;
    // Changing what was asked for copies all of it, and it is as it should be nearly always.
    if spec.occurrence.as_ref().is_some_and(|occurrence| occurrence.catch_up != catch_up)
        && let Some(occurrence) = &mut Arc::make_mut(&mut spec).occurrence
    {
        occurrence.catch_up = catch_up;
    }
    Some(fire(schedule, job, spec, (&next, running), calendar, now))
}

/// Late beyond its window and its grace. Someone who moved it by hand did not mean it to be skipped.
fn is_late(schedule: &Schedule, next: &Next, job: &Job, now: Timestamp) -> bool {
    let is_moved = job.status.due_at != next.run_at;
    let due_at = if is_moved { next.fire_at.max(job.status.due_at) } else { next.fire_at };
    due_at < schedule.definition.missed_before(now)
}

fn fire(
    mut schedule: Arc<Schedule>,
    job: &Job,
    spec: Arc<Spec>,
    (next, running): (&Next, Vec<JobId>),
    calendar: Option<&Dates>,
    now: Timestamp,
) -> Decision {
    let catch_up = spec.occurrence.as_ref().is_some_and(|occurrence| occurrence.catch_up);
    let outcome = Outcome::Fired { job_id: job.id, catch_up };
    let mut entries = smallvec![Entry::single(next.fire_at, outcome, now)];
    let of = Arc::make_mut(&mut schedule);
    of.fired_at(next.fire_at);

    let mut cancel = Vec::new();
    let verdict = if of.definition.overlap == Overlap::BufferOne && !running.is_empty() {
        of.held = Some(job.id);
        Verdict::Hold(held(Job { spec, ..job.clone() }, now))
    } else {
        cancel = of.start(job.id, running);
        Verdict::Fire(spec)
    };
    of.decided(next.covers_until);
    entries.extend(of.advance(calendar, now));
    let next = Upcoming::of(&schedule, now);
    Decision { verdict, schedule, next, cancel, entries }
}

/// The misfire policy has no run for this instant.
fn miss(mut schedule: Arc<Schedule>, job: &Job, next: &Next, plan: Plan, now: Timestamp) -> Decision {
    let entry = Arc::make_mut(&mut schedule).adopt(plan, now);
    let outcome = entry.as_ref().filter(|entry| entry.covers(next.fire_at)).map(|entry| entry.outcome);
    // No outcome: a calendar was changed, and the instant is none of the schedule's any more.
    let reason = outcome.map_or_else(|| "no longer an instant of its schedule".to_owned(), |o| o.to_string());
    Decision {
        verdict: Verdict::Drop(skipped(job, &reason, now)),
        next: Upcoming::of(&schedule, now),
        schedule,
        cancel: Vec::new(),
        entries: entry.into_iter().collect(),
    }
}

/// This instant is skipped, and the chain goes on behind it.
fn pass_over(
    mut schedule: Arc<Schedule>,
    job: &Job,
    next: &Next,
    reason: Reason,
    calendar: Option<&Dates>,
    now: Timestamp,
) -> Decision {
    let outcome = Outcome::Skipped(reason);
    let mut entries = smallvec![Entry::single(next.fire_at, outcome, now)];
    let verdict = Verdict::Drop(skipped(job, &outcome.to_string(), now));
    let of = Arc::make_mut(&mut schedule);
    of.decided(next.covers_until);
    entries.extend(of.advance(calendar, now));
    let next = Upcoming::of(&schedule, now);
    Decision { verdict, schedule, next, cancel: Vec::new(), entries }
}

fn claim_held(
    mut schedule: Arc<Schedule>,
    job: &Job,
    is_unfinished: &dyn Fn(JobId) -> bool,
    now: Timestamp,
) -> Decision {
    let running = running(&schedule, is_unfinished);
    let waits = match schedule.definition.overlap {
        Overlap::Allow | Overlap::CancelRunning => false,
        Overlap::Skip | Overlap::BufferOne => !running.is_empty(),
    };
    let mut cancel = Vec::new();
    let verdict = if waits {
        Verdict::Hold(held(job.clone(), now))
    } else {
        let of = Arc::make_mut(&mut schedule);
        of.held = None;
        cancel = of.start(job.id, running);
        Verdict::Fire(Arc::clone(&job.spec))
    };
    Decision { verdict, schedule, next: None, cancel, entries: SmallVec::new() }
}

/// The remembered jobs that are not over; nobody asks where runs may overlap.
fn running(schedule: &Schedule, is_unfinished: &dyn Fn(JobId) -> bool) -> Vec<JobId> {
    match schedule.definition.overlap {
        Overlap::Allow => Vec::new(),
        Overlap::Skip | Overlap::BufferOne | Overlap::CancelRunning => {
            schedule.active.iter().copied().filter(|id| is_unfinished(*id)).collect()
        }
    }
}

/// The job as one that waits for an earlier run.
fn held(mut job: Job, now: Timestamp) -> Arc<Job> {
    job.status.due_at = now.plus_ms(HELD_RECHECK_MS);
    Arc::new(job)
}

fn skipped(job: &Job, reason: &str, now: Timestamp) -> Arc<Job> {
    let mut job = job.clone();
    job.status.state = State::Skipped;
    job.status.finished_at = Some(now);
    job.status.reason = Some(reason.into());
    Arc::new(job)
}

impl Schedule {
    /// Notes that a job starts beside those that are running, and says which of those it ends.
    fn start(&mut self, job_id: JobId, running: Vec<JobId>) -> Vec<JobId> {
        let cancels = self.definition.overlap == Overlap::CancelRunning;
        let (beside, cancel) = if cancels { (Vec::new(), running) } else { (running, Vec::new()) };
        self.remember(job_id, beside);
        cancel
    }

    /// Remembers a job beside others that may not be over.
    pub(super) fn remember(&mut self, job_id: JobId, mut beside: Vec<JobId>) {
        beside.retain(|id| *id != job_id);
        let surplus = (beside.len() + 1).saturating_sub(SCHEDULE_ACTIVE_COUNT_MAX);
        self.active = beside.into_iter().chain([job_id]).skip(surplus).collect();
    }
}

/// What the end of a job does to its schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// The schedule is now this.
    pub schedule: Schedule,
    /// The occurrence that waited for this end, to be made due at once.
    pub release: Option<JobId>,
    /// The occurrence to wait for from now on, to be stored.
    pub next: Option<Job>,
    /// What became of the instants that are decided now.
    pub entries: Vec<Entry>,
}

/// Takes note that a job of the schedule has ended, however it did. None, and nothing to write, unless
/// something hangs on it: an occurrence that waits for it, or the chain itself, when the job was cancelled
/// before it could be claimed. `is_unfinished` is as for [`on_claim`].
#[must_use]
pub fn on_finish(
    schedule: &Schedule,
    job_id: JobId,
    calendar: Option<&Dates>,
    is_unfinished: &dyn Fn(JobId) -> bool,
    now: Timestamp,
) -> Option<Finish> {
    if let Some(next) = schedule.next.filter(|next| next.job_id == job_id) {
        let mut schedule = schedule.clone();
        let mut entries = vec![Entry::single(next.fire_at, Outcome::Skipped(Reason::Cancelled), now)];
        schedule.decided(next.covers_until);
        entries.extend(schedule.advance(calendar, now));
        let next = schedule.next_job(now);
        return Some(Finish { schedule, release: None, next, entries });
    }
    let held = schedule.held?;
    if held == job_id {
        let schedule = Schedule { held: None, ..schedule.clone() };
        return Some(Finish { schedule, release: None, next: None, entries: Vec::new() });
    }
    let others_run = || schedule.active.iter().any(|id| *id != job_id && is_unfinished(*id));
    if !schedule.active.contains(&job_id) || others_run() {
        return None;
    }
    let mut schedule = schedule.clone();
    schedule.active.clear();
    Some(Finish { schedule, release: Some(held), next: None, entries: Vec::new() })
}
