//! Reading many records at once, of schedules and their jobs. Those that stand close together, as those of a herd do, are
//! read in one walk over them.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::ScheduleId;
use tidewheel_store::Error;

use super::Reader;
use crate::ahead::Looking;
use crate::definition::Decoder;
use crate::kv::{Direction, Keyspace, Kv, KvError, Snapshot};
use crate::lean::Lean;
use crate::place::{JobKey, ScheduleKey, ScheduleTag};
use crate::record::Unreadable;
use crate::rules::Rules;
use crate::schedule_record::Stored;
use crate::shared::{Shared, read_error};
use crate::unreadable::unreadable_job;
use crate::{keys, record};

/// Records that are looked for in one scan.
const STRETCH_COUNT: usize = 256;
/// Others that are stepped over for each of them, before they are looked up one by one.
const STEPPED_OVER_MAX: usize = 3;

/// Reads schedules for the commit thread. One that cannot be read is left to it, which has somebody to tell.
pub(crate) fn read_ahead(shared: &Shared, kv: &dyn Kv, mut schedules: Vec<ScheduleKey>) {
    let reading = shared.view.begin();
    let looking = shared.ahead.begin();
    let snapshot = kv.snapshot();
    schedules.sort_unstable_by(|a, b| (&a.tenant, a.id).cmp(&(&b.tenant, b.id)));
    let named: Vec<_> = schedules.iter().map(|key| (&key.tenant, key.id)).collect();
    if let Ok(read) = read_schedules(&*snapshot, &shared.rules, &named, Wanted::All) {
        let found = schedules.iter().zip(read);
        looking.keep(found.filter_map(|(key, found)| Some((key.tag(), found.stored?))));
    }
    drop(reading);
}

/// Which records of schedules to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Definitions,
    All,
}

/// What was found of a schedule.
#[derive(Clone, Default)]
struct Found {
    /// The record of its definition.
    definition: Option<Bytes>,
    stored: Option<Stored>,
}

/// Reads schedules, given in the order of their keys: the records of their definitions and, if all is wanted, themselves
/// where they can be read.
fn read_schedules(
    snapshot: &dyn Snapshot,
    rules: &Rules,
    schedules: &[(&Tenant, ScheduleId)],
    wanted: Wanted,
) -> Result<Vec<Found>, KvError> {
    let on_disk: Vec<_> = schedules.iter().map(|(tenant, id)| keys::schedule(tenant, *id)).collect();
    let mut found = vec![Found::default(); schedules.len()];
    read_many(snapshot, Keyspace::Schedules, &on_disk, &mut |at, bytes| {
        if let Some(found) = found.get_mut(at) {
            found.definition = Some(Bytes::copy_from_slice(bytes));
        }
    })?;
    if wanted == Wanted::Definitions {
        return Ok(found);
    }
    let mut decoder = Decoder::new(rules);
    read_many(snapshot, Keyspace::Standings, &on_disk, &mut |at, standing| {
        if let (Some((tenant, id)), Some(Found { definition: Some(definition), stored })) =
            (schedules.get(at), found.get_mut(at))
        {
            *stored = Stored::decode(&mut decoder, tenant, *id, definition, standing).ok();
        }
    })?;
    Ok(found)
}

/// Reads the values of many keys, which are sorted; hands them over with the places of their keys.
fn read_many(
    snapshot: &dyn Snapshot,
    keyspace: Keyspace,
    wanted: &[Vec<u8>],
    take: &mut impl FnMut(usize, &[u8]),
) -> Result<(), KvError> {
    let mut is_dense = true;
    let mut done = 0;
    for stretch in wanted.chunks(STRETCH_COUNT) {
        let mut got_to = 0;
        if is_dense {
            got_to = scan_for(snapshot, keyspace, stretch, &mut |at, value| take(done + at, value))?;
            is_dense = got_to > stretch.len() / 2;
        }
        for (at, key) in stretch.iter().enumerate().skip(got_to) {
            if let Some(bytes) = snapshot.get(keyspace, key)? {
                take(done + at, &bytes);
            }
        }
        done += stretch.len();
    }
    Ok(())
}

