//! What waits: buckets, tenants, jobs. Jobs nothing has happened to yet are found by the agenda, those that wait at a time
//! of their own in a table of theirs; both come in the order of their keys, and are merged here.

use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use futures_util::future::try_join3;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Due, DuePage, TenantDue};
use tokio_postgres::Row;

use crate::connections::{Lane, SIDE_BY_SIDE};
use crate::desk::{JobMark, StoredJob};
use crate::fault::Trouble;
use crate::load::{bucket_column, changed_job, fresh_job, shard_column};
use crate::record::Unreadable;
use crate::sql;
use crate::store::Database;
use crate::uid::Uid;
use crate::unreadable::{Told, or_unreadable};

/// A tail with all bits set, and so the last id of its instant.
const LAST_TAIL: u128 = u128::MAX;

/// Jobs of a place that are looked at to tell whether one of them waits. Where all have begun, the marks have not moved yet, and
/// to pass them all would cost as much as the listing that follows.
const LOOKED_COUNT: i64 = 64;

/// How many rows a statement may give.
fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The first id after `position` that a job due at the time in its id may have.
fn first_after(position: Position) -> Uid {
    let Position { at, id } = position;
    let floor = if id.run_at() == at {
        u128::from_be_bytes(*id.as_bytes()).saturating_add(1)
    } else if id.run_at() < at {
        // It was moved here: jobs that were set for this instant from the start have higher ids.
        u128::from_be_bytes(*JobId::new(at, 0).as_bytes())
    } else {
        u128::from_be_bytes(*JobId::new(at, LAST_TAIL).as_bytes()).saturating_add(1)
    };
    Uid(floor.to_be_bytes())
}

/// The first id of an instant after `at`.
fn first_later(at: Timestamp) -> Uid {
    let last = u128::from_be_bytes(*JobId::new(at, LAST_TAIL).as_bytes());
    if at < Timestamp::from_ms(0) { Uid([0; 16]) } else { Uid(last.saturating_add(1).to_be_bytes()) }
}

/// The first id of a bucket; of one that no id reaches, one beyond them all.
pub(crate) fn first_of(bucket: Bucket) -> Uid {
    let id = JobId::new(bucket.start(), 0);
    if id.run_at() == bucket.start() { id.into() } else { Uid([u8::MAX; 16]) }
}

impl Database {
    pub(crate) async fn next_bucket_now(
        &self,
        shard: Shard,
        from: Bucket,
        until: Bucket,
    ) -> Result<Option<Bucket>, Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        let statement = client.prepare_cached(sql::NEXT_BUCKET).await?;
        let range = (bucket_column(from), bucket_column(until));
        let row =
            client.query_one(&statement, &[&shard_column(shard), &range.0, &range.1, &LOOKED_COUNT]).await?;
        let bucket: Option<i32> = row.try_get(0)?;
        Ok(bucket.and_then(|bucket| u32::try_from(bucket).ok()).map(Bucket))
    }

    pub(crate) async fn due_tenants_now(
        &self,
        shard: Shard,
        bucket: Bucket,
        after: Option<&Tenant>,
        count_max: usize,
    ) -> Result<Vec<TenantDue>, Trouble> {
        let transaction = self.connections.begin_read(Lane::Scheduler, SIDE_BY_SIDE).await?;
        let place = (shard_column(shard), bucket_column(bucket), after.map_or("", Tenant::as_str));
        let named = named_tenants(transaction.client()?, place, limit(count_max)).await;
        let mut tenants = transaction.end_read(named).await?;
        // Of the two entries of one tenant the earlier stands first, and stays.
        tenants.sort();
        tenants.dedup_by(|(later, _), (earlier, _)| later == earlier);
        tenants.truncate(count_max);
        let named = tenants.into_iter().map(|(name, first_at)| {
            let tenant = Tenant::new(&name).map_err(|_| Unreadable::Nonsense("a tenant"))?;
            Ok(TenantDue { tenant, first_at })
        });
        named.collect()
    }

    pub(crate) async fn due_now(&self, due: &Due) -> Result<DuePage, Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        // Sent one behind the other, without waiting for answers in between; and in this order: a job that nothing has
        // happened to may get a timer meanwhile, but not the other way round.
        let (mut rows, timers, next_at) =
            try_join3(read_fresh(&client, due), read_timers(&client, due), next_at(&client, due)).await?;
        rows.retain(|fresh| timers.iter().all(|timer| timer.position.id != fresh.position.id));
        rows.extend(timers);
        rows.sort_by_key(|row| row.position);
        let mut page = DuePage::default();
        let (mut seen, mut bytes, mut passed, mut last) = (Vec::new(), 0, 0, None);
        let mut told = Told::of_reads();
        for Waiting { position, size, stored } in rows {
            bytes += size;
            let full = passed >= due.count_max || bytes > due.bytes_max;
            if full && last.is_some() {
                page.resume = last;
                break;
            }
            // One that cannot be read takes up room, too: the page ends where the statements did, and the next begins behind.
            (passed, last) = (passed + 1, Some(position));
            match stored {
                Ok(stored) => {
                    page.jobs.push(Arc::clone(&stored.job));
                    seen.push(stored);
                }
                Err(reason) => {
                    page.unread += 1;
                    told.tell(due.tenant.as_str(), position.id, &reason);
                }
            }
        }
        self.recall.note_read(seen.into_iter());
        if page.resume.is_none() {
            page.next_at = next_at;
        }
        Ok(page)
    }

    pub(crate) async fn running_now(&self) -> Result<Vec<Job>, Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        let statement = client.prepare_cached(sql::ALL_RUNNING).await?;
        let rows = client.query(&statement, &[]).await?;
        let (mut jobs, mut told) = (Vec::with_capacity(rows.len()), Told::of_reads());
        for row in &rows {
            let (name, id): (&str, Uid) = (row.try_get("tenant")?, row.try_get("id")?);
            let tenant = Tenant::new(name).map_err(|_| Trouble::from(Unreadable::Nonsense("a tenant")));
            match or_unreadable(tenant.and_then(|tenant| changed_job(&tenant, id.job(), row)))? {
                Ok(job) => jobs.push(job.without_payload()),
                Err(reason) => told.tell(name, id.job(), &reason),
            }
        }
        Ok(jobs)
    }
}

