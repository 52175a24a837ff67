//! Schedules: what an edit does to the occurrence that waits.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::tz::TimeZoneDatabase;
use tidewheel_core::cron::Cron;
use tidewheel_core::job::State as JobState;
use tidewheel_core::schedule::{State, Timing, Zone};

use super::Home;
use super::beat::{BEAT_MS, beat, carrying, faster, ordering, outcomes, ruled, update};
use super::trial::{START, Trial, amending, tenant};
use tidewheel_store::{Refusal, ScheduleCommand, ScheduleRefusal};

/// The same instant is the same job, with what the new definition says.
pub async fn an_edit_keeps_the_job_of_its_instant(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let before = trial.pending(&made).await.expect("pending");
    trial.pass(1_000);
    let edited = trial.edit(&made, update(carrying("edited"))).await;
    let after = trial.pending(&made).await.expect("pending");
    assert_eq!(after.id, before.id);
    assert_eq!(&*after.spec.payload, b"edited");
    assert_eq!(edited.jobs, [after]);
    assert_eq!(trial.counts(None).await, [(JobState::Scheduled, 1)]);
    // Moved by hand and then edited, it is where the schedule has it.
    let later = before.status.due_at.plus_ms(2 * BEAT_MS);
    trial.order(&before, amending(later)).await;
    trial.edit(&made, update(carrying("again"))).await;
    let moved_back = trial.pending(&made).await.expect("pending");
    assert_eq!(moved_back.status.due_at, before.status.due_at);
    assert_eq!(trial.waiting().await, [(before.status.due_at, before.id)]);
}

/// What waited by the old rule is as if it had never been.
pub async fn an_edit_of_the_rule_moves_the_occurrence(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let before = trial.pending(&made).await.expect("pending");
    trial.pass(1_000);
    let edited = trial.edit(&made, update(faster())).await;
    let after = trial.pending(&made).await.expect("pending");
    assert_ne!(after.id, before.id);
    assert_eq!(after.status.due_at, START.plus_ms(BEAT_MS / 2));
    let told: Vec<_> = edited.jobs.iter().map(|job| (job.id, job.status.state)).collect();
    assert_eq!(told, [(before.id, JobState::Cancelled), (after.id, JobState::Scheduled)]);
    let trial = trial.reopen().await;
    assert_eq!(trial.get(&before).await, None);
    assert_eq!(trial.counts(None).await, [(JobState::Scheduled, 1)]);
    assert_eq!(trial.waiting().await, [(after.status.due_at, after.id)]);
}

/// While it is paused nothing waits, and what passes is skipped.
pub async fn a_paused_schedule_waits_for_nothing(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    trial.fire(&made).await;
    let waited = trial.pending(&made).await.expect("pending");
    let paused = trial.edit(&made, ScheduleCommand::Pause).await;
    assert_eq!((paused.schedule.state, paused.schedule.next), (State::Paused, None));
    assert_eq!(trial.pending(&made).await, None);
    assert_eq!(trial.get(&waited).await, None);
    let repeated = trial.try_edit(ordering(&made, ScheduleCommand::Pause)).await.expect("granted");
    assert!(!repeated.changed);
    trial.pass(3 * BEAT_MS + 1);
    let trial = trial.reopen().await;
    assert_eq!(trial.waiting().await, []);
    trial.edit(&made, ScheduleCommand::Resume).await;
    let pending = trial.pending(&made).await.expect("pending");
    assert_eq!(pending.status.due_at, START.plus_ms(5 * BEAT_MS));
    trial.check_cover(&made).await;
    let told = outcomes(&trial.ledger_of(&made).await);
    assert_eq!(told, ["skipped", "fired"], "one entry for all that passed");
}

/// A definition and a pause are one edit, and what is refused of it leaves the schedule as it was.
pub async fn an_update_pauses_and_resumes_or_does_nothing_at_all(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let waited = trial.pending(&made).await.expect("pending");
    trial.pass(1_000);
    let to = |definition, paused| ScheduleCommand::Update {
        definition: Box::new(definition),
        name: None,
        paused: Some(paused),
    };
    let unknown = ruled(|rule| rule.exclude.calendar = Some(Arc::from("holidays")));
    let answer = trial.try_edit(ordering(&made, to(unknown.clone(), true))).await;
    assert_eq!(answer.err(), Some(ScheduleRefusal::NoCalendar(Arc::from("holidays"))));
    assert_eq!(trial.now_of(&made).await, made);
    assert_eq!(trial.pending(&made).await.as_ref(), Some(&waited));

    let paused = trial.edit(&made, to(carrying("new"), true)).await.schedule;
    assert_eq!((paused.state, paused.next, paused.version), (State::Paused, None, made.version + 1));
    assert_eq!(&*paused.definition.template.payload, b"new");
    let mut trial = trial.reopen().await;
    assert_eq!(trial.pending(&made).await, None);
    let answer = trial.try_edit(ordering(&made, to(unknown, false))).await;
    assert!(answer.is_err());
    assert_eq!(trial.now_of(&made).await, paused);

    trial.pass(BEAT_MS);
    let resumed = trial.edit(&made, to(faster(), false)).await.schedule;
    assert_eq!((resumed.state, resumed.version), (State::Active, made.version + 2));
    let pending = trial.pending(&made).await.expect("pending");
    assert_eq!(pending.status.due_at, START.plus_ms(BEAT_MS + BEAT_MS / 2));
    assert_eq!(outcomes(&trial.ledger_of(&made).await), ["skipped"], "what passed while it was paused");
}

