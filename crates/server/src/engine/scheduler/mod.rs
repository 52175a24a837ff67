//! The one task that owns what is in memory. It hears of things through [`Message`]s, and after each handful
//! takes a turn: advance the wheel, end leases that ran out, open buckets, start reads, start claims.

mod answers;
mod message;
mod news;
mod peers;
mod reads;
mod shards;
mod take_back;
mod targets;
mod upkeep;
mod workers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job};
use tidewheel_core::limits::{BUCKET_MS, LEASE_MARGIN_MS, SECOND_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Checkpoint, Error, Order};
use tokio::sync::{mpsc, oneshot};

pub(in crate::engine) use self::message::Message;
use crate::engine::claims::{self, Claim};
use crate::engine::config::Config;
use crate::engine::deliver::{Deliver, Reports};
use crate::engine::governor::{Governor, MadeUp};
use crate::engine::leases::Leases;
use crate::engine::listing;
use crate::engine::peers::Peers;
use crate::engine::ready::{Allotment, Picked, Ready, Ticket};
use crate::engine::scan::{Look, Scan, TenantShard};
use crate::engine::spread::Spreads;
use crate::engine::workers::Workers;
use crate::engine::{Shared, named, outcomes, recheck};

/// How long before its start a bucket is opened.
const OPEN_AHEAD_MS: i64 = 60 * SECOND_MS;
/// The longest the scheduler sleeps without looking around.
const NAP_MS_MAX: i64 = 500;
/// When a failed read is tried again.
const READ_RETRY_MS: i64 = 200;
/// How long after a start from checkpoints everything due is read, whatever they say.
const FIRST_SWEEP_MS: i64 = SECOND_MS;
/// A clock that is set back by less puts off no schedule by as much as its interval.
const SET_BACK_MS: i64 = SECOND_MS;
/// Messages handled between two turns.
const MESSAGES_MAX: usize = 256;
/// Jobs in messages that are handled between two turns: the store is to have something to do meanwhile.
const TURN_JOBS_COUNT: usize = 1_024;

pub(in crate::engine) struct Scheduler {
    shared: Arc<Shared>,
    config: Config,
    deliverer: Arc<dyn Deliver>,
    reports: Reports,
    ready: Ready,
    scan: Scan,
    missed_before: Timestamp,
    leases: Leases,
    workers: Workers,
    peers: Peers,
    governor: Governor,
    /// What tenants are allotted in all, and which of them share that with other nodes.
    allotted: Vec<Allotment>,
    spreads: Spreads,
    reads: usize,
    lots_first: bool,
    claims: usize,
    /// Those who take what there is now, and wait no longer.
    leaving: Vec<Ticket>,
    listings: usize,
    /// Some of what was to be read for the first time could not be listed.
    is_unlisted: bool,
    /// Something was lost that a sweep is to find.
    is_lost: bool,
    /// The sweep under way, or the last one, is to find it.
    sweeps_for_lost: bool,
    /// The bucket after the last opened one.
    next_bucket: Bucket,
    draining: Option<oneshot::Sender<usize>>,
    stopped: bool,
    /// The clocks at the last turn.
    turned_at: Timestamp,
    turned_ms: i64,
    checkpoint_at_ms: i64,
    sweep_at_ms: i64,
    upkeep_at_ms: i64,
    gauges_at_ms: i64,
}

