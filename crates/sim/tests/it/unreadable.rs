//! Under virtual time: a job that cannot be read, among others that one node reads because of what another has done. It
//! costs those nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Job, Target};
use tidewheel_core::names::Tenant;
use tidewheel_server::clock::Clock;
use tidewheel_server::engine::{Deliver, Engine, Reports, Take, Tenants};
use tidewheel_server::random::Random;
use tidewheel_sim::clock::SimClock;
use tidewheel_sim::dice::Dice;
use tidewheel_store::{OnConflict, Order, Submission};
use tidewheel_store_testkit::memory::{Call, Fault, Faults};

use crate::nodes::{self, Own};

/// The node that others do something for, or that does something to their jobs.
const NEAR: usize = 0;
/// The node that serves the jobs.
const FAR: usize = 1;
/// Long enough for what nodes tell each other, and too short for a lease to end or a sweep to begin.
const SOON_MS: i64 = 5_000;

/// Pushes that never end by themselves.
#[derive(Default)]
struct Pushes {
    begun: Mutex<BTreeSet<JobId>>,
    aborted: Mutex<BTreeSet<JobId>>,
}

impl Deliver for Pushes {
    fn deliver(&self, jobs: Vec<Arc<Job>>, _: &Reports) {
        self.begun.lock().unwrap().extend(jobs.iter().map(|job| job.id));
    }

    fn abort(&self, id: &JobId) {
        self.aborted.lock().unwrap().insert(*id);
    }
}

/// Jobs that cannot be read.
#[derive(Default)]
struct Damage(Mutex<BTreeSet<JobId>>);

impl Faults for Damage {
    fn before(&self, _: Call) -> Fault {
        Fault::default()
    }

    fn is_damaged(&self, id: JobId) -> bool {
        self.0.lock().unwrap().contains(&id)
    }
}

struct Cluster {
    clock: Arc<SimClock>,
    dice: Dice,
    damage: Arc<Damage>,
    nodes: Vec<Engine>,
    /// By node.
    pushes: Vec<Arc<Pushes>>,
    /// Whose jobs are served by [`FAR`].
    tenant: Tenant,
}

impl Cluster {
    async fn start() -> Self {
        let (clock, dice) = (Arc::new(SimClock::new()), Dice::new(3));
        let damage = Arc::new(Damage::default());
        let pushes: Vec<Arc<Pushes>> = std::iter::repeat_with(Arc::default).take(2).collect();
        let own = |node: u64| -> Own {
            (Arc::clone(&damage) as _, Arc::clone(&pushes[usize::try_from(node).unwrap()]) as _)
        };
        let nodes = nodes::start(&clock, &dice, 2, own).await;
        let tenant = nodes::tenant_of(&nodes[FAR]);
        Self { clock, dice, damage, nodes, pushes, tenant }
    }

    /// Submits so many jobs at the node that serves them.
    async fn submit(&self, destination: &Destination, count: usize) -> Vec<JobId> {
        let now = self.clock.now();
        let job = || {
            let spec = nodes::spec(destination.clone(), now);
            Job::new(self.tenant.clone(), spec, now, self.dice.tail())
        };
        let jobs: Vec<Job> = std::iter::repeat_with(job).take(count).collect();
        let ids = jobs.iter().map(|job| job.id).collect();
        let each = jobs.into_iter().map(|job| Submission { job, key: None, fresh: true });
        self.nodes[FAR].submit(each.collect(), OnConflict::KeepNone).await.unwrap();
        ids
    }

    fn damage(&self, id: JobId) {
        self.damage.0.lock().unwrap().insert(id);
    }

    /// Waits until these are among those.
    async fn until(&self, ids: &[JobId], those: &Mutex<BTreeSet<JobId>>) {
        let by_ms = self.clock.monotonic_ms() + SOON_MS;
        while !ids.iter().all(|id| those.lock().unwrap().contains(id)) {
            assert!(self.clock.monotonic_ms() < by_ms, "only {those:?} of {ids:?}");
            self.clock.sleep_ms(100).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_handed_on_with_one_that_cannot_be_read_reach_their_worker() {
    let cluster = Cluster::start().await;
    let ids = cluster.submit(&Destination::Queue("q".into()), 5).await;
    cluster.damage(ids[2]);
    let take = Take {
        tenants: Tenants::Only(vec![cluster.tenant.clone()]),
        queue: Arc::from("q"),
        kinds: Vec::new(),
        worker: Arc::from("w"),
        count_max: ids.len(),
        wait_ms: SOON_MS,
        lease_ms: 30_000,
    };
    let taken = cluster.nodes[NEAR].take(take).await.unwrap();
    let taken: BTreeSet<_> = taken.iter().map(|job| (job.id, job.status.attempt)).collect();
    let readable = [0, 1, 3, 4].map(|n: usize| (ids[n], 1));
    assert_eq!(taken, BTreeSet::from(readable));
}

#[tokio::test(start_paused = true)]
async fn of_jobs_changed_elsewhere_one_that_cannot_be_read_keeps_no_other_from_being_known() {
    let cluster = Cluster::start().await;
    let target = Target { url: "http://sink/x".into(), method: "POST".into(), headers: Vec::new() };
    let ids = cluster.submit(&Destination::Target(Arc::new(target)), 5).await;
    let far = &cluster.pushes[FAR];
    cluster.until(&ids, &far.begun).await;
    cluster.damage(ids[2]);
    let cancel =
        |id: &JobId| Order { tenant: cluster.tenant.clone(), id: *id, command: Command::Cancel, key: None };
    let answers = cluster.nodes[NEAR].command(ids.iter().map(cancel).collect()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let readable = [0, 1, 3, 4].map(|n: usize| ids[n]);
    cluster.until(&readable, &far.aborted).await;
    assert!(!far.aborted.lock().unwrap().contains(&ids[2]), "nobody can know of it");
}
