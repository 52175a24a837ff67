//! Whether runs of one schedule kept out of each other's way, by the times the store has for them. Those are
//! times at which calls were made; what they changed, they changed a little later. So two runs count as
//! overlapping only if they do so for longer than a call takes.

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
    slack_ms: i64,
    faults: &mut Vec<Fault>,
) {
    if policy == Overlap::Allow {
        return;
    }
    let spans: Vec<Span> = jobs.iter().filter_map(|(job, _, origin)| span(job, *origin)).collect();
    for one in spans.iter().filter(|one| one.origin == Origin::Instant) {
        let beside = spans.iter().find(|other| other.id != one.id && is_beside(other, one, slack_ms));
        if let Some(other) = beside {
            let text =
                format!("it started at {} beside {}, which ended at {}", one.from, other.id, other.until);
            faults.push((Promise::NoOverlap, Some(one.id), text));
        }
    }
    if policy == Overlap::BufferOne {
        judge_buffer(jobs, entries, slack_ms, faults);
    }
}

/// Whether `one`, which should have minded `other`, ran beside it. A run asked for by hand minds nobody.
fn is_beside(other: &Span, one: &Span, slack_ms: i64) -> bool {
    let is_minded = other.origin == Origin::Instant || other.from.plus_ms(slack_ms) < one.from;
    is_minded && one.from.max(other.from).plus_ms(slack_ms) < one.until.min(other.until)
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
fn judge_buffer(
    jobs: &[(&Job, &Occurrence, Origin)],
    entries: &[Entry],
    slack_ms: i64,
    faults: &mut Vec<Fault>,
) {
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
        if from.plus_ms(slack_ms) < *until {
            faults.push((Promise::NoOverlap, Some(*second), format!("it was queued behind {first}")));
        }
    }
}
