//! One run from beginning to end: a time of faults, a time to recover, and an audit of what is left.

use std::sync::Arc;

use tidewheel_core::limits::{HOUR_MS, SECOND_MS};
use tidewheel_core::names::Tenant;
use tidewheel_server::clock::Clock;
use tokio::task::JoinSet;

use crate::checker::{self, Violation};
use crate::client::{self, QUEUES, is_deserted};
use crate::cluster_nemesis;
use crate::history::{Entry, Event};
use crate::nemesis;
use crate::plan::{Plan, Workforce};
use crate::planner;
use crate::remains;
use crate::stream_worker::{self, Duty};
use crate::watch;
use crate::weather::Weather;
use crate::worker;
use crate::world::World;

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// What it was.
    pub plan: Plan,
    /// What happened.
    pub entries: Vec<Entry>,
    /// What should not have.
    pub violations: Vec<Violation>,
    /// Calls to the store.
    pub store_calls: u64,
    /// Jobs that came over a stream.
    pub streamed: usize,
    /// Schedules that are there in the end.
    pub schedules: usize,
    /// Entries in their ledgers.
    pub decided: usize,
}

/// How long the server may take to recover, once nothing is broken any more. Leases of runners that died have
/// to run out in it.
const RECOVERY_MS: i64 = 90 * SECOND_MS;
/// How long clients go on after that, so that recovery can be seen.
const CLIENTS_MS: i64 = 40 * SECOND_MS;
/// The same for a cluster: a lease of a shard, one of an attempt there, and a sweep.
const CLUSTER_RECOVERY_MS: i64 = 50 * SECOND_MS;
const CLUSTER_CLIENTS_MS: i64 = 10 * SECOND_MS;
/// From then on, how late a job may be.
pub(crate) const LATE_MS_MAX: i64 = 3 * SECOND_MS;
/// Audits that find something late before the run is given up.
const LATE_AUDITS_MAX: usize = 5;
/// How often the audit looks.
const AUDIT_MS: i64 = 5 * SECOND_MS;
/// And how often once only jobs far ahead are left.
const RARE_AUDIT_MS: i64 = 30 * SECOND_MS;
/// After which everything must have ended. Set by the clock: a job due by a clock that was set back an hour
/// waits for that hour.
const SETTLED_MS: i64 = 4 * HOUR_MS;

/// Runs a seed.
///
/// # Errors
/// When the runtime cannot be made.
pub fn run(plan: Plan) -> std::io::Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(live(plan)))
}

async fn live(plan: Plan) -> Run {
    let world = World::new(plan);
    for node in 0..world.plan.nodes {
        world.start_server(node).await;
    }
    for tenant in world.tenants() {
        for queue in QUEUES {
            employ(&world, &tenant, Arc::from(queue));
        }
    }
    let is_cluster = world.plan.nodes > 1;
    let (recovery_ms, clients_ms) =
        if is_cluster { (CLUSTER_RECOVERY_MS, CLUSTER_CLIENTS_MS) } else { (RECOVERY_MS, CLIENTS_MS) };
    let mut clients = JoinSet::new();
    for _ in 0..world.plan.clients {
        clients.spawn(client::run(Arc::clone(&world), recovery_ms + clients_ms));
    }
    for _ in 0..world.plan.schedules {
        clients.spawn(planner::run(Arc::clone(&world), recovery_ms));
    }
    tokio::spawn(watch::memory(Arc::clone(&world)));
    if is_cluster {
        tokio::spawn(watch::shards(Arc::clone(&world)));
        cluster_nemesis::run(&world).await;
    } else {
        nemesis::run(&world).await;
    }
    world.sleep_ms(recovery_ms).await;
    settle(&world, clients).await;
    let ledger = remains::read(&world).await;
    let entries = world.history.entries();
    let violations = checker::check(&entries, &ledger);
    Run {
        plan: world.plan.clone(),
        entries,
        violations,
        store_calls: world.weathers().map(Weather::calls).sum(),
        streamed: world.streamed(),
        schedules: ledger.schedules.len(),
        decided: ledger.schedules.values().map(|kept| kept.entries.len()).sum(),
    }
}

fn employ(world: &Arc<World>, tenant: &Tenant, queue: Arc<str>) {
    let workforce = world.plan.workforce;
    if workforce != Workforce::Streaming {
        tokio::spawn(worker::run(Arc::clone(world), tenant.clone(), Arc::clone(&queue)));
    }
    if workforce != Workforce::Pulling {
        // Two, so that one can be given what the other has.
        for _ in 0..2 {
            let (tenant, queue) = (tenant.clone(), Arc::clone(&queue));
            let duty = Duty { tenant, queue, picky: workforce == Workforce::Mixed };
            tokio::spawn(stream_worker::run(Arc::clone(world), duty));
        }
    }
}

/// Waits until everything has ended that can, and notes what is late on the way.
async fn settle(world: &World, mut clients: JoinSet<()>) {
    world.history.note(Event::Recovered);
    let until_ms = world.clock.monotonic_ms() + SETTLED_MS;
    let mut late = 0;
    loop {
        while clients.try_join_next().is_some() {}
        // Asked before the audit, so that the audit sees all they submitted.
        let clients_done = clients.is_empty();
        let (open, is_late) = audit(world).await;
        late += usize::from(is_late);
        // Where something is stuck already, waiting longer tells no more.
        let is_over = open == 0 || late > LATE_AUDITS_MAX || world.clock.monotonic_ms() >= until_ms;
        if is_over && clients_done {
            watch::note_shares(world);
            return;
        }
        world.sleep_ms(if clients_done { RARE_AUDIT_MS } else { AUDIT_MS }).await;
    }
}

/// How many jobs have not ended that were submitted and can, and whether something is late. Schedules never
/// run out of jobs, so those of theirs do not count.
async fn audit(world: &World) -> (usize, bool) {
    let Some(store) = world.looked_at() else { return (0, false) };
    let mut jobs = Vec::new();
    for tenant in world.tenants() {
        jobs.extend(remains::unfinished(store.as_ref(), &tenant).await);
    }
    jobs.retain(|job| !is_deserted(job));
    let now = world.now();
    let mut is_late = false;
    for job in jobs.iter().filter(|job| !is_deserted(job)) {
        // A lease given while the clock was set back has its full length, also once that clock is right again.
        let slack_ms = world.clock.set_back_ms() + world.plan.skew_ms_max;
        let lease_until = job.status.running.as_ref().map(|running| running.lease_until.plus_ms(slack_ms));
        let moves_by = job.armed_at().or(lease_until);
        if let Some(since) = moves_by.filter(|at| at.plus_ms(LATE_MS_MAX) < now) {
            world.history.note(Event::Overdue { id: job.id, state: job.status.state, since });
            is_late = true;
        }
    }
    (jobs.iter().filter(|job| job.spec.occurrence.is_none()).count(), is_late)
}
