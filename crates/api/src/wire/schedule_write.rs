//! Schedules, their fires and their ledgers as JSON.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::schedule::{
    Dates, Definition, Entry, Exclude, MisfirePolicy, Note, Outcome, Rule, Schedule, State, Timing,
    window_offset_ms,
};
use tidewheel_core::time::{Timestamp, format_duration};

use super::filter::ShownState;
use super::schedule_request::{fold_name, gap_name};
use super::write::{self, JsonWriter};

/// What of a schedule is shown.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleView {
    /// Whether the payload is shown.
    pub payload: bool,
    /// Of an answer to a creation: whether it was a repeat.
    pub duplicate: Option<bool>,
}

/// Writes a schedule.
pub fn schedule(out: &mut JsonWriter, schedule: &Schedule, view: ScheduleView) {
    out.object(|out| {
        out.key("id").plain(schedule.id);
        out.key("tenant").text(schedule.tenant.as_str());
        out.key("state").text(schedule.state.as_str());
        out.key("paused").boolean(schedule.state == State::Paused);
        out.key("version").number(schedule.version);
        out.key("next_fire_at").time(schedule.next.map(|next| next.fire_at));
        out.key("next_run_at").time(schedule.next.map(|next| next.run_at));
        out.key("last_fire_at").time(schedule.last_fire.map(|last| last.fire_at));
        definition(out, schedule.name.as_ref(), &schedule.definition);
        if view.payload {
            out.key("payload").raw(&schedule.definition.template.payload);
        }
        out.key("created_at").plain(schedule.created_at);
        out.key("updated_at").plain(schedule.updated_at);
        if let Some(duplicate) = view.duplicate {
            out.key("duplicate").boolean(duplicate);
        }
    });
}

/// Writes the fields that were asked for, the payload excepted. Those who ask for the same get the same bytes.
pub fn definition(out: &mut JsonWriter, name: Option<&Arc<str>>, definition: &Definition) {
    let template = &definition.template;
    out.key("name").text_or_null(name.map(|name| &**name));
    rule(out, &definition.rule);
    out.key("window").plain(format_duration(definition.window_ms));
    out.key("misfire").text(definition.misfire.policy.as_str());
    out.key("misfire_cap");
    match definition.misfire.policy {
        MisfirePolicy::FireAll { cap } => out.number(cap),
        MisfirePolicy::FireLatest | MisfirePolicy::Skip => out.null(),
    }
    out.key("misfire_grace").plain(format_duration(definition.misfire.grace_ms));
    out.key("overlap").text(definition.overlap.as_str());
    out.key("type").text(&template.kind);
    write::destination(out, &template.destination, template.timeout_ms);
    out.key("priority").text(template.priority.as_str());
    write::retry(out, &template.retry);
    out.key("timeout").plain(format_duration(template.timeout_ms));
    write::labels(out, &template.labels);
    out.key("idempotency_key").text_or_null(definition.idempotency_key.as_deref());
    out.key("note").text_or_null(definition.note.as_deref());
}

fn rule(out: &mut JsonWriter, rule: &Rule) {
    match &rule.timing {
        Timing::Cron(cron) => out.key("cron_expr").text(&cron.to_string()),
        Timing::Every { interval_ms, .. } => out.key("every").plain(format_duration(*interval_ms)),
    }
    out.key("timezone").text(rule.zone.name());
    out.key("dst").object(|out| {
        out.key("gap").text(gap_name(rule.dst.gap));
        out.key("fold").text(fold_name(rule.dst.fold));
    });
    out.key("start_at").time(rule.start_at);
    out.key("end_at").time(rule.end_at);
    out.key("exclude");
    if rule.exclude == Exclude::default() {
        out.null();
        return;
    }
    out.object(|out| {
        out.key("dates");
        dates(out, &rule.exclude.dates);
        out.key("calendar").text_or_null(rule.exclude.calendar.as_deref());
        out.key("roll").text(rule.exclude.roll.as_str());
    });
}

/// Writes dates as an array.
pub fn dates(out: &mut JsonWriter, dates: &Dates) {
    out.array(|out| {
        for date in dates.as_slice() {
            out.plain(date);
        }
    });
}

