//! What befalls a worker on a stream.

use std::sync::atomic::Ordering;

use tidewheel_core::job::{Command, Ending, Job};
use tidewheel_server::clock::Clock;

use super::Process;
use super::outbox::Said;
use crate::conduct::{Conduct, Verdict};

/// What befalls a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// Its process ends at once, with jobs in its hands.
    Death,
    /// Its connection is lost.
    Reset,
    /// Its process stands still: it neither reads nor speaks.
    Stall,
}

impl Stroke {
    /// How the record calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Death => "a worker dies, jobs",
            Self::Reset => "a worker loses its connection, jobs",
            Self::Stall => "a worker stands still, ms",
        }
    }
}

/// The longest a process stands still.
const STALL_MS_MAX: i64 = 30_000;

impl Process {
    /// What befalls it now, if anything.
    pub(super) fn roll(&self) -> Option<Stroke> {
        if self.world.is_calm() {
            return None;
        }
        match self.dice.between(0, 99) {
            0..=5 => Some(Stroke::Death),
            6..=14 => {
                self.world.note_stroke(Stroke::Reset, self.hands.count());
                Some(Stroke::Reset)
            }
            15..=20 => Some(Stroke::Stall),
            _ => None,
        }
    }

    pub(super) async fn stall(&self) {
        let ms = self.dice.between(500, STALL_MS_MAX);
        self.world.note_stroke(Stroke::Stall, usize::try_from(ms).unwrap_or(0));
        self.frozen_until_ms.store(self.world.clock.monotonic_ms() + ms, Ordering::SeqCst);
        self.rest(0).await;
    }

    /// A job that lay in the stream while nobody read it: handed back, or run in no time and reported on.
    pub(super) fn report_late(&self, job: &Job) {
        let token = job.status.token;
        let success = Conduct {
            takes_ms: 0,
            verdict: Verdict::Success,
            heartbeat_ms: None,
            detaches: false,
            deaf: true,
        };
        let released = (Command::Release { token }, Ending::Released);
        let (command, ending) = if self.dice.percent(50) {
            released
        } else {
            success.report(&self.dice, token).unwrap_or(released)
        };
        self.say(Said { tenant: job.tenant.clone(), id: job.id, token, command, ending: Some(ending) });
    }
}
