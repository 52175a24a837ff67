//! What a schedule was told to be, and when: worked out from the answers its owner got, so that the instants
//! it owes can be worked out without asking it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewheel_core::schedule::{Definition, Schedule, ScheduleId, State, Timing, nominals, window_offset_ms};
use tidewheel_core::time::Timestamp;

use crate::schedule_wish::{Deed, ScheduleAnswer};

/// A definition and the instants it holds for: those after a line drawn by the edit that made it. Where the
/// answer to that edit was lost, the line is known only to lie within a stretch.
#[derive(Debug)]
struct Segment {
    definition: Arc<Definition>,
    /// The line is not before this …
    line_min: Timestamp,
    /// … and not after this.
    line_max: Timestamp,
    edited_at: Timestamp,
}

/// A time without fires: the instants after `after`, up to `until`, which is open while the pause lasts.
#[derive(Debug)]
struct Rest {
    after: Timestamp,
    until: Option<Timestamp>,
}

/// The life of a schedule as its owner knows it.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    segments: Vec<Segment>,
    rests: Vec<Rest>,
    /// No instant after this fires.
    pub(super) deleted_at: Option<Timestamp>,
    /// The schedule as it was last seen.
    pub(super) last: Option<Schedule>,
}

impl Timeline {
    /// Takes in an answer. Gives what is wrong with it, if something is.
    pub(super) fn granted(&mut self, answer: &ScheduleAnswer, latest_wall: Timestamp) -> Option<String> {
        let schedule = &answer.schedule;
        let line = line(schedule);
        match answer.deed {
            Deed::Create => {
                self.segments.push(Segment {
                    definition: Arc::clone(&schedule.definition),
                    line_min: schedule.created_at,
                    line_max: schedule.created_at,
                    edited_at: schedule.created_at,
                });
                if schedule.state == State::Paused {
                    self.rests.push(Rest { after: schedule.created_at, until: None });
                }
            }
            Deed::Update => self.updated(answer, line),
            Deed::Pause => {
                if self.rests.last().is_none_or(|rest| rest.until.is_some()) {
                    self.rests.push(Rest { after: line, until: None });
                }
            }
            Deed::Resume => {
                if let Some(rest) = self.rests.last_mut().filter(|rest| rest.until.is_none()) {
                    rest.until = Some(rest.after.max(schedule.updated_at));
                }
            }
            Deed::Delete => self.deleted_at = Some(latest_wall),
            Deed::Trigger | Deed::Backfill => {}
        }
        let is_paused = self.rests.last().is_some_and(|rest| rest.until.is_none());
        self.last = Some(schedule.clone());
        if is_paused != (schedule.state == State::Paused) {
            return Some(format!("it is {:?} after {:?}", schedule.state, answer.deed));
        }
        // One millisecond more where an occurrence of the old rule is due in that of the edit.
        (line > latest_wall.plus_ms(1)).then(|| format!("it has decided up to {line}, which is to come"))
    }

    fn updated(&mut self, answer: &ScheduleAnswer, line: Timestamp) {
        let schedule = &answer.schedule;
        let Some(last) = self.segments.last() else { return };
        if last.definition == schedule.definition {
            return;
        }
        let is_same_rule = last.definition.rule == schedule.definition.rule;
        let line_max = if is_same_rule { line } else { line.max(schedule.updated_at) };
        // Answered late, the line stood already, and has perhaps been left behind since. By the same rule, it may have stood
        // even before what was waiting when the edit was made: that has got another time by it, and may have fired since.
        let line_min = match (answer.changed, is_same_rule) {
            (true, _) => line_max,
            (false, true) => last.line_min,
            (false, false) => line_max.min(schedule.updated_at),
        };
        self.segments.push(Segment {
            definition: Arc::clone(&schedule.definition),
            line_min: line_min.max(last.line_min),
            line_max,
            edited_at: schedule.updated_at,
        });
    }

    /// It was deleted, by a try whose answer was lost.
    pub(super) fn gone(&mut self, latest_wall: Timestamp) {
        self.deleted_at = Some(latest_wall);
    }

    /// The instants up to `until` that may be its own, each with whether it certainly is.
    pub(super) fn instants(&self, until: Timestamp) -> BTreeMap<Timestamp, bool> {
        let mut instants = BTreeMap::new();
        let ends = self.segments.iter().skip(1).map(|next| (next.line_min, next.line_max));
        for (segment, (end_min, end_max)) in self.segments.iter().zip(ends.chain([(until, until)])) {
            for nominal in nominals(&segment.definition.rule, None, segment.line_min, end_max.min(until)) {
                let at = nominal.fire_at;
                *instants.entry(at).or_default() |= segment.line_max < at && at <= end_min;
            }
        }
        instants
    }

    /// Whether it was paused when this instant came.
    pub(super) fn rests_at(&self, at: Timestamp) -> bool {
        self.rests.iter().any(|rest| rest.after < at && rest.until.is_none_or(|until| at <= until))
    }

    /// When the occurrence of an instant may start, at the earliest.
    pub(super) fn earliest_start(&self, id: ScheduleId, fire_at: Timestamp) -> Timestamp {
        let mut offsets_ms = Vec::new();
        for (index, segment) in self.segments.iter().enumerate() {
            let next = self.segments.get(index + 1);
            // What is due when it is edited keeps the time it had.
            let ends_before = next.is_some_and(|next| next.line_max.max(next.edited_at) < fire_at);
            if segment.line_min < fire_at && !ends_before {
                offsets_ms.push(window_offset_ms(id, fire_at, segment.definition.window_ms));
            }
        }
        fire_at.plus_ms(offsets_ms.into_iter().min().unwrap_or(0))
    }

    /// Whether it was an interval, ever.
    pub(super) fn has_interval(&self) -> bool {
        let mut rules = self.segments.iter().map(|segment| &segment.definition.rule);
        rules.any(|rule| matches!(rule.timing, Timing::Every { .. }))
    }

    /// What all its definitions have in common, if they do.
    pub(super) fn always<T: PartialEq>(&self, of: impl Fn(&Definition) -> T) -> Option<T> {
        let mut all = self.segments.iter().map(|segment| of(&segment.definition));
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }
}

/// From here on, the instants of the schedule's rule are undecided.
fn line(schedule: &Schedule) -> Timestamp {
    let owed = schedule.next.filter(|next| next.covers_until > next.fire_at);
    owed.map_or(schedule.decided_until, |owed| owed.covers_until.max(schedule.decided_until))
}
