//! What happens in the engine that an owner may want to be told of. Told to whoever listens, at most one; what finds no room
//! on the way is lost, so that a flood of it holds up nothing.

use std::sync::{Arc, OnceLock};

use tidewheel_core::job::{Job, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tokio::sync::mpsc;

use super::{Engine, Shared};

/// What is on its way to the listener at once.
const TIDINGS_COUNT_MAX: usize = 4_096;

/// Something an owner may want to be told of.
#[derive(Debug, Clone)]
pub enum Tiding {
    /// A job was given up.
    Dead(Arc<Job>),
    /// An occurrence of a schedule did not run at its time.
    Missed {
        /// The occurrence.
        job: Arc<Job>,
        /// It runs all the same, late.
        made_up: bool,
    },
    /// A target fails, and is not called any more.
    TargetDown {
        /// Whose.
        tenant: Tenant,
        /// Scheme, host and port.
        host: Arc<str>,
        /// The last failure.
        reason: Box<str>,
        /// When.
        at: Timestamp,
    },
}

/// The way to the listener.
#[derive(Debug, Default)]
pub(super) struct Tidings(OnceLock<mpsc::Sender<Tiding>>);

impl Tidings {
    pub(super) fn tell(&self, tiding: impl FnOnce() -> Tiding) {
        if let Some(listener) = self.0.get() {
            // One that finds no room is lost: a flood of them says the same.
            listener.try_send(tiding()).ok();
        }
    }
}

impl Shared {
    /// An attempt, or a job that was to have one, came to its end.
    pub(super) fn tell_of_end(&self, job: &Arc<Job>) {
        let is_missed = || {
            let reason = job.status.reason.as_deref().unwrap_or_default();
            let is_late = job.status.state == State::Skipped
                && (reason == "missed" || reason.ends_with("misfire") || reason.starts_with("coalesced"));
            job.spec.occurrence.is_some() && (is_late || job.status.state == State::Expired)
        };
        if job.status.state == State::Dead {
            self.tidings.tell(|| Tiding::Dead(Arc::clone(job)));
        } else if is_missed() {
            self.tidings.tell(|| Tiding::Missed { job: Arc::clone(job), made_up: false });
        }
    }

    /// An attempt started; `planned` is the job as it was before.
    pub(super) fn attempt_started(&self, was_catch_up: bool, job: &Arc<Job>) {
        let is_catch_up = job.spec.occurrence.as_ref().is_some_and(|occurrence| occurrence.catch_up);
        if is_catch_up && !was_catch_up {
            self.tidings.tell(|| Tiding::Missed { job: Arc::clone(job), made_up: true });
        }
    }
}

impl Engine {
    /// What happens from now on; `None` if somebody listens already.
    #[must_use]
    pub fn tidings(&self) -> Option<mpsc::Receiver<Tiding>> {
        let (sender, listener) = mpsc::channel(TIDINGS_COUNT_MAX);
        self.shared.tidings.0.set(sender).ok().map(|()| listener)
    }
}
