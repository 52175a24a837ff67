//! Bars for what takes long: how far, how fast, how much longer. They are drawn on stderr, and only if that is a terminal.

use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidewheel_api::client::Client;

const REDRAW: Duration = Duration::from_millis(100);
const BAR: &str = "{bar:30} {percent:>3}%  {msg}  {eta} left";
const SPINNER: &str = "{spinner} {msg}  {elapsed}";
const BAR_CHARS: &str = "━╸ ";

/// A bar. Clones draw the same one.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    what: &'static str,
}

impl Progress {
    /// Of `what`, up to a length, or of unknown length.
    pub(crate) fn new(what: &'static str, length: Option<u64>) -> Self {
        let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        bar.set_draw_target(ProgressDrawTarget::stderr());
        let template = if length.is_some() { BAR } else { SPINNER };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars(BAR_CHARS));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(REDRAW);
        }
        Self { bar, what }
    }

    /// Whether anybody sees it: what is asked only for its sake need not be asked otherwise.
    pub(crate) fn is_hidden() -> bool {
        ProgressDrawTarget::stderr().is_hidden()
    }

    /// It has come that far, and that many are done.
    pub(crate) fn reach(&self, position: u64, count: u64) {
        self.bar.set_position(position);
        let per_second = rate(count, self.bar.elapsed());
        self.bar.set_message(format!("{} {}, {}/s", HumanCount(count), self.what, HumanCount(per_second)));
    }

    /// How long it has taken.
    pub(crate) fn elapsed(&self) -> Duration {
        self.bar.elapsed()
    }

    /// Takes it away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// A client whose trouble is told above the bar.
    pub(crate) fn told_of(&self, client: Client) -> Client {
        let bar = self.bar.clone();
        client.on_retry(move |error, wait| {
            bar.println(format!("{error}; trying again in {}", HumanDuration(wait)));
        })
    }
}

/// How many per second.
pub fn rate(count: u64, took: Duration) -> u64 {
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1_000) / ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second() {
        assert_eq!(rate(1_000, Duration::from_millis(500)), 2_000);
        assert_eq!(rate(5, Duration::ZERO), 5_000);
    }
}
