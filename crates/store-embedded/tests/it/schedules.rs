//! Schedules where the contract ends: zones the time zone database does not have, lost records, failing reads.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::cron::Dst;
use tidewheel_core::job::{Command, Destination, Finding, Job, Priority, Rejection, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::retry::RetryPolicy;
use tidewheel_core::schedule::{
    Definition, Exclude, Misfire, NewSchedule, Overlap, Rule, Schedule, ScheduleId, Template, Timing,
    occurrence_id,
};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_store::{
    Applied, Edited, Error, Order, Refusal, ScheduleCommand, ScheduleOrder, ScheduleQuery, ScheduleRefusal,
    Schedules, Store,
};
use tidewheel_store_embedded::faulty::FaultyKv;
use tidewheel_store_embedded::kv::{Batch, Direction, Durability, Keyspace, Kv};
use tidewheel_store_embedded::{EmbeddedStore, Options};

const START: Timestamp = Timestamp::from_ms(1_800_000_000_000);
const MINUTE_MS: i64 = 60_000;
const BEAT_MS: i64 = 10 * MINUTE_MS;

fn open(kv: &Arc<FaultyKv>, zones: Option<Zones>) -> EmbeddedStore {
    let options = Options { zones, ..Options::new("memory") };
    EmbeddedStore::open_on(Arc::clone(kv) as Arc<dyn Kv>, options).unwrap()
}

/// What a crash leaves, opened again.
fn reopen(kv: &Arc<FaultyKv>, zones: Option<Zones>) -> (Arc<FaultyKv>, EmbeddedStore) {
    let kv = Arc::new(FaultyKv::reopen(kv.image()));
    let store = open(&kv, zones);
    (kv, store)
}

fn creating(n: u8, zone: &str) -> ScheduleOrder {
    let (tenant, id) = (Tenant::default(), ScheduleId::from_bytes([n; 16]));
    let definition = Definition {
        rule: Arc::new(Rule {
            timing: Timing::Every { interval_ms: BEAT_MS, anchor: START },
            zone: Zones::bundled().zone(zone).unwrap(),
            dst: Dst::default(),
            start_at: None,
            end_at: None,
            exclude: Exclude::default(),
        }),
        window_ms: 0,
        misfire: Misfire::default(),
        overlap: Overlap::Skip,
        template: Template {
            kind: "report".into(),
            payload: Bytes::from_static(b"{}"),
            destination: Destination::Queue("reports".into()),
            priority: Priority::Normal,
            retry: RetryPolicy::default(),
            timeout_ms: 1_000,
            labels: Vec::new(),
        },
        idempotency_key: None,
        note: None,
    };
    let new = NewSchedule { id, tenant: tenant.clone(), name: None, definition, paused: false };
    let command = ScheduleCommand::Create { new: Box::new(new), fresh: false };
    ScheduleOrder { tenant, id, if_version: None, command, key: None }
}

async fn edit(
    store: &EmbeddedStore,
    now: Timestamp,
    order: ScheduleOrder,
) -> Result<Edited, ScheduleRefusal> {
    store.edit_schedules(now, vec![order]).await.unwrap().remove(0)
}

fn ordering(schedule: &Schedule, command: ScheduleCommand) -> ScheduleOrder {
    ScheduleOrder { tenant: schedule.tenant.clone(), id: schedule.id, if_version: None, command, key: None }
}

async fn apply(
    store: &EmbeddedStore,
    now: Timestamp,
    job: &Job,
    command: Command,
) -> Result<Applied, Refusal> {
    let order = Order { tenant: job.tenant.clone(), id: job.id, command, key: None };
    store.apply(now, None, vec![order]).await.unwrap().remove(0)
}

fn claim() -> Command {
    Command::Claim { epoch: 1, worker: "worker".into(), lease_ms: MINUTE_MS, detached: false }
}

async fn job(store: &EmbeddedStore, job: &Job) -> Option<Job> {
    store.get(&job.tenant, vec![job.id]).await.unwrap().remove(0)
}

async fn pending(store: &EmbeddedStore, schedule: &Schedule) -> Option<Job> {
    let found = store.schedules(&schedule.tenant, vec![schedule.id]).await.unwrap().remove(0)?;
    store.get(&schedule.tenant, vec![found.next?.job_id]).await.unwrap().remove(0)
}

#[tokio::test]
async fn a_schedule_in_an_unknown_zone_harms_no_other() {
    let kv = Arc::new(FaultyKv::default());
    let store = open(&kv, None);
    let there = edit(&store, START, creating(1, "UTC")).await.unwrap();
    let lost = edit(&store, START, creating(2, "Europe/Berlin")).await.unwrap();
    let now = START.plus_ms(BEAT_MS);
    let running = apply(&store, now, &lost.jobs[0], claim()).await.unwrap();
    let waiting = running.beside()[0].clone();

    let (kv, store) = reopen(&kv, Some(Zones::none()));
    let now = waiting.status.due_at;
    let answers = store.schedules(&lost.schedule.tenant, vec![lost.schedule.id]).await;
    assert!(
        matches!(&answers, Err(Error::Corrupt(reason)) if reason.contains("Europe/Berlin")),
        "{answers:?}"
    );
    let answer = edit(&store, now, ordering(&lost.schedule, ScheduleCommand::Pause)).await;
    assert!(matches!(answer, Err(ScheduleRefusal::Unreadable(reason)) if reason.contains("Europe/Berlin")));
    let query = ScheduleQuery {
        tenant: Tenant::default(),
        states: Vec::new(),
        kind: None,
        calendar: None,
        after: None,
        count_max: 10,
    };
    let listed = store.list_schedules(query).await.unwrap();
    assert_eq!(listed.schedules.iter().map(|schedule| schedule.id).collect::<Vec<_>>(), [there.schedule.id]);

    // Claimed together: the one runs, the other is put off.
    let orders = [&there.jobs[0], &waiting];
    let orders = orders
        .map(|job| Order { tenant: job.tenant.clone(), id: job.id, command: claim(), key: None })
        .to_vec();
    let answers = store.apply(now, None, orders).await.unwrap();
    assert!(answers[0].as_ref().is_ok_and(|applied| applied.beside().len() == 1));
    assert_eq!(answers[1].as_ref().err(), Some(&Refusal::Rejected(Rejection::NotDue)));
    let put_off = job(&store, &waiting).await.unwrap();
    assert_eq!(put_off.status.due_at, now.plus_ms(MINUTE_MS));
    let token = running.job.status.token;
    let done =
        apply(&store, now, &running.job, Command::Succeed { token, finding: Finding::default() }).await;
    assert!(done.is_ok_and(|done| done.job.status.state == State::Succeeded), "what runs can end");

    let (_, store) = reopen(&kv, None);
    let fired = apply(&store, put_off.status.due_at, &put_off, claim()).await.unwrap();
    assert_eq!((fired.job.status.state, fired.beside().len()), (State::Running, 1));
}

#[tokio::test]
async fn an_occurrence_is_asked_for_by_calls_beside_the_one_that_stores_it() {
    let store = open(&Arc::new(FaultyKv::default()), None);
    let mut made = Vec::new();
    for n in 1..=3 {
        made.push(edit(&store, START, creating(n, "UTC")).await.unwrap());
    }
    let (now, second_at) = (START.plus_ms(BEAT_MS), START.plus_ms(2 * BEAT_MS));
    let second = |made: &Edited| Job {
        id: occurrence_id(made.schedule.id, second_at, second_at),
        ..made.jobs[0].clone()
    };
    let (of_one, of_two) = (second(&made[1]), second(&made[2]));
    // The first is being written while the others gather, so that these share a group or stand in two behind each other.
    let (_, one, two, cancelled, taken) = tokio::join!(
        biased;
        apply(&store, now, &made[0].jobs[0], claim()),
        apply(&store, now, &made[1].jobs[0], claim()),
        apply(&store, now, &made[2].jobs[0], claim()),
        apply(&store, now, &of_one, Command::Cancel),
        apply(&store, now, &of_two, Command::RunNow),
    );
    for claimed in [one, two] {
        assert_eq!(claimed.unwrap().beside().len(), 1);
    }
    assert_eq!(cancelled.unwrap().job.status.state, State::Cancelled);
    let taken = taken.unwrap().job;
    assert_eq!(
        (taken.status.state, taken.status.due_at, taken.spec.occurrence.unwrap().fire_at),
        (State::Scheduled, now, second_at)
    );
    assert_eq!(job(&store, &taken).await.as_ref(), Some(&*taken));
    assert_eq!(pending(&store, &made[1].schedule).await.unwrap().status.due_at, START.plus_ms(3 * BEAT_MS));
}

#[tokio::test]
async fn a_chain_that_broke_while_its_zone_was_unknown_is_mended() {
    let kv = Arc::new(FaultyKv::default());
    let store = open(&kv, None);
    let made = edit(&store, START, creating(1, "Europe/Berlin")).await.unwrap();
    let (kv, store) = reopen(&kv, Some(Zones::none()));
    let cancelled = apply(&store, START, &made.jobs[0], Command::Cancel).await.unwrap();
    assert_eq!(cancelled.beside(), []);
    let (_, store) = reopen(&kv, None);
    let mended = edit(&store, START, ordering(&made.schedule, ScheduleCommand::Rearm { set_back_ms: 0 }))
        .await
        .unwrap();
    assert!(mended.changed);
    let next = pending(&store, &made.schedule).await.unwrap();
    assert_eq!(mended.jobs, std::slice::from_ref(&next));
    assert_eq!(next.status.due_at, START.plus_ms(2 * BEAT_MS));
    assert_eq!(store.ledger(&next.tenant, made.schedule.id, None, 10).await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn a_lost_occurrence_is_stored_again() {
    let kv = Arc::new(FaultyKv::default());
    let store = open(&kv, None);
    let made = edit(&store, START, creating(1, "Europe/Berlin")).await.unwrap();
    store.close().await.unwrap();
    let mut lost = Batch::default();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut visit = |key: &[u8], _: &[u8]| {
        lost.delete(Keyspace::Waiting, key.to_vec());
        ControlFlow::Continue(())
    };
    kv.snapshot().scan(Keyspace::Waiting, all, Direction::Up, &mut visit).unwrap();
    assert_eq!(lost.0.len(), 1);
    kv.commit(lost, Durability::Synced).unwrap();

    let (_, store) = reopen(&kv, None);
    assert_eq!(pending(&store, &made.schedule).await, None);
    let now = START.plus_ms(MINUTE_MS);
    let mended =
        edit(&store, now, ordering(&made.schedule, ScheduleCommand::Rearm { set_back_ms: 0 })).await.unwrap();
    assert!(mended.changed);
    let again = pending(&store, &made.schedule).await.unwrap();
    assert_eq!((again.id, again.status.due_at), (made.jobs[0].id, START.plus_ms(BEAT_MS)));
}

#[tokio::test]
async fn an_edit_whose_reads_fail_changes_nothing() {
    let kv = Arc::new(FaultyKv::default());
    let store = open(&kv, None);
    let made = edit(&store, START, creating(1, "UTC")).await.unwrap();
    let (kv, store) = reopen(&kv, None);
    kv.set_reads_fail(true);
    let orders = vec![ordering(&made.schedule, ScheduleCommand::Delete), creating(2, "UTC")];
    let failed = store.edit_schedules(START, orders).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    kv.set_reads_fail(false);
    assert!(pending(&store, &made.schedule).await.is_some());
    assert_eq!(store.count_schedules(&Tenant::default()).await.unwrap(), 1);
    edit(&store, START, ordering(&made.schedule, ScheduleCommand::Delete)).await.unwrap();
    assert_eq!(store.count_schedules(&Tenant::default()).await.unwrap(), 0);
}

/// The sizes of what is stored of waiting jobs and attempts under way, smallest first.
fn waiting_bytes(kv: &FaultyKv) -> Vec<usize> {
    let mut sizes = Vec::new();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut visit = |_: &[u8], value: &[u8]| {
        sizes.push(value.len());
        ControlFlow::Continue(())
    };
    kv.snapshot().scan(Keyspace::Waiting, all, Direction::Up, &mut visit).unwrap();
    sizes.sort_unstable();
    sizes
}

fn carrying(made: &Schedule, payload: &'static [u8]) -> ScheduleOrder {
    let mut definition = Definition::clone(&made.definition);
    definition.template.payload = Bytes::from_static(payload);
    ordering(made, ScheduleCommand::Update { definition: Box::new(definition), name: None, paused: None })
}

const LEAN_BYTES_MAX: usize = 32;
const PAYLOAD: &[u8] = b"a payload that is longer than a lean record is, in all";

async fn assert_runs(store: &EmbeddedStore, job: &Job) {
    assert_eq!(store.running().await.unwrap(), [job.without_payload()]);
    assert_eq!(store.get(&job.tenant, vec![job.id]).await.unwrap(), [Some(job.clone())]);
}

#[tokio::test]
async fn what_runs_keeps_what_it_asked_for_over_edits_and_crashes() {
    let kv = Arc::new(FaultyKv::default());
    let store = open(&kv, None);
    let mut order = creating(1, "Europe/Berlin");
    if let ScheduleCommand::Create { new, .. } = &mut order.command {
        new.definition.template.payload = Bytes::from_static(PAYLOAD);
    }
    let made = edit(&store, START, order).await.unwrap();
    assert!(waiting_bytes(&kv).iter().all(|size| *size <= LEAN_BYTES_MAX), "{:?}", waiting_bytes(&kv));
    let now = START.plus_ms(BEAT_MS);
    let running = apply(&store, now, &made.jobs[0], claim()).await.unwrap().job;
    let (kv, store) = reopen(&kv, None);
    assert!(waiting_bytes(&kv).iter().all(|size| *size <= LEAN_BYTES_MAX), "{:?}", waiting_bytes(&kv));
    assert_runs(&store, &running).await;

    edit(&store, now.plus_ms(1), carrying(&made.schedule, b"edited")).await.unwrap();
    let (kv, store) = reopen(&kv, None);
    let sizes = waiting_bytes(&kv);
    assert!(sizes.len() == 2 && sizes[0] <= LEAN_BYTES_MAX && sizes[1] > PAYLOAD.len(), "{sizes:?}");
    assert_runs(&store, &running).await;
    assert_eq!(&*pending(&store, &made.schedule).await.unwrap().spec.payload, b"edited");

    let lost = Command::Lost { token: running.status.token };
    let retrying = apply(&store, now.plus_ms(2), &running, lost).await.unwrap().job;
    let (kv, store) = reopen(&kv, None);
    let again =
        apply(&store, retrying.status.due_at.max(now.plus_ms(2)), &retrying, claim()).await.unwrap().job;
    assert_eq!((again.status.attempt, &again.spec), (2, &running.spec));
    edit(&store, now.plus_ms(3), ordering(&made.schedule, ScheduleCommand::Delete)).await.unwrap();
    let (_, store) = reopen(&kv, None);
    assert_runs(&store, &again).await;
}

/// Puts this in place of a job's record in `waiting`; gives what was there.
fn replace_record(kv: &FaultyKv, job: &Job, record: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut visit = |key: &[u8], value: &[u8]| {
        if key.ends_with(job.id.as_bytes()) {
            found.push((key.to_vec(), value.to_vec()));
        }
        ControlFlow::Continue(())
    };
    kv.snapshot().scan(Keyspace::Waiting, all, Direction::Up, &mut visit).unwrap();
    assert_eq!(found.len(), 1);
    let (key, before) = found.remove(0);
    let mut batch = Batch::default();
    batch.put(Keyspace::Waiting, key, record.to_vec());
    kv.commit(batch, Durability::Synced).unwrap();
    before
}

#[tokio::test]
async fn an_occurrence_that_goes_by_an_unreadable_job_is_refused_alone_and_without_a_trace() {
    let kv = Arc::new(FaultyKv::default());
    let store = open(&kv, None);
    let stuck = edit(&store, START, creating(1, "UTC")).await.unwrap();
    let other = edit(&store, START, creating(2, "UTC")).await.unwrap();
    let running = apply(&store, START.plus_ms(BEAT_MS), &stuck.jobs[0], claim()).await.unwrap();
    let next = running.beside()[0].clone();
    // Opened again, it has payloads of what runs on disk alone.
    let (kv, store) = reopen(&kv, None);
    let record = replace_record(&kv, &running.job, &[9, 0, 0]);

    let as_stored = async || {
        let schedule = store.schedules(&next.tenant, vec![stuck.schedule.id]).await.unwrap().remove(0);
        let ledger = store.ledger(&next.tenant, stuck.schedule.id, None, 10).await.unwrap();
        (schedule.unwrap(), ledger.entries, job(&store, &next).await.unwrap())
    };
    let before = as_stored().await;
    let now = next.status.due_at;
    let orders = [&*next, &other.jobs[0]].map(|job| Order {
        tenant: job.tenant.clone(),
        id: job.id,
        command: claim(),
        key: None,
    });
    let answers = store.apply(now, None, orders.to_vec()).await.unwrap();
    assert_eq!(answers[0].as_ref().err(), Some(&Refusal::Unreadable));
    assert!(answers[1].as_ref().is_ok_and(|applied| applied.beside().len() == 1));
    assert_eq!(as_stored().await, before);
    let orders = [&other.schedule, &stuck.schedule, &other.schedule];
    let orders = orders.into_iter().zip([&b"once"[..], b"edited", b"twice"]);
    let orders = orders.map(|(schedule, payload)| carrying(schedule, payload)).collect();
    let edited = store.edit_schedules(now, orders).await.unwrap();
    let name = running.job.id.to_string();
    assert!(
        matches!(&edited[1], Err(ScheduleRefusal::Unreadable(reason)) if reason.contains(&name)),
        "{edited:?}"
    );
    for n in [0, 2] {
        assert!(edited[n].as_ref().is_ok_and(|edited| edited.changed), "{edited:?}");
    }
    assert_eq!(as_stored().await, before);

    replace_record(&kv, &running.job, &record);
    let skipped = apply(&store, now, &next, claim()).await.unwrap();
    assert_eq!(skipped.job.status.state, State::Skipped, "the run before it is not over");
}

#[tokio::test]
async fn an_occurrence_whose_schedule_is_damaged_is_refused_by_name() {
    let kv = Arc::new(FaultyKv::default());
    let store = open(&kv, None);
    let made = edit(&store, START, creating(1, "UTC")).await.unwrap();
    store.close().await.unwrap();
    let key = [made.schedule.tenant.as_str().as_bytes(), &[0], made.schedule.id.as_bytes()].concat();
    for (record, named) in [(Some(vec![1, 0, 0]), "version 1"), (None, "missing")] {
        let mut batch = Batch::default();
        match record {
            Some(record) => batch.put(Keyspace::Schedules, key.clone(), record),
            None => batch.delete(Keyspace::Schedules, key.clone()),
        }
        kv.commit(batch, Durability::Synced).unwrap();
        let (_, store) = reopen(&kv, None);
        let read = store.get(&made.schedule.tenant, vec![made.jobs[0].id]).await;
        assert!(matches!(&read, Err(Error::Corrupt(reason)) if reason.contains(named)), "{read:?}");
    }
}
