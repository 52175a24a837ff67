//! The one function that changes a job's state. Total and pure: every state × every command has an answer,
//! and the whole table is a golden file.

use std::sync::Arc;

use super::{
    Attempt, Command, Destination, Ending, Failure, Finding, Job, Priority, Running, State, Status, Token,
};
use crate::limits::{
    ATTEMPTS_KEPT_COUNT_MAX, ATTEMPTS_LIFETIME_COUNT_MAX, ATTEMPTS_LOST_FREE_COUNT_MAX, LEASE_MS_MAX,
    LEASE_MS_MIN, RETRY_DELAY_MS_MAX,
};
use crate::time::Timestamp;

/// What a granted command does.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "taken apart where it is made, and never kept")]
pub enum Change {
    /// The job is now this.
    To(Job),
    /// It was so already: the same outcome reported again, a cancelled job cancelled again.
    Nothing,
    /// The job is gone.
    Gone,
}

/// Why a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Another attempt was started since, or the job ended.
    #[error("the token is stale: the attempt it belongs to is over or was given to another runner")]
    StaleToken,
    /// Claimed before its time.
    #[error("the job is not due yet")]
    NotDue,
    /// The job is being run.
    #[error("the job is running; wait for the attempt to end, or cancel the job")]
    Running,
    /// The job has ended.
    #[error("the job has ended as {}; retry it to run it again", .0.as_str())]
    Finished(State),
    /// The job has not ended.
    #[error("the job has not ended: it is {}", .0.as_str())]
    NotFinished(State),
    /// Only dead jobs can be replayed or discarded.
    #[error("the job is not a dead letter: it is {}", .0.as_str())]
    NotDead(State),
    /// The lease was extended since it was seen to run out.
    #[error("the lease still holds")]
    LeaseHolds,
    /// More attempts than a token can number.
    #[error("the job has been run as often as a job can be; submit a new one")]
    TooManyAttempts,
    /// It would run when its time is over.
    #[error("the job expires at {0}, and would not start; set it for a time before that")]
    ExpiresBefore(Timestamp),
}

/// Applies `command` to `job` at `now`.
///
/// # Errors
/// With the reason, when the command is not granted; the job is then unchanged.
pub fn transition(job: &Job, command: &Command, now: Timestamp) -> Result<Change, Rejection> {
    let state = job.status.state;
    match command {
        Command::Claim { epoch, worker, lease_ms, detached } => {
            claim(job, now, *epoch, Arc::clone(worker), *lease_ms, *detached)
        }
        Command::Heartbeat { token, extend_ms, progress } => renew(job, *token, |running| {
            running.lease_until = now.plus_ms(lease(*extend_ms)).max(running.lease_until);
            running.progress = progress.clone().or_else(|| running.progress.take());
        }),
        Command::Detach { token, lease_ms } => renew(job, *token, |running| {
            running.lease_until = now.plus_ms(lease(*lease_ms));
            running.detached = true;
        }),
        Command::Succeed { token, finding } => {
            end_attempt(job, *token, now, Ending::Succeeded, finding, |status| {
                finish(status, State::Succeeded, now)
            })
        }
        Command::Abandon { token, finding } => {
            end_attempt(job, *token, now, Ending::Cancelled, finding, |status| {
                finish(status, State::Cancelled, now)
            })
        }
        Command::Fail { token, failure } => fail(job, *token, failure, now),
        Command::Snooze { token, delay_ms } => {
            let until = now.plus_ms((*delay_ms).clamp(0, RETRY_DELAY_MS_MAX));
            end_attempt(job, *token, now, Ending::Snoozed, &Finding::default(), |status| wait(status, until))
        }
        Command::Release { token } => {
            end_attempt(job, *token, now, Ending::Released, &Finding::default(), |status| wait(status, now))
        }
        Command::LeaseOver { token, lease_until, jitter } => {
            lease_over(job, *token, *lease_until, *jitter, now)
        }
        Command::Lost { token } => lost(job, *token, now),
        Command::WorkerGone { token } => worker_gone(job, *token, now),
        Command::Cancel => cancel(job, now),
        Command::RunNow => {
            let mut next = waiting(job)?;
            next.status.due_at = next.status.due_at.min(now);
            Ok(Change::To(next))
        }
        Command::Amend { run_at, priority } => amend(job, *run_at, *priority),
        Command::Rerun { run_at } if state.is_finished() => Ok(Change::To(restarted(job, *run_at))),
        Command::Rerun { .. } => Err(Rejection::NotFinished(state)),
        Command::Replay { run_at, payload, target, timeout_ms } if state == State::Dead => {
            let mut next = restarted(job, *run_at);
            let spec = Arc::make_mut(&mut next.spec);
            if let Some(payload) = payload {
                spec.payload = payload.clone();
            }
            if let Some(target) = target {
                spec.destination = Destination::Target(Arc::clone(target));
            }
            spec.timeout_ms = timeout_ms.unwrap_or(spec.timeout_ms);
            Ok(Change::To(next))
        }
        Command::Discard if state == State::Dead => Ok(Change::Gone),
        Command::Replay { .. } | Command::Discard => Err(Rejection::NotDead(state)),
    }
}

