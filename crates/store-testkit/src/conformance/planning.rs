//! Schedules: creating and deleting them, their names, versions and keys, and lists of them.

use std::sync::Arc;

use jiff::tz::TimeZoneDatabase;
use tidewheel_core::cron::{Cron, Dst, Fold, Gap};
use tidewheel_core::job::{Destination, Priority, State as JobState, Target};
use tidewheel_core::limits::{DAY_MS, MINUTE_MS};
use tidewheel_core::schedule::{
    Definition, Exclude, Misfire, MisfirePolicy, NewSchedule, Overlap, Roll, Rule, State, Template, Timing,
    Zone,
};

use super::beat::{BEAT_MS, beat, creating, dates, faster, ordering, ruled, update};
use super::trial::{START, Trial, claim, succeeding, tenant};
use super::{Home, walk};
use tidewheel_store::{
    IdempotencyClaim, KeyUse, ScheduleCommand, ScheduleOrder, ScheduleQuery, ScheduleRefusal,
};

fn named(mut new: NewSchedule, name: &str) -> NewSchedule {
    new.name = Some(Arc::from(name));
    new
}

/// The schedule and its first occurrence are stored together, and as told.
pub async fn a_schedule_is_stored_with_its_first_occurrence(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let new = trial.new_schedule(&acme, beat());
    let made = trial.try_edit(creating(new.clone(), None)).await.expect("made");
    assert!(made.changed);
    assert_eq!(trial.find(&made.schedule).await.as_ref(), Some(&made.schedule));
    let pending = trial.pending(&made.schedule).await.expect("pending");
    assert_eq!(made.jobs, std::slice::from_ref(&pending));
    assert_eq!(pending.status.due_at, START.plus_ms(BEAT_MS));
    let next = made.schedule.next.expect("it waits");
    assert_eq!((next.fire_at, next.job_id), (START.plus_ms(BEAT_MS), pending.id));
    assert_eq!(trial.waiting().await, [(pending.status.due_at, pending.id)]);
    let again = trial.try_edit(creating(new, None)).await.expect("answered");
    assert!(!again.changed, "the same id again is the same schedule");
    assert_eq!(again.schedule, made.schedule);
    let paused = NewSchedule { paused: true, ..trial.new_schedule(&acme, beat()) };
    let paused = trial.create_as(paused).await;
    assert_eq!((paused.state, trial.pending(&paused).await), (State::Paused, None));
}

fn unusual() -> Definition {
    let zone = Zone::named(&TimeZoneDatabase::bundled(), "America/New_York").expect("a zone");
    let target = Target {
        url: "https://example.com/x?y=1".into(),
        method: "PUT".into(),
        headers: vec![("x-a".into(), "b".into())],
    };
    Definition {
        rule: Arc::new(Rule {
            timing: Timing::Cron(Box::new(Cron::parse("30 2 * * MON-FRI").expect("a cron expression"))),
            zone,
            dst: Dst { gap: Gap::Skip, fold: Fold::Both },
            start_at: Some(START.plus_ms(DAY_MS)),
            end_at: Some(START.plus_ms(400 * DAY_MS)),
            exclude: Exclude {
                dates: dates(&["2027-01-20", "2027-12-24"]),
                calendar: None,
                roll: Roll::NextBusinessDay,
            },
        }),
        window_ms: 30_000,
        misfire: Misfire { policy: MisfirePolicy::FireAll { cap: 3 }, grace_ms: 5_000 },
        overlap: Overlap::CancelRunning,
        template: Template {
            payload: bytes::Bytes::from(vec![0, 255, 10, 0]),
            destination: Destination::Target(Arc::new(target)),
            priority: Priority::Critical,
            timeout_ms: 77,
            labels: vec![("größe".into(), "XL".into())],
            ..beat().template
        },
        idempotency_key: Some(Arc::from("report")),
        note: Some("every working night".into()),
    }
}

