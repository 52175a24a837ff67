//! Calls side by side: they see each other in some order, as if they had come one after the other.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidewheel_core::audit::{Changes, Kind};
use tidewheel_core::job::{Command, Job, Rejection, State};
use tidewheel_core::place::Bucket;
use tidewheel_core::schedule::NewSchedule;

use super::auditing::sound_trail;
use super::beat::{BEAT_MS, beat, carrying, creating, faster, ordering, outcomes, update};
use super::trial::{START, Trial, claim, keyed, keyless, order, succeeding, tenant};
use super::{Home, walk};
use tidewheel_store::{
    DocumentKey, IfVersion, KeyUse, NewAct, OnConflict, Order, Refusal, ScheduleCommand, ScheduleRefusal,
    Store, Submitted,
};

/// Something to be done.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts a task beside the others; what it returns ends when the task has, and panics if the task did.
pub type Spawn = fn(Task) -> Task;

const TASKS_COUNT: usize = 50;

/// Runs `task` [`TASKS_COUNT`] times at once and returns the answers.
async fn side_by_side<T, F>(
    trial: &Trial<'_>,
    spawn: Spawn,
    task: impl Fn(usize, Arc<dyn Store>) -> F,
) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let answers = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..TASKS_COUNT)
        .map(|number| {
            let work = task(number, Arc::clone(&trial.store));
            let answers = Arc::clone(&answers);
            spawn(Box::pin(async move {
                let answer = work.await;
                answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
            }))
        })
        .collect();
    for task in tasks {
        task.await;
    }
    std::mem::take(&mut *answers.lock().unwrap_or_else(PoisonError::into_inner))
}

/// One request sent many times at once under one key: one job, and everybody is told which.
pub async fn equal_submissions_make_one_job(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let (jobs, now): (Vec<_>, _) = ((0..TASKS_COUNT).map(|_| trial.job(&acme, 5_000)).collect(), trial.now);
    let answers = side_by_side(&trial, spawn, |number, store| {
        let job = jobs[number].clone();
        async move {
            let answer = store.submit(now, vec![keyed(&job, "k", 1)], OnConflict::KeepOthers).await;
            (job.id, answer.expect("answered")[0])
        }
    })
    .await;
    let new: Vec<_> = answers.iter().filter(|(_, answer)| *answer == Submitted::New).collect();
    let [(winner, _)] = new[..] else { unreachable!("{} were taken in", new.len()) };
    for (id, answer) in &answers {
        assert!(id == winner || *answer == Submitted::Duplicate(*winner), "{answer:?}");
    }
    assert_eq!(trial.counts(Some(&acme)).await, [(State::Scheduled, 1)]);
    assert_eq!(trial.due_in_bucket(&acme, now).await, [*winner]);
    let held = trial.store.find_key(now, &acme, "k").await.expect("looked up");
    assert_eq!(held.map(|held| held.used_for), Some(KeyUse::Job(*winner)));
}

/// One creation with a name, sent many times at once under one key: one schedule, and nobody is told that its name is taken.
pub async fn equal_creations_make_one_schedule(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let (acme, now) = (tenant("acme"), trial.now);
    for name in ["a", "b", "c", "d"] {
        let new: Vec<_> = (0..TASKS_COUNT)
            .map(|_| NewSchedule { name: Some(name.into()), ..trial.new_schedule(&acme, beat()) })
            .collect();
        let answers = side_by_side(&trial, spawn, |number, store| {
            let order = creating(new[number].clone(), Some(claim(name, 1)));
            async move { store.edit_schedules(now, vec![order]).await.expect("answered").remove(0) }
        })
        .await;
        let made: Vec<_> = answers.into_iter().map(|answer| answer.expect("granted")).collect();
        assert_eq!(made.iter().filter(|made| made.changed).count(), 1);
        assert!(made.iter().all(|one| one.schedule.id == made[0].schedule.id));
    }
}

