//! What the scheduler does every so often: sweeps, checkpoints, dropping old history and old records of the audit trail, gauges.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::place::Bucket;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Checkpoint, Cursor, Held};

use super::{READ_RETRY_MS, Scheduler};
use crate::engine::scan::just_before;
use crate::metrics::QueueLevel;

/// How often everything is looked through where other nodes store jobs, too, of whom news may be lost.
const SHARED_SWEEP_MS: i64 = 30 * SECOND_MS;
/// How often gauges are set.
const GAUGES_MS: i64 = SECOND_MS;

impl Scheduler {
    pub(super) fn periodically(&mut self, now: Timestamp, monotonic_ms: i64) {
        let hint_lost = self.shared.hint_lost.swap(false, Ordering::SeqCst);
        self.is_lost |= hint_lost;
        if hint_lost || monotonic_ms >= self.sweep_at_ms {
            let sweep_ms = if self.shared.territory.is_shared() { SHARED_SWEEP_MS } else { i64::MAX };
            let wait_ms = if self.sweep() { self.config.sweep_ms.min(sweep_ms) } else { READ_RETRY_MS };
            self.sweep_at_ms = monotonic_ms + wait_ms;
        }
        if monotonic_ms >= self.checkpoint_at_ms {
            self.checkpoint_at_ms = monotonic_ms + self.config.checkpoint_ms;
            let checkpoints = self.checkpoints(now);
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                if let Err(error) = shared.store.save_checkpoints(checkpoints).await {
                    tracing::debug!(%error, "cursors could not be noted");
                }
            });
        }
        if monotonic_ms >= self.upkeep_at_ms {
            self.upkeep_at_ms = monotonic_ms + self.config.upkeep_ms;
            let shared = Arc::clone(&self.shared);
            let before = now.plus_ms(-self.config.history_ms);
            let audit_before = now.plus_ms(-self.config.audit_retention_ms);
            let upkeep_ms = self.config.upkeep_ms;
            tokio::spawn(async move {
                if !shared.is_appointed("upkeep", upkeep_ms).await {
                    return;
                }
                match shared.store.drop_history(now, before).await {
                    Ok(0) => {}
                    Ok(count) => tracing::info!(count, "dropped old finished jobs"),
                    Err(error) => tracing::warn!(%error, "old finished jobs could not be dropped"),
                }
                if let Err(error) = shared.store.drop_audit(audit_before).await {
                    tracing::warn!(%error, "old records of the audit trail could not be dropped");
                }
            });
        }
        if monotonic_ms >= self.gauges_at_ms {
            self.gauges_at_ms = monotonic_ms + GAUGES_MS;
            self.ready.drop_gone_takers();
            self.tend_peers(monotonic_ms);
            self.governor.forget_idle(monotonic_ms);
            self.ready.forget_idle_targets(monotonic_ms);
            self.note_targets();
            self.set_gauges(now);
        }
    }

    /// How far the store has been dealt with, on the safe side: nothing that waits in memory lies before it.
    pub(super) fn checkpoints(&self, now: Timestamp) -> Vec<Checkpoint> {
        let held = [self.ready.oldest_due(), self.ready.oldest_overflow(), self.scan.oldest_unread(now)];
        let low = held.into_iter().flatten().min().unwrap_or(now).min(now);
        let checkpoint =
            |held: Held| Checkpoint { shard: held.shard, frontier: Bucket::of(low), cursors: Vec::new() };
        let mut checkpoints: Vec<Checkpoint> =
            self.shared.territory.held().into_iter().map(checkpoint).collect();
        for (of, bucket, after) in self.scan.cursors() {
            let Some(after) = after.filter(|_| bucket == Bucket::of(low)) else { continue };
            if let Some(checkpoint) = checkpoints.iter_mut().find(|checkpoint| checkpoint.shard == of.shard) {
                let position = after.min(just_before(low));
                checkpoint.cursors.push(Cursor { bucket, tenant: of.tenant.clone(), position });
            }
        }
        checkpoints
    }

    pub(super) fn set_gauges(&self, now: Timestamp) {
        let metrics = &self.shared.metrics;
        metrics.set_memory(self.ready.waiting(), self.ready.in_flight(), self.leases.len());
        let connected = self.workers.connected();
        metrics.set_workers(connected, self.workers.len().saturating_sub(connected));
        let oldest = [self.scan.oldest_unread(now), self.ready.oldest_crowded_out()];
        let oldest = oldest.into_iter().flatten().min();
        let lag_ms = oldest.map_or(0, |at| now.since_ms(at).max(0));
        metrics.set_oldest_unpromoted(lag_ms);
        self.shared.lag_ms.store(lag_ms, Ordering::SeqCst);
        metrics.set_shards(self.shared.store.layout().shards, self.shared.territory.held().len());
        self.set_lane_gauges(now);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Ok(counts) = shared.store.counts(None).await {
                shared.metrics.set_backlog(&counts);
            }
            shared.metrics.note_recent(now);
        });
    }

    fn set_lane_gauges(&self, now: Timestamp) {
        let mut levels: BTreeMap<&str, QueueLevel> = BTreeMap::new();
        let (mut queues, mut pushes) = (QueueLevel::default(), QueueLevel::default());
        for (name, is_queue, depth, more, oldest_ms) in self.ready.depths() {
            let age_ms = oldest_ms.map_or(0, |oldest_ms| now.as_ms().saturating_sub(oldest_ms));
            let sum = if is_queue { &mut queues } else { &mut pushes };
            sum.depth += depth;
            sum.oldest_age_ms = sum.oldest_age_ms.max(age_ms);
            if is_queue {
                levels.insert(name, QueueLevel { depth, more, oldest_age_ms: age_ms, workers: 0 });
            }
        }
        self.ready.each_served_queue(|name, workers| levels.entry(name).or_default().workers += workers);
        let metrics = &self.shared.metrics;
        metrics.set_ready(queues.depth, pushes.depth);
        metrics.set_oldest_ready(queues.oldest_age_ms, pushes.oldest_age_ms);
        metrics.set_queues(&levels);
    }
}
