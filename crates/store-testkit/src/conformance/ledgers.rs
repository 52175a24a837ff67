//! Ledgers and calendars.

use std::sync::Arc;

use tidewheel_core::cron::Cron;
use tidewheel_core::job::State as JobState;
use tidewheel_core::limits::{DAY_MS, HOUR_MS};
use tidewheel_core::schedule::{Definition, MisfirePolicy, Outcome, Timing, backfill_job};

use super::Home;
use super::beat::{BEAT_MS, beat, dates, decided, missing, ordering, outcomes, ruled};
use super::trial::{START, Trial, succeeding, tenant};
use super::walk;
use tidewheel_store::{LedgerCursor, ScheduleCommand};

/// Pages of every size show the same, and entries of one instant come latest decision first.
pub async fn a_ledger_is_read_page_by_page(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let other = trial.create(&tenant("acme"), beat()).await;
    for _ in 0..3 {
        trial.fire(&made).await;
    }
    trial.fire(&other).await;
    trial.pass(2 * DAY_MS);
    // Decided today about an instant of long ago, and two more of that instant's jobs.
    let again: Vec<_> = (0..2)
        .map(|n| backfill_job(&made, START.plus_ms((2 + n) * BEAT_MS), trial.now, trial.now).0)
        .collect();
    trial.edit(&made, ScheduleCommand::Backfill(again)).await;
    trial.fire(&made).await;
    trial.fire(&made).await;
    let all = walk::ledger(&*trial.store, &made, 100).await;
    let expected = ["fired", "coalesced", "backfilled", "fired", "backfilled", "fired", "fired"];
    assert_eq!(outcomes(&all), expected);
    for count_max in 1..8 {
        assert_eq!(walk::ledger(&*trial.store, &made, count_max).await, all);
    }
    let trial = trial.reopen().await;
    assert_eq!(walk::ledger(&*trial.store, &made, 3).await, all);
    assert_eq!(trial.ledger_of(&other).await.len(), 1);
    let first = LedgerCursor { from: START, number: 0 };
    let page = trial.store.ledger(&made.tenant, made.id, Some(first), 10).await.expect("read");
    assert_eq!((page.entries, page.next), (Vec::new(), None));
    let elsewhere = trial.store.ledger(&tenant("globex"), made.id, None, 10).await.expect("read");
    assert_eq!(elsewhere.entries, []);
}

/// However long it is, and whatever else was decided in between.
pub async fn a_long_ledger_is_read_page_by_page(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let windowed = trial.create(&tenant("acme"), Definition { window_ms: BEAT_MS / 2, ..beat() }).await;
    let mut jobs = Vec::new();
    for round in 0..30 {
        let job = trial.fire(&made).await.job;
        jobs.extend((job.status.state == JobState::Running).then_some(job.id));
        trial.fire(&windowed).await;
        if round % 11 == 10 {
            // One more line between those of the fires, then a day's pause, of which one fire is left.
            let again = backfill_job(&made, START.plus_ms(3 * BEAT_MS), trial.now, trial.now).0;
            trial.edit(&made, ScheduleCommand::Backfill(vec![again])).await;
            trial.pass(DAY_MS);
        }
        if round % 13 == 12 {
            trial = trial.reopen().await;
        }
    }
    for schedule in [&made, &windowed] {
        trial.check_cover(schedule).await;
        let all = walk::ledger(&*trial.store, schedule, 1_000).await;
        for count_max in [1, 2, 3, 7, 8, 9, 16, 31] {
            assert_eq!(walk::ledger(&*trial.store, schedule, count_max).await, all, "{count_max} a page");
        }
    }
    let all = walk::ledger(&*trial.store, &made, 1_000).await;
    let fired = all.iter().rev().filter_map(|entry| match entry.outcome {
        Outcome::Fired { job_id, .. } => Some(job_id),
        Outcome::Coalesced { .. }
        | Outcome::Skipped(_)
        | Outcome::Missed
        | Outcome::Triggered { .. }
        | Outcome::Backfilled { .. } => None,
    });
    assert_eq!(fired.collect::<Vec<_>>(), jobs, "each with its own job");
    assert_eq!(outcomes(&all).iter().filter(|outcome| **outcome == "backfilled").count(), 2);
    trial.edit(&made, ScheduleCommand::Delete).await;
    assert_eq!(walk::ledger(&*trial.store, &made, 10).await, []);
    assert!(trial.ledger_of(&windowed).await.len() >= 30, "that of another goes on");
}

