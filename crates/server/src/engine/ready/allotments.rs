//! What each tenant has been allotted: its weight beside others, how many attempts it may have under way, in all and in
//! one lane, and how many it may start in a second. A tenant at its cap is passed over and keeps its turn; nobody else
//! waits for it, and a cap on one lane holds up no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job};
use tidewheel_core::names::Tenant;

use super::{Ready, Stage, host_of};
use crate::engine::governor::{Bucket, Rate};

/// What one tenant has been allotted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allotment {
    /// Who.
    pub tenant: Tenant,
    /// Its share beside others; 1 is usual.
    pub weight: u32,
    /// Attempts it may have under way at a time.
    pub running_count_max: Option<u32>,
    /// Attempts it may have under way at a time in one queue, or at one host.
    pub queue_running_count_max: Option<u32>,
    /// Attempts it may start in a second.
    pub starts_per_s: Option<u32>,
    /// Shards its jobs are spread over, those that were put there under an earlier setting included; 1 is usual.
    pub spread: u8,
}

#[derive(Debug)]
struct Cap {
    max: usize,
    under_way: usize,
    /// In one lane.
    lane_max: usize,
    by_lane: FxHashMap<Arc<str>, usize>,
    pace: Option<Pace>,
}

/// How fast attempts may start.
#[derive(Debug)]
struct Pace {
    rate: Rate,
    bucket: Bucket,
}

/// An attempt under way of a tenant with a cap.
#[derive(Debug)]
struct UnderWay {
    tenant: Arc<str>,
    /// The name of its lane, as far as it is known.
    lane: Option<Arc<str>>,
}

/// All that is allotted. Tenants for whom nothing is set cost nothing here.
#[derive(Debug, Default)]
pub(super) struct Allotments {
    weights: BTreeMap<Arc<str>, u32>,
    caps: FxHashMap<Arc<str>, Cap>,
    under_way: FxHashMap<JobId, UnderWay>,
    /// Lanes in which nothing moves while those at their cap are.
    stalled: BTreeSet<usize>,
    monotonic_ms: i64,
}

impl Cap {
    fn new(allotment: &Allotment, before: Option<Self>, monotonic_ms: i64) -> Self {
        let most =
            |max: Option<u32>| max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        let pace = allotment.starts_per_s.map(|count| {
            let rate = Rate::per_second(count);
            // One that stays as it is gives nothing anew.
            let before = before.and_then(|before| before.pace).filter(|before| before.rate == rate);
            before.unwrap_or_else(|| Pace { rate, bucket: Bucket::full(rate, monotonic_ms) })
        });
        Self {
            max: most(allotment.running_count_max),
            under_way: 0,
            lane_max: most(allotment.queue_running_count_max),
            by_lane: FxHashMap::default(),
            pace,
        }
    }

    fn admits(&self, lane: Option<&str>) -> bool {
        self.under_way < self.max
            && (self.lane_max == usize::MAX
                || lane.is_none_or(|lane| self.by_lane.get(lane).is_none_or(|count| *count < self.lane_max)))
            && self.pace.as_ref().is_none_or(|pace| pace.bucket.whole() > 0)
    }

    fn add(&mut self, lane: Option<&Arc<str>>) {
        self.under_way += 1;
        if let Some(lane) = lane.filter(|_| self.lane_max != usize::MAX) {
            *self.by_lane.entry(Arc::clone(lane)).or_default() += 1;
        }
    }

    fn remove(&mut self, lane: Option<&Arc<str>>) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(lane) = lane
            && let Some(count) = self.by_lane.get_mut(lane)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_lane.remove(lane);
            }
        }
    }
}

impl Allotments {
    /// Weights other than the usual.
    pub(super) fn weights(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.weights.iter().map(|(tenant, weight)| (tenant, *weight))
    }

    /// The weight of a tenant.
    pub(super) fn weight(&self, tenant: &str) -> u32 {
        self.weights.get(tenant).copied().unwrap_or(1)
    }

    /// Whether another attempt of the tenant may begin in the lane of that name.
    pub(super) fn admits(&self, tenant: &str, lane: &str) -> bool {
        self.caps.is_empty() || self.caps.get(tenant).is_none_or(|cap| cap.admits(Some(lane)))
    }

    /// An attempt is about to begin.
    pub(super) fn began(&mut self, tenant: &Tenant, id: JobId, lane: &Arc<str>) {
        if self.caps.is_empty() {
            return;
        }
        if let Some(cap) = self.caps.get_mut(tenant.as_str()) {
            if let Some(pace) = &mut cap.pace {
                pace.bucket.draw();
            }
            self.note(tenant.shared(), id, Some(Arc::clone(lane)));
        }
    }

    /// Counts an attempt under way, once.
    fn note(&mut self, tenant: Arc<str>, id: JobId, lane: Option<Arc<str>>) {
        if let Some(cap) = self.caps.get_mut(&tenant)
            && !self.under_way.contains_key(&id)
        {
            cap.add(lane.as_ref());
            self.under_way.insert(id, UnderWay { tenant, lane });
        }
    }

    /// An attempt is over; says whether one that waited for that may begin.
    fn ended(&mut self, id: &JobId) -> bool {
        if self.under_way.is_empty() {
            return false;
        }
        let Some(UnderWay { tenant, lane }) = self.under_way.remove(id) else { return false };
        if let Some(cap) = self.caps.get_mut(&tenant) {
            cap.remove(lane.as_ref());
        }
        true
    }

