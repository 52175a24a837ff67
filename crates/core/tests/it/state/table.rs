//! The whole of the state machine as one readable table: every situation a job can be in × every command in
//! its usual forms. Instants are told from now, tokens as epoch/attempt, and only what a command changes is
//! shown. A change of the table is a change of what users see; review it line by line.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::{
    Attempt, Change, Command, Destination, Ending, Failure, Finding, Job, Priority, Running, Spec, State,
    Status, Target, Token, transition,
};
use tidewheel_core::limits::{ATTEMPTS_LIFETIME_COUNT_MAX, ATTEMPTS_LOST_FREE_COUNT_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::time::{Timestamp, format_duration};

const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);
const EPOCH: u64 = 4;
const RIGHT: Token = Token::from_u64((3 << 20) | 1);
const STALE: Token = Token::from_u64(3 << 20);

#[test]
fn the_state_table() {
    let mut table = String::new();
    let (held, stale, other) = (held_commands(RIGHT), held_commands(STALE), other_commands());
    let width = held.iter().chain(&other).map(|(name, _)| name.len()).max().unwrap();
    for (situation, job) in situations() {
        writeln!(table, "{situation}").unwrap();
        for (name, command) in held.iter().chain(&other) {
            writeln!(table, "    {name:width$}  {}", outcome(&job, command)).unwrap();
        }
        for (name, command) in &stale {
            assert_eq!(outcome(&job, command), "✗ StaleToken", "{situation}: {name}, stale token");
        }
        writeln!(table, "    {:width$}  ✗ StaleToken\n", "all with a stale token").unwrap();
    }
    insta::assert_snapshot!(table);
}

/// Each state in every variety that some command tells apart.
fn situations() -> Vec<(&'static str, Job)> {
    let first = || Status::scheduled(NOW);
    let later = || Status::scheduled(at(60_000));
    let begun = || Status::scheduled(at(-6_000));
    let running =
        || Status { state: State::Running, attempt: 1, token: RIGHT, running: Some(attempt()), ..begun() };
    let retrying = |due_at| Status { state: State::Retrying, failures: 1, ..ended(Ending::Failed, due_at) };
    let finished = |state, ending| Status { state, finished_at: Some(at(-1_000)), ..ended(ending, NOW) };
    let lapsed = Running { lease_until: NOW, ..attempt() };
    let worn_out = Status { attempt: ATTEMPTS_LIFETIME_COUNT_MAX, ..retrying(NOW) };
    let often_lost = Status { lost: ATTEMPTS_LOST_FREE_COUNT_MAX, failures: 1, ..running() };
    let untried = |state| Status { state, finished_at: Some(at(-1_000)), ..first() };
    let dead = Status {
        failures: 2,
        reason: Some("all 2 attempts failed".into()),
        ..finished(State::Dead, Ending::Failed)
    };
    let expired = |status| {
        let mut job = job(status);
        Arc::make_mut(&mut job.spec).expires_at = Some(NOW);
        job
    };
    vec![
        ("scheduled, due", job(first())),
        ("scheduled, not due", job(later())),
        ("scheduled, due, past its expiry", expired(first())),
        ("running, lease holds, first of 2 attempts", job(running())),
        (
            "running, lease over, first of 2 attempts",
            job(Status { running: Some(lapsed.clone()), ..running() }),
        ),
        ("running, lease holds, last of 2 attempts", job(Status { failures: 1, ..running() })),
        (
            "running, lease over, last of 2 attempts",
            job(Status { failures: 1, running: Some(lapsed), ..running() }),
        ),
        ("running, last of 2 attempts, lost as often as is free", job(often_lost)),
        ("running, past its expiry", expired(running())),
        ("retrying, due", job(retrying(NOW))),
        ("retrying, not due", job(retrying(at(60_000)))),
        ("retrying, due, past its expiry", expired(retrying(NOW))),
        ("retrying, due, run as often as a job can be", job(worn_out)),
        (
            "retrying after a snooze, not due",
            job(Status { state: State::Retrying, ..ended(Ending::Snoozed, at(60_000)) }),
        ),
        (
            "retrying after a release, due",
            job(Status { state: State::Retrying, ..ended(Ending::Released, NOW) }),
        ),
        (
            "retrying after a lost lease, due",
            job(Status { failures: 1, state: State::Retrying, ..ended(Ending::LeaseExpired, NOW) }),
        ),
        (
            "retrying after a lost server, due",
            job(Status { lost: 1, state: State::Retrying, ..ended(Ending::Lost, NOW) }),
        ),
        ("succeeded", job(finished(State::Succeeded, Ending::Succeeded))),
        ("dead", job(dead)),
        ("cancelled while waiting", job(untried(State::Cancelled))),
        ("cancelled while running", job(finished(State::Cancelled, Ending::Cancelled))),
        ("skipped", job(untried(State::Skipped))),
        ("expired", job(untried(State::Expired))),
    ]
}

