//! Finding subscribers of this node for attempts that were started elsewhere, for them.

use std::sync::Arc;

use tidewheel_core::job::{Destination, Job};
use tidewheel_core::limits::TAKE_BYTES_MAX;

use super::Ready;
use super::pick::{Recipient, Taker};
use super::subscribers::{Outlet, SubscriberId};
use super::suspects::is_suspect;
use crate::engine::sent_bytes;

/// Somebody, and the jobs found for it.
type Placed = (Taker, Vec<Arc<Job>>);

impl Ready {
    /// Shares running jobs out among the least busy who take them; also returns those that nobody has room for. Suspects are
    /// for empty hands, unless they have waited for such long enough: then they come alone all the same.
    pub(in crate::engine) fn place(
        &mut self,
        mut jobs: Vec<Arc<Job>>,
        have_waited: bool,
    ) -> (Vec<Placed>, Vec<Arc<Job>>) {
        let (mut placed, mut left) = (Vec::new(), Vec::new());
        jobs.reverse();
        while let Some(first) = jobs.pop() {
            match self.place_for_one(first, &mut jobs, have_waited) {
                Ok(found) => placed.push(found),
                Err(first) => left.push(first),
            }
        }
        (placed, left)
    }

    /// Finds somebody for the first job, and more jobs for the same one: its share of what is there.
    fn place_for_one(
        &mut self,
        first: Arc<Job>,
        others: &mut Vec<Arc<Job>>,
        have_waited: bool,
    ) -> Result<Placed, Arc<Job>> {
        let Some((id, seats)) = self.best_local(&first) else { return Err(first) };
        let alone = is_suspect(&first);
        if alone && !have_waited && !self.has_empty_hands(id) {
            return Err(first);
        }
        let Some(subscriber) = self.subscribers.get(id) else { return Err(first) };
        let interest = Arc::clone(&subscriber.interest);
        let (worker, lease_ms) = (Arc::clone(&subscriber.worker), subscriber.lease_ms);
        let once = matches!(subscriber.outlet, Outlet::Once(_));
        let share = subscriber.credits.min((others.len() + 1).div_ceil(seats.max(1))).saturating_sub(1);
        let mut more = if alone { 0 } else { share };
        let destination = first.spec.destination.clone();
        let mut bytes = sent_bytes(&first);
        let mut jobs = vec![first];
        jobs.extend(others.extract_if(.., |job| {
            let is_fit = more > 0
                && (!once || bytes < TAKE_BYTES_MAX)
                && job.spec.destination == destination
                && interest.covers(job.tenant.as_str())
                && interest.admits(job.spec.priority, &job.spec.kind)
                && !is_suspect(job);
            more -= usize::from(is_fit);
            bytes += if is_fit { sent_bytes(job) } else { 0 };
            is_fit
        }));
        if alone && let Destination::Queue(queue) = &destination {
            self.keep_alone(id, queue);
        }
        let recipient = if once {
            self.unsubscribe(id).map(|subscriber| Recipient::Once(Box::new(subscriber)))
        } else {
            self.spend(id, jobs.len());
            Some(Recipient::Connected(id))
        };
        let recipient = recipient.unwrap_or(Recipient::Connected(id));
        Ok((Taker { worker, lease_ms, recipient }, jobs))
    }

    /// The least busy of this node's own who take such a job, and how many have room for jobs of its queue.
    fn best_local(&mut self, job: &Job) -> Option<(SubscriberId, usize)> {
        let Destination::Queue(queue) = &job.spec.destination else { return None };
        loop {
            let slot = self.lanes.get(*self.queues.get(queue)?)?.as_ref()?;
            let seats = slot.seats.len();
            let seat = slot.seats.best(job.tenant.as_str(), job.spec.priority, &job.spec.kind)?;
            // Peers come last: when one is the best, nobody else is left.
            if self.is_peer(seat.id) {
                return None;
            }
            if self.is_open(seat.id) {
                return Some((seat.id, seats));
            }
        }
    }
}
