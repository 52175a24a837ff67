//! Orders under an idempotency key: given again, they do nothing, whatever has happened since.

use tidewheel_core::job::{Command, Rejection, State};
use tidewheel_core::limits::MINUTE_MS;

use super::Home;
use super::beat::{beat, creating, faster, ordering, update};
use super::trial::{Retry, Trial, claim, failing, keyed, order, succeeding, tenant};
use tidewheel_store::{
    KeyClaimed, KeyUse, Order, Refusal, ScheduleCommand, ScheduleOrder, ScheduleRefusal, Submitted,
};

fn under(order: Order, key: &str, request: u8) -> Order {
    Order { key: Some(claim(key, request)), ..order }
}

fn edit_under(order: ScheduleOrder, key: &str, request: u8) -> ScheduleOrder {
    ScheduleOrder { key: Some(claim(key, request)), ..order }
}

/// Also within one batch, after opening again, and when the job has moved on; until the key's time is over.
pub async fn an_order_under_a_key_is_obeyed_once(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let running = trial.add_running(&tenant("acme")).await;
    trial.order(&running, succeeding(&running)).await;
    let rerun = under(order(&running, Command::Rerun { run_at: trial.now }), "k", 1);
    let answers = trial.orders(vec![rerun.clone(), rerun.clone()]).await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("granted")).collect();
    assert_eq!((answers[0].changed, answers[1].changed), (true, false));
    assert_eq!(answers[1].job, answers[0].job);
    let again = trial.claim(&answers[0].job).await;
    let done = trial.order(&again, succeeding(&again)).await;
    let mut trial = trial.reopen().await;
    let repeated = trial.orders(vec![rerun.clone()]).await.remove(0).expect("granted");
    assert_eq!((repeated.changed, &*repeated.job), (false, &done), "it does not run a third time");
    trial.holds(&done).await;
    trial.pass(MINUTE_MS);
    let anew = trial.orders(vec![rerun]).await.remove(0).expect("granted");
    assert!(anew.changed, "the key's time is over");
}

/// What was refused may be asked again under its key; what changed nothing was granted all the same.
pub async fn a_refused_order_leaves_its_key_free(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let job = trial.add_running(&acme).await;
    let rerun = under(order(&job, Command::Rerun { run_at: trial.now }), "k", 1);
    let refused = trial.orders(vec![rerun.clone()]).await.remove(0);
    assert_eq!(refused.err(), Some(Refusal::Rejected(Rejection::NotFinished(State::Running))));
    assert_eq!(trial.store.find_key(trial.now, &acme, "k").await.expect("looked up"), None);
    trial.order(&job, succeeding(&job)).await;
    assert!(trial.orders(vec![rerun]).await.remove(0).expect("granted").changed);

    let lost = under(Order { id: trial.job(&acme, 0).id, ..order(&job, Command::Cancel) }, "lost", 1);
    assert_eq!(trial.orders(vec![lost]).await.remove(0).err(), Some(Refusal::NotFound));
    assert_eq!(trial.store.find_key(trial.now, &acme, "lost").await.expect("looked up"), None);

    let made = trial.create(&acme, beat()).await;
    let stale = ScheduleOrder { if_version: Some(7), ..ordering(&made, ScheduleCommand::Pause) };
    let answer = trial.try_edit(edit_under(stale, "pause", 1)).await;
    assert_eq!(answer.err(), Some(ScheduleRefusal::StaleVersion { current: 1 }));
    let resumed = trial.try_edit(edit_under(ordering(&made, ScheduleCommand::Resume), "pause", 2)).await;
    assert!(resumed.is_ok_and(|edited| !edited.changed), "it was not paused");
    let taken = trial.try_edit(edit_under(ordering(&made, ScheduleCommand::Pause), "pause", 1)).await;
    assert_eq!(taken.err(), Some(ScheduleRefusal::KeyConflict(KeyUse::Schedule(made.id))));
}

