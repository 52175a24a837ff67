//! Schedules: what becomes of them when their zone gets other rules.

use std::sync::Arc;

use jiff::tz::{Offset, TimeZone};
use tidewheel_core::cron::Cron;
use tidewheel_core::job::State as JobState;
use tidewheel_core::limits::HOUR_MS;
use tidewheel_core::schedule::{Definition, Timing, Zone};

use super::Home;
use super::beat::{ordering, ruled};
use super::trial::{Trial, tenant};
use tidewheel_store::{ScheduleCommand, Schedules};

const ZONE: &str = "Asia/Kolkata";
const HOUR_S: i32 = 3_600;
/// By the rules every program has, it is so far ahead of UTC.
const AHEAD_S: i32 = 5 * HOUR_S + HOUR_S / 2;

fn daily() -> Definition {
    ruled(|rule| {
        rule.timing = Timing::Cron(Box::new(Cron::parse("0 9 * * *").expect("a cron expression")));
        rule.zone = ahead(AHEAD_S);
    })
}

fn ahead(seconds: i32) -> Zone {
    Zone::with_rules(ZONE, TimeZone::fixed(Offset::from_seconds(seconds).expect("an offset")))
}

async fn noted(store: &dyn Schedules) -> Option<Arc<str>> {
    store.noted_zones().await.expect("what was noted")
}

/// What was noted last is told, also after reopening; nothing is told of a new store.
pub async fn the_rules_of_zones_are_noted(home: &dyn Home) {
    let trial = Trial::start(home).await;
    assert_eq!(noted(&*trial.store).await, None);
    for identity in ["2026a 00", "2026b 01"] {
        trial.store.note_zones(Some(identity.into())).await.expect("noted");
        assert_eq!(noted(&*trial.store).await.as_deref(), Some(identity));
    }
    let trial = trial.reopen().await;
    assert_eq!(noted(&*trial.store).await.as_deref(), Some("2026b 01"));
    trial.store.note_zones(None).await.expect("noted");
    let trial = trial.reopen().await;
    assert_eq!(noted(&*trial.store).await, None, "neither the old nor the new");
}

/// What waited by the old rules is as if it had never been, and the version stays: nobody edited it.
pub async fn new_rules_of_a_zone_move_the_occurrence(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), daily()).await;
    let before = trial.pending(&made).await.expect("pending");
    trial.pass(1_000);
    let edited = trial.edit(&made, ScheduleCommand::Retime(ahead(AHEAD_S - HOUR_S))).await;
    let after = trial.pending(&made).await.expect("pending");
    assert_eq!(after.status.due_at, before.status.due_at.plus_ms(HOUR_MS));
    let told: Vec<_> = edited.jobs.iter().map(|job| (job.id, job.status.state)).collect();
    assert_eq!(told, [(before.id, JobState::Cancelled), (after.id, JobState::Scheduled)]);
    assert_eq!(edited.schedule.version, made.version);
    let trial = trial.reopen().await;
    assert_eq!(trial.get(&before).await, None);
    assert_eq!(trial.waiting().await, [(after.status.due_at, after.id)]);
    assert!(trial.ledger_of(&made).await.is_empty(), "no instant was decided");
}

/// Its clock turns out to show the time that just fired an hour later: the next one is tomorrow's.
pub async fn a_time_that_fired_does_not_wait_again(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), daily()).await;
    let fired = trial.pending(&made).await.expect("pending");
    trial.fire(&made).await;
    let behind = ahead(AHEAD_S - HOUR_S);
    trial.edit(&made, ScheduleCommand::Retime(behind.clone())).await;
    let tomorrow = fired.status.due_at.plus_ms(25 * HOUR_MS);
    let pending = trial.pending(&made).await.expect("pending");
    assert_eq!(pending.status.due_at, tomorrow);
    // Done again, as after a crash in the middle of it, nothing changes.
    let trial = trial.reopen().await;
    let again = trial.try_edit(ordering(&made, ScheduleCommand::Retime(behind))).await.expect("granted");
    assert!(!again.changed && again.jobs.is_empty());
    assert_eq!(trial.waiting().await, [(tomorrow, pending.id)]);
}
