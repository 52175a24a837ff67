//! Old history goes: a day as a whole once all in it is old, with what outlives it moved to the default partitions first; by the
//! row what stands in no day, and what is old in a day that much outlives.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use deadpool_postgres::ClientWrapper;
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Error;

use crate::connections::Lane;
use crate::fault::Trouble;
use crate::partitions::{begin, days, lock};
use crate::recall::HISTORY_MS_MIN;
use crate::sql;
use crate::store::{Database, PostgresStore, plain};
use crate::uid::Uid;

/// Jobs that are looked at, or taken out one by one, in one transaction.
const DROP_COUNT: i64 = 10_000;
/// Jobs that are moved out of a day when it is dropped: all others wait meanwhile. A day that more outlive stays.
pub(crate) const MOVED_COUNT_MAX: i64 = 50_000;

/// Where a walk through the jobs of a day stands.
type Place = (String, Uid);

/// Drops a day that is over; what is alive in it, or ended at or after `before`, is moved to the default partitions.
/// Returns how many jobs went; none if there is more to move than may be.
async fn drop_day(
    client: &ClientWrapper,
    day: i64,
    before: Timestamp,
    moved_count_max: i64,
) -> Result<Option<u64>, Trouble> {
    lock(client).await?;
    let before = before.as_ms();
    // Nobody changes what is looked at; the parents are locked at the end only, and for a moment.
    client
        .batch_execute(&format!(
            "LOCK TABLE jobs_d{day}, events_d{day} IN SHARE MODE;
             CREATE TEMP TABLE old_jobs ON COMMIT DROP AS
                 SELECT e.tenant, e.id, e.state FROM events_d{day} e
                 WHERE e.state IN (3, 5, 6, 7, 8) AND e.at < {before}
                   AND NOT EXISTS (SELECT FROM events_d{day} n
                                   WHERE n.tenant = e.tenant AND n.id = e.id AND n.seq = e.seq + 1);
             CREATE TEMP TABLE kept_jobs ON COMMIT DROP AS
                 SELECT j.* FROM jobs_d{day} j
                 WHERE NOT EXISTS (SELECT FROM old_jobs o WHERE o.tenant = j.tenant AND o.id = j.id)
                 LIMIT {moved_count_max} + 1"
        ))
        .await?;
    let kept: i64 = client.query_one("SELECT count(*) FROM kept_jobs", &[]).await?.try_get(0)?;
    if kept > moved_count_max {
        return Ok(None);
    }
    let count = "SELECT count(*) FROM old_jobs WHERE state <> 8";
    let dropped: i64 = client.query_one(count, &[]).await?.try_get(0)?;
    client
        .batch_execute(&format!(
            "CREATE TEMP TABLE kept_events ON COMMIT DROP AS
                 SELECT e.* FROM events_d{day} e JOIN kept_jobs k ON k.tenant = e.tenant AND k.id = e.id;
             INSERT INTO tallies (tenant, state, delta)
                 SELECT tenant, state, -count(*) FROM old_jobs WHERE state <> 8 GROUP BY tenant, state;
             ALTER TABLE jobs DETACH PARTITION jobs_d{day};
             ALTER TABLE events DETACH PARTITION events_d{day};
             INSERT INTO jobs SELECT * FROM kept_jobs;
             INSERT INTO events SELECT * FROM kept_events;
             DROP TABLE jobs_d{day}, events_d{day}, ledger_d{day}"
        ))
        .await?;
    Ok(Some(u64::try_from(dropped).unwrap_or(0)))
}

/// Takes out what is old among the next jobs of a day that stays. Returns how many went, and where to go on, if there are more.
async fn empty_some(
    client: &ClientWrapper,
    day: i64,
    before: Timestamp,
    after: &Place,
) -> Result<(u64, Option<Place>), Trouble> {
    lock(client).await?;
    // For a moment nobody changes what is looked at.
    client
        .batch_execute(&format!("LOCK TABLE jobs_d{day}, events_d{day} IN SHARE ROW EXCLUSIVE MODE"))
        .await?;
    let sql = format!(
        "WITH looked AS MATERIALIZED (
             SELECT j.tenant, j.id FROM jobs_d{day} j WHERE (j.tenant, j.id) > ($1::text, $2::uuid)
             ORDER BY j.tenant, j.id LIMIT $3
         ), old AS MATERIALIZED (
             SELECT l.tenant, l.id, e.state FROM looked l
             CROSS JOIN LATERAL (
                 SELECT v.state, v.at FROM events_d{day} v WHERE v.tenant = l.tenant AND v.id = l.id
                 ORDER BY v.seq DESC LIMIT 1) e
             WHERE e.state IN (3, 5, 6, 7, 8) AND e.at < $4
         ), history AS (
             DELETE FROM events_d{day} e USING old WHERE e.tenant = old.tenant AND e.id = old.id
         ), bodies AS (
             DELETE FROM jobs_d{day} j USING old WHERE j.tenant = old.tenant AND j.id = old.id
         ), counted AS (
             INSERT INTO tallies (tenant, state, delta)
             SELECT tenant, state, -count(*) FROM old WHERE state <> 8 GROUP BY tenant, state
         )
         SELECT l.tenant, l.id, (SELECT count(*) FROM old WHERE state <> 8) FROM looked l
         ORDER BY l.tenant DESC, l.id DESC LIMIT 1"
    );
    let row = client.query_opt(&sql, &[&after.0, &after.1, &DROP_COUNT, &before.as_ms()]).await?;
    let Some(row) = row else { return Ok((0, None)) };
    let dropped = u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0);
    Ok((dropped, Some((row.try_get(0)?, row.try_get(1)?))))
}

