//! How much is on its way to one worker. One that does not read gets no more, so that what waits for it is bounded.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidewheel_core::limits::WORKER_UNSENT_BYTES_MAX;

/// Bytes of jobs handed to a stream and not yet written to it.
#[derive(Debug, Default)]
pub(in crate::engine) struct Unsent {
    bytes: AtomicUsize,
    stalled: AtomicBool,
}

impl Unsent {
    pub(in crate::engine) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Some were written; says whether somebody waits for that.
    pub(super) fn sent(&self, bytes: usize) -> bool {
        let left = self.bytes.fetch_sub(bytes, Ordering::SeqCst).saturating_sub(bytes);
        left < WORKER_UNSENT_BYTES_MAX && self.stalled.swap(false, Ordering::SeqCst)
    }

    /// Whether no more may be handed over. If so, [`Self::sent`] will say when that is over.
    pub(in crate::engine) fn is_stalled(&self) -> bool {
        if self.bytes.load(Ordering::SeqCst) < WORKER_UNSENT_BYTES_MAX {
            return false;
        }
        self.stalled.store(true, Ordering::SeqCst);
        // Looked at again: it may have been written in between.
        self.bytes.load(Ordering::SeqCst) >= WORKER_UNSENT_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_does_not_read_is_stalled_until_it_does() {
        let unsent = Unsent::default();
        unsent.add(WORKER_UNSENT_BYTES_MAX - 1);
        assert!(!unsent.is_stalled());
        unsent.add(2);
        assert!(unsent.is_stalled());
        assert!(!unsent.sent(1), "still full");
        assert!(unsent.sent(1), "somebody waits for it");
        assert!(!unsent.sent(1), "and is told once");
        assert!(!unsent.is_stalled());
    }
}
