//! Whether runs of one schedule kept out of each other's way, by the times the store has for them. Those are
//! times of the wall clock, so they say nothing once that was set back.

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Occurrence};
use tidewheel_core::schedule::{Entry, Outcome, Overlap};
use tidewheel_core::time::Timestamp;

use super::Promise;
use super::schedules::{Fault, Origin};

/// A job from when its schedule takes it for unfinished until it ended.
#[derive(Debug, Clone, Copy)]
struct Span {
    id: JobId,
    from: Timestamp,
    until: Timestamp,
    origin: Origin,
}

/// Judges the jobs of a schedule whose policy never changed.
pub(super) fn judge(
    policy: Overlap,
    jobs: &[(&Job, &Occurrence, Origin)],
    entries: &[Entry],
    faults: &mut Vec<Fault>,
) {
    if policy == Overlap::Allow {
        return;
    }
    let spans: Vec<Span> = jobs.iter().filter_map(|(job, _, origin)| span(job, *origin)).collect();
    for one in spans.iter().filter(|one| one.origin == Origin::Instant) {
        let beside = spans.iter().find(|other| other.id != one.id && is_under_way(other, one));
        if let Some(other) = beside {
            let text =
                format!("it started at {} beside {}, which ended at {}", one.from, other.id, other.until);
            faults.push((Promise::NoOverlap, Some(one.id), text));
        }
    }
    if policy == Overlap::BufferOne {
        judge_buffer(jobs, entries, faults);
    }
}

/// Whether `other` was under way when `one` started. Of two in the same millisecond, either can be first; but
/// two instants that both go on from there have not minded each other.
fn is_under_way(other: &Span, one: &Span) -> bool {
    let is_tie = other.from == one.from && other.origin == Origin::Instant && one.from < one.until;
    (other.from < one.from || is_tie) && one.from < other.until
}

fn span(job: &Job, origin: Origin) -> Option<Span> {
    let started_at = first_start(job);
    let from = match origin {
        Origin::Instant => started_at?,
        Origin::Trigger => job.spec.created_at,
        // Made up for by hand, they are beside everything.
        Origin::Backfill => return None,
    };
    Some(Span { id: job.id, from, until: job.status.finished_at.unwrap_or(Timestamp::MAX), origin })
}

/// When its first attempt was claimed, if that is still known.
fn first_start(job: &Job) -> Option<Timestamp> {
    let ended = job.status.attempts.iter().find(|attempt| attempt.number == 1);
    let running = job.status.running.as_ref().filter(|_| job.status.attempt == 1);
    ended.map(|attempt| attempt.started_at).or(running.map(|running| running.started_at))
}

/// At most one has fired and waits for the one before it.
fn judge_buffer(jobs: &[(&Job, &Occurrence, Origin)], entries: &[Entry], faults: &mut Vec<Fault>) {
    let mut waits: Vec<(Timestamp, Timestamp, JobId)> = Vec::new();
    for entry in entries {
        let Outcome::Fired { job_id, .. } = entry.outcome else { continue };
        let Some((job, ..)) = jobs.iter().find(|(job, ..)| job.id == job_id) else { continue };
        let until = first_start(job).or(job.status.finished_at).unwrap_or(Timestamp::MAX);
        if entry.decided_at < until && (job.status.attempt == 0 || first_start(job).is_some()) {
            waits.push((entry.decided_at, until, job_id));
        }
    }
    waits.sort_unstable();
    for ((_, until, first), (from, _, second)) in waits.iter().zip(waits.iter().skip(1)) {
        if from < until {
            faults.push((Promise::NoOverlap, Some(*second), format!("it was queued behind {first}")));
        }
    }
}
