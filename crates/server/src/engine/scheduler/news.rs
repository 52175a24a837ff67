//! What the scheduler makes of each [`Message`]: where the news goes, and whether it is still news.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewheel_core::job::{Destination, Job};
use tidewheel_core::place::Bucket;
use tidewheel_core::time::Timestamp;
use tokio::sync::oneshot;

use super::{Message, READ_RETRY_MS, Scheduler};
use crate::engine::governor::MadeUp;
use crate::engine::leases::Renewal;
use crate::engine::ready::{Allotment, MayWait, Offer, Stage};
use crate::engine::scan::{Look, Lost, TenantShard};
use crate::engine::spread::Spreads;
use crate::engine::{Whereabouts, is_waiting};

impl Scheduler {
    pub(super) fn hear(&mut self, message: Message) {
        let now = self.shared.clock.now();
        match message {
            Message::Waiting(jobs) => {
                self.shared.hinted.fetch_sub(jobs.len(), Ordering::SeqCst);
                for job in jobs {
                    self.take_in(job, now);
                }
            }
            Message::Changed { jobs, done } => {
                for job in jobs {
                    self.tell_holder(&job);
                    self.changed(job, now);
                }
                // Whoever asked may have stopped waiting.
                done.send(()).ok();
            }
            Message::Renewed(jobs) => {
                for (job, by) in jobs {
                    self.renewed(&job, by);
                }
            }
            Message::Rechecked(job) => {
                if !self.is_behind(&job) {
                    self.changed(job, now);
                }
            }
            Message::Reported { jobs, refused, unreadable } => {
                self.reported(jobs, refused, now);
                self.let_go_unreadable(&unreadable);
            }
            Message::Listed(look, tenants) => self.listed(look, tenants, now),
            Message::ListingDone { failed } => {
                self.listings = self.listings.saturating_sub(1);
                if let Some(look) = failed {
                    self.is_unlisted |= look == Look::First;
                    self.sweep_at_ms = self.shared.clock.monotonic_ms() + READ_RETRY_MS;
                }
            }
            Message::Read { read, page } => self.read_back(&read, page, now),
            Message::Refilled { refill, page } => self.refilled(&refill, page, now),
            Message::Claimed { claim, granted } => self.claimed(claim, granted, now),
            Message::Allot(all) => self.allot(all),
            Message::Take { take, reply } => self.taker(take, reply),
            Message::Retract { ticket } => self.ready.retract(ticket),
            Message::Withdraw { ticket } => self.leaving.push(ticket),
            Message::Worker(message, _hold) => self.hear_worker(message, now),
            Message::Whereabouts { job, reply } => {
                reply.send(self.whereabouts(&job, now)).ok();
            }
            Message::Gained { shards, running } => self.gained(shards, &running, now),
            Message::Lost { done } => {
                self.lost();
                done.send(()).ok();
            }
            Message::Lanes { tenant, count_max, reply } => {
                reply.send(self.ready.lanes_of(&tenant, count_max)).ok();
            }
            Message::Heard(all) => self.hear_of_targets(&all, now),
            Message::Breakers { tenant, reply } => {
                reply.send(self.ready.breakers_of(&tenant, now)).ok();
            }
            Message::Peer(message) => self.hear_peer(message),
            Message::Drain { reply } => self.drain(reply),
            Message::Stop { reply } => self.stop(reply),
        }
    }

    fn listed(&mut self, look: Look, tenants: Vec<(TenantShard, Timestamp)>, now: Timestamp) {
        let lost = match (self.sweeps_for_lost, self.shared.territory.is_shared()) {
            (true, _) => Lost::Known,
            (false, true) => Lost::Maybe,
            (false, false) => Lost::Nothing,
        };
        for (of, first_at) in tenants {
            // A listing may end after its shard was lost. Were its tenants taken up, and the shard gained again, they would be
            // read as if nothing had been in between.
            if !self.shared.territory.holds(of.shard) {
                continue;
            }
            match look {
                Look::First => self.scan.open(&of, first_at),
                Look::Again => self.scan.sweep(&of, first_at, now, lost),
            }
        }
    }

    /// Goes by other weights and caps, for what waits already too.
    fn allot(&mut self, all: Vec<Allotment>) {
        self.spreads = Spreads::of(&all, &*self.shared.store);
        self.allotted = all;
        self.allot_parts();
        self.scan.set_weights(self.ready.weights());
    }

    /// Goes by the part of each cap that belongs to the shards served here.
    pub(super) fn allot_parts(&mut self) {
        let territory = &self.shared.territory;
        let parts = self.spreads.parts(&self.allotted, territory);
        self.ready.allot(&parts, self.leases.each());
        self.governor.set_parts(self.spreads.held(territory));
    }

    fn drain(&mut self, reply: oneshot::Sender<usize>) {
        self.send_workers_away();
        self.dismiss_guests();
        self.ready.drop_takers();
        self.draining = Some(reply);
    }

