//! Orders under an idempotency key: done the first time, and only looked at when they come again.

use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;

use super::{Books, Changes, obey};
use crate::{
    Applied, Edited, Error, IdempotencyClaim, KeyClaimed, KeyUse, Order, Refusal, ScheduleOrder,
    ScheduleRefusal,
};

/// How a key stands to a request.
pub(super) enum Standing {
    /// Nobody has it.
    Free,
    /// The same request has used it for this.
    Repeat(KeyUse),
    /// A different request has used it for this.
    Conflict(KeyUse),
}

pub(super) fn standing(
    books: &mut impl Books,
    now: Timestamp,
    tenant: &Tenant,
    claim: &IdempotencyClaim,
) -> Result<Standing, Error> {
    let Some(held) = books.read_key(now, tenant, &claim.key)? else { return Ok(Standing::Free) };
    if let KeyUse::NewSchedule(id) = held.used_for
        && is_gone(books, tenant, id)?
    {
        return Ok(Standing::Free);
    }
    let is_repeat = held.fingerprint == claim.fingerprint;
    Ok(if is_repeat { Standing::Repeat(held.used_for) } else { Standing::Conflict(held.used_for) })
}

/// One that cannot be read is there.
fn is_gone(books: &mut impl Books, tenant: &Tenant, id: ScheduleId) -> Result<bool, Error> {
    match books.read_schedule(tenant, id) {
        Ok(schedule) => Ok(schedule.is_none()),
        Err(Error::Corrupt(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Applies an order that comes under a key.
///
/// # Errors
/// When something needed cannot be read.
pub fn obey_once(
    books: &mut impl Books,
    now: Timestamp,
    order: &Order,
    claim: &IdempotencyClaim,
) -> Result<(Result<Applied, Refusal>, Changes), Error> {
    let standing = standing(books, now, &order.tenant, claim)?;
    let job = books.read_job(&order.tenant, order.id)?;
    let refused = |refusal| Ok((Err(refusal), Changes::default()));
    match (standing, job) {
        (Standing::Conflict(used_for), _) => refused(Refusal::KeyConflict(used_for)),
        (Standing::Repeat(used_for), _) if used_for != KeyUse::Job(order.id) => {
            refused(Refusal::KeyConflict(used_for))
        }
        (Standing::Repeat(_), Some(job)) => Ok((Ok(Applied::alone(job, false)), Changes::default())),
        (Standing::Repeat(_), None) => refused(Refusal::Gone),
        (Standing::Free, None) => refused(Refusal::NotFound),
        (Standing::Free, Some(job)) => {
            let (answer, mut changes) = obey(books, now, &job, &order.command)?;
            if answer.is_ok() {
                changes.key = Some((KeyUse::Job(order.id), claim.clone()));
            }
            Ok((answer, changes))
        }
    }
}

/// Takes a key for a call that is no single order.
///
/// # Errors
/// When something needed cannot be read.
pub fn claim_key(
    books: &mut impl Books,
    now: Timestamp,
    tenant: &Tenant,
    claim: IdempotencyClaim,
) -> Result<(KeyClaimed, Changes), Error> {
    Ok(match standing(books, now, tenant, &claim)? {
        Standing::Free => {
            let changes = Changes { key: Some((KeyUse::Call, claim)), ..Changes::default() };
            (KeyClaimed::New, changes)
        }
        Standing::Repeat(_) => (KeyClaimed::Repeat, Changes::default()),
        Standing::Conflict(used_for) => (KeyClaimed::Conflict(used_for), Changes::default()),
    })
}

/// The answer to an order for a schedule that was granted before.
pub(super) fn repeat_edit(
    books: &mut impl Books,
    order: &ScheduleOrder,
    used_for: KeyUse,
) -> Result<Result<Edited, ScheduleRefusal>, Error> {
    let (id, jobs) = match used_for {
        KeyUse::Job(id) => match books.read_job(&order.tenant, id)? {
            Some(job) => (order.id, vec![Job::clone(&job)]),
            None => return Ok(Err(ScheduleRefusal::Gone)),
        },
        KeyUse::NewSchedule(id) | KeyUse::Schedule(id) => (id, Vec::new()),
        KeyUse::Call => (order.id, Vec::new()),
    };
    let schedule = match books.read_schedule(&order.tenant, id) {
        Ok(Some(schedule)) => schedule,
        Ok(None) => return Ok(Err(ScheduleRefusal::Gone)),
        Err(Error::Corrupt(reason)) => return Ok(Err(ScheduleRefusal::Unreadable(reason))),
        Err(error) => return Err(error),
    };
    let schedule = Schedule::clone(&schedule);
    Ok(Ok(Edited { schedule, changed: false, repeats: Some(used_for), jobs }))
}
