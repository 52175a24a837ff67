//! Workers at one node of several on one PostgreSQL: jobs of all shards reach them, wherever these are served, and losing
//! the node that serves them loses no outcome.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidewheel_api::worker::{Context, Failure, Stop, Stopper, Worker, WorkerConfig};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tokio::sync::watch;

use crate::harness::cluster::submit_once;
use crate::harness::postgres::Postgres;
use crate::harness::pulse::Pulse;
use crate::harness::{Answer, Server, TIDEWHEEL, request, until, until_served};

const SHARDS: u16 = 64;
/// Tenants, so many that each node serves some.
const TENANTS: usize = 40;

/// Two nodes: workers are at the near one.
struct Cluster {
    near: Server,
    far: Server,
    /// A worker that stands still is taken for dead, and what it had runs again.
    pulse: Pulse,
    _data: TempDir,
    _postgres: Postgres,
}

impl Cluster {
    fn start() -> Self {
        let (postgres, data) = (Postgres::start(), TempDir::new().unwrap());
        let start = || Server::start_with(data.path(), &["--store", &postgres.url()]);
        let pulse = Pulse::watch();
        let (near, far) = (start(), start());
        until("the shards to be shared out", || {
            let cluster = near.get("/v1/cluster");
            let nodes = cluster["nodes"].as_array().unwrap();
            let is_half =
                |node: &Value| node["shards"] == u64::from(SHARDS / 2) && node["state"] == "serving";
            (nodes.len() == 2 && nodes.iter().all(is_half)).then_some(())
        });
        Self { near, far, pulse, _data: data, _postgres: postgres }
    }

    /// Tenants whose jobs the far node serves, while each serves some.
    fn far_tenants(&self) -> Vec<String> {
        until("each node to serve some tenants", || {
            self.far_tenants_now().filter(|tenants| !tenants.is_empty() && tenants.len() < TENANTS)
        })
    }

    /// None while the database is slow.
    fn far_tenants_now(&self) -> Option<Vec<String>> {
        let cluster = self.near.get("/v1/cluster");
        let address = self.far.url();
        let nodes = cluster["nodes"].as_array().unwrap();
        let far = nodes.iter().find(|node| node["address"] == address)?;
        let leases = far["leases"].as_array().unwrap();
        let is_far = |name: &String| {
            let shard = u64::from(Shard::of(&Tenant::new(name).unwrap(), SHARDS).0);
            leases.iter().any(|lease| {
                lease["first_shard"].as_u64().unwrap() <= shard
                    && shard <= lease["last_shard"].as_u64().unwrap()
            })
        };
        Some((0..TENANTS).map(tenant).filter(is_far).collect())
    }
}

fn tenant(number: usize) -> String {
    format!("tenant-{number}")
}

fn call(server: &Server, tenant: &str, method: &str, path: &str, body: &Value) -> Answer {
    request(server.address, method, path, &[("tidewheel-tenant", tenant)], body.to_string().as_bytes())
        .unwrap()
}

fn submit(server: &Server, tenant: &str) -> String {
    submit_once(server.address, tenant, json!({"type": "t", "queue": "q", "timeout": "10m"}))
}