/// The commands of whoever holds an attempt.
fn held_commands(token: Token) -> Vec<(&'static str, Command)> {
    let progress = Some(Bytes::from_static(b"50"));
    let said = |text: &str| Finding { status_code: Some(200), detail: text.into() };
    let fail = |failure| Command::Fail { token, failure };
    vec![
        ("heartbeat", Command::Heartbeat { token, extend_ms: 90_000, progress }),
        ("heartbeat, shorter than the lease", Command::Heartbeat { token, extend_ms: 0, progress: None }),
        ("detach", Command::Detach { token, lease_ms: 3_600_000 }),
        ("succeed", Command::Succeed { token, finding: said("ok") }),
        ("abandon", Command::Abandon { token, finding: said("called off") }),
        ("fail, retryable", fail(failure())),
        ("fail, retryable, retry after 1h", fail(Failure { retry_after_ms: Some(3_600_000), ..failure() })),
        ("fail, retryable, timed out", fail(Failure { timed_out: true, ..failure() })),
        ("fail, final", fail(Failure { retryable: false, ..failure() })),
        ("snooze", Command::Snooze { token, delay_ms: 600_000 }),
        ("release", Command::Release { token }),
        ("lease over", Command::LeaseOver { token, lease_until: NOW, jitter: 0 }),
        (
            "lease over, its end ahead by a wall clock set back",
            Command::LeaseOver { token, lease_until: at(25_000), jitter: 0 },
        ),
        ("lost", Command::Lost { token }),
        ("worker gone", Command::WorkerGone { token }),
    ]
}

/// The commands of everybody else.
fn other_commands() -> Vec<(&'static str, Command)> {
    let target = Arc::new(Target { url: "http://new/".into(), method: "POST".into(), headers: Vec::new() });
    let claim =
        |detached| Command::Claim { epoch: EPOCH, worker: Arc::from("w2"), lease_ms: 30_000, detached };
    let amend = |run_at, priority| Command::Amend { run_at, priority };
    vec![
        ("claim", claim(false)),
        ("claim, detached", claim(true)),
        ("cancel", Command::Cancel),
        ("run now", Command::RunNow),
        ("amend the time", amend(Some(at(7_200_000)), None)),
        ("amend the priority", amend(None, Some(Priority::High))),
        ("rerun", Command::Rerun { run_at: at(1_000) }),
        ("replay", Command::Replay { run_at: at(1_000), payload: None, target: None, timeout_ms: None }),
        (
            "replay, edited",
            Command::Replay {
                run_at: NOW,
                payload: Some("new".into()),
                target: Some(target),
                timeout_ms: Some(60_000),
            },
        ),
        ("discard", Command::Discard),
    ]
}

/// What the command does, as the differences it makes.
fn outcome(job: &Job, command: &Command) -> String {
    match transition(job, command, NOW) {
        Err(rejection) => format!("✗ {rejection:?}"),
        Ok(Change::Nothing) => "· nothing".to_owned(),
        Ok(Change::Gone) => "→ gone".to_owned(),
        Ok(Change::To(next)) => {
            assert_eq!((next.id, &next.tenant), (job.id, &job.tenant), "a job stays who it is");
            format!("→ {}{}", next.status.state.as_str(), differences(job, &next))
        }
    }
}

