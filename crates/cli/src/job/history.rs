//! What has happened to a job so far, from what the server knows now. Told as a list that only grows, so that
//! whoever looks again needs to print only what is new, however much happened in between.

use tidewheel_core::job::State;
use tidewheel_core::time::{Timestamp, format_duration};

use crate::document::Document;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// When.
    pub(super) at: String,
    /// What: a state, or how an attempt ended.
    pub(super) state: String,
    /// In which attempt; 0 before the first.
    pub(super) attempt: u64,
    /// More about it.
    pub(super) detail: String,
}

impl Event {
    /// Whether it is the same thing, told again: a job is in one state only once per attempt.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.state == other.state && self.attempt == other.attempt
    }
}

/// Everything that is known to have happened, oldest first.
pub(super) fn of(job: &Document, attempts: &[Document]) -> Vec<Event> {
    let mut events = vec![Event {
        at: text(job, "created_at"),
        state: State::Scheduled.as_str().to_owned(),
        attempt: 0,
        detail: format!("to run at {}", text(job, "fire_at")),
    }];
    for attempt in attempts {
        of_attempt(attempt, job, &mut events);
    }
    // Attempts are read after the job: if they tell of a later one, the job's state was that before it, and is old.
    let newest = attempts.iter().filter_map(|attempt| attempt.count("attempt")).max();
    if newest > job.count("attempt") {
        return events;
    }
    let last_change = events.last().map(|event| event.at.clone()).unwrap_or_default();
    let now = current(job, last_change);
    if !events.iter().any(|event| event.is(&now)) {
        events.push(now);
    }
    events
}

fn of_attempt(attempt: &Document, job: &Document, events: &mut Vec<Event>) {
    let number = attempt.count("attempt").unwrap_or_default();
    let started = text(attempt, "started_at");
    // A job that was run again counts on from where it was, past what one run allows.
    let of = job
        .count("max_attempts")
        .filter(|max| number <= *max)
        .map(|max| format!(" of {max}"))
        .unwrap_or_default();
    let worker = attempt.text("worker").filter(|worker| !worker.is_empty());
    let by = worker.map(|worker| format!(", by {worker}")).unwrap_or_default();
    events.push(Event {
        at: started.clone(),
        state: State::Running.as_str().to_owned(),
        attempt: number,
        detail: format!("attempt {number}{of}{by}"),
    });
    let (Some(at), Some(state)) = (attempt.text("finished_at"), attempt.text("state")) else { return };
    let took = match (started.parse::<Timestamp>(), at.parse::<Timestamp>()) {
        (Ok(started), Ok(finished)) => format!("after {}", format_duration(finished.since_ms(started))),
        _ => String::new(),
    };
    let status = attempt.text("status_code").map(|code| format!("HTTP {code}"));
    let detail = attempt.text("detail").filter(|detail| !detail.is_empty());
    let parts: Vec<String> =
        [Some(took), status, detail].into_iter().flatten().filter(|p| !p.is_empty()).collect();
    events.push(Event { at, state, attempt: number, detail: parts.join(": ") });
}

/// The state the job is in. It waits for a retry since its last attempt ended.
fn current(job: &Document, last_change: String) -> Event {
    let state = text(job, "state");
    let attempt = job.count("attempt").unwrap_or_default();
    let run_at = text(job, "run_at");
    let (at, detail) = match state.as_str() {
        "ready" => (run_at, "due; waits for its turn or for a worker".to_owned()),
        "retrying" => (last_change, format!("next attempt at {run_at}")),
        "scheduled" => (String::new(), format!("to run at {run_at}")),
        _ => (text(job, "finished_at"), job.first_text(&["reason", "last_error"]).unwrap_or_default()),
    };
    Event { at, state, attempt, detail }
}

/// Whether the job has ended: nothing more happens by itself.
pub(super) fn has_ended(job: &Document) -> bool {
    job.text("state").and_then(|name| State::from_name(&name)).is_some_and(State::is_finished)
}

