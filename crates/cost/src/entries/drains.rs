//! What the server does by itself: for jobs that are due, and for schedules.

use std::ffi::OsString;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use tidewheel_api::client::Client;
use tidewheel_api::worker::{self, Failure, Worker, WorkerConfig};
use tidewheel_core::time::Timestamp;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::calls::batch_call;
use crate::costs::Costs;
use crate::jobs::{self, BATCH_COUNT, Goes, QUEUE};
use crate::sink::{self, DONE, READY};
use crate::site::{Ground, Site, Subject, until_succeeded};
use crate::stopwatch::{PATIENCE, wall_now};
use crate::target::Target;
use crate::watched::{Program, Watched};

const SINK_COUNT: u64 = 1_000;
const WORKER_COUNT: u64 = 500;
const TARGET_COUNT: u64 = 500;
const SCHEDULES_COUNT: u64 = 500;
/// Jobs that are drained before anything is counted.
const WARM_COUNT: u64 = 50;
/// Due jobs are spread over this much time before now, as a backlog is.
const BACKLOG_MS: i64 = 20_000;
/// How far ahead what is to be counted falls due at first. A machine that takes longer to prepare it is given more.
const AHEAD_MS: i64 = 8_000;
const TRIES_MAX: u32 = 5;
/// A window must begin that long before: the engine takes up what is due in the next two seconds.
const LEAD_MS: i64 = 2_500;

pub(super) async fn to_sink(subject: &Subject) -> anyhow::Result<Costs> {
    let ground = Ground::make(subject).await?;
    let database = ground.database.as_ref().map(|database| database.url());
    let store = sink::open(Some(ground.data()), database).await?;
    sink::preload(&store, SINK_COUNT, BACKLOG_MS).await?;
    store.close().await?;
    drop(store);
    let flags = ["--jobs".into(), SINK_COUNT.to_string().into()];
    drain(ground, flags.into(), SINK_COUNT).await?.context("due jobs are never late")
}

pub(super) async fn firings(subject: &Subject) -> anyhow::Result<Costs> {
    let mut ahead_ms = AHEAD_MS;
    for _ in 0..TRIES_MAX {
        let ground = Ground::make(subject).await?;
        let flags = ["--schedules", &SCHEDULES_COUNT.to_string(), "--ahead-ms", &ahead_ms.to_string()];
        let flags = flags.map(OsString::from).to_vec();
        if let Some(costs) = drain(ground, flags, SCHEDULES_COUNT).await? {
            return Ok(costs);
        }
        ahead_ms *= 2;
    }
    bail!("the schedules could not be stored before their instant: this machine is too busy")
}

/// Has the sink do what its flags say; nothing if it was not there in time.
async fn drain(ground: Ground, flags: Vec<OsString>, count: u64) -> anyhow::Result<Option<Costs>> {
    let mut arguments: Vec<OsString> = vec!["sink".into()];
    arguments.extend(ground.flags());
    arguments.extend(flags);
    let program = Program { path: std::env::current_exe()?, arguments, talks: true };
    let mut process = Watched::start(&program, ground.folder.path())?;
    let mut said = Talk::with(&mut process)?;
    let address = ([127, 0, 0, 1], 0).into();
    let mut site = Site::new(ground, process, address);
    if said.hear(&mut site).await? != READY {
        site.stop().await?;
        return Ok(None);
    }
    site.begin().await?;
    said.stdin.write_all(b"go\n").await?;
    let answer = said.hear(&mut site).await?;
    ensure!(answer == DONE, "the sink said {answer:?}");
    let busy = site.end(count).await?;
    let calm = site.calm().await?;
    site.stop().await?;
    Ok(Some(busy.per_job(&calm)))
}

/// The pipes of the sink.
struct Talk {
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talk {
    fn with(process: &mut Watched) -> anyhow::Result<Self> {
        let stdin = process.child.stdin.take().context("a sink without stdin")?;
        let stdout = process.child.stdout.take().context("a sink without stdout")?;
        Ok(Self { stdin, lines: BufReader::new(stdout).lines() })
    }

    async fn hear(&mut self, site: &mut Site) -> anyhow::Result<String> {
        let line =
            tokio::time::timeout(PATIENCE, self.lines.next_line()).await.context("the sink hangs")??;
        if line.is_none() {
            let folder = site.ground.folder.path().to_owned();
            site.process.child.wait().await?;
            site.process.must_run(&folder)?;
        }
        line.context("the sink ended")
    }
}

pub(super) async fn to_worker(site: &mut Site) -> anyhow::Result<Costs> {
    const TENANT: &str = "drain-worker";
    let (count, handled) = watch::channel(0_u64);
    let tenant = Some(TENANT.to_owned());
    let config = WorkerConfig { concurrency: 100, tenant, ..WorkerConfig::new(site.url(), QUEUE) };
    let mut worker = Worker::connect(config).await?;
    worker.handle_any(move |_: worker::Context, _: Bytes| {
        count.send_modify(|handled| *handled += 1);
        async move { Ok::<_, Failure>(Bytes::new()) }
    });
    let stopper = worker.stopper();
    let working = tokio::spawn(worker.run());
    let costs = at_once(site, TENANT, Goes::ToQueue, WORKER_COUNT, handled).await?;
    stopper.drain();
    tokio::time::timeout(PATIENCE, working).await.context("a worker that does not end")???;
    Ok(costs)
}

pub(super) async fn to_target(site: &mut Site) -> anyhow::Result<Costs> {
    let target = Target::listen().await?;
    at_once(site, "drain-target", Goes::ToTarget(&target.url()), TARGET_COUNT, target.seen()).await
}

/// Counts what it takes to deliver that many jobs which fall due at one instant.
async fn at_once(
    site: &mut Site,
    tenant: &str,
    goes: Goes<'_>,
    count: u64,
    mut delivered: watch::Receiver<u64>,
) -> anyhow::Result<Costs> {
    let client = site.client(Some(tenant))?;
    let (mut stored, mut ahead_ms) = (WARM_COUNT, AHEAD_MS);
    load(&client, goes, WARM_COUNT, wall_now()).await?;
    until_delivered(&mut delivered, stored).await?;
    for _ in 0..TRIES_MAX {
        let due = wall_now().plus_ms(ahead_ms);
        load(&client, goes, count, due).await?;
        stored += count;
        site.begin().await?;
        let in_time = due.since_ms(wall_now()) >= LEAD_MS;
        until_delivered(&mut delivered, stored).await?;
        until_succeeded(&client, stored).await?;
        let busy = site.end(count).await?;
        if in_time {
            return Ok(busy.per_job(&site.calm().await?));
        }
        ahead_ms *= 2;
    }
    bail!("the jobs could not be stored before their time: this machine is too busy")
}

async fn until_delivered(delivered: &mut watch::Receiver<u64>, count: u64) -> anyhow::Result<()> {
    let came = tokio::time::timeout(PATIENCE, delivered.wait_for(|delivered| *delivered >= count)).await;
    ensure!(matches!(came, Ok(Ok(_))), "not all of {count} jobs were delivered");
    Ok(())
}

/// Stores that many jobs.
async fn load(client: &Client, goes: Goes<'_>, count: u64, due: Timestamp) -> anyhow::Result<()> {
    let mut stored = 0;
    while stored < count {
        let size = (count - stored).min(BATCH_COUNT);
        client.send(&batch_call(jobs::json_batch(goes, due, size))).await?;
        stored += size;
    }
    Ok(())
}
