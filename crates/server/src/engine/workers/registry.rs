//! Sessions of connected workers and the jobs they hold. Owned by the scheduler; nothing here walks over all sessions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rustc_hash::{FxHashMap, FxHashSet};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Destination, Job, Priority, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tokio::sync::mpsc;

use super::{Push, Unsent};
use crate::engine::ready::{Interest, SubscriberId};

/// A session's number, in the order they began.
pub(in crate::engine) type SessionId = u64;

/// A worker that is connected, or may still come back.
#[derive(Debug)]
pub(in crate::engine) struct Session {
    pub(in crate::engine) secret: u128,
    pub(in crate::engine) tenant: Tenant,
    pub(in crate::engine) name: Arc<str>,
    pub(in crate::engine) queues: Arc<[Arc<str>]>,
    pub(in crate::engine) interest: Arc<Interest>,
    pub(in crate::engine) lease_ms: i64,
    /// Its place among those who want jobs; none while it is not connected.
    pub(in crate::engine) subscriber: Option<SubscriberId>,
    /// Which of its streams, in turn, is the newest.
    pub(in crate::engine) stream: u64,
    pub(in crate::engine) pushes: mpsc::UnboundedSender<Push>,
    pub(in crate::engine) unsent: Arc<Unsent>,
    pub(in crate::engine) heard_ms: Arc<AtomicI64>,
    pub(in crate::engine) connected_at: Timestamp,
    pub(in crate::engine) disconnected_ms: Option<i64>,
    pub(in crate::engine) draining: bool,
    /// The silence it may keep while it holds no job.
    pub(in crate::engine) idle_dead_ms: i64,
    /// Since when it holds some.
    busy_since_ms: i64,
    /// When it is looked at next, at the latest.
    wake_ms: i64,
    jobs: FxHashSet<JobId>,
}

impl Session {
    /// When it must have been heard of, or come back, to go on.
    fn deadline_ms(&self, dead_ms: i64, resume_ms: i64) -> i64 {
        match self.disconnected_ms {
            Some(since_ms) => since_ms.saturating_add(resume_ms),
            None if self.jobs.is_empty() => {
                self.heard_ms.load(Ordering::Relaxed).saturating_add(self.idle_dead_ms.max(dead_ms))
            }
            // Its silence from before it was sent a job says nothing.
            None => self.heard_ms.load(Ordering::Relaxed).max(self.busy_since_ms).saturating_add(dead_ms),
        }
    }

    /// Tells the worker something; nobody listens when its stream has just ended, and then that is heard of too.
    pub(in crate::engine) fn push(&self, push: Push) {
        drop(self.pushes.send(push));
    }

    /// Jobs it holds.
    pub(in crate::engine) fn jobs_count(&self) -> usize {
        self.jobs.len()
    }
}

/// Jobs of a queue that are remembered as unstarted although they may have started, beside as many as are held.
const UNSTARTED_SPARE_COUNT: usize = 64;

/// Whether a job still lies unstarted since then.
fn is_unstarted(held: &FxHashMap<JobId, Holding>, (since_ms, job): (i64, JobId)) -> bool {
    held.get(&job).is_some_and(|holding| holding.unstarted_since_ms == Some(since_ms))
}

/// A job in a worker's hands.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Holding {
    pub(in crate::engine) session: SessionId,
    pub(in crate::engine) token: Token,
    pub(in crate::engine) tenant: Tenant,
    kind: Arc<str>,
    priority: Priority,
    /// Since when it lies there unstarted; none once it started or was asked back.
    unstarted_since_ms: Option<i64>,
}

/// A job that lies unstarted at a worker.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Unstarted {
    pub(in crate::engine) id: JobId,
    pub(in crate::engine) token: Token,
    pub(in crate::engine) session: SessionId,
    pub(in crate::engine) tenant: Tenant,
    pub(in crate::engine) kind: Arc<str>,
    pub(in crate::engine) priority: Priority,
}

/// All sessions.
#[derive(Debug, Default)]
pub(in crate::engine) struct Workers {
    sessions: BTreeMap<SessionId, Session>,
    by_secret: FxHashMap<u128, SessionId>,
    by_subscriber: FxHashMap<SubscriberId, SessionId>,
    held: FxHashMap<JobId, Holding>,
    /// Jobs that were handed over unstarted, by queue, the longest first. Nearly all start at once: what has is passed over
    /// when it is met, instead of being looked for.
    unstarted: BTreeMap<Arc<str>, VecDeque<(i64, JobId)>>,
    /// When to look at which session; may be early.
    wakes: BinaryHeap<Reverse<(i64, SessionId)>>,
    last: SessionId,
    pub(in crate::engine) take_back_at_ms: i64,
}

