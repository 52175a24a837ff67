//! Recurring schedules: how fast they are made, what many of them cost, and the herd at the top of the hour, when all
//! fire at once and every next occurrence is stored with its claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tidewheel_core::cron::{Cron, Dst};
use tidewheel_core::job::State;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{
    Definition, Exclude, Misfire, NewSchedule, Overlap, Rule, ScheduleId, Template, Timing, Zone,
};
use tidewheel_core::time::Timestamp;
use tidewheel_server::engine::{Config, Deliver};
use tidewheel_store::{ScheduleCommand, ScheduleOrder};
use tokio::task::JoinSet;

use super::drain_sink;
use crate::Bench;
use crate::figures::{Figure, Meter, Rate, number};
use crate::jobs;
use crate::plan::{BATCH_CONNECTIONS, BATCH_COUNT, REST_MS};
use crate::process::{disk_bytes, resident_bytes};
use crate::sink::Sink;
use crate::stopwatch::{pause, wall_now};
use crate::subject::{Subject, Sync, open_store, start_engine, until_succeeded};

const FOLDER: &str = "schedules";
const HERD_FOLDER: &str = "schedules-herd";
/// Each try gives the schedules twice the time of the one before to be stored.
const TRIES_MAX: u32 = 4;
/// Different requests, sent in turn.
const REQUESTS: usize = 8;
const ZONE: &str = "Europe/Berlin";
const MB: f64 = 1e6;
const SECOND_MS: i64 = 1_000;

/// Makes many over HTTP.
pub(super) async fn many(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let count = bench.plan.schedules;
    let subject = Subject::start_own(bench, FOLDER, Sync::On, Config::default()).await?;
    // What a server takes for being used at all comes with the first tenth.
    let first = count.div_ceil(10);
    create(bench, &subject, first).await?;
    let few = resident_bytes()?;
    let rate = create(bench, &subject, count - first).await?;
    let all = resident_bytes()?;
    subject.stop().await?;
    let disk = disk_bytes(&bench.scratch.folder(FOLDER))?;
    bench.scratch.clear(FOLDER);
    let what = |which: &str| format!("{count} schedules: {which}");
    Ok(vec![
        Figure::rate("schedules.create", what(&format!("made, {BATCH_COUNT} a request")), rate),
        Figure::new("schedules.disk", what("on disk"), number(disk) / number(count), "bytes/schedule"),
        Figure::new("schedules.memory.few", what("resident memory after a tenth"), number(few) / MB, "MB"),
        Figure::new("schedules.memory", what("resident memory after all"), number(all) / MB, "MB"),
    ])
}

