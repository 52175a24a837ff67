//! The job an instant becomes. Its id and its place in the fire window are hashes of the schedule and the
//! instant: made twice, it is the same job, due at the same time.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::definition::{Definition, Template};
use super::exclude::Dates;
use super::ledger::{Entry, Outcome};
use super::nominal::{Nominal, Note, nominals};
use super::{Schedule, ScheduleId};
use crate::id::JobId;
use crate::job::{Job, Occurrence, Spec};
use crate::limits::PREVIEW_COUNT_MAX;
use crate::time::Timestamp;

/// Where in a window of `window_ms` the occurrence starts. Never changes: previews promise it.
#[must_use]
pub fn window_offset_ms(id: ScheduleId, fire_at: Timestamp, window_ms: i64) -> i64 {
    let Some(window) = u64::try_from(window_ms).ok().filter(|window| *window > 0) else { return 0 };
    i64::try_from(xxh3_64(&hashed(id, fire_at, Purpose::Occurrence)) % window).unwrap_or(0)
}

/// Why a job is made of a schedule; part of its id, so that a job made by hand never takes an occurrence's.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Purpose {
    Occurrence = 0,
    Trigger = 1,
    Backfill = 2,
}

fn hashed(id: ScheduleId, fire_at: Timestamp, purpose: Purpose) -> [u8; 25] {
    let mut bytes = [purpose as u8; 25];
    let (of, rest) = bytes.split_at_mut(16);
    let (at, _) = rest.split_at_mut(8);
    of.copy_from_slice(id.as_bytes());
    at.copy_from_slice(&fire_at.as_ms().to_be_bytes());
    bytes
}

/// The tail of a job's id: the first bits of its schedule's id, then a hash. So jobs that are due at one instant
/// stand in the order of their schedules, and a herd finds them, and writes them, one beside the other.
fn tail(id: ScheduleId, fire_at: Timestamp, purpose: Purpose) -> u128 {
    let [a, b, c, d, ..] = *id.as_bytes();
    let hash = xxh3_64(&hashed(id, fire_at, purpose)) & ((1 << TAIL_HASH_BITS) - 1);
    (u128::from(u32::from_be_bytes([a, b, c, d])) << TAIL_HASH_BITS) | u128::from(hash)
}

/// What a tail has besides 32 bits of the schedule's id.
const TAIL_HASH_BITS: u32 = 48;

/// The id of the job of a nominal instant that was due at `run_at`.
#[must_use]
pub fn occurrence_id(id: ScheduleId, fire_at: Timestamp, run_at: Timestamp) -> JobId {
    JobId::new(run_at, tail(id, fire_at, Purpose::Occurrence))
}

/// The job of a nominal instant, due at `run_at`. The low bits of its id are a hash of the schedule and the
/// instant; its key is the schedule's key, or its id, and the instant: `report:2026-05-19T13:00:00.000Z`,
/// always with milliseconds.
#[must_use]
pub fn occurrence_job(
    schedule: &Schedule,
    fire_at: Timestamp,
    run_at: Timestamp,
    catch_up: bool,
    now: Timestamp,
) -> Job {
    let made = Made { purpose: Purpose::Occurrence, fire_at, catch_up, key: key_at(schedule, fire_at) };
    job(schedule, made, run_at, now)
}

/// A job outside the chain, for someone who wants it now. Asked for twice in a millisecond it is one job.
pub(super) fn triggered_job(schedule: &Schedule, now: Timestamp) -> Job {
    let own = schedule.definition.idempotency_key.as_deref();
    let key =
        own.map_or_else(|| format!("{}:trigger:{now}", schedule.id), |own| format!("{own}:trigger:{now}"));
    let made = Made { purpose: Purpose::Trigger, fire_at: now, catch_up: false, key: Some(key) };
    job(schedule, made, now, now)
}

