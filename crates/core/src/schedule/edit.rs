//! What users do to a schedule. An edit draws a line at its own time: instants up to it belong to what the
//! schedule was, later ones to what it is now.

use std::sync::Arc;

use super::definition::{Definition, Overlap, Rule, Timing};
use super::exclude::Dates;
use super::ledger::{Entry, Outcome, Reason};
use super::nominal::{next_nominal, prev_nominal};
use super::occurrence::triggered_job;
use super::plan::{Planned, plan};
use super::{Next, Schedule, ScheduleId, State};
use crate::id::JobId;
use crate::job::Job;
use crate::names::Tenant;
use crate::time::Timestamp;

/// What an edit does, all of it in one durable batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// The schedule is now this.
    pub schedule: Schedule,
    /// A waiting occurrence to take out of the store as if it had never been made.
    pub withdraw: Option<JobId>,
    /// A job to store. It takes the place of a job with its id, if there is one: the same instant gives the
    /// same id under every definition.
    pub put: Option<Job>,
    /// What became of the instants that are decided now, oldest first.
    pub entries: Vec<Entry>,
}

impl Edit {
    pub(super) fn none(schedule: &Schedule) -> Self {
        Self { schedule: schedule.clone(), withdraw: None, put: None, entries: Vec::new() }
    }

    /// Whether the edit changes nothing.
    #[must_use]
    pub fn is_none(&self, before: &Schedule) -> bool {
        self.withdraw.is_none() && self.put.is_none() && self.entries.is_empty() && self.schedule == *before
    }

    /// Goes on from what is decided, in place of the occurrence that waits.
    pub(super) fn rearm(&mut self, calendar: Option<&Dates>, now: Timestamp) {
        let waited = self.schedule.next.take();
        self.entries.extend(self.schedule.advance(calendar, now));
        let job = self.schedule.next_job(now);
        self.withdraw =
            waited.map(|next| next.job_id).filter(|id| job.as_ref().is_none_or(|job| job.id != *id));
        self.put = job;
    }

    /// Decides that nothing up to `now` fires.
    fn close(&mut self, calendar: Option<&Dates>, now: Timestamp, reason: Reason) {
        let schedule = &mut self.schedule;
        let outcome = Outcome::Skipped(reason);
        self.entries.extend(schedule.owed().map(|owed| Entry::single(owed.fire_at, outcome, now)));
        let rule = &schedule.definition.rule;
        let first = next_nominal(rule, calendar, schedule.goes_on_after()).map(|first| first.fire_at);
        let last = prev_nominal(rule, calendar, now.plus_ms(1)).map(|last| last.fire_at);
        if let (Some(first), Some(last)) = (first, last)
            && first <= last
        {
            self.entries.push(Entry::range(rule, calendar, (first, last), outcome, now));
        }
        schedule.decided(schedule.undecided_after().max(now));
        self.withdraw = schedule.next.take().map(|next| next.job_id);
    }

    fn touch(&mut self, now: Timestamp) {
        self.schedule.version += 1;
        self.schedule.updated_at = now;
    }
}

/// A schedule to be.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    /// Its id: random.
    pub id: ScheduleId,
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// What is asked for; [`super::check`] has found no fault in it.
    pub definition: Definition,
    /// Whether it waits to be resumed before it fires at all.
    pub paused: bool,
}

/// Makes a schedule. Its instants are those after `now`; an interval without a start begins at `now`.
#[must_use]
pub fn create(new: NewSchedule, calendar: Option<&Dates>, now: Timestamp) -> Edit {
    let mut definition = new.definition;
    definition.rule = anchored(definition.rule, None, now);
    let schedule = Schedule {
        id: new.id,
        tenant: new.tenant,
        name: new.name,
        version: 1,
        definition: Arc::new(definition),
        state: State::Paused,
        next: None,
        held: None,
        decided_until: now,
        last_fire: None,
        active: smallvec::SmallVec::new(),
        created_at: now,
        updated_at: now,
    };
    let mut edit = Edit::none(&schedule);
    if !new.paused {
        edit.rearm(calendar, now);
    }
    edit
}

/// A new definition, with the dates of the calendar it names.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    /// What is asked for; [`super::check`] has found no fault in it.
    pub definition: Definition,
    /// The dates of the calendar it names.
    pub calendar: Option<&'a Dates>,
}