/// Old entries are dropped with old jobs, and no others.
pub async fn old_entries_are_dropped_with_history(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let ended = trial.fire(&made).await.job;
    trial.order(&ended, succeeding(&ended)).await;
    trial.pass(10 * DAY_MS);
    let before = trial.now;
    trial.fire(&made).await;
    trial.fire(&made).await;
    trial.pass(5 * DAY_MS);
    assert_eq!(trial.ledger_of(&made).await.len(), 3);
    // The occurrence that was dropped as not the newest ended at the border, and is kept.
    assert_eq!(trial.store.drop_history(trial.now, before).await.expect("dropped"), 1);
    let kept = trial.ledger_of(&made).await;
    assert_eq!(outcomes(&kept), ["fired", "coalesced"]);
    assert!(kept.iter().all(|entry| entry.decided_at >= before));
    let schedule = trial.now_of(&made).await;
    let mut trial = trial.reopen().await;
    assert_eq!(trial.ledger_of(&made).await, kept);
    assert_eq!(trial.now_of(&made).await, schedule);
    trial.fire(&made).await;
}

/// Stored, replaced, removed, and listed by name, per tenant.
pub async fn calendars_are_kept(home: &dyn Home) {
    let trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let store = &trial.store;
    let days = dates(&["2027-12-25", "2027-01-01"]);
    for (tenant, name) in [(&acme, "b"), (&acme, "a"), (&globex, "a"), (&acme, "gone")] {
        store.put_calendar(tenant, name, Some(days.clone())).await.expect("stored");
    }
    let other = dates(&["2028-02-29"]);
    store.put_calendar(&acme, "a", Some(other.clone())).await.expect("stored");
    store.put_calendar(&acme, "gone", None).await.expect("removed");
    store.put_calendar(&acme, "never", None).await.expect("removed");
    let trial = trial.reopen().await;
    let calendar = async |tenant, name| trial.store.calendar(tenant, name).await.expect("read");
    assert_eq!(calendar(&acme, "a").await, Some(other));
    assert_eq!(calendar(&acme, "b").await, Some(days.clone()));
    assert_eq!(calendar(&globex, "a").await, Some(days));
    assert_eq!(calendar(&acme, "gone").await, None);
    let names: [Arc<str>; 2] = ["a".into(), "b".into()];
    assert_eq!(trial.store.calendars(&acme).await.expect("read"), names);
    assert_eq!(trial.store.calendars(&tenant("acm")).await.expect("read"), []);
}

/// Every day at nine, holidays excepted.
fn daily_but_holidays() -> Definition {
    ruled(|rule| {
        rule.timing = Timing::Cron(Box::new(Cron::parse("0 9 * * *").expect("a cron expression")));
        rule.exclude.calendar = Some(Arc::from("holidays"));
    })
}

/// Tells a schedule that the holidays were these before.
fn redating(before: &[&str]) -> ScheduleCommand {
    ScheduleCommand::Redate { name: Arc::from("holidays"), before: Some(Arc::new(dates(before))) }
}

