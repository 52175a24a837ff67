//! Opening: checks that the folder was made by a program and with settings this one agrees with, and reads back
//! what is kept in memory. Nothing here grows with the number of waiting jobs.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use tidewheel_core::limits::BUCKET_MS;
use tidewheel_core::place::Bucket;

use crate::attempts::{Claim, Lease};
use crate::commit::Trail;
use crate::kv::{Batch, Day, Direction, Durability, Keyspace, Kv, KvError, Snapshot};
use crate::options::OpenError;
use crate::place::{JobKey, JobTag, ScheduleTag};
use crate::record::Unreadable;
use crate::shared::Remembered;
use crate::view::UnderWay;
use crate::{keys, lean, versioned};

/// 1 had schedules in one record each.
const FORMAT_VERSION: u16 = 2;

#[derive(Serialize, Deserialize)]
struct Format {
    version: u16,
    shards: u16,
    bucket_ms: i64,
}

/// What is kept in memory, as it was left.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) epoch: u64,
    pub(crate) remembered: Remembered,
    /// The number of the next entry in a ledger.
    pub(crate) next_entry: u64,
    pub(crate) running: Vec<(JobTag, UnderWay)>,
    pub(crate) claims: FxHashMap<u64, usize>,
    pub(crate) next_claim: u64,
    /// Jobs that are tried again at the very instant in their id.
    pub(crate) retrying_at_home: FxHashSet<JobTag>,
    /// Schedules with an occurrence that waits for the end of another.
    pub(crate) holding: FxHashSet<ScheduleTag>,
    /// The number of the newest change of a document.
    pub(crate) document_change: u64,
    /// Where the chains of the audit trail end.
    pub(crate) trail: Trail,
}

pub(crate) fn open(kv: &Arc<dyn Kv>, path: &Path, shards: u16) -> Result<Found, OpenError> {
    let from_kv = |error| OpenError::from_kv(path.to_owned(), error);
    check_format(&**kv, path, shards)?;
    finish_dropping(&**kv).map_err(from_kv)?;
    let mut found = Found::default();
    let mut stale = Batch::default();
    {
        let snapshot = kv.snapshot();
        read_meta(&*snapshot, &mut found).map_err(from_kv)?;
        read_days(&**kv, &*snapshot, &mut found).map_err(from_kv)?;
        read_claims(&*snapshot, shards, &mut found, &mut stale).map_err(from_kv)?;
    }
    if !stale.0.is_empty() {
        kv.commit(stale, Durability::Synced).map_err(from_kv)?;
    }
    Ok(found)
}

fn check_format(kv: &dyn Kv, path: &Path, shards: u16) -> Result<(), OpenError> {
    let from_kv = |error| OpenError::from_kv(path.to_owned(), error);
    for keyspace in Keyspace::FIXED {
        kv.create(keyspace).map_err(from_kv)?;
    }
    let Some(bytes) = kv.get(Keyspace::Meta, keys::meta::FORMAT).map_err(from_kv)? else {
        let mut batch = Batch::default();
        let format = Format { version: FORMAT_VERSION, shards, bucket_ms: BUCKET_MS };
        batch.put(Keyspace::Meta, keys::meta::FORMAT.to_vec(), versioned::encode(&format));
        return kv.commit(batch, Durability::Synced).map_err(from_kv);
    };
    let format: Format = versioned::decode(&bytes, Unreadable::Nonsense("the format"))
        .map_err(|error| from_kv(KvError::Corrupt(error.to_string())))?;
    let differs = |what, found, known| OpenError::Format { path: path.to_owned(), what, found, known };
    if format.version != FORMAT_VERSION {
        return Err(differs("format version", i64::from(format.version), i64::from(FORMAT_VERSION)));
    }
    if format.bucket_ms != BUCKET_MS {
        return Err(differs("buckets (in milliseconds) of", format.bucket_ms, BUCKET_MS));
    }
    if format.shards != shards {
        return Err(OpenError::Shards { path: path.to_owned(), found: format.shards, asked: shards });
    }
    Ok(())
}

