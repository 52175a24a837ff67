//! Every migration is undone and made again: on empty databases, with jobs in them, and with several databases in use. None
//! takes anything away on its way up, and none waits for long.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::job::{Command, Finding, Job};
use tidewheel_core::limits::{DAY_MS, HOUR_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Checkpoint, OnConflict, Order, Store, Submission};
use tidewheel_store_postgres::{
    MigrateError, Migrated, Options, PostgresStore, SCHEMA_NUMBER, migrate, migrate_all, open_all,
};
use tokio_postgres::NoTls;

use crate::database;
use crate::specs::queued;

const START: Timestamp = Timestamp::from_ms(18_000 * DAY_MS);
const SHARDS: u16 = 8;

fn job(tenant: &Tenant, ms: i64, tail: u128) -> Job {
    Job::new(tenant.clone(), queued(START), START.plus_ms(ms), tail)
}

/// The first tenant of every shard.
fn tenants() -> Vec<Tenant> {
    let of = |shard: u16| {
        let mut names = (0..).map(|n| Tenant::new(&format!("t{n}")).unwrap());
        names.find(|tenant| Shard::of(tenant, SHARDS).0 == shard).unwrap()
    };
    (0..SHARDS).map(of).collect()
}

/// Uses a store as a server does: leases, jobs in every shard, of which some have ended, checkpoints. Gives the jobs.
async fn use_it(store: &dyn Store) -> Vec<Job> {
    let shards: Vec<Shard> = (0..SHARDS).map(Shard).collect();
    let leases = store.leases().unwrap();
    let held = leases.hold(START, "node", shards.clone(), 60_000).await.unwrap();
    assert_eq!(held.len(), shards.len());
    let jobs: Vec<Job> = tenants()
        .iter()
        .flat_map(|tenant| [job(tenant, 0, 1), job(tenant, HOUR_MS, 2), job(tenant, 300 * DAY_MS, 3)])
        .collect();
    let submissions = jobs.iter().map(|job| Submission { job: job.clone(), key: None, fresh: true });
    store.submit(START, submissions.collect(), OnConflict::KeepNone).await.unwrap();
    for job in jobs.iter().step_by(3) {
        let shard = Shard::of(&job.tenant, SHARDS);
        let epoch = held.iter().find(|held| held.shard == shard).unwrap().epoch;
        let order = |command| Order { tenant: job.tenant.clone(), id: job.id, command, key: None };
        let claim = Command::Claim { epoch, worker: Arc::from("w"), lease_ms: HOUR_MS, detached: false };
        let claimed = store.apply(START, None, vec![order(claim)]).await.unwrap().remove(0).unwrap();
        let succeed = Command::Succeed { token: claimed.job.status.token, finding: Finding::default() };
        store.apply(START, None, vec![order(succeed)]).await.unwrap().remove(0).unwrap();
    }
    let checkpoint = |shard| Checkpoint { shard, frontier: Bucket::of(START), cursors: Vec::new() };
    store.save_checkpoints(shards.into_iter().map(checkpoint).collect()).await.unwrap();
    leases.leave(START, "node").await.unwrap();
    found(store, &jobs).await.into_iter().map(Option::unwrap).collect()
}

async fn found(store: &dyn Store, jobs: &[Job]) -> Vec<Option<Job>> {
    let keys = jobs.iter().map(|job| (job.tenant.clone(), job.id)).collect();
    store.get_each(START, keys).await.unwrap()
}

async fn assert_there(store: &dyn Store, jobs: &[Job]) {
    for (found, job) in found(store, jobs).await.into_iter().zip(jobs) {
        assert_eq!(found.as_ref(), Some(job));
    }
}

/// Nobody hears what a migration waits for.
fn untold(_: &str) {}