fn text(document: &Document, name: &str) -> String {
    document.text(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(json: &str) -> Document {
        serde_json::from_str(json).unwrap()
    }

    fn lines(job: &str, attempts: &[&str]) -> Vec<String> {
        let attempts: Vec<_> = attempts.iter().map(|json| document(json)).collect();
        let events = of(&document(job), &attempts).into_iter();
        events.map(|event| format!("{} {} {}", event.at, event.state, event.detail)).collect()
    }

    const FAILED: &str = r#"{"attempt":1,"state":"failed","worker":"push","started_at":"2026-01-01T00:00:05.000Z",
        "finished_at":"2026-01-01T00:00:05.250Z","status_code":500,"detail":"oops"}"#;
    const DONE: &str = r#"{"attempt":2,"state":"succeeded","worker":"","started_at":"2026-01-01T00:00:06.000Z",
        "finished_at":"2026-01-01T00:00:06.010Z","status_code":200,"detail":""}"#;

    #[test]
    fn a_whole_life_is_told_even_to_one_who_comes_late() {
        let job = r#"{"state":"succeeded","attempt":2,"max_attempts":5,"created_at":"C","fire_at":"F","run_at":"R",
            "finished_at":"2026-01-01T00:00:06.010Z"}"#;
        assert_eq!(
            lines(job, &[FAILED, DONE]),
            [
                "C scheduled to run at F",
                "2026-01-01T00:00:05.000Z running attempt 1 of 5, by push",
                "2026-01-01T00:00:05.250Z failed after 250ms: HTTP 500: oops",
                "2026-01-01T00:00:06.000Z running attempt 2 of 5",
                "2026-01-01T00:00:06.010Z succeeded after 10ms: HTTP 200",
            ]
        );
        assert!(has_ended(&document(job)));
    }

    #[test]
    fn the_state_it_is_in_comes_last() {
        let job = |state: &str, attempt: u64| {
            format!(
                r#"{{"state":"{state}","attempt":{attempt},"created_at":"C","fire_at":"F","run_at":"R","finished_at":null}}"#
            )
        };
        assert_eq!(lines(&job("scheduled", 0), &[]), ["C scheduled to run at F"]);
        assert_eq!(lines(&job("ready", 0), &[])[1], "R ready due; waits for its turn or for a worker");
        assert_eq!(
            lines(&job("retrying", 1), &[FAILED])[3],
            "2026-01-01T00:00:05.250Z retrying next attempt at R"
        );
        assert!(!has_ended(&document(&job("retrying", 1))));
        let dead =
            r#"{"state":"dead","attempt":1,"finished_at":"E","reason":null,"last_error":"HTTP 500: oops"}"#;
        assert_eq!(lines(dead, &[FAILED]).last().map(String::as_str), Some("E dead HTTP 500: oops"));
    }

    #[test]
    fn a_state_that_attempts_have_overtaken_is_not_told_after_them() {
        let started = r#"{"attempt":1,"state":"running","started_at":"S"}"#;
        let seen =
            lines(r#"{"state":"ready","attempt":0,"created_at":"C","fire_at":"F","run_at":"R"}"#, &[started]);
        assert_eq!(seen, ["C scheduled to run at F", "S running attempt 1"]);
    }

    #[test]
    fn what_was_told_is_recognised() {
        let early = of(
            &document(r#"{"state":"running","attempt":1}"#),
            &[document(r#"{"attempt":1,"state":"running","started_at":"S"}"#)],
        );
        let late = of(&document(r#"{"state":"retrying","attempt":1,"run_at":"R"}"#), &[document(FAILED)]);
        let new: Vec<_> = late.iter().filter(|event| !early.iter().any(|told| told.is(event))).collect();
        assert_eq!(new.iter().map(|event| event.state.as_str()).collect::<Vec<_>>(), ["failed", "retrying"]);
    }
}
