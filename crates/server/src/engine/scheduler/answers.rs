//! What the scheduler does when something it started comes back: a read, a claim, a report.

use std::sync::Arc;

use tidewheel_core::glance::{self, HANDFUL};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, Priority, Rejection, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Position;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{DuePage, Error, Refusal};

use super::{READ_RETRY_MS, Scheduler};
use crate::engine::claims::{Claim, Granted, Pick};
use crate::engine::deliver::Report;
use crate::engine::governor::MadeUp;
use crate::engine::peers;
use crate::engine::ready::{
    Crowded, Interest, MayWait, Offer, Outlet, Recipient, Refill, Subscriber, TakeReply, Taker,
};
use crate::engine::scan::{Look, Part, Reached, Read, just_before};
use crate::engine::{Take, expected_start, is_waiting, named};
use crate::metrics::Lags;

/// When a reader comes back that is ahead of its tenant's pace.
const PACED_MS: i64 = 2;

/// What is to be said of a claim once all its jobs have been looked at.
#[derive(Debug, Default)]
struct ClaimNews {
    lags: Lags,
    refused: usize,
    /// Whose state is not what it was thought to be.
    doubtful: Vec<(Tenant, JobId)>,
}

/// Whether half of an attempt's lease went by before it began.
fn is_stale(job: &Job, now: Timestamp) -> bool {
    let gone_ms = job.status.running.as_ref().map_or(0, |running| now.since_ms(running.started_at));
    gone_ms.saturating_mul(2) >= peers::lease_ms(job)
}

/// There is no room for the job at `at`, and nothing waits between `after` and it: whoever tries again begins right before it,
/// and does not pass all that has begun meanwhile once more.
fn no_room(
    after: Option<Position>,
    at: Timestamp,
    now: Timestamp,
    (wait_ms, crowded): (i64, Option<Crowded>),
) -> Reached {
    Reached::NoRoom { after: after.max(Some(just_before(at))), at, retry_at: now.plus_ms(wait_ms), crowded }
}

