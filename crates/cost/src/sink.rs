//! A server that delivers to nobody: an engine whose runner reports success at once. What is counted is everything a server
//! does for a job that is due, its claim and its outcome included, without the delivery.
//!
//! It is a process of its own, so that it can be counted alone. It talks to the one that measures over its pipes.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, ensure};
use clap::Args;
use tidewheel_core::cron::{Cron, Dst};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Finding, Job, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{
    Definition, Exclude, Misfire, NewSchedule, Overlap, Rule, ScheduleId, Template, Timing,
};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::SystemClock;
use tidewheel_server::engine::{Config, Deliver, Engine, Parts, Report, Reports};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::random::SystemRandom;
use tidewheel_store::{NodeCard, OnConflict, ScheduleCommand, ScheduleOrder, Store};
use tidewheel_store_embedded::EmbeddedStore;
use tidewheel_store_postgres::PostgresStore;

use crate::jobs;
use crate::stopwatch::{until, wall_now};

const ZONE: &str = "Europe/Berlin";
const SECOND_MS: i64 = 1_000;
/// Schedules stored at once.
const ORDERS_COUNT: u64 = 500;
/// How long before its time a herd must be there: the engine takes up what is due in the next two seconds.
const LEAD_MS: i64 = 3 * SECOND_MS;

/// It is there, and waits for a line.
pub(crate) const READY: &str = "ready";
/// It is too late: the instant has come, or nearly.
pub(crate) const LATE: &str = "late";
/// Everything has succeeded.
pub(crate) const DONE: &str = "done";

/// The flags of the hidden verb.
#[derive(Debug, Args)]
pub(crate) struct SinkArgs {
    /// The folder of the embedded store
    #[arg(long)]
    data: Option<PathBuf>,
    /// A database that takes its place
    #[arg(long)]
    store: Option<String>,
    /// Due jobs that are in the store
    #[arg(long, default_value_t = 0)]
    jobs: u64,
    /// Schedules to make, which all fire at one instant
    #[arg(long, default_value_t = 0)]
    schedules: u64,
    /// How far ahead that instant is
    #[arg(long, default_value_t = 0)]
    ahead_ms: i64,
}

/// Succeeds at once.
struct Sink(AtomicU64);

impl Deliver for Sink {
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports) {
        self.0.fetch_add(jobs.len() as u64, Ordering::SeqCst);
        let report = |job: Arc<Job>| {
            let command = Command::Succeed { token: job.status.token, finding: Finding::default() };
            Report { tenant: job.tenant.clone(), id: job.id, command }
        };
        reports.send_all(jobs.into_iter().map(report).collect());
    }

    fn abort(&self, _id: &JobId) {}
}

