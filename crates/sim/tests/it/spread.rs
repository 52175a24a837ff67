//! Under virtual time: a tenant that is spread over several shards, served by two nodes on one store. Both start its jobs,
//! its caps hold for both together, and what it is spread over can change while it is busy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Finding, Job, Target};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Shard, SubShard};
use tidewheel_core::time::Timestamp;
use tidewheel_core::zones::Zones;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Allotment, Config, Deliver, Engine, Parts, Report, Reports};
use tidewheel_server::metrics::Metrics;
use tidewheel_server::random::Random;
use tidewheel_sim::clock::SimClock;
use tidewheel_sim::dice::Dice;
use tidewheel_store::{IdempotencyClaim, KeyUse, Layout, NodeCard, OnConflict, Store, Submission, Submitted};
use tidewheel_store_testkit::memory::MemoryStore;

use crate::nodes;

const SHARDS: u16 = 64;
/// How long an attempt takes.
const TAKES_MS: i64 = 20;
/// The nodes of this store hear nothing of each other, and look everything through this often.
const SWEEP_MS: i64 = 30_000;

/// An attempt that was started.
#[derive(Clone, Copy)]
struct Start {
    node: usize,
    id: JobId,
    at_ms: i64,
}

/// Where all nodes push to.
#[derive(Default)]
struct Noted {
    starts: Mutex<Vec<Start>>,
    under_way: Mutex<(usize, usize)>,
}

struct Pusher {
    node: usize,
    clock: Arc<SimClock>,
    noted: Arc<Noted>,
}

impl Deliver for Pusher {
    fn deliver(&self, jobs: Vec<Arc<Job>>, reports: &Reports) {
        for job in jobs {
            let at_ms = self.clock.monotonic_ms();
            self.noted.starts.lock().unwrap().push(Start { node: self.node, id: job.id, at_ms });
            let (clock, noted, reports) = (Arc::clone(&self.clock), Arc::clone(&self.noted), reports.clone());
            let (now, most) = &mut *self.noted.under_way.lock().unwrap();
            *now += 1;
            *most = (*most).max(*now);
            tokio::spawn(async move {
                clock.sleep_ms(TAKES_MS).await;
                noted.under_way.lock().unwrap().0 -= 1;
                let command = Command::Succeed { token: job.status.token, finding: Finding::default() };
                reports.send(Report { tenant: job.tenant.clone(), id: job.id, command });
            });
        }
    }

    fn abort(&self, _: &JobId) {}
}

struct Cluster {
    store: Arc<MemoryStore>,
    clock: Arc<SimClock>,
    noted: Arc<Noted>,
    dice: Dice,
    nodes: Vec<Engine>,
    hot: Tenant,
}

impl Cluster {
    /// Two nodes that have half of the shards each, and a tenant of which each serves a part if it is spread over four.
    async fn start() -> Self {
        let mut cluster = Self {
            store: Arc::new(MemoryStore::new(Layout { shards: SHARDS })),
            clock: Arc::new(SimClock::new()),
            noted: Arc::default(),
            dice: Dice::new(3),
            nodes: Vec::new(),
            hot: Tenant::default(),
        };
        cluster.join().await;
        cluster.join().await;
        cluster.share_out().await;
        let served_by = |tenant: &Tenant, node: &Engine| {
            let held: BTreeSet<Shard> = node.held().into_iter().map(|held| held.shard).collect();
            SubShard::all()
                .take(4)
                .filter(|sub| held.contains(&Shard::of_sub_shard(tenant, *sub, SHARDS)))
                .count()
        };
        let mut names = (0..).map(|n| Tenant::new(&format!("hot-{n}")).unwrap());
        cluster.hot = names.find(|name| (1..4).contains(&served_by(name, &cluster.nodes[0]))).unwrap();
        cluster
    }

    async fn join(&mut self) {
        let node = self.nodes.len();
        let (clock, noted) = (Arc::clone(&self.clock), Arc::clone(&self.noted));
        let parts = Parts {
            store: Arc::new(self.store.share(node as u64)),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            random: Arc::new(self.dice.fork()),
            metrics: Arc::new(Metrics::new()),
            deliverer: Arc::new(Pusher { node, clock, noted }),
            zones: Zones::bundled(),
        };
        let name: Arc<str> = Arc::from(format!("node-{node}"));
        let card = NodeCard { id: Arc::clone(&name), address: name, version: Arc::from("1") };
        self.nodes.push(Engine::join(parts, Config::default(), card).await.unwrap());
    }

