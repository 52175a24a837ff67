//! What is done every so often, and while the database is in trouble.

use std::sync::{Arc, Weak};
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use tidewheel_core::time::Timestamp;
use tokio::time::MissedTickBehavior;

use crate::connections::{Connections, Lane};
use crate::fault::Trouble;
use crate::sql;
use crate::store::PostgresStore;

/// How often tallies are folded.
const FOLD_EVERY: Duration = Duration::from_secs(10);
/// How often a database in trouble is tried.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Rows taken out at a time.
const DROP_COUNT: i64 = 10_000;
/// Held by whoever folds.
const FOLD_LOCK: i64 = 0x7469_6465_666f_6c64;

/// Runs until the store is closed.
pub(crate) fn spawn(connections: &Arc<Connections>) -> tokio::task::JoinHandle<()> {
    let weak = Arc::downgrade(connections);
    tokio::spawn(async move {
        let mut fold = tokio::time::interval(FOLD_EVERY);
        fold.set_missed_tick_behavior(MissedTickBehavior::Delay);
        fold.tick().await;
        while let Some(connections) = weak.upgrade().filter(|connections| !connections.is_closed()) {
            tokio::select! {
                _ = fold.tick() => {
                    if let Err(trouble) = fold_tallies(&connections).await {
                        tracing::debug!(?trouble, "counts could not be folded");
                    }
                }
                () = connections.troubled.notified() => {
                    drop(connections);
                    probe(&weak).await;
                }
            }
        }
    })
}

/// Tries until a write goes through: only that shows that the database takes them again.
async fn probe(weak: &Weak<Connections>) {
    let mut tick = tokio::time::interval(PROBE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(connections) = weak.upgrade().filter(|connections| !connections.is_closed()) {
        tick.tick().await;
        let write = async {
            let transaction = connections.begin(Lane::Scheduler).await?;
            let written = transaction.client()?.execute("UPDATE settings SET shards = shards", &[]).await;
            transaction.end(written.map_err(Trouble::from)).await
        };
        if connections.bounded(async { write.await.map_err(crate::store::plain) }).await.is_ok() {
            return;
        }
    }
}

async fn fold_tallies(connections: &Connections) -> Result<(), Trouble> {
    let transaction = connections.begin(Lane::Scheduler).await?;
    let outcome = fold_in(transaction.client()?).await;
    transaction.end(outcome).await
}

async fn fold_in(client: &ClientWrapper) -> Result<(), Trouble> {
    let row = client.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&FOLD_LOCK]).await?;
    if row.try_get(0)? {
        let statement = client.prepare_cached(sql::FOLD_TALLIES).await?;
        client.execute(&statement, &[]).await?;
    }
    Ok(())
}

impl PostgresStore {
    pub(crate) async fn drop_history_now(&self, now: Timestamp, before: Timestamp) -> Result<u64, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let keys = client.prepare_cached(sql::DROP_KEYS).await?;
        while client.execute(&keys, &[&now.as_ms(), &DROP_COUNT]).await? > 0 {}
        let ledger = client.prepare_cached(sql::DROP_LEDGER).await?;
        client.execute(&ledger, &[&before.as_ms()]).await?;
        let ends = client.prepare_cached(sql::DROP_ENDS).await?;
        let mut dropped = 0;
        loop {
            let row = client.query_one(&ends, &[&before.as_ms(), &0_i64, &DROP_COUNT]).await?;
            let count: i64 = row.try_get(0)?;
            if count == 0 {
                return Ok(dropped);
            }
            dropped += u64::try_from(count).unwrap_or(0);
        }
    }
}