/// Makes that many, over a few connections that take turns.
async fn create(bench: &Bench, subject: &Subject, count: u64) -> anyhow::Result<Rate> {
    let requests: Arc<Vec<Vec<u8>>> =
        Arc::new((0..REQUESTS).map(|_| subject.create_schedules(&json_batch())).collect());
    let batches = count.div_ceil(BATCH_COUNT as u64);
    let begun = Arc::new(AtomicU64::new(0));
    let meter = Meter::start()?;
    let mut senders = JoinSet::new();
    for _ in 0..BATCH_CONNECTIONS {
        let mut connection = subject.connect().await?;
        let (requests, begun, progress) = (Arc::clone(&requests), Arc::clone(&begun), bench.progress.clone());
        senders.spawn(async move {
            for request in requests.iter().cycle() {
                let batch = begun.fetch_add(1, Ordering::Relaxed);
                if batch >= batches {
                    break;
                }
                connection.must(request).await?;
                progress.count("making schedules", (batch + 1) * BATCH_COUNT as u64, count);
            }
            anyhow::Ok(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    meter.stop(batches * BATCH_COUNT as u64)
}

/// Schedules that do not fire while the benchmark runs, unless it runs on the first of July.
fn json_batch() -> String {
    let schedule = || {
        let (minute, hour) = (jobs::next_number() % 60, jobs::next_number() % 24);
        let rest = jobs::json(&jobs::to_target(jobs::NOWHERE), None);
        let rest = rest.trim_start_matches('{');
        format!(r#"{{"cron_expr":"{minute} {hour} 1 7 *","timezone":"{ZONE}",{rest}"#)
    };
    format!("[{}]", (0..BATCH_COUNT).map(|_| schedule()).collect::<Vec<_>>().join(","))
}

/// All of them due at one instant, in turn with jobs that are due.
pub(super) async fn herd(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let mut ahead_ms = bench.plan.herd_ahead_ms + REST_MS;
    let (mut sink, mut herd) = (Vec::new(), Vec::new());
    for _ in 0..bench.plan.rounds {
        sink.push(drain_sink::fresh(bench).await?);
        herd.push(in_time(bench, &mut ahead_ms).await?);
    }
    let count = bench.plan.herd_schedules;
    let what = format!("herd of {count} schedules at one instant, each next occurrence stored");
    Ok(vec![
        Figure::rates(
            "schedules.sink",
            "drain of due jobs to a sink, in turn with herds of schedules",
            &sink,
        )?,
        Figure::rates("schedules.herd", what, &herd)?,
    ])
}

/// A herd that is stored before its instant, which is as far ahead as that takes.
async fn in_time(bench: &Bench, ahead_ms: &mut i64) -> anyhow::Result<Rate> {
    for _ in 0..TRIES_MAX {
        if let Some(rate) = stampede(bench, *ahead_ms).await? {
            return Ok(rate);
        }
        *ahead_ms *= 2;
    }
    bail!("the schedules could not be stored before their instant: this machine is too busy to tell")
}

/// `None` when the instant came before all schedules were stored and the store stood still again.
async fn stampede(bench: &Bench, ahead_ms: i64) -> anyhow::Result<Option<Rate>> {
    let count = bench.plan.herd_schedules;
    let store = open_store(bench, HERD_FOLDER).await?;
    let sink: Arc<dyn Deliver> = Arc::new(Sink::new()?);
    let engine = start_engine(&store, sink).await?;
    let instant = Timestamp::from_ms((wall_now().as_ms() + ahead_ms) / SECOND_MS * SECOND_MS);
    let definition = hourly(instant, engine.zones().zone(ZONE)?)?;
    let mut made = 0;
    while made < count {
        let size = (count - made).min(BATCH_COUNT as u64);
        let orders = (0..size).map(|_| creation(&definition)).collect();
        let answers = engine.edit_schedules(orders).await?;
        ensure!(answers.iter().all(Result::is_ok), "a schedule was refused");
        made += size;
        bench.progress.count("storing a herd of schedules", made, count);
    }
    engine.drain(Duration::from_secs(1)).await;
    store.close().await?;
    drop((engine, store));
    // Opened again, as for the drain it is compared with, so that nothing is left to be done for what was stored.
    let store = open_store(bench, HERD_FOLDER).await?;
    let sink: Arc<dyn Deliver> = Arc::new(Sink::new()?);
    let engine = start_engine(&store, sink).await?;
    let left_ms = instant.since_ms(wall_now());
    let in_time = left_ms >= REST_MS;
    let mut rate = None;
    if in_time {
        pause(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))).await;
        let meter = Meter::start()?;
        until_succeeded(bench, &store, count).await?;
        rate = Some(meter.stop(count)?);
        let next = store.counts(None).await?.of(State::Scheduled);
        ensure!(next == count, "{next} of {count} next occurrences are stored");
    }
    engine.drain(Duration::from_secs(1)).await;
    store.close().await?;
    drop((engine, store));
    bench.scratch.clear(HERD_FOLDER);
    Ok(rate)
}

/// Fires at `instant`, and every hour after it.
fn hourly(instant: Timestamp, zone: Zone) -> anyhow::Result<Definition> {
    let second_of_hour = instant.as_ms() / SECOND_MS % 3_600;
    let cron = format!("{} {} * * * *", second_of_hour % 60, second_of_hour / 60);
    let job = jobs::submission(&jobs::push(jobs::NOWHERE), instant, instant).job;
    Ok(Definition {
        rule: Arc::new(Rule {
            timing: Timing::Cron(Box::new(Cron::parse(&cron).with_context(|| cron.clone())?)),
            zone,
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
    })
}

fn creation(definition: &Definition) -> ScheduleOrder {
    let id = (u128::from(jobs::next_number()) << 64) | u128::from(jobs::next_number());
    let (tenant, id) = (Tenant::default(), ScheduleId::from_bytes(id.to_be_bytes()));
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
