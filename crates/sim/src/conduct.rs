//! How a runner treats an attempt: mostly well, sometimes not at all. The same for targets and workers.

use tidewheel_core::job::{Command, Ending, Failure, Finding, Token};
use tidewheel_server::random::Random;

use crate::dice::Dice;

/// What a runner will say in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It worked.
    Success,
    /// It failed, and may work next time.
    Failure,
    /// It failed for good.
    FinalFailure,
    /// It took too long.
    Timeout,
    /// It wants to be run later.
    Snooze,
    /// It gave up since the job was called off.
    Abandon,
    /// Nothing, ever.
    Silence,
}

/// The course of one attempt.
#[derive(Debug, Clone, Copy)]
pub struct Conduct {
    /// How long it takes.
    pub takes_ms: i64,
    /// What is said in the end.
    pub verdict: Verdict,
    /// Says that it is alive this often.
    pub heartbeat_ms: Option<i64>,
    /// A target takes the job over and reports by itself.
    pub detaches: bool,
    /// Reports even when told to stop.
    pub deaf: bool,
}

impl Conduct {
    /// A course for the next attempt.
    #[must_use]
    pub fn roll(dice: &Dice, calm: bool) -> Self {
        if calm {
            let takes_ms = dice.between(1, 20);
            return Self {
                takes_ms,
                verdict: Verdict::Success,
                heartbeat_ms: None,
                detaches: false,
                deaf: false,
            };
        }
        let verdict = match dice.between(0, 99) {
            0..=54 => Verdict::Success,
            55..=74 => Verdict::Failure,
            75..=79 => Verdict::FinalFailure,
            80..=84 => Verdict::Timeout,
            85..=89 => Verdict::Snooze,
            90..=91 => Verdict::Abandon,
            _ => Verdict::Silence,
        };
        Self {
            takes_ms: if dice.percent(85) { dice.between(0, 400) } else { dice.between(400, 12_000) },
            verdict,
            heartbeat_ms: dice.percent(40).then(|| dice.between(200, 2_500)),
            detaches: dice.percent(25),
            deaf: dice.percent(30),
        }
    }

    /// The report that goes with the verdict, and how the server should record it.
    #[must_use]
    pub fn report(&self, dice: &Dice, token: Token) -> Option<(Command, Ending)> {
        let failure = |retryable, timed_out| Failure {
            finding: Finding::default(),
            retryable,
            timed_out,
            retry_after_ms: dice.percent(20).then(|| dice.between(0, 5_000)),
            jitter: dice.jitter(),
        };
        let finding = Finding::default();
        Some(match self.verdict {
            Verdict::Success => (Command::Succeed { token, finding }, Ending::Succeeded),
            Verdict::Failure => (Command::Fail { token, failure: failure(true, false) }, Ending::Failed),
            Verdict::FinalFailure => {
                (Command::Fail { token, failure: failure(false, false) }, Ending::Failed)
            }
            Verdict::Timeout => (Command::Fail { token, failure: failure(true, true) }, Ending::TimedOut),
            Verdict::Snooze => (Command::Snooze { token, delay_ms: dice.between(0, 3_000) }, Ending::Snoozed),
            Verdict::Abandon => (Command::Abandon { token, finding }, Ending::Cancelled),
            Verdict::Silence => return None,
        })
    }
}
