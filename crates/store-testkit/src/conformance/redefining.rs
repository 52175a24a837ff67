//! Schedules: their jobs ask for what the definition said when they were made, whatever becomes of it and however the
//! store keeps them.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::job::{Command, Destination, Job, Priority, State as JobState, Target};
use tidewheel_core::place::{Bucket, Position};
use tidewheel_core::schedule::{Definition, MisfirePolicy, NewSchedule, Schedule, State, backfill_job};

use super::beat::{BEAT_MS, GRACE_MS, beat, carrying, creating, missing, ordering, ruled, update};
use super::trial::{RETRY_MS, Retry, START, Trial, failing, succeeding, tenant};
use super::{Home, walk};
use tidewheel_store::{Due, Filter, ScheduleCommand, ScheduleQuery};

/// Schedules that are listed over many pages.
const MANY: usize = 300;

/// A definition with nothing as usual.
fn unusual(payload: &'static str) -> Definition {
    let mut definition = carrying(payload);
    let template = &mut definition.template;
    template.kind = Arc::from("report.make");
    template.destination = Destination::Target(Arc::new(Target {
        url: "https://example.com/hook".into(),
        method: "PUT".into(),
        headers: vec![("x-team".into(), "billing".into())],
    }));
    template.priority = Priority::High;
    template.timeout_ms = 1_234;
    template.labels = vec![("region".into(), "eu".into()), ("size".into(), "XL".into())];
    definition.window_ms = 1_000;
    definition.idempotency_key = Some(Arc::from("report"));
    definition
}

impl Trial<'_> {
    /// Checks that a waiting job is found in every way just so.
    async fn finds_waiting(&self, job: &Job) {
        self.holds(job).await;
        let (due, _) =
            walk::due(&*self.store, &job.tenant, Bucket::of(job.status.due_at), job.status.due_at, 100).await;
        assert_eq!(due.iter().find(|found| found.id == job.id), Some(job));
        self.lists(job).await;
    }

    /// Checks that a job is listed just so.
    async fn lists(&self, job: &Job) {
        let states = vec![job.status.state];
        for labels in [Vec::new(), job.spec.labels.clone()] {
            let filter = Filter { states: states.clone(), labels, ..Filter::default() };
            let listed = walk::list(&*self.store, &job.tenant, &filter, 3).await;
            assert_eq!(listed.iter().find(|found| found.id == job.id), Some(job));
        }
    }

    /// Checks that an attempt is under way just so.
    async fn finds_running(&self, job: &Job) {
        let running = self.store.running().await.expect("read");
        assert_eq!(running.into_iter().find(|found| found.id == job.id), Some(job.without_payload()));
        self.holds(job).await;
        self.lists(job).await;
    }

    /// Lets a running job fail and be tried again; what it asks for must stay.
    async fn tries_again(&mut self, running: &Job) -> Job {
        let retrying = self.order(running, failing(running, Retry::Yes)).await;
        assert_eq!(retrying.spec, running.spec);
        self.finds_waiting(&retrying).await;
        self.pass(RETRY_MS);
        let again = self.claim(&retrying).await;
        assert_eq!(again.spec, running.spec);
        again
    }
}

/// However it is looked for, and after reopening.
pub async fn an_occurrence_is_found_as_it_was_made(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    for definition in [beat(), unusual("{\"n\":1}")] {
        let made = trial.create(&tenant("acme"), definition.clone()).await;
        let first = trial.pending(&made).await.expect("pending");
        let template = definition.template;
        assert_eq!((&first.spec.kind, &first.spec.payload), (&template.kind, &template.payload));
        assert_eq!(first.spec.destination, template.destination);
        assert_eq!(first.spec.labels, template.labels);
        let fire_at = first.spec.occurrence.expect("of a schedule").fire_at;
        let key = definition.idempotency_key.map(|own| format!("{own}:{fire_at}"));
        assert_eq!(first.spec.idempotency_key.as_deref(), key.as_deref());
        trial.finds_waiting(&first).await;
        trial = trial.reopen().await;
        trial.finds_waiting(&first).await;
        let applied = trial.fire(&made).await;
        assert_eq!(applied.job.spec, first.spec);
        let second = Job::clone(&applied.beside()[0]);
        trial.finds_waiting(&second).await;
        trial.finds_running(&applied.job).await;
        trial = trial.reopen().await;
        trial.finds_waiting(&second).await;
        trial.finds_running(&applied.job).await;
        let again = trial.tries_again(&applied.job).await;
        trial.order(&again, succeeding(&again)).await;
    }
}

