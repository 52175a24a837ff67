//! What survives closing and opening, what is dropped in time, and what a closed store answers.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::{Command, Job, Running, State};
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::time::Timestamp;

use super::trial::{Retry, START, Trial, claim, failing, keyed, keyless, order, succeeding, tenant};
use super::{Home, walk};
use tidewheel_store::{
    Checkpoint, Cursor, DocumentKey, Due, Error, Filter, Health, IdempotencyClaim, IfVersion, KeyUse,
    ListQuery, OnConflict, Refusal, ScheduleQuery, Submission, Submitted,
};

/// Jobs in every state, where they wait, how they are listed and counted, and what keys point at.
pub async fn everything_survives_reopening(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let mut jobs = trial.add_one_in_each_state(&acme).await;
    jobs.extend(trial.add_one_in_each_state(&globex).await);
    let under_key = trial.job(&acme, 5_000);
    trial.submit(vec![keyed(&under_key, "k", 1)]).await;
    jobs.push(under_key.clone());
    let list = async |trial: &Trial<'_>| walk::list(&*trial.store, &acme, &Filter::default(), 4).await;
    let before = (trial.waiting().await, list(&trial).await, trial.counts(None).await);
    for _ in 0..2 {
        trial = trial.reopen().await;
        for job in &jobs {
            trial.holds(job).await;
        }
        let after = (trial.waiting().await, list(&trial).await, trial.counts(None).await);
        assert_eq!(after, before);
        let found = trial.store.find_key(trial.now, &acme, "k").await.expect("looked up");
        assert_eq!(found.map(|held| held.used_for), Some(KeyUse::Job(under_key.id)));
    }
}

/// With the right attempt, token, worker, lease and progress, and whether the runner outlives the server.
pub async fn attempts_under_way_survive_reopening(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let plain = trial.add_running(&acme).await;
    let extended = trial.add_running(&acme).await;
    let detached = trial.add_running(&acme).await;
    let second = trial.add_running(&acme).await;
    trial.order(&second, Command::Lost { token: second.status.token }).await;
    trial.pass(10_000);
    let progress = Some(Bytes::from_static(b"{\"done\":3}"));
    let heartbeat =
        Command::Heartbeat { token: extended.status.token, extend_ms: 50_000, progress: progress.clone() };
    let extended = trial.order(&extended, heartbeat).await;
    let detach = Command::Detach { token: detached.status.token, lease_ms: 600_000 };
    let detached = trial.order(&detached, detach).await;
    let by_another = Command::Claim {
        epoch: trial.epoch,
        worker: Arc::from("worker-2"),
        lease_ms: 20_000,
        detached: true,
    };
    let second = trial.order(&second, by_another).await;

    let under_way =
        |worker: &str, started_ms: i64, lease_ms: i64, detached: bool, progress: Option<Bytes>| Running {
            worker: Arc::from(worker),
            started_at: START.plus_ms(started_ms),
            lease_until: START.plus_ms(lease_ms),
            detached,
            progress,
        };
    assert_eq!(plain.status.running, Some(under_way("worker-1", 0, 30_000, false, None)));
    assert_eq!(extended.status.running, Some(under_way("worker-1", 0, 60_000, false, progress)));
    assert_eq!(detached.status.running, Some(under_way("worker-1", 0, 610_000, true, None)));
    assert_eq!(second.status.running, Some(under_way("worker-2", 10_000, 30_000, true, None)));
    assert_eq!(second.status.attempt, 2);

    let trial = trial.reopen().await;
    let mut running = trial.store.running().await.expect("read");
    running.sort_by_key(|job| job.id);
    let mut expected = vec![plain, extended, detached.clone(), second];
    expected.sort_by_key(|job| job.id);
    assert_eq!(running, expected.iter().map(Job::without_payload).collect::<Vec<_>>());
    for job in &expected {
        trial.holds(job).await;
    }
    let done = trial.order(&detached, succeeding(&detached)).await;
    assert_eq!(done.status.state, State::Succeeded, "the token of before is still good");
}

