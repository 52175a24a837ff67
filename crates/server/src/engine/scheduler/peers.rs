//! What the scheduler does with other nodes: says what its own workers have room for, feeds theirs, and takes in what was
//! started elsewhere for its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Destination, Ending, Job};
use tidewheel_core::limits::SECOND_MS;
use tidewheel_core::names::Tenant;
use tidewheel_store::{News, Receipt, Want};

use super::Scheduler;
use crate::engine::deliver::Report;
use crate::engine::handed;
use crate::engine::peers::{
    self, GUESTS_COUNT_MAX, Guest, PeerMessage, WANTS_COUNT_MAX, WANTS_PAUSE_MS, WANTS_REPEAT_MS,
};
use crate::engine::ready::{Outlet, Stage, Subscriber, SubscriberId, Wish};
use crate::engine::receipts::Attempt;
use crate::engine::spread::Serves;

/// How much shorter a lease may be than its worker asked for: the way to the worker takes some time.
const LEASE_SLACK_MS: i64 = SECOND_MS;

impl Scheduler {
    pub(super) fn hear_peer(&mut self, message: PeerMessage) {
        match message {
            PeerMessage::Wanted { node, said_ms, heard, wants } => {
                self.wanted(&node, (said_ms, &heard), wants);
            }
            PeerMessage::Handed { from, number, start_by_ms, jobs } => {
                self.handed(&from, number, start_by_ms, jobs);
            }
            PeerMessage::Changed(jobs) => self.changed_elsewhere(jobs),
            PeerMessage::Ended(attempts) => self.ended_elsewhere(attempts),
            PeerMessage::Gone(nodes) => nodes.iter().for_each(|node| self.stop_feeding(node)),
        }
    }

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
        let territory = &self.shared.territory;
        let spreads = &self.spreads;
        let is_others = |wish: &Wish| {
            let tenant = wish.interest.only_tenant();
            tenant.is_none_or(|tenant| spreads.serves(tenant, territory) != Serves::All)
        };
        let guests = &self.peers.guests;
        let has_guest = |wish: &Wish| guests.iter().any(|guest| is_of_queue(&guest.job, &wish.queue));
        // As much is being claimed here as may be at once: what room is left is for that.
        let all_busy = self.claims >= self.config.claims_max;
        let mut wants = self.ready.demand(in_full, all_busy, is_others, has_guest);
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
        let (node, heard) = (Arc::clone(&node.id), self.peers.received.receipts());
        self.shared.pass_on(News::Wants { node, said_ms: monotonic_ms, heard, wants });
    }

    /// Another node's workers have room.
    fn wanted(&mut self, node: &Arc<str>, (said_ms, heard): (i64, &[Receipt]), wants: Vec<Want>) {
        let Some(own) = self.shared.node.as_ref().map(|card| Arc::clone(&card.id)) else { return };
        if *node == own || self.draining.is_some() {
            return;
        }
        let now_ms = self.shared.clock.monotonic_ms();
        if wants.is_empty() {
            self.stop_feeding(node);
            return;
        }
        // All who serve shards are told the same: each gives its part.
        let givers = self.shared.peers_count.load(Ordering::SeqCst).max(1);
        let receipt = heard.iter().find(|receipt| receipt.node == own);
        let number = receipt.map_or(0, |receipt| receipt.number);
        self.peers.sent.clock_showed(node, said_ms, now_ms);
        let lost = self.peers.sent.answered(node, receipt, said_ms);
        self.free(lost);
        for want in wants {
            let (room, asks_once, wish) = (want.room, want.asks_once, Wish::of(want));
            let tenant = wish.interest.only_tenant();
            let share = match tenant.map(|tenant| self.spreads.serves(tenant, &self.shared.territory)) {
                // One giver alone has it.
                Some(Serves::All) => room,
                Some(Serves::None) => 0,
                Some(Serves::Some) | None => room.div_ceil(givers),
            };
            self.serve(node, wish, (share, asks_once), (number, now_ms));
        }
    }

    /// Attempts that were handed on will not start: others may have them, at no cost.
    fn free(&self, lost: Vec<Attempt>) {
        if !lost.is_empty() {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move { handed::give_back(&shared, lost).await });
        }
    }

    fn serve(
        &mut self,
        node: &Arc<str>,
        wish: Wish,
        (share, asks_once): (usize, bool),
        (number, now_ms): (u64, i64),
    ) {
        if let Some(peer) = self.peers.get_mut(node, &wish) {
            let (id, unheard) = (peer.subscriber, peer.heard(number, now_ms));
            let under_way = self.ready.subscriber(id).map_or(0, |subscriber| subscriber.in_flight);
            self.ready.feed_peer(id, share, unheard + under_way, asks_once);
        } else if share > 0 && !self.peers.is_full() {
            let id = self.ready.subscribe(Subscriber {
                worker: peers::name_of(node),
                queues: Arc::from([Arc::clone(&wish.queue)]),
                interest: Arc::clone(&wish.interest),
                lease_ms: wish.lease_ms,
                credits: share,
                in_flight: 0,
                lags: false,
                outlet: Outlet::Peer { asks_once },
            });
            self.peers.add(Arc::clone(node), wish, id, now_ms);
        }
    }

    /// What was handed to a node that is gone would lie there until its lease is over.
    fn stop_feeding(&mut self, node: &str) {
        let over = self.peers.forget(Some(node), self.shared.clock.monotonic_ms());
        over.into_iter().for_each(|id| drop(self.ready.unsubscribe(id)));
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
        let within_ms = peers::start_within_ms(&running);
        let Some(start_by_ms) = self.peers.sent.start_by_ms(&to, within_ms, now_ms) else { return running };
        let attempt = |job: &Arc<Job>| (job.tenant.clone(), job.id, job.status.token);
        let jobs: Vec<Attempt> = running.iter().map(attempt).collect();
        self.peers.sent.handed(&to, number, jobs.clone(), (start_by_ms, now_ms));
        let news = News::Handed { from, to: Arc::clone(&to), number, start_by_ms, jobs };
        if self.shared.pass_on(news) {
            return Vec::new();
        }
        self.peers.sent.unsaid(&to, number);
        running
    }

    /// Attempts were started elsewhere for this node's workers.
    fn handed(&mut self, from: &Arc<str>, number: u64, start_by_ms: i64, jobs: Vec<Arc<Job>>) {
        let now_ms = self.shared.clock.monotonic_ms();
        let now = self.shared.clock.now();
        // What is not noted must not start: whoever handed it on takes it for free.
        let is_noted = self.peers.received.note(from, number, start_by_ms, now_ms);
        let guest = |job: &Arc<Job>| Guest::new(job, now, now_ms, start_by_ms).filter(|_| is_noted);
        let (jobs, late): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| guest(job).is_some());
        late.iter().for_each(|job| self.give_back(job));
        let left = if self.draining.is_none() { self.place(jobs, false) } else { jobs };
        for job in left {
            let has_room = self.draining.is_none() && self.peers.guests.len() < GUESTS_COUNT_MAX;
            match guest(&job).filter(|_| has_room).and_then(|guest| self.keep(guest, now_ms)) {
                Some(guest) => self.peers.guests.push(guest),
                None => self.give_back(&job),
            }
        }
    }

    /// The guest, if there is somebody for it to wait for.
    fn keep(&self, guest: Guest, now_ms: i64) -> Option<Guest> {
        // Whoever wanted it is busy by now, or was when it said so: it is the next.
        if self.ready.would_take(&guest.job) {
            return Some(guest);
        }
        // One who asked once was given the jobs of another node, or has left. Such come back, and handed back now it would be at
        // a later attempt when they do.
        let until_ms = self.ready.may_be_asked_until(&guest.job, now_ms)?;
        Some(guest.waiting_until(until_ms))
    }

    /// Gives attempts of other nodes to workers of this one; returns those that nobody has room for.
    fn place(&mut self, jobs: Vec<Arc<Job>>, have_waited: bool) -> Vec<Arc<Job>> {
        let (placed, left) = self.ready.place(jobs, have_waited);
        for (taker, jobs) in placed {
            for job in &jobs {
                let left_ms = job
                    .status
                    .running
                    .as_ref()
                    .map_or(0, |running| running.lease_until.since_ms(self.shared.clock.now()));
                if left_ms < taker.lease_ms - LEASE_SLACK_MS {
                    // It waited, or was started for somebody with a shorter one.
                    let (token, extend_ms) = (job.status.token, taker.lease_ms);
                    self.report(job, Command::Heartbeat { token, extend_ms, progress: None });
                }
            }
            let count = jobs.len();
            self.hand_over(taker, count, jobs);
        }
        left
    }

    /// Looks whether attempts that wait for workers of this node find one; comes before what waits in the lanes.
    pub(super) fn place_guests(&mut self, monotonic_ms: i64) {
        if self.peers.guests.is_empty() {
            return;
        }
        let (over, waiting): (Vec<Guest>, Vec<Guest>) =
            std::mem::take(&mut self.peers.guests).into_iter().partition(|it| it.until_ms <= monotonic_ms);
        over.iter().for_each(|guest| self.give_back(&guest.job));
        let have_waited = |guest: &&Guest| guest.waited_at_ms <= monotonic_ms;
        let (waited, new): (Vec<&Guest>, Vec<&Guest>) = waiting.iter().partition(have_waited);
        let mut left = self.place(waited.iter().map(|guest| Arc::clone(&guest.job)).collect(), true);
        left.extend(self.place(new.iter().map(|guest| Arc::clone(&guest.job)).collect(), false));
        let is_left = |guest: &Guest| left.iter().any(|job| job.id == guest.job.id);
        self.peers.guests = waiting.into_iter().filter(is_left).collect();
    }

    /// Hands back all attempts that wait for workers of this node.
    pub(super) fn dismiss_guests(&mut self) {
        let guests = std::mem::take(&mut self.peers.guests);
        guests.iter().for_each(|guest| self.give_back(&guest.job));
    }

    fn give_back(&self, job: &Job) {
        let token = job.status.token;
        self.report(job, Command::Release { token });
    }

    fn report(&self, job: &Job, command: Command) {
        self.reports.send(Report { tenant: job.tenant.clone(), id: job.id, command });
    }

    /// Jobs that others serve were changed; a worker of this node may have to be told.
    fn changed_elsewhere(&mut self, jobs: Vec<(Tenant, JobId)>) {
        let guests = std::mem::take(&mut self.peers.guests);
        let is_changed = |guest: &Guest| jobs.iter().any(|(_, id)| *id == guest.job.id);
        let (changed, waiting): (Vec<Guest>, Vec<Guest>) = guests.into_iter().partition(is_changed);
        self.peers.guests = waiting;
        // Refused if its attempt has ended.
        changed.iter().for_each(|guest| self.give_back(&guest.job));
        let is_here = |(_, id): &(Tenant, JobId)| self.workers.holding(id).is_some();
        self.recheck(jobs.into_iter().filter(is_here).collect());
    }

    /// Attempts of jobs that are served here have ended for good at other nodes. Where that is what is known of them here
    /// there is nothing to be read.
    fn ended_elsewhere(&mut self, attempts: Vec<Attempt>) {
        let mut doubtful = Vec::new();
        for (tenant, id, token) in attempts {
            let is_out = matches!(self.ready.stage(&id), None | Some(Stage::Delivering(_)));
            if is_out && self.leases.token(&id) == Some(token) && self.workers.holding(&id).is_none() {
                self.leases.release(&id);
                self.ready.end_delivery(&id);
                self.deliverer.abort(&id);
            } else {
                doubtful.push((tenant, id));
            }
        }
        self.recheck(doubtful);
    }

    /// An attempt of a job that is served here was ended by somebody other than its worker: tells the node whose worker
    /// has it. Only where that is first known, or the news would go round for ever.
    pub(super) fn tell_holder(&self, job: &Job) {
        let territory = &self.shared.territory;
        if !territory.is_shared() || job.status.running.is_some() || !territory.holds_job(job) {
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

fn is_of_queue(job: &Job, queue: &Arc<str>) -> bool {
    matches!(&job.spec.destination, Destination::Queue(own) if own == queue)
}
