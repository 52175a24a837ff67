//! Where a waiting job is, for whoever asks why it has not started.

use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tokio::sync::oneshot;

use super::scheduler::Message;
use super::{BreakerView, Engine, LaneView};

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

impl Engine {
    /// Where a waiting job is.
    pub async fn whereabouts(&self, job: &Job) -> Whereabouts {
        let (reply, answer) = oneshot::channel();
        self.shared.tell(Message::Whereabouts { job: Box::new(job.clone()), reply });
        answer.await.unwrap_or(Whereabouts::Store { backlog: false })
    }

    /// The lanes in which jobs of a tenant wait in memory, deepest first, at most so many.
    pub async fn lanes(&self, tenant: Tenant, count_max: usize) -> Vec<LaneView> {
        let (reply, answer) = oneshot::channel();
        self.shared.tell(Message::Lanes { tenant, count_max, reply });
        answer.await.unwrap_or_default()
    }
}