fn get(server: &Server, tenant: &str, path: &str) -> Value {
    let answer = until_served(path, || call(server, tenant, "GET", path, &json!({})));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn job(server: &Server, tenant: &str, id: &str) -> Value {
    get(server, tenant, &format!("/v1/jobs/{id}"))
}

fn until_succeeded(server: &Server, tenant: &str, id: &str) -> Value {
    until(&format!("{id} of {tenant} to succeed"), || {
        Some(job(server, tenant, id)).filter(|job| job["state"] == "succeeded")
    })
}

fn until_succeeded_at_once(server: &Server, jobs: &[(String, String)], pulse: &Pulse) {
    for (tenant, id) in jobs {
        until_succeeded(server, tenant, id);
        let attempts = get(server, tenant, &format!("/v1/jobs/{id}/attempts"));
        // What a worker hands back before it starts counts as an attempt, too.
        let (_, earlier) = attempts["items"].as_array().unwrap().split_last().unwrap();
        let are_unstarted = earlier.iter().all(|attempt| attempt["state"] == "released");
        assert!(are_unstarted || !pulse.is_calm(), "nobody died, so nothing runs twice: {attempts}");
    }
}

/// A worker in this process, at one node, for all tenants. Its handlers wait until they are let go.
struct Hand {
    runtime: tokio::runtime::Runtime,
    stopper: Stopper,
    working: tokio::task::JoinHandle<()>,
    /// Jobs, as often and in the order as they were started.
    started: Arc<Mutex<Vec<String>>>,
    stopped: Arc<Mutex<Vec<(String, Stop)>>>,
    may_end: watch::Sender<bool>,
}

impl Hand {
    fn connect(server: &Server, concurrency: usize, may_end: bool) -> Self {
        Self::connect_with(server, concurrency, may_end, Duration::from_secs(30))
    }

    fn connect_with(server: &Server, concurrency: usize, may_end: bool, lease: Duration) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let config =
            WorkerConfig { concurrency, lease, all_tenants: true, ..WorkerConfig::new(server.url(), "q") };
        let may_end = watch::Sender::new(may_end);
        let (started, stopped): (Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>) = Default::default();
        let (starts, stops, gate) = (Arc::clone(&started), Arc::clone(&stopped), may_end.clone());
        let (stopper, working) = runtime.block_on(async {
            let mut worker = Worker::connect(config).await.unwrap();
            worker.handle("t", move |context: Context, _: Value| {
                starts.lock().unwrap().push(context.id().to_owned());
                let (stops, mut gate) = (Arc::clone(&stops), gate.subscribe());
                async move {
                    tokio::select! {
                        stop = context.stopped() => stops.lock().unwrap().push((context.id().to_owned(), stop)),
                        _ = gate.wait_for(|may_end| *may_end) => {}
                    }
                    Ok::<_, Failure>(())
                }
            });
            (worker.stopper(), tokio::spawn(async move { worker.run().await.unwrap() }))
        });
        Self { runtime, stopper, working, started, stopped, may_end }
    }

    fn until_started(&self, ids: impl IntoIterator<Item = String>) {
        for id in ids {
            until(&format!("{id} to be started"), || {
                self.started.lock().unwrap().contains(&id).then_some(())
            });
        }
    }

    /// Ends it; gives the jobs it started, in that order, none of them twice unless it may have been taken for dead.
    fn drain(self, pulse: &Pulse) -> Vec<String> {
        self.stopper.drain();
        self.runtime.block_on(self.working).unwrap();
        let started = self.started.lock().unwrap().clone();
        let distinct: BTreeSet<&String> = started.iter().collect();
        assert!(distinct.len() == started.len() || !pulse.is_calm(), "{started:?}");
        started
    }
}

#[test]
fn one_worker_at_one_node_runs_the_jobs_of_all() {
    let cluster = Cluster::start();
    let worker = Hand::connect(&cluster.near, 16, true);
    let jobs: Vec<(String, String)> = (0..5 * TENANTS)
        .map(|number| {
            let tenant = tenant(number % TENANTS);
            let id = submit([&cluster.near, &cluster.far][number / TENANTS % 2], &tenant);
            (tenant, id)
        })
        .collect();
    until_succeeded_at_once(&cluster.near, &jobs, &cluster.pulse);
    let workers = cluster.far.get("/v1/workers");
    assert_eq!(workers["items"], json!([]), "a node is not listed as a worker");
    // How long a job takes to a worker at another node, one at a time.
    let tenants = cluster.far_tenants();
    let mut waits_ms: Vec<i64> = Vec::new();
    for tenant in tenants.iter().cycle().take(50) {
        let id = submit(&cluster.far, tenant);
        worker.until_started([id.clone()]);
        until_succeeded_at_once(&cluster.far, &[(tenant.clone(), id.clone())], &cluster.pulse);
        let job = until_succeeded(&cluster.far, tenant, &id);
        let at = |name: &str| job[name].as_str().unwrap().parse::<tidewheel_core::time::Timestamp>().unwrap();
        waits_ms.push(at("finished_at").since_ms(at("created_at")));
    }
    waits_ms.sort_unstable();
    println!("stored to finished at another node: median {} ms, longest {} ms", waits_ms[25], waits_ms[49]);
    let started = worker.drain(&cluster.pulse).len();
    assert!(started == jobs.len() + waits_ms.len() || !cluster.pulse.is_calm(), "{started}");
}

