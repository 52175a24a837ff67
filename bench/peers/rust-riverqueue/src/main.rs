//! River for Rust under the load of `bench/peers/run`: jobs are submitted one by one, then in
//! batches, and these are drained by one worker with a handler that does nothing. Prints one line
//! of JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use riverqueue::migrate::PostgresMigrator;
use riverqueue::{BoxError, Client, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

const USAGE: &str = "--url postgres://… [--jobs 200000] [--payload 200] [--batch 1000] \
     [--submitters 4] [--callers 1,20,50] [--single-seconds 5] [--concurrency 2000] [--poll-ms 10] \
     [--connections 20] [--patience 300]; no jobs or no seconds leave that part out";

#[derive(Clone, Debug, Serialize, Deserialize, JobArgs)]
#[river(kind = "nothing")]
struct Nothing {
    data: String,
}

struct Flags {
    url: String,
    jobs: u64,
    payload: usize,
    batch: u64,
    submitters: usize,
    callers: Vec<u64>,
    single_time: Duration,
    concurrency: usize,
    poll: Duration,
    connections: u32,
    patience: Duration,
}

impl Flags {
    fn read() -> anyhow::Result<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let mut given = BTreeMap::new();
        for pair in words.chunks(2) {
            match pair {
                [name, value] if name.starts_with("--") => given.insert(name.as_str(), value.as_str()),
                _ => bail!("usage: {USAGE}"),
            };
        }
        let callers = given.remove("--callers").unwrap_or("1,20,50").split(',');
        let callers = callers.map(str::parse).collect::<Result<Vec<u64>, _>>().context("--callers")?;
        let mut number = |name: &str, usual: u64| match given.remove(name) {
            Some(text) => text.parse().with_context(|| format!("{name} {text}")),
            None => Ok(usual),
        };
        let flags = Self {
            jobs: number("--jobs", 200_000)?,
            payload: usize::try_from(number("--payload", 200)?)?,
            batch: number("--batch", 1_000)?.max(1),
            submitters: usize::try_from(number("--submitters", 4)?)?,
            callers,
            single_time: Duration::from_secs(number("--single-seconds", 5)?),
            concurrency: usize::try_from(number("--concurrency", 2_000)?)?,
            poll: Duration::from_millis(number("--poll-ms", 10)?),
            connections: u32::try_from(number("--connections", 20)?)?,
            patience: Duration::from_secs(number("--patience", 300)?),
            url: given.remove("--url").context("--url is missing")?.to_owned(),
        };
        match given.keys().next() {
            Some(unknown) => bail!("{unknown} is unknown; usage: {USAGE}"),
            None => Ok(flags),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags = Arc::new(Flags::read()?);
    let server = PgPoolOptions::new().max_connections(1).connect(&flags.url).await;
    let server = server.context("connecting to PostgreSQL")?;
    let mut result = BTreeMap::new();
    result.insert("peer".to_owned(), json!("River (Rust)"));
    result.insert("version".to_owned(), json!(version()));
    if !flags.single_time.is_zero() {
        for &callers in &flags.callers {
            let database = Database::create(&flags, &server).await?;
            let rate = unless_stopped(single(&flags, &database.pool, callers)).await;
            database.remove(&server).await?;
            result.insert(format!("single_{callers}_per_s"), json!(rate?.round()));
        }
    }
    if flags.jobs > 0 {
        let database = Database::create(&flags, &server).await?;
        let measured = unless_stopped(bulk(&flags, &database.pool)).await;
        database.remove(&server).await?;
        result.extend(measured?);
    }
    println!("{}", serde_json::to_string(&result)?);
    Ok(())
}

/// A database of its own, with River's tables in it.
struct Database {
    name: String,
    pool: PgPool,
}

impl Database {
    async fn create(flags: &Flags, server: &PgPool) -> anyhow::Result<Self> {
        let name = format!("peer_river_rust_{}", std::process::id());
        run(server, format!("CREATE DATABASE {name}")).await?;
        let options: PgConnectOptions = flags.url.parse()?;
        let pool = PgPoolOptions::new().max_connections(flags.connections);
        let pool = pool.connect_with(options.database(&name)).await?;
        PostgresMigrator::new(pool.clone()).migrate_up().await?;
        Ok(Self { name, pool })
    }

    async fn remove(self, server: &PgPool) -> anyhow::Result<()> {
        self.pool.close().await;
        run(server, format!("DROP DATABASE {} WITH (FORCE)", self.name)).await
    }
}

/// Ends work early when the program is asked to end, so that its database is still dropped.
async fn unless_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut stop = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = stop.recv() => bail!("interrupted"),
    }
}

async fn run(server: &PgPool, statement: String) -> anyhow::Result<()> {
    sqlx::query(AssertSqlSafe(statement)).execute(server).await?;
    Ok(())
}

