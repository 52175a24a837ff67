//! Schedules: claims that move a chain on, what is missed, and jobs outside the chain.

use std::sync::Arc;

use tidewheel_core::job::{Command, Job, Rejection, State as JobState};
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::place::Bucket;
use tidewheel_core::schedule::{
    MisfirePolicy, Outcome, Overlap, Schedule, ScheduleId, State, Timing, backfill_job, occurrence_id,
};

use super::beat::{
    BEAT_MS, GRACE_MS, beat, carrying, missing, ordering, outcomes, overlapping, ruled, update,
};
use super::trial::{RETRY_MS, Retry, START, Trial, failing, order, succeeding, tenant};
use super::{Home, walk};
use tidewheel_store::{Order, Refusal, ScheduleCommand};

fn ids(jobs: &[Job]) -> Vec<tidewheel_core::id::JobId> {
    jobs.iter().map(|job| job.id).collect()
}

/// The claim, the next occurrence, the schedule and its ledger change in one step.
pub async fn a_claim_stores_the_next_occurrence(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    for n in 1..=4 {
        let applied = trial.fire(&made).await;
        assert!(applied.changed);
        assert_eq!(applied.job.status.state, JobState::Running);
        let occurrence = applied.job.spec.occurrence.expect("it came from a schedule");
        assert_eq!((occurrence.fire_at, occurrence.catch_up), (START.plus_ms(n * BEAT_MS), false));
        let pending = trial.pending(&made).await.expect("pending");
        assert_eq!(applied.beside(), [Arc::new(pending.clone())]);
        assert_eq!(pending.status.due_at, START.plus_ms((n + 1) * BEAT_MS));
        let schedule = trial.now_of(&made).await;
        assert_eq!(schedule.decided_until, occurrence.fire_at);
        assert_eq!(schedule.last_fire.map(|last| last.fire_at), Some(occurrence.fire_at));
        let entry = trial.ledger_of(&made).await.remove(0);
        assert_eq!(entry.outcome, Outcome::Fired { job_id: applied.job.id, catch_up: false });
        trial.check_cover(&made).await;
    }
    let before = (trial.now_of(&made).await, trial.pending(&made).await, trial.ledger_of(&made).await);
    let trial = trial.reopen().await;
    let after = (trial.now_of(&made).await, trial.pending(&made).await, trial.ledger_of(&made).await);
    assert_eq!(after, before);
    assert_eq!(trial.counts(None).await, [(JobState::Scheduled, 1), (JobState::Running, 4)]);
}

/// Only a claim that is granted asks the schedule.
pub async fn a_refused_claim_leaves_the_schedule_alone(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let job = trial.pending(&made).await.expect("pending");
    let answer = trial.try_order(&job, trial.claiming()).await;
    assert_eq!(answer.err(), Some(Refusal::Rejected(Rejection::NotDue)));
    assert_eq!(trial.now_of(&made).await, made);
    let running = trial.fire(&made).await.job;
    let before = trial.now_of(&made).await;
    let answer = trial.try_order(&running, trial.claiming()).await;
    assert_eq!(answer.err(), Some(Refusal::Rejected(Rejection::Running)));
    let retrying = trial.order(&running, failing(&running, Retry::Yes)).await;
    trial.pass(RETRY_MS);
    let again = trial.try_order(&retrying, trial.claiming()).await.expect("granted");
    assert_eq!((again.job.status.attempt, again.beside()), (2, Vec::new()), "a retry is no new occurrence");
    let done = trial.try_order(&again.job, succeeding(&again.job)).await.expect("granted");
    assert_eq!(done.beside(), []);
    assert_eq!(trial.now_of(&made).await, before);
    assert_eq!(trial.ledger_of(&made).await.len(), 1);
}

/// Two occurrences of a chain claimed in one batch: the second sees what the first did.
pub async fn orders_of_one_batch_move_the_chain_step_by_step(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let (one, two) = (trial.create(&acme, beat()).await, trial.create(&globex, beat()).await);
    let mut jobs =
        vec![trial.pending(&one).await.expect("pending"), trial.pending(&two).await.expect("pending")];
    trial.now = jobs[0].status.due_at;
    let plain = trial.add(&acme, 0).await;
    jobs.push(plain);
    let mut orders: Vec<_> = jobs.iter().map(|job| order(job, trial.claiming())).collect();
    orders.push(order(&jobs[0], trial.claiming()));
    orders.push(order(&jobs[1], Command::Cancel));
    let answers = trial.orders(orders).await;
    let others: Vec<_> = answers.iter().flatten().map(|applied| applied.beside().len()).collect();
    assert_eq!(others, [1, 1, 0, 0]);
    assert_eq!(answers[3].as_ref().err(), Some(&Refusal::Rejected(Rejection::Running)));
    for schedule in [&one, &two] {
        trial.pending(schedule).await.expect("pending");
        assert_eq!(trial.ledger_of(schedule).await.len(), 1);
    }
}

