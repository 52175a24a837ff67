//! Orders: each by itself, in order, and none from an owner of yesterday.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::{Command, Destination, Ending, Job, Rejection, State, Target, Token};
use tidewheel_core::names::Tenant;

use super::Home;
use super::trial::{RETRY_MS, Retry, Trial, failing, finding, order, stale, succeeding, tenant};
use tidewheel_store::{Error, Refusal};

/// Grants and refusals stand at the place of their order.
pub async fn orders_are_answered_one_by_one(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let due = trial.add(&acme, 0).await;
    let later = trial.add(&acme, 60_000).await;
    let unknown = trial.job(&acme, 0);
    let other = trial.add(&tenant("globex"), 0).await;
    let orders = [&later, &due, &unknown, &other].map(|job| order(job, trial.claiming()));
    let answers = trial.orders(orders.into()).await;
    assert_eq!(answers[0].as_ref().err(), Some(&Refusal::Rejected(Rejection::NotDue)));
    assert_eq!(answers[1].as_ref().expect("granted").job.id, due.id);
    assert_eq!(answers[2].as_ref().err(), Some(&Refusal::NotFound));
    assert_eq!(answers[3].as_ref().expect("granted").job.tenant, other.tenant);
    trial.holds(&later).await;
    trial.holds(&answers[1].as_ref().expect("granted").job).await;
}

/// Each acts on what the ones before it left.
pub async fn orders_of_one_batch_see_each_other(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let job = trial.add(&tenant("acme"), 0).await;
    let token = Token::new(trial.epoch, 1);
    let done = Command::Succeed { token, finding: finding("done") };
    let again = Command::Rerun { run_at: trial.now };
    let commands =
        [trial.claiming(), trial.claiming(), done.clone(), done, again, trial.claiming(), Command::Cancel];
    let answers = trial.orders(commands.map(|command| order(&job, command)).into()).await;
    let state = |at: usize| answers[at].as_ref().map(|applied| (applied.job.status.state, applied.changed));
    assert_eq!(state(0), Ok((State::Running, true)));
    assert_eq!(state(1), Err(&Refusal::Rejected(Rejection::Running)));
    assert_eq!(state(2), Ok((State::Succeeded, true)));
    assert_eq!(state(3), Ok((State::Succeeded, false)));
    assert_eq!(state(4), Ok((State::Scheduled, true)));
    assert_eq!(state(5), Ok((State::Running, true)));
    assert_eq!(state(6), Ok((State::Cancelled, true)));
    trial.holds(&answers[6].as_ref().expect("granted").job).await;
    assert_eq!(trial.counts(None).await, [(State::Cancelled, 1)]);
    assert_eq!(trial.waiting().await, []);
    assert_eq!(trial.store.running().await.expect("read"), []);
}

/// Knowing an id is not enough.
pub async fn an_order_for_the_job_of_another_is_not_found(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let neighbours = trial.neighbours(2);
    let job = trial.add(&neighbours[0], 0).await;
    let theirs = Job { tenant: neighbours[1].clone(), ..job.clone() };
    for command in [trial.claiming(), Command::Cancel, Command::RunNow] {
        assert_eq!(trial.try_order(&theirs, command).await.err(), Some(Refusal::NotFound));
    }
    trial.holds(&job).await;
}

/// What is refused has not happened, not even a little.
pub async fn a_refused_order_leaves_no_trace(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let jobs = trial.add_one_in_each_state(&acme).await;
    let counts = trial.counts(None).await;
    let waiting = trial.waiting().await;
    for job in &jobs {
        let refused = Command::Heartbeat { token: stale(), extend_ms: 9_000, progress: None };
        let answer = trial.try_order(job, refused).await;
        assert_eq!(answer.err(), Some(Refusal::Rejected(Rejection::StaleToken)), "{:?}", job.status.state);
    }
    let trial = trial.reopen().await;
    for job in &jobs {
        trial.holds(job).await;
    }
    assert_eq!(trial.counts(None).await, counts);
    assert_eq!(trial.waiting().await, waiting);
}

/// The answer to an outcome was lost; the runner reports it again.
pub async fn an_outcome_reported_again_changes_nothing(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let running = trial.add_running(&acme).await;
    let done = trial.order(&running, succeeding(&running)).await;
    trial.pass(5_000);
    let answer = trial.try_order(&running, succeeding(&running)).await.expect("granted");
    assert!(!answer.changed);
    assert_eq!(*answer.job, done);
    trial.holds(&done).await;

    let running = trial.add_running(&acme).await;
    let retrying = trial.order(&running, failing(&running, Retry::Yes)).await;
    let trial = trial.reopen().await;
    let answer = trial.try_order(&running, failing(&running, Retry::Yes)).await.expect("granted");
    assert!(!answer.changed);
    trial.holds(&retrying).await;
    assert_eq!(retrying.status.due_at, trial.now.plus_ms(RETRY_MS));
}

