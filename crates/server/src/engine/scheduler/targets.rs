//! What the scheduler makes of what pushes tell of their targets: breakers open and close, and it is said so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewheel_core::breaker::Turn;
use tidewheel_core::time::Timestamp;

use super::Scheduler;
use crate::engine::Tiding;
use crate::engine::target_answers::Heard;

impl Scheduler {
    pub(super) fn hear_of_targets(&mut self, all: &[Heard], now: Timestamp) {
        let monotonic_ms = self.shared.clock.monotonic_ms();
        for heard in all {
            let Some((turn, host)) = self.ready.heard(heard, now, monotonic_ms) else { continue };
            let (tenant, reason) = (heard.tenant.as_str(), &*heard.why);
            match turn {
                Turn::Opened => {
                    self.shared.metrics.breaker_opened();
                    self.shared.tidings.tell(|| Tiding::TargetDown {
                        tenant: heard.tenant.clone(),
                        host: Arc::clone(&host),
                        reason: heard.why.clone(),
                        at: now,
                    });
                    tracing::warn!(
                        tenant,
                        host = &*host,
                        reason,
                        "a target fails; its jobs wait until it works"
                    );
                }
                Turn::Held => tracing::info!(tenant, host = &*host, reason, "a target asks to wait"),
                Turn::Reopened => tracing::debug!(tenant, host = &*host, reason, "a target still fails"),
                Turn::Closed => tracing::info!(tenant, host = &*host, "a target works again"),
            }
        }
        self.note_targets();
    }

    /// Says how targets are.
    pub(super) fn note_targets(&self) {
        self.shared.watched_targets.store(self.ready.watched_targets(), Ordering::SeqCst);
        self.shared.metrics.set_breakers(&self.ready.breaker_counts());
    }
}