/// Whatever the requests are: submissions, orders for jobs or schedules, creations, calls for many.
pub async fn one_key_is_for_one_request(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let job = trial.job(&acme, 0);
    assert_eq!(trial.submit(vec![keyed(&job, "submitted", 1)]).await, [Submitted::New]);
    trial.orders(vec![under(order(&job, Command::RunNow), "ordered", 2)]).await.remove(0).expect("granted");
    let made = trial.new_schedule(&acme, beat());
    let made = trial.try_edit(creating(made, Some(claim("made", 3)))).await.expect("made").schedule;
    trial.try_edit(edit_under(ordering(&made, ScheduleCommand::Pause), "paused", 4)).await.expect("granted");
    let claimed = async |trial: &Trial<'_>, key, request| {
        trial.store.claim_key(trial.now, &acme, claim(key, request)).await.expect("answered")
    };
    assert_eq!(claimed(&trial, "many", 5).await, KeyClaimed::New);

    let mut trial = trial.reopen().await;
    let claimed_again = trial.store.claim_key(trial.now, &acme, claim("many", 5)).await.expect("answered");
    assert_eq!(claimed_again, KeyClaimed::Repeat);
    let uses = [
        ("submitted", KeyUse::Job(job.id)),
        ("ordered", KeyUse::Job(job.id)),
        ("made", KeyUse::NewSchedule(made.id)),
        ("paused", KeyUse::Schedule(made.id)),
        ("many", KeyUse::Call),
    ];
    for (key, used_for) in uses {
        let other = trial.job(&acme, 0);
        assert_eq!(trial.submit(vec![keyed(&other, key, 9)]).await, [Submitted::Conflict(used_for)]);
        let ordered = trial.orders(vec![under(order(&job, Command::Cancel), key, 9)]).await.remove(0);
        assert_eq!(ordered.err(), Some(Refusal::KeyConflict(used_for)));
        let new = trial.new_schedule(&acme, beat());
        let conflict = Some(ScheduleRefusal::KeyConflict(used_for));
        assert_eq!(trial.try_edit(creating(new, Some(claim(key, 9)))).await.err(), conflict);
        let resume = edit_under(ordering(&made, ScheduleCommand::Resume), key, 9);
        assert_eq!(trial.try_edit(resume).await.err(), conflict);
        assert_eq!(claimed(&trial, key, 9).await, KeyClaimed::Conflict(used_for));
        let theirs = trial.job(&globex, 0);
        assert_eq!(trial.submit(vec![keyed(&theirs, key, 9)]).await, [Submitted::New], "not theirs");
    }
    trial.holds(&job).await;
    assert_eq!(trial.store.count_schedules(&acme).await.expect("counted"), 1);
    // The key of a creation goes with its schedule, for whatever is asked next; that of an order does not.
    trial.edit(&made, ScheduleCommand::Delete).await;
    let anew = trial.job(&acme, 0);
    assert_eq!(trial.submit(vec![keyed(&anew, "made", 9)]).await, [Submitted::New]);
    let trial = trial.reopen().await;
    let held = trial.store.find_key(trial.now, &acme, "made").await.expect("looked up");
    assert_eq!(held.map(|held| held.used_for), Some(KeyUse::Job(anew.id)));
    assert_eq!(
        trial.submit(vec![keyed(&anew, "paused", 9)]).await,
        [Submitted::New],
        "an id that is there is left as it is"
    );
    assert_eq!(claimed(&trial, "paused", 9).await, KeyClaimed::Conflict(KeyUse::Schedule(made.id)));
}

/// Also for a version that is no longer the schedule's.
pub async fn an_edit_under_a_key_is_made_once(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let change = ScheduleOrder { if_version: Some(1), ..ordering(&made, update(faster())) };
    let change = edit_under(change, "change", 1);
    let changed = trial.try_edit(change.clone()).await.expect("granted");
    assert!(changed.changed && changed.repeats.is_none());
    let pause = edit_under(ordering(&made, ScheduleCommand::Pause), "pause", 2);
    assert!(trial.try_edit(pause.clone()).await.expect("granted").changed);
    let resumed = trial.edit(&made, ScheduleCommand::Resume).await.schedule;
    trial = trial.reopen().await;
    for order in [change, pause] {
        let again = trial.try_edit(order).await.expect("granted");
        assert_eq!((again.changed, again.repeats), (false, Some(KeyUse::Schedule(made.id))));
        assert_eq!(again.schedule, resumed);
    }
    let delete = edit_under(ordering(&made, ScheduleCommand::Delete), "delete", 3);
    assert!(trial.try_edit(delete.clone()).await.expect("granted").changed);
    assert_eq!(trial.try_edit(delete).await.err(), Some(ScheduleRefusal::Gone));
    let unknown = edit_under(ordering(&made, ScheduleCommand::Delete), "unknown", 3);
    assert_eq!(trial.try_edit(unknown).await.err(), Some(ScheduleRefusal::NotFound));
}

/// Triggered again under the key, the schedule answers with the first job, as it is by then.
pub async fn a_trigger_under_a_key_makes_one_job(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let trigger = edit_under(ordering(&made, ScheduleCommand::Trigger), "k", 1);
    let first = trial.try_edit(trigger.clone()).await.expect("granted");
    let job = first.jobs.last().expect("it makes a job").clone();
    trial.pass(1_000);
    let running = trial.claim(&job).await;
    let again = trial.try_edit(trigger.clone()).await.expect("granted");
    assert_eq!((again.changed, again.repeats), (false, Some(KeyUse::Job(job.id))));
    assert_eq!(again.jobs, [running]);
    // Two in one millisecond are one job, and either key is for it.
    let [a, b] = ["a", "b"].map(|key| edit_under(ordering(&made, ScheduleCommand::Trigger), key, 2));
    let answers = trial.edits(vec![a, b.clone()]).await;
    let jobs: Vec<_> = answers.iter().flatten().flat_map(|edited| &edited.jobs).map(|job| job.id).collect();
    assert_eq!((jobs.len(), jobs[0]), (2, jobs[1]));
    trial.pass(1_000);
    let trial = trial.reopen().await;
    let again = trial.try_edit(b).await.expect("granted");
    assert_eq!((again.changed, again.jobs[0].id), (false, jobs[0]));
    assert_eq!(trial.jobs_of(&made).await.len(), 3, "two triggered, one pending");
}

/// The order was granted, and that is the answer, even if its job is no longer there.
pub async fn a_discard_under_a_key_was_done(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let running = trial.add_running(&tenant("acme")).await;
    let dead = trial.order(&running, failing(&running, Retry::No)).await;
    let discard = under(order(&dead, Command::Discard), "k", 1);
    assert!(trial.orders(vec![discard.clone()]).await.remove(0).expect("granted").changed);
    let trial = trial.reopen().await;
    let again = trial.orders(vec![discard, order(&dead, Command::Discard)]).await;
    assert_eq!(again[0].as_ref().err(), Some(&Refusal::Gone));
    assert_eq!(again[1].as_ref().err(), Some(&Refusal::NotFound));
}
