//! Orders for schedules.

use std::sync::Arc;

use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{
    self, Change, Dates, Definition, Edit, Entry, NewSchedule, Outcome, Removal, Schedule, ScheduleId,
};
use tidewheel_core::time::Timestamp;

use super::once::{Standing, repeat_edit, standing};
use super::{Books, Changes, JobChange, ScheduleChange, calendar_of};
use crate::{Edited, Error, KeyUse, ScheduleCommand, ScheduleOrder, ScheduleRefusal};

type Answer = Result<(Edited, Changes), ScheduleRefusal>;

/// Applies an order to a schedule. What is refused changes nothing.
///
/// # Errors
/// When something needed cannot be read.
pub fn edit(
    books: &mut impl Books,
    now: Timestamp,
    mut order: ScheduleOrder,
) -> Result<(Result<Edited, ScheduleRefusal>, Changes), Error> {
    let key = order.key.take();
    if let Some(claim) = &key {
        match standing(books, now, &order.tenant, claim)? {
            Standing::Free => {}
            Standing::Repeat(used_for) => {
                return Ok((repeat_edit(books, &order, used_for)?, Changes::default()));
            }
            Standing::Conflict(used_for) => {
                return Ok((Err(ScheduleRefusal::KeyConflict(used_for)), Changes::default()));
            }
        }
    }
    let id = order.id;
    let made = matches!(order.command, ScheduleCommand::Create { .. });
    let triggers = matches!(order.command, ScheduleCommand::Trigger);
    Ok(match evaluate(books, now, order)? {
        Ok((edited, mut changes)) => {
            let used_for = match edited.jobs.last() {
                Some(job) if triggers => KeyUse::Job(job.id),
                Some(_) | None if made => KeyUse::NewSchedule(id),
                Some(_) | None => KeyUse::Schedule(id),
            };
            changes.key = key.map(|claim| (used_for, claim));
            (Ok(edited), changes)
        }
        Err(refusal) => (Err(refusal), Changes::default()),
    })
}

