//! The schema: numbered migrations, each in a transaction of its own, noted in the table `migrations`. A program is started
//! with the schema of its own number only; `tidewheel migrate` brings a database there, while nodes of the version before are
//! at work: a step up only adds, and keeps nobody waiting.

use std::time::Duration;

use tidewheel_core::limits::BUCKET_MS;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::connections::config_of;
use crate::fault::{is_cut_off, reason};
use crate::hosts::Hosts;
use crate::options::Options;

struct Migration {
    number: i32,
    name: &'static str,
    up: &'static str,
    down: &'static str,
}

macro_rules! migration {
    ($number:expr, $name:literal) => {
        Migration {
            number: $number,
            name: $name,
            up: include_str!(concat!("../migrations/", $name, ".up.sql")),
            down: include_str!(concat!("../migrations/", $name, ".down.sql")),
        }
    };
}

const MIGRATIONS: [Migration; 5] = [
    migration!(1, "0001_first"),
    migration!(2, "0002_audit"),
    migration!(SEATS_SINCE, "0003_databases"),
    migration!(4, "0004_parked"),
    migration!(5, "0005_used"),
];

/// The schema this program works with.
pub const SCHEMA_NUMBER: i32 = 5;
const _: () = assert!(MIGRATIONS.len() == 5, "and SCHEMA_NUMBER is the last");

/// The first schema in which a database says what it is among others.
pub(crate) const SEATS_SINCE: i32 = 3;

/// Held while a schema is looked at and changed, so that nodes that start together do it one after the other. By the name it
/// is given: it may not be there yet.
const LOCK: &str = "SELECT pg_advisory_lock(1953064049, hashtext($1))";

/// How often a table that is in use is tried for. Between one try and the next, nodes make up for what has waited behind it.
const TRY_EVERY: Duration = Duration::from_secs(5);

/// What the database says of a table that others have: it was waited for long enough, or they wait for one that the step has.
const IN_USE: [SqlState; 2] = [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED];

/// The transaction of somebody else that has been open for longest: most likely the one that is waited for.
const OLDEST: &str = "SELECT pid, COALESCE(NULLIF(application_name, ''), 'without a name'), \
    extract(epoch FROM clock_timestamp() - xact_start)::bigint FROM pg_stat_activity \
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL \
    ORDER BY xact_start LIMIT 1";

/// Is told in words what a migration waits for.
pub type Teller<'a> = &'a (dyn Fn(&str) + Sync);

/// Why a database cannot be brought, or used, as it is.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// It refused a connection or a statement.
    #[error("the database cannot be migrated: {0}")]
    Failed(String),
    /// It cannot be reached, or was cut off.
    #[error("the database cannot be migrated: {0}")]
    Unreachable(String),
    /// Its schema is of a newer program.
    #[error("the database has schema {found}, and this program knows {SCHEMA_NUMBER}: use a newer program")]
    Newer {
        /// What it has.
        found: i32,
    },
    /// Its schema is of an older program.
    #[error(
        "the database has schema {found}, and this program needs {SCHEMA_NUMBER}: run `tidewheel migrate`"
    )]
    Older {
        /// What it has.
        found: i32,
    },
    /// Others did not let go of a table.
    #[error(
        "{name} was not applied or undone: a table it changes was in use all the time. {who}. Have that ended, and run \
         `tidewheel migrate` again"
    )]
    InUse {
        /// The step.
        name: &'static str,
        /// Who may have it.
        who: String,
    },
    /// It has no schema where there should be one.
    #[error(
        "the database is empty, and the cluster has used another one in its place: give that one. If it is lost for good, and its \
         jobs with it, `tidewheel migrate` with all databases makes this one ready to be used instead"
    )]
    Empty,
}

impl From<tokio_postgres::Error> for MigrateError {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = reason(&error);
        if is_cut_off(&error) { Self::Unreachable(text) } else { Self::Failed(text) }
    }
}

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The schema there was; 0 for none.
    pub from: i32,
    /// The schema there is.
    pub to: i32,
}

/// A connection of its own, without the bounds of calls: a migration may take long.
pub(crate) async fn connect(options: &Options) -> Result<Client, MigrateError> {
    let (mut config, tls) = config_of(options).map_err(|error| MigrateError::Failed(error.to_string()))?;
    config.options(format!("-c search_path={}", options.schema));
    let hosts = Hosts::new(&config, tls, options.connect);
    let connecting = tokio::time::timeout(options.call, hosts.connect()).await;
    let (client, connection) =
        connecting.map_err(|_| MigrateError::Unreachable("the database does not answer".to_owned()))??;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection of a migration ended");
        }
    });
    Ok(client)
}

