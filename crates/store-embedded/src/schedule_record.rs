//! A schedule's two records on disk. The tenant and the id are in their keys and not repeated here.
//!
//! ```text
//! schedules   version u8 = 2 | definition
//! standings   version u8 = 2 | standing | sheet
//! ```
//!
//! The sheet has the newest lines of the ledger ([`crate::sheet`]); version 1 had none. All parts are postcard, in the
//! order of the fields below; the definition has its rule as bytes of its own. A fire changes where the schedule stands and
//! nothing of its definition, so it writes the one record and not the other. Both are written and removed together with
//! what they have in common, and read from one snapshot.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tidewheel_core::id::JobId;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Definition, LastFire, Next, Schedule, ScheduleId, State, Template};
use tidewheel_core::time::Timestamp;
use tidewheel_store::Error;

use crate::append::append;
use crate::definition::Decoder;
use crate::kv::{Keyspace, KvError, Slice};
use crate::record::Unreadable;
use crate::rules::Rules;
use crate::shared::{read_error, unreadable};
use crate::sheet::{Numbered, Sheet, SheetRecord};
use crate::{definition, keys};

/// 1 had the standing before the definition.
const DEFINITION_VERSION: u8 = 2;
const STANDING_VERSION: u8 = 2;
const STANDING_VERSION_WITHOUT_SHEET: u8 = 1;
const NONSENSE: Unreadable = Unreadable::Nonsense("where a schedule stands");

/// A schedule with what is stored of it besides.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) schedule: Arc<Schedule>,
    /// The number of the first entry of its ledger. Those before it belong to a schedule that was deleted.
    pub(crate) first_entry: u64,
    pub(crate) sheet: Sheet,
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
    active: SmallVec<[[u8; 16]; 1]>,
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
    /// About what it takes in memory.
    pub(crate) fn size_bytes(&self) -> usize {
        const FIXED: usize = 512;
        let definition = &self.schedule.definition;
        FIXED + definition.template.payload.len() + definition.note.as_deref().map_or(0, str::len)
    }

    /// A look at all that a fire takes.
    pub(crate) fn glance(&self) -> bool {
        let Schedule { definition, next, last_fire, active, .. } = &*self.schedule;
        next.is_some()
            ^ last_fire.is_some()
            ^ active.is_empty()
            ^ (Arc::strong_count(definition) > 1)
            ^ definition.template.payload.is_empty()
            ^ definition.note.is_some()
    }

    /// The record in `standings`, put together in `scratch`.
    pub(crate) fn encode_standing(&self, scratch: &mut Vec<u8>) -> Slice {
        scratch.clear();
        *scratch = self.append_standing(std::mem::take(scratch));
        Slice::from(&**scratch)
    }

    fn append_standing(&self, mut bytes: Vec<u8>) -> Vec<u8> {
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
        bytes.push(STANDING_VERSION);
        append(&(standing, self.sheet.record()), bytes)
    }

    /// The record in `schedules`.
    pub(crate) fn encode_definition(&self) -> Vec<u8> {
        definition::encode(&self.schedule.definition, vec![DEFINITION_VERSION])
    }

    pub(crate) fn decode(
        decoder: &mut Decoder<'_>,
        tenant: &Tenant,
        id: ScheduleId,
        definition: &Bytes,
        standing: &[u8],
    ) -> Result<Self, Unreadable> {
        let definition = decoder.decode(&body(definition)?)?;
        Self::place(tenant, id, Arc::new(definition), standing)
    }

    /// The schedule of that definition, where its record has it stand.
    fn place(
        tenant: &Tenant,
        id: ScheduleId,
        definition: Arc<Definition>,
        standing: &[u8],
    ) -> Result<Self, Unreadable> {
        let (standing, sheet) = read_standing(standing)?;
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
            definition,
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
        let (first_entry, sheet) = (standing.first_entry, Sheet::of(&sheet));
        Ok(Self { schedule: Arc::new(schedule), first_entry, sheet })
    }
}

