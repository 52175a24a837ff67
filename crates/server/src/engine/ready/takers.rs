//! Those who ask once: how they are answered, and how they leave when they have waited long enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidewheel_core::job::Job;
use tidewheel_store::Error;
use tokio::sync::oneshot;

use super::Ready;
use super::subscribers::{Outlet, SubscriberId};

/// A call's number; never used twice.
pub(in crate::engine) type Ticket = u64;

/// How far a call's wait has come, known also while something is being claimed for it: then it is not among the subscribers,
/// and nobody could be told.
#[derive(Debug, Default)]
pub(in crate::engine) struct Leave {
    /// It is nearly over.
    pub(in crate::engine) is_near: AtomicBool,
    /// It is over.
    pub(in crate::engine) is_over: AtomicBool,
}

/// Where the jobs go of one who asks once.
#[derive(Debug)]
pub(in crate::engine) struct TakeReply {
    ticket: Ticket,
    leave: Arc<Leave>,
    /// Other nodes are told of its wish no more. Changes only while it has no seat: it is counted as what it sat down as.
    is_retracted: bool,
    to: oneshot::Sender<Taken>,
}

/// What comes of asking once.
type Taken = Result<Vec<Arc<Job>>, Error>;

impl TakeReply {
    /// A reply, what says that its wait is over, and where the jobs come out.
    pub(in crate::engine) fn new(ticket: Ticket) -> (Self, Arc<Leave>, oneshot::Receiver<Taken>) {
        let (to, answer) = oneshot::channel();
        let leave = Arc::new(Leave::default());
        let reply = Self { ticket, leave: Arc::clone(&leave), is_retracted: false, to };
        (reply, leave, answer)
    }

    pub(in crate::engine) const fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Whether its wait is over.
    pub(in crate::engine) fn is_withdrawn(&self) -> bool {
        self.leave.is_over.load(Ordering::SeqCst)
    }

    /// It is about to wait, perhaps once more: looks whether that is nearly over.
    pub(super) fn look_at_leave(&mut self) {
        self.is_retracted |= self.leave.is_near.load(Ordering::SeqCst);
    }

    /// Whether other nodes are no longer to hear of its wish.
    pub(super) const fn is_retracted(&self) -> bool {
        self.is_retracted
    }

    /// Nobody waits for it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// Answers; returns the jobs if nobody waits for them any more.
    pub(in crate::engine) fn send(self, jobs: Vec<Arc<Job>>) -> Vec<Arc<Job>> {
        self.to.send(Ok(jobs)).err().and_then(Result::ok).unwrap_or_default()
    }

    /// Answers that nothing could be claimed, and why.
    pub(in crate::engine) fn refuse(self, error: Error) {
        // Nobody may wait for it any more.
        drop(self.to.send(Err(error)));
    }
}

impl Ready {
    /// Has other nodes start nothing more for one whose wait is nearly over; what is on its way still finds it. One for whom
    /// something is being claimed is not told of meanwhile, and if it waits on it is looked at again.
    pub(in crate::engine) fn retract(&mut self, ticket: Ticket) {
        let Some(id) = self.subscribers.taker(ticket) else { return };
        // It is counted while it sits, so it rises as what it sat down as.
        self.unseat(id);
        if let Some(Outlet::Once(reply)) = self.subscribers.outlet_mut(id) {
            reply.is_retracted = true;
        }
        self.seat(id);
    }

    /// Answers one with nothing whose wait is over, unless something is being claimed for it.
    pub(in crate::engine) fn withdraw(&mut self, ticket: Ticket) {
        if let Some(id) = self.subscribers.taker(ticket)
            && let Some(subscriber) = self.unsubscribe(id)
            && let Outlet::Once(reply) = subscriber.outlet
        {
            drop(reply.send(Vec::new()));
        }
    }

    /// Drops those who asked once and no longer wait.
    pub(in crate::engine) fn drop_gone_takers(&mut self) {
        let is_gone = |id: &SubscriberId| {
            self.subscribers.get(*id).is_none_or(|taker| match &taker.outlet {
                Outlet::Once(reply) => reply.is_closed(),
                Outlet::Stream(_) | Outlet::Peer { .. } => false,
            })
        };
        let gone: Vec<SubscriberId> = self.subscribers.takers().filter(is_gone).collect();
        for id in gone {
            self.unsubscribe(id);
        }
    }

    /// Sends everybody away who asked once.
    pub(in crate::engine) fn drop_takers(&mut self) {
        let all: Vec<SubscriberId> = self.subscribers.takers().collect();
        for id in all {
            self.unsubscribe(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewheel_core::names::Tenant;
    use tidewheel_core::time::Timestamp;

    use super::*;
    use crate::engine::config::Config;
    use crate::engine::governor::MadeUp;
    use crate::engine::ready::{Interest, Subscriber};

    /// How much room other nodes would be told of.
    fn told(ready: &mut Ready) -> Vec<usize> {
        ready.demand(false, false, |_| true, |_| false).iter().map(|want| want.room).collect()
    }

    fn watched() -> Ready {
        let now = Timestamp::from_ms(1_000);
        let mut ready = Ready::new(Config::default(), 1, MadeUp { missed_before: now }, now);
        ready.watch_demand();
        ready
    }

    /// A call waits for three jobs.
    fn wait(ready: &mut Ready, ticket: Ticket) -> (SubscriberId, Arc<Leave>, oneshot::Receiver<Taken>) {
        let (reply, leave, answer) = TakeReply::new(ticket);
        let id = ready.subscribe(Subscriber {
            worker: "w".into(),
            queues: Arc::from([Arc::from("q")]),
            interest: Arc::new(Interest::of_tenant(Tenant::default())),
            lease_ms: 30_000,
            credits: 3,
            in_flight: 0,
            lags: false,
            outlet: Outlet::Once(reply),
        });
        (id, leave, answer)
    }

    #[test]
    fn one_who_is_about_to_leave_waits_on_and_other_nodes_are_told_of_no_room() {
        let mut ready = watched();
        let (_, _, mut answer) = wait(&mut ready, 7);
        assert_eq!(told(&mut ready), [3]);
        ready.retract(7);
        assert_eq!(told(&mut ready), [0]);
        assert!(answer.try_recv().is_err(), "it waits on");
        ready.withdraw(7);
        assert!(told(&mut ready).is_empty(), "that is known");
        assert!(answer.try_recv().is_ok_and(|taken| taken.is_ok_and(|jobs| jobs.is_empty())));
    }

    #[test]
    fn one_whose_wait_is_nearly_over_while_something_is_claimed_for_it_is_told_of_no_more() {
        let mut ready = watched();
        let (id, leave, mut answer) = wait(&mut ready, 7);
        assert_eq!(told(&mut ready), [3]);
        let taker = ready.unsubscribe(id).unwrap();
        assert_eq!(told(&mut ready), [0], "something is being claimed for it");
        leave.is_near.store(true, Ordering::SeqCst);
        ready.retract(7);
        ready.subscribe(taker);
        assert!(told(&mut ready).is_empty(), "nothing was granted; it waits on for what is on its way");
        assert!(answer.try_recv().is_err());
        ready.withdraw(7);
        assert!(told(&mut ready).is_empty(), "that is known");
        assert!(answer.try_recv().is_ok_and(|taken| taken.is_ok_and(|jobs| jobs.is_empty())));
    }
}