/// None gets lost in the crowd, and the counts are exact.
pub async fn different_submissions_are_all_kept(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let tenants = ["acme", "globex"].map(tenant);
    let jobs: Vec<_> =
        (0..TASKS_COUNT).map(|number| [0, 1, 2].map(|ms| trial.job(&tenants[number % 2], ms))).collect();
    let now = trial.now;
    let answers = side_by_side(&trial, spawn, |number, store| {
        let batch = jobs[number].iter().map(keyless).collect();
        async move { store.submit(now, batch, OnConflict::KeepNone).await.expect("answered") }
    })
    .await;
    assert_eq!(answers, vec![vec![Submitted::New; 3]; TASKS_COUNT]);
    let trial = trial.reopen().await;
    for job in jobs.iter().flatten() {
        trial.holds(job).await;
    }
    for tenant in &tenants {
        assert_eq!(trial.counts(Some(tenant)).await, [(State::Scheduled, 75)]);
    }
    assert_eq!(trial.waiting().await.len(), 150);
}

/// Of many claims of one job one is granted; the others are told that it runs.
pub async fn a_job_is_claimed_once(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let job = trial.add(&tenant("acme"), 0).await;
    let (now, epoch) = (trial.now, trial.epoch);
    let answers = side_by_side(&trial, spawn, |number, store| {
        let worker = Arc::from(format!("worker-{number}"));
        let claim = order(&job, Command::Claim { epoch, worker, lease_ms: 30_000, detached: false });
        async move { store.apply(now, Some(epoch), vec![claim]).await.expect("answered").remove(0) }
    })
    .await;
    let granted: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    let [winner] = granted[..] else { unreachable!("{} claims were granted", granted.len()) };
    for refusal in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(*refusal, Refusal::Rejected(Rejection::Running));
    }
    trial.holds(&winner.job).await;
    assert_eq!(winner.job.status.attempt, 1);
    assert_eq!(trial.counts(None).await, [(State::Running, 1)]);
}

/// One order given many times at once under one key acts once, and everybody is told that it was granted.
pub async fn equal_orders_are_obeyed_once(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let running = trial.add_running(&tenant("acme")).await;
    let done = trial.order(&running, succeeding(&running)).await;
    let now = trial.now;
    let answers = side_by_side(&trial, spawn, |_, store| {
        let key = Some(claim("k", 1));
        let rerun = Order { key, ..order(&done, Command::Rerun { run_at: now }) };
        async move { store.apply(now, None, vec![rerun]).await.expect("answered").remove(0) }
    })
    .await;
    let changed = answers.iter().filter(|answer| answer.as_ref().expect("granted").changed).count();
    assert_eq!(changed, 1);
}

/// A job that is finished and called off at once ends in one of the two ways, and the counts agree.
pub async fn one_outcome_is_accepted(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let running = trial.add_running(&tenant("acme")).await;
    let now = trial.now;
    let answers = side_by_side(&trial, spawn, |number, store| {
        let command = if number % 2 == 0 { succeeding(&running) } else { Command::Cancel };
        let order = order(&running, command);
        async move { store.apply(now, None, vec![order]).await.expect("answered").remove(0) }
    })
    .await;
    let granted: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    let changes: Vec<_> = granted.iter().filter(|applied| applied.changed).collect();
    let [change] = changes[..] else { unreachable!("{} outcomes were accepted", changes.len()) };
    for applied in &granted {
        assert_eq!(applied.job, change.job, "a repeat is told what is so");
    }
    trial.holds(&change.job).await;
    assert_eq!(trial.counts(None).await, [(change.job.status.state, 1)]);
    assert_eq!(change.job.status.attempts.len(), 1);
}

