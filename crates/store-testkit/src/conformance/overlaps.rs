//! Schedules: instants that come while an earlier run is not over.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, Rejection, State as JobState};
use tidewheel_core::limits::HELD_RECHECK_MS;
use tidewheel_core::schedule::Overlap;

use super::Home;
use super::beat::{outcomes, overlapping};
use super::trial::{Retry, Trial, failing, succeeding, tenant};
use tidewheel_store::{Refusal, ScheduleCommand};

fn ids(jobs: &[Arc<Job>]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

/// Runs side by side.
pub async fn overlapping_runs_are_allowed(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), overlapping(Overlap::Allow)).await;
    for _ in 0..3 {
        assert_eq!(trial.fire(&made).await.job.status.state, JobState::Running);
    }
    assert_eq!(trial.counts(None).await, [(JobState::Scheduled, 1), (JobState::Running, 3)]);
}

/// While a run is not over, retries included, what comes is skipped.
pub async fn an_overlapping_instant_is_skipped(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), overlapping(Overlap::Skip)).await;
    let first = trial.fire(&made).await.job;
    let second = trial.fire(&made).await;
    assert_eq!(second.job.status.state, JobState::Skipped);
    assert_eq!(ids(&second.beside()), [trial.pending(&made).await.expect("pending").id]);
    let first = trial.order(&first, failing(&first, Retry::Yes)).await;
    assert_eq!(trial.fire(&made).await.job.status.state, JobState::Skipped, "it is being retried");
    trial = trial.reopen().await;
    let first = trial.claim(&first).await;
    trial.order(&first, succeeding(&first)).await;
    assert_eq!(trial.fire(&made).await.job.status.state, JobState::Running);
    assert_eq!(outcomes(&trial.ledger_of(&made).await), ["fired", "skipped", "skipped", "fired"]);
    trial.check_cover(&made).await;
}

/// One waits until the run before it is over, and is due then; further ones are skipped.
pub async fn one_overlapping_instant_is_buffered(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), overlapping(Overlap::BufferOne)).await;
    let first = trial.fire(&made).await.job;
    let second = trial.pending(&made).await.expect("pending");
    trial.now = second.status.due_at;
    let answer = trial.try_order(&second, trial.claiming()).await;
    assert_eq!(answer.err(), Some(Refusal::Rejected(Rejection::NotDue)), "it has to wait");
    let held = trial.get(&second).await.expect("it is kept");
    assert_eq!(held.status.due_at, trial.now.plus_ms(HELD_RECHECK_MS));
    assert_eq!(trial.now_of(&made).await.held, Some(held.id));
    assert_eq!(outcomes(&trial.ledger_of(&made).await), ["fired", "fired"]);
    let third = trial.fire(&made).await.job;
    assert_eq!(third.status.state, JobState::Skipped, "one waits already");
    trial = trial.reopen().await;
    // It is looked at again in a while, and still has to wait.
    trial.now = trial.now.max(held.status.due_at);
    let answer = trial.try_order(&held, trial.claiming()).await;
    assert_eq!(answer.err(), Some(Refusal::Rejected(Rejection::NotDue)));
    trial.pass(1_000);
    let done = trial.try_order(&first, succeeding(&first)).await.expect("granted");
    assert_eq!(ids(&done.beside()), [held.id]);
    let released = trial.get(&held).await.expect("it is kept");
    assert_eq!((released.status.due_at, &*done.beside()[0]), (trial.now, &released));
    let running = trial.try_order(&released, trial.claiming()).await.expect("granted");
    assert_eq!(running.job.status.state, JobState::Running);
    assert_eq!(running.beside(), [], "the chain has long gone on");
    assert_eq!(trial.now_of(&made).await.held, None);
    trial.check_cover(&made).await;
    let trial = trial.reopen().await;
    trial.pending(&made).await.expect("pending");
}

/// What waits for a run that is cancelled, or is cancelled itself, or loses its schedule.
pub async fn a_buffered_instant_can_be_called_off(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    for n in 0..3 {
        let made = trial.create(&tenant("acme"), overlapping(Overlap::BufferOne)).await;
        let first = trial.fire(&made).await.job;
        let held = trial.pending(&made).await.expect("pending");
        trial.now = held.status.due_at;
        let answer = trial.try_order(&held, trial.claiming()).await;
        assert_eq!(answer.err(), Some(Refusal::Rejected(Rejection::NotDue)));
        match n {
            0 => {
                let done = trial.try_order(&first, Command::Cancel).await.expect("granted");
                assert_eq!(ids(&done.beside()), [held.id]);
                trial.claim(&held).await;
            }
            1 => {
                let done = trial.try_order(&held, Command::Cancel).await.expect("granted");
                assert_eq!(done.beside(), []);
                assert_eq!(trial.now_of(&made).await.held, None);
                let done = trial.try_order(&first, succeeding(&first)).await.expect("granted");
                assert_eq!(done.beside(), []);
            }
            _ => {
                let edited = trial.edit(&made, ScheduleCommand::Delete).await;
                let held = trial.get(&held).await.expect("it fired, so it is kept");
                assert_eq!(held.status.state, JobState::Cancelled);
                assert!(edited.jobs.contains(&held));
                let done = trial.try_order(&first, succeeding(&first)).await.expect("granted");
                assert_eq!(done.beside(), []);
            }
        }
    }
}

/// What runs is ended by what comes.
pub async fn an_overlapping_instant_ends_the_run_before_it(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), overlapping(Overlap::CancelRunning)).await;
    let first = trial.fire(&made).await.job;
    let second = trial.fire(&made).await;
    assert_eq!(second.job.status.state, JobState::Running);
    let ended = trial.get(&first).await.expect("it is kept");
    assert_eq!(ended.status.state, JobState::Cancelled);
    let pending = trial.pending(&made).await.expect("pending");
    assert_eq!(ids(&second.beside()), [pending.id, first.id]);
    assert!(second.beside().contains(&Arc::new(ended)));
    let answer = trial.try_order(&first, succeeding(&first)).await;
    assert_eq!(answer.err(), Some(Refusal::Rejected(Rejection::StaleToken)));
    trial.order(&second.job, succeeding(&second.job)).await;
    let trial = &mut trial.reopen().await;
    let third = trial.fire(&made).await;
    assert_eq!(third.beside().len(), 1, "nothing was running");
    trial.check_cover(&made).await;
}
