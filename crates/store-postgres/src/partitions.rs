//! Partitions: a day each, made ahead of time, dropped when all in them is old. What lies beyond those made so far is
//! parked in the default partitions and moved out when its day is made; what outlives its day is moved back there.

use deadpool_postgres::ClientWrapper;
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Error;

use crate::connections::{Connections, Lane};
use crate::fault::Trouble;
use crate::recall::HISTORY_MS_MIN;
use crate::sql;
use crate::store::{Database, PostgresStore, plain};

/// Days made ahead.
const DAYS_AHEAD_COUNT: i64 = 7;
/// Held by whoever makes or drops partitions.
const PARTITION_LOCK: i64 = 0x7469_6465_7061_7274;
/// Rows taken out one by one, at a time.
const DROP_COUNT: i64 = 10_000;

/// For statements that go through whole partitions; and none of them keeps others waiting for long.
const SETTINGS: &str = "SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '3s'; \
    SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_bitmapscan = on; \
    SET LOCAL plan_cache_mode = auto";

/// What is partitioned, and by what.
const TABLES: [(&str, &str); 3] = [("jobs", "run_at"), ("events", "run_at"), ("ledger", "decided_at")];

fn day_of(at: Timestamp) -> i64 {
    at.as_ms().max(0) / DAY_MS
}

/// The days that have a partition.
async fn days(client: &ClientWrapper) -> Result<Vec<i64>, Trouble> {
    let rows = client
        .query(
            "SELECT substr(c.relname, 7)::bigint FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent = 'jobs'::regclass AND c.relname LIKE 'jobs\\_d_____%' AND c.relname <> 'jobs_default'
             ORDER BY 1",
            &[],
        )
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Lets one node at a time through.
async fn lock(client: &ClientWrapper) -> Result<(), Trouble> {
    client.batch_execute(SETTINGS).await?;
    client.execute("SELECT pg_advisory_xact_lock($1)", &[&PARTITION_LOCK]).await?;
    Ok(())
}

/// Makes the partitions of the days around `now` that are missing. One table at a time: whoever reads several would
/// otherwise wait for one of them and hold another, which is a deadlock. Jobs come last: a day that has theirs is whole.
pub(crate) async fn make_ahead(connections: &Connections, now: Timestamp) -> Result<(), Trouble> {
    let today = day_of(now);
    let made = days(&*connections.get(Lane::Scheduler).await?).await?;
    for day in (today - 1..=today + DAYS_AHEAD_COUNT).filter(|day| !made.contains(day)) {
        for partitioned in TABLES.into_iter().rev() {
            let transaction = connections.begin(Lane::Scheduler).await?;
            let outcome = make(transaction.client()?, partitioned, day).await;
            transaction.end(outcome).await?;
        }
    }
    Ok(())
}

async fn make(
    client: &ClientWrapper,
    (table, column): (&'static str, &'static str),
    day: i64,
) -> Result<(), Trouble> {
    lock(client).await?;
    let name = format!("{table}_d{day}");
    if client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&name]).await?.try_get(0)? {
        return Ok(());
    }
    let (from, to) = (day * DAY_MS, (day + 1) * DAY_MS);
    // The parent too: a statement that waits for the default partition alone has been told already which partitions there
    // are, and would look for what is moved where it is no longer.
    client
        .batch_execute(&format!(
            "LOCK TABLE ONLY {table}, {table}_default IN ACCESS EXCLUSIVE MODE;
             CREATE TABLE {name} (LIKE {table} INCLUDING ALL);
             WITH moved AS (
                 DELETE FROM {table}_default WHERE {column} >= {from} AND {column} < {to} RETURNING *
             ) INSERT INTO {name} SELECT * FROM moved;
             ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to})"
        ))
        .await?;
    Ok(())
}

/// Drops a day that is over; what is alive in it, or ended at or after `before`, is moved to the default partitions.
/// Returns how many jobs went.
async fn drop_day(client: &ClientWrapper, day: i64, before: Timestamp) -> Result<u64, Trouble> {
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
                 WHERE NOT EXISTS (SELECT FROM old_jobs o WHERE o.tenant = j.tenant AND o.id = j.id);
             CREATE TEMP TABLE kept_events ON COMMIT DROP AS
                 SELECT e.* FROM events_d{day} e JOIN kept_jobs k ON k.tenant = e.tenant AND k.id = e.id;
             INSERT INTO tallies (tenant, state, delta)
                 SELECT tenant, state, -count(*) FROM old_jobs WHERE state <> 8 GROUP BY tenant, state"
        ))
        .await?;
    let count = "SELECT count(*) FROM old_jobs WHERE state <> 8";
    let dropped: i64 = client.query_one(count, &[]).await?.try_get(0)?;
    client
        .batch_execute(&format!(
            "ALTER TABLE jobs DETACH PARTITION jobs_d{day};
             ALTER TABLE events DETACH PARTITION events_d{day};
             INSERT INTO jobs SELECT * FROM kept_jobs;
             INSERT INTO events SELECT * FROM kept_events;
             DROP TABLE jobs_d{day}, events_d{day}, ledger_d{day}"
        ))
        .await?;
    Ok(u64::try_from(dropped).unwrap_or(0))
}

impl PostgresStore {
    /// Makes partitions for the days around `now`. Done by itself at the start and every hour.
    ///
    /// # Errors
    /// When the database does not allow it now; what has no partition is kept all the same.
    pub async fn make_partitions(&self, now: Timestamp) -> Result<(), Error> {
        make_ahead(&self.database.connections, now).await.map_err(plain)
    }
}

impl Database {
    pub(crate) async fn drop_history_now(&self, now: Timestamp, before: Timestamp) -> Result<u64, Trouble> {
        // A node may still go by what it has last seen of a job; its number must not be free again so soon.
        let before = before.min(now.plus_ms(-HISTORY_MS_MIN));
        let client = self.connections.get(Lane::Scheduler).await?;
        let keys = client.prepare_cached(sql::DROP_KEYS).await?;
        while client.execute(&keys, &[&now.as_ms(), &DROP_COUNT]).await? > 0 {}
        let over: Vec<i64> =
            days(&client).await?.into_iter().filter(|day| (day + 1) * DAY_MS <= before.as_ms()).collect();
        drop(client);
        let mut dropped = 0;
        for day in over {
            let transaction = self.connections.begin(Lane::Scheduler).await?;
            let outcome = drop_day(transaction.client()?, day, before).await;
            dropped += transaction.end(outcome).await?;
        }
        loop {
            let transaction = self.connections.begin(Lane::Scheduler).await?;
            let outcome = drop_rows(transaction.client()?, before).await;
            let (count, is_last) = transaction.end(outcome).await?;
            dropped += count;
            if is_last {
                return Ok(dropped);
            }
        }
    }
}

/// Takes out what no dropped day takes along; says how many jobs went, and whether there are no more.
async fn drop_rows(client: &ClientWrapper, before: Timestamp) -> Result<(u64, bool), Trouble> {
    client.batch_execute(SETTINGS).await?;
    client.execute(sql::DROP_LEDGER, &[&before.as_ms()]).await?;
    let row = client.query_one(sql::DROP_OLD, &[&before.as_ms(), &DROP_COUNT]).await?;
    let is_last = row.try_get::<_, i64>(1)? == 0;
    if is_last {
        client.execute(sql::DROP_EARLY_ENDS, &[&before.as_ms()]).await?;
    }
    Ok((u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0), is_last))
}
