//! Which instant is next, and what the misfire policy makes of those that were missed.

use super::definition::{Definition, MisfirePolicy};
use super::exclude::Dates;
use super::ledger::{Entry, Outcome, Reason};
use super::nominal::{next_nominal, prev_nominal};
use super::occurrence::{occurrence_id, window_offset_ms};
use super::{Next, Schedule, State};
use crate::time::Timestamp;

/// What comes after an instant.
pub(super) struct Plan {
    /// What became of the instants that are passed over.
    pub(super) entry: Option<Entry>,
    /// The instant to wait for.
    pub(super) next: Option<Planned>,
}

/// An instant to wait for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) fire_at: Timestamp,
    pub(super) catch_up: bool,
}

/// What to do about the instants after `after`, all of them undecided.
///
/// An instant is missed when its window and its grace are over. Missed ones are the policy's; the first of
/// the others is next, even if it is a little late.
pub(super) fn plan(
    definition: &Definition,
    calendar: Option<&Dates>,
    after: Timestamp,
    now: Timestamp,
) -> Plan {
    let rule = &definition.rule;
    let next = |after| next_nominal(rule, calendar, after).map(|found| found.fire_at);
    let previous = |before| prev_nominal(rule, calendar, before).map(|found| found.fire_at);
    let Some(first) = next(after) else { return Plan { entry: None, next: None } };
    let missed_before = definition.missed_before(now);
    if first >= missed_before {
        return Plan { entry: None, next: Some(Planned { fire_at: first, catch_up: false }) };
    }
    let last = previous(missed_before).unwrap_or(first).max(first);
    let (kept, outcome) = match definition.misfire.policy {
        MisfirePolicy::Skip => {
            let outcome = Outcome::Skipped(Reason::Misfire);
            let entry = Entry::range(rule, calendar, (first, last), outcome, now);
            let next = next(last).map(|fire_at| Planned { fire_at, catch_up: false });
            return Plan { entry: Some(entry), next };
        }
        MisfirePolicy::FireLatest => (last, Outcome::Coalesced { into: last }),
        MisfirePolicy::FireAll { cap } => {
            let older = std::iter::successors(Some(last), |at| previous(*at).filter(|at| *at >= first));
            let cap = usize::try_from(cap.max(1)).unwrap_or(usize::MAX);
            (older.take(cap).last().unwrap_or(last), Outcome::Missed)
        }
    };
    let dropped = previous(kept).filter(|last| *last >= first);
    let entry = dropped.map(|last| Entry::range(rule, calendar, (first, last), outcome, now));
    Plan { entry, next: Some(Planned { fire_at: kept, catch_up: true }) }
}

impl Schedule {
    /// Plans on, to the next occurrence. Gives the ledger's entry for what is passed over.
    pub(super) fn advance(&mut self, calendar: Option<&Dates>, now: Timestamp) -> Option<Entry> {
        let plan = plan(&self.definition, calendar, self.goes_on_after(), now);
        self.adopt(plan, now)
    }

    /// Makes a plan from [`Schedule::goes_on_after`] its own. Gives the ledger's entry.
    pub(super) fn adopt(&mut self, plan: Plan, now: Timestamp) -> Option<Entry> {
        if let Some(entry) = &plan.entry {
            self.decided(entry.to);
        }
        self.state = if plan.next.is_some() { State::Active } else { State::Ended };
        self.next = None;
        if let Some(next) = plan.next {
            self.arm(next, now);
        }
        plan.entry
    }

    /// Makes an instant the one to wait for. What is past is due at once: a job made for the past would be
    /// behind those who look for what is due.
    pub(super) fn arm(&mut self, planned: Planned, now: Timestamp) {
        let Planned { fire_at, catch_up } = planned;
        let offset_ms = window_offset_ms(self.id, fire_at, self.definition.window_ms);
        let run_at = fire_at.plus_ms(offset_ms).max(now);
        let job_id = occurrence_id(self.id, fire_at, run_at);
        self.next = Some(Next { fire_at, run_at, job_id, catch_up, covers_until: fire_at });
    }
}
