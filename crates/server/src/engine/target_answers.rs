//! What a push tells of its target, for the breakers: broken, busy, or there.

use tidewheel_core::breaker::Answer;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Failure};
use tidewheel_core::limits::BREAKER_REASON_BYTES_MAX;
use tidewheel_core::names::Tenant;
use tokio::sync::oneshot;

use super::deliver::Report;
use super::scheduler::Message;
use super::{BreakerView, Engine};

impl Engine {
    /// The breakers of a tenant that remember something, by host.
    pub async fn breakers(&self, tenant: Tenant) -> Vec<BreakerView> {
        let (reply, answer) = oneshot::channel();
        self.shared.tell(Message::Breakers { tenant, reply });
        answer.await.unwrap_or_default()
    }
}

/// What one attempt told.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) tenant: Tenant,
    pub(super) id: JobId,
    pub(super) answer: Answer,
    /// Why, if it is not fine.
    pub(super) why: Box<str>,
}

/// What a report tells of the target; `None` if nothing was sent to it, or it is not known yet.
pub(super) fn heard(report: &Report) -> Option<Heard> {
    let (answer, why) = match &report.command {
        Command::Succeed { .. } | Command::Detach { .. } => (Answer::Fine, Box::default()),
        Command::Fail { failure, .. } => (answer_of(failure)?, reason(failure)),
        Command::Claim { .. }
        | Command::Heartbeat { .. }
        | Command::Snooze { .. }
        | Command::Release { .. }
        | Command::Abandon { .. }
        | Command::LeaseOver { .. }
        | Command::Lost { .. }
        | Command::WorkerGone { .. }
        | Command::Cancel
        | Command::RunNow
        | Command::Amend { .. }
        | Command::Rerun { .. }
        | Command::Replay { .. }
        | Command::Discard => return None,
    };
    Some(Heard { tenant: report.tenant.clone(), id: report.id, answer, why })
}

/// No answer, one that came too late and 5xx speak against the target. Any other answer is one of a target that works:
/// it is the request it does not like.
fn answer_of(failure: &Failure) -> Option<Answer> {
    match (failure.finding.status_code, failure.retry_after_ms) {
        (Some(429 | 503), Some(ms)) => Some(Answer::Wait { ms }),
        (Some(500..), _) => Some(Answer::Failed),
        (Some(_), _) => Some(Answer::Fine),
        (None, _) if failure.retryable => Some(Answer::Failed),
        // Nothing was sent.
        (None, _) => None,
    }
}

fn reason(failure: &Failure) -> Box<str> {
    let detail = &failure.finding.detail;
    let text = match failure.finding.status_code {
        Some(status) if detail.is_empty() => format!("it answered {status}"),
        Some(status) => format!("it answered {status}: {detail}"),
        None => detail.to_string(),
    };
    let ends = text.char_indices().map(|(start, c)| start + c.len_utf8());
    let end = ends.take_while(|end| *end <= BREAKER_REASON_BYTES_MAX).last().unwrap_or(0);
    text.get(..end).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use tidewheel_core::job::{Finding, Token};
    use tidewheel_core::time::Timestamp;

    use super::*;

    fn told(status_code: Option<u16>, retryable: bool, retry_after_ms: Option<i64>) -> Option<Answer> {
        let finding = Finding { status_code, detail: "é".repeat(1_000).into() };
        let failure = Failure { finding, retryable, timed_out: false, retry_after_ms, jitter: 0 };
        let command = Command::Fail { token: Token::new(1, 1), failure };
        let id = JobId::new(Timestamp::from_ms(0), 1);
        let heard = heard(&Report { tenant: Tenant::default(), id, command })?;
        assert!(heard.why.len() <= BREAKER_REASON_BYTES_MAX);
        Some(heard.answer)
    }

    #[test]
    fn what_speaks_against_a_target_and_what_does_not() {
        assert_eq!(told(None, true, None), Some(Answer::Failed), "cannot be reached, or too slow");
        assert_eq!(told(None, false, None), None, "nothing was sent");
        for status in [500, 502, 503, 504, 599] {
            assert_eq!(told(Some(status), true, None), Some(Answer::Failed), "{status}");
        }
        for status in [301, 400, 404, 408, 410, 429] {
            assert_eq!(told(Some(status), true, None), Some(Answer::Fine), "{status}");
        }
        for status in [429, 503] {
            assert_eq!(told(Some(status), true, Some(7)), Some(Answer::Wait { ms: 7 }), "{status}");
        }
        assert_eq!(told(Some(500), true, Some(7)), Some(Answer::Failed));
    }
}