/// A row of a due read: where it stands, how many bytes it counts for, and the job, or why it cannot be read.
struct Waiting {
    position: Position,
    size: usize,
    stored: Result<StoredJob, String>,
}

impl Waiting {
    fn new(row: &Row, position: Position, stored: Result<StoredJob, Trouble>) -> Result<Self, Trouble> {
        let stored = or_unreadable(stored)?;
        let size = match &stored {
            Ok(stored) => stored.job.size_bytes(),
            // As the statement counts it: a page that is less full than it says would end before all is read.
            Err(_) => usize::try_from(row.try_get::<_, i32>("size")?).unwrap_or(0),
        };
        Ok(Self { position, size, stored })
    }
}

/// Tenants of a place and when each has its first job there: by those nothing has happened to, then by timers.
async fn named_tenants(
    client: &ClientWrapper,
    (shard, bucket, after): (i16, i32, &str),
    count: i64,
) -> Result<Vec<(String, Timestamp)>, Trouble> {
    let fresh = client.prepare_cached(sql::FRESH_TENANTS).await?;
    let timers = client.prepare_cached(sql::TIMER_TENANTS).await?;
    let mut tenants = Vec::new();
    for row in client.query(&fresh, &[&shard, &bucket, &after, &count]).await? {
        tenants.push((row.try_get(0)?, row.try_get::<_, Uid>(1)?.job().run_at()));
    }
    for row in client.query(&timers, &[&shard, &bucket, &after, &count]).await? {
        tenants.push((row.try_get(0)?, Timestamp::from_ms(row.try_get(1)?)));
    }
    Ok(tenants)
}

/// One more than the page has room for, to know whether it goes on.
async fn read_fresh(client: &ClientWrapper, due: &Due) -> Result<Vec<Waiting>, Trouble> {
    let statement = client.prepare_cached(sql::DUE_FRESH).await?;
    let (shard, bucket) = (shard_column(due.shard), bucket_column(due.bucket));
    let from = due.after.map_or(Uid([0; 16]), first_after);
    let to = first_later(due.until).min(first_of(due.bucket.next()));
    let count = limit(due.count_max.saturating_add(1));
    let tenant = due.tenant.as_str();
    let rows = client
        .query(&statement, &[&shard, &bucket, &tenant, &from, &to, &count, &limit(due.bytes_max)])
        .await?;
    let mark = JobMark { seq: 0, body_seq: None, shard };
    let waiting = |row: &Row| {
        let id = row.try_get::<_, Uid>("id")?.job();
        let stored = fresh_job(&due.tenant, id, row).map(|job| StoredJob { job: Arc::new(job), mark });
        Waiting::new(row, Position { at: id.run_at(), id }, stored)
    };
    rows.iter().map(waiting).collect()
}

async fn read_timers(client: &ClientWrapper, due: &Due) -> Result<Vec<Waiting>, Trouble> {
    let statement = client.prepare_cached(sql::DUE_TIMERS).await?;
    let (shard, bucket) = (shard_column(due.shard), bucket_column(due.bucket));
    let (at, id) = due.after.map_or((i64::MIN, Uid([0; 16])), |after| (after.at.as_ms(), after.id.into()));
    let (until, count) = (due.until.as_ms(), limit(due.count_max.saturating_add(1)));
    let tenant = due.tenant.as_str();
    let rows = client
        .query(&statement, &[&shard, &bucket, &tenant, &at, &id, &until, &count, &limit(due.bytes_max)])
        .await?;
    let waiting = |row: &Row| {
        let position = Position {
            at: Timestamp::from_ms(row.try_get("due_at")?),
            id: row.try_get::<_, Uid>("id")?.job(),
        };
        let mark = JobMark { seq: row.try_get("seq")?, body_seq: row.try_get("body_seq")?, shard };
        let stored = changed_job(&due.tenant, position.id, row);
        Waiting::new(row, position, stored.map(|job| StoredJob { job: Arc::new(job), mark }))
    };
    rows.iter().map(waiting).collect()
}

async fn next_at(client: &ClientWrapper, due: &Due) -> Result<Option<Timestamp>, Trouble> {
    let statement = client.prepare_cached(sql::DUE_NEXT).await?;
    let (shard, bucket) = (shard_column(due.shard), bucket_column(due.bucket));
    let from = due.after.map_or(Uid([0; 16]), first_after).max(first_later(due.until));
    let until = due.after.map_or(due.until, |after| due.until.max(after.at)).as_ms();
    let row = client.query_one(&statement, &[&shard, &bucket, &due.tenant.as_str(), &from, &until]).await?;
    let waiting = row.try_get::<_, Option<Uid>>(0)?.map(|id| id.job().run_at());
    let timer = row.try_get::<_, Option<i64>>(1)?.map(Timestamp::from_ms);
    Ok(waiting.into_iter().chain(timer).min())
}