#[test]
fn taking_over_http_at_one_node_takes_the_jobs_of_all() {
    let cluster = Cluster::start();
    let tenants = (0..TENANTS).map(tenant);
    let jobs: Vec<(String, String)> = tenants
        .enumerate()
        .map(|(number, tenant)| {
            let id = submit([&cluster.near, &cluster.far][number % 2], &tenant);
            (tenant, id)
        })
        .collect();
    for (tenant, id) in &jobs {
        let wish = json!({"worker": "w", "max": 3, "wait": "20s"});
        let taken = until("the job to be handed out", || {
            let taken = call(&cluster.near, tenant, "POST", "/v1/queues/q/take", &wish);
            assert!(matches!(taken.status, 200 | 503), "{}", taken.text());
            Some(taken.json()["jobs"].clone()).filter(|jobs| jobs[0].is_object())
        });
        assert_eq!((taken.as_array().unwrap().len(), &taken[0]["id"]), (1, &json!(id)), "{taken}");
        let outcome = json!({"token": taken[0]["token"], "status": "succeeded"});
        let path = format!("/v1/jobs/{id}/outcome");
        let ended = until_served(&path, || call(&cluster.near, tenant, "POST", &path, &outcome));
        assert_eq!(ended.status, 200, "{}", ended.text());
    }
    until_succeeded_at_once(&cluster.far, &jobs, &cluster.pulse);
}

#[test]
fn a_cancel_reaches_the_worker_and_the_death_of_the_owner_loses_no_outcome() {
    let cluster = Cluster::start();
    let worker = Hand::connect(&cluster.near, 2 * TENANTS, false);
    let tenants = cluster.far_tenants();
    let cancelled: Vec<(String, String)> =
        tenants.iter().take(2).map(|tenant| (tenant.clone(), submit(&cluster.far, tenant))).collect();
    worker.until_started(cancelled.iter().map(|(_, id)| id.clone()));
    // Whichever node is asked.
    for ((tenant, id), server) in cancelled.iter().zip([&cluster.near, &cluster.far]) {
        let path = format!("/v1/jobs/{id}/cancel");
        let answer = until_served(&path, || call(server, tenant, "POST", &path, &json!({})));
        assert_eq!(answer.status, 200, "{}", answer.text());
        until("the worker to hear of the cancel", || {
            worker.stopped.lock().unwrap().contains(&(id.clone(), Stop::Cancelled)).then_some(())
        });
    }

    let jobs: Vec<(String, String)> =
        tenants.iter().map(|tenant| (tenant.clone(), submit(&cluster.far, tenant))).collect();
    worker.until_started(jobs.iter().map(|(_, id)| id.clone()));
    let Cluster { near, far, pulse, _data, _postgres } = cluster;
    far.kill();
    worker.may_end.send_replace(true);
    until_succeeded_at_once(&near, &jobs, &pulse);
    // What comes later runs once the near node serves their shards.
    let later: Vec<(String, String)> =
        tenants.iter().map(|tenant| (tenant.clone(), submit(&near, tenant))).collect();
    until_succeeded_at_once(&near, &later, &pulse);
    worker.drain(&pulse);
}