fn amend(job: &Job, run_at: Option<Timestamp>, priority: Option<Priority>) -> Result<Change, Rejection> {
    let mut next = waiting(job)?;
    if let (Some(run_at), Some(expires_at)) = (run_at, job.spec.expires_at)
        && expires_at <= run_at
    {
        return Err(Rejection::ExpiresBefore(expires_at));
    }
    next.status.due_at = run_at.unwrap_or(next.status.due_at);
    if let Some(priority) = priority {
        Arc::make_mut(&mut next.spec).priority = priority;
    }
    Ok(Change::To(next))
}

fn claim(
    job: &Job,
    now: Timestamp,
    epoch: u64,
    worker: Arc<str>,
    lease_ms: i64,
    detached: bool,
) -> Result<Change, Rejection> {
    let mut next = waiting(job)?;
    if next.status.due_at > now {
        return Err(Rejection::NotDue);
    }
    let status = &mut next.status;
    if job.spec.expires_at.is_some_and(|expires_at| expires_at <= now) {
        finish(status, State::Expired, now);
        return Ok(Change::To(next));
    }
    if status.attempt >= ATTEMPTS_LIFETIME_COUNT_MAX {
        return Err(Rejection::TooManyAttempts);
    }
    status.attempt += 1;
    // Epochs only rise, but a restored backup may know only older ones: the token rises all the same.
    status.token = Token::new(epoch, status.attempt).max(Token::from_u64(status.token.as_u64() + 1));
    status.state = State::Running;
    status.running = Some(Running {
        worker,
        started_at: now,
        lease_until: now.plus_ms(lease(lease_ms)),
        detached,
        progress: None,
    });
    Ok(Change::To(next))
}

/// Gives a running attempt another lease: always another, so that it can be told from the one before even if the wall
/// clock was set meanwhile.
fn renew(job: &Job, token: Token, change: impl FnOnce(&mut Running)) -> Result<Change, Rejection> {
    let mut next = held(job, token)?;
    if let Some(running) = &mut next.status.running {
        let before = running.lease_until;
        change(running);
        if running.lease_until == before {
            running.lease_until = before.plus_ms(1);
        }
    }
    Ok(Change::To(next))
}

fn fail(job: &Job, token: Token, failure: &Failure, now: Timestamp) -> Result<Change, Rejection> {
    let ending = if failure.timed_out { Ending::TimedOut } else { Ending::Failed };
    let retry = job.spec.retry;
    end_attempt(job, token, now, ending, &failure.finding, |status| {
        status.failures = status.failures.saturating_add(1);
        if !failure.retryable {
            status.reason = Some("the failure was reported as final".into());
            finish(status, State::Dead, now);
        } else if status.failures >= retry.max_attempts {
            status.reason = Some(format!("all {} attempts failed", retry.max_attempts).into());
            finish(status, State::Dead, now);
        } else {
            let asked = failure.retry_after_ms.unwrap_or(0).clamp(0, RETRY_DELAY_MS_MAX);
            wait(status, now.plus_ms(retry.delay_ms(status.failures, failure.jitter).max(asked)));
        }
    })
}

/// Whether a lease is over is not asked of `now`, a wall time that may have been set since: the one who watches the
/// lease knows, and `watched` is the lease it means.
fn lease_over(
    job: &Job,
    token: Token,
    watched: Timestamp,
    jitter: u32,
    now: Timestamp,
) -> Result<Change, Rejection> {
    let holds = job.status.running.as_ref().is_some_and(|running| running.lease_until != watched);
    if holds && job.status.token == token {
        return Err(Rejection::LeaseHolds);
    }
    let retry = job.spec.retry;
    let finding =
        Finding { status_code: None, detail: "nothing was heard of the attempt within its lease".into() };
    end_attempt(job, token, now, Ending::LeaseExpired, &finding, |status| {
        status.failures = status.failures.saturating_add(1);
        if status.failures >= retry.max_attempts {
            status.reason =
                Some(format!("all {} attempts failed; the last lost its lease", retry.max_attempts).into());
            finish(status, State::Dead, now);
        } else {
            wait(status, now.plus_ms(retry.delay_ms(status.failures, jitter)));
        }
    })
}