/// Reads both records of a schedule. `get` reads what was committed together.
pub(crate) fn read(
    get: impl Fn(Keyspace, &[u8]) -> Result<Option<Bytes>, KvError>,
    rules: &Rules,
    tenant: &Tenant,
    id: ScheduleId,
) -> Result<Option<Stored>, Error> {
    let key = keys::schedule(tenant, id);
    let Some(definition) = get(Keyspace::Schedules, &key).map_err(read_error)? else { return Ok(None) };
    let standing = get(Keyspace::Standings, &key).map_err(read_error)?;
    // An empty record is none, and refused.
    let standing = standing.unwrap_or_default();
    let mut decoder = Decoder::new(rules);
    Stored::decode(&mut decoder, tenant, id, &definition, &standing).map(Some).map_err(unreadable)
}

/// What the jobs of a schedule ask for, and the key of its own; of its record in `schedules`. Can be read even when
/// its zone is not known.
pub(crate) fn template(definition: &Bytes) -> Result<(Template, Option<Arc<str>>), Unreadable> {
    definition::decode_template(&body(definition)?)
}

/// The number of the first entry of a schedule's ledger, and the entries on its sheet; of its record in `standings`.
pub(crate) fn ledger(id: ScheduleId, standing: &[u8]) -> Result<(u64, Vec<Numbered>), Unreadable> {
    let (standing, sheet) = read_standing(standing)?;
    Ok((standing.first_entry, sheet.entries(id)?))
}

fn body(definition: &Bytes) -> Result<Bytes, Unreadable> {
    match definition.first() {
        Some(&DEFINITION_VERSION) => Ok(definition.slice(1..)),
        Some(version) => Err(Unreadable::Version(*version)),
        None => Err(Unreadable::Nonsense("what a schedule is")),
    }
}

fn read_standing(bytes: &[u8]) -> Result<(Standing<'_>, SheetRecord<'_>), Unreadable> {
    match bytes {
        [STANDING_VERSION, rest @ ..] => postcard::from_bytes(rest).map_err(|_| NONSENSE),
        [STANDING_VERSION_WITHOUT_SHEET, rest @ ..] => {
            let standing = postcard::from_bytes(rest).map_err(|_| NONSENSE)?;
            Ok((standing, SheetRecord::default()))
        }
        [version, ..] => Err(Unreadable::Version(*version)),
        [] => Err(NONSENSE),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    use tidewheel_core::schedule::{NewSchedule, create};

    use crate::definition::tests::definition;

    #[test]
    fn a_standing_from_before_there_were_sheets_is_read() {
        let (id, tenant, now) =
            (ScheduleId::from_bytes([7; 16]), Tenant::default(), Timestamp::from_ms(1_800_000_000_000));
        let new =
            NewSchedule { id, tenant: tenant.clone(), name: None, definition: definition(), paused: false };
        let schedule = Arc::new(create(new, None, now).schedule);
        let stored = Stored { schedule, first_entry: 5, sheet: Sheet::default() };
        let new = stored.encode_standing(&mut Vec::new());
        let (sheet, standing) = new.split_last_chunk::<3>().map(|(rest, sheet)| (*sheet, rest)).unwrap();
        assert_eq!(sheet, [0, 0, 0], "a sheet without lines, after which there is nothing");
        let mut old = standing.to_vec();
        *old.first_mut().unwrap() = STANDING_VERSION_WITHOUT_SHEET;
        for standing in [&*new, &*old] {
            let read = Stored::place(&tenant, id, Arc::clone(&stored.schedule.definition), standing).unwrap();
            assert_eq!((read.schedule, read.first_entry), (Arc::clone(&stored.schedule), 5));
            assert_eq!(ledger(id, standing).unwrap(), (5, Vec::new()));
        }
    }
}