/// A crash may have come between the counts of a dropped day and its keyspace.
fn finish_dropping(kv: &dyn Kv) -> Result<(), KvError> {
    let mut dropping = Vec::new();
    scan_prefix(&*kv.snapshot(), Keyspace::Meta, &[keys::meta::DROPPING], |key, _| {
        if let [_, a, b, c, d] = *key {
            dropping.push(Day(u32::from_be_bytes([a, b, c, d])));
        }
        Ok(())
    })?;
    for day in dropping {
        kv.remove(Keyspace::History(day))?;
        let mut batch = Batch::default();
        batch.delete(Keyspace::Meta, keys::meta::dropping(day));
        kv.commit(batch, Durability::Synced)?;
    }
    Ok(())
}

fn read_meta(snapshot: &dyn Snapshot, found: &mut Found) -> Result<(), KvError> {
    let epoch = snapshot.get(Keyspace::Meta, keys::meta::EPOCH)?;
    found.epoch = epoch.and_then(|bytes| <[u8; 8]>::try_from(&*bytes).ok()).map_or(0, u64::from_be_bytes);
    let entry = snapshot.get(Keyspace::Meta, keys::meta::NEXT_ENTRY)?;
    found.next_entry =
        entry.and_then(|bytes| <[u8; 8]>::try_from(&*bytes).ok()).map_or(0, u64::from_be_bytes);
    let ledger_from = snapshot.get(Keyspace::Meta, keys::meta::LEDGER_FROM)?;
    found.remembered.days.ledger_from = ledger_from
        .and_then(|bytes| <[u8; 4]>::try_from(&*bytes).ok())
        .map_or(Day(0), |day| Day(u32::from_be_bytes(day)));
    found.document_change = crate::documents::newest_change(snapshot)?;
    found.trail = Trail::load(snapshot)?;
    scan_prefix(snapshot, Keyspace::Meta, &[keys::meta::SCHEDULES], |key, value| {
        found.remembered.schedules.load(key, value)
    })?;
    scan_prefix(snapshot, Keyspace::Meta, &[keys::meta::RETRYING], |key, _| {
        let parsed = key.split_first().and_then(|(_, natural)| keys::parse(natural));
        let tag = parsed.and_then(|parsed| Some(JobTag::new(&parsed.tenant_name()?, parsed.id)));
        found.retrying_at_home.insert(tag.ok_or(Unreadable::Nonsense("a job that is tried again"))?);
        Ok(())
    })?;
    scan_prefix(snapshot, Keyspace::Meta, &[keys::meta::HOLDING], |key, _| {
        let parsed = key.split_first().and_then(|(_, schedule)| keys::parse_schedule(schedule));
        let (tenant, id) = parsed.ok_or(Unreadable::Nonsense("a schedule with a job that waits"))?;
        found.holding.insert(ScheduleTag::new(&tenant, id));
        Ok(())
    })?;
    scan_prefix(snapshot, Keyspace::Meta, &[keys::meta::SUB_SHARDS], |key, value| {
        found.remembered.spread.load(key, value)
    })?;
    for prefix in [keys::meta::TENANTS, keys::meta::DAYS] {
        scan_prefix(snapshot, Keyspace::Meta, &[prefix], |key, value| {
            found.remembered.counters.load(key, value)
        })?;
    }
    Ok(())
}

