//! Days are made ahead and dropped; what is parked, or outlives its day, is moved and not lost.

use std::sync::Arc;

use tidewheel_core::job::{Command, Finding, Job, State};
use tidewheel_core::limits::{DAY_MS, HOUR_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{OnConflict, Order, Store, Submission};
use tidewheel_store_postgres::{Options, PostgresStore};
use tokio_postgres::NoTls;

use crate::database;
use crate::specs::queued;

/// Midnight of a day long past, so that nothing is made for it by itself.
const START: Timestamp = Timestamp::from_ms(18_000 * DAY_MS);

fn job(tenant: &Tenant, at: Timestamp, tail: u128) -> Job {
    Job::new(tenant.clone(), queued(START), at, tail)
}

async fn submit(store: &PostgresStore, jobs: &[Job]) {
    let jobs = jobs.iter().map(|job| Submission { job: job.clone(), key: None, fresh: true }).collect();
    store.submit(START, jobs, OnConflict::KeepNone).await.unwrap();
}

async fn order(store: &PostgresStore, now: Timestamp, job: &Job, command: Command) -> Job {
    let order = Order { tenant: job.tenant.clone(), id: job.id, command, key: None };
    let applied = store.apply(now, None, vec![order]).await.unwrap().remove(0).unwrap();
    Job::clone(&applied.job)
}

async fn finish(store: &PostgresStore, now: Timestamp, job: &Job) -> Job {
    let claim = Command::Claim { epoch: 1, worker: Arc::from("w"), lease_ms: HOUR_MS, detached: false };
    let running = order(store, now, job, claim).await;
    order(store, now, &running, Command::Succeed { token: running.status.token, finding: Finding::default() })
        .await
}

async fn count(options: &Options, table: &str) -> i64 {
    let (client, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let sql = format!("SELECT count(*) FROM {}.{table}", options.schema);
    let count = client.query_one(&sql, &[]).await.unwrap().get(0);
    drop(client);
    connection.await.unwrap().unwrap();
    count
}

#[tokio::test]
async fn days_are_made_and_dropped_and_nothing_is_lost() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let acme = Tenant::new("acme").unwrap();
    let soon = |tail| job(&acme, START.plus_ms(HOUR_MS), tail);
    let [done, late, waiting, cancelled] = [1, 2, 3, 4].map(soon);
    let parked = job(&acme, START.plus_ms(3 * DAY_MS), 5);
    let far = job(&acme, START.plus_ms(300 * DAY_MS), 6);
    let all = [&done, &late, &waiting, &cancelled, &parked, &far].map(Job::clone);
    submit(&store, &all).await;
    assert_eq!(count(&options, "jobs_default").await, 6, "there are no days yet");

    store.make_partitions(START).await.unwrap();
    store.make_partitions(START).await.unwrap();
    assert_eq!(count(&options, "jobs_default").await, 1, "all but the far one have a day");
    assert_eq!(count(&options, "jobs_d18000").await, 4);
    assert_eq!(count(&options, "jobs_d18003").await, 1);
    let ids: Vec<_> = all.iter().map(|job| job.id).collect();
    let found = store.get(&acme, ids.clone()).await.unwrap();
    assert!(found.iter().zip(&all).all(|(found, job)| found.as_ref() == Some(job)));

    let noon = START.plus_ms(DAY_MS / 2);
    let done = finish(&store, noon, &done).await;
    let far = order(&store, noon, &far, Command::Cancel).await;
    let cancelled = order(&store, noon, &cancelled, Command::Cancel).await;
    assert_eq!(count(&options, "events_d18000 WHERE state > 0").await, 3, "claimed, succeeded; cancelled");
    let next_day = START.plus_ms(DAY_MS + HOUR_MS);
    let late = finish(&store, next_day, &late).await;

    assert_eq!(store.drop_history(next_day, START).await.unwrap(), 0, "nothing is that old");
    let dropped = store.drop_history(next_day, START.plus_ms(DAY_MS)).await.unwrap();
    assert_eq!(dropped, 3, "the two of the day, and the far one that was called off");
    assert_eq!(count(&options, "jobs_default").await, 2, "what outlived its day");
    let found = store.get(&acme, ids).await.unwrap();
    let kept: Vec<_> = found.into_iter().flatten().collect();
    assert_eq!(kept, [late.clone(), waiting.clone(), parked.clone()]);
    let counts = store.counts(None).await.unwrap();
    assert_eq!((counts.of(State::Scheduled), counts.of(State::Succeeded)), (2, 1));
    assert_eq!(counts.of(State::Cancelled), 0);
    assert!([done, far, cancelled].iter().all(|job| job.status.state.is_finished()));

    let ended = finish(&store, next_day, &waiting).await;
    assert_eq!(ended.status.state, State::Succeeded);
    let later = START.plus_ms(2 * DAY_MS);
    assert_eq!(store.drop_history(later, later).await.unwrap(), 2);
    assert_eq!(count(&options, "jobs_default").await, 0);
    assert_eq!(count(&options, "jobs").await, 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_day_that_much_outlives_is_emptied_by_the_row() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let acme = Tenant::new("acme").unwrap();
    let all: Vec<Job> = (0..5).map(|tail| job(&acme, START.plus_ms(HOUR_MS), tail)).collect();
    submit(&store, &all).await;
    store.make_partitions(START).await.unwrap();
    let noon = START.plus_ms(DAY_MS / 2);
    for done in &all[..3] {
        finish(&store, noon, done).await;
    }
    let (later, before) = (START.plus_ms(DAY_MS + HOUR_MS), START.plus_ms(DAY_MS));
    // Two wait, and only one may be moved.
    assert_eq!(store.drop_history_moving(later, before, 1).await.unwrap(), 3);
    assert_eq!(count(&options, "jobs_d18000").await, 2, "the day stays, with what waits");
    // Besides those by which upkeep, which goes by the database's clock, gives a timer to what waits.
    assert_eq!(count(&options, "events_d18000 WHERE state > 0").await, 0);
    assert_eq!(store.drop_history_moving(later, before, 1).await.unwrap(), 0);
    let ids: Vec<_> = all.iter().map(|job| job.id).collect();
    let found: Vec<Job> = store.get(&acme, ids.clone()).await.unwrap().into_iter().flatten().collect();
    assert_eq!(found, all[3..]);
    let counts = store.counts(None).await.unwrap();
    assert_eq!((counts.of(State::Scheduled), counts.of(State::Succeeded)), (2, 0));
    // As many as may be: now it goes, and they are moved.
    assert_eq!(store.drop_history_moving(later, before, 2).await.unwrap(), 0);
    assert_eq!(count(&options, "jobs_default").await, 2);
    let found: Vec<Job> = store.get(&acme, ids).await.unwrap().into_iter().flatten().collect();
    assert_eq!(found, all[3..]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_parked_jobs_of_a_day_are_found_by_an_index() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let set = format!("SET search_path = {}; SET enable_seqscan = off", options.schema);
    client.batch_execute(&set).await.unwrap();
    let (from, to) = (START.as_ms(), START.as_ms() + DAY_MS);
    for (table, column) in [("jobs", "run_at"), ("events", "run_at"), ("ledger", "decided_at")] {
        let delete = format!(
            "EXPLAIN DELETE FROM {table}_default
             WHERE {column} / {DAY_MS} = 18000 AND {column} >= {from} AND {column} < {to}"
        );
        let plan = client.query(&delete, &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let index = format!("{table}_default_day");
        assert!(plan.iter().any(|line| line.contains(&index)), "{plan:#?}");
    }
    store.close().await.unwrap();
}

/// How many wait for a lock in this schema.
async fn waiting(client: &tokio_postgres::Client, schema: &str) -> i64 {
    let sql = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
               JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT l.granted AND n.nspname = $1";
    client.query_one(sql, &[&schema]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_submission_that_meets_a_day_being_made_finds_its_place() {
    let options = database::fresh();
    let store = Arc::new(PostgresStore::open(options.clone()).await.unwrap());
    let (mut maker, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let (looker, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let (schema, from, to) = (&options.schema, START.as_ms(), START.as_ms() + DAY_MS);
    let making = maker.transaction().await.unwrap();
    making
        .batch_execute(&format!(
            "SET LOCAL search_path TO {schema};
             LOCK TABLE jobs_default IN ACCESS EXCLUSIVE MODE;
             CREATE TABLE jobs_d18000 (LIKE jobs INCLUDING ALL);
             ALTER TABLE jobs ATTACH PARTITION jobs_d18000 FOR VALUES FROM ({from}) TO ({to})"
        ))
        .await
        .unwrap();
    let early = job(&Tenant::default(), START.plus_ms(HOUR_MS), 1);
    let submission = tokio::spawn({
        let (store, early) = (Arc::clone(&store), early.clone());
        async move { submit(&store, &[early]).await }
    });
    while waiting(&looker, schema).await == 0 {
        assert!(!submission.is_finished(), "it did not have to wait");
        tokio::task::yield_now().await;
    }
    making.commit().await.unwrap();
    submission.await.unwrap();
    assert_eq!(count(&options, "jobs_d18000").await, 1);
    assert_eq!(store.get(&early.tenant, vec![early.id]).await.unwrap(), [Some(early)]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_job_is_found_while_it_is_moved_into_its_day() {
    let options = database::fresh();
    let store = Arc::new(PostgresStore::open(options.clone()).await.unwrap());
    let early = job(&Tenant::default(), START.plus_ms(HOUR_MS), 1);
    submit(&store, std::slice::from_ref(&early)).await;
    let (mut reader, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let (looker, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = &options.schema;
    // Holds the maker up when it is about to move the job.
    let reading = reader.transaction().await.unwrap();
    reading.batch_execute(&format!("SELECT FROM {schema}.jobs_default")).await.unwrap();
    let making = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.make_partitions(START).await }
    });
    while waiting(&looker, schema).await == 0 {
        assert!(!making.is_finished(), "it did not have to wait");
        tokio::task::yield_now().await;
    }
    let found = tokio::spawn({
        let (store, early) = (Arc::clone(&store), early.clone());
        async move { store.get(&early.tenant, vec![early.id]).await }
    });
    while waiting(&looker, schema).await == 1 {
        assert!(!found.is_finished(), "it did not have to wait");
        tokio::task::yield_now().await;
    }
    reading.commit().await.unwrap();
    making.await.unwrap().unwrap();
    assert_eq!(found.await.unwrap().unwrap(), [Some(early)]);
    assert_eq!(count(&options, "jobs_d18000").await, 1);
    store.close().await.unwrap();
}