/// Whether they come in one call or one by one.
pub async fn an_occurrence_is_there_for_the_orders_behind_the_claim_that_stored_it(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let mut made = Vec::new();
    for owner in [tenant("acme"), tenant("globex")] {
        made.push([trial.create(&owner, beat()).await, trial.create(&owner, beat()).await]);
    }
    trial.now = START.plus_ms(BEAT_MS);
    for (at_once, [moved, cancelled]) in [true, false].into_iter().zip(&made) {
        let second_of = |of: &Schedule, command| {
            let at = START.plus_ms(2 * BEAT_MS);
            Order { tenant: of.tenant.clone(), id: occurrence_id(of.id, at, at), command, key: None }
        };
        let mut orders = Vec::new();
        for schedule in [moved, cancelled] {
            orders.push(order(&trial.pending(schedule).await.expect("pending"), trial.claiming()));
        }
        orders.push(second_of(moved, Command::RunNow));
        orders.push(second_of(moved, trial.claiming()));
        orders.push(second_of(cancelled, Command::Cancel));
        let mut answers = Vec::new();
        for call in orders.chunks(if at_once { orders.len() } else { 1 }) {
            answers.extend(trial.orders(call.to_vec()).await);
        }
        let states: Vec<_> = answers.iter().map(|it| it.as_ref().map(|it| it.job.status.state)).collect();
        let (running, waiting) = (JobState::Running, JobState::Scheduled);
        assert_eq!(states, [running, running, waiting, running, JobState::Cancelled].map(Ok));
    }
    let trial = trial.reopen().await;
    for [moved, cancelled] in &made {
        for (schedule, became) in [(moved, ["fired", "fired"]), (cancelled, ["skipped", "fired"])] {
            assert_eq!(outcomes(&trial.ledger_of(schedule).await), became);
            let third = trial.pending(schedule).await.expect("pending");
            assert_eq!(third.status.due_at, START.plus_ms(3 * BEAT_MS));
            trial.check_cover(schedule).await;
        }
    }
}

/// Many that are due at one instant, found as the server finds them and claimed together, time and again.
pub async fn a_herd_is_claimed_in_one_batch(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut made = Vec::new();
    for _ in 0..40 {
        made.push(trial.create(&acme, beat()).await);
    }
    for round in 1..=3 {
        trial.now = START.plus_ms(round * BEAT_MS);
        let (due, _) = walk::due(&*trial.store, &acme, Bucket::of(trial.now), trial.now, 100).await;
        assert_eq!(due.len(), made.len());
        // One is edited between the read and the claim.
        trial
            .edit(
                &made[0],
                update(carrying(["", "one", "two", "three"][usize::try_from(round).expect("few")])),
            )
            .await;
        let orders: Vec<_> = due.iter().map(|job| order(job, trial.claiming())).collect();
        let running = trial.orders(orders).await;
        let running: Vec<_> = running.into_iter().map(|answer| answer.expect("granted")).collect();
        assert!(running.iter().all(|applied| applied.beside().len() == 1));
        let done = running.iter().map(|applied| order(&applied.job, succeeding(&applied.job)));
        assert!(trial.orders(done.collect()).await.iter().all(Result::is_ok));
        for schedule in &made {
            let now = trial.now_of(schedule).await;
            let pending = trial.pending(schedule).await.expect("pending");
            assert_eq!(pending.status.due_at, trial.now.plus_ms(BEAT_MS));
            assert_eq!(pending.spec.payload, now.definition.template.payload);
            trial.check_cover(schedule).await;
        }
        trial = trial.reopen().await;
    }
}

/// The newest of what was missed fires, for all of it.
pub async fn missed_instants_are_coalesced(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), missing(MisfirePolicy::FireLatest)).await;
    trial.pass(5 * BEAT_MS + GRACE_MS + 1);
    let dropped = trial.fire(&made).await;
    assert_eq!(dropped.job.status.state, JobState::Skipped, "it is not the newest");
    assert_eq!(dropped.beside().len(), 1, "but that is due now");
    let fired = trial.fire(&made).await.job;
    let occurrence = fired.spec.occurrence.expect("an occurrence");
    assert_eq!((occurrence.fire_at, occurrence.catch_up), (START.plus_ms(5 * BEAT_MS), true));
    assert_eq!(trial.now, START.plus_ms(5 * BEAT_MS + GRACE_MS + 1), "at once");
    assert_eq!(outcomes(&trial.ledger_of(&made).await), ["fired", "coalesced"]);
    trial.check_cover(&made).await;
    let next = trial.pending(&made).await.expect("pending");
    assert_eq!(next.status.due_at, START.plus_ms(6 * BEAT_MS));
    let trial = trial.reopen().await;
    trial.check_cover(&made).await;
    trial.holds(&fired).await;
    assert_eq!(trial.store.running().await.expect("read"), [fired.without_payload()]);
}

