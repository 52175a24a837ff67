//! What holds for a job whatever is asked of it in whatever order.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tidewheel_core::job::{
    Change, Command, Destination, Failure, Finding, Job, Priority, Rejection, Spec, State, Token, transition,
};
use tidewheel_core::limits::{ATTEMPTS_KEPT_COUNT_MAX, ATTEMPTS_LOST_FREE_COUNT_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::{Backoff, RetryPolicy};
use tidewheel_core::time::Timestamp;

const START: Timestamp = Timestamp::from_ms(1_800_000_000_000);

/// A command, before it is known which tokens the job has given out.
#[derive(Debug, Clone)]
struct Wish {
    kind: u8,
    /// Which of the tokens given out so far, counted from the newest.
    token_age: usize,
    epoch: u64,
    ms: i64,
    flag: bool,
    /// Time that passes before it.
    pause_ms: i64,
}

fn wish() -> impl Strategy<Value = Wish> {
    let kind = prop_oneof![4 => Just(0_u8), 8 => 1..=10_u8, 3 => 11..=16_u8];
    let token_age = prop_oneof![6 => Just(0_usize), 1 => 1..4_usize];
    let pause_ms = prop_oneof![Just(0_i64), 0..2_000_i64, 0..100_000_i64];
    (kind, token_age, 1..5_u64, 0..100_000_i64, any::<bool>(), pause_ms).prop_map(
        |(kind, token_age, epoch, ms, flag, pause_ms)| Wish { kind, token_age, epoch, ms, flag, pause_ms },
    )
}

impl Wish {
    fn command(&self, job: &Job, tokens: &[Token], now: Timestamp) -> Command {
        let newest_first = tokens.iter().rev();
        let token = newest_first.clone().nth(self.token_age).or(tokens.last()).copied().unwrap_or_default();
        let (ms, flag) = (self.ms, self.flag);
        let run_at = now.plus_ms(ms - 50_000);
        let finding = Finding::default();
        let failure = Failure {
            finding: finding.clone(),
            retryable: ms % 5 != 0,
            timed_out: flag,
            retry_after_ms: flag.then_some(ms),
            jitter: 1 << 31,
        };
        match self.kind {
            0 => Command::Claim { epoch: self.epoch, worker: Arc::from("w"), lease_ms: ms, detached: flag },
            1 => {
                Command::Heartbeat { token, extend_ms: ms, progress: flag.then(|| Bytes::from_static(b"1")) }
            }
            2 => Command::Detach { token, lease_ms: ms },
            3 => Command::Succeed { token, finding },
            4 | 5 => Command::Fail { token, failure },
            6 => Command::Snooze { token, delay_ms: ms },
            7 => Command::Release { token },
            8 => Command::Abandon { token, finding },
            9 => Command::LeaseOver { token, lease_until: lease_until(job, flag), jitter: 1 << 31 },
            10 if flag => Command::WorkerGone { token },
            10 => Command::Lost { token },
            11 => Command::Cancel,
            12 => Command::RunNow,
            13 => Command::Amend { run_at: flag.then_some(run_at), priority: Some(Priority::Low) },
            14 | 15 => Command::Rerun { run_at },
            _ => Command::Replay {
                run_at,
                payload: flag.then(|| Bytes::from_static(b"edited")),
                target: None,
                timeout_ms: None,
            },
        }
    }
}

/// The end of the lease a job is held under, or of another.
fn lease_until(job: &Job, is_right: bool) -> Timestamp {
    let held = job.status.running.as_ref().map(|running| running.lease_until);
    held.filter(|_| is_right).unwrap_or(START)
}

fn new_job(max_attempts: u32, expires_in_ms: Option<i64>) -> Job {
    let spec = Spec {
        kind: Arc::from("kind"),
        payload: Bytes::from_static(b"original"),
        destination: Destination::Queue(Arc::from("q")),
        priority: Priority::Normal,
        retry: RetryPolicy {
            max_attempts,
            backoff: Backoff::ExponentialJitter,
            base_ms: 500,
            multiplier: 2.0,
            max_ms: 5_000,
        },
        timeout_ms: 30_000,
        expires_at: expires_in_ms.map(|ms| START.plus_ms(ms)),
        idempotency_key: None,
        labels: Vec::new(),
        occurrence: None,
        trace: None,
        created_at: START,
    };
    Job::new(Tenant::default(), spec, START, 1)
}

/// One granted change.
struct Step {
    before: Job,
    command: Command,
    after: Job,
    now: Timestamp,
}

/// Follows the wishes and returns every change they made; checks on the way what does not change a job.
fn follow(mut job: Job, wishes: &[Wish]) -> Result<Vec<Step>, TestCaseError> {
    let (mut now, mut tokens, mut steps) = (START, Vec::new(), Vec::new());
    for wish in wishes {
        now = now.plus_ms(wish.pause_ms);
        let command = wish.command(&job, &tokens, now);
        // Shares nothing with the job, so that a change behind its back would show.
        let before = Job { spec: Arc::new((*job.spec).clone()), ..job.clone() };
        let answer = transition(&job, &command, now);
        prop_assert_eq!(&job, &before, "a command changes nothing in place: {:?}", command);
        prop_assert_eq!(&transition(&job, &command, now), &answer, "and is always answered alike");
        if let Ok(Change::To(after)) = answer {
            if after.status.state == State::Running && before.status.state != State::Running {
                tokens.push(after.status.token);
            }
            steps.push(Step { before, command, after: after.clone(), now });
            job = after;
        }
    }
    Ok(steps)
}

const fn ends_an_attempt(command: &Command) -> bool {
    matches!(
        command,
        Command::Succeed { .. }
            | Command::Fail { .. }
            | Command::Snooze { .. }
            | Command::Release { .. }
            | Command::Abandon { .. }
            | Command::LeaseOver { .. }
            | Command::Lost { .. }
            | Command::WorkerGone { .. }
    )
}

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    proptest::collection::vec(wish(), 1..120)
}

