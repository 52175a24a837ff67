//! Intervals, and a clock that is set back under them.
//!
//! A time that a schedule means by the wall clock comes when the clock shows it. An interval means a length of time, and
//! must not stand still for an hour because the clock was wrong by one. So what waits is brought forward by as many whole
//! intervals as the clock was set back by, and the beat goes on from there, through times the clock has shown before. No
//! instant may fire twice: from then on they are a millisecond later than those of the first pass, which they would be told
//! from by nothing else.

use std::sync::Arc;

use super::definition::Timing;
use super::edit::Edit;
use super::exclude::Dates;
use super::{Next, Schedule, State};
use crate::job::{Job, State as JobState};
use crate::limits::SECOND_MS;
use crate::time::Timestamp;

/// How much later instants are once the clock has been set back.
const AGAIN_MS: i64 = 1;
/// How far the length of a step may be off that was measured with two clocks.
const CLOCK_ERROR_MS: i64 = 20;
/// What is late is not brought forward for less: the clock of whoever made it may have been a little ahead.
const LATE_MS_MIN: i64 = SECOND_MS;

impl Schedule {
    /// Whether `job`, which the schedule waits for, comes later than it was to, because the clock was set back; by `by_ms`, if
    /// anyone saw it. Where dates are excluded by a calendar, that may turn out to be no later than it must.
    #[must_use]
    pub fn is_put_off(&self, job: &Job, by_ms: i64, now: Timestamp) -> bool {
        !set_back(self, job, by_ms, None, now).is_none(self)
    }

    /// What was made at a time that is still to come was made before the clock was set back. An occurrence that somebody
    /// moved is left alone, and so is one of a rule that is gone.
    fn waits_too_long(&self, job: &Job, now: Timestamp) -> Option<Next> {
        let next = self.next.filter(|next| next.job_id == job.id && self.state == State::Active)?;
        let waits = job.status.state == JobState::Scheduled && job.status.due_at == next.run_at;
        (waits && !next.is_of_old_rule() && now < job.spec.created_at).then_some(next)
    }

    /// By how much an interval is brought forward: whole ones.
    fn lead_ms(&self, job: &Job, by_ms: i64, now: Timestamp) -> Option<i64> {
        let Timing::Every { interval_ms, .. } = self.definition.rule.timing else { return None };
        let interval_ms = interval_ms.max(1);
        let certain_ms = job.spec.created_at.since_ms(now);
        // It may have been made long before the clock was set back, up to an interval. What was seen may have come in several
        // steps, some of them before it was made.
        let by_ms = by_ms.saturating_add(CLOCK_ERROR_MS).min(certain_ms.saturating_add(interval_ms - 1));
        let count = certain_ms.max(by_ms) / interval_ms;
        (count > 0).then_some(count * interval_ms)
    }
}

/// Brings forward what was put off by a clock that was set back, by `by_ms`, if anyone saw it; otherwise a fire may be left
/// out. `job` is what the schedule waits for. Done twice, it is as if done once.
#[must_use]
pub fn set_back(
    schedule: &Schedule,
    job: &Job,
    by_ms: i64,
    calendar: Option<&Dates>,
    now: Timestamp,
) -> Edit {
    let none = Edit::none(schedule);
    let Some(next) = schedule.waits_too_long(job, now) else { return none };
    let mut edit = none.clone();
    if next.fire_at <= now {
        // It was late, and was to start at once.
        if job.spec.created_at.since_ms(now) >= LATE_MS_MIN {
            edit.rearm(calendar, now);
        }
        return edit;
    }
    let Some(lead_ms) = schedule.lead_ms(job, by_ms, now) else { return none };
    let mut definition = (*schedule.definition).clone();
    let rule = Arc::make_mut(&mut definition.rule);
    let is_counted_from_start = rule.start_at.is_some();
    if let Timing::Every { interval_ms, anchor } = &mut rule.timing {
        // Counting began by the clock that was wrong, unless it began at a time somebody named.
        let began_at = if is_counted_from_start { *anchor } else { anchor.plus_ms(-lead_ms) };
        *anchor = began_at.plus_ms(AGAIN_MS);
        edit.schedule.decided_until = next.fire_at.plus_ms(AGAIN_MS - lead_ms - *interval_ms);
    }
    edit.schedule.definition = Arc::new(definition);
    edit.rearm(calendar, now);
    // Nothing is won where it was to wait for its start, or for the end of what is excluded.
    let is_sooner = edit.schedule.next.is_some_and(|sooner| sooner.fire_at < next.fire_at);
    if is_sooner { edit } else { none }
}
