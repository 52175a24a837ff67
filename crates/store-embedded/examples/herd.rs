//! Measures the herd at the top of the hour: schedules that are all due at once, claimed and finished with their next
//! occurrences stored, against one-shot jobs drained in the same run: `herd [count] [folder]`.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark")]

use std::sync::Arc;
use std::time::Instant;

use tidewheel_core::cron::{Cron, Dst};
use tidewheel_core::job::{Command, Finding, Job};
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::schedule::{
    Definition, Exclude, Misfire, NewSchedule, Overlap, Rule, ScheduleId, Template, Timing, Zone,
};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Due, OnConflict, Order, ScheduleCommand, ScheduleOrder, Schedules, Store, Submission};
use tidewheel_store_embedded::{EmbeddedStore, Options, bare};

/// The one the program uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: u64 = 1_000;
const PAYLOAD: usize = 128;
const TASKS: u64 = 4;
const HOUR_MS: i64 = 3_600_000;
const START: Timestamp = Timestamp::from_ms(500_000 * HOUR_MS);

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().map_or(200_000, |text| text.parse().unwrap());
    let folder = arguments.next().unwrap_or_else(|| "/tmp/tidewheel-herd".to_owned());
    drop(std::fs::remove_dir_all(&folder));
    let store = Arc::new(EmbeddedStore::open(Options::new(&folder)).unwrap());
    let epoch = store.open_epoch().await.unwrap();

    let shot_at = START.plus_ms(-HOUR_MS);
    let started = start();
    each_batch(count, &store, move |store, numbers| async move {
        let jobs =
            numbers.map(|n| Submission { job: one_shot(n, shot_at), key: None, fresh: true }).collect();
        store.submit(shot_at, jobs, OnConflict::KeepOthers).await.unwrap();
    })
    .await;
    show("one-shot submit", count, started);
    let started = start();
    drain(&store, epoch, shot_at, count).await;
    let one_shot_ms = show("one-shot drain", count, started);

    let template = Arc::new(definition());
    let started = start();
    each_batch(count, &store, move |store, numbers| {
        let template = Arc::clone(&template);
        async move {
            let orders = numbers.map(|n| creation(n, &template)).collect();
            let made = store.edit_schedules(START.plus_ms(-1_000), orders).await.unwrap();
            assert!(made.iter().all(Result::is_ok));
        }
    })
    .await;
    show("create schedules", count, started);
    for hour in 0..3 {
        let started = start();
        drain(&store, epoch, START.plus_ms(hour * HOUR_MS), count).await;
        let herd_ms = show("herd drain", count, started);
        println!("                 {} % of the one-shot rate", one_shot_ms * 100 / herd_ms.max(1));
    }
    println!("disk bytes per schedule: {}", store.disk_bytes().unwrap() / count);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default());
    store.close().await.unwrap();
}

async fn each_batch<F>(
    count: u64,
    store: &Arc<EmbeddedStore>,
    act: impl Fn(Arc<EmbeddedStore>, std::ops::Range<u64>) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (store, act) = (Arc::clone(store), act.clone());
            tokio::spawn(async move {
                for batch in (0..count / BATCH).filter(|batch| batch % TASKS == task) {
                    act(Arc::clone(&store), batch * BATCH..(batch + 1) * BATCH).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn one_shot(n: u64, at: Timestamp) -> Job {
    let sample = bare::sample(n, PAYLOAD);
    Job::new(sample.tenant.clone(), (*sample.spec).clone(), at, mix(n))
}

fn mix(n: u64) -> u128 {
    u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

fn definition() -> Definition {
    let spec = bare::sample(0, PAYLOAD).spec;
    Definition {
        rule: Arc::new(Rule {
            timing: Timing::Cron(Box::new(Cron::parse("0 * * * *").unwrap())),
            zone: Zone::named(&jiff::tz::TimeZoneDatabase::bundled(), "Europe/Berlin").unwrap(),
            dst: Dst::default(),
            start_at: None,
            end_at: None,
            exclude: Exclude::default(),
        }),
        window_ms: 0,
        misfire: Misfire::default(),
        overlap: Overlap::Allow,
        template: Template {
            kind: spec.kind.clone(),
            payload: spec.payload.clone(),
            destination: spec.destination.clone(),
            priority: spec.priority,
            retry: spec.retry,
            timeout_ms: spec.timeout_ms,
            labels: Vec::new(),
        },
        idempotency_key: None,
        note: None,
    }
}

fn creation(n: u64, template: &Definition) -> ScheduleOrder {
    let (tenant, id) = (bare::sample(n, 0).tenant, ScheduleId::from_bytes(mix(n + 1).to_be_bytes()));
    let new =
        NewSchedule { id, tenant: tenant.clone(), name: None, definition: template.clone(), paused: false };
    let command = ScheduleCommand::Create { new: Box::new(new), fresh: true };
    ScheduleOrder { tenant, id, if_version: None, command, key: None }
}

/// Claims and finishes everything that is due at `at`.
async fn drain(store: &Arc<EmbeddedStore>, epoch: u64, at: Timestamp, count: u64) {
    let mut tenants: Vec<_> = (0..64).map(|n| bare::sample(n, 0).tenant).collect();
    tenants.sort();
    tenants.dedup();
    let tasks: Vec<_> = tenants
        .chunks(tenants.len().div_ceil(usize::try_from(TASKS).unwrap()))
        .map(|tenants| {
            let (store, tenants) = (Arc::clone(store), tenants.to_vec());
            tokio::spawn(async move {
                let mut done = 0;
                for tenant in tenants {
                    let shard = Shard::of(&tenant, store.layout().shards);
                    let mut after = None;
                    loop {
                        let due = Due {
                            shard,
                            bucket: Bucket::of(at),
                            tenant: tenant.clone(),
                            after,
                            until: at,
                            count_max: 1_000,
                            bytes_max: usize::MAX,
                        };
                        let page = store.due(due).await.unwrap();
                        done += run(&store, epoch, at, page.jobs).await;
                        after = page.resume;
                        if after.is_none() {
                            break;
                        }
                    }
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    assert_eq!(done, count);
}

async fn run(store: &EmbeddedStore, epoch: u64, now: Timestamp, jobs: Vec<Arc<Job>>) -> u64 {
    let claim = Command::Claim { epoch, worker: "bench".into(), lease_ms: 30_000, detached: false };
    let orders = jobs.iter().map(|job| order(job, claim.clone())).collect();
    let claimed = store.apply(now, Some(epoch), orders).await.unwrap();
    let orders = claimed
        .iter()
        .map(|applied| {
            let job = &applied.as_ref().unwrap().job;
            order(job, Command::Succeed { token: job.status.token, finding: Finding::default() })
        })
        .collect();
    u64::try_from(store.apply(now, None, orders).await.unwrap().len()).unwrap()
}

fn order(job: &Job, command: Command) -> Order {
    Order { tenant: job.tenant.clone(), id: job.id, command, key: None }
}

fn show(what: &str, count: u64, (started, cpu_before): (Instant, u64)) -> u64 {
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap().max(1);
    let cpu_us = cpu_us() - cpu_before;
    println!(
        "{what:<16} {:>9} per second ({ms} ms), {} us of CPU each",
        count * 1_000 / ms,
        cpu_us / count.max(1)
    );
    ms
}

/// Now, and the CPU time of all threads so far.
fn start() -> (Instant, u64) {
    (Instant::now(), cpu_us())
}

fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10_000
}