/// The same rules again change nothing, and a chain that is whole is not mended.
pub async fn a_sound_schedule_needs_no_mending(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let zone = Zone::named(&TimeZoneDatabase::bundled(), "America/New_York").expect("a zone");
    let nightly = ruled(|rule| {
        rule.timing = Timing::Cron(Box::new(Cron::parse("30 2 * * *").expect("a cron expression")));
        rule.zone = zone.clone();
    });
    let made = trial.create(&tenant("acme"), nightly).await;
    let every = trial.create(&tenant("acme"), beat()).await;
    trial.fire(&every).await;
    trial.pass(5 * BEAT_MS);
    let before = [trial.now_of(&made).await, trial.now_of(&every).await];
    let answers = trial
        .edits(vec![
            ordering(&made, ScheduleCommand::Retime(zone)),
            ordering(&made, ScheduleCommand::Rearm { set_back_ms: 0 }),
            ordering(&every, ScheduleCommand::Rearm { set_back_ms: 0 }),
        ])
        .await;
    for answer in answers {
        let edited = answer.expect("granted");
        assert!(!edited.changed && edited.jobs.is_empty(), "nothing was wrong");
    }
    assert_eq!([trial.now_of(&made).await, trial.now_of(&every).await], before);
    trial.pending(&every).await.expect("late, and still there");
}

/// A clock that is set back puts no interval off by more than it must, and no instant comes twice.
pub async fn an_interval_is_brought_forward_when_the_clock_was_set_back(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    for _ in 0..4 {
        trial.fire(&made).await;
    }
    let waited = trial.pending(&made).await.expect("pending");
    let back_ms = 3 * BEAT_MS;
    trial.pass(-back_ms);
    let mended = trial.edit(&made, ScheduleCommand::Rearm { set_back_ms: back_ms }).await;
    assert_eq!(mended.schedule.version, made.version);
    let mut trial = trial.reopen().await;
    let pending = trial.pending(&made).await.expect("pending");
    assert_eq!(pending.status.due_at, waited.status.due_at.plus_ms(1 - back_ms));
    assert_eq!(trial.get(&waited).await, None);
    let again = trial.try_edit(ordering(&made, ScheduleCommand::Rearm { set_back_ms: back_ms })).await;
    assert!(!again.expect("granted").changed);
    for _ in 0..4 {
        trial.fire(&made).await;
    }
    let ledger = trial.ledger_of(&made).await;
    let instants: BTreeSet<_> = ledger.iter().map(|entry| entry.from).collect();
    assert_eq!((ledger.len(), instants.len()), (8, 8));
}

/// Whichever comes first at the very instant of firing, the other sees its result.
pub async fn an_edit_and_a_claim_see_each_other(home: &dyn Home) {
    let commands =
        [ScheduleCommand::Pause, ScheduleCommand::Delete, update(carrying("new")), update(faster())];
    let mut trial = Trial::start(home).await;
    for command in commands {
        for claim_first in [true, false] {
            let made = trial.create(&tenant("acme"), beat()).await;
            let job = trial.pending(&made).await.expect("pending");
            trial.now = job.status.due_at;
            let keeps_due = matches!(command, ScheduleCommand::Update { .. });
            if claim_first {
                let running = trial.claim(&job).await;
                assert_eq!(running.spec.payload, made.definition.template.payload, "the old definition's");
                let edited = trial.edit(&made, command.clone()).await;
                assert!(edited.jobs.iter().all(|job| job.id != running.id), "what runs is not touched");
                trial.holds(&running).await;
            } else {
                trial.edit(&made, command.clone()).await;
                let answer = trial.try_order(&job, trial.claiming()).await;
                // What is due when the definition changes still fires, once; what is paused or deleted does not.
                match answer {
                    Ok(applied) => assert!(keeps_due && applied.job.status.state == JobState::Running),
                    Err(refusal) => assert!(!keeps_due && refusal == Refusal::NotFound),
                }
            }
            let runs = trial.jobs_of(&made).await.into_iter().filter(|job| job.status.attempt > 0);
            let expected = usize::from(claim_first || keeps_due);
            assert_eq!(runs.count(), expected, "{command:?}, claimed first: {claim_first}");
            if trial.find(&made).await.is_some() {
                trial.pending(&made).await;
                let entries = trial.ledger_of(&made).await;
                let of_it = entries.iter().filter(|entry| entry.covers(job.status.due_at)).count();
                assert_eq!(of_it, 1, "{command:?}, claimed first: {claim_first}: {entries:?}");
            }
        }
    }
}
