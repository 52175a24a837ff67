//! What is in memory between the store and its delivery: the wheel (near, or due a moment ago), the lanes (due), and
//! the jobs being claimed or delivered. Bounded: what finds no room stays in the store, and the lot it belongs
//! to (one tenant's jobs of one priority for one destination) remembers from where to read on.

mod allotments;
mod breakers;
mod demand;
mod due;
mod expiry;
mod hold_back;
mod interest;
mod lane_slots;
mod offer;
mod origin;
mod own_first;
mod paces;
mod pick;
mod place;
mod push_slots;
mod refill;
mod run_times;
mod seats;
mod subscribers;
mod suspects;
mod takers;
mod view;

use std::collections::{VecDeque, hash_map};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job};
use tidewheel_core::lanes::Entry;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Shard, SubShard};
use tidewheel_core::time::Timestamp;
use tidewheel_core::wheel::Wheel;

pub use self::allotments::Allotment;
use self::allotments::Allotments;
pub use self::breakers::BreakerView;
use self::breakers::Breakers;
use self::demand::Demand;
pub(super) use self::demand::Wish;
use self::due::Crowds;
use self::expiry::Expiries;
pub use self::interest::{Interest, Tenants};
use self::lane_slots::LaneSlot;
pub(super) use self::offer::{Crowded, MayWait, Offer};
use self::offer::{NO_ROOM_AHEAD_MS_MAX, NO_ROOM_MS_MIN, time_for};
pub(super) use self::origin::host_of;
pub(crate) use self::origin::origin_of;
use self::own_first::OwnFirst;
use self::paces::Paces;
pub(super) use self::pick::{Picked, Recipient, Taker};
use self::push_slots::PushSlots;
pub(super) use self::refill::{Lot, Refill};
use self::refill::{LotKey, Overflow};
use self::run_times::RunTimes;
use self::subscribers::Subscribers;
pub(super) use self::subscribers::{Outlet, Subscriber, SubscriberId};
use self::suspects::{SUSPECTS_COUNT_MAX, Suspects, is_suspect};
pub(super) use self::takers::{Leave, TakeReply, Ticket};
pub use self::view::LaneView;
use super::config::Config;
use super::governor::MadeUp;
use super::turns::Turns;

/// Where a job in memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Wheel,
    Lane(usize),
    /// Its claim is being written. `called_off` when it ended meanwhile.
    Claiming {
        lane: usize,
        called_off: bool,
    },
    Delivering(usize),
}

#[derive(Debug)]
struct Held {
    due_at: Timestamp,
    bytes: usize,
    stage: Stage,
    /// Whose it is, once it was picked.
    tenant: Option<Arc<str>>,
    /// When it is ended if it is still in its lane then.
    expires_at: Option<Timestamp>,
}

/// Everything in memory.
#[derive(Debug)]
pub(super) struct Ready {
    config: Config,
    /// How many shards there are.
    shards: u16,
    made_up: MadeUp,
    wheel: Wheel<Arc<Job>>,
    crowds: Crowds,
    held: FxHashMap<JobId, Held>,
    waiting_count: usize,
    waiting_bytes: usize,
    queues: FxHashMap<Arc<str>, usize>,
    hosts: FxHashMap<Arc<str>, usize>,
    lanes: Vec<Option<LaneSlot>>,
    /// The one that was last looked for.
    latest_lane: Option<(Destination, usize)>,
    free: Vec<usize>,
    /// Lanes that can move, by kind: a push limit that is reached must not hold up the queues.
    active_queues: VecDeque<usize>,
    active_hosts: VecDeque<usize>,
    queues_first: bool,
    own_first: OwnFirst,
    subscribers: Subscribers,
    suspects: Suspects,
    allotments: Allotments,
    breakers: Breakers,
    paces: Paces,
    run_times: RunTimes,
    /// The wall clock when it was last looked at.
    looked_at: Timestamp,
    demand: Demand,
    expiries: Expiries,
    refills: Turns<Lot>,
    /// Reads for them begun so far.
    refill_reads: u64,
    /// Refills that could not be read, or not yet, to be tried again with the next window.
    failed_refills: Vec<Lot>,
    push_slots: PushSlots,
    window_ends: Timestamp,
    fired: Vec<Arc<Job>>,
    /// As of the last turn.
    monotonic_ms: i64,
}

/// Jobs read in one go even when memory is full.
const READ_COUNT_MIN: usize = 256;