/// Whoever lost its attempt cannot end the next one.
pub async fn a_stale_token_is_refused(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let first = trial.add_running(&tenant("acme")).await;
    trial.order(&first, Command::Lost { token: first.status.token }).await;
    let second = trial.claim(&first).await;
    assert!(second.status.token > first.status.token, "tokens rise");
    for command in [succeeding(&first), failing(&first, Retry::No)] {
        let answer = trial.try_order(&first, command).await;
        assert_eq!(answer.err(), Some(Refusal::Rejected(Rejection::StaleToken)));
    }
    trial.holds(&second).await;
    let done = trial.order(&second, succeeding(&second)).await;
    assert_eq!(
        done.status.attempts.iter().map(|attempt| attempt.ending).collect::<Vec<_>>(),
        [Ending::Lost, Ending::Succeeded]
    );
}

/// A newer owner shuts the older one out; who gives no epoch is not asked.
pub async fn an_older_epoch_is_fenced(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let jobs = [0, 0].map(|ms| trial.job(&tenant("acme"), ms));
    trial.take_in(&jobs).await;
    let old = trial.epoch;
    trial.epoch = trial.store.open_epoch().await.expect("opened");
    assert!(trial.epoch > old, "epochs rise");
    let orders = || jobs.iter().map(|job| order(job, trial.claiming())).collect::<Vec<_>>();
    let fenced = trial.store.apply(trial.now, Some(old), orders()).await;
    assert!(matches!(fenced, Err(Error::Fenced)), "{fenced:?}");
    for job in &jobs {
        trial.holds(job).await;
    }
    let unfenced = trial.store.apply(trial.now, None, vec![order(&jobs[0], Command::Cancel)]).await;
    assert!(unfenced.expect("answered")[0].as_ref().expect("granted").changed);
    trial.claim(&jobs[1]).await;
}

/// Also one that was never used, and also after several openings.
pub async fn epochs_rise_over_reopening(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let job = trial.add(&tenant("acme"), 0).await;
    for _ in 0..3 {
        let before = trial.store.open_epoch().await.expect("opened");
        assert!(before > trial.epoch, "epochs rise");
        trial = trial.reopen().await;
        assert!(trial.epoch > before, "epochs rise over reopening");
        let fenced = trial.store.apply(trial.now, Some(before), vec![order(&job, Command::Cancel)]).await;
        assert!(matches!(fenced, Err(Error::Fenced)), "{fenced:?}");
    }
    trial.claim(&job).await;
}

/// Discarding answers with the job as it was and removes every trace of it.
pub async fn a_discarded_job_is_gone(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let (dead, kept) = (dead(&mut trial, &acme).await, dead(&mut trial, &acme).await);
    let gone = trial.order(&dead, Command::Discard).await;
    assert_eq!(gone, dead);
    assert_eq!(trial.get(&dead).await, None);
    assert_eq!(trial.try_order(&dead, Command::Discard).await.err(), Some(Refusal::NotFound));
    let trial = trial.reopen().await;
    assert_eq!(trial.get(&dead).await, None);
    trial.holds(&kept).await;
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Dead, 1)]);
}

/// A replay may bring another payload and another target; the job keeps its id and its past.
pub async fn a_dead_job_is_replayed_with_changes(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let dead = dead(&mut trial, &acme).await;
    let run_at = trial.now.plus_ms(700_000);
    let payload = Bytes::from(vec![7; 40_000]);
    let target =
        Arc::new(Target { url: "http://example.com/".into(), method: "POST".into(), headers: Vec::new() });
    let replay = Command::Replay {
        run_at,
        payload: Some(payload.clone()),
        target: Some(Arc::clone(&target)),
        timeout_ms: Some(dead.spec.timeout_ms + 1),
    };
    let replayed = trial.order(&dead, replay).await;
    assert_eq!(replayed.id, dead.id);
    assert_eq!(replayed.spec.payload, payload);
    assert_eq!(replayed.spec.destination, Destination::Target(target));
    assert_eq!(replayed.spec.timeout_ms, dead.spec.timeout_ms + 1);
    assert_eq!(replayed.status.attempts, dead.status.attempts);
    assert_eq!(trial.waiting().await, [(run_at, dead.id)]);
    let mut trial = trial.reopen().await;
    trial.holds(&replayed).await;
    trial.pass(700_000);
    let running = trial.claim(&replayed).await;
    assert!(running.status.token > dead.status.token, "tokens rise over a replay");
    assert_eq!(running.spec.payload, payload);
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Running, 1)]);
}

/// Every end can be followed by a new beginning.
pub async fn finished_jobs_run_again(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let jobs = trial.add_one_in_each_state(&acme).await;
    let run_at = trial.now.plus_ms(1_000);
    for job in jobs.iter().filter(|job| job.status.state.is_finished()) {
        let again = trial.order(job, Command::Rerun { run_at }).await;
        assert_eq!((again.status.state, again.id), (State::Scheduled, job.id));
        trial.holds(&again).await;
    }
    let expected = [(State::Scheduled, 6), (State::Running, 1), (State::Retrying, 1)];
    assert_eq!(trial.counts(Some(&acme)).await, expected);
    let mut trial = trial.reopen().await;
    assert_eq!(trial.counts(Some(&acme)).await, expected);
    trial.pass(1_000);
    for job in jobs.iter().filter(|job| job.status.state == State::Succeeded) {
        let running = trial.claim(job).await;
        assert!(running.status.token > job.status.token, "tokens rise over a new run");
    }
}

async fn dead(trial: &mut Trial<'_>, tenant: &Tenant) -> Job {
    let running = trial.add_running(tenant).await;
    trial.order(&running, failing(&running, Retry::No)).await
}