fn differences(old: &Job, new: &Job) -> String {
    let mut text = String::new();
    let mut note = |name: &str, before: String, after: String| {
        if before != after {
            write!(text, ", {name} {after}").unwrap();
        }
    };
    let (was, is) = (&old.status, &new.status);
    let instant = |instant: Option<Timestamp>| instant.map_or("none".to_owned(), from_now);
    note("due", from_now(was.due_at), from_now(is.due_at));
    note("attempt", was.attempt.to_string(), is.attempt.to_string());
    note("token", token(was.token), token(is.token));
    note("failures", was.failures.to_string(), is.failures.to_string());
    note("lost", was.lost.to_string(), is.lost.to_string());
    note("running", under_way(was), under_way(is));
    note("finished", instant(was.finished_at), instant(is.finished_at));
    note("attempts", endings(was), endings(is));
    note("reason", format!("{:?}", was.reason.as_deref()), format!("{:?}", is.reason.as_deref()));
    note("priority", old.spec.priority.as_str().to_owned(), new.spec.priority.as_str().to_owned());
    note("payload", format!("{:?}", old.spec.payload), format!("{:?}", new.spec.payload));
    note("to", destination(old), destination(new));
    note("timeout", old.spec.timeout_ms.to_string(), new.spec.timeout_ms.to_string());
    text
}

fn under_way(status: &Status) -> String {
    status.running.as_ref().map_or("none".to_owned(), |running| {
        let Running { worker, started_at, lease_until, detached, progress } = running;
        let how = if *detached { " detached" } else { "" };
        let progress = progress.as_ref().map_or(String::new(), |progress| format!(" progress {progress:?}"));
        format!("({worker} since {} until {}{how}{progress})", from_now(*started_at), from_now(*lease_until))
    })
}

fn endings(status: &Status) -> String {
    let attempts = status.attempts.iter().map(|attempt| {
        let code = attempt.status_code.map_or(String::new(), |code| format!(" {code}"));
        let said = if attempt.detail.is_empty() { String::new() } else { format!(" {:?}", attempt.detail) };
        format!("{} {}{code}{said}", attempt.number, attempt.ending.as_str())
    });
    format!("[{}]", attempts.collect::<Vec<_>>().join(", "))
}

fn destination(job: &Job) -> String {
    match &job.spec.destination {
        Destination::Queue(queue) => format!("queue {queue}"),
        Destination::Target(target) => target.url.to_string(),
    }
}

fn token(token: Token) -> String {
    format!("{}/{}", token.as_u64() >> 20, token.as_u64() & 0xF_FFFF)
}

fn from_now(at: Timestamp) -> String {
    match at.since_ms(NOW) {
        0 => "now".to_owned(),
        ms if ms < 0 => format!("-{}", format_duration(-ms)),
        ms => format!("+{}", format_duration(ms)),
    }
}

fn at(ms: i64) -> Timestamp {
    NOW.plus_ms(ms)
}

fn job(status: Status) -> Job {
    let retry =
        RetryPolicy { max_attempts: 2, backoff: Backoff::Fixed, base_ms: 10_000, ..RetryPolicy::default() };
    let spec = Spec {
        kind: Arc::from("kind"),
        payload: Bytes::from_static(b"old"),
        destination: Destination::Queue(Arc::from("q")),
        priority: Priority::Normal,
        retry,
        timeout_ms: 30_000,
        expires_at: None,
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at: at(-60_000),
    };
    Job { status, ..Job::new(Tenant::default(), spec, NOW, 1) }
}

fn attempt() -> Running {
    Running {
        worker: Arc::from("w1"),
        started_at: at(-5_000),
        lease_until: at(25_000),
        detached: false,
        progress: None,
    }
}

/// After one attempt that ended so.
fn ended(ending: Ending, due_at: Timestamp) -> Status {
    let attempt = Attempt {
        number: 1,
        token: RIGHT,
        worker: Arc::from("w1"),
        started_at: at(-5_000),
        finished_at: at(-1_000),
        ending,
        status_code: None,
        detail: "".into(),
    };
    Status { attempt: 1, token: RIGHT, attempts: vec![attempt], ..Status::scheduled(due_at) }
}

fn failure() -> Failure {
    Failure {
        finding: Finding { status_code: Some(500), detail: "oops".into() },
        retryable: true,
        timed_out: false,
        retry_after_ms: None,
        jitter: 0,
    }
}
