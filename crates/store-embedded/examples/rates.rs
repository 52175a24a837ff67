//! Measures the store against its bare engine: `rates [jobs] [folder] [store-only]`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a benchmark"
)]

use std::path::Path;
use std::sync::Arc;

use tidewheel_core::job::{Command, Finding, Job, Status};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Due, OnConflict, Order, Store, Submission};
use tidewheel_store_embedded::bare::{self, Rates};
use tidewheel_store_embedded::{EmbeddedStore, Options};

const BATCH: u64 = 1_000;
const PAYLOAD: usize = 128;
const TASKS: u64 = 4;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let jobs: u64 = arguments.next().map_or(500_000, |text| text.parse().unwrap());
    let folder = arguments.next().unwrap_or_else(|| "/tmp/tidewheel-rates".to_owned());
    let folder = Path::new(&folder);
    drop(std::fs::remove_dir_all(folder));
    let (bare_folder, store_folder) = (folder.join("bare"), folder.join("store"));

    let nothing = (Rates { jobs: 1, elapsed: std::time::Duration::from_secs(1), disk_bytes: 0 }, 1);
    let (bare_ingest, bare_drain) = if arguments.next().is_some_and(|text| text == "store-only") {
        (nothing, nothing)
    } else {
        bare(&bare_folder, jobs)
    };

    let store = Arc::new(EmbeddedStore::open(Options::new(&store_folder)).unwrap());
    let before = cpu_us();
    let rates = submit(&store, jobs).await;
    show("store submit", (rates, cpu_us() - before), bare_ingest);
    let clock = std::time::Instant::now;
    store.close().await.unwrap();
    drop(store);
    let started = clock();
    let store = Arc::new(EmbeddedStore::open(Options::new(&store_folder)).unwrap());
    println!("reopen         {:>9.2?}", started.elapsed());
    let started = clock();
    let counts = store.counts(None).await.unwrap();
    println!("counts         {:>9.2?}  {counts:?}", started.elapsed());
    let before = cpu_us();
    let rates = drain(&store, jobs).await;
    show("store drain", (rates, cpu_us() - before), bare_drain);
    let from = Bucket::of(bare::sample(0, 0).id.run_at());
    for _ in 0..2 {
        let started = clock();
        let next = store.next_bucket(Shard(0), Bucket(from.0 - 200), Bucket(from.0 + 200)).await.unwrap();
        println!("next_bucket over what was drained {:>9.2?} {next:?}", started.elapsed());
    }
    store.close().await.unwrap();
    println!("resident memory, most: {}", memory());
}

fn bare(folder: &Path, jobs: u64) -> ((Rates, u64), (Rates, u64)) {
    let before = cpu_us();
    let ingest = bare::ingest(folder, (jobs, std::time::Duration::MAX), 1_000, PAYLOAD, true).unwrap();
    let ingest = (ingest, cpu_us() - before);
    show("bare ingest", ingest, ingest);
    let before = cpu_us();
    let drain = bare::drain(folder, std::time::Duration::ZERO, 1_000, PAYLOAD, true).unwrap();
    let drain = (drain, cpu_us() - before);
    show("bare drain", drain, drain);
    (ingest, drain)
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned()
}

async fn submit(store: &Arc<EmbeddedStore>, jobs: u64) -> Rates {
    let started = std::time::Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let template = bare::sample(0, PAYLOAD);
                let tenants: Vec<_> = (0..16).map(|n| bare::sample(n, 0).tenant).collect();
                for batch in (0..jobs / BATCH).filter(|batch| batch % TASKS == task) {
                    let jobs = (batch * BATCH..(batch + 1) * BATCH)
                        .map(|n| Submission { job: like(&template, &tenants, n), key: None, fresh: true })
                        .collect();
                    let answers = store.submit(template.spec.created_at, jobs, OnConflict::KeepOthers).await;
                    assert_eq!(answers.unwrap().len(), 1_000);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    Rates { jobs, elapsed: started.elapsed(), disk_bytes: store.disk_bytes().unwrap() }
}

/// The n-th job, without making its payload again.
fn like(template: &Job, tenants: &[Tenant], n: u64) -> Job {
    let id = bare::sample_id(n);
    Job {
        id,
        tenant: tenants[usize::try_from(n).unwrap() % tenants.len()].clone(),
        spec: Arc::clone(&template.spec),
        status: Status::scheduled(id.run_at()),
    }
}

async fn drain(store: &Arc<EmbeddedStore>, jobs: u64) -> Rates {
    let epoch = store.open_epoch().await.unwrap();
    let started = std::time::Instant::now();
    let first = Bucket::of(bare::sample(0, 0).spec.created_at);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut done = 0;
                for bucket in (0..144).filter(|n| n % TASKS == task) {
                    let bucket = Bucket(first.0 + u32::try_from(bucket).unwrap());
                    done += drain_bucket(&store, epoch, bucket).await;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    assert_eq!(done, jobs);
    Rates { jobs, elapsed: started.elapsed(), disk_bytes: store.disk_bytes().unwrap() }
}

async fn drain_bucket(store: &EmbeddedStore, epoch: u64, bucket: Bucket) -> u64 {
    let shards = store.layout().shards;
    let mut done = 0;
    let mut ready = Vec::new();
    for tenant in (0..16).map(|n| bare::sample(n, 0).tenant) {
        let shard = Shard::of(&tenant, shards);
        let mut after = None;
        loop {
            let due = Due {
                shard,
                bucket,
                tenant: tenant.clone(),
                after,
                until: Timestamp::MAX,
                count_max: 1_000,
                bytes_max: usize::MAX,
            };
            let page = store.due(due).await.unwrap();
            ready.extend(page.jobs);
            if ready.len() >= 1_000 {
                done += run(store, epoch, bucket, std::mem::take(&mut ready)).await;
            }
            after = page.resume;
            if after.is_none() {
                break;
            }
        }
    }
    done + run(store, epoch, bucket, ready).await
}

async fn run(store: &EmbeddedStore, epoch: u64, bucket: Bucket, jobs: Vec<Arc<Job>>) -> u64 {
    let now = bucket.end();
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

fn show(what: &str, (rates, cpu_us): (Rates, u64), against: (Rates, u64)) {
    let jobs = rates.jobs.max(1);
    println!(
        "{what:<14} {:>9} jobs/s  {:>4} % of bare  {:>5.1} us of CPU/job ({:>3} % of bare)  {:>4} bytes/job",
        rates.per_second(),
        rates.per_second() * 100 / against.0.per_second().max(1),
        cpu_us as f64 / jobs as f64,
        against.1 * 100 / cpu_us.max(1),
        rates.disk_bytes / jobs
    );
}

/// CPU time of all threads so far.
fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10_000
}
