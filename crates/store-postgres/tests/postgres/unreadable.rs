//! Jobs whose rows cannot be read: they are passed over, their own orders are refused, and nobody else's.

use std::sync::Arc;

use tidewheel_core::cron::Dst;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Finding, Job, Spec, State};
use tidewheel_core::limits::{DAY_MS, HOUR_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::schedule::{
    Definition, Exclude, Misfire, NewSchedule, Overlap, Rule, ScheduleId, Template, Timing, Zone,
};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Due, Edited, Error, Filter, IdempotencyClaim, ListQuery, OnConflict, Order, Refusal, ScheduleCommand,
    ScheduleOrder, ScheduleRefusal, Schedules, Store, Submission,
};
use tidewheel_store_postgres::{Options, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::database;
use crate::specs::queued;

const START: Timestamp = Timestamp::from_ms(3_000_000 * 600_000);
/// Later than all jobs are due, and in the same bucket.
const NOW: Timestamp = Timestamp::from_ms(3_000_000 * 600_000 + 60_000);
/// More pages than there are jobs in any test.
const PAGES_COUNT_MAX: usize = 30;

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn job(ms: i64) -> Job {
    Job::new(acme(), queued(START), START.plus_ms(ms), 7)
}

/// So many jobs that wait, a second apart.
async fn submitted(options: &Options, count: i64) -> (PostgresStore, Client, Vec<Job>) {
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let jobs: Vec<Job> = (0..count).map(|n| job(n * 1_000)).collect();
    let each = jobs.iter().map(|job| Submission { job: job.clone(), key: None, fresh: true });
    store.submit(START, each.collect(), OnConflict::KeepNone).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {}", options.schema)).await.unwrap();
    (store, client, jobs)
}

fn hex(id: JobId) -> String {
    id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes what was asked of a job unreadable; gives what was there.
async fn damage_spec(client: &Client, job: &Job) -> Vec<u8> {
    let read = "SELECT spec FROM jobs WHERE id = $1::text::uuid";
    let before = client.query_one(read, &[&hex(job.id)]).await.unwrap().get(0);
    set_spec(client, job, &[9]).await;
    before
}

async fn set_spec(client: &Client, job: &Job, spec: &[u8]) {
    let write = "UPDATE jobs SET spec = $2 WHERE id = $1::text::uuid";
    assert_eq!(client.execute(write, &[&hex(job.id), &spec]).await.unwrap(), 1);
}

/// Makes it unreadable where a job stands.
async fn damage_status(client: &Client, job: &Job) {
    let write = "UPDATE events SET status = '\\x00' WHERE id = $1::text::uuid";
    assert!(client.execute(write, &[&hex(job.id)]).await.unwrap() > 0);
}

fn order(job: &Job, command: Command) -> Order {
    Order { tenant: job.tenant.clone(), id: job.id, command, key: None }
}

fn claim(job: &Job) -> Order {
    order(job, Command::Claim { epoch: 1, worker: Arc::from("w"), lease_ms: HOUR_MS, detached: false })
}

fn success(job: &Job) -> Order {
    order(job, Command::Succeed { token: job.status.token, finding: Finding::default() })
}

async fn start(store: &PostgresStore, jobs: &[Job]) -> Vec<Job> {
    let answers = store.apply(NOW, None, jobs.iter().map(claim).collect()).await.unwrap();
    answers.into_iter().map(|answer| Job::clone(&answer.unwrap().job)).collect()
}

/// What became of each order: the state its job is in now, or why it was refused.
async fn apply(store: &PostgresStore, orders: Vec<Order>) -> Vec<Result<State, Refusal>> {
    let answers = store.apply(NOW, None, orders).await.unwrap();
    answers.into_iter().map(|answer| answer.map(|applied| applied.job.status.state)).collect()
}

/// Reads all that is due, page by page: the jobs, and how many could not be read.
async fn due(store: &PostgresStore, count_max: usize, bytes_max: usize) -> (Vec<JobId>, usize) {
    let (mut ids, mut unread, mut after) = (Vec::new(), 0, None);
    for _ in 0..PAGES_COUNT_MAX {
        let due = Due {
            shard: Shard::of(&acme(), 8),
            bucket: Bucket::of(START),
            tenant: acme(),
            after,
            until: Timestamp::MAX,
            count_max,
            bytes_max,
        };
        let page = store.due(due).await.unwrap();
        assert!(page.jobs.len() + page.unread <= count_max);
        ids.extend(page.jobs.iter().map(|job| job.id));
        unread += page.unread;
        let Some(resume) = page.resume else { return (ids, unread) };
        assert!(after.is_none_or(|before| before < resume), "every page moves on");
        after = Some(resume);
    }
    panic!("the pages do not end");
}

/// Pages that end by their number of jobs, by their bytes, and not at all.
const PAGES: [(usize, usize); 4] = [(1, usize::MAX), (2, usize::MAX), (5, 1), (1_000, usize::MAX)];

#[tokio::test]
async fn an_unreadable_attempt_keeps_no_shard_from_being_gained() {
    let options = database::fresh();
    let (store, client, jobs) = submitted(&options, 3).await;
    let running = start(&store, &jobs).await;
    damage_status(&client, &running[0]).await;
    damage_spec(&client, &running[2]).await;
    let other = PostgresStore::open(options).await.unwrap();
    assert_eq!(other.running().await.unwrap(), [running[1].without_payload()]);
    store.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn due_reads_pass_over_what_cannot_be_read_and_find_all_else() {
    let options = database::fresh();
    let (store, client, jobs) = submitted(&options, 8).await;
    // The last three wait again, at a time of their own.
    let running = start(&store, &jobs[5..]).await;
    let release = |job: &Job| order(job, Command::Release { token: job.status.token });
    let released = apply(&store, running.iter().map(release).collect()).await;
    assert!(
        released.iter().all(|state| matches!(state, Ok(State::Scheduled | State::Retrying))),
        "{released:?}"
    );
    for job in [&jobs[0], &jobs[1], &jobs[3]] {
        damage_spec(&client, job).await;
    }
    damage_status(&client, &jobs[6]).await;
    let other = PostgresStore::open(options).await.unwrap();
    let readable = [2, 4, 5, 7].map(|n: usize| jobs[n].id).to_vec();
    for (count_max, bytes_max) in PAGES {
        assert_eq!(due(&other, count_max, bytes_max).await, (readable.clone(), 4), "{count_max} {bytes_max}");
    }
    for n in [2, 4, 5, 7] {
        damage_spec(&client, &jobs[n]).await;
    }
    for (count_max, bytes_max) in PAGES {
        assert_eq!(due(&other, count_max, bytes_max).await, (Vec::new(), 8), "{count_max} {bytes_max}");
    }
    store.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn orders_are_applied_beside_one_for_an_unreadable_job() {
    let options = database::fresh();
    let (store, client, jobs) = submitted(&options, 6).await;
    let running = start(&store, &jobs[3..]).await;
    let before = damage_spec(&client, &jobs[1]).await;
    damage_status(&client, &running[1]).await;
    let other = PostgresStore::open(options).await.unwrap();
    let keyed = || {
        let key = IdempotencyClaim { key: "k".into(), fingerprint: [1; 16], until: NOW.plus_ms(DAY_MS) };
        Order { key: Some(key), ..order(&jobs[1], Command::Cancel) }
    };
    let cancel = order(&jobs[0], Command::Cancel);
    let answers = apply(&other, vec![cancel, keyed(), claim(&jobs[1]), claim(&jobs[2])]).await;
    let refused = Err(Refusal::Unreadable);
    assert_eq!(answers, [Ok(State::Cancelled), refused, refused, Ok(State::Running)]);
    assert_eq!(other.find_key(NOW, &acme(), "k").await.unwrap(), None, "it is free");
    let answers = apply(&other, running.iter().map(success).collect()).await;
    assert_eq!(answers, [Ok(State::Succeeded), refused, Ok(State::Succeeded)]);

    set_spec(&client, &jobs[1], &before).await;
    assert_eq!(apply(&other, vec![keyed()]).await, [Ok(State::Cancelled)], "it can be read again");
    store.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_look_for_an_unreadable_job_names_it_and_lists_go_on_without_it() {
    let options = database::fresh();
    let (store, client, jobs) = submitted(&options, 5).await;
    for job in [&jobs[1], &jobs[4]] {
        damage_spec(&client, job).await;
    }
    let failed = store.get(&acme(), vec![jobs[1].id]).await;
    let names_it = |reason: &str| reason.contains(&jobs[1].id.to_string()) && reason.contains("version 9");
    assert!(matches!(&failed, Err(Error::Corrupt(reason)) if names_it(reason)), "{failed:?}");
    assert!(store.get(&acme(), vec![jobs[0].id]).await.unwrap()[0].is_some());

    let readable = [3, 2, 0].map(|n: usize| jobs[n].id);
    for count_max in [1, 2, 100] {
        let (mut ids, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let query = ListQuery { tenant: acme(), filter: Filter::default(), after, count_max };
            let page = store.list(query).await.unwrap();
            ids.extend(page.jobs.iter().map(|job| job.id));
            (after, pages) = (page.next, pages + 1);
            assert!(pages < PAGES_COUNT_MAX, "the pages do not end");
            if after.is_none() {
                break;
            }
        }
        assert_eq!(ids, readable, "{count_max}");
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_submission_replaces_no_unreadable_job() {
    let options = database::fresh();
    let (store, client, jobs) = submitted(&options, 1).await;
    let before = damage_spec(&client, &jobs[0]).await;
    let other = PostgresStore::open(options).await.unwrap();
    let again = |fresh| vec![Submission { job: jobs[0].clone(), key: None, fresh }];
    for fresh in [false, true] {
        let failed = other.submit(NOW, again(fresh), OnConflict::KeepOthers).await;
        assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
    }
    set_spec(&client, &jobs[0], &before).await;
    assert_eq!(other.get(&acme(), vec![jobs[0].id]).await.unwrap(), [Some(jobs[0].clone())]);
    store.close().await.unwrap();
    other.close().await.unwrap();
}

/// An order for a schedule of that number, which fires every hour.
fn creating(n: u8) -> ScheduleOrder {
    let Spec { kind, payload, destination, priority, retry, timeout_ms, labels, .. } = queued(START);
    let definition = Definition {
        rule: Arc::new(Rule {
            timing: Timing::Every { interval_ms: HOUR_MS, anchor: START },
            zone: Zone::utc(),
            dst: Dst::default(),
            start_at: None,
            end_at: None,
            exclude: Exclude::default(),
        }),
        window_ms: 0,
        misfire: Misfire::default(),
        overlap: Overlap::Allow,
        template: Template { kind, payload, destination, priority, retry, timeout_ms, labels },
        idempotency_key: None,
        note: None,
    };
    let id = ScheduleId::from_bytes([n; 16]);
    let new = NewSchedule { id, tenant: acme(), name: None, definition, paused: false };
    ordering(id, ScheduleCommand::Create { new: Box::new(new), fresh: true })
}

fn ordering(id: ScheduleId, command: ScheduleCommand) -> ScheduleOrder {
    ScheduleOrder { tenant: acme(), id, if_version: None, command, key: None }
}

#[tokio::test]
async fn schedules_are_changed_beside_one_whose_job_is_unreadable() {
    let options = database::fresh();
    let (store, client, _) = submitted(&options, 1).await;
    let made = store.edit_schedules(START, [1, 2, 3].map(creating).to_vec()).await.unwrap();
    let made: Vec<Edited> = made.into_iter().map(Result::unwrap).collect();
    let damaged = &made[1].jobs[0];
    let before = damage_spec(&client, damaged).await;
    let pause = |made: &Edited| ordering(made.schedule.id, ScheduleCommand::Pause);
    let pauses = || made.iter().map(pause).collect::<Vec<_>>();

    let answers = store.edit_schedules(NOW, pauses()).await.unwrap();
    let names_it = |reason: &str| reason.contains(&damaged.id.to_string());
    assert!(
        matches!(&answers[1], Err(ScheduleRefusal::Unreadable(reason)) if names_it(reason)),
        "{answers:?}"
    );
    for n in [0, 2] {
        assert!(answers[n].as_ref().is_ok_and(|edited| edited.changed), "{answers:?}");
    }
    let stored = store.schedules(&acme(), vec![made[1].schedule.id]).await.unwrap();
    assert_eq!(stored, [Some(made[1].schedule.clone())], "nothing of it has changed");

    set_spec(&client, damaged, &before).await;
    let answers = store.edit_schedules(NOW, pauses()).await.unwrap();
    let changed: Vec<bool> = answers.into_iter().map(|answer| answer.unwrap().changed).collect();
    assert_eq!(changed, [false, true, false], "it can be read again");
    store.close().await.unwrap();
}