/// How many jobs a second are stored that many callers submit one by one.
async fn single(flags: &Arc<Flags>, pool: &PgPool, callers: u64) -> anyhow::Result<f64> {
    let client = Client::builder(pool.clone()).build()?;
    let seeds = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut under_way: JoinSet<anyhow::Result<i64>> = JoinSet::new();
    for _ in 0..callers {
        let (flags, client, seeds) = (Arc::clone(flags), client.clone(), Arc::clone(&seeds));
        under_way.spawn(async move {
            let mut stored = 0;
            while start.elapsed() < flags.single_time {
                let number = seeds.fetch_add(1, Ordering::Relaxed);
                client.insert(Nothing { data: data(number, flags.payload) }).await?;
                stored += 1;
            }
            Ok(stored)
        });
    }
    let mut stored = 0;
    while let Some(caller) = under_way.join_next().await {
        stored += caller??;
    }
    let took = start.elapsed();
    let rows = count(pool, "true").await?;
    ensure!(rows == stored, "{stored} jobs were submitted, the database has {rows}");
    Ok(stored as f64 / took.as_secs_f64())
}

/// How fast jobs are submitted in batches, and drained.
async fn bulk(flags: &Flags, pool: &PgPool) -> anyhow::Result<BTreeMap<String, serde_json::Value>> {
    let submitted = submit(flags, pool).await?;
    let stored = count(pool, "state = 'available'").await?;
    let (drained, done) = drain(flags, pool).await?;
    let per_second = |took: Duration| json!((flags.jobs as f64 / took.as_secs_f64()).round());
    Ok(BTreeMap::from([
        ("submit_per_s".to_owned(), per_second(submitted)),
        ("drain_per_s".to_owned(), per_second(drained)),
        ("stored".to_owned(), json!(stored)),
        ("done".to_owned(), json!(done)),
    ]))
}

/// Adds all jobs, due at once, in batches. They are made beforehand.
async fn submit(flags: &Flags, pool: &PgPool) -> anyhow::Result<Duration> {
    let client = Client::builder(pool.clone()).build()?;
    let all: Vec<Nothing> =
        (0..flags.jobs).map(|number| Nothing { data: data(number, flags.payload) }).collect();
    let mut batches: Vec<Vec<Nothing>> =
        all.chunks(usize::try_from(flags.batch)?).map(<[Nothing]>::to_vec).collect();
    let start = Instant::now();
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < flags.submitters
            && let Some(batch) = batches.pop()
        {
            let client = client.clone();
            under_way.spawn(async move { client.insert_many::<Nothing, _>(batch).await.map(drop) });
        }
        match under_way.join_next().await {
            Some(added) => added??,
            None => break,
        }
        ensure!(start.elapsed() < flags.patience, "adding jobs took too long");
    }
    Ok(start.elapsed())
}

/// How long one worker takes until the database has all jobs as completed, and how many it has.
async fn drain(flags: &Flags, pool: &PgPool) -> anyhow::Result<(Duration, i64)> {
    let handled = Arc::new(AtomicU64::new(0));
    let mut workers = Workers::new();
    let counter = Arc::clone(&handled);
    workers.add_fn(move |_: WorkContext, _: Job<Nothing>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, BoxError>(WorkOutcome::Complete) }
    })?;
    let queue = QueueConfig::new(flags.concurrency);
    let queue = queue.with_fetch_cooldown(flags.poll).with_fetch_poll_interval(flags.poll);
    let client = Client::builder(pool.clone()).workers(workers).queue("default", queue).build()?;
    let all = i64::try_from(flags.jobs)?;
    let start = Instant::now();
    let mut working = client.start()?;
    let done = loop {
        // The table is only asked once the handlers have run: counting it costs the database.
        if handled.load(Ordering::Relaxed) >= flags.jobs {
            let done = count(pool, "state = 'completed'").await?;
            if done >= all {
                break done;
            }
        }
        if start.elapsed() > flags.patience {
            bail!("only {} jobs were done in time", handled.load(Ordering::Relaxed));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let took = start.elapsed();
    let ended = tokio::time::timeout(Duration::from_secs(30), working.stop());
    ended.await.context("the worker does not end")??;
    Ok((took, done))
}

async fn count(pool: &PgPool, which: &str) -> anyhow::Result<i64> {
    let statement = format!("SELECT count(*) FROM river_job WHERE {which}");
    Ok(sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(pool).await?)
}

/// Digits that do not compress, so many that the whole payload has the size.
fn data(number: u64, payload: usize) -> String {
    let wanted = payload.saturating_sub(r#"{"data":""}"#.len());
    let mut text = String::with_capacity(wanted + 16);
    let mut seed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while text.len() < wanted {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        text.push_str(&format!("{seed:016x}"));
    }
    text.truncate(wanted);
    text
}

/// The version of the package, as it was resolved.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains("name = \"riverqueue\"\n"));
    let line = entry.and_then(|entry| entry.lines().find_map(|line| line.strip_prefix("version = ")));
    line.unwrap_or("unknown").trim_matches('"')
}
