//! What the checker knows of schedules, and what it says of them when the run is over: every instant ended in
//! exactly one way, what fired has one job, a pause is kept, and the chain goes on.

use std::collections::{BTreeMap, BTreeSet};

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Occurrence};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{
    Entry, Outcome, Reason, Schedule, ScheduleId, State, backfill_job, occurrence_job,
};
use tidewheel_core::time::Timestamp;

use super::timeline::Timeline;
use super::{Ledger, Promise, overlap};
use crate::history::Start;
use crate::run::LATE_MS_MAX;
use crate::schedule_wish::{Deed, ScheduleAnswer, ScheduleWish};

/// A schedule in the store at the end.
#[derive(Debug, Clone)]
pub struct KeptSchedule {
    /// Itself.
    pub schedule: Schedule,
    /// Its ledger.
    pub entries: Vec<Entry>,
}

/// A promise broken, for which job if for one, and how.
pub(super) type Fault = (Promise, Option<JobId>, String);

/// Instants of one range of a ledger that are looked at; more than a run has.
const RANGE_COUNT_MAX: usize = 50_000;

/// Why a job of a schedule was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// An instant came.
    Instant,
    /// Somebody made up for an instant.
    Backfill,
    /// Somebody asked for it.
    Trigger,
}

/// What the checker knows of one schedule.
#[derive(Debug, Default)]
pub(super) struct SeenSchedule {
    tenant: Option<Tenant>,
    /// The most attempts a job of it may have.
    pub(super) attempts_max: u32,
    timeline: Timeline,
    /// Each with the latest the wall clock had shown by then.
    starts: Vec<(Start, Timestamp)>,
    triggers: u32,
    triggered: BTreeSet<JobId>,
}

impl SeenSchedule {
    pub(super) fn wishing(&mut self, wish: &ScheduleWish) {
        self.tenant = Some(wish.tenant.clone());
        let attempts =
            wish.definition.as_ref().map_or(0, |definition| definition.template.retry.max_attempts);
        self.attempts_max = self.attempts_max.max(attempts);
        self.triggers += u32::from(wish.deed == Deed::Trigger);
    }

    pub(super) fn granted(&mut self, answer: &ScheduleAnswer, latest_wall: Timestamp) -> Vec<Fault> {
        if answer.deed == Deed::Trigger {
            self.triggered.extend(answer.jobs.last());
        }
        let wrong = self.timeline.granted(answer, latest_wall);
        wrong.map(|text| (Promise::EditsHold, None, text)).into_iter().collect()
    }

    pub(super) fn declined(&mut self, deed: Deed, latest_wall: Timestamp) {
        if deed == Deed::Delete {
            self.timeline.gone(latest_wall);
        }
    }

    pub(super) fn started(&mut self, start: &Start, latest_wall: Timestamp) {
        self.starts.push((start.clone(), latest_wall));
    }

    pub(super) fn is_of(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref() == Some(tenant)
    }

    /// Compares with what the store has in the end. Time may have gone back between clocks, and on one of them.
    pub(super) fn left(
        &self,
        id: ScheduleId,
        ledger: &Ledger,
        (is_set_back, is_stepped_back): (bool, bool),
    ) -> Vec<Fault> {
        let kept = ledger.schedules.get(&id);
        let Some(last) = &self.timeline.last else {
            // Offered under this id, and taken under another or not at all.
            let is_unknown = kept.is_some() || !self.starts.is_empty();
            let text = "there is a schedule that its owner knows nothing of".to_owned();
            return is_unknown.then_some((Promise::NothingUnexpected, None, text)).into_iter().collect();
        };
        let jobs: Vec<(&Job, &Occurrence, Origin)> = ledger
            .jobs
            .values()
            .filter_map(|job| Some((job, job.spec.occurrence.as_ref()?)))
            .filter(|(_, occurrence)| occurrence.schedule_id == id)
            .map(|(job, occurrence)| (job, occurrence, origin(last, job.id, occurrence.fire_at)))
            .collect();
        let mut faults = Vec::new();
        // An interval goes on when the clock is set back, through times that were shown, and edited at, before.
        let is_repeated = is_stepped_back && self.timeline.has_interval();
        self.judge_starts(last, is_set_back, is_repeated, &mut faults);
        let policy = self.timeline.always(|definition| definition.overlap).filter(|_| !is_repeated);
        if let (Some(policy), Some(slack_ms)) = (policy, ledger.call_ms_max) {
            let entries = kept.map_or(&[][..], |kept| &kept.entries);
            overlap::judge(policy, &jobs, entries, slack_ms, &mut faults);
        }
        match (kept, self.timeline.deleted_at) {
            (Some(kept), None) => {
                let decided = self.unfold(kept, &mut faults);
                if !is_repeated {
                    self.judge_instants(kept, &decided, ledger.ended_at, &mut faults);
                }
                judge_fires(kept, &decided, &jobs, &mut faults);
                if !is_set_back {
                    judge_decisions(&kept.entries, &mut faults);
                }
                judge_chain(&kept.schedule, &jobs, ledger.ended_at, &mut faults);
            }
            (None, None) => faults.push((Promise::NothingLost, None, "the schedule is gone".to_owned())),
            (Some(_), Some(_)) => {
                faults.push((Promise::EditsHold, None, "it is there although it was deleted".to_owned()));
            }
            (None, Some(_)) => {}
        }
        faults
    }

