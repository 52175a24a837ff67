//! What happens to schedules without their owners' doing: a zone gets other rules, a calendar other dates, a
//! waiting occurrence is lost.

use std::sync::Arc;

use super::definition::Zone;
use super::edit::{Edit, replace_rule};
use super::exclude::Dates;
use super::ledger::{Entry, Outcome};
use super::nominal::{next_nominal, to_jiff};
use super::plan::Planned;
use super::wall_clock::Moved;
use super::{Next, Schedule, State};
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
    if is_over || schedule.state == State::Paused {
        return edit;
    }
    let overtaken = Moved::of(&edit.schedule).map(|moved| moved.overtaken(&edit.schedule, calendar));
    if let Some((latest, others)) = overtaken.as_deref().and_then(<[_]>::split_last) {
        edit.owe(*latest, others, now);
        return edit;
    }
    // What is due from an old rule is settled when it is claimed; the new rules hold from there on.
    if schedule.owed().is_some() {
        return edit;
    }
    let first = next_nominal(&edit.schedule.definition.rule, calendar, edit.schedule.goes_on_after());
    if first.map(|first| first.fire_at) != schedule.next.map(|next| next.fire_at) {
        edit.rearm(calendar, now);
    }
    edit
}

impl Edit {
    /// Fires `latest`, an instant before what is decided, in place of what waits; `others` are coalesced into
    /// it, and so is one that was owed already.
    fn owe(&mut self, latest: Timestamp, others: &[Timestamp], now: Timestamp) {
        let schedule = &mut self.schedule;
        let owed = schedule.owed().map(|owed| owed.fire_at);
        let outcome = Outcome::Coalesced { into: latest };
        self.entries.extend(others.iter().copied().chain(owed).map(|at| Entry::single(at, outcome, now)));
        self.entries.sort_by_key(|entry| entry.from);
        let covers_until = schedule.undecided_after();
        self.withdraw = schedule.next.map(|next| next.job_id);
        schedule.arm(Planned { fire_at: latest, catch_up: false }, now);
        self.put = schedule.next_job(now);
        schedule.decided_until = latest.plus_ms(-1);
        if let Some(next) = &mut schedule.next {
            next.covers_until = covers_until;
        }
        schedule.shown_by_rules_of_now();
        schedule.state = State::Active;
    }
}

/// Goes on by the new dates of the schedule's calendar: instants up to `now` keep to the old ones. What waits was found
/// by the dates that held: nothing before it is undecided, whatever the dates are said to have been.
///
/// What is due still fires. Where the old and the new dates agree on all that is late, it stays as it is; otherwise it is
/// settled by the old ones, as for any other change of the rule ([`super::update`]).
#[must_use]
pub fn calendar_changed(
    schedule: &Schedule,
    old: Option<&Dates>,
    new: Option<&Dates>,
    now: Timestamp,
) -> Edit {
    let mut edit = Edit::none(schedule);
    match (schedule.state, schedule.next) {
        (State::Paused, _) => {}
        (State::Active, Some(next)) if next.fire_at <= now || next.is_of_old_rule() => {
            edit.settle_late(next, old, new, now);
        }
        (State::Active, None) => {
            replace_rule(&mut edit, old, Arc::clone(&schedule.definition), new, now);
        }
        (State::Active | State::Ended, next) => {
            let waits_for = next.map(|next| next.fire_at);
            if edit.schedule.comes_by(new) != waits_for {
                edit.schedule.decided(now);
            }
            if edit.schedule.comes_by(new) != waits_for {
                edit.rearm(new, now);
            }
        }
    }
    edit
}

impl Edit {
    /// Has `next`, which is due, and what came after it be decided by the old dates.
    fn settle_late(&mut self, next: Next, old: Option<&Dates>, new: Option<&Dates>, now: Timestamp) {
        let schedule = &mut self.schedule;
        let rule = Arc::clone(&schedule.definition.rule);
        let date = |at| rule.zone.rules().to_datetime(to_jiff(at)).date();
        let since = schedule.undecided_after().max(next.fire_at);
        let is_same = rule.exclude.is_same_by(old, new, (date(since), date(now)));
        if !next.is_of_old_rule() {
            let before = next.fire_at.plus_ms(-1);
            let is_by_old =
                next_nominal(&rule, old, before).is_some_and(|found| found.fire_at == next.fire_at);
            if !is_by_old {
                // It went by other dates than it is said to have gone by. It fires all the same; more is not known.
                let covers_until = next.fire_at.plus_ms(1);
                schedule.next = Some(Next { covers_until, ..next });
                return;
            }
            if !is_same || schedule.comes_by(new) != Some(next.fire_at) {
                schedule.decided(before);
            }
        }
        if !is_same {
            let definition = Arc::clone(&schedule.definition);
            replace_rule(self, old, definition, new, now);
        }
    }
}

impl Schedule {
    /// The first undecided instant by these dates.
    fn comes_by(&self, calendar: Option<&Dates>) -> Option<Timestamp> {
        next_nominal(&self.definition.rule, calendar, self.goes_on_after()).map(|found| found.fire_at)
    }
}

/// Mends a broken chain. For a schedule whose occurrence is in the store this makes the very same job again,
/// which the store, having it, may ignore; one that should have an occurrence and has none is planned on.
#[must_use]
pub fn repair(schedule: &Schedule, calendar: Option<&Dates>, now: Timestamp) -> Edit {
    let mut edit = Edit::none(schedule);
    match (schedule.state, schedule.next) {
        (State::Active, Some(_)) => edit.put = schedule.next_job(now),
        (State::Active, None) => edit.rearm(calendar, now),
        (State::Paused | State::Ended, _) => {}
    }
    edit
}
