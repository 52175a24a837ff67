//! Reading into a [`Desk`]: many keys in one statement, each answered or known to be absent.

use std::collections::BTreeSet;
use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Status};
use tidewheel_core::limits::BUCKET_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{HeldKey, KeyUse};
use tokio_postgres::Row;

use crate::desk::{Desk, Found, JobKey, JobMark, Named, ScheduleKey, StoredJob, StoredKey, StoredSchedule};
use crate::fault::Trouble;
use crate::record::rule::{Rules, read_dates};
use crate::record::spec::Body;
use crate::record::{Unreadable, schedule, spec, status};
use crate::sql;
use crate::uid::Uid;
use crate::unreadable::or_unreadable;

/// A shard, as a column holds it.
pub(crate) fn shard_column(shard: Shard) -> i16 {
    i16::try_from(shard.0).unwrap_or(i16::MAX)
}

/// A bucket, as a column holds it: no instant lies beyond.
pub(crate) fn bucket_column(bucket: Bucket) -> i32 {
    i32::try_from(bucket.0).unwrap_or(i32::MAX)
}

/// The shard a job is put into: the one place that says so. From then on it is the one stored with the job.
pub(crate) fn shard_of(job: &Job, shards: u16) -> i16 {
    shard_column(Shard::of_job(&job.tenant, job.id, shards))
}

/// The keys of jobs, as statements take them.
struct JobKeys<'k> {
    tenants: Vec<&'k str>,
    ids: Vec<Uid>,
    run_ats: Vec<i64>,
}

impl<'k> JobKeys<'k> {
    fn new(keys: &'k [JobKey]) -> Self {
        Self {
            tenants: keys.iter().map(|(tenant, _)| tenant.as_str()).collect(),
            ids: keys.iter().map(|(_, id)| (*id).into()).collect(),
            run_ats: keys.iter().map(|(_, id)| id.run_at().as_ms()).collect(),
        }
    }

    /// The first and the last time in the ids.
    fn span(&self) -> (i64, i64) {
        let (first, last) = (self.run_ats.iter().min(), self.run_ats.iter().max());
        (first.copied().unwrap_or(0), last.copied().unwrap_or(0))
    }
}

/// Which row answers which question.
pub(crate) fn ordinal(row: &Row) -> Result<usize, Trouble> {
    let ord: i64 = row.try_get("ord")?;
    Ok(usize::try_from(ord - 1).unwrap_or(usize::MAX))
}

/// The job in a row with its body, nothing having happened to it.
pub(crate) fn fresh_job(tenant: &Tenant, id: JobId, row: &Row) -> Result<Job, Trouble> {
    job_with(tenant, id, row, Status::scheduled(id.run_at()))
}

/// The job in a row with its body and its status.
pub(crate) fn changed_job(tenant: &Tenant, id: JobId, row: &Row) -> Result<Job, Trouble> {
    let standing = status::decode(row.try_get("status")?, id.run_at())?;
    job_with(tenant, id, row, standing)
}

fn job_with(tenant: &Tenant, id: JobId, row: &Row, status: Status) -> Result<Job, Trouble> {
    let body =
        Body { kind: row.try_get("kind")?, spec: row.try_get("spec")?, payload: row.try_get("payload")? };
    let spec = spec::decode(&body, id.run_at())?;
    Ok(Job { id, tenant: tenant.clone(), spec: Arc::new(spec), status })
}

/// A job that was taken out, in the column of states.
pub(crate) const REMOVED: i16 = 8;

/// The job in a row with its body and its last event, if there is one.
pub(crate) fn found_job(tenant: &Tenant, id: JobId, row: &Row) -> Result<Found, Trouble> {
    let found = or_unreadable(read_job(tenant, id, row))?;
    Ok(found.unwrap_or_else(|reason| Found::Unreadable(format!("job {id} of tenant {tenant}: {reason}"))))
}

fn read_job(tenant: &Tenant, id: JobId, row: &Row) -> Result<Found, Trouble> {
    let shard = row.try_get("shard")?;
    let Some(seq) = row.try_get::<_, Option<i32>>("seq")? else {
        let mark = JobMark { seq: 0, body_seq: None, shard };
        return Ok(Found::Stored(StoredJob { job: Arc::new(fresh_job(tenant, id, row)?), mark }));
    };
    let mark = JobMark { seq, body_seq: row.try_get("body_seq")?, shard };
    if row.try_get::<_, i16>("state")? == REMOVED {
        return Ok(Found::Removed(mark));
    }
    Ok(Found::Stored(StoredJob { job: Arc::new(changed_job(tenant, id, row)?), mark }))
}

/// Jobs as they stand.
pub(crate) async fn find_jobs(
    client: &ClientWrapper,
    keys: &[JobKey],
) -> Result<Vec<Option<Found>>, Trouble> {
    let mut found = Vec::new();
    found.resize_with(keys.len(), || None);
    if keys.is_empty() {
        return Ok(found);
    }
    let columns = JobKeys::new(keys);
    let (first, last) = columns.span();
    let statement = client.prepare_cached(sql::FIND_JOBS).await?;
    let rows =
        client.query(&statement, &[&columns.tenants, &columns.ids, &columns.run_ats, &first, &last]).await?;
    for row in &rows {
        let number = ordinal(row)?;
        if let (Some(slot), Some((tenant, id))) = (found.get_mut(number), keys.get(number)) {
            *slot = Some(found_job(tenant, *id, row)?);
        }
    }
    Ok(found)
}