impl Scheduler {
    /// Takes over the store: a new epoch, the attempts a dead predecessor left behind, its checkpoints. As one of several
    /// nodes it begins without a shard.
    pub(in crate::engine) async fn open(
        shared: Arc<Shared>,
        config: Config,
        deliverer: Arc<dyn Deliver>,
        reports: Reports,
    ) -> Result<Self, Error> {
        let now = shared.clock.now();
        let monotonic_ms = shared.clock.monotonic_ms();
        let missed_before = now.plus_ms(-config.catch_up_grace_ms);
        shared.metrics.set_start_time(now);
        let leases =
            if shared.territory.is_shared() { Leases::default() } else { take_over(&shared).await? };
        let mut scheduler = Self {
            ready: Ready::new(config.clone(), shared.store.layout().shards, MadeUp { missed_before }, now),
            allotted: Vec::new(),
            spreads: Spreads::default(),
            scan: Scan::new(config.lookahead_ms, missed_before),
            governor: Governor::new(
                config.catch_up_per_second,
                config.tenant_catch_up_per_second,
                monotonic_ms,
            ),
            checkpoint_at_ms: monotonic_ms + config.checkpoint_ms,
            sweep_at_ms: monotonic_ms + FIRST_SWEEP_MS,
            upkeep_at_ms: monotonic_ms,
            gauges_at_ms: monotonic_ms,
            shared,
            config,
            deliverer,
            reports,
            missed_before,
            leases,
            workers: Workers::default(),
            peers: Peers::default(),
            reads: 0,
            lots_first: false,
            claims: 0,
            leaving: Vec::new(),
            listings: 0,
            is_unlisted: false,
            is_lost: false,
            sweeps_for_lost: false,
            next_bucket: Bucket(0),
            draining: None,
            stopped: false,
            turned_at: now,
            turned_ms: monotonic_ms,
        };
        if scheduler.shared.territory.is_shared() {
            scheduler.ready.watch_demand();
        }
        scheduler.start_from_checkpoints(now).await?;
        Ok(scheduler)
    }

    async fn start_from_checkpoints(&mut self, now: Timestamp) -> Result<(), Error> {
        if self.shared.territory.is_shared() {
            // Each shard is read from its beginning when it is gained.
            self.publish_horizon(now);
            self.next_bucket = Bucket::of(now);
            self.open_buckets(now);
            return Ok(());
        }
        let checkpoints = self.shared.store.checkpoints().await?;
        let frontier = checkpoints.iter().map(|c| c.frontier).min().unwrap_or(Bucket(0));
        for Checkpoint { shard, cursors, .. } in checkpoints {
            for cursor in cursors {
                self.scan.open(&TenantShard { tenant: cursor.tenant, shard }, cursor.position.at);
            }
        }
        self.publish_horizon(now);
        self.next_bucket = frontier.min(Bucket::of(now));
        if self.next_bucket == Bucket(0) {
            // Everything is read now: nothing was passed over that the first sweep would find.
            self.sweep_at_ms = self.shared.clock.monotonic_ms() + self.config.sweep_ms;
        }
        self.open_buckets(now);
        Ok(())
    }