/// Gives a schedule another definition. The same definition again changes nothing, not even the version.
/// An interval without a start keeps counting from where it did.
///
/// An occurrence that is due when the rule changes still fires, once, as the old definition had it; if
/// several are due they are coalesced into the last. Where runs could overlap before the edit, only the last
/// of them counts for a policy that minds.
#[must_use]
pub fn update(schedule: &Schedule, calendar: Option<&Dates>, change: Change<'_>, now: Timestamp) -> Edit {
    let Change { mut definition, calendar: new_calendar } = change;
    definition.rule = anchored(definition.rule, Some(&schedule.definition.rule), now);
    let mut edit = Edit::none(schedule);
    if definition == *schedule.definition {
        return edit;
    }
    edit.touch(now);
    let definition = Arc::new(definition);
    if schedule.state == State::Paused {
        edit.close(calendar, now, Reason::Paused);
        edit.schedule.redefine(definition);
    } else if definition.rule != schedule.definition.rule {
        replace_rule(&mut edit, calendar, definition, new_calendar, now);
    } else {
        edit.schedule.redefine(definition);
        // One of an old rule is due, even if the clock was set back since; this rule has no place for it.
        if schedule.next.is_some_and(|next| next.fire_at > now && !next.is_of_old_rule()) {
            edit.rearm(new_calendar, now);
        }
    }
    edit
}

/// Gives a schedule another definition and, if `paused` says so, has it pause or go on: one edit, and one version.
#[must_use]
pub fn amend(
    schedule: &Schedule,
    calendar: Option<&Dates>,
    change: Change<'_>,
    paused: Option<bool>,
    now: Timestamp,
) -> Edit {
    let new_calendar = change.calendar;
    // Nothing fires by the new definition that is to be paused, and nothing by the old one that is to go on.
    let (mut first, mut last) = match paused {
        None => return update(schedule, calendar, change, now),
        Some(true) => {
            let paused = pause(schedule, calendar, now);
            let updated = update(&paused.schedule, calendar, change, now);
            (paused, updated)
        }
        Some(false) => {
            let updated = update(schedule, calendar, change, now);
            let resumed = resume(&updated.schedule, new_calendar, now);
            (updated, resumed)
        }
    };
    first.entries.append(&mut last.entries);
    last.schedule.version = last.schedule.version.min(schedule.version + 1);
    // While it is paused nothing waits, so what is put and what is withdrawn is put or withdrawn by one of the two.
    Edit {
        schedule: last.schedule,
        withdraw: first.withdraw.or(last.withdraw),
        put: first.put.or(last.put),
        entries: first.entries,
    }
}

/// Settles what is due under the old rule, and goes on by the new one.
pub(super) fn replace_rule(
    edit: &mut Edit,
    calendar: Option<&Dates>,
    definition: Arc<Definition>,
    new_calendar: Option<&Dates>,
    now: Timestamp,
) {
    let schedule = &mut edit.schedule;
    let owed = schedule.owed();
    let plan = plan(&schedule.definition, calendar, schedule.goes_on_after(), now);
    edit.entries.extend(plan.entry);
    let due = plan.next.map(|next| next.fire_at).filter(|fire_at| *fire_at <= now);
    if let Some(first) = due {
        keep_latest_due(edit, calendar, first, now);
        edit.schedule.redefine(definition);
    } else if let Some(owed) = owed {
        schedule.next = Some(Next { covers_until: owed.covers_until.max(now), ..owed });
        schedule.redefine(definition);
    } else {
        schedule.decided(schedule.undecided_after().max(now));
        schedule.redefine(definition);
        edit.rearm(new_calendar, now);
    }
}