/// A page of occurrences ends at its bytes, as any page does.
pub async fn pages_of_occurrences_end_at_their_bytes(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let mut definition = beat();
    definition.template.payload = Bytes::from(vec![b'x'; 10_000]);
    for _ in 0..5 {
        trial.create(&acme, definition.clone()).await;
    }
    trial.pass(BEAT_MS);
    let mut found: Vec<Position> = Vec::new();
    let mut after = None;
    for _ in 0..5 {
        let question = Due {
            shard: trial.shard(&acme),
            bucket: Bucket::of(trial.now),
            tenant: acme.clone(),
            after,
            until: trial.now,
            count_max: 100,
            bytes_max: 25_000,
        };
        let page = trial.store.due(question).await.expect("read");
        assert!((1..=2).contains(&page.jobs.len()), "{}", page.jobs.len());
        found.extend(page.jobs.iter().map(|job| job.position()));
        after = page.resume;
        if after.is_none() {
            break;
        }
    }
    found.dedup();
    assert_eq!((found.len(), after), (5, None));
}

/// Attempts under way keep what they began with, over a restart and another try; what waits has the new definition.
pub async fn an_edit_leaves_what_runs_alone(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), unusual("old")).await;
    let first = trial.fire(&made).await.job;
    let second = trial.fire(&made).await.job;
    trial.pass(1_000);
    for payload in ["new", "newer"] {
        trial.edit(&made, update(unusual(payload))).await;
        let pending = trial.pending(&made).await.expect("pending");
        assert_eq!(&*pending.spec.payload, payload.as_bytes());
        trial = trial.reopen().await;
        trial.finds_waiting(&pending).await;
        trial.finds_running(&first).await;
        trial.finds_running(&second).await;
    }
    trial.edit(&made, update(beat())).await;
    let first = trial.tries_again(&first).await;
    assert_eq!(&*first.spec.payload, b"old");
    trial.order(&first, succeeding(&first)).await;
    trial.order(&second, failing(&second, Retry::No)).await;
    let trial = trial.reopen().await;
    let dead = trial.get(&second).await.expect("there");
    assert_eq!((dead.status.state, &dead.spec), (JobState::Dead, &second.spec));
}

/// An occurrence that is due when the definition changes is fired as the old one had it.
pub async fn an_edit_leaves_what_is_due_alone(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    for reopens in [false, true] {
        let made = trial.create(&tenant("acme"), carrying("old")).await;
        let due = trial.pending(&made).await.expect("pending");
        trial.now = due.status.due_at;
        let found = walk::due(&*trial.store, &due.tenant, Bucket::of(trial.now), trial.now, 100).await.0;
        assert!(found.contains(&due));
        trial.edit(&made, update(carrying("new"))).await;
        trial.edit(&made, update(unusual("newer"))).await;
        if reopens {
            trial = trial.reopen().await;
        }
        trial.finds_waiting(&due).await;
        let running = trial.claim(&due).await;
        assert_eq!(running.spec, due.spec);
        let next = trial.pending(&made).await.expect("pending");
        assert_eq!(&*next.spec.payload, b"newer");
        trial = trial.reopen().await;
        trial.finds_running(&running).await;
        trial.finds_waiting(&next).await;
    }
}

/// A late one says so when it starts, and all of it is kept.
pub async fn a_late_occurrence_is_kept_as_it_was_started(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), missing(MisfirePolicy::FireLatest)).await;
    trial.pass(BEAT_MS + GRACE_MS + 1);
    let late = trial.fire(&made).await.job;
    assert!(late.spec.occurrence.is_some_and(|occurrence| occurrence.catch_up));
    trial.edit(&made, update(carrying("edited"))).await;
    let mut trial = trial.reopen().await;
    trial.finds_running(&late).await;
    trial.tries_again(&late).await;
}

/// What runs goes on without its schedule, and is none of one that gets its id later.
pub async fn what_runs_outlives_its_schedule(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let new = trial.new_schedule(&acme, unusual("old"));
    let made = trial.create_as(new.clone()).await;
    let running = trial.fire(&made).await.job;
    trial.edit(&made, ScheduleCommand::Delete).await;
    let trial = trial.reopen().await;
    trial.finds_running(&running).await;
    let again = NewSchedule { definition: carrying("another"), ..new };
    let anew = trial.create_as(again).await;
    assert_eq!(&*trial.pending(&anew).await.expect("pending").spec.payload, b"another");
    let mut trial = trial.reopen().await;
    trial.finds_running(&running).await;
    let again = trial.tries_again(&running).await;
    trial.order(&again, succeeding(&again)).await;
}