impl Ready {
    pub(super) fn new(config: Config, shards: u16, made_up: MadeUp, now: Timestamp) -> Self {
        Self {
            shards,
            breakers: Breakers::new(config.breaker),
            push_slots: PushSlots::new(config.push_max),
            paces: Paces::new(config.host_rates.clone()),
            config,
            made_up,
            wheel: Wheel::new(now.as_ms()),
            crowds: Crowds::default(),
            held: FxHashMap::default(),
            waiting_count: 0,
            waiting_bytes: 0,
            queues: FxHashMap::default(),
            hosts: FxHashMap::default(),
            lanes: Vec::new(),
            latest_lane: None,
            free: Vec::new(),
            active_queues: VecDeque::new(),
            active_hosts: VecDeque::new(),
            queues_first: false,
            own_first: OwnFirst::default(),
            subscribers: Subscribers::default(),
            suspects: Suspects::default(),
            allotments: Allotments::default(),
            run_times: RunTimes::default(),
            looked_at: now,
            demand: Demand::default(),
            expiries: Expiries::default(),
            refills: Turns::default(),
            refill_reads: 0,
            failed_refills: Vec::new(),
            window_ends: now,
            fired: Vec::new(),
            monotonic_ms: 0,
        }
    }

    /// Offers a waiting job. `may_wait` is for what the caller would come back with it.
    pub(super) fn offer(
        &mut self,
        job: Arc<Job>,
        now: Timestamp,
        horizon: Timestamp,
        may_wait: MayWait,
    ) -> Offer {
        let at = job.status.due_at;
        match self.held.get(&job.id).map(|held| (held.stage, held.due_at)) {
            // A stale read: the store has the last word when the claim is written.
            Some((Stage::Claiming { .. } | Stage::Delivering(_), _)) => return Offer::Held,
            Some((Stage::Wheel | Stage::Lane(_), due_at)) if due_at == at => return Offer::Held,
            Some(_) => self.forget_waiting(&job),
            None => {}
        }
        if at > horizon {
            return Offer::Later;
        }
        if at <= now {
            self.let_due_go_first(now);
            if may_wait == MayWait::No && self.joins_crowd(&job) {
                return Offer::Held;
            }
            return self.enter_lane(job, now, may_wait, false);
        }
        if self.is_full() {
            let half_ms = at.since_ms(now) / 2;
            let wait_ms = half_ms.clamp(NO_ROOM_MS_MIN, NO_ROOM_AHEAD_MS_MAX);
            return Offer::NoRoom { wait_ms, crowded: None };
        }
        self.hold_in_wheel(job);
        Offer::Held
    }

    /// A look at what is held of a job.
    pub(super) fn glance(&self, id: &JobId) -> bool {
        self.held.get(id).is_some_and(|held| held.bytes > 0)
    }

    /// Notes the time: what is heard of now happened by now.
    pub(super) const fn look_at_clock(&mut self, now: Timestamp) {
        self.looked_at = now;
    }

    /// Jobs that are worth reading in one go: for what is more there would be no room. When memory is full, what there is
    /// room for may stand behind much for which there is none; but not where a reader found no room for the very next.
    pub(super) fn worth_reading(
        &self,
        tenant: &Tenant,
        had_no_room: bool,
        crowded: Option<Crowded>,
    ) -> usize {
        let least = if had_no_room { self.config.lot_count_min } else { READ_COUNT_MIN };
        let free = self.config.held_count_max.saturating_sub(self.waiting_count).max(least);
        let of_lot = crowded.and_then(|lot| {
            let slot = self.lanes.get(lot.lane)?.as_ref()?;
            // Some more, or it would be read on and on for next to nothing.
            Some(slot.lane.free(tenant.as_str(), lot.priority).max((self.config.quantum / 2).max(1)))
        });
        free.min(of_lot.unwrap_or(usize::MAX)).min(self.config.quantum)
    }

    fn is_full(&self) -> bool {
        self.waiting_count >= self.config.held_count_max || self.waiting_bytes >= self.config.held_bytes_max
    }

    fn hold(&mut self, id: JobId, held: Held) {
        self.waiting_count += 1;
        self.waiting_bytes += held.bytes;
        self.held.insert(id, held);
    }

    fn unhold(&mut self, id: &JobId) {
        if let Some(held) = self.held.remove(id) {
            self.waiting_count = self.waiting_count.saturating_sub(1);
            self.waiting_bytes = self.waiting_bytes.saturating_sub(held.bytes);
            self.expiries.forget(*id, &held);
        }
    }