/// Of the due instants from `first` on, fires the latest; the new rule holds from `now` on.
fn keep_latest_due(edit: &mut Edit, calendar: Option<&Dates>, first: Timestamp, now: Timestamp) {
    let schedule = &mut edit.schedule;
    let rule = Arc::clone(&schedule.definition.rule);
    let previous = |before| prev_nominal(&rule, calendar, before).map(|found| found.fire_at);
    let latest = previous(now.plus_ms(1)).unwrap_or(first).max(first);
    let outcome = Outcome::Coalesced { into: latest };
    edit.entries.extend(schedule.owed().map(|owed| Entry::single(owed.fire_at, outcome, now)));
    if let Some(last) = previous(latest).filter(|last| *last >= first) {
        edit.entries.push(Entry::range(&rule, calendar, (first, last), outcome, now));
        schedule.decided(last);
    }
    // Past its own instant even when the edit comes in that very millisecond: that is how it is known to be of
    // the old rule.
    let covers_until = now.max(latest.plus_ms(1));
    if let Some(waiting) = &mut schedule.next
        && waiting.fire_at == latest
    {
        waiting.covers_until = covers_until;
        return;
    }
    edit.withdraw = schedule.next.map(|next| next.job_id);
    let catch_up = latest < schedule.definition.missed_before(now);
    schedule.arm(Planned { fire_at: latest, catch_up }, now);
    edit.put = schedule.next_job(now);
    if let Some(next) = &mut schedule.next {
        next.covers_until = covers_until;
    }
}

/// A rule as a schedule has it that is given it at `now`, with the rule it had before: an interval counts from where it did
/// or, with another start, from that or, if there is neither, from `now`.
#[must_use]
pub fn anchored(mut rule: Arc<Rule>, before: Option<&Rule>, now: Timestamp) -> Arc<Rule> {
    let counted_from = before.and_then(|before| match before.timing {
        Timing::Every { anchor, .. } => Some((before.start_at, anchor)),
        Timing::Cron(_) => None,
    });
    let start = match (counted_from, rule.start_at) {
        (Some((start_at, anchor)), wanted) if wanted.is_none() || wanted == start_at => anchor,
        (_, wanted) => wanted.unwrap_or(now),
    };
    if let Timing::Every { anchor, .. } = &rule.timing
        && *anchor != start
        && let Timing::Every { anchor, .. } = &mut Arc::make_mut(&mut rule).timing
    {
        *anchor = start;
    }
    rule
}

/// Stops a schedule from firing. What was due and not yet claimed does not fire either. An occurrence that
/// has fired and waits for an earlier run keeps waiting.
#[must_use]
pub fn pause(schedule: &Schedule, calendar: Option<&Dates>, now: Timestamp) -> Edit {
    let mut edit = Edit::none(schedule);
    if schedule.state != State::Paused {
        edit.close(calendar, now, Reason::Paused);
        edit.schedule.state = State::Paused;
        edit.touch(now);
    }
    edit
}

/// Lets a schedule fire again. What passed meanwhile is skipped.
#[must_use]
pub fn resume(schedule: &Schedule, calendar: Option<&Dates>, now: Timestamp) -> Edit {
    let mut edit = Edit::none(schedule);
    if schedule.state == State::Paused {
        edit.close(calendar, now, Reason::Paused);
        edit.rearm(calendar, now);
        edit.touch(now);
    }
    edit
}

/// What deleting a schedule leaves to do. Runs under way are not touched.
#[derive(Debug, Clone, PartialEq)]
pub struct Removal {
    /// The waiting occurrence, to take out of the store as if it had never been made.
    pub withdraw: Option<JobId>,
    /// An occurrence that fired and waits for an earlier run, to be cancelled.
    pub cancel: Option<JobId>,
    /// The last entries of its ledger.
    pub entries: Vec<Entry>,
}

/// Ends a schedule for good. What was due and not yet claimed does not fire.
#[must_use]
pub fn delete(schedule: &Schedule, calendar: Option<&Dates>, now: Timestamp) -> Removal {
    let mut edit = Edit::none(schedule);
    let reason = if schedule.state == State::Paused { Reason::Paused } else { Reason::Deleted };
    edit.close(calendar, now, reason);
    Removal { withdraw: edit.withdraw, cancel: schedule.held, entries: edit.entries }
}

/// Runs a schedule's job now, outside the chain, whatever its state and overlap policy.
#[must_use]
pub fn trigger(schedule: &Schedule, now: Timestamp) -> Edit {
    let mut edit = Edit::none(schedule);
    let job = triggered_job(schedule, now);
    // Beside what runs: only an instant of the chain ends earlier runs.
    let running = match schedule.definition.overlap {
        Overlap::Allow => Vec::new(),
        Overlap::Skip | Overlap::BufferOne | Overlap::CancelRunning => schedule.active.to_vec(),
    };
    edit.schedule.remember(job.id, running);
    edit.entries.push(Entry::single(now, Outcome::Triggered { job_id: job.id }, now));
    edit.put = Some(job);
    edit
}