/// Claims of occurrences beside pauses of their schedules: each instant is fired or skipped, never both.
pub async fn a_claim_and_a_pause_do_not_both_win(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut made = Vec::new();
    for _ in 0..TASKS_COUNT / 2 {
        let schedule = trial.create(&acme, beat()).await;
        let job = trial.pending(&schedule).await.expect("pending");
        made.push((schedule, job));
    }
    trial.pass(BEAT_MS);
    let (now, claiming) = (trial.now, trial.claiming());
    let claimed = side_by_side(&trial, spawn, |number, store| {
        let (schedule, job) = made[number / 2].clone();
        let claim = order(&job, claiming.clone());
        async move {
            if number % 2 == 0 {
                let answer = store.apply(now, None, vec![claim]).await.expect("answered").remove(0);
                answer.is_ok().then_some(schedule.id)
            } else {
                let pause = vec![ordering(&schedule, ScheduleCommand::Pause)];
                let paused = store.edit_schedules(now, pause).await.expect("answered").remove(0);
                assert!(paused.is_ok_and(|edited| edited.changed));
                None
            }
        }
    })
    .await;
    for (schedule, job) in &made {
        let has_fired = claimed.contains(&Some(schedule.id));
        assert_eq!(trial.get(job).await.map(|job| job.status.state), has_fired.then_some(State::Running));
        assert_eq!(trial.pending(schedule).await, None);
        let expected = if has_fired { ["fired"] } else { ["skipped"] };
        assert_eq!(outcomes(&trial.ledger_of(schedule).await), expected);
    }
}

/// Many schedules want one name: one gets it.
pub async fn one_of_many_gets_a_name(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let orders: Vec<_> = (0..TASKS_COUNT)
        .map(|_| {
            let new = trial.new_schedule(&acme, beat());
            creating(NewSchedule { name: Some(Arc::from("report")), ..new }, None)
        })
        .collect();
    let now = trial.now;
    let answers = side_by_side(&trial, spawn, |number, store| {
        let order = orders[number].clone();
        async move { store.edit_schedules(now, vec![order]).await.expect("answered").remove(0) }
    })
    .await;
    let holder = trial.store.find_schedule(&acme, "report").await.expect("read").expect("somebody has it");
    let made: Vec<_> = answers.iter().flatten().map(|edited| edited.schedule.id).collect();
    assert_eq!(made, [holder]);
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(refused.clone().all(|refusal| *refusal == ScheduleRefusal::NameTaken(holder)));
    assert_eq!(trial.store.count_schedules(&acme).await.expect("counted"), 1);
    assert_eq!(trial.waiting().await.len(), 1);
}

/// Many make a document that must not be there yet: one does.
pub async fn one_of_many_makes_a_document(home: &dyn Home, spawn: Spawn) {
    let trial = Trial::start(home).await;
    let key = DocumentKey { kind: "root", tenant: tenant("acme"), name: Arc::from("secret") };
    let answers = side_by_side(&trial, spawn, |number, store| {
        let (key, bytes) = (key.clone(), Bytes::from(number.to_string()));
        async move {
            let answer = store.put_document(key, Some(bytes), IfVersion::Absent).await.expect("answered");
            (number, answer)
        }
    })
    .await;
    let made: Vec<_> =
        answers.iter().filter_map(|(number, answer)| Some((*number, (*answer).ok()?))).collect();
    assert_eq!(made.len(), 1, "{made:?}");
    let (number, version) = made[0];
    let found = trial.store.document(&key).await.expect("read").expect("somebody made it");
    assert_eq!((found.version, found.bytes), (version, Bytes::from(number.to_string())));
    let refused = answers.iter().filter_map(|(_, answer)| (*answer).err());
    assert!(refused.clone().all(|stale| stale.version == Some(version)));
}

/// Many add to one chain, acts and changes of jobs: it stays one chain, and nothing is lost.
pub async fn chains_do_not_fork(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let (acme, now) = (tenant("acme"), trial.now);
    let jobs: Vec<_> = (0..TASKS_COUNT).map(|_| trial.job(&acme, 0)).collect();
    side_by_side(&trial, spawn, |number, store| {
        let act = NewAct { tenant: acme.clone(), content: Bytes::from(number.to_string()) };
        let job = keyless(&jobs[number]);
        async move {
            store.append_acts(now, vec![act]).await.expect("added");
            store.submit(now, vec![job], OnConflict::KeepOthers).await.expect("answered");
        }
    })
    .await;
    let records = sound_trail(&*trial.store).await;
    let acts = records.iter().filter(|record| record.kind == Kind::Act).count();
    let changed = records.iter().filter(|record| record.kind == Kind::Changes);
    let changed: usize = changed.map(|record| Changes::of(&record.content).count()).sum();
    assert_eq!((acts, changed), (TASKS_COUNT, TASKS_COUNT));
}

