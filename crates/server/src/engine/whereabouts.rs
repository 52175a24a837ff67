//! Where a waiting job is, for whoever asks why it has not started.

use super::BreakerView;

/// Where a waiting job is inside the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// In the store: not near yet, or in a backlog that is kept there.
    Store {
        /// Its lane is full, so its backlog stays in the store.
        backlog: bool,
    },
    /// In the store: its target is not called.
    HeldBack(BreakerView),
    /// In the store: it is made up for, at its tenant's pace.
    Paced,
    /// In the wheel: starts at its time.
    Wheel,
    /// In a lane: due.
    Lane {
        /// Jobs ready in that lane.
        depth: usize,
        /// Why the lane does not move, if it does not.
        reason: Option<&'static str>,
    },
    /// Its claim is being written.
    Claiming,
    /// An attempt is under way.
    Delivering,
}