/// A single instant that was missed fires as it is, and says that it is late, also after a crash of its runner.
pub async fn a_late_occurrence_says_so(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), missing(MisfirePolicy::FireLatest)).await;
    let pending = trial.pending(&made).await.expect("pending");
    trial.pass(BEAT_MS + GRACE_MS + 1);
    let fired = trial.fire(&made).await.job;
    assert_eq!(fired.id, pending.id);
    assert!(fired.spec.occurrence.as_ref().is_some_and(|occurrence| occurrence.catch_up));
    let trial = trial.reopen().await;
    trial.holds(&fired).await;
    assert_eq!(trial.store.running().await.expect("read"), [fired.without_payload()]);
    let lost = trial.order(&fired, Command::Lost { token: fired.status.token }).await;
    let trial = trial.reopen().await;
    trial.holds(&lost).await;
    assert!(lost.spec.occurrence.as_ref().is_some_and(|occurrence| occurrence.catch_up));
}

/// All of what was missed fires, oldest first, up to the cap.
pub async fn missed_instants_are_all_fired(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), missing(MisfirePolicy::FireAll { cap: 3 })).await;
    trial.pass(6 * BEAT_MS + GRACE_MS + 1);
    let mut fired = Vec::new();
    for _ in 0..4 {
        let job = trial.fire(&made).await.job;
        if job.status.state == JobState::Running {
            let occurrence = job.spec.occurrence.expect("an occurrence");
            assert!(occurrence.catch_up);
            fired.push(occurrence.fire_at);
        }
        trial = trial.reopen().await;
    }
    assert_eq!(fired, [4, 5, 6].map(|n| START.plus_ms(n * BEAT_MS)));
    assert_eq!(outcomes(&trial.ledger_of(&made).await), ["fired", "fired", "fired", "missed"]);
    trial.check_cover(&made).await;
}

/// Nothing of what was missed fires.
pub async fn missed_instants_are_skipped(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), missing(MisfirePolicy::Skip)).await;
    let late = trial.pending(&made).await.expect("pending");
    trial.pass(400 * DAY_MS);
    let dropped = trial.fire(&made).await;
    assert_eq!((dropped.job.id, dropped.job.status.state), (late.id, JobState::Skipped));
    let next = trial.pending(&made).await.expect("pending");
    assert_eq!(dropped.beside(), [Arc::new(next.clone())]);
    let entries = trial.ledger_of(&made).await;
    assert_eq!(outcomes(&entries), ["skipped"], "one entry for more than a year");
    assert_eq!(entries[0].to, next.status.due_at.plus_ms(-BEAT_MS));
    trial.holds(&dropped.job).await;
    let trial = trial.reopen().await;
    assert_eq!(trial.ledger_of(&made).await, entries);
    trial.check_cover(&made).await;
}

/// Calling off what waits skips that instant, and the chain goes on behind it.
pub async fn a_cancelled_occurrence_moves_the_chain_on(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let job = trial.pending(&made).await.expect("pending");
    let applied = trial.try_order(&job, Command::Cancel).await.expect("granted");
    assert_eq!(applied.job.status.state, JobState::Cancelled);
    let next = trial.pending(&made).await.expect("pending");
    assert_eq!(applied.beside(), [Arc::new(next.clone())]);
    assert_eq!(next.status.due_at, START.plus_ms(2 * BEAT_MS));
    let repeated = trial.try_order(&job, Command::Cancel).await.expect("granted");
    assert_eq!((repeated.changed, repeated.beside()), (false, Vec::new()));
    let mut trial = trial.reopen().await;
    trial.fire(&made).await;
    assert_eq!(outcomes(&trial.ledger_of(&made).await), ["fired", "skipped"]);
    trial.check_cover(&made).await;
}

/// Moved by hand, an occurrence fires when it was moved to; started early, it fires early.
pub async fn an_occurrence_can_be_moved(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let job = trial.pending(&made).await.expect("pending");
    trial.order(&job, Command::RunNow).await;
    let early = trial.claim(&job).await;
    assert_eq!(early.status.due_at, START);
    let second = trial.pending(&made).await.expect("pending");
    assert_eq!(second.status.due_at, START.plus_ms(2 * BEAT_MS));
    let later = START.plus_ms(9 * BEAT_MS);
    let second = trial.order(&second, super::trial::amending(later)).await;
    trial.now = later;
    let fired = trial.try_order(&second, trial.claiming()).await.expect("granted");
    assert_eq!(fired.job.status.state, JobState::Running, "whoever moved it did not mean it to be missed");
    trial.check_cover(&made).await;
}

