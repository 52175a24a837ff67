//! What the scheduler does with connected workers: lets them in, hands them jobs, notices when they are gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewheel_core::glance::{self, HANDFUL};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Ending, Job, Token};
use tidewheel_core::limits::{WORKER_JOBS_BYTES_MAX, WORKERS_COUNT_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Order;

use super::Scheduler;
use crate::engine::deliver::Report;
use crate::engine::outcomes;
use crate::engine::peers;
use crate::engine::ready::{Outlet, Subscriber, SubscriberId};
use crate::engine::sent_bytes;
use crate::engine::workers::{
    Beginning, Holding, Opened, Opening, Push, Refused, Session, SessionId, Stop, Subscription, Welcome,
    Whose, WorkerMessage, WorkerView,
};

impl Scheduler {
    pub(super) fn hear_worker(&mut self, message: WorkerMessage, now: Timestamp) {
        match message {
            WorkerMessage::Subscribe { subscription, opening, reply } => {
                let opened = self.let_in(*subscription, opening, now);
                // Whoever asked may be gone again.
                if let Err(Ok(opened)) = reply.send(opened) {
                    self.disconnected(opened.session, opened.stream, Vec::new());
                }
            }
            WorkerMessage::AddCredits { session, credits } => {
                if self.draining.is_none()
                    && let Some(session) = self.workers.get(session).filter(|session| !session.draining)
                    && let Some(subscriber) = session.subscriber
                {
                    self.ready.add_credits(subscriber, credits);
                }
            }
            WorkerMessage::ReadsOn { session } => {
                if let Some(subscriber) = self.workers.get(session).and_then(|session| session.subscriber) {
                    self.ready.reseat(subscriber);
                }
            }
            WorkerMessage::Started { session, jobs } => {
                for (id, token) in jobs {
                    let held = self.workers.holding(&id);
                    if held.is_some_and(|held| held.session == session && held.token == token) {
                        self.workers.no_longer_unstarted(&id);
                        self.keeps_up(session);
                    }
                }
            }
            WorkerMessage::Drain { session } => {
                if let Some(session) = self.workers.get_mut(session) {
                    session.draining = true;
                    if let Some(subscriber) = session.subscriber {
                        self.ready.drop_credits(subscriber);
                    }
                }
            }
            WorkerMessage::HandsBack { session } => self.release_unstarted(session),
            WorkerMessage::Reported { session, jobs, refused } => {
                self.recheck(self.stale(session, refused));
                let ended =
                    jobs.iter().filter(|(job, renewal)| renewal.is_none() && job.status.running.is_none());
                self.ready.own_moved(ended.clone().next().map(|(job, _)| &**job), ended.count());
                let mut jobs = jobs.into_iter();
                while jobs.len() > 0 {
                    let handful = jobs.as_slice().iter().take(HANDFUL).map(|(job, _)| job);
                    glance::over(handful.clone().map(glance::job));
                    self.glance(handful.clone().map(|job| &job.id));
                    glance::over(handful.map(|job| self.workers.holding(&job.id).is_some()));
                    for (job, renewal) in jobs.by_ref().take(HANDFUL) {
                        self.worker_reported(session, &job);
                        match renewal {
                            Some(by) => self.renewed(&job, by),
                            None => self.changed(job, now),
                        }
                    }
                }
            }
            WorkerMessage::Disconnected { session, stream, unsent } => {
                self.disconnected(session, stream, unsent);
            }
            WorkerMessage::List { whose, after, count_max, reply } => {
                drop(reply.send(self.view_workers(&whose, after, count_max, now)));
            }
        }
    }

    fn let_in(
        &mut self,
        subscription: Subscription,
        opening: Opening,
        now: Timestamp,
    ) -> Result<Opened, Refused> {
        if self.draining.is_some() {
            return Err(Refused::Draining);
        }
        let resumed = subscription.resume.as_ref().and_then(|resume| self.workers.by_secret(resume.session));
        let resumed = resumed
            .filter(|id| self.workers.get(*id).is_some_and(|session| session.tenant == subscription.tenant));
        let unsent = Arc::clone(&opening.unsent);
        let id = match resumed {
            Some(id) => {
                self.replace_stream(id, opening, now);
                id
            }
            None if self.workers.len() >= WORKERS_COUNT_MAX => return Err(Refused::TooMany),
            None => {
                let secret = self.shared.random.tail();
                let (tenant, name) = (subscription.tenant, Arc::clone(&subscription.worker));
                self.workers.begin(Beginning { secret, tenant, name, now }, opening)
            }
        };
        if let (Some(id), Some(resume)) = (resumed, &subscription.resume) {
            self.release_missing(id, &resume.holding);
        }
        let (queues, interest) = (Arc::<[_]>::from(subscription.queues), Arc::new(subscription.interest));
        let monotonic_ms = self.shared.clock.monotonic_ms();
        self.workers.wake_at(id, monotonic_ms + self.config.worker_dead_ms);
        let Some(session) = self.workers.get_mut(id) else { return Err(Refused::TooMany) };
        session.name = subscription.worker;
        session.queues = Arc::clone(&queues);
        session.interest = Arc::clone(&interest);
        session.lease_ms = subscription.lease_ms;
        let dead_ms = self.config.worker_dead_ms;
        let idle_dead_ms = subscription.idle_heartbeat_ms.map_or(dead_ms, |every| dead_ms.max(3 * every));
        session.idle_dead_ms = idle_dead_ms;
        session.stream += 1;
        let (stream, secret, in_flight) = (session.stream, session.secret, session.jobs_count());
        let subscriber = self.ready.subscribe(Subscriber {
            worker: Arc::clone(&session.name),
            queues,
            interest,
            lease_ms: subscription.lease_ms,
            credits: subscription.credits,
            in_flight,
            lags: false,
            outlet: Outlet::Stream(unsent),
        });
        self.workers.seat(id, subscriber);
        let welcome = Welcome {
            id: public_id(secret),
            session: secret,
            resumed: resumed.is_some(),
            dead_ms: self.config.worker_dead_ms,
            resume_ms: self.config.worker_resume_ms,
            idle_dead_ms,
        };
        Ok(Opened { session: id, stream, welcome })
    }

    /// A session goes on over another stream.
    fn replace_stream(&mut self, id: SessionId, opening: Opening, now: Timestamp) {
        if let Some(subscriber) = self.workers.unseat(id) {
            self.ready.unsubscribe(subscriber);
        }
        let Some(session) = self.workers.get_mut(id) else { return };
        session.push(Push::Replaced);
        session.pushes = opening.pushes;
        session.unsent = opening.unsent;
        session.heard_ms = opening.heard_ms;
        session.connected_at = now;
        session.disconnected_ms = None;
        session.draining = false;
    }

    /// What a resumed worker does not hold never reached it.
    fn release_missing(&mut self, id: SessionId, holding: &[(JobId, Token)]) {
        let mut holding = holding.to_vec();
        holding.sort_unstable();
        for (job, token) in self.workers.held_by(id) {
            if holding.binary_search(&(job, token)).is_err() {
                self.release_unsent(id, (job, token));
            }
        }
    }

    /// An attempt never reached its worker: another may have it, at no cost. Of a later attempt, which another worker may have
    /// by now, that says nothing.
    fn release_unsent(&mut self, session: SessionId, (id, token): (JobId, Token)) {
        let is_it = |held: &&Holding| held.session == session && held.token == token;
        if self.workers.holding(&id).filter(is_it).is_some()
            && let Some(held) = self.workers.release(&id)
        {
            let command = Command::Release { token };
            self.reports.send(Report { tenant: held.tenant, id, command });
        }
    }

    /// A worker that leaves starts nothing more: what it has not said to have started is for others at once, at no cost. It is
    /// told, in case it starts something all the same.
    fn release_unstarted(&mut self, id: SessionId) {
        for (job, token) in self.workers.unstarted_of(id) {
            self.release_unsent(id, (job, token));
            if let Some(session) = self.workers.get(id) {
                session.push(Push::Stop(Stop { id: job, token, cancelled: false }));
                if let Some(subscriber) = session.subscriber {
                    self.ready.finished(subscriber, 1);
                }
            }
        }
    }

    /// Hands jobs to a connected worker; returns those it is no longer there for.
    pub(super) fn hand_to_worker(
        &mut self,
        subscriber: SubscriberId,
        running: Vec<Arc<Job>>,
    ) -> Vec<Arc<Job>> {
        let Some(id) = self.workers.of_subscriber(subscriber) else { return running };
        if self.workers.get(id).is_some_and(|session| session.draining) {
            // They were being claimed for it when it said so.
            self.ready.finished(subscriber, running.len());
            return running;
        }
        let monotonic_ms = self.shared.clock.monotonic_ms();
        self.workers.kept_busy(id, monotonic_ms, self.config.worker_dead_ms);
        self.ready.own_moved(running.first().map(|job| &**job), running.len());
        let mut left = Vec::new();
        for (jobs, bytes) in in_messages(running) {
            for job in &jobs {
                // Whoever still has an attempt before this one was not heard of since.
                if let Some(before) = self.workers.hold(id, job, Some(monotonic_ms))
                    && before.token < job.status.token
                {
                    self.superseded(job.id, &before);
                }
            }
            let Some(session) = self.workers.get(id) else { return jobs };
            session.unsent.add(bytes);
            if let Err(refused) = session.pushes.send(Push::Jobs { jobs, bytes })
                && let Push::Jobs { jobs, .. } = refused.0
            {
                jobs.iter().for_each(|job| drop(self.workers.release(&job.id)));
                left.extend(jobs);
            }
        }
        left
    }

    /// A worker reported of a job itself, so it need not be told to stop. A sign of life of a job that nobody is known
    /// to hold (the server was restarted, the session is a new one) says who does.
    fn worker_reported(&mut self, id: SessionId, job: &Job) {
        let Some(running) = &job.status.running else {
            // It may have been handed back before, and be in other hands by now.
            if self.workers.holding(&job.id).is_none_or(|held| held.token <= job.status.token) {
                self.forget_holding(&job.id);
            }
            if job.status.attempts.last().is_some_and(|last| last.ending != Ending::Released) {
                self.keeps_up(id);
            }
            return;
        };
        let Some(session) = self.workers.get(id) else { return };
        if session.subscriber.is_some()
            && (session.name == running.worker || peers::is_name(&running.worker))
            && self.workers.holding(&job.id).is_none()
        {
            self.workers.hold(id, job, None);
        }
    }

    /// A worker starts jobs, or ends them.
    fn keeps_up(&mut self, id: SessionId) {
        if let Some(subscriber) = self.workers.get(id).and_then(|session| session.subscriber) {
            self.ready.set_lags(subscriber, false);
        }
    }

    /// Of attempts of which nothing more is taken from a worker, those it is still thought to have: the news of their end, at
    /// another node, did not come through.
    fn stale(&self, session: SessionId, refused: Vec<(JobId, Token)>) -> Vec<(Tenant, JobId)> {
        let holding = |(id, token): (JobId, Token)| {
            let held = self.workers.holding(&id)?;
            (held.session == session && held.token == token).then(|| (held.tenant.clone(), id))
        };
        refused.into_iter().filter_map(holding).collect()
    }

    /// A job is no longer in its worker's hands.
    pub(super) fn forget_holding(&mut self, id: &JobId) -> Option<SessionId> {
        let held = self.workers.release(id)?;
        self.has_one_less(held.session);
        Some(held.session)
    }

    fn has_one_less(&mut self, session: SessionId) {
        if let Some(subscriber) = self.workers.get(session).and_then(|session| session.subscriber) {
            self.ready.finished(subscriber, 1);
        }
    }

    /// An attempt ended without its worker: tells it to stop.
    pub(super) fn call_off(&mut self, job: &Job) {
        let Some(session) = self.forget_holding(&job.id) else { return };
        let Some(last) = job.status.attempts.last() else { return };
        let cancelled = last.ending == Ending::Cancelled;
        if (cancelled || matches!(last.ending, Ending::LeaseExpired | Ending::Lost))
            && let Some(session) = self.workers.get(session)
        {
            session.push(Push::Stop(Stop { id: job.id, token: last.token, cancelled }));
        }
    }

    /// Another attempt is under way than the one a worker holds: tells that worker to stop.
    pub(super) fn call_off_older(&mut self, job: &Job) {
        if self.workers.holding(&job.id).is_none_or(|held| held.token >= job.status.token) {
            return;
        }
        if let Some(held) = self.workers.release(&job.id) {
            self.superseded(job.id, &held);
        }
    }

    /// A worker holds an attempt that was followed by another.
    fn superseded(&mut self, id: JobId, held: &Holding) {
        self.has_one_less(held.session);
        if let Some(session) = self.workers.get(held.session) {
            session.push(Push::Stop(Stop { id, token: held.token, cancelled: false }));
        }
    }

    fn disconnected(&mut self, id: SessionId, stream: u64, unsent: Vec<(JobId, Token)>) {
        if self.workers.get(id).is_none_or(|session| session.stream != stream) {
            return;
        }
        if let Some(subscriber) = self.workers.unseat(id) {
            self.ready.unsubscribe(subscriber);
        }
        unsent.into_iter().for_each(|attempt| self.release_unsent(id, attempt));
        let monotonic_ms = self.shared.clock.monotonic_ms();
        let Some(session) = self.workers.get_mut(id) else { return };
        if session.jobs_count() == 0 {
            self.workers.end(id);
            return;
        }
        session.disconnected_ms = Some(monotonic_ms);
        self.workers.wake_at(id, monotonic_ms + self.config.worker_resume_ms);
    }

    /// Ends sessions that were not heard of, and moves jobs from busy workers to idle ones.
    pub(super) fn tend_workers(&mut self, monotonic_ms: i64) {
        let (dead_ms, resume_ms) = (self.config.worker_dead_ms, self.config.worker_resume_ms);
        for id in self.workers.overdue(monotonic_ms, dead_ms, resume_ms) {
            self.lose(id);
        }
        if self.draining.is_none() && monotonic_ms >= self.workers.take_back_at_ms {
            self.workers.take_back_at_ms = monotonic_ms + self.config.worker_take_back_ms / 4;
            self.take_back(monotonic_ms - self.config.worker_take_back_ms);
        }
    }

    /// A worker is gone: its jobs return at once, and their attempts count.
    fn lose(&mut self, id: SessionId) {
        if let Some(subscriber) = self.workers.unseat(id) {
            self.ready.unsubscribe(subscriber);
        }
        let Some((session, held)) = self.workers.end(id) else { return };
        session.push(Push::Silent);
        if held.is_empty() {
            return;
        }
        tracing::warn!(worker = %session.name, jobs = held.len(), "a worker is gone; its jobs are given to others");
        let orders = held
            .into_iter()
            .map(|(id, held)| {
                let command = Command::WorkerGone { token: held.token };
                Order { tenant: held.tenant, id, command, key: None }
            })
            .collect();
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move { outcomes::write(&shared, orders).await });
    }

    pub(super) fn send_workers_away(&mut self) {
        self.workers.all().for_each(|(_, session)| session.push(Push::GoAway));
    }

    fn view_workers(&self, whose: &Whose, after: u64, count_max: usize, now: Timestamp) -> Vec<WorkerView> {
        let monotonic_ms = self.shared.clock.monotonic_ms();
        let theirs = |(_, session): &(&SessionId, &Session)| whose.includes(&session.interest);
        let view = |(place, session): (&SessionId, &Session)| WorkerView {
            id: public_id(session.secret),
            place: *place,
            name: Arc::clone(&session.name),
            queues: Arc::clone(&session.queues),
            interest: Arc::clone(&session.interest),
            lease_ms: session.lease_ms,
            connected: session.subscriber.is_some(),
            draining: session.draining,
            connected_at: session.connected_at,
            heard_at: now.plus_ms(session.heard_ms.load(Ordering::Relaxed) - monotonic_ms),
            credits: session.subscriber.and_then(|id| self.ready.subscriber(id)).map_or(0, |it| it.credits),
            in_flight: session.jobs_count(),
        };
        self.workers.after(after).filter(theirs).take(count_max).map(view).collect()
    }
}

/// What others may know a worker by: not what its session is resumed with.
fn public_id(secret: u128) -> u64 {
    u64::try_from(secret >> 64).unwrap_or(0)
}

/// Cuts jobs into messages of a size that every client takes; says how much is in each.
fn in_messages(jobs: Vec<Arc<Job>>) -> Vec<(Vec<Arc<Job>>, usize)> {
    let mut messages: Vec<(Vec<Arc<Job>>, usize)> = Vec::new();
    for job in jobs {
        let more = sent_bytes(&job);
        match messages.last_mut() {
            Some((last, bytes)) if *bytes + more <= WORKER_JOBS_BYTES_MAX => {
                last.push(job);
                *bytes += more;
            }
            Some(_) | None => messages.push((vec![job], more)),
        }
    }
    messages
}
