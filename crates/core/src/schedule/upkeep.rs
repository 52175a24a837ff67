//! What happens to schedules without their owners' doing: a zone gets other rules, a calendar other dates, a
//! waiting occurrence is lost.

use std::sync::Arc;

use jiff::tz::Offset;

use super::definition::{Rule, Timing, Zone};
use super::edit::{Edit, replace_rule};
use super::exclude::Dates;
use super::nominal::to_jiff;
use super::occurrence::occurrence_job;
use super::{Schedule, State};
use crate::cron::Cron;
use crate::time::Timestamp;

/// Recomputes what waits by new rules of the schedule's zone. Undecided instants that the new rules put in
/// the past are late, not lost; a wall-clock time that has fired by the old rules does not fire again by the
/// new ones. Without an effect, there is nothing to write.
#[must_use]
pub fn retime(schedule: &Schedule, zone: Zone, calendar: Option<&Dates>, now: Timestamp) -> Edit {
    let mut edit = Edit::none(schedule);
    let mut definition = (*schedule.definition).clone();
    Arc::make_mut(&mut definition.rule).zone = zone;
    edit.schedule.definition = Arc::new(definition);
    // What is due from an old rule is settled when it is claimed; the new rules hold from there on.
    if schedule.state == State::Paused || schedule.owed().is_some() {
        return edit;
    }
    let fired_until = fired_until(&edit.schedule);
    edit.schedule.decided(fired_until);
    let waited = schedule.next;
    edit.rearm(calendar, now);
    if edit.schedule.next.map(|next| next.fire_at) == waited.map(|next| next.fire_at) {
        let definition = edit.schedule.definition;
        return Edit::none(&Schedule { definition, ..schedule.clone() });
    }
    edit
}

/// The instant at which, by the rules the zone has now, its wall clock last shows what it showed at the last
/// fire. Only a fixed time of day means the wall clock; other beats follow real minutes.
fn fired_until(schedule: &Schedule) -> Timestamp {
    let rule: &Rule = &schedule.definition.rule;
    let Timing::Cron(cron) = &rule.timing else { return Timestamp::MIN };
    let Some(last) = schedule.last_fire.filter(|_| is_fixed_time(cron)) else { return Timestamp::MIN };
    let Ok(offset) = Offset::from_seconds(last.utc_offset_s) else { return last.fire_at };
    if rule.zone.rules().to_offset(to_jiff(last.fire_at)) == offset {
        // It was shown then by these rules too. If it comes again it is a fold, which has a rule of its own.
        return last.fire_at;
    }
    let shown = offset.to_datetime(to_jiff(last.fire_at));
    let again = rule.zone.rules().to_ambiguous_timestamp(shown).later();
    again.map_or(last.fire_at, |again| Timestamp::from_ms(again.as_millisecond()).max(last.fire_at))
}

/// Neither the minute nor the hour begins with `*`.
fn is_fixed_time(cron: &Cron) -> bool {
    let text = cron.to_string();
    if text.trim_start().starts_with('@') {
        return !text.trim().eq_ignore_ascii_case("@hourly");
    }
    let mut fields = text.split_whitespace().rev().skip(3);
    fields.by_ref().take(2).all(|field| !field.starts_with('*'))
}

/// Goes on by the new dates of the schedule's calendar: instants up to `now` keep to the old ones.
#[must_use]
pub fn calendar_changed(
    schedule: &Schedule,
    old: Option<&Dates>,
    new: Option<&Dates>,
    now: Timestamp,
) -> Edit {
    let mut edit = Edit::none(schedule);
    if schedule.state != State::Paused {
        let definition = Arc::clone(&schedule.definition);
        replace_rule(&mut edit, old, definition, new, now);
    }
    edit
}

/// Mends a broken chain. For a schedule whose occurrence is in the store this makes the very same job again,
/// which the store, having it, may ignore; one that should have an occurrence and has none is planned on.
#[must_use]
pub fn repair(schedule: &Schedule, calendar: Option<&Dates>, now: Timestamp) -> Edit {
    let mut edit = Edit::none(schedule);
    match (schedule.state, schedule.next) {
        (State::Active, Some(next)) => {
            edit.put = Some(occurrence_job(schedule, next.fire_at, next.run_at, next.catch_up, now));
        }
        (State::Active, None) => edit.rearm(calendar, now),
        (State::Paused | State::Ended, _) => {}
    }
    edit
}