fn read_days(kv: &dyn Kv, snapshot: &dyn Snapshot, found: &mut Found) -> Result<(), KvError> {
    for keyspace in kv.keyspaces() {
        match keyspace {
            Keyspace::Keys(day) => {
                found.remembered.days.keys.insert(day);
            }
            Keyspace::Ledger(day) => {
                found.remembered.days.ledger.insert(day);
            }
            Keyspace::Audit(day) => {
                found.remembered.days.audit.insert(day);
            }
            Keyspace::History(day) => {
                for direction in [Direction::Up, Direction::Down] {
                    let mut bucket = Bucket(0);
                    snapshot.scan(
                        keyspace,
                        (Bound::Unbounded, Bound::Unbounded),
                        direction,
                        &mut |key, _| {
                            bucket = keys::parse(key).map_or(bucket, |parsed| parsed.bucket);
                            ControlFlow::Break(())
                        },
                    )?;
                    found.remembered.days.widen(day, bucket);
                }
            }
            Keyspace::Waiting
            | Keyspace::Parked
            | Keyspace::Dead
            | Keyspace::Claims
            | Keyspace::Leases
            | Keyspace::Meta
            | Keyspace::Schedules
            | Keyspace::Standings
            | Keyspace::Names
            | Keyspace::Calendars
            | Keyspace::Documents => {}
        }
    }
    Ok(())
}

/// Takes up the attempts that were under way; forgets records of which none is left.
fn read_claims(
    snapshot: &dyn Snapshot,
    shards: u16,
    found: &mut Found,
    stale: &mut Batch,
) -> Result<(), KvError> {
    let nonsense = || Unreadable::Nonsense("attempts under way");
    let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
    scan_prefix(snapshot, Keyspace::Claims, &[], |key, value| {
        let number = <[u8; 8]>::try_from(key).map(u64::from_be_bytes).map_err(|_| nonsense())?;
        records.push((number, value.to_vec()));
        Ok(())
    })?;
    for (number, record) in records {
        let claims: Vec<Claim<'_>> = versioned::decode(&record, nonsense())
            .map_err(|unreadable| KvError::Corrupt(unreadable.to_string()))?;
        found.next_claim = number + 1;
        let before = found.running.len();
        for claim in claims {
            if let Some(under_way) = resume(snapshot, shards, &claim, number)? {
                found.running.push((under_way.tag(), under_way));
            }
        }
        match found.running.len() - before {
            0 => stale.delete(Keyspace::Claims, number.to_be_bytes().to_vec()),
            left => {
                found.claims.insert(number, left);
            }
        }
    }
    Ok(())
}

fn resume(
    snapshot: &dyn Snapshot,
    shards: u16,
    claim: &Claim<'_>,
    number: u64,
) -> Result<Option<UnderWay>, KvError> {
    let Some(tenant) = claim.tenant() else {
        return Err(KvError::Corrupt("an attempt under way of no tenant".to_owned()));
    };
    let key = JobKey { id: claim.id(), tenant };
    let natural = key.natural(shards);
    let stored = match snapshot.get(Keyspace::Waiting, &natural)? {
        Some(bytes) => Some(bytes),
        None => snapshot.get(Keyspace::Parked, &natural)?,
    };
    let Some(bytes) = stored else { return Ok(None) };
    let job = lean::read_job(|keyspace, key| snapshot.get(keyspace, key), &key.tenant, key.id, &bytes)?;
    let Some(mut job) = claim.resume(job) else { return Ok(None) };
    let has_lease = match snapshot.get(Keyspace::Leases, &natural)? {
        None => false,
        Some(bytes) => {
            let nonsense = Unreadable::Nonsense("a lease");
            let lease: Lease = versioned::decode(&bytes, nonsense).map_err(|error| corrupt(&error))?;
            lease.renew(&mut job)
        }
    };
    Ok(Some(UnderWay::new(Arc::new(job), number, has_lease).without_payload()))
}

/// Walks all keys that begin with `prefix`.
pub(crate) fn scan_prefix(
    snapshot: &dyn Snapshot,
    keyspace: Keyspace,
    prefix: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Unreadable>,
) -> Result<(), KvError> {
    let mut outcome = Ok(());
    let end = keys::after_prefix(prefix.to_vec());
    let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&*end) };
    snapshot.scan(keyspace, (Bound::Included(prefix), end), Direction::Up, &mut |key, value| {
        outcome = visit(key, value);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome.map_err(|error| corrupt(&error))
}

fn corrupt(error: &Unreadable) -> KvError {
    KvError::Corrupt(error.to_string())
}
