//! A question for the fires to come of a schedule that need not exist.

use std::sync::Arc;

use tidewheel_core::limits::{FIRE_WINDOW_MS_MAX, PREVIEW_COUNT_DEFAULT, PREVIEW_COUNT_MAX};
use tidewheel_core::schedule::{Rule, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;

use super::timing::{TimeFields, read_rule};
use crate::known_fields;
use crate::wire::fault::{At, Code, Faults};
use crate::wire::read;

/// A question for fires to come.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviewRequest {
    /// When the schedule would fire.
    pub rule: Arc<Rule>,
    /// The schedule that would be given it; none asks for a new one.
    pub schedule: Option<ScheduleId>,
    /// Over how long its starts would be spread, if that is said.
    pub window_ms: Option<i64>,
    /// Fires after this.
    pub from: Timestamp,
    /// How many at most.
    pub count: usize,
    /// Whether `exclude` is an object, and its calendar a field within it.
    pub excludes_by_object: bool,
}

known_fields!(PreviewFields {
    cron_expr = "cron_expr",
    every = "every",
    timezone = "timezone",
    dst = "dst",
    start_at = "start_at",
    end_at = "end_at",
    exclude = "exclude",
    window = "window",
    schedule = "schedule",
    from = "from",
    count = "count",
});

impl PreviewRequest {
    /// Reads the question.
    pub fn read(text: &str, now: Timestamp, zones: &Zones, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: PreviewFields<'_> = read::body(text, at, faults)?;
        let window_ms =
            fields.window.and_then(|field| field.duration_within(0, FIRE_WINDOW_MS_MAX, at, faults));
        let from = fields.from.and_then(|field| field.time(at, faults)).unwrap_or(now);
        let schedule = fields.schedule.and_then(|field| {
            let text = field.free_text(at, faults)?;
            let refuse = |fault| field.refuse(Code::InvalidValue, at, faults, ToString::to_string(&fault));
            text.parse::<ScheduleId>().map_err(refuse).ok()
        });
        let count = fields.count.and_then(|field| field.whole(1, PREVIEW_COUNT_MAX as u64, at, faults));
        let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(PREVIEW_COUNT_DEFAULT);
        let time = TimeFields {
            cron_expr: fields.cron_expr,
            every: fields.every,
            timezone: fields.timezone,
            dst: fields.dst,
            start_at: fields.start_at,
            end_at: fields.end_at,
            exclude: fields.exclude,
        };
        let rule = Arc::new(read_rule(&time, None, (now, zones), at, faults)?);
        let excludes_by_object = time.excludes_by_object();
        Some(Self { rule, schedule, window_ms, from, count, excludes_by_object })
    }
}
