//! What the scheduler does with other nodes: says what its own workers have room for, feeds theirs, and takes in what was
//! started elsewhere for its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Ending, Job};
use tidewheel_core::names::Tenant;
use tidewheel_store::{News, Want};

use super::Scheduler;
use crate::engine::deliver::Report;
use crate::engine::peers::{self, WANTS_COUNT_MAX, WANTS_PAUSE_MS, WANTS_REPEAT_MS};
use crate::engine::ready::{Outlet, Subscriber, SubscriberId, Wish};

impl Scheduler {
    /// When something is to be said of the room of this node's workers.
    pub(super) fn next_advert_ms(&self) -> Option<i64> {
        let is_heard = self.peers.told_count > 0 && self.draining.is_none();
        (is_heard && self.ready.demand_changed()).then_some(self.peers.pause_until_ms)
    }

    /// Says what this node's workers have room for, if that is another than before, or was said long ago, or to fewer.
    pub(super) fn advertise(&mut self, monotonic_ms: i64) {
        let Some(node) = &self.shared.node else { return };
        let others = self.shared.peers_count.load(Ordering::SeqCst);
        let in_full = others != self.peers.told_count || monotonic_ms >= self.peers.repeat_at_ms;
        if !in_full && (!self.ready.demand_changed() || monotonic_ms < self.peers.pause_until_ms) {
            return;
        }
        self.peers.told_count = others;
        self.peers.pause_until_ms = monotonic_ms + WANTS_PAUSE_MS;
        if in_full {
            self.peers.repeat_at_ms = monotonic_ms + WANTS_REPEAT_MS;
        }
        let mut wants = self.ready.demand(in_full);
        if others == 0 || wants.is_empty() {
            return;
        }
        if wants.len() > WANTS_COUNT_MAX {
            tracing::debug!(
                count = wants.len(),
                "workers want more different things than other nodes are told of"
            );
            wants.truncate(WANTS_COUNT_MAX);
        }
        self.shared.pass_on(News::Wants { node: Arc::clone(&node.id), heard: self.peers.noted(), wants });
    }

    /// Another node's workers have room.
    pub(super) fn wanted(&mut self, node: &Arc<str>, heard: &[(Arc<str>, u64)], wants: Vec<Want>) {
        let Some(own) = self.shared.node.as_ref().map(|card| Arc::clone(&card.id)) else { return };
        if *node == own || self.draining.is_some() {
            return;
        }
        let now_ms = self.shared.clock.monotonic_ms();
        if wants.is_empty() {
            let over = self.peers.forget(Some(node), now_ms);
            over.into_iter().for_each(|id| drop(self.ready.unsubscribe(id)));
        }
        // All who serve shards are told the same: each gives its part.
        let givers = self.shared.peers_count.load(Ordering::SeqCst).max(1);
        let number = heard.iter().find(|(node, _)| *node == own).map_or(0, |(_, number)| *number);
        for want in wants {
            let share = want.room.div_ceil(givers);
            self.serve(node, Wish::of(want), share, (number, now_ms));
        }
    }

    fn serve(&mut self, node: &Arc<str>, wish: Wish, share: usize, (number, now_ms): (u64, i64)) {
        if let Some(peer) = self.peers.get_mut(node, &wish) {
            let (id, unheard) = (peer.subscriber, peer.heard(number, now_ms));
            let under_way = self.ready.subscriber(id).map_or(0, |subscriber| subscriber.in_flight);
            self.ready.set_credits(id, share.saturating_sub(unheard + under_way));
        } else if share > 0 && !self.peers.is_full() {
            let id = self.ready.subscribe(Subscriber {
                worker: peers::name_of(node),
                queues: Arc::from([Arc::clone(&wish.queue)]),
                interest: Arc::clone(&wish.interest),
                lease_ms: wish.lease_ms,
                credits: share,
                in_flight: 0,
                lags: false,
                outlet: Outlet::Peer,
            });
            self.peers.add(Arc::clone(node), wish, id, now_ms);
        }
    }

    /// Stops feeding nodes that were not heard of.
    pub(super) fn tend_peers(&mut self, monotonic_ms: i64) {
        let over = self.peers.forget(None, monotonic_ms);
        over.into_iter().for_each(|id| drop(self.ready.unsubscribe(id)));
    }

    /// Hands attempts on that were started for a peer; returns those it is no longer there for, and all if it is no peer.
    pub(super) fn hand_to_peer(&mut self, id: SubscriberId, running: Vec<Arc<Job>>) -> Vec<Arc<Job>> {
        if running.is_empty() {
            return running;
        }
        let Some(from) = self.shared.node.as_ref().map(|card| Arc::clone(&card.id)) else { return running };
        let now_ms = self.shared.clock.monotonic_ms();
        let Some((to, number)) = self.peers.hand(id, running.len(), now_ms) else { return running };
        // Watched over by their leases from here on, not by this node's knowledge of the other's workers.
        self.ready.finished(id, running.len());
        let attempt = |job: &Arc<Job>| (job.tenant.clone(), job.id, job.status.token);
        let jobs = running.iter().map(attempt).collect();
        let is_told = self.shared.pass_on(News::Handed { from, to, number, jobs });
        if is_told { Vec::new() } else { running }
    }

    /// Attempts were started elsewhere for this node's workers.
    pub(super) fn handed(&mut self, from: Arc<str>, number: u64, jobs: Vec<Arc<Job>>) {
        self.peers.note(from, number, self.shared.clock.monotonic_ms());
        let (placed, mut left) =
            if self.draining.is_none() { self.ready.place(jobs) } else { (Vec::new(), jobs) };
        for (taker, jobs) in placed {
            for job in jobs.iter().filter(|job| peers::lease_ms(job) < taker.lease_ms) {
                // It goes by its own, which is longer than that of who the attempt was started for.
                let (token, extend_ms) = (job.status.token, taker.lease_ms);
                self.report(job, Command::Heartbeat { token, extend_ms, progress: None });
            }
            let count = jobs.len();
            self.hand_over(taker, count, jobs);
        }
        for job in left.drain(..) {
            let token = job.status.token;
            self.report(&job, Command::Release { token });
        }
    }

    fn report(&self, job: &Job, command: Command) {
        self.reports.send(Report { tenant: job.tenant.clone(), id: job.id, command });
    }

    /// Jobs that others serve were changed; a worker of this node may have to be told.
    pub(super) fn changed_elsewhere(&self, jobs: Vec<(Tenant, JobId)>) {
        let is_here = |(_, id): &(Tenant, JobId)| self.workers.holding(id).is_some();
        self.recheck(jobs.into_iter().filter(is_here).collect());
    }

    /// An attempt of a job that is served here was ended by somebody other than its worker: tells the node whose worker
    /// has it. Only where that is first known, or the news would go round for ever.
    pub(super) fn tell_holder(&self, job: &Job) {
        let territory = &self.shared.territory;
        if !territory.is_shared() || job.status.running.is_some() || !territory.holds(&job.tenant) {
            return;
        }
        let is_called_off = job.status.attempts.last().is_some_and(|last| {
            peers::is_name(&last.worker)
                && matches!(last.ending, Ending::Cancelled | Ending::LeaseExpired | Ending::Lost)
        });
        if is_called_off {
            self.shared.pass_on(News::Changed { tenant: job.tenant.clone(), id: job.id });
        }
    }
}