/// What waits stays as it is until the schedule is told; then it goes by the new dates.
pub async fn a_changed_calendar_moves_what_waits(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    // START is a Friday, 2027-01-15 at 08:00.
    let put = async |trial: &Trial<'_>, texts: &[&str]| {
        trial.store.put_calendar(&acme, "holidays", Some(dates(texts))).await.expect("stored");
    };
    put(&trial, &["2027-01-16"]).await;
    let made = trial.create(&acme, daily_but_holidays()).await;
    trial.fire(&made).await;
    let sunday = trial.pending(&made).await.expect("pending");
    assert_eq!(sunday.status.due_at.to_string(), "2027-01-17T09:00:00.000Z");
    put(&trial, &["2027-01-17", "2027-01-18"]).await;
    assert_eq!(trial.pending(&made).await.as_ref(), Some(&sunday));
    let elsewhere = ScheduleCommand::Redate { name: Arc::from("other"), before: None };
    assert!(!trial.try_edit(ordering(&made, elsewhere)).await.expect("granted").changed);
    let edited = trial.edit(&made, redating(&["2027-01-16"])).await;
    let saturday = trial.pending(&made).await.expect("pending");
    assert_eq!(saturday.status.due_at.to_string(), "2027-01-16T09:00:00.000Z");
    assert_eq!(edited.jobs.len(), 2);
    assert_eq!((edited.jobs[0].id, edited.jobs[0].status.state), (sunday.id, JobState::Cancelled));
    assert_eq!(trial.get(&sunday).await, None);
    let again = trial.try_edit(ordering(&made, redating(&["2027-01-16"]))).await.expect("granted");
    assert!(!again.changed);
    let mut trial = trial.reopen().await;
    let applied = trial.fire(&made).await;
    assert_eq!(applied.beside()[0].status.due_at.to_string(), "2027-01-19T09:00:00.000Z");
    trial.store.put_calendar(&acme, "holidays", None).await.expect("removed");
    trial.edit(&made, redating(&["2027-01-17", "2027-01-18"])).await;
    let sunday = trial.pending(&made).await.expect("pending");
    assert_eq!(sunday.status.due_at.to_string(), "2027-01-17T09:00:00.000Z", "nothing is excluded any more");
    let fired = trial.ledger_of(&made).await;
    assert!(fired.iter().all(|entry| matches!(entry.outcome, Outcome::Fired { .. })));
}

/// New dates hold from now on: what was excluded when it passed is not made up for, and what was due still fires.
pub async fn a_date_that_has_passed_stays_excluded(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let put = async |trial: &Trial<'_>, texts: &[&str]| {
        trial.store.put_calendar(&acme, "holidays", Some(dates(texts))).await.expect("stored");
    };
    // START is 2027-01-15 at 08:00.
    let nine_of = |day: i64| START.plus_ms(HOUR_MS + (day - 15) * DAY_MS);
    put(&trial, &["2027-01-16"]).await;
    let misfire = missing(MisfirePolicy::FIRE_ALL).misfire;
    let made = trial.create(&acme, Definition { misfire, ..daily_but_holidays() }).await;
    trial.fire(&made).await;
    let waits = trial.pending(&made).await.expect("pending");
    trial.now = nine_of(16).plus_ms(HOUR_MS);
    put(&trial, &["2028-01-01"]).await;
    trial.edit(&made, redating(&["2027-01-16"])).await;
    assert_eq!(trial.pending(&made).await.as_ref(), Some(&waits), "the 17th, as before");

    // Nobody is there for it: all that was missed is made up for, and the 16th was not.
    let mut trial = trial.reopen().await;
    trial.now = nine_of(18).plus_ms(HOUR_MS);
    trial.fire(&made).await;
    trial.fire(&made).await;
    assert_eq!(trial.pending(&made).await.expect("pending").status.due_at, nine_of(19));

    // What was due when its date was excluded is due still, also if the change is told of twice.
    trial.now = nine_of(19).plus_ms(HOUR_MS);
    put(&trial, &["2027-01-19"]).await;
    trial.edit(&made, redating(&["2028-01-01"])).await;
    let again = trial.try_edit(ordering(&made, redating(&["2027-01-19"]))).await.expect("granted");
    assert!(!again.changed);
    let fired = trial.fire(&made).await.job;
    assert_eq!(fired.spec.occurrence.map(|occurrence| occurrence.fire_at), Some(nine_of(19)));
    assert_eq!(trial.pending(&made).await.expect("pending").status.due_at, nine_of(20));
    let ledger = trial.ledger_of(&made).await;
    assert_eq!(decided(&ledger, None), [15, 17, 18, 19].map(nine_of));
    assert_eq!(outcomes(&ledger), ["fired"; 4]);
}
