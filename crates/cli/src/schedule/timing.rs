//! The flags that say when a schedule fires.

use clap::Args;
use tidewheel_core::cron::Cron;

use crate::filter::time;
use crate::submission::{Body, duration};

/// When a schedule fires.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "When")]
pub(crate) struct TimingArgs {
    #[command(flatten)]
    beat: BeatArgs,
    /// Where the wall clock hangs, such as America/New_York [default: UTC]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Not before this time; intervals are counted from it
    #[arg(long, value_name = "TIME", value_parser = time)]
    start_at: Option<String>,
    /// Not after this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    end_at: Option<String>,
    /// Spreads starts over this long after the nominal time [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    window: Option<String>,
    /// A time the clock skips in spring: next_valid or skip [default: next_valid]
    #[arg(long, value_name = "RULE", value_parser = ["next_valid", "skip"], hide_possible_values = true)]
    dst_gap: Option<String>,
    /// A time the clock shows twice in autumn: first or both [default: first]
    #[arg(long, value_name = "RULE", value_parser = ["first", "both"], hide_possible_values = true)]
    dst_fold: Option<String>,
    /// Not on this date, such as 2026-12-25; may be given more than once
    #[arg(long, value_name = "DATE")]
    exclude: Vec<String>,
    /// Not on the dates of this calendar
    #[arg(long, value_name = "NAME")]
    exclude_calendar: Option<String>,
    /// Where excluded fires go: none, next_business_day or previous_business_day [default: none]
    #[arg(long, value_name = "RULE", hide_possible_values = true,
        value_parser = ["none", "next_business_day", "previous_business_day"])]
    roll: Option<String>,
}

/// The two ways to say when: one of them, so that whoever gives none is told of both.
#[derive(Debug, Clone, Default, Args)]
#[group(required = true, multiple = false)]
struct BeatArgs {
    /// Whenever the wall clock shows this, such as "0 9 * * MON-FRI" or @daily
    #[arg(long, value_name = "EXPRESSION", value_parser = cron)]
    cron: Option<String>,
    /// At this interval, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    every: Option<String>,
}

/// Checks an expression, so that a slip is told with its place before anything is sent.
fn cron(text: &str) -> Result<String, String> {
    Cron::parse(text).map(|_| text.to_owned()).map_err(|fault| fault.to_string())
}

impl TimingArgs {
    /// As fields of a body.
    pub(super) fn add_to(&self, body: &mut Body) {
        body.text("cron_expr", self.beat.cron.as_deref());
        body.text("every", self.beat.every.as_deref());
        body.text("timezone", self.timezone.as_deref());
        body.text("start_at", self.start_at.as_deref());
        body.text("end_at", self.end_at.as_deref());
        body.text("window", self.window.as_deref());
        object(body, "dst", |dst| {
            dst.text("gap", self.dst_gap.as_deref());
            dst.text("fold", self.dst_fold.as_deref());
        });
        object(body, "exclude", |exclude| {
            if !self.exclude.is_empty() {
                exclude.json("dates", &serde_json::Value::from(self.exclude.clone()).to_string());
            }
            exclude.text("calendar", self.exclude_calendar.as_deref());
            exclude.text("roll", self.roll.as_deref());
        });
    }
}

/// Adds a field that is an object, if there is anything in it.
fn object(body: &mut Body, name: &str, fill: impl FnOnce(&mut Body)) {
    let mut inner = Body::default();
    fill(&mut inner);
    let inner = inner.finish();
    if inner != "{}" {
        body.json(name, &inner);
    }
}