    /// What runners saw of it.
    fn judge_starts(
        &self,
        schedule: &Schedule,
        is_set_back: bool,
        is_repeated: bool,
        faults: &mut Vec<Fault>,
    ) {
        let mut by_instant: BTreeMap<Timestamp, JobId> = BTreeMap::new();
        for (start, latest_wall) in &self.starts {
            let Some(Occurrence { fire_at, .. }) = start.occurrence else { continue };
            let id = Some(start.id);
            match origin(schedule, start.id, fire_at) {
                Origin::Backfill => continue,
                Origin::Trigger if self.triggers == 0 => {
                    faults.push((Promise::NothingUnexpected, id, "nobody triggered it".to_owned()));
                }
                Origin::Trigger => continue,
                Origin::Instant => {}
            }
            let first = *by_instant.entry(fire_at).or_insert(start.id);
            if first != start.id {
                faults.push((
                    Promise::OneFirePerInstant,
                    id,
                    format!("{fire_at} was given to run as {first}, too"),
                ));
            }
            let earliest =
                if is_repeated { fire_at } else { self.timeline.earliest_start(schedule.id, fire_at) };
            // Later attempts, and what waited for an earlier run, are set by a clock that may have been set back.
            let came_at = if is_set_back { *latest_wall } else { start.claimed_at };
            if start.attempt == 1 && came_at < earliest {
                let text = format!("{fire_at} was started at {}, before {earliest}", start.claimed_at);
                faults.push((Promise::NothingEarly, id, text));
            }
            if is_repeated {
                continue;
            }
            if self.timeline.rests_at(fire_at) {
                faults.push((Promise::EditsHold, id, format!("{fire_at} fired although it was paused")));
            }
            if self.timeline.deleted_at.is_some_and(|deleted_at| deleted_at < fire_at) {
                faults.push((Promise::EditsHold, id, format!("{fire_at} fired although it was deleted")));
            }
        }
    }

    /// The ledger tells of the schedule's instants, all of them and no others.
    fn judge_instants(
        &self,
        kept: &KeptSchedule,
        decided: &BTreeMap<Timestamp, Outcome>,
        ended_at: Timestamp,
        faults: &mut Vec<Fault>,
    ) {
        let next = kept.schedule.next;
        let until = match (kept.schedule.state, next) {
            (State::Paused, _) => kept.schedule.decided_until,
            (State::Active | State::Ended, None) => ended_at,
            (State::Active | State::Ended, Some(next)) => next.fire_at.plus_ms(-1).max(next.covers_until),
        };
        let instants = self.timeline.instants(until);
        for (at, is_certain) in &instants {
            let waits = next.is_some_and(|next| next.fire_at == *at);
            if *is_certain && !waits && !decided.contains_key(at) {
                faults.push((Promise::EveryInstantEnds, None, format!("nothing became of {at}")));
            }
        }
        for (at, outcome) in decided {
            if !instants.contains_key(at) {
                faults.push((
                    Promise::EditsHold,
                    None,
                    format!("{at} is {outcome:?}, but none of its instants"),
                ));
            }
            if self.timeline.rests_at(*at) && *outcome != Outcome::Skipped(Reason::Paused) {
                faults.push((Promise::EditsHold, None, format!("{at} is {outcome:?}, but it was paused")));
            }
        }
    }

    /// What became of each instant of the chain.
    fn unfold(&self, kept: &KeptSchedule, faults: &mut Vec<Fault>) -> BTreeMap<Timestamp, Outcome> {
        let mut decided: BTreeMap<Timestamp, Outcome> = BTreeMap::new();
        let mut by_hand = BTreeSet::new();
        for entry in &kept.entries {
            let job_id = match entry.outcome {
                Outcome::Triggered { job_id } | Outcome::Backfilled { job_id } => {
                    if !by_hand.insert(job_id) {
                        let text = format!("{} is in the ledger twice", entry.from);
                        faults.push((Promise::OneFirePerInstant, Some(job_id), text));
                    }
                    continue;
                }
                Outcome::Fired { job_id, .. } => Some(job_id),
                Outcome::Coalesced { .. } | Outcome::Skipped(_) | Outcome::Missed => None,
            };
            for at in entry.instants(None).take(RANGE_COUNT_MAX) {
                if let Some(other) = decided.insert(at, entry.outcome) {
                    let text = format!("{at} is {other:?} and {:?}", entry.outcome);
                    faults.push((Promise::OneFirePerInstant, job_id, text));
                }
            }
        }
        for job_id in self.triggered.iter().filter(|job_id| !by_hand.contains(*job_id)) {
            let text = "an acknowledged trigger is not in the ledger".to_owned();
            faults.push((Promise::NothingLost, Some(*job_id), text));
        }
        decided
    }
}

