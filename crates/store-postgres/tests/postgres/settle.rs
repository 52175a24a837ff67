//! Marks that spare reads what is over are moved up, and nothing that waits is passed: not what comes in below them, nor
//! what somebody is just writing. What was last seen of a job is not believed when another node knows better.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::job::{Command, Finding, Job, Rejection, State};
use tidewheel_core::limits::HOUR_MS;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Due, OnConflict, Order, Refusal, Store, Submission};
use tidewheel_store_postgres::{Options, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::database;
use crate::specs::queued;

const START: Timestamp = Timestamp::from_ms(3_000_000 * 600_000);
/// How often it is tried to settle what others may be in the way of.
const ROUNDS_COUNT_MAX: usize = 100;

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn job(ms: i64, tail: u128) -> Job {
    Job::new(acme(), queued(START), START.plus_ms(ms), tail)
}

async fn submit(store: &PostgresStore, jobs: &[Job]) {
    let jobs = jobs.iter().map(|job| Submission { job: job.clone(), key: None, fresh: true }).collect();
    store.submit(START, jobs, OnConflict::KeepNone).await.unwrap();
}

async fn try_order(store: &PostgresStore, job: &Job, command: Command) -> Result<Job, Refusal> {
    let order = Order { tenant: job.tenant.clone(), id: job.id, command, key: None };
    let now = START.plus_ms(60_000);
    let applied = store.apply(now, None, vec![order]).await.unwrap().remove(0)?;
    Ok(Job::clone(&applied.job))
}

fn claiming() -> Command {
    Command::Claim { epoch: 1, worker: Arc::from("w"), lease_ms: HOUR_MS, detached: false }
}

async fn finish(store: &PostgresStore, job: &Job) {
    let running = try_order(store, job, claiming()).await.unwrap();
    let succeed = Command::Succeed { token: running.status.token, finding: Finding::default() };
    try_order(store, &running, succeed).await.unwrap();
}

fn shard() -> Shard {
    Shard::of(&acme(), 8)
}

async fn due(store: &PostgresStore) -> Vec<Job> {
    let due = Due {
        shard: shard(),
        bucket: Bucket::of(START),
        tenant: acme(),
        after: None,
        until: Timestamp::MAX,
        count_max: 1_000,
        bytes_max: usize::MAX,
    };
    store.due(due).await.unwrap().jobs.into_iter().map(Arc::unwrap_or_clone).collect()
}

async fn has_work(store: &PostgresStore) -> bool {
    let bucket = Bucket::of(START);
    let found = store.next_bucket(shard(), Bucket(0), bucket).await.unwrap();
    let named = store.due_tenants(shard(), bucket, None, 10).await.unwrap();
    assert_eq!(found.is_some(), !named.is_empty());
    found.is_some()
}

/// Enough rounds for all marks to move, if nobody holds them.
async fn settle(store: &PostgresStore, until: Timestamp) {
    for _ in 0..4 {
        store.settle(until).await.unwrap();
    }
}

async fn connect(options: &Options) -> Client {
    let (client, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {}", options.schema)).await.unwrap();
    client
}

async fn count(client: &Client, table: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn what_has_begun_is_passed_and_what_comes_in_below_is_found() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let client = connect(&options).await;
    let jobs: Vec<Job> = (0..50).map(|n| job(n * 100, 7)).collect();
    submit(&store, &jobs).await;
    for job in &jobs[..40] {
        finish(&store, job).await;
    }
    settle(&store, START.plus_ms(10_000)).await;
    let from: i64 = client
        .query_one(
            "SELECT ('x' || left(replace(from_id::text, '-', ''), 12))::bit(48)::bigint FROM agenda",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(from, START.plus_ms(4_000).as_ms(), "the first that waits");
    assert_eq!(due(&store).await, jobs[40..]);

    let late = job(50, 8);
    submit(&store, std::slice::from_ref(&late)).await;
    assert_eq!(count(&client, "timers").await, 1);
    assert_eq!(due(&store).await[0], late);
    finish(&store, &late).await;
    for job in &jobs[40..] {
        finish(&store, job).await;
    }
    assert!(!has_work(&store).await);
    settle(&store, Timestamp::MAX).await;
    assert_eq!(count(&client, "agenda").await, 0, "the bucket is through");
    let after = job(60, 9);
    submit(&store, std::slice::from_ref(&after)).await;
    assert!(has_work(&store).await);
    assert_eq!(due(&store).await, [after]);
    store.close().await.unwrap();
}

/// Whether somebody waits in a place is told from its first jobs alone; a listing tells it exactly.
#[tokio::test]
async fn a_bucket_of_which_many_have_begun_is_named_until_the_marks_have_moved() {
    let store = PostgresStore::open(database::fresh()).await.unwrap();
    let jobs: Vec<Job> = (0..70).map(|n| job(n, 7)).collect();
    submit(&store, &jobs).await;
    for job in &jobs {
        finish(&store, job).await;
    }
    let bucket = Bucket::of(START);
    assert_eq!(store.next_bucket(shard(), Bucket(0), bucket).await.unwrap(), Some(bucket));
    assert!(store.due_tenants(shard(), bucket, None, 10).await.unwrap().is_empty());
    let last = job(100, 7);
    submit(&store, std::slice::from_ref(&last)).await;
    assert!(has_work(&store).await);
    let listed = store.due_tenants(shard(), bucket, None, 10).await.unwrap();
    assert_eq!(listed[0].first_at, last.status.due_at, "those that have begun are passed");
    finish(&store, &last).await;
    settle(&store, Timestamp::MAX).await;
    assert!(!has_work(&store).await);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_job_that_is_being_written_is_not_passed_and_an_old_transaction_holds_nothing_up() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let mut forgotten = connect(&options).await;
    let forgotten = forgotten.transaction().await.unwrap();
    forgotten.batch_execute("CREATE TABLE unrelated (n int); SELECT txid_current()").await.unwrap();

    let [first, slow] = [job(0, 1), job(10, 2)];
    submit(&store, std::slice::from_ref(&first)).await;
    finish(&store, &first).await;
    // As a node writes, up to the commit: it has looked at the marks already.
    let mut writer = connect(&options).await;
    let writing = writer.transaction().await.unwrap();
    let lock = "SELECT pg_advisory_xact_lock_shared(1953064037, hashtext(current_schema()))";
    writing.execute(lock, &[]).await.unwrap();
    let copied = "INSERT INTO jobs (tenant, run_at, id, shard, kind, spec, payload)
                  SELECT tenant, $1, $2::text::uuid, shard, kind, spec, payload FROM jobs";
    let id: String = slow.id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    writing.execute(copied, &[&slow.id.run_at().as_ms(), &id]).await.unwrap();
    settle(&store, Timestamp::MAX).await;
    let client = connect(&options).await;
    assert_eq!(count(&client, "agenda").await, 1, "somebody may be writing into it");
    writing.commit().await.unwrap();
    settle(&store, Timestamp::MAX).await;
    assert!(has_work(&store).await);
    assert_eq!(due(&store).await.iter().map(|job| job.id).collect::<Vec<_>>(), [slow.id]);
    finish(&store, &slow).await;
    settle(&store, Timestamp::MAX).await;
    assert_eq!(count(&client, "agenda").await, 0, "though a transaction has been open all the time");
    drop(forgotten);
    store.close().await.unwrap();
}

/// Beyond what the clock of the database reaches: by itself the store proposes nothing there, whatever else it does meanwhile.
const FAR_MS: i64 = 100 * 365 * 24 * HOUR_MS;

#[tokio::test]
async fn much_that_has_begun_is_passed_in_several_rounds() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let client = connect(&options).await;
    let jobs: Vec<Job> = (0..60).map(|n| job(FAR_MS + n, 5)).collect();
    submit(&store, &jobs).await;
    let now = START.plus_ms(FAR_MS + 60_000);
    for job in &jobs {
        let order = |command| Order { tenant: job.tenant.clone(), id: job.id, command, key: None };
        let claimed = store.apply(now, None, vec![order(claiming())]).await.unwrap().remove(0).unwrap();
        let token = claimed.job.status.token;
        let succeed = order(Command::Succeed { token, finding: Finding::default() });
        store.apply(now, None, vec![succeed]).await.unwrap().remove(0).unwrap();
    }
    // Where the agenda was seen to begin. A round proposes 20 jobs at most, so it cannot be gone through in one.
    let mut seen = BTreeSet::new();
    let passing = async {
        loop {
            let is_more = store.settle_at_most(Timestamp::MAX, 10).await.unwrap();
            let rows = client.query("SELECT from_id::text FROM agenda", &[]).await.unwrap();
            seen.extend(rows.iter().map(|row| row.get::<_, String>(0)));
            if rows.is_empty() && !is_more {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(180), passing).await.expect("all of it to be passed");
    assert!(seen.len() > 2, "it was passed at once: {seen:?}");
    // What is looked at by its number is bounded, too; rounds go on until all of it is through.
    let settled = async {
        while count(&client, "tallies").await > 0 {
            store.settle_at_most(Timestamp::MAX, 10).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(180), settled).await.expect("all to be counted");
    assert_eq!(store.counts(None).await.unwrap().of(State::Succeeded), 60);
    assert_eq!(store.running().await.unwrap(), []);
    store.close().await.unwrap();
}

#[tokio::test]
async fn attempts_under_way_are_found_however_long_ago_they_began() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let client = connect(&options).await;
    let jobs: Vec<Job> = (0..20).map(|n| job(n, 3)).collect();
    submit(&store, &jobs).await;
    let long = try_order(&store, &jobs[0], claiming()).await.unwrap();
    for job in &jobs[1..19] {
        finish(&store, job).await;
    }
    settle(&store, START.plus_ms(HOUR_MS)).await;
    assert_eq!(count(&client, "attempts").await, 1);
    let short = try_order(&store, &jobs[19], claiming()).await.unwrap();
    assert_eq!(store.running().await.unwrap(), [long.without_payload(), short.without_payload()]);
    for running in [&long, &short] {
        let succeed = Command::Succeed { token: running.status.token, finding: Finding::default() };
        try_order(&store, running, succeed).await.unwrap();
    }
    assert_eq!(store.running().await.unwrap(), []);
    // A round does nothing while somebody writes, such as the upkeep that the store does by itself.
    for _ in 0..ROUNDS_COUNT_MAX {
        settle(&store, START.plus_ms(HOUR_MS)).await;
        if (count(&client, "attempts").await, count(&client, "tallies").await) == (0, 0) {
            break;
        }
    }
    assert_eq!((count(&client, "attempts").await, count(&client, "tallies").await), (0, 0));
    let counts = store.counts(None).await.unwrap();
    assert_eq!((counts.of(State::Succeeded), counts.of(State::Running)), (20, 0));
    store.close().await.unwrap();
}

#[tokio::test]
async fn what_was_last_seen_is_not_believed_when_another_node_knows_better() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let other = PostgresStore::open(options).await.unwrap();
    let jobs: Vec<Job> = (0..4).map(|n| job(n, 4)).collect();
    submit(&store, &jobs).await;
    assert_eq!(due(&store).await, jobs);
    let [cancelled, claimed, ended, lost] = [&jobs[0], &jobs[1], &jobs[2], &jobs[3]];
    let calling_off = try_order(&other, cancelled, Command::Cancel).await.unwrap();
    assert_eq!(calling_off.status.state, State::Cancelled);
    assert_eq!(
        try_order(&store, cancelled, claiming()).await.unwrap_err(),
        Refusal::Rejected(Rejection::Finished(State::Cancelled))
    );

    let running = try_order(&other, claimed, claiming()).await.unwrap();
    assert_eq!(
        try_order(&store, claimed, claiming()).await.unwrap_err(),
        Refusal::Rejected(Rejection::Running)
    );
    let succeed = |job: &Job| Command::Succeed { token: job.status.token, finding: Finding::default() };
    try_order(&store, &running, succeed(&running)).await.unwrap();

    // Claimed here, lost and run again there: an outcome of the first attempt is refused, though it is known here.
    let first = try_order(&store, lost, claiming()).await.unwrap();
    try_order(&other, lost, Command::Lost { token: first.status.token }).await.unwrap();
    let second = try_order(&other, lost, claiming()).await.unwrap();
    let refused = try_order(&store, lost, succeed(&first)).await.unwrap_err();
    assert_eq!(refused, Refusal::Rejected(Rejection::StaleToken));
    try_order(&store, lost, succeed(&second)).await.unwrap();

    finish(&other, ended).await;
    let again = try_order(&store, ended, Command::Rerun { run_at: START }).await.unwrap();
    assert_eq!(again.status.state, State::Scheduled);
    store.close().await.unwrap();
    other.close().await.unwrap();
}
