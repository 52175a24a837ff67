//! Under virtual time: taking once at one node of several, while news between them take long. What others start for a call
//! reaches it, or the next one of that node, at its first attempt.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job};
use tidewheel_core::names::Tenant;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Deliver, Engine, Reports, Take, Tenants};
use tidewheel_server::random::Random;
use tidewheel_sim::clock::SimClock;
use tidewheel_sim::dice::Dice;
use tidewheel_store::{OnConflict, Submission};
use tidewheel_store_testkit::memory::{Call, Fault, Faults, Passage};

use crate::nodes::{self, Own};

/// How long news are on their way to another node.
const NEWS_MS: i64 = 100;
/// The node that is asked for jobs.
const NEAR: usize = 0;

/// Nothing is pushed here.
struct Nobody;

impl Deliver for Nobody {
    fn deliver(&self, _: Vec<Arc<Job>>, _: &Reports) {}

    fn abort(&self, _: &JobId) {}
}

/// A line to the store on which news of others are late.
struct Slow {
    node: u64,
    clock: Arc<SimClock>,
}

impl Faults for Slow {
    fn before(&self, _: Call) -> Fault {
        Fault::default()
    }

    fn passage(&self, from_node: u64) -> Passage {
        if from_node == self.node {
            return Passage::Free;
        }
        let clock = Arc::clone(&self.clock);
        Passage::Slow(Box::pin(async move { clock.sleep_ms(NEWS_MS).await }))
    }
}

struct Cluster {
    clock: Arc<SimClock>,
    dice: Dice,
    nodes: Vec<Engine>,
}

impl Cluster {
    async fn start(count: u64) -> Self {
        let (clock, dice) = (Arc::new(SimClock::new()), Dice::new(3));
        let own =
            |node: u64| -> Own { (Arc::new(Slow { node, clock: Arc::clone(&clock) }), Arc::new(Nobody)) };
        let nodes = nodes::start(&clock, &dice, count, own).await;
        Self { clock, dice, nodes }
    }

    /// A tenant whose jobs that node serves.
    fn tenant_of(&self, node: usize) -> Tenant {
        nodes::tenant_of(&self.nodes[node])
    }

    async fn submit(&self, node: usize, tenant: &Tenant) -> JobId {
        let now = self.clock.now();
        let spec = nodes::spec(Destination::Queue("q".into()), now);
        let job = Job::new(tenant.clone(), spec, now, self.dice.tail());
        let id = job.id;
        let submission = Submission { job, key: None, fresh: true };
        self.nodes[node].submit(vec![submission], OnConflict::KeepNone).await.unwrap();
        id
    }

    /// Takes up to so many jobs at a node; gives each with the number of its attempt.
    async fn take(&self, node: usize, tenants: Tenants, count_max: usize, wait_ms: i64) -> Vec<(JobId, u32)> {
        let take = Take {
            tenants,
            queue: Arc::from("q"),
            kinds: Vec::new(),
            worker: Arc::from("w"),
            count_max,
            wait_ms,
            lease_ms: 30_000,
        };
        let jobs = self.nodes[node].take(take).await.unwrap();
        jobs.iter().map(|job| (job.id, job.status.attempt)).collect()
    }
}

fn only(tenant: &Tenant) -> Tenants {
    Tenants::Only(vec![tenant.clone()])
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_from_another_node_when_the_wait_ends_is_waited_for() {
    let cluster = Cluster::start(2).await;
    let tenant = cluster.tenant_of(1);
    // It is started for the call before the other node can hear that this has asked for long enough.
    let submitting = async {
        cluster.clock.sleep_ms(450).await;
        cluster.submit(1, &tenant).await
    };
    let (taken, id) = tokio::join!(cluster.take(NEAR, only(&tenant), 1, 0), submitting);
    assert_eq!(taken, [(id, 1)]);
    assert!(cluster.take(NEAR, only(&tenant), 1, 0).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_comes_in_after_a_call_was_answered_is_for_the_next_call() {
    let cluster = Cluster::start(2).await;
    let tenant = cluster.tenant_of(1);
    let first = cluster.submit(1, &tenant).await;
    assert_eq!(cluster.take(NEAR, only(&tenant), 10, 0).await, [(first, 1)]);
    // The other node does not know yet that the call is over, but that it asked once.
    let second = cluster.submit(1, &tenant).await;
    cluster.clock.sleep_ms(4 * NEWS_MS).await;
    assert_eq!(cluster.take(NEAR, only(&tenant), 10, 0).await, [(second, 1)]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_in_after_a_call_was_answered_is_for_whoever_asks_first() {
    let cluster = Cluster::start(2).await;
    let tenant = cluster.tenant_of(1);
    let first = cluster.submit(1, &tenant).await;
    assert_eq!(cluster.take(NEAR, only(&tenant), 10, 0).await, [(first, 1)]);
    let second = cluster.submit(1, &tenant).await;
    cluster.clock.sleep_ms(4 * NEWS_MS).await;
    let asked_ms = cluster.clock.monotonic_ms();
    assert_eq!(cluster.take(1, only(&tenant), 10, 20_000).await, [(second, 1)]);
    assert!(cluster.clock.monotonic_ms() - asked_ms < NEWS_MS, "it was free");
}

#[tokio::test(start_paused = true)]
async fn what_several_nodes_start_for_one_call_is_taken_one_call_after_the_other() {
    let cluster = Cluster::start(3).await;
    let tenants = [1, 2].map(|node| cluster.tenant_of(node));
    let ids = [cluster.submit(1, &tenants[0]).await, cluster.submit(2, &tenants[1]).await];
    cluster.clock.sleep_ms(NEWS_MS).await;
    let mut taken = Vec::new();
    for _ in &ids {
        // Each of the others has one, and neither knows of the other's.
        taken.extend(cluster.take(NEAR, Tenants::All, 1, 0).await);
        cluster.clock.sleep_ms(4 * NEWS_MS).await;
    }
    taken.sort_unstable();
    let mut wanted = ids.map(|id| (id, 1));
    wanted.sort_unstable();
    assert_eq!(taken, wanted);
}