/// Writes a fire to come.
pub fn fire(out: &mut JsonWriter, fire_at: Timestamp, run_at: Timestamp, note: Option<Note>) {
    out.object(|out| {
        out.key("fire_at").plain(fire_at);
        out.key("run_at").plain(run_at);
        out.key("note").text_or_null(note.map(Note::as_str));
    });
}

/// The job an entry of a ledger is about.
#[must_use]
pub const fn job_of(entry: &Entry) -> Option<JobId> {
    match entry.outcome {
        Outcome::Fired { job_id, .. } | Outcome::Triggered { job_id } | Outcome::Backfilled { job_id } => {
            Some(job_id)
        }
        Outcome::Coalesced { .. } | Outcome::Skipped(_) | Outcome::Missed => None,
    }
}

/// Writes what became of one instant of an entry of a schedule. `job` is the job made of it, as far as it is still known.
pub fn firing(
    out: &mut JsonWriter,
    schedule: &Schedule,
    (at, entry): (Timestamp, &Entry),
    job: Option<&Job>,
    now: Timestamp,
) {
    let (reason, catch_up, into) = match entry.outcome {
        Outcome::Fired { catch_up, .. } => (None, catch_up, None),
        Outcome::Coalesced { into } => (None, false, Some(into)),
        Outcome::Skipped(reason) => (Some(reason.as_str()), false, None),
        Outcome::Backfilled { .. } => (None, true, None),
        Outcome::Missed | Outcome::Triggered { .. } => (None, false, None),
    };
    let job_id = job_of(entry);
    let started_at = job.and_then(first_start);
    // What was missed is late from its own time on, everything else from when it was set to start. What is made
    // up for by hand was set to start much later than its time, and is not late for that.
    let (run_at, due_at) = match entry.outcome {
        Outcome::Fired { job_id, catch_up: true } => (Some(job_id.run_at()), Some(at)),
        Outcome::Fired { job_id, .. } => (Some(job_id.run_at()), Some(meant_for(schedule, at, job_id, job))),
        Outcome::Triggered { job_id } => (Some(job_id.run_at()), Some(job_id.run_at())),
        Outcome::Backfilled { .. } => (job.map(|job| job.status.due_at), None),
        Outcome::Coalesced { .. } | Outcome::Skipped(_) | Outcome::Missed => (None, None),
    };
    let lag_ms = started_at.zip(due_at).map(|(started, due)| started.since_ms(due).max(0));
    out.object(|out| {
        out.key("fire_at").plain(at);
        out.key("outcome").text(entry.outcome.as_str());
        out.key("reason").text_or_null(reason);
        out.key("coalesced_into").time(into);
        out.key("job_id").text_or_null(job_id.map(|id| id.to_string()).as_deref());
        out.key("catch_up").boolean(catch_up);
        out.key("run_at").time(run_at);
        out.key("started_at").time(started_at);
        out.key("finished_at").time(job.and_then(|job| job.status.finished_at));
        out.key("lag").text_or_null(lag_ms.map(format_duration).as_deref());
        out.key("attempts");
        match job {
            Some(job) => out.number(job.status.attempt),
            None => out.null(),
        }
        out.key("state").text_or_null(job.map(|job| ShownState::of(job, now).as_str()));
        out.key("decided_at").plain(entry.decided_at);
    });
}

/// When the job of an instant was to start. Behind one that was late it is made late as well, and set for when it was made: that
/// makes it no less late.
fn meant_for(schedule: &Schedule, at: Timestamp, id: JobId, job: Option<&Job>) -> Timestamp {
    let run_at = id.run_at();
    let is_made_late = job.is_some_and(|job| job.spec.created_at == run_at);
    let meant = || at.plus_ms(window_offset_ms(schedule.id, at, schedule.definition.window_ms));
    if is_made_late { run_at.min(meant()) } else { run_at }
}

/// When the first attempt began that is still remembered.
fn first_start(job: &Job) -> Option<Timestamp> {
    let ended = job.status.attempts.first().map(|attempt| attempt.started_at);
    ended.or(job.status.running.as_ref().map(|running| running.started_at))
}
