//! A schedule's record on disk. The tenant and the id are in the key and not repeated here.
//!
//! ```text
//! version u8 = 1 | standing | definition
//! ```
//!
//! Both parts are postcard, in the order of the fields below; the definition has its rule as bytes of its own.
//! A fire changes where the schedule stands and nothing of its definition, so the bytes of that are kept beside
//! it and written again as they are.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{LastFire, Next, Schedule, ScheduleId, State};
use tidewheel_core::time::Timestamp;

use crate::definition;
use crate::record::Unreadable;
use crate::rules::Rules;

const VERSION: u8 = 1;
const NONSENSE: Unreadable = Unreadable::Nonsense("where a schedule stands");

/// A schedule with what is stored of it besides.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) schedule: Arc<Schedule>,
    /// The definition as it is on disk.
    pub(crate) definition: Bytes,
    /// The number of the first entry of its ledger. Those before it belong to a schedule that was deleted.
    pub(crate) first_entry: u64,
}

#[derive(Serialize, Deserialize)]
struct Standing<'a> {
    first_entry: u64,
    version: u64,
    name: Option<&'a str>,
    state: u8,
    next: Option<Waiting>,
    held: Option<[u8; 16]>,
    decided_until: i64,
    last_fire: Option<(i64, i32)>,
    active: Vec<[u8; 16]>,
    created_at: i64,
    updated_at: i64,
}

/// The instants are relative to `fire_at`, which keeps them short.
#[derive(Serialize, Deserialize)]
struct Waiting {
    fire_at: i64,
    run_at: i64,
    job_id: [u8; 16],
    catch_up: bool,
    covers_until: i64,
}

impl Stored {
    /// A schedule whose definition is not on disk as it is now.
    pub(crate) fn new(schedule: Arc<Schedule>, first_entry: u64) -> Self {
        let definition = definition::encode(&schedule.definition).into();
        Self { schedule, definition, first_entry }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let schedule = &self.schedule;
        let standing = Standing {
            first_entry: self.first_entry,
            version: schedule.version,
            name: schedule.name.as_deref(),
            state: schedule.state as u8,
            next: schedule.next.map(|next| Waiting {
                fire_at: next.fire_at.as_ms(),
                run_at: next.run_at.since_ms(next.fire_at),
                job_id: *next.job_id.as_bytes(),
                catch_up: next.catch_up,
                covers_until: next.covers_until.since_ms(next.fire_at),
            }),
            held: schedule.held.map(|id| *id.as_bytes()),
            decided_until: schedule.decided_until.as_ms(),
            last_fire: schedule.last_fire.map(|last| (last.fire_at.as_ms(), last.utc_offset_s)),
            active: schedule.active.iter().map(|id| *id.as_bytes()).collect(),
            created_at: schedule.created_at.as_ms(),
            updated_at: schedule.updated_at.as_ms(),
        };
        let mut bytes = Vec::with_capacity(96 + self.definition.len());
        bytes.push(VERSION);
        let mut bytes = postcard::to_extend(&standing, bytes).unwrap_or_default();
        bytes.extend_from_slice(&self.definition);
        bytes
    }

    pub(crate) fn decode(
        rules: &Rules,
        tenant: &Tenant,
        id: ScheduleId,
        bytes: &Bytes,
    ) -> Result<Self, Unreadable> {
        let (standing, definition) = take(bytes)?;
        let definition = bytes.slice_ref(definition);
        let next = standing.next.map(|next| {
            let fire_at = Timestamp::from_ms(next.fire_at);
            Next {
                fire_at,
                run_at: fire_at.plus_ms(next.run_at),
                job_id: JobId::from_bytes(next.job_id),
                catch_up: next.catch_up,
                covers_until: fire_at.plus_ms(next.covers_until),
            }
        });
        let schedule = Schedule {
            id,
            tenant: tenant.clone(),
            name: standing.name.map(Into::into),
            version: standing.version,
            definition: Arc::new(definition::decode(rules, &definition)?),
            state: State::ALL.get(usize::from(standing.state)).copied().ok_or(NONSENSE)?,
            next,
            held: standing.held.map(JobId::from_bytes),
            decided_until: Timestamp::from_ms(standing.decided_until),
            last_fire: standing
                .last_fire
                .map(|(ms, utc_offset_s)| LastFire { fire_at: Timestamp::from_ms(ms), utc_offset_s }),
            active: standing.active.into_iter().map(JobId::from_bytes).collect(),
            created_at: Timestamp::from_ms(standing.created_at),
            updated_at: Timestamp::from_ms(standing.updated_at),
        };
        Ok(Self { schedule: Arc::new(schedule), definition, first_entry: standing.first_entry })
    }
}

/// The number of the first entry of a schedule's ledger.
pub(crate) fn first_entry(bytes: &[u8]) -> Result<u64, Unreadable> {
    take(bytes).map(|(standing, _)| standing.first_entry)
}

fn take(bytes: &[u8]) -> Result<(Standing<'_>, &[u8]), Unreadable> {
    match bytes {
        [VERSION, rest @ ..] => postcard::take_from_bytes(rest).map_err(|_| NONSENSE),
        [version, ..] => Err(Unreadable::Version(*version)),
        [] => Err(NONSENSE),
    }
}
