//! Measures how long something took: for reports, and to learn which reads are slow. No answer depends on it.

use std::time::{Duration, Instant};

pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "durations for reports and for what is worth remembering; no answer depends on them"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// How long it took since the last lap, which ends here.
    pub(crate) fn lap(&mut self) -> Duration {
        let lap = self.0.elapsed();
        self.0 += lap;
        lap
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
