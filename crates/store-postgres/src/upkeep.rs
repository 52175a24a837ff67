//! What a store does by itself: folds counts, links the audit trail, makes partitions, and tries a database that is in trouble.

use std::sync::{Arc, Weak};
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use tidewheel_core::time::Timestamp;
use tokio::time::MissedTickBehavior;

use crate::connections::{Connections, Lane};
use crate::fault::Trouble;
use crate::{audit, partitions, sql};

/// How often tallies are folded.
const FOLD_EVERY: Duration = Duration::from_secs(10);
/// How often partitions are made ahead.
const PARTITIONS_EVERY: Duration = Duration::from_secs(3_600);
/// How often changes of jobs are linked into the audit trail.
const LINK_EVERY: Duration = Duration::from_secs(1);
/// How often a database in trouble is tried.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Held by whoever folds.
const FOLD_LOCK: i64 = 0x7469_6465_666f_6c64;

/// Runs until the store is closed.
pub(crate) fn spawn(connections: &Arc<Connections>, makes_partitions: bool) -> tokio::task::JoinHandle<()> {
    let weak = Arc::downgrade(connections);
    tokio::spawn(async move {
        let mut fold = tokio::time::interval(FOLD_EVERY);
        fold.set_missed_tick_behavior(MissedTickBehavior::Delay);
        fold.tick().await;
        let mut partitions = tokio::time::interval(PARTITIONS_EVERY);
        partitions.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut link = tokio::time::interval(LINK_EVERY);
        link.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while let Some(connections) = weak.upgrade().filter(|connections| !connections.is_closed()) {
            tokio::select! {
                _ = link.tick() => {
                    if let Err(trouble) = connections.bounded_upkeep(audit::link_pending(&connections)).await {
                        tracing::debug!(?trouble, "changes of jobs could not be linked into the audit trail");
                    }
                }
                _ = fold.tick() => {
                    if let Err(trouble) = connections.bounded_upkeep(fold_tallies(&connections)).await {
                        tracing::debug!(?trouble, "counts could not be folded");
                    }
                }
                _ = partitions.tick(), if makes_partitions => {
                    if let Err(trouble) = make_partitions(&connections).await {
                        tracing::warn!(?trouble, "partitions could not be made; jobs are kept in the default one");
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
            connections.reserve().await;
            return;
        }
    }
}

/// By the database's clock, as all nodes must agree.
async fn make_partitions(connections: &Connections) -> Result<(), Trouble> {
    let client = connections.get(Lane::Scheduler).await?;
    let row = client.query_one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[]).await?;
    drop(client);
    partitions::make_ahead(connections, Timestamp::from_ms(row.try_get(0)?)).await
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