#[test]
fn what_a_dead_worker_or_its_dead_node_had_is_run_by_others() {
    let cluster = Cluster::start();
    let connect =
        |server: &Server, may_end: bool| Hand::connect_with(server, 8, may_end, Duration::from_secs(8));
    let first = connect(&cluster.near, false);
    let tenants = cluster.far_tenants();
    let jobs: Vec<(String, String)> =
        tenants.iter().take(3).map(|tenant| (tenant.clone(), submit(&cluster.far, tenant))).collect();
    let ids = || jobs.iter().map(|(_, id)| id.clone());
    first.until_started(ids());
    // Its node misses it, though another serves the jobs.
    drop(first);
    let second = connect(&cluster.near, false);
    second.until_started(ids());
    // Nobody is left to miss it but whoever serves the jobs.
    let Cluster { near, far, pulse, _data, _postgres } = cluster;
    near.kill();
    drop(second);
    let third = connect(&far, true);
    for (tenant, id) in &jobs {
        let job = until_succeeded(&far, tenant, id);
        // More if one was handed back before it started.
        assert!(job["attempt"].as_u64().unwrap() >= 3, "{job}");
    }
    third.drain(&pulse);
}

#[test]
fn a_node_that_is_stopped_amid_handing_on_leaves_nothing_behind() {
    let cluster = Cluster::start();
    let worker = Hand::connect(&cluster.near, 4, true);
    let tenants = cluster.far_tenants();
    let mut jobs: Vec<(String, String)> = Vec::new();
    for tenant in &tenants {
        let batch = json!(vec![json!({"type": "t", "queue": "q"}); 40]).to_string();
        let headers = [("tidewheel-tenant", tenant.as_str()), ("idempotency-key", "batch")];
        let answer = until_served("a batch to be taken", || {
            request(cluster.far.address, "POST", "/v1/jobs/batch", &headers, batch.as_bytes()).unwrap()
        });
        assert_eq!(answer.status, 201, "{}", answer.text());
        let stored = answer.json()["jobs"].as_array().unwrap().clone();
        jobs.extend(stored.iter().map(|job| (tenant.clone(), job["id"].as_str().unwrap().to_owned())));
    }
    until("some to be started", || (worker.started.lock().unwrap().len() > 20).then_some(()));
    let Cluster { near, far, pulse, _data, _postgres } = cluster;
    let (code, log) = far.terminate();
    assert_eq!(code, Some(0), "{log:#?}");
    for (tenant, id) in &jobs {
        until_succeeded(&near, tenant, id);
    }
    let started = worker.drain(&pulse).len();
    assert!(started == jobs.len() || !pulse.is_calm(), "{started} of {}", jobs.len());
}

#[test]
fn a_node_with_enough_of_its_own_leaves_room_for_what_others_serve() {
    let cluster = Cluster::start();
    let far = cluster.far_tenants();
    let near = (0..TENANTS).map(tenant).find(|tenant| !far.contains(tenant)).unwrap();
    let worker = Hand::connect(&cluster.near, 2, false);
    let own: Vec<(String, String)> = (0..100).map(|_| (near.clone(), submit(&cluster.near, &near))).collect();
    until("the worker to be busy", || (worker.started.lock().unwrap().len() >= 2).then_some(()));
    let guest = submit(&cluster.far, &far[0]);
    until("a job to wait for the busy worker", || {
        Some(job(&cluster.far, &far[0], &guest)).filter(|job| job["state"] == "running")
    });
    worker.may_end.send_replace(true);
    until_succeeded_at_once(&cluster.near, &own, &cluster.pulse);
    until_succeeded_at_once(&cluster.near, &[(far[0].clone(), guest.clone())], &cluster.pulse);
    let started = worker.drain(&cluster.pulse);
    let place = started.iter().position(|id| *id == guest).unwrap();
    assert!(place < 50, "it was number {place}");
}

/// A `worker run` process.
struct WorkerProcess(Child);

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Only this test's own child; an error means it is gone already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_worker_process_runs_what_another_node_serves() {
    let cluster = Cluster::start();
    let tenant = cluster.far_tenants().remove(0);
    let jobs: Vec<(String, String)> =
        (0..20).map(|_| (tenant.clone(), submit(&cluster.far, &tenant))).collect();
    let process = Command::new(TIDEWHEEL)
        .args(["worker", "run", "--queue", "q", "--concurrency", "4", "--", "true"])
        .env("TIDEWHEEL_URL", cluster.near.url())
        .env("TIDEWHEEL_TENANT", &tenant)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _process = WorkerProcess(process);
    until_succeeded_at_once(&cluster.far, &jobs, &cluster.pulse);
}