/// What begins a session.
pub(in crate::engine) struct Beginning {
    pub(in crate::engine) secret: u128,
    pub(in crate::engine) tenant: Tenant,
    pub(in crate::engine) name: Arc<str>,
    pub(in crate::engine) now: Timestamp,
}

impl Workers {
    pub(in crate::engine) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// How many of them are connected; the others may come back.
    pub(in crate::engine) fn connected(&self) -> usize {
        self.by_subscriber.len()
    }

    pub(in crate::engine) fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    pub(in crate::engine) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    pub(in crate::engine) fn all(&self) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.sessions.iter()
    }

    pub(in crate::engine) fn after(&self, place: u64) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.sessions.range(place.saturating_add(1)..)
    }

    pub(in crate::engine) fn by_secret(&self, secret: u128) -> Option<SessionId> {
        self.by_secret.get(&secret).copied()
    }

    pub(in crate::engine) fn of_subscriber(&self, id: SubscriberId) -> Option<SessionId> {
        self.by_subscriber.get(&id).copied()
    }

    /// Adds a session that wants nothing yet.
    pub(in crate::engine) fn begin(&mut self, beginning: Beginning, opening: super::Opening) -> SessionId {
        self.last += 1;
        let id = self.last;
        self.by_secret.insert(beginning.secret, id);
        self.sessions.insert(
            id,
            Session {
                secret: beginning.secret,
                tenant: beginning.tenant.clone(),
                name: beginning.name,
                queues: Arc::from([]),
                interest: Arc::new(Interest::of_tenant(beginning.tenant)),
                lease_ms: 0,
                subscriber: None,
                stream: 0,
                pushes: opening.pushes,
                unsent: opening.unsent,
                heard_ms: opening.heard_ms,
                connected_at: beginning.now,
                disconnected_ms: None,
                draining: false,
                idle_dead_ms: 0,
                busy_since_ms: i64::MIN,
                wake_ms: i64::MAX,
                jobs: FxHashSet::default(),
            },
        );
        id
    }

    /// Says by which subscriber a session gets its jobs.
    pub(in crate::engine) fn seat(&mut self, id: SessionId, subscriber: SubscriberId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.subscriber = Some(subscriber);
            self.by_subscriber.insert(subscriber, id);
        }
    }

    /// The session gets no more jobs; returns by which subscriber it got them.
    pub(in crate::engine) fn unseat(&mut self, id: SessionId) -> Option<SubscriberId> {
        let subscriber = self.sessions.get_mut(&id)?.subscriber.take()?;
        self.by_subscriber.remove(&subscriber);
        Some(subscriber)
    }

    /// Forgets a session and hands out what it held.
    pub(in crate::engine) fn end(&mut self, id: SessionId) -> Option<(Session, Vec<(JobId, Holding)>)> {
        let session = self.sessions.remove(&id)?;
        self.by_secret.remove(&session.secret);
        let held = session.jobs.iter().filter_map(|job| Some((*job, self.let_go(job)?))).collect();
        Some((session, held))
    }

    /// Looks at a session again at that time.
    pub(in crate::engine) fn wake_at(&mut self, id: SessionId, at_ms: i64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        // One who is looked at sooner anyway needs no second look noted, however often it is handed jobs.
        if at_ms < session.wake_ms {
            session.wake_ms = at_ms;
            self.wakes.push(Reverse((at_ms, id)));
        }
    }

    /// A session is about to be sent jobs: from now on it must be heard of as one that holds some.
    pub(in crate::engine) fn kept_busy(&mut self, id: SessionId, now_ms: i64, dead_ms: i64) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.jobs.is_empty()) else {
            return;
        };
        session.busy_since_ms = now_ms;
        self.wake_at(id, now_ms.saturating_add(dead_ms));
    }

    pub(in crate::engine) fn next_wake_ms(&self) -> Option<i64> {
        self.wakes.peek().map(|Reverse((at_ms, _))| *at_ms)
    }

    /// Sessions whose time is over.
    pub(in crate::engine) fn overdue(&mut self, now_ms: i64, dead_ms: i64, resume_ms: i64) -> Vec<SessionId> {
        let mut overdue = Vec::new();
        while let Some(Reverse((at_ms, id))) = self.wakes.peek().copied() {
            if at_ms > now_ms {
                break;
            }
            self.wakes.pop();
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let deadline_ms = session.deadline_ms(dead_ms, resume_ms);
            if deadline_ms <= now_ms {
                overdue.push(id);
            } else if at_ms >= session.wake_ms {
                session.wake_ms = deadline_ms;
                self.wakes.push(Reverse((deadline_ms, id)));
            }
        }
        overdue
    }

    /// Notes that a session holds a job; `unstarted_since_ms` unless it has started. Returns in whose hands it was.
    pub(in crate::engine) fn hold(
        &mut self,
        id: SessionId,
        job: &Job,
        unstarted_since_ms: Option<i64>,
    ) -> Option<Holding> {
        let Destination::Queue(queue) = &job.spec.destination else { return None };
        self.sessions.get_mut(&id)?.jobs.insert(job.id);
        let holding = Holding {
            session: id,
            token: job.status.token,
            tenant: job.tenant.clone(),
            kind: Arc::clone(&job.spec.kind),
            priority: job.spec.priority,
            unstarted_since_ms,
        };
        let before = self.held.insert(job.id, holding);
        if let Some(before) = before.as_ref().filter(|before| before.session != id)
            && let Some(session) = self.sessions.get_mut(&before.session)
        {
            session.jobs.remove(&job.id);
        }
        if let Some(since_ms) = unstarted_since_ms {
            self.note_unstarted(queue, since_ms, job.id);
        }
        before
    }

    fn note_unstarted(&mut self, queue: &Arc<str>, since_ms: i64, job: JobId) {
        let held = &self.held;
        let waiting = match self.unstarted.get_mut(queue) {
            Some(waiting) => waiting,
            None => self.unstarted.entry(Arc::clone(queue)).or_default(),
        };
        // Two for one, so that it shrinks; where something lies long before others that started, all are looked through.
        for _ in 0..2 {
            if waiting.front().is_some_and(|entry| !is_unstarted(held, *entry)) {
                waiting.pop_front();
            }
        }
        if waiting.len() > UNSTARTED_SPARE_COUNT + 2 * held.len() {
            waiting.retain(|entry| is_unstarted(held, *entry));
        }
        waiting.push_back((since_ms, job));
    }

    /// A job is in nobody's hands any more; returns in whose it was.
    pub(in crate::engine) fn release(&mut self, job: &JobId) -> Option<Holding> {
        let holding = self.let_go(job)?;
        if let Some(session) = self.sessions.get_mut(&holding.session) {
            session.jobs.remove(job);
        }
        Some(holding)
    }

    pub(in crate::engine) fn holding(&self, job: &JobId) -> Option<&Holding> {
        self.held.get(job)
    }

    fn let_go(&mut self, job: &JobId) -> Option<Holding> {
        self.held.remove(job)
    }

    /// A job started, or was asked back.
    pub(in crate::engine) fn no_longer_unstarted(&mut self, job: &JobId) {
        if let Some(holding) = self.held.get_mut(job) {
            holding.unstarted_since_ms = None;
        }
    }

    /// What a session holds.
    pub(in crate::engine) fn held_by(&self, id: SessionId) -> Vec<(JobId, Token)> {
        let jobs = self.sessions.get(&id).into_iter().flat_map(|session| &session.jobs);
        jobs.filter_map(|job| Some((*job, self.held.get(job)?.token))).collect()
    }

    /// Those of them that it has not said to have started, and was not asked for.
    pub(in crate::engine) fn unstarted_of(&self, id: SessionId) -> Vec<(JobId, Token)> {
        let mut held = self.held_by(id);
        held.retain(|(job, _)| self.held.get(job).is_some_and(|held| held.unstarted_since_ms.is_some()));
        held
    }

    /// Queues with jobs that lie unstarted.
    pub(in crate::engine) fn queues_unstarted(&mut self) -> Vec<Arc<str>> {
        let held = &self.held;
        self.unstarted.retain(|_, waiting| {
            while waiting.front().is_some_and(|entry| !is_unstarted(held, *entry)) {
                waiting.pop_front();
            }
            !waiting.is_empty()
        });
        self.unstarted.keys().cloned().collect()
    }

    /// Jobs of a queue that lie unstarted since before, the longest first, at most so many.
    pub(in crate::engine) fn unstarted_before(
        &self,
        queue: &str,
        before_ms: i64,
        count_max: usize,
    ) -> Vec<Unstarted> {
        let waiting = self.unstarted.get(queue).into_iter().flatten();
        waiting
            .take_while(|(since_ms, _)| *since_ms <= before_ms)
            .filter(|entry| is_unstarted(&self.held, **entry))
            .take(count_max)
            .filter_map(|(_, id)| {
                let holding = self.held.get(id)?;
                Some(Unstarted {
                    id: *id,
                    token: holding.token,
                    session: holding.session,
                    tenant: holding.tenant.clone(),
                    kind: Arc::clone(&holding.kind),
                    priority: holding.priority,
                })
            })
            .collect()
    }
}
