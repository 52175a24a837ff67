//! The lean record of a schedule's next occurrence. What such a job asks for is what its schedule has in its
//! definition, so its record in `waiting` does not say it again:
//!
//! ```text
//! version u8 = 1 | flags u8 = 16, or 48 if it makes up for a missed time | schedule (16 bytes) | fire_at | created_at
//! ```
//!
//! The instants are milliseconds relative to the time in the job's id, as postcard has them. Nothing has happened to
//! such a job: whatever changes it writes it in full, and so does whatever changes its schedule's template or key, or
//! removes the schedule. An attempt under way leaves the record as it was, so those are written in full then, too.
//! A lean record is therefore always read with the definition that is committed with it.

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Occurrence, Spec, State, Status};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Definition, Next, Schedule, ScheduleId, Template, occurrence_spec};
use tidewheel_core::time::Timestamp;

use crate::kv::{Keyspace, KvError, Slice};
use crate::record::{IS_LEAN, Unreadable, VERSION};
use crate::{keys, record, schedule_record};

const CATCHES_UP: u8 = 32;
const LEAN_CATCHING_UP: u8 = IS_LEAN | CATCHES_UP;
const NONSENSE: Unreadable = Unreadable::Nonsense("an occurrence of a schedule");
/// Two bytes and the schedule.
const HEAD_BYTES: usize = 2 + 16;
/// The head and two instants.
const BYTES_MAX: usize = HEAD_BYTES + 2 * 10;

/// What a lean record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lean {
    pub(crate) occurrence: Occurrence,
    created_at: Timestamp,
}

impl Lean {
    /// Reads a record; `None` when it is not lean.
    pub(crate) fn read(id: JobId, bytes: &[u8]) -> Result<Option<Self>, Unreadable> {
        let (catch_up, rest) = match bytes {
            [VERSION, IS_LEAN, rest @ ..] => (false, rest),
            [VERSION, LEAN_CATCHING_UP, rest @ ..] => (true, rest),
            _ => return Ok(None),
        };
        let (schedule, rest) = rest.split_first_chunk::<16>().ok_or(NONSENSE)?;
        let (fire_at, created_at): (i64, i64) = match postcard::take_from_bytes(rest) {
            Ok((instants, [])) => instants,
            Ok(_) | Err(_) => return Err(NONSENSE),
        };
        let base = id.run_at();
        let occurrence = Occurrence {
            schedule_id: ScheduleId::from_bytes(*schedule),
            fire_at: base.plus_ms(fire_at),
            catch_up,
        };
        Ok(Some(Self { occurrence, created_at: base.plus_ms(created_at) }))
    }

    /// The job, of a schedule with this template and key of its own.
    pub(crate) fn job(&self, tenant: &Tenant, id: JobId, template: &Template, own_key: Option<&str>) -> Job {
        let spec = occurrence_spec(template, own_key, self.occurrence, self.created_at);
        Job::with_id(tenant.clone(), spec, id)
    }

    /// The job, by the record of its schedule's definition.
    pub(crate) fn resolve(
        &self,
        tenant: &Tenant,
        id: JobId,
        definition: Option<&Bytes>,
    ) -> Result<Job, Unreadable> {
        let definition = definition.ok_or(Unreadable::Nonsense("an occurrence whose schedule is missing"))?;
        let (template, own_key) = schedule_record::template(definition)?;
        Ok(self.job(tenant, id, &template, own_key.as_deref()))
    }
}

/// The lean record of `job`, if it is just what an occurrence of a schedule with this definition is.
pub(crate) fn encode(definition: &Definition, job: &Job) -> Option<Slice> {
    let is_fresh = job.status == Status::scheduled(job.id.run_at());
    let occurrence = job.spec.occurrence.filter(|_| is_fresh && is_of(definition, &job.spec))?;
    Some(write(job.id, occurrence, job.spec.created_at))
}

/// The record of an occurrence that was just planned: that is always a lean one.
pub(crate) fn encode_upcoming(schedule: &Schedule, next: &Next, created_at: Timestamp) -> Slice {
    let Next { fire_at, catch_up, .. } = *next;
    write(next.job_id, Occurrence { schedule_id: schedule.id, fire_at, catch_up }, created_at)
}

fn write(id: JobId, occurrence: Occurrence, created_at: Timestamp) -> Slice {
    let base = id.run_at();
    let instants = (occurrence.fire_at.since_ms(base), created_at.since_ms(base));
    let mut bytes = [0; BYTES_MAX];
    let (head, rest) = bytes.split_at_mut(HEAD_BYTES);
    let (flags, schedule) = head.split_at_mut(2);
    flags.copy_from_slice(&[VERSION, if occurrence.catch_up { LEAN_CATCHING_UP } else { IS_LEAN }]);
    schedule.copy_from_slice(occurrence.schedule_id.as_bytes());
    // There is room for both, however long they are.
    let length = HEAD_BYTES + postcard::to_slice(&instants, rest).map_or(0, |written| written.len());
    Slice::from(bytes.get(..length).unwrap_or_default())
}

/// Whether a job that is an occurrence asks for what this definition has. Where the two share their parts, little is
/// compared.
pub(crate) fn is_of(definition: &Definition, spec: &Spec) -> bool {
    let template = &definition.template;
    let is_same = |a: &Bytes, b: &Bytes| a.len() == b.len() && (a.as_ptr() == b.as_ptr() || a == b);
    let Some(occurrence) = spec.occurrence else { return false };
    is_same(&spec.payload, &template.payload)
        && spec.kind == template.kind
        && spec.destination == template.destination
        && spec.priority == template.priority
        && spec.retry == template.retry
        && spec.timeout_ms == template.timeout_ms
        && spec.labels == template.labels
        && spec.expires_at.is_none()
        && spec.trace.is_none()
        && match (&definition.idempotency_key, &spec.idempotency_key) {
            (None, None) => true,
            (Some(own), Some(key)) => **key == *format!("{own}:{}", occurrence.fire_at),
            (Some(_), None) | (None, Some(_)) => false,
        }
}

/// The job as its record in `waiting` has it, if that may be lean: nothing has happened to it, or its first attempt is
/// under way.
pub(crate) fn as_it_waited(job: &Job) -> Option<Job> {
    let status = &job.status;
    let is_first = match status.state {
        State::Scheduled => status.attempt == 0,
        State::Running => status.attempt == 1,
        State::Retrying
        | State::Succeeded
        | State::Dead
        | State::Cancelled
        | State::Skipped
        | State::Expired => false,
    };
    let is_fresh = is_first && status.attempts.is_empty() && keys::is_home(status.due_at, job.id);
    is_fresh.then(|| Job { status: Status::scheduled(status.due_at), ..job.clone() })
}

/// Reads a job's record, lean or not. `get` reads what was committed together with it.
pub(crate) fn read_job(
    get: impl Fn(Keyspace, &[u8]) -> Result<Option<Bytes>, KvError>,
    tenant: &Tenant,
    id: JobId,
    bytes: &[u8],
) -> Result<Job, KvError> {
    let corrupt = |error: Unreadable| KvError::Corrupt(error.to_string());
    let Some(lean) = Lean::read(id, bytes).map_err(corrupt)? else {
        return record::decode(tenant, id, bytes).map_err(corrupt);
    };
    let definition = get(Keyspace::Schedules, &keys::schedule(tenant, lean.occurrence.schedule_id))?;
    lean.resolve(tenant, id, definition.as_ref()).map_err(corrupt)
}

#[cfg(test)]
mod tests;