    /// Puts a due job into its lane. `refilling` jobs are what an overflowed lot waits for; all others of such
    /// a lot stay in the store, so that it drains oldest first.
    fn enter_lane(&mut self, job: Arc<Job>, now: Timestamp, may_wait: MayWait, refilling: bool) -> Offer {
        let index = self.lane_of(&job.spec.destination);
        let full = self.is_full();
        let made_up = self.made_up.has(&job);
        let (priority, shards) = (job.spec.priority, self.shards);
        let key = |job: &Job| {
            let shard = Shard::of_job(&job.tenant, job.id, shards);
            LotKey { tenant: job.tenant.clone(), priority, made_up, shard }
        };
        let is_held_back = self.holds_back(index, job.tenant.as_str());
        let (lot_max, lot_min) = (self.config.lot_count_max, self.config.lot_count_min);
        let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) else {
            return Offer::NoRoom { wait_ms: NO_ROOM_MS_MIN, crowded: None };
        };
        let at = job.status.due_at;
        if !refilling
            && !slot.overflows.is_empty()
            && let Some(overflow) = slot.overflows.get_mut(&key(&job))
        {
            overflow.turn_away(job.position());
            return Offer::Overflowed;
        }
        let lot_count = lot_max - slot.lane.free(job.tenant.as_str(), priority);
        let has_room = !is_held_back && lot_count < lot_max && (!full || lot_count < lot_min);
        if !has_room {
            let (picked, is_fast) = (slot.picked(), slot.is_fast(now));
            let is_worth_it = match may_wait {
                MayWait::No => false,
                MayWait::IfMoving => is_fast,
                MayWait::ForTakers => is_fast || self.is_taken(index, &job),
            };
            let moves = is_worth_it && !is_held_back;
            if moves || refilling {
                let crowded = (lot_count >= lot_max).then_some(Crowded { lane: index, priority });
                return Offer::NoRoom { wait_ms: time_for(lot_max / 2, picked), crowded };
            }
            if let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) {
                slot.overflows.insert(key(&job), Overflow::starting_at(at));
            }
            return Offer::Overflowed;
        }
        let suspects_max = if full { lot_min / 2 } else { SUSPECTS_COUNT_MAX };
        let entry = Entry {
            tenant: job.tenant.shared(),
            priority,
            ready_at_ms: at.as_ms().max(job.spec.created_at.as_ms()).min(now.as_ms()),
            cost: 1,
            alone: slot.is_queue && slot.lane.alone_len() < suspects_max && is_suspect(&job),
            item: Arc::clone(&job),
        };
        let joins = !slot.is_queue && !slot.lane.has(&entry.tenant);
        if slot.lane.push(entry).is_err() {
            return Offer::NoRoom { wait_ms: NO_ROOM_MS_MIN, crowded: None };
        }
        let expires_at = self.expiries.watch(&job);
        if joins {
            let tenant = job.tenant.shared();
            self.push_slots.joined(&tenant, || self.allotments.weight(&tenant));
        }
        let bytes = job.size_bytes();
        let held = Held { due_at: at, bytes, stage: Stage::Lane(index), tenant: None, expires_at };
        self.hold(job.id, held);
        self.activate(index);
        Offer::Held
    }

    /// Whether a lane would move if it had nothing but such jobs: somebody has room for them, or a push may begin.
    fn is_taken(&self, index: usize, job: &Job) -> bool {
        let Some(slot) = self.lanes.get(index).and_then(Option::as_ref) else { return false };
        let tenant = job.tenant.as_str();
        let is_open = if slot.is_queue {
            slot.seats.admit(tenant, job.spec.priority, &job.spec.kind)
        } else {
            slot.in_flight < slot.in_flight_max
                && self.push_slots.free() > 0
                && self.push_slots.admits(tenant, self.is_one_host())
                && !self.paces.waits(&slot.name)
        };
        is_open && self.allotments.admits(tenant, &slot.name)
    }

    /// Drops a job that waits in the wheel or a lane.
    fn forget_waiting(&mut self, job: &Job) {
        let Some(held) = self.held.get(&job.id) else { return };
        if let Stage::Lane(index) = held.stage
            && let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut)
        {
            let removed = slot.lane.remove(job.tenant.as_str(), |item| item.id == job.id);
            for entry in removed {
                self.left_lane(index, &entry.tenant);
                self.queue_refills(index, &entry.item.tenant, entry.priority);
            }
        }
        self.unhold(&job.id);
    }

    /// Forgets what waits in shards for which `wanted` does not hold.
    pub(super) fn keep(&mut self, wanted: impl Fn(Shard) -> bool) {
        let shards = self.shards;
        let shard_of = |job: &Job| Shard::of_job(&job.tenant, job.id, shards);
        for (at_ms, job) in self.wheel.drain() {
            if wanted(shard_of(&job)) {
                self.wheel.insert(at_ms, job);
            } else if self.waits_in_wheel(&job) {
                self.unhold(&job.id);
            }
        }
        self.keep_crowds(|job| wanted(shard_of(job)));
        for index in 0..self.lanes.len() {
            let Some(slot) = self.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            slot.overflows.retain(|key, _| wanted(key.shard));
            let mut removed = Vec::new();
            for tenant in slot.lane.tenants() {
                removed.extend(slot.lane.remove(&tenant, |job| !wanted(shard_of(job))));
                if !slot.is_queue && !slot.lane.has(&tenant) {
                    self.push_slots.left(&tenant);
                }
            }
            let left: Vec<LotKey> = slot.overflows.keys().cloned().collect();
            removed.iter().for_each(|entry| self.unhold(&entry.item.id));
            // Of a tenant that is spread, others may have had the room for which these wait; nobody else would tell them.
            left.into_iter().for_each(|key| self.queue_refill(index, key));
            self.tidy(index);
        }
        self.refills.retain(|lot| wanted(lot.key.shard));
        self.failed_refills.retain(|lot| wanted(lot.key.shard));
        let is_any =
            |tenant: &Tenant| SubShard::all().any(|sub| wanted(Shard::of_sub_shard(tenant, sub, shards)));
        self.breakers.keep(is_any);
        self.allotments.keep(|tenant, id| wanted(Shard::of_job(tenant, id, shards)));
    }

    /// A job has ended or is run elsewhere: forgets it. Says whether it was being delivered.
    pub(super) fn forget(&mut self, job: &Job) -> bool {
        let hash_map::Entry::Occupied(mut place) = self.held.entry(job.id) else {
            self.end_allotted(&job.id);
            return false;
        };
        match &mut place.get_mut().stage {
            Stage::Claiming { called_off, .. } => {
                *called_off = true;
                false
            }
            Stage::Delivering(_) => {
                let held = place.remove();
                self.ended(&job.id, held);
                true
            }
            Stage::Wheel | Stage::Lane(_) => {
                self.forget_waiting(job);
                false
            }
        }
    }

    /// A claim was granted: the job is being delivered, unless it was called off meanwhile.
    pub(super) fn claimed(&mut self, id: &JobId) -> bool {
        let Some(held) = self.held.get_mut(id) else { return false };
        let Stage::Claiming { lane, called_off } = held.stage else { return false };
        if called_off {
            self.unclaim(id);
            return false;
        }
        held.stage = Stage::Delivering(lane);
        true
    }

    /// A claim was granted, but does not start: nothing is to be learnt of how long it took.
    pub(super) fn unstart(&mut self, id: &JobId) {
        if let Some(held) = self.held.get_mut(id)
            && let Stage::Delivering(lane) = held.stage
        {
            held.stage = Stage::Claiming { lane, called_off: false };
        }
        self.unclaim(id);
    }

    /// A claim was refused or handed back.
    pub(super) fn unclaim(&mut self, id: &JobId) {
        if let Some(held) = self.held.remove(id) {
            self.ended(id, held);
        }
    }

    /// What was being claimed or delivered is not any more.
    fn ended(&mut self, id: &JobId, held: Held) {
        if let Stage::Claiming { lane, .. } | Stage::Delivering(lane) = held.stage {
            self.time_until(id, held.stage);
            self.vacate(lane, held.tenant.as_ref());
            self.end_allotted(id);
            self.probe_ended(id);
        }
    }

    /// A delivery ended; its place is free.
    pub(super) fn end_delivery(&mut self, id: &JobId) {
        match self.held.entry(*id) {
            hash_map::Entry::Occupied(place) => {
                if matches!(place.get().stage, Stage::Delivering(_)) {
                    let held = place.remove();
                    self.ended(id, held);
                }
            }
            // One that another node began, or this one before a restart.
            hash_map::Entry::Vacant(_) => self.end_allotted(id),
        }
    }
}