/// Reads jobs. Whatever is found is what was there when it was found; whether it still is, the write will tell.
pub(crate) async fn load_jobs(
    client: &ClientWrapper,
    desk: &mut Desk,
    keys: BTreeSet<JobKey>,
) -> Result<(), Trouble> {
    let keys: Vec<JobKey> = keys.into_iter().collect();
    let found = find_jobs(client, &keys).await?;
    for (key, found) in keys.into_iter().zip(found) {
        desk.add_job(key, found);
    }
    Ok(())
}

/// Reads what is missing. Schedules are locked: theirs is the order of everything about them and their jobs.
pub(crate) async fn load_missing(
    client: &ClientWrapper,
    rules: &Rules,
    desk: &mut Desk,
) -> Result<(), Trouble> {
    let missing = std::mem::take(&mut desk.missing);
    load_schedules(client, rules, desk, missing.schedules).await?;
    load_jobs(client, desk, missing.jobs).await?;
    load_keys(client, desk, missing.keys).await?;
    for (sql, names, is_calendar) in
        [(sql::FIND_NAMES, missing.names, false), (sql::FIND_CALENDARS, missing.calendars, true)]
    {
        if names.is_empty() {
            continue;
        }
        let names: Vec<Named> = names.into_iter().collect();
        let (tenants, texts) = split(&names);
        let statement = client.prepare_cached(sql).await?;
        let rows = client.query(&statement, &[&tenants, &texts]).await?;
        for name in &names {
            if is_calendar {
                desk.add_calendar(name.clone(), None)
            } else {
                desk.add_name(name.clone(), None)
            }
        }
        for row in &rows {
            let Some(name) = names.get(ordinal(row)?) else { continue };
            if is_calendar {
                let dates = read_dates(&row.try_get::<_, Vec<i32>>("dates")?)?;
                desk.add_calendar(name.clone(), Some(Arc::new(dates)));
            } else {
                desk.add_name(name.clone(), Some(row.try_get::<_, Uid>("id")?.schedule()));
            }
        }
    }
    Ok(())
}

fn split(names: &[Named]) -> (Vec<&str>, Vec<&str>) {
    names.iter().map(|(tenant, name)| (tenant.as_str(), &**name)).unzip()
}

async fn load_schedules(
    client: &ClientWrapper,
    rules: &Rules,
    desk: &mut Desk,
    keys: BTreeSet<ScheduleKey>,
) -> Result<(), Trouble> {
    if keys.is_empty() {
        return Ok(());
    }
    let keys: Vec<ScheduleKey> = keys.into_iter().collect();
    let tenants: Vec<&str> = keys.iter().map(|(tenant, _)| tenant.as_str()).collect();
    let ids: Vec<Uid> = keys.iter().map(|(_, id)| (*id).into()).collect();
    let statement = client.prepare_cached(sql::LOCK_SCHEDULES).await?;
    let rows = client.query(&statement, &[&tenants, &ids]).await?;
    let mut found = Vec::new();
    found.resize_with(keys.len(), || None);
    for row in &rows {
        let number = ordinal(row)?;
        let (Some(slot), Some((tenant, id))) = (found.get_mut(number), keys.get(number)) else { continue };
        let revision = row.try_get("revision")?;
        *slot = Some(match schedule::decode(rules, tenant, *id, row.try_get("record")?) {
            Ok(schedule) => StoredSchedule::Sound { schedule: Box::new(schedule), revision },
            Err(reason) => {
                tracing::error!(%tenant, schedule = %id, %reason, "a schedule cannot be read");
                StoredSchedule::Unreadable(reason.to_string())
            }
        });
    }
    for (key, stored) in keys.into_iter().zip(found) {
        desk.add_schedule_read(key, stored);
    }
    Ok(())
}

/// Reads what keys were used for, also those whose time is over.
pub(crate) async fn load_keys(
    client: &ClientWrapper,
    desk: &mut Desk,
    names: BTreeSet<Named>,
) -> Result<(), Trouble> {
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<Named> = names.into_iter().collect();
    let found = find_keys(client, &names).await?;
    for (name, stored) in names.into_iter().zip(found) {
        desk.add_key(name, stored);
    }
    Ok(())
}

pub(crate) async fn find_keys(
    client: &ClientWrapper,
    names: &[Named],
) -> Result<Vec<Option<StoredKey>>, Trouble> {
    let (tenants, texts) = split(names);
    let statement = client.prepare_cached(sql::FIND_KEYS).await?;
    let rows = client.query(&statement, &[&tenants, &texts]).await?;
    let mut found = vec![None; names.len()];
    for row in &rows {
        if let Some(slot) = found.get_mut(ordinal(row)?) {
            *slot = Some(read_key(row)?);
        }
    }
    Ok(found)
}

fn read_key(row: &Row) -> Result<StoredKey, Trouble> {
    let nonsense = Unreadable::Nonsense("what a key was used for");
    let target: Option<Uid> = row.try_get("target")?;
    let used_for = match (row.try_get::<_, i16>("used_for")?, target) {
        (0, Some(id)) => KeyUse::Job(id.job()),
        (1, Some(id)) => KeyUse::NewSchedule(id.schedule()),
        (2, Some(id)) => KeyUse::Schedule(id.schedule()),
        (3, None) => KeyUse::Call,
        (_, Some(_) | None) => return Err(nonsense.into()),
    };
    let fingerprint = <[u8; 16]>::try_from(row.try_get::<_, &[u8]>("fingerprint")?).map_err(|_| nonsense)?;
    let until = Timestamp::from_ms(row.try_get("until")?);
    Ok(StoredKey { held: HeldKey { used_for, fingerprint }, until })
}

/// Buckets are part of the keys in `agenda` and `timers`; the migration and the statements spell their width out.
const _: () = assert!(BUCKET_MS == 600_000);