/// Looks for keys that stand close together; says how many of them it got to.
fn scan_for(
    snapshot: &dyn Snapshot,
    keyspace: Keyspace,
    wanted: &[Vec<u8>],
    take: &mut impl FnMut(usize, &[u8]),
) -> Result<usize, KvError> {
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(0) };
    let range = (Bound::Included(&**first), Bound::Included(&**last));
    let (mut at, mut steps, mut is_cut_short) = (0, 0, false);
    snapshot.scan(keyspace, range, Direction::Up, &mut |key, value| {
        steps += 1;
        while let Some(next) = wanted.get(at) {
            match (**next).cmp(key) {
                Ordering::Greater => break,
                Ordering::Equal => take(at, value),
                Ordering::Less => {}
            }
            at += 1;
        }
        is_cut_short = steps > wanted.len() * (1 + STEPPED_OVER_MAX);
        if at >= wanted.len() || is_cut_short { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    // What the walk came to the end for is not there.
    Ok(if is_cut_short { at } else { wanted.len() })
}

impl Reader<'_> {
    /// Many jobs of one tenant: those that wait for one time stand together.
    pub(super) fn get_many(&self, tenant: &Tenant, ids: &[JobId]) -> Result<Vec<Option<Job>>, Error> {
        let mut sorted: Vec<_> =
            (0_usize..).zip(ids).map(|(at, id)| (keys::job(self.shards, tenant, *id), at, *id)).collect();
        sorted.sort_unstable();
        let (on_disk, places): (Vec<_>, Vec<_>) =
            sorted.into_iter().map(|(key, at, id)| (key, (at, id))).unzip();
        let mut found: Vec<Option<Bytes>> = vec![None; ids.len()];
        read_many(&*self.snapshot, Keyspace::Waiting, &on_disk, &mut |at, bytes| {
            if let Some(record) = found.get_mut(at) {
                *record = Some(Bytes::copy_from_slice(bytes));
            }
        })
        .map_err(read_error)?;
        let mut lean = Vec::new();
        for ((_, id), record) in places.iter().zip(&found) {
            let record = record.as_deref().unwrap_or_default();
            let read = Lean::read(*id, record).map_err(|reason| unreadable_job(tenant, *id, reason))?;
            lean.extend(read.map(|lean| (*id, lean)));
        }
        let resolved = lean.iter().zip(self.resolve(tenant, &lean, None)?);
        let named = resolved.map(|((id, _), job)| job.map_err(|reason| unreadable_job(tenant, *id, reason)));
        let mut resolved = named.collect::<Result<Vec<_>, Error>>()?.into_iter().peekable();
        let mut jobs = Vec::with_capacity(ids.len());
        for ((at, id), record) in places.into_iter().zip(found) {
            let key = JobKey { id, tenant: tenant.clone() };
            let job = match (resolved.next_if(|job| job.id == id), record) {
                (Some(job), _) => Some(self.running_or(key.tag(), Arc::unwrap_or_clone(job))),
                (None, Some(record)) => {
                    let job = record::decode(tenant, id, &record);
                    let job = job.map_err(|reason| unreadable_job(tenant, id, reason))?;
                    Some(self.running_or(key.tag(), job))
                }
                (None, None) => self.get_one(key)?,
            };
            jobs.push((at, job));
        }
        jobs.sort_unstable_by_key(|(at, _)| *at);
        Ok(jobs.into_iter().map(|(_, job)| job).collect())
    }

    /// The jobs of lean records of one tenant, in their order, as far as their schedules can be read. If they are about to
    /// be claimed, keeps their schedules for that.
    pub(super) fn resolve(
        &self,
        tenant: &Tenant,
        records: &[(JobId, Lean)],
        looking: Option<&Looking<'_>>,
    ) -> Result<Vec<Result<Arc<Job>, Unreadable>>, Error> {
        let mut sorted: Vec<_> = (0_usize..).zip(records).collect();
        sorted.sort_unstable_by_key(|(_, (_, lean))| lean.occurrence.schedule_id);
        let schedules: Vec<_> =
            sorted.iter().map(|(_, (_, lean))| (tenant, lean.occurrence.schedule_id)).collect();
        let wanted = if looking.is_some() { Wanted::All } else { Wanted::Definitions };
        let read =
            read_schedules(&*self.snapshot, &self.shared.rules, &schedules, wanted).map_err(read_error)?;
        let mut jobs = Vec::with_capacity(records.len());
        let mut ahead = Vec::with_capacity(records.len());
        for ((at, (id, lean)), Found { definition, stored }) in sorted.into_iter().zip(read) {
            let job = match &stored {
                Some(Stored { schedule, .. }) => {
                    let definition = &schedule.definition;
                    Ok(lean.job(tenant, *id, &definition.template, definition.idempotency_key.as_deref()))
                }
                None => lean.resolve(tenant, *id, definition.as_ref()),
            };
            jobs.push((at, job.map(Arc::new)));
            let is_next = |stored: &Stored| stored.schedule.next.is_some_and(|next| next.job_id == *id);
            let tag = ScheduleTag::new(tenant, lean.occurrence.schedule_id);
            ahead.extend(stored.filter(is_next).map(|stored| (tag, stored)));
        }
        if let Some(looking) = looking {
            looking.keep(ahead.into_iter());
        }
        jobs.sort_unstable_by_key(|(at, _)| *at);
        Ok(jobs.into_iter().map(|(_, job)| job).collect())
    }
}