impl PostgresStore {
    /// Drops history as the contract says, moving no more than so many jobs out of a day at a time.
    ///
    /// # Errors
    /// When the database does not allow it now.
    pub async fn drop_history_moving(
        &self,
        now: Timestamp,
        before: Timestamp,
        moved_count_max: i64,
    ) -> Result<u64, Error> {
        self.database.drop_history_now(now, before, moved_count_max).await.map_err(plain)
    }
}

impl Database {
    pub(crate) async fn drop_history_now(
        &self,
        now: Timestamp,
        before: Timestamp,
        moved_count_max: i64,
    ) -> Result<u64, Trouble> {
        // A node may still go by what it has last seen of a job; its number must not be free again so soon.
        let before = before.min(now.plus_ms(-HISTORY_MS_MIN));
        let client = self.connections.get(Lane::Scheduler).await?;
        let keys = client.prepare_cached(sql::DROP_KEYS).await?;
        while client.execute(&keys, &[&now.as_ms(), &DROP_COUNT]).await? > 0 {}
        let over: Vec<i64> =
            days(&client).await?.into_iter().filter(|day| (day + 1) * DAY_MS <= before.as_ms()).collect();
        drop(client);
        let mut dropped = 0;
        self.kept_days().retain(|(day, _), _| over.contains(day));
        for day in over {
            let key = (day, moved_count_max);
            // It was gone through from end to end, and hardly anything has ended in it since.
            if self.kept_days().get(&key).is_some_and(|last| now.since_ms(*last) < DAY_MS) {
                continue;
            }
            let transaction = begin(&self.connections).await?;
            let outcome = drop_day(transaction.client()?, day, before, moved_count_max).await;
            dropped += match transaction.end(outcome).await? {
                Some(count) => count,
                None => {
                    let count = self.empty_day(day, before).await?;
                    self.kept_days().insert(key, now);
                    count
                }
            };
        }
        loop {
            let transaction = begin(&self.connections).await?;
            let outcome = drop_rows(transaction.client()?, before).await;
            let (count, is_last) = transaction.end(outcome).await?;
            dropped += count;
            if is_last {
                return Ok(dropped);
            }
        }
    }

    fn kept_days(&self) -> MutexGuard<'_, BTreeMap<(i64, i64), Timestamp>> {
        self.kept_days.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn empty_day(&self, day: i64, before: Timestamp) -> Result<u64, Trouble> {
        tracing::info!(day, "much outlives a day; what is old in it is taken out by the row");
        let (mut dropped, mut after): (u64, Place) = (0, (String::new(), Uid([0; 16])));
        loop {
            let transaction = begin(&self.connections).await?;
            let outcome = empty_some(transaction.client()?, day, before, &after).await;
            let (count, next) = transaction.end(outcome).await?;
            dropped += count;
            match next {
                Some(next) => after = next,
                None => return Ok(dropped),
            }
        }
    }
}

/// Takes out what no dropped day takes along; says how many jobs went, and whether there are no more.
async fn drop_rows(client: &ClientWrapper, before: Timestamp) -> Result<(u64, bool), Trouble> {
    client.execute(sql::DROP_LEDGER, &[&before.as_ms()]).await?;
    let row = client.query_one(sql::DROP_OLD, &[&before.as_ms(), &DROP_COUNT]).await?;
    let is_last = row.try_get::<_, i64>(1)? == 0;
    if is_last {
        client.execute(sql::DROP_EARLY_ENDS, &[&before.as_ms()]).await?;
    }
    Ok((u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0), is_last))
}