    /// A job waits for its time: into memory if that is near, else make sure it will be read.
    pub(super) fn take_in(&mut self, job: Arc<Job>, now: Timestamp) {
        if self.pass_on(&job) {
            return;
        }
        let (tenant, id, at) = (job.tenant.clone(), job.id, job.status.due_at);
        if MadeUp::is_marked(&job) && !self.may_make_up(&job, now) {
            if Bucket::of(at) < self.next_bucket {
                self.scan.announce_made_up(&self.shared.territory.place_of(&job), at);
            }
            return;
        }
        match self.ready.offer(job, now, self.horizon(now), MayWait::No) {
            Offer::Held | Offer::Overflowed => {}
            Offer::Later | Offer::NoRoom { .. } => {
                if Bucket::of(at) < self.next_bucket {
                    let shard = self.shared.territory.shard_of(&tenant, id);
                    self.scan.announce(&TenantShard { tenant, shard }, at);
                }
            }
        }
    }

    /// Whether a job that is made up for may start now. If not, it is left to the paced reads.
    pub(super) fn may_make_up(&mut self, job: &Job, now: Timestamp) -> bool {
        if self.ready.stage(&job.id).is_some() {
            // A job that is moved has drawn for its old time.
            return true;
        }
        job.status.due_at <= now && self.governor.draw(&job.tenant, self.shared.clock.monotonic_ms())
    }

    /// Whether this is news of an attempt that has been followed by another.
    pub(super) fn is_outdated(&self, job: &Job) -> bool {
        self.leases.token(&job.id).is_some_and(|held| held > job.status.token)
    }

    pub(super) fn renewed(&mut self, job: &Job, by: Renewal) {
        if !self.is_outdated(job) {
            self.leases.renew(job, by, self.shared.clock.monotonic_ms());
        }
    }

    /// Whether somebody has had the job start sooner than this news says. News of an attempt, or of a job that was
    /// read again, may be older than that; were it believed, nobody would look where the job waits. If it is
    /// the newer after all, the claim will be refused as not due.
    pub(super) fn is_behind(&self, job: &Job) -> bool {
        is_waiting(job) && self.ready.waits_for(&job.id).is_some_and(|at| at < job.status.due_at)
    }

    pub(super) fn changed(&mut self, job: Arc<Job>, now: Timestamp) {
        if self.is_outdated(&job) {
            return;
        }
        if job.status.running.is_some() {
            self.call_off_older(&job);
            // A lease is what tells an attempt that was handed out; one that is being claimed was not.
            if !matches!(self.ready.stage(&job.id), Some(Stage::Claiming { .. })) {
                self.leases.hold(&job, now, self.shared.clock.monotonic_ms());
            }
            return;
        }
        self.leases.release(&job.id);
        self.call_off(&job);
        if !is_waiting(&job) {
            self.pass_on(&job);
            if self.ready.forget(&job) {
                self.abort(&job);
            }
            return;
        }
        match self.ready.stage(&job.id) {
            Some(Stage::Delivering(_)) => {
                self.ready.end_delivery(&job.id);
                self.abort(&job);
            }
            // It may have got another priority.
            Some(Stage::Lane(_)) => {
                self.ready.forget(&job);
            }
            Some(Stage::Wheel | Stage::Claiming { .. }) | None => {}
        }
        self.take_in(job, now);
    }

    /// Drops a push under way. What workers have is no push.
    fn abort(&self, job: &Job) {
        if matches!(job.spec.destination, Destination::Target(_)) {
            self.deliverer.abort(&job.id);
        }
    }

    pub(super) fn whereabouts(&self, job: &Job, now: Timestamp) -> Whereabouts {
        if let None | Some(Stage::Wheel | Stage::Lane(_)) = self.ready.stage(&job.id)
            && let Some(breaker) = self.ready.breaker_of(job, now)
        {
            return Whereabouts::HeldBack(breaker);
        }
        match self.ready.stage(&job.id) {
            None if self.ready.overflowed(job) => Whereabouts::Store { backlog: true },
            None if (MadeUp { missed_before: self.missed_before }).has(job) => Whereabouts::Paced,
            None => Whereabouts::Store { backlog: false },
            Some(Stage::Wheel) => Whereabouts::Wheel,
            Some(Stage::Lane(lane)) => {
                let (depth, reason) = self.ready.lane_state(lane, job.tenant.as_str()).unwrap_or((0, None));
                let is_at_cap = self.ready.is_at_cap(&job.tenant, &job.spec.destination);
                let reason = if is_at_cap { Some("tenant_limit") } else { reason };
                Whereabouts::Lane { depth, reason }
            }
            Some(Stage::Claiming { .. }) => Whereabouts::Claiming,
            Some(Stage::Delivering(_)) => Whereabouts::Delivering,
        }
    }
}