/// Is such a server, until stdin ends.
pub(crate) async fn run(args: SinkArgs) -> anyhow::Result<()> {
    let store = open(args.data.clone(), args.store.as_deref()).await?;
    let sink = Arc::new(Sink(AtomicU64::new(0)));
    let mut engine = None;
    let mut said = READY;
    if args.schedules > 0 {
        let started = start(&store, &sink).await?;
        let instant = Timestamp::from_ms((wall_now().as_ms() + args.ahead_ms) / SECOND_MS * SECOND_MS);
        herd(&started, args.schedules, instant).await?;
        engine = Some(started);
        if instant.since_ms(wall_now()) < LEAD_MS {
            said = LATE;
        }
    }
    say(said)?;
    heard().await?;
    let engine = match engine {
        Some(engine) => engine,
        None => start(&store, &sink).await?,
    };
    let count = args.jobs + args.schedules;
    until("jobs that have succeeded", async || {
        // The store is asked once nearly all is done: asking costs something as well.
        if sink.0.load(Ordering::SeqCst) < count {
            return Ok(None);
        }
        let done = store.counts(None).await?.of(State::Succeeded);
        Ok((done >= count).then_some(()))
    })
    .await?;
    say(DONE)?;
    heard().await?;
    drop(engine);
    Ok(())
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Waits for a line, or the end of what comes.
async fn heard() -> anyhow::Result<()> {
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    Ok(())
}

/// Opens a store as the server does.
pub(crate) async fn open(data: Option<PathBuf>, database: Option<&str>) -> anyhow::Result<Arc<dyn Store>> {
    if let Some(url) = database {
        return Ok(Arc::new(PostgresStore::open(tidewheel_store_postgres::Options::new(url)).await?));
    }
    let options = tidewheel_store_embedded::Options::new(data.context("--data or --store is missing")?);
    Ok(Arc::new(tokio::task::spawn_blocking(move || EmbeddedStore::open(options)).await??))
}

/// Stores due jobs, without a server.
pub(crate) async fn preload(store: &Arc<dyn Store>, count: u64, spread_ms: i64) -> anyhow::Result<()> {
    let (mut stored, now) = (0, wall_now());
    while stored < count {
        let size = (count - stored).min(jobs::BATCH_COUNT);
        let due = |number: u64| {
            let share =
                i64::try_from(stored + number).unwrap_or(0) * spread_ms / i64::try_from(count).unwrap_or(1);
            now.plus_ms(share - spread_ms)
        };
        let batch = (0..size).map(|number| jobs::submission(due(number), now)).collect();
        store.submit(now, batch, OnConflict::KeepOthers).await?;
        stored += size;
    }
    Ok(())
}

/// Without a bound on attempts under way, or a pace for what was due before: both would wait for the clock.
async fn start(store: &Arc<dyn Store>, sink: &Arc<Sink>) -> anyhow::Result<Engine> {
    const UNBOUNDED: usize = 1_000_000;
    let parts = Parts {
        store: Arc::clone(store),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        metrics: Arc::new(Metrics::new()),
        deliverer: Arc::clone(sink) as Arc<dyn Deliver>,
        zones: Zones::bundled(),
    };
    let config = Config {
        push_max: UNBOUNDED,
        push_per_host_max: UNBOUNDED,
        catch_up_per_second: 1_000_000,
        tenant_catch_up_per_second: 1_000_000,
        ..Config::default()
    };
    if store.leases().is_none() {
        return Ok(Engine::start(parts, config).await?);
    }
    let card =
        NodeCard { id: "node_cost".into(), address: "http://127.0.0.1:9".into(), version: "cost".into() };
    let engine = Engine::join(parts, config, card).await?;
    let shards = usize::from(store.layout().shards);
    until("all shards", async || Ok((engine.held().len() == shards).then_some(()))).await?;
    Ok(engine)
}

/// Makes schedules that fire at `instant`, and every hour after it.
async fn herd(engine: &Engine, count: u64, instant: Timestamp) -> anyhow::Result<()> {
    let second_of_hour = instant.as_ms() / SECOND_MS % 3_600;
    let cron = format!("{} {} * * * *", second_of_hour % 60, second_of_hour / 60);
    let job = jobs::submission(instant, instant).job;
    let definition = Definition {
        rule: Arc::new(Rule {
            timing: Timing::Cron(Box::new(Cron::parse(&cron).with_context(|| cron.clone())?)),
            zone: engine.zones().zone(ZONE)?,
            dst: Dst::default(),
            start_at: None,
            end_at: None,
            exclude: Exclude::default(),
        }),
        window_ms: 0,
        misfire: Misfire::default(),
        overlap: Overlap::Allow,
        template: Template {
            kind: Arc::clone(&job.spec.kind),
            payload: job.spec.payload.clone(),
            destination: job.spec.destination.clone(),
            priority: job.spec.priority,
            retry: job.spec.retry,
            timeout_ms: job.spec.timeout_ms,
            labels: Vec::new(),
        },
        idempotency_key: None,
        note: None,
    };
    let mut made = 0;
    while made < count {
        let size = (count - made).min(ORDERS_COUNT);
        let orders = (made..made + size).map(|number| creation(&definition, number)).collect();
        let answers = engine.edit_schedules(orders).await?;
        ensure!(answers.iter().all(Result::is_ok), "a schedule was refused");
        made += size;
    }
    Ok(())
}

fn creation(definition: &Definition, number: u64) -> ScheduleOrder {
    let (tenant, id) = (Tenant::default(), ScheduleId::from_bytes(u128::from(number + 1).to_be_bytes()));
    let mut definition = definition.clone();
    definition.template.payload = jobs::payload().into();
    let new = NewSchedule { id, tenant: tenant.clone(), name: None, definition, paused: false };
    ScheduleOrder {
        tenant,
        id,
        if_version: None,
        command: ScheduleCommand::Create { new: Box::new(new), fresh: true },
        key: None,
    }
}