    pub(in crate::engine) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        let mut messages = Vec::with_capacity(MESSAGES_MAX);
        let clock = Arc::clone(&self.shared.clock);
        while !self.stopped {
            let nap = self.nap();
            tokio::select! {
                biased;
                count = inbox.recv_many(&mut messages, MESSAGES_MAX) => if count == 0 { return },
                () = clock.sleep(nap) => {}
            }
            self.ready.look_at_clock(clock.now());
            let mut jobs = 0;
            for message in messages.drain(..) {
                jobs += message.jobs();
                self.hear(message);
                if jobs >= TURN_JOBS_COUNT {
                    jobs = 0;
                    self.turn();
                }
            }
            self.turn();
        }
    }

    /// How long nothing needs doing, unless a message comes.
    fn nap(&self) -> Duration {
        let now = self.shared.clock.now();
        let monotonic_ms = self.shared.clock.monotonic_ms();
        let mut ms = NAP_MS_MAX;
        if let Some(at) = self.ready.next_expiry() {
            ms = ms.min(at.since_ms(now));
        }
        if self.draining.is_none()
            && self.reads < self.config.reads_max
            && let Some(at) = self.scan.next_wake()
        {
            ms = ms.min(at.since_ms(now).max(1));
        }
        if self.draining.is_none()
            && self.claims < self.config.claims_max
            && let Some(expired_ms) = self.ready.next_expired_ms(now, monotonic_ms)
        {
            ms = ms.min(expired_ms);
        }
        if let Some(wake_ms) = self.workers.next_wake_ms() {
            ms = ms.min(wake_ms - monotonic_ms);
        }
        if let Some(advert_ms) = self.next_advert_ms() {
            ms = ms.min(advert_ms - monotonic_ms);
        }
        if let Some(guest_ms) = self.peers.next_guest_ms() {
            ms = ms.min(guest_ms - monotonic_ms);
        }
        if let Some(target_ms) = self.ready.next_target_ms() {
            ms = ms.min(target_ms - monotonic_ms);
        }
        if let Some(tick_ms) = self.ready.next_tick_ms() {
            ms = ms.min((tick_ms - monotonic_ms).max(1));
        }
        if let Some(ends_ms) = self.leases.next_end_ms() {
            ms = ms.min(ends_ms - monotonic_ms);
        }
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }

    fn turn(&mut self) {
        let now = self.shared.clock.now();
        let monotonic_ms = self.shared.clock.monotonic_ms();
        if now < self.turned_at {
            // Set back: instants that had passed are ahead again, and what was left for later reads with them.
            self.scan.look_again(now);
            self.is_lost = true;
            self.sweep_at_ms = monotonic_ms;
        }
        let set_back_ms = self.turned_at.since_ms(now) + monotonic_ms - self.turned_ms;
        if set_back_ms >= SET_BACK_MS {
            self.shared.set_back.tell(set_back_ms);
        }
        (self.turned_at, self.turned_ms) = (now, monotonic_ms);
        self.ready.tend_targets(monotonic_ms);
        self.ready.advance(now);
        self.ready.tick(monotonic_ms);
        self.end_leases(monotonic_ms);
        self.tend_workers(monotonic_ms);
        if let Some(reply) = self.draining.take() {
            if self.ready.pushes() == 0 && self.claims == 0 {
                self.stop(reply);
            } else {
                self.draining = Some(reply);
            }
            return;
        }
        self.publish_horizon(now);
        self.open_buckets(now);
        self.start_reads(now, monotonic_ms);
        self.place_guests(monotonic_ms);
        if self.start_claims(now) {
            std::mem::take(&mut self.leaving).into_iter().for_each(|ticket| self.ready.withdraw(ticket));
        }
        self.advertise(monotonic_ms);
        self.periodically(now, monotonic_ms);
    }

    fn horizon(&self, now: Timestamp) -> Timestamp {
        now.plus_ms(self.config.lookahead_ms)
    }

    /// Says up to where the store has been asked; before any read up to there starts, so that whoever stores a
    /// job later sees it and announces the job.
    fn publish_horizon(&self, now: Timestamp) {
        self.shared.horizon_ms.store(self.horizon(now).as_ms(), Ordering::SeqCst);
    }

    fn open_buckets(&mut self, now: Timestamp) {
        let last = Bucket::of(self.horizon(now).plus_ms(OPEN_AHEAD_MS));
        if self.next_bucket <= last {
            let from = self.next_bucket;
            self.next_bucket = last.next();
            self.shared.opened_ms.store(last.end().as_ms(), Ordering::SeqCst);
            self.list((from, last), Look::First);
        }
    }

    fn list(&mut self, range: (Bucket, Bucket), look: Look) {
        let shards = self.shared.territory.held().into_iter().map(|held| held.shard).collect();
        self.list_shards(shards, range, look);
    }

    fn list_shards(&mut self, shards: Vec<Shard>, range: (Bucket, Bucket), look: Look) {
        self.listings += 1;
        tokio::spawn(listing::run(Arc::clone(&self.shared), shards, range, look));
    }

    /// Lists everything; says whether it could begin.
    fn sweep(&mut self) -> bool {
        let is_free = self.listings == 0;
        if is_free {
            let last = Bucket(self.next_bucket.0.saturating_sub(1));
            let look = if std::mem::take(&mut self.is_unlisted) { Look::First } else { Look::Again };
            self.sweeps_for_lost = std::mem::take(&mut self.is_lost);
            self.list((Bucket(0), last), look);
        }
        is_free
    }

    /// Has jobs read again about which the store knows better.
    fn recheck(&self, doubtful: Vec<(Tenant, JobId)>) {
        if !doubtful.is_empty() {
            tokio::spawn(recheck::run(Arc::clone(&self.shared), doubtful));
        }
    }

    /// Starts what may start; says whether that was all.
    fn start_claims(&mut self, now: Timestamp) -> bool {
        while self.claims < self.config.claims_max {
            let count_max = self.config.claim_batch_max;
            let claim = if let Some(picks) = self.ready.pick_expired(now, count_max) {
                Claim::new(picks, Vec::new(), true)
            } else {
                match self.ready.pick(now, count_max) {
                    Some(Picked::Push(picks)) => Claim::new(picks, Vec::new(), false),
                    Some(Picked::Take(picks, takers)) => Claim::new(picks, takers, false),
                    None => return true,
                }
            };
            self.claims += 1;
            tokio::spawn(claims::write(Arc::clone(&self.shared), claim));
        }
        false
    }

    fn end_leases(&mut self, monotonic_ms: i64) {
        let over = self.leases.over(monotonic_ms);
        if over.is_empty() {
            return;
        }
        let orders = over
            .into_iter()
            .map(|lease| {
                let trace_id =
                    self.shared.traces.trace_id(lease.id, lease.trace_id).map(tracing::field::display);
                // Where there are other nodes, one of them may have heard of its worker.
                if self.shared.territory.is_shared() {
                    tracing::debug!(
                        job_id = named(&lease.id),
                        trace_id,
                        "an attempt's lease ran out, as far as is known here"
                    );
                } else {
                    tracing::warn!(job_id = named(&lease.id), trace_id, "an attempt's lease ran out");
                }
                self.deliverer.abort(&lease.id);
                let jitter = self.shared.random.jitter();
                Order {
                    tenant: lease.tenant,
                    id: lease.id,
                    command: Command::LeaseOver {
                        token: lease.token,
                        lease_until: lease.lease_until,
                        jitter,
                    },
                    key: None,
                }
            })
            .collect();
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move { outcomes::write(&shared, orders).await });
    }

    fn stop(&mut self, reply: oneshot::Sender<usize>) {
        self.stopped = true;
        let left = self.ready.pushes();
        let checkpoints = self.checkpoints(self.shared.clock.now());
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(error) = shared.store.save_checkpoints(checkpoints).await {
                tracing::warn!(%error, "cursors could not be noted");
            }
            reply.send(left).ok();
        });
    }
}

