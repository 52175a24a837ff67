//! Partitions: a day each, made ahead of time, dropped when all in them is old ([`crate::history`]). What lies beyond those
//! made so far is parked in the default partitions and moved out when its day is made; what outlives its day is moved
//! back there.

use deadpool_postgres::ClientWrapper;
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Error;

use crate::connections::{Connections, Lane, Transaction};
use crate::fault::Trouble;
use crate::store::{PostgresStore, plain};

/// Days made ahead.
const DAYS_AHEAD_COUNT: i64 = 7;
/// Held by whoever makes or drops partitions of this schema.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1953064048, hashtext(current_schema()))";

/// For statements that go through whole partitions.
const SETTINGS: &str = "SET LOCAL statement_timeout = '10min'; SET LOCAL enable_seqscan = on; \
    SET LOCAL enable_hashjoin = on; SET LOCAL enable_bitmapscan = on; SET LOCAL plan_cache_mode = auto";

/// What is partitioned, and by what.
const TABLES: [(&str, &str); 3] = [("jobs", "run_at"), ("events", "run_at"), ("ledger", "decided_at")];

fn day_of(at: Timestamp) -> i64 {
    at.as_ms().max(0) / DAY_MS
}

/// The days that have a partition.
pub(crate) async fn days(client: &ClientWrapper) -> Result<Vec<i64>, Trouble> {
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

/// A transaction for statements that go through whole partitions; and none of them keeps others waiting for long.
pub(crate) async fn begin(connections: &Connections) -> Result<Transaction<'_>, Trouble> {
    let transaction = connections.begin(Lane::Scheduler).await?;
    let lock_ms = connections.table_lock.as_millis();
    let settings = format!("{SETTINGS}; SET LOCAL lock_timeout = {lock_ms}");
    transaction.client()?.batch_execute(&settings).await?;
    Ok(transaction)
}

/// Lets one node at a time through.
pub(crate) async fn lock(client: &ClientWrapper) -> Result<(), Trouble> {
    client.batch_execute(LOCK).await?;
    Ok(())
}

/// Makes the partitions of the days around `now` that are missing. One table at a time: whoever reads several would
/// otherwise wait for one of them and hold another, which is a deadlock. Jobs come last: a day that has theirs is whole.
pub(crate) async fn make_ahead(connections: &Connections, now: Timestamp) -> Result<(), Trouble> {
    let today = day_of(now);
    let made = days(&*connections.get(Lane::Scheduler).await?).await?;
    for day in (today - 1..=today + DAYS_AHEAD_COUNT).filter(|day| !made.contains(day)) {
        for partitioned in TABLES.into_iter().rev() {
            let transaction = begin(connections).await?;
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
    // are, and would look for what is moved where it is no longer. What is moved is found by an index of the day; the
    // database itself looks through what stays, to be sure of it.
    client
        .batch_execute(&format!(
            "LOCK TABLE ONLY {table}, {table}_default IN ACCESS EXCLUSIVE MODE;
             CREATE TABLE {name} (LIKE {table} INCLUDING ALL);
             WITH moved AS (
                 DELETE FROM {table}_default
                 WHERE {column} / {DAY_MS} = {day} AND {column} >= {from} AND {column} < {to} RETURNING *
             ) INSERT INTO {name} SELECT * FROM moved;
             ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to})"
        ))
        .await?;
    Ok(())
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