/// The nominal instants from `from` to `to`, both included, for a backfill. Those of the rule as it is now:
/// whatever became of them before, and even before the schedule was created.
pub fn backfill<'a>(
    schedule: &'a Schedule,
    calendar: Option<&'a Dates>,
    from: Timestamp,
    to: Timestamp,
) -> impl Iterator<Item = Nominal> + 'a {
    nominals(&schedule.definition.rule, calendar, from.plus_ms(-1), to)
}

/// The job that makes up for the instant `fire_at`, due at `run_at`. It has the key its occurrence had or
/// would have had, by which whoever gets it can tell that the instant fired before.
#[must_use]
pub fn backfill_job(
    schedule: &Schedule,
    fire_at: Timestamp,
    run_at: Timestamp,
    now: Timestamp,
) -> (Job, Entry) {
    let made = Made { purpose: Purpose::Backfill, fire_at, catch_up: true, key: key_at(schedule, fire_at) };
    let job = job(schedule, made, run_at, now);
    let entry = Entry::single(fire_at, Outcome::Backfilled { job_id: job.id }, now);
    (job, entry)
}

struct Made {
    purpose: Purpose,
    fire_at: Timestamp,
    catch_up: bool,
    key: Option<String>,
}

fn job(schedule: &Schedule, made: Made, run_at: Timestamp, now: Timestamp) -> Job {
    let occurrence = Occurrence { schedule_id: schedule.id, fire_at: made.fire_at, catch_up: made.catch_up };
    let spec = spec(&schedule.definition.template, made.key, occurrence, now);
    let tail = tail(schedule.id, made.fire_at, made.purpose);
    Job::new(schedule.tenant.clone(), spec, run_at, tail)
}

fn spec(template: &Template, key: Option<String>, occurrence: Occurrence, created_at: Timestamp) -> Spec {
    Spec {
        kind: Arc::clone(&template.kind),
        payload: template.payload.clone(),
        destination: template.destination.clone(),
        priority: template.priority,
        retry: template.retry,
        timeout_ms: template.timeout_ms,
        expires_at: None,
        idempotency_key: key.map(Into::into),
        labels: template.labels.clone(),
        occurrence: Some(occurrence),
        trace: None,
        created_at,
    }
}

/// What [`occurrence_job`] asks for, made at `created_at` of a schedule with this template and key of its own. For
/// stores that need not keep it with every job.
#[must_use]
pub fn occurrence_spec(
    template: &Template,
    own_key: Option<&str>,
    occurrence: Occurrence,
    created_at: Timestamp,
) -> Spec {
    spec(template, own_key.map(|own| own_key_at(own, occurrence.fire_at)), occurrence, created_at)
}

/// The key of the instant's job, where it is not what [`Job::run_key`] makes of the schedule's id.
fn key_at(schedule: &Schedule, fire_at: Timestamp) -> Option<String> {
    schedule.definition.idempotency_key.as_ref().map(|own| own_key_at(own, fire_at))
}

fn own_key_at(own: &str, fire_at: Timestamp) -> String {
    format!("{own}:{fire_at}")
}

/// A fire to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preview {
    /// Its nominal time.
    pub fire_at: Timestamp,
    /// When it starts.
    pub run_at: Timestamp,
    /// Why it is not where the beat alone would have it, if it is not.
    pub note: Option<Note>,
}

/// The first fires after `from`, at most `count` of them. Without an id, which decides the place in the
/// window, `run_at` is the window's beginning.
#[must_use]
pub fn preview(
    definition: &Definition,
    id: Option<ScheduleId>,
    calendar: Option<&Dates>,
    from: Timestamp,
    count: usize,
) -> Vec<Preview> {
    nominals(&definition.rule, calendar, from, Timestamp::MAX)
        .take(count.min(PREVIEW_COUNT_MAX))
        .map(|Nominal { fire_at, note }| {
            let offset_ms = id.map_or(0, |id| window_offset_ms(id, fire_at, definition.window_ms));
            Preview { fire_at, run_at: fire_at.plus_ms(offset_ms), note }
        })
        .collect()
}