/// The lease of a pushed attempt: its timeout, and enough over it for the timeout to be reported.
pub(in crate::engine) fn push_lease_ms(job: &Job) -> i64 {
    job.spec.timeout_ms.saturating_add(LEASE_MARGIN_MS)
}

const _: () = assert!(OPEN_AHEAD_MS < BUCKET_MS, "a bucket is opened while the one before it is current");

/// Takes the whole store over from a predecessor: its attempts that nobody else answers for are tried again.
async fn take_over(shared: &Shared) -> Result<Leases, Error> {
    shared.territory.take_all(shared.store.open_epoch().await?);
    let (now, monotonic_ms) = (shared.clock.now(), shared.clock.monotonic_ms());
    let mut leases = Leases::default();
    let mut lost = Vec::new();
    for job in shared.store.running().await? {
        if job.status.running.as_ref().is_some_and(|running| running.detached) {
            leases.hold(&job, now, monotonic_ms);
        } else {
            let token = job.status.token;
            lost.push(Order { tenant: job.tenant, id: job.id, command: Command::Lost { token }, key: None });
        }
    }
    if !lost.is_empty() {
        tracing::info!(
            count = lost.len(),
            "attempts were under way when the server stopped; trying them again"
        );
        shared.metrics.recovered(lost.len());
        for applied in shared.store.apply(now, None, lost).await?.into_iter().flatten() {
            shared.traces.attempt_ended(&applied.job);
        }
    }
    Ok(leases)
}