/// Batches of claims beside edits of the same schedules: each instant fires once, and no edit is lost.
pub async fn a_herd_and_edits_see_each_other(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut made = Vec::new();
    for _ in 0..TASKS_COUNT {
        made.push(trial.create(&acme, beat()).await);
    }
    trial.pass(BEAT_MS);
    let (due, _) = walk::due(&*trial.store, &acme, Bucket::of(trial.now), trial.now, 100).await;
    assert_eq!(due.len(), made.len());
    let (now, claims) = (trial.now, due.iter().map(|job| order(job, trial.claiming())).collect::<Vec<_>>());
    let answers = side_by_side(&trial, spawn, |number, store| {
        let (schedule, claims) = (made[number].clone(), claims.clone());
        async move {
            if number % 5 == 0 {
                let claimed = store.apply(now, None, claims).await.expect("answered");
                claimed.iter().filter(|answer| answer.is_ok()).count()
            } else {
                let definition = if number % 5 == 1 { faster() } else { carrying("edited") };
                let edit = vec![ordering(&schedule, update(definition))];
                let edited = store.edit_schedules(now, edit).await.expect("answered").remove(0);
                assert!(edited.is_ok_and(|edited| edited.changed));
                0
            }
        }
    })
    .await;
    assert_eq!(answers.iter().sum::<usize>(), TASKS_COUNT, "each was claimed once");
    for (number, schedule) in made.iter().enumerate() {
        let found = trial.now_of(schedule).await;
        assert_eq!(found.version, if number % 5 == 0 { 1 } else { 2 });
        let pending = trial.pending(schedule).await.expect("pending");
        assert_eq!(pending.spec.payload, found.definition.template.payload);
        let next = if number % 5 == 1 { BEAT_MS / 2 } else { BEAT_MS };
        assert_eq!(pending.status.due_at, now.plus_ms(next));
        assert_eq!(outcomes(&trial.ledger_of(schedule).await), ["fired"]);
    }
}

/// Claims, edits and deletions of the same schedules side by side: what was started is what was answered, and stays so.
pub async fn what_runs_is_kept_while_its_schedules_change(home: &dyn Home, spawn: Spawn) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut made = Vec::new();
    for _ in 0..TASKS_COUNT {
        made.push(trial.create(&acme, carrying("old")).await);
    }
    let mut expected: Vec<Job> = Vec::new();
    for round in 1..=3 {
        trial.now = START.plus_ms(round * BEAT_MS);
        let (due, _) = walk::due(&*trial.store, &acme, Bucket::of(trial.now), trial.now, 100).await;
        let claims: Vec<_> = due.iter().map(|job| order(job, trial.claiming())).collect();
        let now = trial.now;
        let answers = side_by_side(&trial, spawn, |number, store| {
            let (schedule, claims) = (made[number].clone(), claims.clone());
            async move {
                if number % 3 == 0 {
                    let claimed = store.apply(now, None, claims).await.expect("answered");
                    return claimed.into_iter().flatten().map(|applied| Job::clone(&applied.job)).collect();
                }
                let last = if round == 3 && number % 3 == 1 {
                    ScheduleCommand::Delete
                } else {
                    update(carrying(["", "one", "two", "three"][usize::try_from(round).expect("few")]))
                };
                let edits = vec![ordering(&schedule, update(carrying("between"))), ordering(&schedule, last)];
                let edited = store.edit_schedules(now, edits).await.expect("answered");
                assert!(edited.iter().all(Result::is_ok));
                Vec::new()
            }
        })
        .await;
        expected.extend(answers.into_iter().flatten());
        trial = trial.reopen().await;
        for job in &expected {
            trial.holds(job).await;
        }
        let mut running = trial.store.running().await.expect("read");
        running.sort_by_key(|job| job.id);
        expected.sort_by_key(|job| job.id);
        assert_eq!(running, expected.iter().map(Job::without_payload).collect::<Vec<_>>());
        for schedule in &made {
            let Some(now) = trial.find(schedule).await else { continue };
            let pending = trial.pending(schedule).await.expect("pending");
            assert_eq!(pending.spec.payload, now.definition.template.payload);
        }
    }
}