async fn found(client: &Client, options: &Options) -> Result<i32, MigrateError> {
    let table = format!("{}.migrations", options.schema);
    let row = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(0);
    }
    let row = client.query_one("SELECT COALESCE(max(number), 0) FROM migrations", &[]).await?;
    Ok(row.try_get(0)?)
}

/// Brings the schema to `target`, up or down; 0 takes everything away.
///
/// # Errors
/// When the database refuses, or has a schema that this program does not know.
pub async fn migrate(options: &Options, target: i32) -> Result<Migrated, MigrateError> {
    migrate_telling(options, target, &|waits| tracing::warn!("{waits}")).await
}

/// The same, and whoever asked for it is told what it waits for.
pub(crate) async fn migrate_telling(
    options: &Options,
    target: i32,
    told: Teller<'_>,
) -> Result<Migrated, MigrateError> {
    let client = connect(options).await?;
    client.execute(LOCK, &[&options.schema]).await?;
    let from = found(&client, options).await?;
    if from > SCHEMA_NUMBER {
        return Err(MigrateError::Newer { found: from });
    }
    if from == 0 && target > 0 {
        let schema = &options.schema;
        client
            .batch_execute(&format!(
                "CREATE SCHEMA IF NOT EXISTS {schema};
                 CREATE TABLE IF NOT EXISTS migrations (
                     number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
            ))
            .await?;
    }
    for migration in MIGRATIONS.iter().filter(|it| from < it.number && it.number <= target) {
        step(&client, options, migration, &up(options, migration), told).await?;
        tracing::info!(name = migration.name, "migrated the database");
    }
    for migration in MIGRATIONS.iter().rev().filter(|it| target < it.number && it.number <= from) {
        let Migration { number, down, .. } = migration;
        let sql = format!("{down}\n; DELETE FROM migrations WHERE number = {number}");
        step(&client, options, migration, &sql, told).await?;
        tracing::info!(name = migration.name, "undid a migration");
    }
    if target == 0 && from > 0 {
        client.batch_execute("DROP TABLE migrations").await?;
    }
    Ok(Migrated { from, to: target })
}

fn up(options: &Options, migration: &Migration) -> String {
    let Migration { number, name, up, .. } = migration;
    let settings = match *number {
        1 => format!("INSERT INTO settings (shards, bucket_ms) VALUES ({}, {BUCKET_MS})", options.shards),
        SEATS_SINCE => options.seat.taking(),
        _ => String::new(),
    };
    format!("{up}\n; {settings}; INSERT INTO migrations (number, name) VALUES ({number}, '{name}')")
}

/// Changes tables in a transaction. One that somebody has in use is waited for again and again, never for long: nodes at work
/// wait behind.
async fn step(
    client: &Client,
    options: &Options,
    migration: &Migration,
    sql: &str,
    told: Teller<'_>,
) -> Result<(), MigrateError> {
    let name = migration.name;
    let transaction =
        format!("BEGIN; SET LOCAL lock_timeout = {}; {sql}; COMMIT", options.table_lock.as_millis());
    let mut tries = interval(TRY_EVERY);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut left = options.migration_tries;
    loop {
        tries.tick().await;
        let Err(error) = client.batch_execute(&transaction).await else { return Ok(()) };
        if !error.code().is_some_and(|code| IN_USE.contains(code)) {
            return Err(error.into());
        }
        client.batch_execute("ROLLBACK").await?;
        let who = oldest(client).await?;
        left = left.saturating_sub(1);
        if left == 0 {
            return Err(MigrateError::InUse { name, who });
        }
        told(&format!("{name} waits for a table that is in use. {who}"));
    }
}

async fn oldest(client: &Client) -> Result<String, MigrateError> {
    let Some(row) = client.query_opt(OLDEST, &[]).await? else {
        return Ok("No transaction is open now".to_owned());
    };
    let (pid, name, seconds) =
        (row.try_get::<_, i32>(0)?, row.try_get::<_, String>(1)?, row.try_get::<_, i64>(2)?);
    Ok(format!("The oldest transaction, of process {pid} ({name}), has been open for {seconds} s"))
}

/// Makes the schema in an empty database; refuses one that is not this program's.
///
/// # Errors
/// When the database refuses, or has another schema.
pub(crate) async fn prepare(options: &Options) -> Result<(), MigrateError> {
    let client = connect(options).await?;
    match found(&client, options).await? {
        0 if options.makes_tables => migrate(options, SCHEMA_NUMBER).await.map(drop),
        0 => Err(MigrateError::Empty),
        SCHEMA_NUMBER => Ok(()),
        found if found > SCHEMA_NUMBER => Err(MigrateError::Newer { found }),
        found => Err(MigrateError::Older { found }),
    }
}