    /// Waits until every shard is served by one of the nodes that are there.
    async fn share_out(&self) {
        let is_shared = || {
            let held = self.nodes.iter().map(|node| node.held().len());
            let there = self.nodes.iter().filter(|node| !node.is_draining());
            held.sum::<usize>() == usize::from(SHARDS) && there.clone().all(|node| !node.held().is_empty())
        };
        while !is_shared() {
            self.clock.sleep_ms(100).await;
        }
    }

    fn allot(&self, spread: u8, starts_per_s: Option<u32>, running_count_max: Option<u32>) {
        for node in &self.nodes {
            node.allot(vec![Allotment {
                tenant: self.hot.clone(),
                weight: 1,
                running_count_max,
                queue_running_count_max: None,
                starts_per_s,
                spread,
            }]);
        }
    }

    /// A new job for a tenant that is spread over `k` shards.
    fn job(&self, k: usize, run_at: Timestamp) -> Job {
        let (url, method) = ("http://target.example/".into(), "POST".into());
        let target = Arc::new(Target { url, method, headers: Vec::new() });
        let spec = nodes::spec(Destination::Target(target), self.clock.now());
        let sub = SubShard::all().nth(self.dice.count(0, k - 1)).unwrap();
        Job::with_id(self.hot.clone(), spec, JobId::in_sub_shard(run_at, self.dice.tail(), sub))
    }

    async fn submit(&self, node: usize, jobs: Vec<Submission>) -> Vec<Submitted> {
        self.nodes[node].submit(jobs, OnConflict::KeepOthers).await.unwrap()
    }

    fn starts(&self) -> Vec<Start> {
        self.noted.starts.lock().unwrap().clone()
    }

    async fn until_started(&self, count: usize) {
        for _ in 0..10_000 {
            if self.starts().len() >= count {
                return;
            }
            self.clock.sleep_ms(100).await;
        }
    }
}

fn plain(job: Job) -> Submission {
    Submission { job, key: None, fresh: true }
}

fn keyed(job: Job, key: &str) -> Submission {
    let until = job.spec.created_at.plus_ms(3_600_000);
    Submission {
        job,
        key: Some(IdempotencyClaim { key: Arc::from(key), fingerprint: [1; 16], until }),
        fresh: true,
    }
}