/// A job made by hand leaves the chain alone, and one asked for twice at once is one job.
pub async fn a_trigger_fires_outside_the_chain(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), overlapping(Overlap::Skip)).await;
    let pending = trial.pending(&made).await;
    trial.pass(1_000);
    let edited = trial.edit(&made, ScheduleCommand::Trigger).await;
    assert_eq!(edited.jobs.len(), 1);
    let triggered = edited.jobs[0].clone();
    assert_eq!((triggered.status.due_at, edited.schedule.version), (trial.now, 1));
    let running = trial.claim(&triggered).await;
    let repeated = trial.try_edit(ordering(&made, ScheduleCommand::Trigger)).await.expect("granted");
    assert_eq!((repeated.changed, repeated.jobs), (false, vec![running.clone()]));
    trial.holds(&running).await;
    assert_eq!(trial.pending(&made).await, pending);
    assert_eq!(trial.fire(&made).await.job.status.state, JobState::Skipped, "a run by hand counts");
    assert_eq!(outcomes(&trial.ledger_of(&made).await), ["skipped", "triggered"]);
    trial.check_cover(&made).await;
    let edited = trial.edit(&made, ScheduleCommand::Pause).await;
    trial.edit(&edited.schedule, ScheduleCommand::Trigger).await;
    let trial = trial.reopen().await;
    assert_eq!(trial.jobs_of(&made).await.len(), 3);
}

/// Jobs that make up for old instants are stored as they are, once.
pub async fn a_backfill_is_stored_outside_the_chain(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let jobs: Vec<_> = (1..=3)
        .map(|n| backfill_job(&made, START.plus_ms(-n * BEAT_MS), trial.now.plus_ms(n), trial.now).0)
        .collect();
    let edited = trial.edit(&made, ScheduleCommand::Backfill(jobs[..2].to_vec())).await;
    assert_eq!(ids(&edited.jobs), ids(&jobs[..2]));
    trial.pass(10);
    let running = trial.claim(&jobs[0]).await;
    let edited = trial.edit(&made, ScheduleCommand::Backfill(jobs.clone())).await;
    assert_eq!(ids(&edited.jobs), ids(&jobs[2..]), "what is there already is left as it is");
    trial.holds(&running).await;
    let repeated = trial.try_edit(ordering(&made, ScheduleCommand::Backfill(jobs))).await.expect("granted");
    assert!(!repeated.changed);
    let trial = trial.reopen().await;
    let entries = trial.ledger_of(&made).await;
    assert_eq!(outcomes(&entries), ["backfilled"; 3]);
    assert_eq!(entries[0].from, START.plus_ms(-BEAT_MS), "latest instant first, whenever it was decided");
    trial.pending(&made).await.expect("pending");
}

/// After its last instant there is nothing to wait for.
pub async fn a_schedule_ends_with_its_last_instant(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let last = START.plus_ms(2 * BEAT_MS);
    let made = trial.create(&tenant("acme"), ruled(|rule| rule.end_at = Some(last))).await;
    assert_eq!(trial.fire(&made).await.beside().len(), 1);
    let applied = trial.fire(&made).await;
    assert_eq!((applied.job.status.state, applied.beside()), (JobState::Running, Vec::new()));
    assert_eq!(trial.pending(&made).await, None);
    assert_eq!(trial.now_of(&made).await.state, State::Ended);
    trial.pass(DAY_MS);
    trial.check_cover(&made).await;
    let longer = ruled(|rule| {
        rule.timing = Timing::Every { interval_ms: BEAT_MS, anchor: START };
        rule.end_at = None;
    });
    trial.edit(&made, update(longer)).await;
    trial.pending(&made).await.expect("it goes on");
}

/// A job whose schedule is gone, or never was, runs like any other.
pub async fn a_job_without_its_schedule_is_like_any_other(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let made = trial.create(&acme, beat()).await;
    let triggered = trial.edit(&made, ScheduleCommand::Trigger).await.jobs.remove(0);
    trial.edit(&made, ScheduleCommand::Delete).await;
    let orphan = triggered.spec.occurrence;
    let strange = tidewheel_core::job::Occurrence {
        schedule_id: ScheduleId::from_bytes([1; 16]),
        fire_at: START,
        catch_up: false,
    };
    let lost = trial.job_with(&acme, 0, |spec| spec.occurrence = orphan);
    let never = trial.job_with(&acme, 0, |spec| spec.occurrence = Some(strange));
    trial.take_in(&[lost.clone(), never.clone()]).await;
    for job in [triggered, lost, never] {
        let applied = trial.try_order(&job, trial.claiming()).await.expect("granted");
        assert_eq!((applied.job.status.state, applied.beside()), (JobState::Running, Vec::new()));
        let done = trial.try_order(&applied.job, succeeding(&applied.job)).await.expect("granted");
        assert_eq!(done.beside(), []);
    }
}
