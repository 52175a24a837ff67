//! What a schedule's wall clock has shown. When its zone gets other rules, a time of day that has fired may be
//! shown again, and one that has not may lie behind the last fire.

use std::sync::Arc;

use jiff::tz::{Offset, TimeZone};

use super::definition::{Definition, Rule, Timing, Zone};
use super::exclude::Dates;
use super::nominal::{next_nominal, nominals, to_jiff};
use super::{LastFire, Schedule};
use crate::limits::OVERTAKEN_COUNT_MAX;
use crate::time::Timestamp;

impl Schedule {
    /// The instants to come are those after this: up to here they are decided, or the clock shows a time of day
    /// that has fired. The latter is found by the rules the zone has now and kept nowhere, for the next rules
    /// may say otherwise.
    #[must_use]
    pub fn goes_on_after(&self) -> Timestamp {
        let decided_until = self.undecided_after();
        Moved::of(self).map_or(decided_until, |moved| decided_until.max(moved.shown_again_at))
    }

    /// Notes that an instant fired, and what the wall clock showed. One that was overtaken is behind the last
    /// fire, at which the clock had shown its time already; nobody minds what it shows at others.
    pub(super) fn fired_at(&mut self, fire_at: Timestamp) {
        let is_latest = self.last_fire.is_none_or(|last| last.fire_at <= fire_at);
        if is_latest || !is_fixed_time(&self.definition.rule) {
            self.last_fire = Some(self.shown_at(fire_at));
        }
    }

    /// Notes that everything the clock had shown by the last fire is settled, by the rules of now.
    pub(super) fn shown_by_rules_of_now(&mut self) {
        self.last_fire = self.last_fire.map(|last| self.shown_at(last.fire_at));
    }

    /// Makes a definition its own. A clock the user chose anew has shown nothing yet that must not come again,
    /// and neither has one that was not looked at.
    pub(super) fn redefine(&mut self, definition: Arc<Definition>) {
        let old = std::mem::replace(&mut self.definition, definition);
        if old.rule.zone != self.definition.rule.zone || !is_fixed_time(&old.rule) {
            self.shown_by_rules_of_now();
        }
    }

    fn shown_at(&self, fire_at: Timestamp) -> LastFire {
        let offset = self.definition.rule.zone.rules().to_offset(to_jiff(fire_at));
        LastFire { fire_at, utc_offset_s: offset.seconds() }
    }
}

/// Only a fixed time of day means the wall clock; other beats follow real minutes.
fn is_fixed_time(rule: &Rule) -> bool {
    match &rule.timing {
        Timing::Cron(cron) => cron.is_fixed_time(),
        Timing::Every { .. } => false,
    }
}

/// A wall clock that, by the rules its zone has now, did not show at the last fire what it was thought to show.
pub(super) struct Moved {
    fired_at: Timestamp,
    /// The last instant at which the clock shows it by the rules of now.
    shown_again_at: Timestamp,
    /// How far ahead of UTC it was thought to be.
    thought: Offset,
}

impl Moved {
    /// Asked at every claim, so it does no more than it must while the rules are what they were.
    pub(super) fn of(schedule: &Schedule) -> Option<Self> {
        let rule: &Rule = &schedule.definition.rule;
        let last = schedule.last_fire.filter(|_| is_fixed_time(rule))?;
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
    pub(super) fn overtaken(&self, schedule: &Schedule, calendar: Option<&Dates>) -> Vec<Timestamp> {
        if schedule.undecided_after() != self.fired_at {
            return Vec::new();
        }
        let rule = &schedule.definition.rule;
        let thought = Zone::with_rules(rule.zone.name(), TimeZone::fixed(self.thought));
        let old_rule = Rule { zone: thought, ..Rule::clone(rule) };
        let is_decided = |at: Timestamp| {
            next_nominal(&old_rule, calendar, at.plus_ms(-1)).is_some_and(|found| found.fire_at == at)
        };
        let instants = nominals(rule, calendar, self.shown_again_at, self.fired_at.plus_ms(-1));
        let mut overtaken: Vec<_> =
            instants.map(|found| found.fire_at).filter(|at| !is_decided(*at)).collect();
        overtaken.drain(..overtaken.len().saturating_sub(OVERTAKEN_COUNT_MAX));
        overtaken
    }
}
