//! Where a job stands, once something has happened to it. Instants are relative to the time in the job's id.

use serde::{Deserialize, Serialize};
use tidewheel_core::job::{Attempt, Ending, Running, State, Status, Token};
use tidewheel_core::time::Timestamp;

use super::{Unreadable, nth};

#[derive(Serialize, Deserialize)]
struct StatusRecord<'a> {
    state: u8,
    due_at: i64,
    attempt: u32,
    failures: u32,
    lost: u32,
    token: u64,
    #[serde(borrow)]
    running: Option<RunningRecord<'a>>,
    finished_at: Option<i64>,
    attempts: Vec<AttemptRecord<'a>>,
    reason: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct RunningRecord<'a> {
    worker: &'a str,
    started_at: i64,
    lease_until: i64,
    detached: bool,
    progress: Option<&'a [u8]>,
}

#[derive(Serialize, Deserialize)]
struct AttemptRecord<'a> {
    number: u32,
    token: u64,
    worker: &'a str,
    started_at: i64,
    finished_at: i64,
    ending: u8,
    status_code: Option<u16>,
    detail: &'a str,
}

pub(crate) fn encode(status: &Status, base: Timestamp) -> Vec<u8> {
    super::encode(&StatusRecord {
        state: status.state as u8,
        due_at: status.due_at.since_ms(base),
        attempt: status.attempt,
        failures: status.failures,
        lost: status.lost,
        token: status.token.as_u64(),
        running: status.running.as_ref().map(|running| RunningRecord {
            worker: &running.worker,
            started_at: running.started_at.since_ms(base),
            lease_until: running.lease_until.since_ms(running.started_at),
            detached: running.detached,
            progress: running.progress.as_deref(),
        }),
        finished_at: status.finished_at.map(|at| at.since_ms(base)),
        attempts: status
            .attempts
            .iter()
            .map(|attempt| AttemptRecord {
                number: attempt.number,
                token: attempt.token.as_u64(),
                worker: &attempt.worker,
                started_at: attempt.started_at.since_ms(base),
                finished_at: attempt.finished_at.since_ms(attempt.started_at),
                ending: attempt.ending as u8,
                status_code: attempt.status_code,
                detail: &attempt.detail,
            })
            .collect(),
        reason: status.reason.as_deref(),
    })
}

pub(crate) fn decode(bytes: &[u8], base: Timestamp) -> Result<Status, Unreadable> {
    let record: StatusRecord<'_> = super::decode(bytes, "where a job stands")?;
    let attempts = record.attempts.iter().map(|attempt| read_attempt(attempt, base));
    Ok(Status {
        state: nth(&State::ALL, record.state, "a state")?,
        due_at: base.plus_ms(record.due_at),
        attempt: record.attempt,
        failures: record.failures,
        lost: record.lost,
        token: Token::from_u64(record.token),
        running: record.running.map(|running| {
            let started_at = base.plus_ms(running.started_at);
            Running {
                worker: running.worker.into(),
                started_at,
                lease_until: started_at.plus_ms(running.lease_until),
                detached: running.detached,
                progress: running.progress.map(bytes::Bytes::copy_from_slice),
            }
        }),
        finished_at: record.finished_at.map(|ms| base.plus_ms(ms)),
        attempts: attempts.collect::<Result<_, _>>()?,
        reason: record.reason.map(Into::into),
    })
}

fn read_attempt(attempt: &AttemptRecord<'_>, base: Timestamp) -> Result<Attempt, Unreadable> {
    let started_at = base.plus_ms(attempt.started_at);
    Ok(Attempt {
        number: attempt.number,
        token: Token::from_u64(attempt.token),
        worker: attempt.worker.into(),
        started_at,
        finished_at: started_at.plus_ms(attempt.finished_at),
        ending: nth(&Ending::ALL, attempt.ending, "how an attempt ended")?,
        status_code: attempt.status_code,
        detail: attempt.detail.into(),
    })
}