    /// Forgets attempts for which `wanted` does not hold.
    pub(super) fn keep(&mut self, wanted: impl Fn(&Tenant, JobId) -> bool) {
        let is_wanted = |name: &str, id| Tenant::new(name).is_ok_and(|tenant| wanted(&tenant, id));
        let Self { under_way, caps, .. } = self;
        under_way.retain(|id, attempt| {
            let stays = is_wanted(&attempt.tenant, *id);
            if !stays && let Some(cap) = caps.get_mut(&attempt.tenant) {
                cap.remove(attempt.lane.as_ref());
            }
            stays
        });
    }

    /// Nothing of a lane could be picked.
    pub(super) fn stall(&mut self, lane: usize) {
        if !self.caps.is_empty() {
            self.stalled.insert(lane);
        }
    }

    /// Lets what tenants may start grow; says whether somebody may go on who could not.
    fn tick(&mut self, monotonic_ms: i64) -> bool {
        self.monotonic_ms = monotonic_ms;
        let mut may_go_on = false;
        for pace in self.caps.values_mut().filter_map(|cap| cap.pace.as_mut()) {
            let was_empty = pace.bucket.whole() == 0;
            pace.bucket.fill(pace.rate, monotonic_ms);
            may_go_on |= was_empty && pace.bucket.whole() > 0;
        }
        may_go_on
    }

    /// When somebody may go on who has started as many as may.
    fn next_pace_ms(&self) -> Option<i64> {
        if self.stalled.is_empty() {
            return None;
        }
        let empty = self.caps.values().filter_map(|cap| cap.pace.as_ref());
        empty.filter_map(|pace| pace.bucket.next_ms(pace.rate)).min()
    }
}

impl Ready {
    /// Goes by these from now on, and by what is usual for everybody else. `under_way` are the attempts under way, whoever
    /// began them: those that were before a cap was set count, too.
    pub(in crate::engine) fn allot<'a>(
        &mut self,
        all: &[Allotment],
        under_way: impl Iterator<Item = (&'a Tenant, JobId, Option<&'a Arc<str>>)>,
    ) {
        let before = std::mem::take(&mut self.allotments.weights);
        let mut caps_before = std::mem::take(&mut self.allotments.caps);
        let counted = std::mem::take(&mut self.allotments.under_way);
        for allotment in all {
            let name = allotment.tenant.shared();
            if allotment.weight > 1 {
                self.allotments.weights.insert(Arc::clone(&name), allotment.weight);
            }
            let Allotment { running_count_max, queue_running_count_max, starts_per_s, .. } = allotment;
            if running_count_max.or(*queue_running_count_max).or(*starts_per_s).is_some() {
                let cap = Cap::new(allotment, caps_before.remove(&name), self.allotments.monotonic_ms);
                self.allotments.caps.insert(name, cap);
            }
        }
        counted.into_iter().for_each(|(id, it)| self.allotments.note(it.tenant, id, it.lane));
        if !self.allotments.caps.is_empty() {
            for (tenant, id, queue) in under_way {
                let lane = self.lane_name_of(&id).or_else(|| queue.cloned());
                self.allotments.note(tenant.shared(), id, lane);
            }
        }
        self.refills.set_weights(self.allotments.weights());
        let Self { lanes, allotments, push_slots, .. } = self;
        push_slots.reweigh(|tenant| allotments.weight(tenant));
        for slot in lanes.iter_mut().flatten() {
            for tenant in before.keys().filter(|tenant| !allotments.weights.contains_key(*tenant)) {
                slot.lane.set_weight(tenant, 1);
            }
            for (tenant, weight) in allotments.weights() {
                slot.lane.set_weight(tenant, weight);
            }
        }
        self.wake_stalled();
    }

    /// Weights other than the usual.
    pub(in crate::engine) fn weights(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.allotments.weights()
    }

    /// Counts an attempt that another node began, or this one before it was started anew.
    pub(in crate::engine) fn adopt(&mut self, job: &Job) {
        if !self.allotments.caps.is_empty() {
            let lane = match &job.spec.destination {
                Destination::Queue(name) => Arc::clone(name),
                Destination::Target(target) => Arc::from(host_of(target)),
            };
            self.allotments.note(job.tenant.shared(), job.id, Some(lane));
        }
    }

    /// The lane an attempt was picked from.
    fn lane_name_of(&self, id: &JobId) -> Option<Arc<str>> {
        let (Stage::Claiming { lane, .. } | Stage::Delivering(lane)) = self.stage(id)? else { return None };
        self.lanes.get(lane).and_then(Option::as_ref).map(|slot| Arc::clone(&slot.name))
    }

    /// Whether no further attempt of the tenant may begin now at that destination.
    pub(in crate::engine) fn is_at_cap(&self, tenant: &Tenant, destination: &Destination) -> bool {
        let lane: &str = match destination {
            Destination::Queue(name) => name,
            Destination::Target(target) => host_of(target),
        };
        !self.allotments.admits(tenant.as_str(), lane)
    }

    /// Time has passed: whoever had started as many as may in a second may go on, and other nodes may have what waited for
    /// own workers.
    pub(in crate::engine) fn tick(&mut self, monotonic_ms: i64) {
        if self.allotments.tick(monotonic_ms) {
            self.wake_stalled();
        }
        self.offer_to_peers();
        self.tend_suspects();
    }

    /// When [`Self::tick`] is worth calling.
    pub(in crate::engine) fn next_tick_ms(&self) -> Option<i64> {
        [self.allotments.next_pace_ms(), self.next_offer_ms()].into_iter().flatten().min()
    }

    /// An attempt is over: whoever waited for that may go on.
    pub(super) fn end_allotted(&mut self, id: &JobId) {
        if self.allotments.ended(id) {
            self.wake_stalled();
        }
    }

    fn wake_stalled(&mut self) {
        for lane in std::mem::take(&mut self.allotments.stalled) {
            self.activate(lane);
        }
    }
}
