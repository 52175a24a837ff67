//! A schedule, beside its id and tenant, which have columns of their own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{LastFire, Next, Schedule, ScheduleId, State};
use tidewheel_core::time::Timestamp;

use super::rule::Rules;
use super::{Unreadable, definition, nth};

#[derive(Serialize, Deserialize)]
struct ScheduleRecord<'a> {
    version: u64,
    name: Option<&'a str>,
    state: u8,
    next: Option<NextRecord>,
    held: Option<[u8; 16]>,
    decided_until: i64,
    last_fire: Option<(i64, i32)>,
    active: Vec<[u8; 16]>,
    created_at: i64,
    updated_at: i64,
    definition: &'a [u8],
}

#[derive(Serialize, Deserialize)]
struct NextRecord {
    fire_at: i64,
    run_at: i64,
    job_id: [u8; 16],
    catch_up: bool,
    covers_until: i64,
}

pub(crate) fn encode(schedule: &Schedule) -> Vec<u8> {
    super::encode(&ScheduleRecord {
        version: schedule.version,
        name: schedule.name.as_deref(),
        state: schedule.state as u8,
        next: schedule.next.map(|next| NextRecord {
            fire_at: next.fire_at.as_ms(),
            run_at: next.run_at.as_ms(),
            job_id: *next.job_id.as_bytes(),
            catch_up: next.catch_up,
            covers_until: next.covers_until.as_ms(),
        }),
        held: schedule.held.map(|id| *id.as_bytes()),
        decided_until: schedule.decided_until.as_ms(),
        last_fire: schedule.last_fire.map(|last| (last.fire_at.as_ms(), last.utc_offset_s)),
        active: schedule.active.iter().map(|id| *id.as_bytes()).collect(),
        created_at: schedule.created_at.as_ms(),
        updated_at: schedule.updated_at.as_ms(),
        definition: &definition::encode(&schedule.definition),
    })
}

pub(crate) fn decode(
    rules: &Rules,
    tenant: &Tenant,
    id: ScheduleId,
    bytes: &[u8],
) -> Result<Schedule, Unreadable> {
    let record: ScheduleRecord<'_> = super::decode(bytes, "a schedule")?;
    Ok(Schedule {
        id,
        tenant: tenant.clone(),
        name: record.name.map(Into::into),
        version: record.version,
        definition: Arc::new(definition::decode(rules, record.definition)?),
        state: nth(&State::ALL, record.state, "a schedule's state")?,
        next: record.next.map(|next| Next {
            fire_at: Timestamp::from_ms(next.fire_at),
            run_at: Timestamp::from_ms(next.run_at),
            job_id: JobId::from_bytes(next.job_id),
            catch_up: next.catch_up,
            covers_until: Timestamp::from_ms(next.covers_until),
        }),
        held: record.held.map(JobId::from_bytes),
        decided_until: Timestamp::from_ms(record.decided_until),
        last_fire: record
            .last_fire
            .map(|(ms, utc_offset_s)| LastFire { fire_at: Timestamp::from_ms(ms), utc_offset_s }),
        active: record.active.into_iter().map(JobId::from_bytes).collect(),
        created_at: Timestamp::from_ms(record.created_at),
        updated_at: Timestamp::from_ms(record.updated_at),
    })
}
