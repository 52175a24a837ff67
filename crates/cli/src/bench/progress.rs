//! What is being measured, on stderr, while it is; silent where stderr is no terminal.

use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(100);
const BAR: &str = "{spinner} {bar:20} {pos}/{len}  {msg}  {elapsed}";

/// The bar. Clones draw the same one.
#[derive(Clone)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar over that many measurements.
    pub(super) fn new(parts: usize) -> Self {
        let bar = ProgressBar::new(u64::try_from(parts).unwrap_or(0));
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(REDRAW);
        Self(bar)
    }

    /// Says what is going on.
    pub(super) fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// Says how far it has come.
    pub(super) fn count(&self, what: &str, done: u64, of: u64) {
        self.0.set_message(format!("{what}: {} of {}", HumanCount(done), HumanCount(of)));
    }

    /// One measurement is done.
    pub(super) fn step(&self) {
        self.0.inc(1);
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