/// Ended jobs go when they are old; dead, waiting, running and younger ones stay.
pub async fn old_history_is_dropped_and_nothing_else(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let mut old = trial.add_one_in_each_state(&acme).await;
    let before_long = trial.add(&globex, 0).await;
    trial.pass(10 * DAY_MS);
    let before = trial.now;
    // Set long ago, ended just at the border: it is the end that counts.
    let border = trial.claim(&before_long).await;
    let border = trial.order(&border, succeeding(&border)).await;
    let young = trial.add_one_in_each_state(&globex).await;
    trial.pass(5 * DAY_MS);
    let dropped = trial.store.drop_history(trial.now, before).await.expect("dropped");
    assert_eq!(dropped, 4, "succeeded, cancelled, skipped and expired");
    assert_eq!(trial.store.drop_history(trial.now, before).await.expect("dropped"), 0);
    let check = async |trial: &Trial<'_>| {
        for job in &old {
            let kept =
                matches!(job.status.state, State::Scheduled | State::Running | State::Retrying | State::Dead);
            assert_eq!(trial.get(job).await.as_ref(), Some(job).filter(|_| kept));
        }
        for job in young.iter().chain([&border]) {
            trial.holds(job).await;
        }
        let kept = [State::Scheduled, State::Running, State::Retrying, State::Dead].map(|state| (state, 1));
        assert_eq!(trial.counts(Some(&acme)).await, kept);
        assert_eq!(walk::list(&*trial.store, &acme, &Filter::default(), 3).await.len(), 4);
        assert_eq!(walk::list(&*trial.store, &globex, &Filter::default(), 3).await.len(), 9);
    };
    check(&trial).await;
    let trial = trial.reopen().await;
    check(&trial).await;
    old.retain(|job| job.status.state == State::Succeeded);
    let answer = trial.try_order(&old[0], Command::Rerun { run_at: trial.now }).await;
    assert_eq!(answer.err(), Some(Refusal::NotFound));
}

/// An old end does not drop a job that has begun anew, nor one that has ended again since.
pub async fn a_job_run_again_is_not_history(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let running = trial.add_running(&acme).await;
        jobs.push(trial.order(&running, succeeding(&running)).await);
    }
    trial.pass(10 * DAY_MS);
    let again = trial.order(&jobs[0], Command::Rerun { run_at: trial.now }).await;
    trial.order(&jobs[1], Command::Rerun { run_at: trial.now }).await;
    let running = trial.claim(&jobs[1]).await;
    let ended_again = trial.order(&running, succeeding(&running)).await;
    let dropped = trial.store.drop_history(trial.now, trial.now.plus_ms(-2 * DAY_MS)).await.expect("dropped");
    assert_eq!(dropped, 1);
    let trial = trial.reopen().await;
    trial.holds(&again).await;
    trial.holds(&ended_again).await;
    assert_eq!(trial.get(&jobs[2]).await, None);
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Scheduled, 1), (State::Succeeded, 1)]);
    trial.claim(&again).await;
}

/// Dropping history frees the keys whose time is over, and only those.
pub async fn a_key_with_time_left_survives_its_job(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let (short, long) = (trial.job(&acme, 0), trial.job(&acme, 0));
    let until = START.plus_ms(30 * DAY_MS);
    let claim = IdempotencyClaim { key: Arc::from("long"), fingerprint: [1; 16], until };
    let lasting = |job| Submission { job, key: Some(claim.clone()), fresh: false };
    trial.submit(vec![keyed(&short, "short", 1), lasting(long.clone())]).await;
    for job in [&short, &long] {
        trial.order(job, Command::Cancel).await;
    }
    trial.pass(10 * DAY_MS);
    let before = trial.now.plus_ms(-2 * DAY_MS);
    assert_eq!(trial.store.drop_history(trial.now, before).await.expect("dropped"), 2);
    let mut trial = trial.reopen().await;
    let (again, anew) = (trial.job(&acme, 0), trial.job(&acme, 0));
    assert_eq!(trial.submit(vec![lasting(again)]).await, [Submitted::Duplicate(long.id)]);
    assert_eq!(trial.submit(vec![keyed(&anew, "short", 2)]).await, [Submitted::New]);
}

/// Per shard the newest counts; reopening may lose them but never makes one up.
pub async fn checkpoints_are_the_last_ones_saved(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let job = trial.add(&acme, 0).await;
    let shards = trial.store.layout().shards;
    let at = |shard: u16, frontier: u32| Checkpoint {
        shard: Shard(shard % shards),
        frontier: Bucket(frontier),
        cursors: vec![
            Cursor { bucket: Bucket(frontier), tenant: acme.clone(), position: job.position() },
            Cursor {
                bucket: Bucket(frontier + 1),
                tenant: tenant("globex"),
                position: Position { at: Timestamp::from_ms(7), id: job.id },
            },
        ],
    };
    let saved = async |trial: &Trial<'_>| {
        let mut saved = trial.store.checkpoints().await.expect("read");
        saved.sort_by_key(|checkpoint| checkpoint.shard);
        saved
    };
    assert_eq!(saved(&trial).await, []);
    trial.store.save_checkpoints(vec![at(0, 5)]).await.expect("saved");
    assert_eq!(saved(&trial).await, [at(0, 5)]);
    let bare = Checkpoint { cursors: Vec::new(), ..at(0, 6) };
    trial.store.save_checkpoints(vec![bare.clone()]).await.expect("saved");
    assert_eq!(saved(&trial).await, std::slice::from_ref(&bare));
    if shards > 1 {
        trial.store.save_checkpoints(vec![at(1, 9)]).await.expect("saved");
        assert_eq!(saved(&trial).await, [bare.clone(), at(1, 9)]);
    }
    let known = [at(0, 5), bare, at(1, 9)];
    let trial = trial.reopen().await;
    for checkpoint in saved(&trial).await {
        assert!(known.contains(&checkpoint), "{checkpoint:?} was never saved");
    }
    trial.holds(&job).await;
}

