//! Tells whoever minds that the wall clock was set back.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::Notify;

/// By how much the clock was set back since somebody asked.
#[derive(Debug, Default)]
pub(super) struct SetBack {
    ms: AtomicI64,
    told: Notify,
}

impl SetBack {
    /// The clock was set back.
    pub(super) fn tell(&self, ms: i64) {
        self.ms.fetch_add(ms, Ordering::SeqCst);
        self.told.notify_one();
    }

    /// By how much in all; nought from now on.
    pub(super) fn take_ms(&self) -> i64 {
        self.ms.swap(0, Ordering::SeqCst)
    }

    /// Waits for the next time. For one at a time.
    pub(super) async fn wait(&self) {
        self.told.notified().await;
    }
}