/// Every fire has its one job, and nothing else has run.
fn judge_fires(
    kept: &KeptSchedule,
    decided: &BTreeMap<Timestamp, Outcome>,
    jobs: &[(&Job, &Occurrence, Origin)],
    faults: &mut Vec<Fault>,
) {
    let ran: BTreeMap<JobId, Timestamp> = jobs
        .iter()
        .filter(|(job, _, origin)| *origin == Origin::Instant && job.status.attempt > 0)
        .map(|(job, occurrence, _)| (job.id, occurrence.fire_at))
        .collect();
    let mut fired = BTreeMap::new();
    for (at, outcome) in decided {
        let Outcome::Fired { job_id, .. } = outcome else { continue };
        fired.insert(*job_id, *at);
        let is_there = jobs.iter().any(|(job, occurrence, origin)| {
            job.id == *job_id && occurrence.fire_at == *at && *origin == Origin::Instant
        });
        if !is_there {
            faults.push((Promise::OneFirePerInstant, Some(*job_id), format!("{at} fired and has no job")));
        }
        // An occurrence that waits for the one before it has fired, and not run.
        let may_not_run = kept.schedule.held == Some(*job_id) || !ran.contains_key(job_id);
        let is_over = jobs.iter().any(|(job, ..)| job.id == *job_id && job.status.state.is_finished());
        if !ran.contains_key(job_id) && !is_over && kept.schedule.held != Some(*job_id) && may_not_run {
            faults.push((Promise::NothingLost, Some(*job_id), format!("{at} fired and never ran")));
        }
    }
    for (job_id, at) in ran.iter().filter(|(job_id, _)| !fired.contains_key(*job_id)) {
        faults.push((Promise::OneFirePerInstant, Some(*job_id), format!("{at} ran, but did not fire")));
    }
}

/// Why a job was made: its id is a hash of the reason, the schedule and the instant.
fn origin(schedule: &Schedule, job_id: JobId, fire_at: Timestamp) -> Origin {
    let run_at = job_id.run_at();
    if occurrence_job(schedule, fire_at, run_at, false, fire_at).id == job_id {
        Origin::Instant
    } else if backfill_job(schedule, fire_at, run_at, fire_at).0.id == job_id {
        Origin::Backfill
    } else {
        Origin::Trigger
    }
}

/// Nothing is decided before it came. By a clock that was set back it may seem so.
fn judge_decisions(entries: &[Entry], faults: &mut Vec<Fault>) {
    for entry in entries.iter().filter(|entry| entry.to > entry.decided_at) {
        let text = format!("{} was decided before it came, at {}", entry.to, entry.decided_at);
        faults.push((Promise::NothingEarly, None, text));
    }
}

/// One that goes on has one occurrence that waits for its time; one that does not has none.
fn judge_chain(
    schedule: &Schedule,
    jobs: &[(&Job, &Occurrence, Origin)],
    ended_at: Timestamp,
    faults: &mut Vec<Fault>,
) {
    let waiting: Vec<JobId> = jobs
        .iter()
        .filter(|(job, _, origin)| {
            let is_unclaimed = job.status.attempt == 0 && !job.status.state.is_finished();
            *origin == Origin::Instant && is_unclaimed && schedule.held != Some(job.id)
        })
        .map(|(job, ..)| job.id)
        .collect();
    let next = schedule.next.filter(|_| schedule.state == State::Active);
    let expected: Vec<JobId> = next.map(|next| next.job_id).into_iter().collect();
    let is_broken = schedule.state == State::Active && next.is_none();
    if waiting != expected || is_broken || schedule.next.is_some() != next.is_some() {
        let text = format!("it is {:?} and waits for {expected:?}; waiting are {waiting:?}", schedule.state);
        faults.push((Promise::ChainUnbroken, None, text));
    }
    if let Some(next) = next.filter(|next| next.run_at.plus_ms(LATE_MS_MAX) < ended_at) {
        let text = format!("{} should have been decided by {ended_at}", next.fire_at);
        faults.push((Promise::ChainUnbroken, Some(next.job_id), text));
    }
}
