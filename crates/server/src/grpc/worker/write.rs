//! What the engine has for a worker, as messages.

use std::sync::Arc;

use tidewheel_api::proto::v1::{
    AttemptRef, CancelJob, CancelJobs, Heartbeat, HeartbeatAnswer, Outcome, OutcomeAnswer, TakeBack,
    Welcome as WelcomeMessage, server_message::Message,
};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Token};
use tidewheel_core::limits::WORKER_HEARTBEAT_MS;
use tidewheel_store::Applied;

use super::leased;
use crate::engine::{Stop, Welcome};
use crate::grpc::instant::{duration, instant};
use crate::http::{Problem, worker_id};
use crate::traces::Traces;

/// What became of what a worker said of one attempt.
pub(super) type Verdict = Result<Applied, Problem>;

/// It was taken.
const ACCEPTED: &str = "accepted";
/// It had been said before.
const ALREADY: &str = "already";

pub(super) fn welcome(welcome: &Welcome) -> Message {
    Message::Welcome(WelcomeMessage {
        worker_id: worker_id(welcome.id),
        session: format!("{:032x}", welcome.session),
        resumed: welcome.resumed,
        heartbeat_every: Some(duration(WORKER_HEARTBEAT_MS.min(welcome.dead_ms / 3))),
        dead_after: Some(duration(welcome.dead_ms)),
        resume_within: Some(duration(welcome.resume_ms)),
        idle_heartbeat_every: Some(duration(welcome.idle_dead_ms / 3)),
    })
}

pub(super) fn jobs(jobs: &[Arc<Job>], bytes: usize, traces: &Traces) -> Message {
    Message::Jobs(leased::batch(jobs, bytes, traces))
}

pub(super) fn stop(stop: Stop) -> Message {
    let reason = if stop.cancelled { "cancelled" } else { "lease_over" };
    let job = CancelJob { id: stop.id.to_string(), token: stop.token.as_u64(), reason: reason.to_owned() };
    Message::CancelJobs(CancelJobs { jobs: vec![job] })
}

pub(super) fn take_back(jobs: &[(JobId, Token)]) -> Message {
    let attempt = |(id, token): &(JobId, Token)| AttemptRef { id: id.to_string(), token: token.as_u64() };
    Message::TakeBack(TakeBack { jobs: jobs.iter().map(attempt).collect() })
}

fn code(verdict: &Verdict) -> (String, String) {
    match verdict {
        Ok(applied) => ((if applied.changed { ACCEPTED } else { ALREADY }).to_owned(), String::new()),
        Err(problem) => (problem.code().as_str().to_owned(), problem.detail().to_owned()),
    }
}

pub(super) fn outcome_answer(outcome: Outcome, verdict: &Verdict) -> OutcomeAnswer {
    let (code, detail) = code(verdict);
    let state = verdict.as_ref().map(|applied| applied.job.status.state.as_str().to_owned());
    OutcomeAnswer { id: outcome.id, token: outcome.token, code, detail, state: state.unwrap_or_default() }
}

pub(super) fn heartbeat_answer(beat: &Heartbeat, verdict: &Verdict) -> HeartbeatAnswer {
    let (code, detail) = code(verdict);
    let running = verdict.as_ref().ok().and_then(|applied| applied.job.status.running.as_ref());
    let lease_until = running.map(|running| instant(running.lease_until));
    HeartbeatAnswer { id: beat.id.clone(), token: beat.token, code, detail, lease_until }
}
