//! What happens to schedules without their owners' doing: a zone gets other rules, a calendar other dates, a
//! waiting occurrence is lost.

use std::sync::Arc;

use jiff::tz::{Offset, TimeZone};

use super::definition::{Rule, Timing, Zone};
use super::edit::{Edit, replace_rule};
use super::exclude::Dates;
use super::ledger::{Entry, Outcome};
use super::nominal::{next_nominal, nominals, to_jiff};
use super::occurrence::occurrence_job;
use super::plan::Planned;
use super::{Schedule, State};
use crate::cron::Cron;
use crate::limits::OVERTAKEN_COUNT_MAX;
use crate::time::Timestamp;

/// Recomputes what waits by new rules of the schedule's zone. Undecided instants that the new rules put in
/// the past are late, not lost; a wall-clock time that has fired by the old rules does not fire again by the
/// new ones. Done twice, it is as if done once. Without an effect, there is nothing to write.
#[must_use]
pub fn retime(schedule: &Schedule, zone: Zone, calendar: Option<&Dates>, now: Timestamp) -> Edit {
    let mut edit = Edit::none(schedule);
    let mut definition = (*schedule.definition).clone();
    Arc::make_mut(&mut definition.rule).zone = zone;
    edit.schedule.definition = Arc::new(definition);
    let is_over =
        schedule.state == State::Ended && schedule.definition.rule.end_at.is_none_or(|end_at| end_at <= now);
    // What is due from an old rule is settled when it is claimed; the new rules hold from there on.
    if is_over || schedule.owed().is_some() {
        return edit;
    }
    let moved = Moved::of(&edit.schedule);
    if let Some(moved) = &moved {
        edit.schedule.decided(moved.shown_again_at.max(moved.fired_at));
    }
    if schedule.state == State::Paused {
        return edit;
    }
    let overtaken = moved.map(|moved| moved.overtaken(schedule, &edit.schedule, calendar));
    if let Some((latest, others)) = overtaken.as_deref().and_then(<[_]>::split_last) {
        edit.owe(*latest, others, now);
        return edit;
    }
    let first = next_nominal(&edit.schedule.definition.rule, calendar, edit.schedule.decided_until);
    if first.map(|first| first.fire_at) != schedule.next.map(|next| next.fire_at) {
        edit.rearm(calendar, now);
    }
    edit
}

/// A wall clock that, by the rules its zone has now, did not show at the last fire what it was thought to show.
/// Only a fixed time of day means the wall clock; other beats follow real minutes.
struct Moved {
    fired_at: Timestamp,
    /// The last instant at which the clock shows it by the rules of now.
    shown_again_at: Timestamp,
    /// How far ahead of UTC it was thought to be.
    thought: Offset,
}

impl Moved {
    fn of(schedule: &Schedule) -> Option<Self> {
        let rule: &Rule = &schedule.definition.rule;
        let Timing::Cron(cron) = &rule.timing else { return None };
        let last = schedule.last_fire.filter(|_| is_fixed_time(cron))?;
        let thought = Offset::from_seconds(last.utc_offset_s).ok()?;
        let fired_at = to_jiff(last.fire_at);
        if rule.zone.rules().to_offset(fired_at) == thought {
            return None;
        }
        let again = rule.zone.rules().to_ambiguous_timestamp(thought.to_datetime(fired_at)).later().ok()?;
        let shown_again_at = Timestamp::from_ms(again.as_millisecond());
        Some(Self { fired_at: last.fire_at, shown_again_at, thought })
    }

    /// Instants of a clock that was moved ahead, past times at which the schedule was still to fire: they lie
    /// before the last fire, and what the clock shows at them has not been decided. One at which something
    /// else fired by the old rules stays as it is: an instant is decided once.
    fn overtaken(&self, before: &Schedule, after: &Schedule, calendar: Option<&Dates>) -> Vec<Timestamp> {
        if before.decided_until != self.fired_at {
            return Vec::new();
        }
        let rule = &after.definition.rule;
        let thought = Zone::with_rules(rule.zone.name(), TimeZone::fixed(self.thought));
        let old_rule = Rule { zone: thought, ..Rule::clone(rule) };
        let is_decided = |at: Timestamp| {
            next_nominal(&old_rule, calendar, at.plus_ms(-1)).is_some_and(|found| found.fire_at == at)
        };
        let instants = nominals(rule, calendar, self.shown_again_at, self.fired_at);
        let mut overtaken: Vec<_> =
            instants.map(|found| found.fire_at).filter(|at| !is_decided(*at)).collect();
        overtaken.drain(..overtaken.len().saturating_sub(OVERTAKEN_COUNT_MAX));
        overtaken
    }
}

impl Edit {
    /// Fires `latest`, an instant before what is decided, in place of what waits; `others` are coalesced into it.
    fn owe(&mut self, latest: Timestamp, others: &[Timestamp], now: Timestamp) {
        let outcome = Outcome::Coalesced { into: latest };
        self.entries.extend(others.iter().map(|at| Entry::single(*at, outcome, now)));
        let schedule = &mut self.schedule;
        self.withdraw = schedule.next.map(|next| next.job_id);
        self.put = Some(schedule.arm(Planned { fire_at: latest, catch_up: false }, now));
        let decided_until = std::mem::replace(&mut schedule.decided_until, latest.plus_ms(-1));
        if let Some(next) = &mut schedule.next {
            next.covers_until = decided_until;
        }
        schedule.state = State::Active;
    }
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