proptest! {
    #[test]
    fn tokens_rise_with_every_claim(wishes in wishes()) {
        let mut newest = Token::default();
        for Step { before, command, after, .. } in follow(new_job(3, None), &wishes)? {
            if matches!(command, Command::Claim { .. }) {
                prop_assert_eq!(after.status.state, State::Running);
                prop_assert!(after.status.token > newest);
                prop_assert_eq!(after.status.attempt, before.status.attempt + 1);
                newest = after.status.token;
            }
            prop_assert_eq!(after.status.token, newest, "only a claim gives out a token");
        }
    }

    #[test]
    fn nothing_starts_before_its_time_or_after_its_expiry(wishes in wishes(), expires_in_ms in 0..500_000_i64) {
        for Step { before, command, after, now } in follow(new_job(3, Some(expires_in_ms)), &wishes)? {
            if matches!(command, Command::Claim { .. }) {
                prop_assert!(before.status.due_at <= now);
                let expired = before.spec.expires_at.is_some_and(|expires_at| expires_at <= now);
                prop_assert_eq!(after.status.state, if expired { State::Expired } else { State::Running });
            }
        }
    }

    #[test]
    fn a_finished_job_moves_only_when_it_is_run_again(wishes in wishes()) {
        for Step { before, command, after, .. } in follow(new_job(2, None), &wishes)? {
            if before.status.state.is_finished() {
                prop_assert!(matches!(command, Command::Rerun { .. } | Command::Replay { .. }), "{:?}", command);
                prop_assert_eq!(after.status.state, State::Scheduled);
                prop_assert_eq!(after.status.failures, 0);
            }
        }
    }

    #[test]
    fn failures_stay_within_the_policy(wishes in wishes(), max_attempts in 1..5_u32) {
        for Step { after, .. } in follow(new_job(max_attempts, None), &wishes)? {
            let status = &after.status;
            let bound = if status.state.is_finished() { max_attempts } else { max_attempts - 1 };
            prop_assert!(status.failures <= bound, "{} of {} as {:?}", status.failures, bound, status.state);
            prop_assert!(status.attempts.len() <= ATTEMPTS_KEPT_COUNT_MAX);
        }
    }

    #[test]
    fn an_outcome_is_accepted_once_per_token(wishes in wishes()) {
        let mut accepted = BTreeSet::new();
        for Step { command, after, now, .. } in follow(new_job(3, None), &wishes)? {
            if ends_an_attempt(&command) {
                prop_assert!(accepted.insert(after.status.token), "two outcomes under {:?}", after.status.token);
                prop_assert_eq!(transition(&after, &command, now), Ok(Change::Nothing), "reported again");
            }
        }
    }

    #[test]
    fn a_lease_ends_only_as_the_one_that_was_watched_and_every_extension_is_another(wishes in wishes()) {
        for Step { before, command, after, .. } in follow(new_job(3, None), &wishes)? {
            let [held, holds] = [&before, &after].map(|job| job.status.running.as_ref().map(|r| r.lease_until));
            if let Command::LeaseOver { lease_until, .. } = command {
                prop_assert_eq!(held, Some(lease_until));
            } else if matches!(command, Command::Heartbeat { .. }) {
                prop_assert!(held < holds);
            } else if matches!(command, Command::Detach { .. }) {
                prop_assert_ne!(held, holds);
            }
        }
    }

    #[test]
    fn the_parts_of_a_status_agree(wishes in wishes(), expires_in_ms in proptest::option::of(0..500_000_i64)) {
        let job = new_job(3, expires_in_ms);
        for Step { after, .. } in follow(job.clone(), &wishes)? {
            let status = &after.status;
            prop_assert_eq!((after.id, &after.tenant), (job.id, &job.tenant));
            prop_assert_eq!(status.running.is_some(), status.state == State::Running);
            prop_assert_eq!(status.finished_at.is_some(), status.state.is_finished());
            prop_assert_eq!(after.armed_at().is_some(), matches!(status.state, State::Scheduled | State::Retrying));
            prop_assert!(status.attempts.windows(2).all(|pair| pair[0].token < pair[1].token));
            prop_assert!(status.attempts.iter().all(|attempt| attempt.started_at <= attempt.finished_at));
        }
    }
}