/// Orders of one batch: the last definition is what waits, and none of them is mistaken for another.
pub async fn edits_of_one_batch_see_each_other(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let made = trial.create(&acme, carrying("old")).await;
    let gone = trial.create(&acme, carrying("gone")).await;
    let running = [trial.fire(&made).await.job, trial.fire(&gone).await.job];
    let new = trial.new_schedule(&acme, carrying("first"));
    let fresh = Schedule::clone(&made);
    let fresh = Schedule { id: new.id, ..fresh };
    let orders = vec![
        creating(new, None),
        ordering(&fresh, update(unusual("second"))),
        ordering(&made, update(carrying("between"))),
        ordering(&gone, update(carrying("never"))),
        ordering(&made, update(unusual("last"))),
        ordering(&made, ScheduleCommand::Trigger),
        ordering(&gone, ScheduleCommand::Delete),
    ];
    let answers = trial.edits(orders).await;
    let triggered = answers[5].as_ref().expect("granted").jobs[0].clone();
    assert!(answers.iter().all(Result::is_ok));
    let past = made.created_at.plus_ms(-BEAT_MS);
    let jobs = vec![backfill_job(&trial.now_of(&made).await, past, trial.now, trial.now).0];
    let backfilled = trial.edit(&made, ScheduleCommand::Backfill(jobs)).await.jobs.remove(0);
    trial.edit(&made, update(carrying("after all"))).await;
    let trial = trial.reopen().await;
    for job in &running {
        trial.finds_running(job).await;
    }
    for job in [&triggered, &backfilled] {
        assert_eq!(&*job.spec.payload, b"last");
        trial.finds_waiting(job).await;
    }
    assert_eq!(trial.find(&gone).await, None);
    let pending =
        async |schedule: &Schedule| trial.pending(schedule).await.expect("pending").spec.payload.clone();
    assert_eq!(&*pending(&fresh).await, b"second");
    assert_eq!(&*pending(&made).await, b"after all");
}

/// An occurrence changed by hand is what it was changed to.
pub async fn a_changed_occurrence_is_kept(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    let waiting = trial.pending(&made).await.expect("pending");
    let urgent = Command::Amend { run_at: None, priority: Some(Priority::Critical) };
    let changed = trial.order(&waiting, urgent).await;
    assert_eq!(changed.spec.priority, Priority::Critical);
    trial.finds_waiting(&changed).await;
    trial.now = changed.status.due_at;
    trial.edit(&made, update(carrying("edited"))).await;
    let mut trial = trial.reopen().await;
    trial.finds_waiting(&changed).await;
    let running = trial.claim(&changed).await;
    trial.edit(&made, update(carrying("edited again"))).await;
    trial = trial.reopen().await;
    trial.finds_running(&running).await;
    trial.tries_again(&running).await;
}

/// Over many pages, with what fires and what edits change, and filters on both.
pub async fn many_schedules_are_listed(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let mut orders = Vec::new();
    for n in 0..MANY {
        let definition = match n % 3 {
            0 => beat(),
            1 => unusual("{}"),
            _ => ruled(|rule| rule.end_at = Some(START.plus_ms(BEAT_MS))),
        };
        orders.push(creating(trial.new_schedule(&acme, definition), None));
    }
    let answers = trial.edits(orders).await;
    let made: Vec<_> = answers.into_iter().map(|made| made.expect("made").schedule).collect();
    trial.create(&globex, beat()).await;
    for schedule in made.iter().take(6) {
        trial.fire(schedule).await;
    }
    trial.edit(&made[7], ScheduleCommand::Pause).await;
    let mut all = Vec::new();
    for schedule in &made {
        all.push(trial.now_of(schedule).await);
    }
    all.sort_by_key(|schedule| schedule.id);
    let trial = trial.reopen().await;
    for count_max in [1_000, 37] {
        let query = |states: &[State], kind: Option<&str>| ScheduleQuery {
            tenant: acme.clone(),
            states: states.to_vec(),
            kind: kind.map(Arc::from),
            calendar: None,
            after: None,
            count_max,
        };
        let list = async |query| walk::schedules(&*trial.store, query).await;
        assert_eq!(list(query(&[], None)).await, all);
        let ended: Vec<_> = all.iter().filter(|schedule| schedule.state == State::Ended).cloned().collect();
        assert_eq!(ended.len(), 2);
        assert_eq!(list(query(&[State::Ended], None)).await, ended);
        assert_eq!(list(query(&[State::Paused], Some("report.make"))).await.len(), 1);
        assert_eq!(list(query(&[], Some("report.make"))).await.len(), MANY / 3);
    }
}