fn lost(job: &Job, token: Token, now: Timestamp) -> Result<Change, Rejection> {
    let retry = job.spec.retry;
    let finding =
        Finding { status_code: None, detail: "the server stopped while the attempt was under way".into() };
    end_attempt(job, token, now, Ending::Lost, &finding, |status| {
        status.lost = status.lost.saturating_add(1);
        if status.lost > ATTEMPTS_LOST_FREE_COUNT_MAX {
            status.failures = status.failures.saturating_add(1);
        }
        if status.failures >= retry.max_attempts {
            status.reason = Some("the server stopped in too many of its attempts".into());
            finish(status, State::Dead, now);
        } else {
            wait(status, now);
        }
    })
}

fn worker_gone(job: &Job, token: Token, now: Timestamp) -> Result<Change, Rejection> {
    let retry = job.spec.retry;
    let finding =
        Finding { status_code: None, detail: "the worker was gone before the attempt ended".into() };
    end_attempt(job, token, now, Ending::Lost, &finding, |status| {
        status.failures = status.failures.saturating_add(1);
        if status.failures >= retry.max_attempts {
            let max = retry.max_attempts;
            status.reason =
                Some(format!("all {max} attempts failed; in the last the worker was gone").into());
            finish(status, State::Dead, now);
        } else {
            wait(status, now);
        }
    })
}

fn cancel(job: &Job, now: Timestamp) -> Result<Change, Rejection> {
    match job.status.state {
        State::Cancelled => Ok(Change::Nothing),
        State::Scheduled | State::Retrying => {
            let mut next = job.clone();
            finish(&mut next.status, State::Cancelled, now);
            Ok(Change::To(next))
        }
        State::Running => {
            let token = job.status.token;
            end_attempt(job, token, now, Ending::Cancelled, &Finding::default(), |status| {
                finish(status, State::Cancelled, now);
            })
        }
        ended @ (State::Succeeded | State::Dead | State::Skipped | State::Expired) => {
            Err(Rejection::Finished(ended))
        }
    }
}

/// The job, if it waits for a time.
fn waiting(job: &Job) -> Result<Job, Rejection> {
    match job.status.state {
        State::Scheduled | State::Retrying => Ok(job.clone()),
        State::Running => Err(Rejection::Running),
        ended @ (State::Succeeded | State::Dead | State::Cancelled | State::Skipped | State::Expired) => {
            Err(Rejection::Finished(ended))
        }
    }
}

/// The job, if `token` holds its running attempt.
fn held(job: &Job, token: Token) -> Result<Job, Rejection> {
    if job.status.state == State::Running && job.status.token == token {
        Ok(job.clone())
    } else {
        Err(Rejection::StaleToken)
    }
}

fn end_attempt(
    job: &Job,
    token: Token,
    now: Timestamp,
    ending: Ending,
    finding: &Finding,
    then: impl FnOnce(&mut Status),
) -> Result<Change, Rejection> {
    if job.status.state != State::Running
        && job.status.token == token
        && job.status.attempts.last().is_some_and(|last| last.token == token && last.ending == ending)
    {
        // The same report again: its answer may have been lost on the way.
        return Ok(Change::Nothing);
    }
    let mut next = held(job, token)?;
    let status = &mut next.status;
    if let Some(running) = status.running.take() {
        if status.attempts.len() >= ATTEMPTS_KEPT_COUNT_MAX {
            status.attempts.remove(0);
        }
        // Most jobs have one, and a vector that grows by itself makes room for four.
        status.attempts.reserve_exact(1);
        status.attempts.push(Attempt {
            number: status.attempt,
            token,
            worker: running.worker,
            started_at: running.started_at,
            finished_at: now.max(running.started_at),
            ending,
            status_code: finding.status_code,
            detail: finding.detail.clone(),
        });
    }
    then(status);
    // What would be tried again when its time is over is due when it ends, to be ended then.
    if status.state == State::Retrying
        && let Some(expires_at) = job.spec.expires_at
    {
        status.due_at = status.due_at.min(expires_at.max(now));
    }
    Ok(Change::To(next))
}

fn wait(status: &mut Status, due_at: Timestamp) {
    status.state = State::Retrying;
    status.due_at = due_at;
}

fn finish(status: &mut Status, state: State, now: Timestamp) {
    status.state = state;
    status.finished_at = Some(now);
}

fn restarted(job: &Job, run_at: Timestamp) -> Job {
    let mut next = job.clone();
    next.status = Status {
        attempt: job.status.attempt,
        token: job.status.token,
        attempts: job.status.attempts.clone(),
        ..Status::scheduled(run_at)
    };
    // Whoever runs it again wants it run: an expiry that has passed would only end it once more.
    if next.spec.expires_at.is_some_and(|expires_at| expires_at <= run_at) {
        Arc::make_mut(&mut next.spec).expires_at = None;
    }
    next
}

fn lease(ms: i64) -> i64 {
    ms.clamp(LEASE_MS_MIN, LEASE_MS_MAX)
}