#[test]
fn a_job_that_always_brings_the_server_down_dies() {
    let mut job = new_job(3, None);
    let mut claims = 0;
    while job.armed_at().is_some() {
        claims += 1;
        assert!(claims <= 100, "it never dies");
        let claim =
            Command::Claim { epoch: claims, worker: Arc::from("w"), lease_ms: 1_000, detached: false };
        job = changed(&job, &claim);
        job = changed(&job, &Command::Lost { token: job.status.token });
    }
    assert_eq!(job.status.state, State::Dead);
    assert_eq!(claims, u64::from(ATTEMPTS_LOST_FREE_COUNT_MAX + 3));
    let kept: Vec<_> = job.status.attempts.iter().map(|attempt| u64::from(attempt.number)).collect();
    assert_eq!(kept.len(), ATTEMPTS_KEPT_COUNT_MAX);
    assert_eq!(kept.last(), Some(&claims), "the newest attempts are kept");
    let again = Command::Claim { epoch: 1_000, worker: Arc::from("w"), lease_ms: 1_000, detached: false };
    assert_eq!(transition(&job, &again, START), Err(Rejection::Finished(State::Dead)));
}

fn changed(job: &Job, command: &Command) -> Job {
    match transition(job, command, START) {
        Ok(Change::To(next)) => next,
        other => unreachable!("{command:?}: {other:?}"),
    }
}
