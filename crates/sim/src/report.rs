//! Tells people what came of a run, and how to have it again.

use std::fmt::Write;

use tidewheel_store_testkit::memory::Written;

use crate::checker::Violation;
use crate::history::{Entry, Event};
use crate::run::Run;

/// Violations told in full.
const VIOLATIONS_MAX: usize = 5;
/// Entries of the record told per violation.
const TAIL_MAX: usize = 60;

/// The run's violations, each with what led to it; empty without any.
#[must_use]
pub fn violations(run: &Run) -> String {
    let mut text = String::new();
    for violation in run.violations.iter().take(VIOLATIONS_MAX) {
        line(&mut text, format_args!("seed {}: {violation}", run.plan.seed));
        for entry in tail(&run.entries, violation) {
            line(&mut text, format_args!("    {entry}"));
        }
    }
    if !run.violations.is_empty() {
        let (count, seed, nodes) = (run.violations.len(), run.plan.seed, run.plan.nodes);
        line(
            &mut text,
            format_args!(
                "{count} violations; again: cargo run -p tidewheel-sim -- --seed {seed} --nodes {nodes}"
            ),
        );
    }
    text
}

/// The whole record.
#[must_use]
pub fn record(run: &Run) -> String {
    let mut text = String::new();
    for entry in &run.entries {
        line(&mut text, format_args!("{entry}"));
    }
    text
}

/// One line about a run.
#[must_use]
pub fn summary(run: &Run) -> String {
    let count =
        |matches: fn(&Event) -> bool| run.entries.iter().filter(|entry| matches(&entry.event)).count();
    let elapsed_s = run.entries.last().map_or(0, |entry| entry.elapsed_ms / 1_000);
    format!(
        "seed {}, {} nodes: {} acknowledged, {} starts, {} servers, {} faults, {} violations, {elapsed_s} virtual s, {} store calls, {:?} {:?}",
        run.plan.seed,
        run.plan.nodes,
        count(|event| matches!(event, Event::Taken { .. })),
        count(|event| matches!(event, Event::Started(_))),
        count(|event| matches!(event, Event::ServerUp)),
        count(|event| matches!(event, Event::Fault(..))),
        run.violations.len(),
        run.store_calls,
        run.plan.strikes,
        run.plan.cluster_strikes,
    )
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a String cannot fail.
    writeln!(text, "{arguments}").ok();
}

/// What led to a violation: everything about its job, and every fault.
fn tail<'a>(entries: &'a [Entry], violation: &Violation) -> Vec<&'a Entry> {
    let is_usual = |event: &Event| {
        matches!(event, Event::Held { count, bound } if count <= bound)
            || matches!(event, Event::Witnessed { deed: Written::Leased { .. }, .. })
    };
    let is_of_schedule = |event: &Event| match (violation.schedule, event) {
        (Some(id), Event::ScheduleWishing(wish)) => wish.id == id,
        (Some(id), Event::ScheduleGranted(answer)) => answer.schedule.id == id,
        (Some(id), Event::ScheduleDeclined { id: of, .. }) => *of == id,
        _ => false,
    };
    let about = |entry: &&Entry| {
        !is_usual(&entry.event)
            && (is_of_schedule(&entry.event)
                || !is_schedules(&entry.event)
                    && subject(&entry.event).is_none_or(|id| Some(id) == violation.id))
    };
    let matching: Vec<&Entry> = entries.iter().filter(about).collect();
    let skipped = matching.len().saturating_sub(TAIL_MAX);
    matching.into_iter().skip(skipped).collect()
}

const fn is_schedules(event: &Event) -> bool {
    matches!(event, Event::ScheduleWishing(_) | Event::ScheduleGranted(_) | Event::ScheduleDeclined { .. })
}

/// The job an event is about; `None` when it concerns everybody.
fn subject(event: &Event) -> Option<tidewheel_core::id::JobId> {
    match event {
        Event::Submitting(asked) => Some(asked.id),
        Event::Started(start) => Some(start.id),
        Event::Witnessed { deed: Written::Claimed { id, .. } | Written::Ended { id, .. }, .. } => Some(*id),
        Event::Witnessed { deed: Written::Leased { .. } | Written::Released { .. }, .. } => None,
        Event::Taken { id }
        | Event::Known { id, .. }
        | Event::SubmitUnclear { id }
        | Event::Wishing { id, .. }
        | Event::Granted { id, .. }
        | Event::Declined { id, .. }
        | Event::Reporting { id, .. }
        | Event::Accepted { id, .. }
        | Event::Refused { id, .. }
        | Event::Overdue { id, .. } => Some(*id),
        Event::ScheduleWishing(_)
        | Event::ScheduleGranted(_)
        | Event::ScheduleDeclined { .. }
        | Event::ServerUp
        | Event::ServerGone { .. }
        | Event::Fault(..)
        | Event::FaultsOver
        | Event::ServedTwice { .. }
        | Event::Recovered
        | Event::Served { .. }
        | Event::Held { .. }
        | Event::TooManyPushes { .. } => None,
    }
}