fn evaluate(books: &mut impl Books, now: Timestamp, order: ScheduleOrder) -> Result<Answer, Error> {
    let ScheduleOrder { tenant, id, if_version, command, .. } = order;
    let schedule = if matches!(command, ScheduleCommand::Create { fresh: true, .. }) {
        books.add_schedule(&tenant, id);
        None
    } else {
        match books.read_schedule(&tenant, id) {
            Ok(schedule) => schedule,
            Err(Error::Corrupt(reason)) => return Ok(Err(ScheduleRefusal::Unreadable(reason))),
            Err(error) => return Err(error),
        }
    };
    if let ScheduleCommand::Create { new, fresh } = command {
        let new = NewSchedule { id, tenant, ..*new };
        return match schedule {
            Some(schedule) => Ok(Ok(unchanged(Schedule::clone(&schedule)))),
            None => create(books, now, new, fresh),
        };
    }
    let Some(schedule) = schedule else { return Ok(Err(ScheduleRefusal::NotFound)) };
    if if_version.is_some_and(|version| version != schedule.version) {
        return Ok(Err(ScheduleRefusal::StaleVersion { current: schedule.version }));
    }
    let calendar = calendar_of(books, &tenant, &schedule.definition)?;
    let calendar = calendar.as_deref();
    let edit = match command {
        ScheduleCommand::Create { .. } => none(&schedule),
        ScheduleCommand::Update { definition, name, paused } => {
            let wanted = Wanted { definition: *definition, name, paused };
            match update(books, now, &schedule, calendar, wanted)? {
                Ok(edit) => edit,
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        ScheduleCommand::Pause => schedule::pause(&schedule, calendar, now),
        ScheduleCommand::Resume => schedule::resume(&schedule, calendar, now),
        ScheduleCommand::Delete => return delete(books, now, &schedule, calendar).map(Ok),
        ScheduleCommand::Trigger => return trigger(books, now, &schedule).map(Ok),
        ScheduleCommand::Backfill(jobs) => return backfill(books, now, &schedule, jobs).map(Ok),
        ScheduleCommand::Retime(zone) => schedule::retime(&schedule, zone, calendar, now),
        ScheduleCommand::Redate { name, before } if names(&schedule.definition, &name) => {
            schedule::calendar_changed(&schedule, before.as_deref(), calendar, now)
        }
        ScheduleCommand::Redate { .. } => none(&schedule),
        ScheduleCommand::Rearm { set_back_ms } => rearm(books, now, &schedule, set_back_ms, calendar)?,
    };
    carry_out(books, now, &schedule, edit).map(Ok)
}

fn none(schedule: &Schedule) -> Edit {
    Edit { schedule: schedule.clone(), withdraw: None, put: None, entries: Vec::new() }
}

fn unchanged(schedule: Schedule) -> (Edited, Changes) {
    (Edited { schedule, changed: false, repeats: None, jobs: Vec::new() }, Changes::default())
}

fn create(books: &mut impl Books, now: Timestamp, new: NewSchedule, fresh: bool) -> Result<Answer, Error> {
    if let Some(refusal) = taken(books, &new.tenant, new.name.as_ref(), new.id)? {
        return Ok(Err(refusal));
    }
    let calendar = calendar_of(books, &new.tenant, &new.definition)?;
    if let Some(refusal) = missing(&new.definition, calendar.as_deref()) {
        return Ok(Err(refusal));
    }
    let Edit { schedule, put, entries, .. } = schedule::create(new, calendar.as_deref(), now);
    let mut changes = Changes { entries: entries.into(), ..Changes::default() };
    let jobs: Vec<Job> = put.into_iter().collect();
    for job in jobs.iter().cloned().map(Arc::new) {
        changes.note(if fresh { JobChange::New(job) } else { JobChange::Put(job) });
    }
    changes.schedule = Some(ScheduleChange::Put(Arc::new(schedule.clone())));
    Ok(Ok((Edited { schedule, changed: true, repeats: None, jobs }, changes)))
}

/// What an update makes of a schedule.
struct Wanted {
    definition: Definition,
    name: Option<Arc<str>>,
    paused: Option<bool>,
}

fn update(
    books: &mut impl Books,
    now: Timestamp,
    schedule: &Schedule,
    calendar: Option<&Dates>,
    wanted: Wanted,
) -> Result<Result<Edit, ScheduleRefusal>, Error> {
    let Wanted { definition, name, paused } = wanted;
    if let Some(refusal) = taken(books, &schedule.tenant, name.as_ref(), schedule.id)? {
        return Ok(Err(refusal));
    }
    let new_calendar = calendar_of(books, &schedule.tenant, &definition)?;
    if let Some(refusal) = missing(&definition, new_calendar.as_deref()) {
        return Ok(Err(refusal));
    }
    let change = Change { definition, calendar: new_calendar.as_deref() };
    let mut edit = schedule::amend(schedule, calendar, change, paused, now);
    if edit.schedule.name != name {
        edit.schedule.name = name;
        edit.schedule.version = schedule.version + 1;
        edit.schedule.updated_at = now;
    }
    Ok(Ok(edit))
}

/// The refusal of a name that another schedule has.
fn taken(
    books: &mut impl Books,
    tenant: &Tenant,
    name: Option<&Arc<str>>,
    id: ScheduleId,
) -> Result<Option<ScheduleRefusal>, Error> {
    let holder = name.map(|name| books.read_name(tenant, name)).transpose()?.flatten();
    Ok(holder.filter(|holder| *holder != id).map(ScheduleRefusal::NameTaken))
}

fn names(definition: &Definition, calendar: &Arc<str>) -> bool {
    definition.rule.exclude.calendar.as_ref() == Some(calendar)
}

/// The refusal of a calendar that is not there.
fn missing(definition: &Definition, calendar: Option<&Dates>) -> Option<ScheduleRefusal> {
    let name = definition.rule.exclude.calendar.as_ref().filter(|_| calendar.is_none())?;
    Some(ScheduleRefusal::NoCalendar(Arc::clone(name)))
}

/// Stores the waiting occurrence again if it is lost, and brings it forward if it was put off by a clock that was set back.
/// Where nothing is wrong, nothing is changed: what is late stays as it is.
fn rearm(
    books: &mut impl Books,
    now: Timestamp,
    schedule: &Schedule,
    set_back_ms: i64,
    calendar: Option<&Dates>,
) -> Result<Edit, Error> {
    let none = none(schedule);
    let Some(next) = schedule.next else { return Ok(schedule::repair(schedule, calendar, now)) };
    Ok(match books.read_job(&schedule.tenant, next.job_id)? {
        None => schedule::repair(schedule, calendar, now),
        // It ended while nobody could read its schedule.
        Some(job) if job.status.state.is_finished() => {
            schedule::on_finish(schedule, job.id, calendar, &|_| false, now).map_or(none, |finish| Edit {
                schedule: finish.schedule,
                withdraw: None,
                put: finish.next,
                entries: finish.entries,
            })
        }
        Some(job) => schedule::set_back(schedule, &job, set_back_ms, calendar, now),
    })
}

fn carry_out(
    books: &mut impl Books,
    now: Timestamp,
    before: &Schedule,
    edit: Edit,
) -> Result<(Edited, Changes), Error> {
    let changed = !edit.is_none(before);
    let Edit { schedule, withdraw, put, entries } = edit;
    let mut changes = Changes { entries: entries.into(), ..Changes::default() };
    let mut jobs = Vec::new();
    if let Some(id) = withdraw {
        jobs.extend(changes.withdraw(books, &schedule.tenant, id, now)?);
    }
    if let Some(job) = put {
        changes.put(Arc::new(job.clone()));
        jobs.push(job);
    }
    // New rules of a zone are no change, but have to be known all the same.
    if changed || !Arc::ptr_eq(&schedule.definition, &before.definition) {
        changes.schedule = Some(ScheduleChange::Put(Arc::new(schedule.clone())));
    }
    Ok((Edited { schedule, changed, repeats: None, jobs }, changes))
}

fn delete(
    books: &mut impl Books,
    now: Timestamp,
    schedule: &Schedule,
    calendar: Option<&Dates>,
) -> Result<(Edited, Changes), Error> {
    let Removal { withdraw, cancel, .. } = schedule::delete(schedule, calendar, now);
    let mut changes = Changes { schedule: Some(ScheduleChange::Removed(schedule.id)), ..Changes::default() };
    let mut jobs = Vec::new();
    if let Some(id) = withdraw {
        jobs.extend(changes.withdraw(books, &schedule.tenant, id, now)?);
    }
    if let Some(id) = cancel {
        jobs.extend(changes.cancel(books, &schedule.tenant, id, now)?.as_deref().cloned());
    }
    Ok((Edited { schedule: schedule.clone(), changed: true, repeats: None, jobs }, changes))
}

/// Asked for twice in a millisecond it is one job, which may be running by then.
fn trigger(books: &mut impl Books, now: Timestamp, schedule: &Schedule) -> Result<(Edited, Changes), Error> {
    let edit = schedule::trigger(schedule, now);
    let there = edit.put.as_ref().map(|job| books.read_job(&schedule.tenant, job.id)).transpose()?.flatten();
    match there {
        Some(job) => {
            let (schedule, jobs) = (schedule.clone(), vec![Job::clone(&job)]);
            Ok((Edited { schedule, changed: false, repeats: None, jobs }, Changes::default()))
        }
        None => carry_out(books, now, schedule, edit),
    }
}

fn backfill(
    books: &mut impl Books,
    now: Timestamp,
    schedule: &Schedule,
    jobs: Vec<Job>,
) -> Result<(Edited, Changes), Error> {
    let mut changes = Changes::default();
    let mut stored = Vec::new();
    for job in jobs {
        let Some(fire_at) = job.spec.occurrence.as_ref().map(|occurrence| occurrence.fire_at) else {
            continue;
        };
        if changes.job(books, &schedule.tenant, job.id)?.is_some() {
            continue;
        }
        changes.entries.push(Entry::single(fire_at, Outcome::Backfilled { job_id: job.id }, now));
        changes.put(Arc::new(job.clone()));
        stored.push(job);
    }
    if !stored.is_empty() {
        changes.schedule = Some(ScheduleChange::Put(Arc::new(schedule.clone())));
    }
    let (schedule, changed) = (schedule.clone(), !stored.is_empty());
    Ok((Edited { schedule, changed, repeats: None, jobs: stored }, changes))
}