/// Whatever stands in the schema.
async fn relations(options: &Options) -> i64 {
    let (client, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql =
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1";
    client.query_one(sql, &[&options.schema]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_empty_database_goes_up_and_down_step_by_step() {
    let options = database::fresh();
    for _ in 0..2 {
        for target in 1..=SCHEMA_NUMBER {
            let migrated = migrate(&options, target).await.unwrap();
            assert_eq!(migrated, Migrated { from: target - 1, to: target });
        }
        for target in (0..SCHEMA_NUMBER).rev() {
            let migrated = migrate(&options, target).await.unwrap();
            assert_eq!(migrated, Migrated { from: target + 1, to: target });
        }
        assert_eq!(relations(&options).await, 0, "nothing is left behind");
    }
    migrate(&options, SCHEMA_NUMBER).await.unwrap();
    PostgresStore::open(options).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn jobs_outlive_every_step_down_and_up_again() {
    let options = database::fresh();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    store.make_partitions(START).await.unwrap();
    let jobs = use_it(&store).await;
    store.make_partitions(START.plus_ms(DAY_MS)).await.unwrap();
    store.close().await.unwrap();
    for target in (1..SCHEMA_NUMBER).rev() {
        migrate(&options, target).await.unwrap();
        migrate(&options, SCHEMA_NUMBER).await.unwrap();
        let store = PostgresStore::open(options.clone()).await.unwrap();
        assert_there(&store, &jobs).await;
        store.close().await.unwrap();
    }
    migrate(&options, 0).await.unwrap();
    assert_eq!(relations(&options).await, 0, "days go, too");
    let store = PostgresStore::open(options).await.unwrap();
    assert!(found(&store, &jobs).await.iter().all(Option::is_none));
    use_it(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn several_databases_that_were_used_go_down_and_up_again() {
    let all = vec![database::fresh(), database::fresh(), database::fresh()];
    let store = open_all(all.clone()).await.unwrap();
    let jobs = use_it(&*store).await;
    store.close().await.unwrap();
    for target in (1..SCHEMA_NUMBER).rev() {
        migrate_all(all.clone(), target, &untold).await.unwrap();
        let done = migrate_all(all.clone(), SCHEMA_NUMBER, &untold).await.unwrap();
        assert!(done.iter().all(|done| *done == Migrated { from: target, to: SCHEMA_NUMBER }), "{done:?}");
        let store = open_all(all.clone()).await.unwrap();
        assert_there(&*store, &jobs).await;
        store.close().await.unwrap();
        // Each is still the one it was.
        let swapped = vec![all[1].clone(), all[0].clone(), all[2].clone()];
        assert!(open_all(swapped).await.err().unwrap().to_string().contains("number 2 of 3"));
    }
    migrate_all(all.clone(), 0, &untold).await.unwrap();
    migrate_all(all.clone(), SCHEMA_NUMBER, &untold).await.unwrap();
    let store = open_all(all).await.unwrap();
    assert!(found(&*store, &jobs).await.iter().all(Option::is_none));
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_database_that_was_used_alone_stays_alone() {
    let (alone, other) = (database::fresh(), database::fresh());
    let store = PostgresStore::open(alone.clone()).await.unwrap();
    let jobs = use_it(&store).await;
    store.close().await.unwrap();
    for target in (1..SCHEMA_NUMBER).rev() {
        migrate(&alone, target).await.unwrap();
        let refused =
            migrate_all(vec![alone.clone(), other.clone()], SCHEMA_NUMBER, &untold).await.err().unwrap();
        assert!(refused.to_string().contains("the only one and is given as number 1 of 2"), "{refused}");
        migrate_all(vec![alone.clone()], SCHEMA_NUMBER, &untold).await.unwrap();
        let store = PostgresStore::open(alone.clone()).await.unwrap();
        assert_there(&store, &jobs).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_table_that_stays_in_use_is_given_up_and_nothing_is_changed() {
    let options = database::fresh();
    let hasty = Options { table_lock: Duration::from_millis(100), migration_tries: 1, ..options.clone() };
    migrate(&options, SCHEMA_NUMBER - 1).await.unwrap();
    let (mut client, connection) = tokio_postgres::connect(&options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let holder = client.transaction().await.unwrap();
    let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    holder.batch_execute(&format!("SELECT FROM {}.settings", options.schema)).await.unwrap();
    let refused = migrate(&hasty, SCHEMA_NUMBER).await.unwrap_err();
    assert!(matches!(refused, MigrateError::InUse { .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.contains("0005_used") && said.contains("run `tidewheel migrate` again"), "{said}");
    // Others of this database server may have older ones.
    assert!(said.contains("has been open for") && said.contains("of process "), "{said} {pid}");
    holder.commit().await.unwrap();
    let done = migrate(&options, SCHEMA_NUMBER).await.unwrap();
    assert_eq!(done, Migrated { from: SCHEMA_NUMBER - 1, to: SCHEMA_NUMBER });
}

/// Statements of a step, without comments.
fn statements(sql: &str) -> Vec<String> {
    let lines = sql.lines().filter(|line| !line.trim_start().starts_with("--"));
    let plain = lines.collect::<Vec<_>>().join(" ");
    plain
        .split(';')
        .map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|it| !it.is_empty())
        .collect()
}

/// Whether nodes of the version before can go on as they are when this is done: it makes something of its own, or adds to a
/// table what they need not give.
fn only_adds(statement: &str) -> bool {
    let makes = ["CREATE TABLE ", "CREATE INDEX ", "INSERT INTO "];
    if makes.iter().any(|start| statement.starts_with(start)) {
        return true;
    }
    let Some((_, changes)) = statement.strip_prefix("ALTER TABLE ").and_then(|rest| rest.split_once(' '))
    else {
        return false;
    };
    let takes = ["DROP ", "RENAME ", "ALTER COLUMN ", "SET "];
    let has_values = changes
        .split("ADD COLUMN ")
        .skip(1)
        .all(|column| !column.contains("NOT NULL") || column.contains("DEFAULT "));
    changes.starts_with("ADD ") && has_values && !takes.iter().any(|word| changes.contains(word))
}

#[test]
fn steps_up_only_add() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let is_step_up = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".up.sql") && !name.starts_with("0001")
    };
    let steps: Vec<PathBuf> = files.filter(is_step_up).collect();
    assert_eq!(steps.len(), usize::try_from(SCHEMA_NUMBER).unwrap() - 1);
    for path in steps {
        for statement in statements(&std::fs::read_to_string(&path).unwrap()) {
            assert!(only_adds(&statement), "{}: {statement}", path.display());
        }
    }
    for taking in [
        "DROP TABLE jobs",
        "ALTER TABLE jobs DROP COLUMN run_at",
        "ALTER TABLE jobs RENAME COLUMN a TO b",
        "ALTER TABLE jobs ADD COLUMN a int NOT NULL",
        "ALTER TABLE jobs ADD COLUMN a int, ALTER COLUMN b TYPE text",
        "UPDATE jobs SET a = 1",
    ] {
        assert!(!only_adds(taking), "{taking}");
    }
}
