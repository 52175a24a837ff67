//! What is being measured, on stderr, while it is; silent where stderr is no terminal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use tidewheel_server::clock::{Clock, SystemClock};

use tidewheel_cli::progress::rate;

const REDRAW: Duration = Duration::from_millis(100);
const BAR: &str = "{spinner} {bar:20} {pos}/{len}  {msg}  {elapsed}";

/// The bar. Clones draw the same one.
#[derive(Clone)]
pub(super) struct Progress {
    bar: ProgressBar,
    /// What is being counted, and when that began.
    counting: Arc<Mutex<(String, i64)>>,
    clock: Arc<SystemClock>,
}

impl Progress {
    /// A bar over that many measurements.
    pub(super) fn new(parts: usize) -> Self {
        let bar = ProgressBar::new(u64::try_from(parts).unwrap_or(0));
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(REDRAW);
        Self { bar, counting: Arc::default(), clock: Arc::new(SystemClock::new()) }
    }

    /// Says what is going on.
    pub(super) fn say(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// Says how far it has come.
    pub(super) fn count(&self, what: &str, done: u64, of: u64) {
        let took = self.since_began(what);
        let per_s = rate(done, took);
        let left = match of.saturating_sub(done).checked_div(per_s) {
            Some(seconds) => format!(", {} left", HumanDuration(Duration::from_secs(seconds))),
            None => String::new(),
        };
        let (done, of) = (HumanCount(done), HumanCount(of));
        self.bar.set_message(format!("{what}: {done} of {of}, {}/s{left}", HumanCount(per_s)));
    }

    /// How long this has been counted.
    fn since_began(&self, what: &str) -> Duration {
        let now_ms = self.clock.monotonic_ms();
        let mut counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        if counting.0 != what {
            *counting = (what.to_owned(), now_ms);
        }
        Duration::from_millis(now_ms.saturating_sub(counting.1).unsigned_abs())
    }

    /// One measurement is done.
    pub(super) fn step(&self) {
        self.bar.inc(1);
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