/// Also over a reopening.
pub async fn every_field_of_a_schedule_survives(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let new = named(trial.new_schedule(&acme, unusual()), "nightly/report");
    let made = trial.create_as(new).await;
    let empty =
        Definition { template: Template { payload: bytes::Bytes::new(), ..beat().template }, ..beat() };
    let bare = trial.create(&acme, empty).await;
    let fired = trial.fire(&made).await.job;
    let (made, job) = (trial.now_of(&made).await, trial.pending(&made).await);
    assert_eq!(*made.active, [fired.id]);
    let rules = made.definition.rule.zone.rules().clone();
    for _ in 0..2 {
        trial = trial.reopen().await;
        let found = trial.now_of(&made).await;
        assert_eq!(found, made);
        assert_eq!(found.definition.rule.zone.rules(), &rules, "the zone has its rules again");
        assert_eq!(trial.now_of(&bare).await, bare);
        assert_eq!(trial.pending(&made).await, job);
        trial.holds(&fired).await;
        assert_eq!(trial.store.find_schedule(&acme, "nightly/report").await.expect("read"), Some(made.id));
    }
}

/// A duplicate gets the first schedule, a different request is refused; a key ends with its time or its schedule.
pub async fn creation_keys_point_at_their_schedule(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let new = trial.new_schedule(&acme, beat());
    let first = trial.try_edit(creating(new, Some(claim("k", 1)))).await.expect("made").schedule;
    let repeat = trial.new_schedule(&acme, beat());
    let different = trial.new_schedule(&acme, faster());
    let elsewhere = trial.new_schedule(&globex, faster());
    let answers = trial
        .edits(vec![
            creating(repeat.clone(), Some(claim("k", 1))),
            creating(different.clone(), Some(claim("k", 2))),
            creating(elsewhere, Some(claim("k", 2))),
        ])
        .await;
    let duplicate = answers[0].as_ref().expect("a duplicate is answered");
    assert_eq!((duplicate.schedule.clone(), duplicate.changed), (first.clone(), false));
    assert_eq!(answers[1].as_ref().err(), Some(&ScheduleRefusal::KeyConflict(KeyUse::NewSchedule(first.id))));
    assert!(answers[2].as_ref().is_ok_and(|made| made.changed), "keys belong to their tenant");
    assert_eq!(trial.store.count_schedules(&acme).await.expect("counted"), 1);
    let mut trial = trial.reopen().await;
    let answer = trial.try_edit(creating(different.clone(), Some(claim("k", 2)))).await;
    assert_eq!(answer.err(), Some(ScheduleRefusal::KeyConflict(KeyUse::NewSchedule(first.id))));
    trial.edit(&first, ScheduleCommand::Delete).await;
    let second = trial.try_edit(creating(different, Some(claim("k", 2)))).await.expect("made");
    assert!(second.changed, "the key went with its schedule");
    trial.pass(MINUTE_MS);
    let third = trial.try_edit(creating(repeat, Some(claim("k", 1)))).await.expect("made");
    assert!(third.changed, "its time is over");
}

/// Also when the old one would still have had time left, on whatever day.
pub async fn a_key_given_anew_points_at_the_new_schedule(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let days = [1, 5, 3];
    for (request, until_days) in (1..).zip(days) {
        let new = trial.new_schedule(&acme, beat());
        let claim = IdempotencyClaim { until: START.plus_ms(until_days * DAY_MS), ..claim("k", request) };
        let order = creating(new, Some(claim));
        let made = trial.try_edit(order.clone()).await.expect("made").schedule;
        trial = trial.reopen().await;
        let again = ScheduleOrder { id: trial.schedule_id(), ..order };
        let again = trial.try_edit(again).await.expect("answered");
        assert_eq!((again.changed, again.schedule.id), (false, made.id), "until day {until_days}");
        trial.edit(&made, ScheduleCommand::Delete).await;
    }
    assert_eq!(trial.store.count_schedules(&acme).await.expect("counted"), 0);
}