impl Scheduler {
    pub(super) fn read_back(&mut self, read: &Read, page: Result<DuePage, Error>, now: Timestamp) {
        self.reads = self.reads.saturating_sub(1);
        if !self.scan.is_reading(read) {
            // Others serve it now, or did in between: its cursors are gone already, or begin anew.
            return;
        }
        let stretch = &read.stretch;
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, tenant = %stretch.of.tenant, "due jobs could not be read; trying again");
                let at = read.after.map_or(stretch.bucket.start(), |position| position.at);
                self.scan.done(stretch, no_room(read.after, at, now, (READ_RETRY_MS, None)), now);
                return;
            }
        };
        self.scan.charge(&stretch.of.tenant, page.jobs.len());
        let horizon = self.horizon(now);
        let stopped = match stretch.part {
            Part::Live => self.take_live(read, page.jobs, now, horizon),
            Part::Missed => self.make_up(read, page.jobs, now, horizon),
        };
        if let Some(reached) = stopped {
            self.scan.done(stretch, reached, now);
            return;
        }
        let end = Reached::End { next_at: page.next_at };
        self.scan.done(stretch, page.resume.map_or(end, Reached::More), now);
        // What lies past the missed part belongs to the live one, which has a cursor of its own. Again it is swept by itself.
        let is_live = |at: &Timestamp| read.until < self.missed_before && *at >= self.missed_before;
        if let Some(at) = page.next_at.filter(is_live).filter(|_| stretch.look == Look::First) {
            self.scan.announce(&stretch.of, at);
        }
    }

    pub(super) fn refilled(&mut self, refill: &Refill, page: Result<DuePage, Error>, now: Timestamp) {
        self.reads = self.reads.saturating_sub(1);
        match page {
            Ok(page) => {
                let times = (now, self.shared.clock.monotonic_ms());
                self.ready.refill(refill, (page.jobs, page.resume), &mut self.governor, times);
            }
            Err(error) => {
                tracing::warn!(%error, "due jobs could not be read; trying again");
                self.ready.refill_failed(refill);
            }
        }
    }

    /// Takes in live jobs; says where it stopped, if it did. What is made up for is left to the paced reads.
    fn take_live(
        &mut self,
        read: &Read,
        jobs: Vec<Arc<Job>>,
        now: Timestamp,
        horizon: Timestamp,
    ) -> Option<Reached> {
        // Once in a while; what is behind it may be for others.
        let may_wait = if read.has_waited { MayWait::IfMoving } else { MayWait::ForTakers };
        let mut marked: Option<(Timestamp, Timestamp)> = None;
        let (mut passed, mut stopped, mut doubtful) = (read.after, None, Vec::new());
        for job in glance::each(jobs, glance::job) {
            let position = job.position();
            let at = position.at;
            if MadeUp::is_marked(&job) {
                marked = Some((marked.map_or(at, |(first, _)| first), at));
            } else if self.ready.waits_for_another_time(&job) {
                // It was moved while it was being read, or the news of the move was lost. Were it given up here for a
                // time it no longer has, nobody would look for it at the one it has.
                doubtful.push((job.tenant.clone(), job.id));
            } else if let Offer::NoRoom { wait_ms, crowded } = self.ready.offer(job, now, horizon, may_wait) {
                stopped = Some(no_room(passed, at, now, (wait_ms, crowded)));
                break;
            }
            passed = Some(position);
        }
        self.recheck(doubtful);
        if let Some(marked) = marked {
            self.scan.found_made_up(&read.stretch, marked, now);
        }
        stopped
    }

    /// Takes in what is made up for, as far as the tenant's pace allows; says where it stopped, if it did.
    fn make_up(
        &mut self,
        read: &Read,
        jobs: Vec<Arc<Job>>,
        now: Timestamp,
        horizon: Timestamp,
    ) -> Option<Reached> {
        let monotonic_ms = self.shared.clock.monotonic_ms();
        let (mut passed, mut count) = (read.after, 0);
        let mut stopped = None;
        for job in jobs {
            let position = Position { at: job.status.due_at, id: job.id };
            let is_ours = position.at < self.missed_before || MadeUp::is_marked(&job);
            if is_ours && self.ready.stage(&job.id).is_none() {
                let tenant = job.tenant.clone();
                if !self.governor.draw(&tenant, monotonic_ms) {
                    stopped = Some(
                        passed
                            .map_or_else(|| no_room(None, position.at, now, (PACED_MS, None)), Reached::More),
                    );
                    break;
                }
                match self.ready.offer(job, now, horizon, MayWait::IfMoving) {
                    Offer::Held => count += 1,
                    // It draws when its lot is read.
                    Offer::Overflowed | Offer::Later => self.governor.give_back(&tenant),
                    Offer::NoRoom { wait_ms, crowded } => {
                        self.governor.give_back(&tenant);
                        stopped = Some(no_room(passed, position.at, now, (wait_ms, crowded)));
                        break;
                    }
                }
            }
            passed = Some(position);
        }
        self.shared.metrics.caught_up(count);
        stopped
    }

    pub(super) fn claimed(&mut self, claim: Claim, granted: Result<Vec<Granted>, Error>, now: Timestamp) {
        self.claims = self.claims.saturating_sub(1);
        let granted = match granted {
            Ok(granted) => granted,
            Err(error) => {
                tracing::error!(%error, count = claim.picks.len(), "jobs could not be claimed");
                claim.picks.iter().for_each(|pick| self.ready.unclaim(&pick.id));
                self.shared.note_poison(&error);
                claim.takers.into_iter().for_each(|(taker, count)| self.refuse(taker, count, &error));
                return;
            }
        };
        let mut news = ClaimNews::default();
        let times = (now, self.shared.clock.monotonic_ms());
        let mut started = self.start_each(&claim.picks, granted, times, &mut news).into_iter();
        if claim.takers.is_empty() {
            let running = started.flatten().collect();
            if claim.is_over {
                self.hand_back(running);
            } else {
                self.deliverer.deliver(running, &self.reports);
            }
        } else {
            for (taker, count) in claim.takers {
                let running = started.by_ref().take(count).flatten().collect();
                self.hand_over(taker, count, running);
            }
        }
        self.shared.metrics.started(&news.lags);
        self.shared.metrics.claims_refused(news.refused);
        self.recheck(news.doubtful);
    }

    /// What came of each claim: the jobs whose attempts may start.
    fn start_each(
        &mut self,
        picks: &[Pick],
        granted: Vec<Granted>,
        times: (Timestamp, i64),
        news: &mut ClaimNews,
    ) -> Vec<Option<Arc<Job>>> {
        let mut started = Vec::with_capacity(granted.len());
        let mut granted = granted.into_iter();
        for picks in picks.chunks(HANDFUL) {
            glance::over(granted.as_slice().iter().take(HANDFUL).map(Granted::glance));
            self.glance(picks.iter().map(|pick| &pick.id));
            let pairs = picks.iter().zip(granted.by_ref());
            started.extend(pairs.map(|(pick, it)| self.started(pick, it, times, news)));
        }
        started
    }

    /// Looks at what is held of jobs.
    pub(super) fn glance<'j>(&self, ids: impl Iterator<Item = &'j JobId>) {
        glance::over(ids.map(|id| self.ready.glance(id) ^ self.leases.glance(id)));
    }

    /// What came of one claim; the job, if its attempt may start.
    fn started(
        &mut self,
        pick: &Pick,
        granted: Granted,
        (now, monotonic_ms): (Timestamp, i64),
        news: &mut ClaimNews,
    ) -> Option<Arc<Job>> {
        match granted {
            // Heard of so late that another node may have taken the job over: were it started now, an old attempt would
            // follow a new one. Not worth it; handed back at no cost, if it is still this one's.
            Granted::Running(job) if self.shared.territory.is_shared() && is_stale(&job, now) => {
                self.ready.unclaim(&job.id);
                self.release_unless_held(&job);
            }
            Granted::Running(job) if self.ready.claimed(&job.id) => {
                if !self.leases.hold_new(&job, monotonic_ms) {
                    // An old read brought it back while it was under way.
                    self.ready.unstart(&job.id);
                    return None;
                }
                news.lags.note(&job, now.since_ms(expected_start(&job)));
                self.shared.traces.started(&job);
                self.shared.attempt_started(pick.is_catch_up, &job);
                return Some(job);
            }
            // Called off meanwhile; but it may have been asked for again since, and claimed as such.
            Granted::Running(job) => self.release_unless_held(&job),
            // Its time was over: no attempt was made, and those before it have been counted.
            Granted::Ended(job) => {
                self.ready.unclaim(&job.id);
                self.shared.tell_of_end(&job);
            }
            Granted::Refused(refusal) => {
                let trace_id =
                    self.shared.traces.trace_id(pick.id, pick.trace_id).map(tracing::field::display);
                tracing::debug!(job_id = named(&pick.id), trace_id, %refusal, "a claim was refused");
                self.ready.unclaim(&pick.id);
                news.refused += 1;
                // Refused for good, or as long as something it goes by cannot be read, it would only come back to be refused
                // again. One that is in a database that is away is handed back first, and heard of then.
                let is_settled =
                    [Refusal::Rejected(Rejection::TooManyAttempts), Refusal::Unreadable, Refusal::Away]
                        .contains(&refusal);
                if !is_settled {
                    news.doubtful.push((pick.tenant.clone(), pick.id));
                }
            }
        }
        None
    }

    /// Hands an attempt back that will not start here, unless it turns out to be one that is under way already.
    fn release_unless_held(&self, job: &Job) {
        let token = job.status.token;
        if self.leases.token(&job.id) != Some(token) {
            let (tenant, id) = (job.tenant.clone(), job.id);
            self.reports.send(Report { tenant, id, command: Command::Release { token } });
        }
    }

    /// Hands running jobs to whom they were picked for; `count` were.
    pub(super) fn hand_over(&mut self, taker: Taker, count: usize, running: Vec<Arc<Job>>) {
        let left = match taker.recipient {
            Recipient::Connected(id) => {
                self.ready.give_back(id, count - running.len());
                let left = self.hand_to_peer(id, running);
                if left.is_empty() { left } else { self.hand_to_worker(id, left) }
            }
            Recipient::Once(subscriber) if running.is_empty() => {
                if self.draining.is_none() {
                    // It gets another chance, also if its wait is over: other jobs may be ready.
                    if let Outlet::Once(reply) = &subscriber.outlet
                        && reply.is_withdrawn()
                    {
                        self.leaving.push(reply.ticket());
                    }
                    self.ready.subscribe(*subscriber);
                }
                Vec::new()
            }
            Recipient::Once(subscriber) => match subscriber.outlet {
                Outlet::Once(reply) => reply.send(running),
                Outlet::Stream(_) | Outlet::Peer { .. } => running,
            },
        };
        // The taker is gone: the next one gets them.
        self.hand_back(left);
    }

    fn hand_back(&self, running: Vec<Arc<Job>>) {
        let release = |job: Arc<Job>| Report {
            tenant: job.tenant.clone(),
            id: job.id,
            command: Command::Release { token: job.status.token },
        };
        self.reports.send_all(running.into_iter().map(release).collect());
    }

    /// Nothing could be claimed: whoever asked once is told why, a connected worker waits on.
    fn refuse(&mut self, taker: Taker, count: usize, error: &Error) {
        match taker.recipient {
            Recipient::Connected(id) => self.ready.give_back(id, count),
            Recipient::Once(subscriber) => {
                if let Outlet::Once(reply) = subscriber.outlet {
                    reply.refuse(error.clone());
                }
            }
        }
    }

    pub(super) fn reported(
        &mut self,
        jobs: Vec<Arc<Job>>,
        refused: Vec<(Tenant, JobId, Option<Token>)>,
        now: Timestamp,
    ) {
        let mut jobs = jobs.into_iter();
        while jobs.len() > 0 {
            let handful = jobs.as_slice().iter().take(HANDFUL);
            glance::over(handful.clone().map(glance::job));
            self.glance(handful.map(|job| &job.id));
            jobs.by_ref().take(HANDFUL).for_each(|job| self.reported_one(job, now));
        }
        for (_, id, token) in &refused {
            // A stale report must not free the place of the attempt that replaced it.
            if self.leases.token(id) == *token && token.is_some() {
                self.leases.release(id);
                self.ready.end_delivery(id);
                self.forget_holding(id);
            }
        }
        self.recheck(refused.into_iter().map(|(tenant, id, _)| (tenant, id)).collect());
    }

    fn reported_one(&mut self, job: Arc<Job>, now: Timestamp) {
        if self.is_outdated(&job) {
            return;
        }
        self.tell_holder(&job);
        self.ready.end_delivery(&job.id);
        if job.status.running.is_some() {
            self.leases.hold(&job, now, self.shared.clock.monotonic_ms());
            return;
        }
        self.leases.release(&job.id);
        self.call_off(&job);
        if !is_waiting(&job) {
            self.pass_on(&job);
        } else if !self.is_behind(&job) {
            self.take_in(job, now);
        }
    }

    /// Lets the places of attempts go whose end cannot be written. Reading them again would tell nothing, and nobody else
    /// will: not even when a lease ends, which may have been what was to be written.
    pub(super) fn let_go_unreadable(&mut self, unreadable: &[(JobId, Token)]) {
        for (id, token) in unreadable {
            if self.leases.token(id).is_none_or(|held| held == *token) {
                self.leases.release(id);
                self.ready.end_delivery(id);
                self.forget_holding(id);
            }
        }
    }

    pub(super) fn taker(&mut self, take: Take, reply: TakeReply) {
        if self.draining.is_some() {
            return;
        }
        self.ready.subscribe(Subscriber {
            worker: take.worker,
            queues: Arc::from([take.queue]),
            interest: Arc::new(Interest::new(take.tenants, take.kinds, Priority::Low)),
            lease_ms: take.lease_ms,
            credits: take.count_max,
            in_flight: 0,
            lags: false,
            outlet: Outlet::Once(reply),
        });
    }
}