/// Every call on a closed store fails in the same way.
pub async fn a_closed_store_says_so(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let job = trial.add(&acme, 0).await;
    let (shard, bucket, now) = (trial.shard(&acme), Bucket::of(START), trial.now);
    let late = trial.job(&acme, 0);
    let (store, epoch) = (Arc::clone(&trial.store), trial.epoch);
    store.close().await.expect("closed");
    let due =
        Due { shard, bucket, tenant: acme.clone(), after: None, until: now, count_max: 10, bytes_max: 1_000 };
    let query = ListQuery { tenant: acme.clone(), filter: Filter::default(), after: None, count_max: 10 };
    let schedule = trial.schedule_id();
    let schedules = ScheduleQuery {
        tenant: acme.clone(),
        states: Vec::new(),
        kind: None,
        calendar: None,
        after: None,
        count_max: 1,
    };
    let document = DocumentKey { kind: "tenant", tenant: acme.clone(), name: Arc::from("settings") };
    let answers: [(&str, Option<Error>); 28] = [
        ("open_epoch", store.open_epoch().await.err()),
        ("submit", store.submit(now, vec![keyless(&late)], OnConflict::KeepOthers).await.err()),
        ("apply", store.apply(now, Some(epoch), vec![order(&job, Command::Cancel)]).await.err()),
        ("next_bucket", store.next_bucket(shard, bucket, bucket).await.err()),
        ("due_tenants", store.due_tenants(shard, bucket, None, 10).await.err()),
        ("due", store.due(due).await.err()),
        ("running", store.running().await.err()),
        ("get", store.get(&acme, vec![job.id]).await.err()),
        ("find_key", store.find_key(now, &acme, "k").await.err()),
        ("claim_key", store.claim_key(now, &acme, claim("k", 1)).await.err()),
        ("list", store.list(query).await.err()),
        ("counts", store.counts(Some(&acme)).await.err()),
        ("save_checkpoints", store.save_checkpoints(Vec::new()).await.err()),
        ("checkpoints", store.checkpoints().await.err()),
        ("drop_history", store.drop_history(now, now).await.err()),
        ("put_document", store.put_document(document.clone(), None, IfVersion::Any).await.err()),
        ("document", store.document(&document).await.err()),
        ("newest_document_change", store.newest_document_change().await.err()),
        ("edit_schedules", store.edit_schedules(now, Vec::new()).await.err()),
        ("schedules", store.schedules(&acme, vec![schedule]).await.err()),
        ("find_schedule", store.find_schedule(&acme, "report").await.err()),
        ("list_schedules", store.list_schedules(schedules).await.err()),
        ("count_schedules", store.count_schedules(&acme).await.err()),
        ("schedule_tenants", store.schedule_tenants(None, 1).await.err()),
        ("ledger", store.ledger(&acme, schedule, None, 1).await.err()),
        ("put_calendar", store.put_calendar(&acme, "holidays", None).await.err()),
        ("calendar", store.calendar(&acme, "holidays").await.err()),
        ("calendars", store.calendars(&acme).await.err()),
    ];
    for (call, error) in answers {
        assert!(matches!(error, Some(Error::Closed)), "{call}: {error:?}");
    }
    drop((store, trial));
    let trial = Trial::start(home).await;
    trial.holds(&job).await;
    assert_eq!(trial.get(&late).await, None);
}

/// What is fixed stays fixed.
pub async fn an_open_store_is_ready_and_keeps_its_layout(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let layout = trial.store.layout();
    assert!(layout.shards > 0, "a store has shards");
    assert_eq!(trial.store.health(), Health::Ready);
    let running = trial.add_running(&tenant("acme")).await;
    trial.order(&running, failing(&running, Retry::No)).await;
    let trial = trial.reopen().await;
    assert_eq!(trial.store.layout(), layout);
    assert_eq!(trial.store.health(), Health::Ready);
}