/// Names are free again after a deletion or a change of name, within a batch too.
pub async fn a_name_belongs_to_one_schedule(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let new = named(trial.new_schedule(&acme, beat()), "report");
    let first = trial.create_as(new).await;
    let again = named(trial.new_schedule(&acme, beat()), "report");
    let answer = trial.try_edit(creating(again.clone(), None)).await;
    assert_eq!(answer.err(), Some(ScheduleRefusal::NameTaken(first.id)));
    let elsewhere = named(trial.new_schedule(&globex, beat()), "report");
    let elsewhere = trial.create_as(elsewhere).await;
    let rename = |name: &str| ScheduleCommand::Update {
        definition: Box::new(beat()),
        name: Some(Arc::from(name)),
        paused: None,
    };
    let renamed = trial.edit(&first, rename("summary")).await.schedule;
    assert_eq!(renamed.version, first.version + 1, "another name is an edit");
    let second = trial.create_as(again).await;
    let answer = trial.try_edit(ordering(&second, rename("summary"))).await;
    assert_eq!(answer.err(), Some(ScheduleRefusal::NameTaken(first.id)));
    // Two swap their names through a third one.
    let orders = vec![
        ordering(&first, rename("x")),
        ordering(&second, rename("summary")),
        ordering(&first, rename("report")),
    ];
    assert!(trial.edits(orders).await.iter().all(Result::is_ok));
    let trial = trial.reopen().await;
    let find = async |tenant, name| trial.store.find_schedule(tenant, name).await.expect("read");
    assert_eq!(find(&acme, "report").await, Some(first.id));
    assert_eq!(find(&acme, "summary").await, Some(second.id));
    assert_eq!(find(&acme, "x").await, None);
    assert_eq!(find(&globex, "report").await, Some(elsewhere.id));
    let nameless = trial.edit(&second, update(beat())).await.schedule;
    assert_eq!((nameless.name, find(&acme, "summary").await), (None, None));
    trial.edit(&first, ScheduleCommand::Delete).await;
    assert_eq!(find(&acme, "report").await, None);
    assert_eq!(find(&globex, "report").await, Some(elsewhere.id));
}

/// Versions rise with edits and not with fires; an edit for another version is refused.
pub async fn a_version_guards_an_edit(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let made = trial.create(&tenant("acme"), beat()).await;
    assert_eq!(made.version, 1);
    trial.fire(&made).await;
    assert_eq!(trial.now_of(&made).await.version, 1);
    let guarded = |version, command| ScheduleOrder { if_version: Some(version), ..ordering(&made, command) };
    let edited = trial.try_edit(guarded(1, update(faster()))).await.expect("granted").schedule;
    assert_eq!(edited.version, 2);
    let commands = [
        update(beat()),
        ScheduleCommand::Pause,
        ScheduleCommand::Resume,
        ScheduleCommand::Delete,
        ScheduleCommand::Trigger,
    ];
    for command in commands {
        let answer = trial.try_edit(guarded(1, command)).await;
        assert_eq!(answer.err(), Some(ScheduleRefusal::StaleVersion { current: 2 }));
    }
    assert_eq!(trial.now_of(&made).await, edited);
    let same = trial.try_edit(guarded(2, update(faster()))).await.expect("granted");
    assert_eq!((same.changed, same.schedule), (false, edited));
    trial.try_edit(guarded(2, ScheduleCommand::Delete)).await.expect("granted");
}

/// What is not there, or another tenant's, or names what is not there, is refused and leaves no trace.
pub async fn refused_edits_leave_no_trace(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let made = trial.create(&acme, beat()).await;
    let foreign = ScheduleOrder { tenant: globex.clone(), ..ordering(&made, ScheduleCommand::Delete) };
    let lost = ScheduleOrder { id: trial.schedule_id(), ..ordering(&made, ScheduleCommand::Pause) };
    let strange = ruled(|rule| rule.exclude.calendar = Some(Arc::from("holidays")));
    let new = trial.new_schedule(&acme, strange.clone());
    let orders = vec![
        foreign,
        lost,
        ordering(&made, update(strange)),
        creating(new, None),
        ordering(&made, ScheduleCommand::Resume),
    ];
    let answers = trial.edits(orders).await;
    assert_eq!(answers[0].as_ref().err(), Some(&ScheduleRefusal::NotFound));
    assert_eq!(answers[1].as_ref().err(), Some(&ScheduleRefusal::NotFound));
    for answer in &answers[2..4] {
        assert_eq!(answer.as_ref().err(), Some(&ScheduleRefusal::NoCalendar(Arc::from("holidays"))));
    }
    assert!(answers[4].as_ref().is_ok_and(|edited| !edited.changed), "it was not paused");
    assert_eq!(trial.now_of(&made).await, made);
    assert_eq!(trial.store.schedules(&globex, vec![made.id]).await.expect("read"), [None]);
    assert_eq!(trial.waiting().await.len(), 1);
    assert_eq!(trial.store.count_schedules(&acme).await.expect("counted"), 1);
}

