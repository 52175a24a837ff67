//! What a store does by itself: moves marks up, links the audit trail, makes partitions, and tries a database that is in trouble.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidewheel_core::time::Timestamp;
use tokio::time::MissedTickBehavior;

use crate::connections::{Connections, Lane};
use crate::fault::Trouble;
use crate::pace::Pace;
use crate::recall::Recall;
use crate::settle::{Settling, settle};
use crate::{audit, partitions};

/// How often marks are moved up.
const SETTLE_EVERY: Duration = Duration::from_secs(5);
/// Another node need not do it if one did so long ago.
const SETTLE_PAUSE_MS: i64 = 4_000;
/// How often jobs that were not seen again are forgotten.
const AGE_EVERY: Duration = Duration::from_secs(60);
/// How often partitions are made ahead.
const PARTITIONS_EVERY: Duration = Duration::from_secs(3_600);
/// How often changes of jobs are linked into the audit trail.
const LINK_EVERY: Duration = Duration::from_secs(1);
/// How often a database in trouble is tried.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// Runs until the store is closed.
pub(crate) fn spawn(
    connections: &Arc<Connections>,
    recall: &Arc<Recall>,
    shards: u16,
    makes_partitions: bool,
) -> tokio::task::JoinHandle<()> {
    let weak = Arc::downgrade(connections);
    let recall = Arc::clone(recall);
    tokio::spawn(async move {
        let mut settles = tokio::time::interval(SETTLE_EVERY);
        settles.set_missed_tick_behavior(MissedTickBehavior::Delay);
        settles.tick().await;
        let mut pace = Pace::default();
        let mut ages = tokio::time::interval(AGE_EVERY);
        ages.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
                _ = ages.tick() => recall.age(),
                _ = settles.tick() => {
                    pace = settle_one(&connections, shards, pace).await;
                    if pace.is_behind() {
                        settles.reset_immediately();
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

/// One round of moving marks up.
async fn settle_one(connections: &Connections, shards: u16, pace: Pace) -> Pace {
    let pause_ms = if pace.is_behind() { 0 } else { SETTLE_PAUSE_MS };
    let settling = Settling { shards, pause_ms, until: None, count_max: pace.count_max() };
    match connections.bounded_upkeep(settle(connections, settling)).await {
        Ok(Some(is_behind)) => pace.succeeded(is_behind),
        Ok(None) => pace.waited(),
        Err(trouble) => {
            tracing::debug!(?trouble, "marks could not be moved up");
            pace.failed()
        }
    }
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
        if connections.bounded(write).await.is_ok() {
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