#[tokio::test(start_paused = true)]
async fn both_nodes_start_the_jobs_of_a_spread_tenant_and_keep_to_its_rate_cap_together() {
    const RATE: usize = 100;
    const JOBS: usize = 8_000;
    let cluster = Cluster::start().await;
    cluster.allot(4, Some(100), None);
    let now = cluster.clock.now();
    let jobs = (0..JOBS).map(|_| plain(cluster.job(4, now))).collect();
    cluster.submit(0, jobs).await;
    // From then on the other node has heard of its part, too.
    cluster.clock.sleep_ms(SWEEP_MS + 5_000).await;
    let from_ms = cluster.clock.monotonic_ms();
    cluster.clock.sleep_ms(20_000).await;
    let to_ms = cluster.clock.monotonic_ms();
    let starts = cluster.starts();
    let mut by_node = BTreeMap::<usize, usize>::new();
    for start in starts.iter().filter(|start| (from_ms..to_ms).contains(&start.at_ms)) {
        *by_node.entry(start.node).or_default() += 1;
    }
    let all: usize = by_node.values().sum();
    assert!((20 * RATE * 9 / 10..=20 * RATE * 11 / 10).contains(&all), "{all} in 20 s, {by_node:?}");
    assert!(by_node.len() == 2 && by_node.values().all(|count| *count > all / 6), "{by_node:?}");
    let mut times: Vec<i64> = starts.iter().map(|start| start.at_ms).collect();
    times.sort_unstable();
    let in_a_second = |(first, from): (usize, &i64)| times.partition_point(|at| *at < from + 1_000) - first;
    let most = times.iter().enumerate().map(in_a_second).max().unwrap();
    assert!(most <= RATE * 11 / 10, "{most} in one second, {RATE} may");

    // One that leaves hands its part on with its shards.
    cluster.nodes[1].drain(Duration::from_secs(1)).await;
    cluster.share_out().await;
    let (from_ms, before) = (cluster.clock.monotonic_ms(), cluster.starts().len());
    cluster.clock.sleep_ms(10_000).await;
    let seconds = usize::try_from((cluster.clock.monotonic_ms() - from_ms) / 1_000).unwrap();
    let all = cluster.starts().len() - before;
    assert!((seconds * RATE * 9 / 10..=seconds * RATE * 11 / 10).contains(&all), "{all} in {seconds} s");
    cluster.until_started(JOBS).await;
    let ids: BTreeSet<JobId> = cluster.starts().iter().map(|start| start.id).collect();
    assert_eq!((cluster.starts().len(), ids.len()), (JOBS, JOBS), "each once");
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_cap_holds_for_all_owners_of_a_spread_tenant_together() {
    let cluster = Cluster::start().await;
    cluster.allot(4, None, Some(10));
    let now = cluster.clock.now();
    let jobs = (0..2_000).map(|_| plain(cluster.job(4, now))).collect();
    cluster.submit(1, jobs).await;
    cluster.until_started(2_000).await;
    assert_eq!(cluster.starts().len(), 2_000);
    let (_, most) = *cluster.noted.under_way.lock().unwrap();
    assert!((8..=10).contains(&most), "{most} at a time, 10 may");
}

#[tokio::test(start_paused = true)]
async fn switching_the_spread_under_load_loses_and_doubles_nothing() {
    let mut cluster = Cluster::start().await;
    cluster.allot(16, None, None);
    let (mut wanted, mut spread) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..40_usize {
        let k = [1, 4, 16, 2, 1, 8][round % 6];
        // The other node may not have heard of it yet.
        let k_elsewhere = [1, 16, 4, 1][round % 4];
        let at = |ms: usize| cluster.clock.now().plus_ms(i64::try_from(ms).unwrap());
        for n in 0..20 {
            let node = (round + n) % 2;
            let key = format!("{round}-{n}");
            let (job, again) = (cluster.job(k, at(n * 40)), cluster.job(k_elsewhere, at(n * 40)));
            let (id, again_id) = (job.id, again.id);
            let (one, other) = if n % 2 == 0 {
                tokio::join!(
                    cluster.submit(node, vec![keyed(job, &key)]),
                    cluster.submit(1 - node, vec![keyed(again, &key)]),
                )
            } else {
                (cluster.submit(node, vec![plain(job)]).await, Vec::new())
            };
            match (one[0], other.first()) {
                (Submitted::New, Some(Submitted::Duplicate(first))) => assert_eq!(*first, id),
                (Submitted::Duplicate(first), Some(Submitted::New)) => assert_eq!(first, again_id),
                (Submitted::New, None) => {}
                other => panic!("one key, one job: {other:?}"),
            }
            wanted.insert(if one[0] == Submitted::New { id } else { again_id });
        }
        spread.extend(wanted.iter().map(JobId::sub_shard));
        cluster.clock.sleep_ms(500).await;
        if round == 20 {
            // Shards change hands in the middle of it.
            cluster.join().await;
            cluster.allot(16, None, None);
        }
    }
    assert!(spread.len() > 8, "{spread:?}");
    let held = cluster.store.find_key(cluster.clock.now(), &cluster.hot, "3-2").await.unwrap().unwrap();
    assert!(matches!(held.used_for, KeyUse::Job(id) if wanted.contains(&id)));
    cluster.until_started(wanted.len()).await;
    cluster.clock.sleep_ms(2 * SWEEP_MS).await;
    let starts = cluster.starts();
    let started: BTreeSet<JobId> = starts.iter().map(|start| start.id).collect();
    assert_eq!(started, wanted, "nothing is lost, and nothing else runs");
    assert_eq!(starts.len(), wanted.len(), "nothing runs twice");
    let counts = cluster.store.counts(Some(&cluster.hot)).await.unwrap();
    assert_eq!(counts.of(tidewheel_core::job::State::Succeeded), u64::try_from(wanted.len()).unwrap());
}