/// Its occurrence, name and ledger go with it; what has started goes on.
pub async fn a_deleted_schedule_is_gone(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let acme = tenant("acme");
    let new = named(trial.new_schedule(&acme, beat()), "report");
    let made = trial.create_as(new.clone()).await;
    let other = trial.create(&acme, beat()).await;
    let running = trial.fire(&made).await.job;
    let waited = trial.pending(&made).await.expect("pending");
    let edited = trial.edit(&made, ScheduleCommand::Delete).await;
    assert_eq!(edited.schedule.id, made.id);
    let told: Vec<_> = edited.jobs.iter().map(|job| (job.id, job.status.state)).collect();
    assert_eq!(told, [(waited.id, JobState::Cancelled)]);
    let trial = trial.reopen().await;
    assert_eq!(trial.find(&made).await, None);
    assert_eq!(trial.get(&waited).await, None);
    assert_eq!(trial.ledger_of(&made).await, []);
    assert_eq!(trial.store.find_schedule(&acme, "report").await.expect("read"), None);
    assert_eq!(trial.store.count_schedules(&acme).await.expect("counted"), 1);
    let answer = trial.try_edit(ordering(&made, ScheduleCommand::Resume)).await;
    assert_eq!(answer.err(), Some(ScheduleRefusal::NotFound));
    trial.order(&running, succeeding(&running)).await;
    assert!(trial.pending(&other).await.is_some());
    // A schedule with the same id later is another: it has nothing of the old one's ledger.
    let anew = trial.create_as(new).await;
    assert_eq!(trial.ledger_of(&anew).await, []);
}

/// By id, page by page, with filters, per tenant; counts and tenants agree.
pub async fn schedules_are_listed_and_counted(home: &dyn Home) {
    let mut trial = Trial::start(home).await;
    let (acme, globex, nobody) = (tenant("acme"), tenant("globex"), tenant("nobody"));
    trial.store.put_calendar(&acme, "holidays", Some(dates(&["2027-12-25"]))).await.expect("stored");
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(trial.create(&acme, beat()).await);
    }
    let mut mail = beat();
    mail.template.kind = Arc::from("report");
    all.push(trial.create(&acme, mail).await);
    let dated = trial.create(&acme, ruled(|rule| rule.exclude.calendar = Some(Arc::from("holidays")))).await;
    all.push(dated.clone());
    let ending = trial.create(&acme, ruled(|rule| rule.end_at = Some(START.plus_ms(BEAT_MS)))).await;
    all.push(trial.edit(&all[0], ScheduleCommand::Pause).await.schedule);
    all.remove(0);
    let theirs = trial.create(&globex, beat()).await;
    let fleeting = trial.create(&nobody, beat()).await;
    trial.edit(&fleeting, ScheduleCommand::Delete).await;
    trial.fire(&ending).await;
    all.push(trial.now_of(&ending).await);
    all.sort_by_key(|schedule| schedule.id);
    let trial = trial.reopen().await;
    let query = |states: &[State], kind: Option<&str>, calendar: Option<&str>| ScheduleQuery {
        tenant: acme.clone(),
        states: states.to_vec(),
        kind: kind.map(Arc::from),
        calendar: calendar.map(Arc::from),
        after: None,
        count_max: 2,
    };
    let list = async |query| walk::schedules(&*trial.store, query).await;
    assert_eq!(list(query(&[], None, None)).await, all);
    assert_eq!(list(query(&[], None, Some("holidays"))).await, [dated]);
    assert_eq!(list(query(&[], Some("report"), None)).await.len(), 1);
    assert_eq!(list(query(&[State::Paused], None, None)).await.len(), 1);
    assert_eq!(list(query(&[State::Ended], None, None)).await, [trial.now_of(&ending).await]);
    assert_eq!(list(query(&[State::Active, State::Paused], None, None)).await.len(), 7);
    assert_eq!(list(ScheduleQuery { tenant: globex.clone(), ..query(&[], None, None) }).await, [theirs]);
    let count = async |tenant| trial.store.count_schedules(tenant).await.expect("counted");
    assert_eq!((count(&acme).await, count(&globex).await, count(&nobody).await), (8, 1, 0));
    let tenants = async |after| trial.store.schedule_tenants(after, 1).await.expect("read");
    assert_eq!(tenants(None).await, std::slice::from_ref(&acme));
    assert_eq!(tenants(Some(acme.clone())).await, std::slice::from_ref(&globex));
    assert_eq!(tenants(Some(globex)).await, []);
}
