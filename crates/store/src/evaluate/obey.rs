//! Orders for jobs. A claim of an occurrence moves its schedule on; the end of a job may set another free.

use std::sync::Arc;

use tidewheel_core::job::{Change, Command, Job, Rejection, transition};
use tidewheel_core::limits::HELD_RECHECK_MS;
use tidewheel_core::schedule::{
    Decision, Finish, Overlap, Schedule, ScheduleId, Verdict, on_claim, on_finish,
};
use tidewheel_core::time::Timestamp;

use super::{Books, Changes, JobChange, ScheduleChange, calendar_of};
use crate::{Applied, Error, Refusal};

/// Applies a command to a job that is there. A refused command may come with changes all the same: an
/// occurrence that has to wait is stored as one that is due later.
///
/// # Errors
/// When something needed cannot be read.
pub fn obey(
    books: &mut impl Books,
    now: Timestamp,
    job: &Arc<Job>,
    command: &Command,
) -> Result<(Result<Applied, Refusal>, Changes), Error> {
    let mut changes = Changes::default();
    let change = match transition(job, command, now) {
        Ok(change) => change,
        Err(rejection) => return Ok((Err(rejection.into()), changes)),
    };
    let next = match change {
        Change::Nothing => return Ok((Ok(Applied::alone(Arc::clone(job), false)), changes)),
        Change::Gone => {
            changes.note(JobChange::Removed(job.id));
            return Ok((Ok(Applied::alone(Arc::clone(job), true)), changes));
        }
        Change::To(next) => next,
    };
    if matches!(command, Command::Claim { .. })
        && let Some(id) = schedule_of(job)
    {
        match books.read_schedule(&job.tenant, id) {
            Ok(Some(schedule)) => {
                if let Some(decision) = decide(books, &schedule, job, now)? {
                    return carry_out(books, now, next, decision, changes);
                }
            }
            Ok(None) => {}
            // Nobody can tell whether it may run. It stays, and is looked at again in a while.
            Err(Error::Corrupt(_)) => {
                let mut held = Job::clone(job);
                held.status.due_at = now.plus_ms(HELD_RECHECK_MS);
                changes.put(Arc::new(held));
                return Ok((Err(Rejection::NotDue.into()), changes));
            }
            Err(error) => return Err(error),
        }
    }
    let (next, mut others) = (Arc::new(next), Vec::new());
    changes.put(Arc::clone(&next));
    if next.status.state.is_finished() && !job.status.state.is_finished() {
        finish(books, now, &next, &mut changes, &mut others)?;
    }
    Ok((Ok(Applied { job: next, changed: true, next: None, others }), changes))
}

/// The schedule a job came from.
fn schedule_of(job: &Job) -> Option<ScheduleId> {
    job.spec.occurrence.map(|occurrence| occurrence.schedule_id)
}

fn decide(
    books: &mut impl Books,
    schedule: &Schedule,
    job: &Job,
    now: Timestamp,
) -> Result<Option<Decision>, Error> {
    let is_next = schedule.next.is_some_and(|next| next.job_id == job.id);
    if !is_next && schedule.held != Some(job.id) {
        return Ok(None);
    }
    let calendar = calendar_of(books, &schedule.tenant, &schedule.definition)?;
    let unfinished = match schedule.definition.overlap {
        Overlap::Allow => Vec::new(),
        Overlap::Skip | Overlap::BufferOne | Overlap::CancelRunning => {
            Changes::default().unfinished(books, &schedule.tenant, &schedule.active)?
        }
    };
    Ok(on_claim(schedule, job, calendar.as_deref(), &|id| unfinished.contains(&id), now))
}

/// Does what was decided about an occurrence; `claimed` is the job if it runs.
fn carry_out(
    books: &mut impl Books,
    now: Timestamp,
    claimed: Job,
    decision: Decision,
    mut changes: Changes,
) -> Result<(Result<Applied, Refusal>, Changes), Error> {
    // A chain never comes back to an instant, so there is no job of the next one yet.
    let Decision { verdict, schedule, next, cancel, entries } = decision;
    changes.schedule = Some(ScheduleChange::Put(schedule));
    changes.entries = entries;
    changes.next = next.clone();
    let mut others = Vec::new();
    let job = match verdict {
        Verdict::Drop(job) => job,
        Verdict::Hold(job) => {
            changes.put(job);
            return Ok((Err(Rejection::NotDue.into()), changes));
        }
        Verdict::Fire(spec) => Arc::new(Job { spec, ..claimed }),
    };
    changes.put(Arc::clone(&job));
    for id in cancel {
        if let Some(cancelled) = changes.cancel(books, &job.tenant, id, now)? {
            others.push(Arc::clone(&cancelled));
            finish(books, now, &cancelled, &mut changes, &mut others)?;
        }
    }
    if job.status.state.is_finished() {
        finish(books, now, &job, &mut changes, &mut others)?;
    }
    Ok((Ok(Applied { job, changed: true, next, others }), changes))
}

/// A job has ended: moves its schedule's chain on, or sets an occurrence free that waited for it.
fn finish(
    books: &mut impl Books,
    now: Timestamp,
    job: &Job,
    changes: &mut Changes,
    others: &mut Vec<Arc<Job>>,
) -> Result<(), Error> {
    // A chain has gone on from what was started, so only an occurrence that waits for it can hang on its end.
    let has_started = job.status.attempt > 0 && changes.schedule.is_none();
    if has_started && schedule_of(job).is_none_or(|id| !books.may_hold(&job.tenant, id)) {
        return Ok(());
    }
    let Some(schedule) = schedule_now(books, job, changes)? else { return Ok(()) };
    let is_next = schedule.next.is_some_and(|next| next.job_id == job.id);
    let is_waited_for = schedule.held.is_some() && schedule.active.contains(&job.id);
    let calendar = if is_next { calendar_of(books, &job.tenant, &schedule.definition)? } else { None };
    let unfinished =
        if is_waited_for { changes.unfinished(books, &job.tenant, &schedule.active)? } else { Vec::new() };
    let is_unfinished = |id| unfinished.contains(&id);
    let Some(finish) = on_finish(&schedule, job.id, calendar.as_deref(), &is_unfinished, now) else {
        return Ok(());
    };
    let Finish { schedule, release, next, entries } = finish;
    changes.schedule = Some(ScheduleChange::Put(Arc::new(schedule)));
    changes.entries.extend(entries);
    if let Some(next) = next.map(Arc::new) {
        changes.note(JobChange::New(Arc::clone(&next)));
        others.push(next);
    }
    let held = release.map(|id| changes.job(books, &job.tenant, id)).transpose()?.flatten();
    if let Some(Ok(Change::To(released))) = held.map(|held| transition(&held, &Command::RunNow, now)) {
        let released = Arc::new(released);
        changes.put(Arc::clone(&released));
        others.push(released);
    }
    Ok(())
}

/// The schedule of a job, as this order leaves it. One that cannot be read keeps no job from ending.
fn schedule_now(
    books: &mut impl Books,
    job: &Job,
    changes: &Changes,
) -> Result<Option<Arc<Schedule>>, Error> {
    let Some(id) = schedule_of(job) else { return Ok(None) };
    match &changes.schedule {
        Some(ScheduleChange::Put(schedule)) if schedule.id == id => Ok(Some(Arc::clone(schedule))),
        Some(ScheduleChange::Removed(removed)) if *removed == id => Ok(None),
        Some(_) | None => match books.read_schedule(&job.tenant, id) {
            Ok(schedule) => Ok(schedule),
            Err(Error::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        },
    }
}
