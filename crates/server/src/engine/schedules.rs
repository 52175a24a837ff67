//! Edits of schedules, and the news of jobs that change along with others.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewheel_core::job::Job;
use tidewheel_core::schedule::Upcoming;
use tidewheel_store::{Applied, Edited, Error, ScheduleOrder, ScheduleRefusal};
use tokio::sync::oneshot;

use super::scheduler::Message;
use super::{Engine, Shared, is_waiting};

/// What changed along with orders for jobs.
#[derive(Default)]
pub(super) struct Beside {
    jobs: Vec<Arc<Job>>,
    upcoming: Vec<Upcoming>,
}

impl Beside {
    pub(super) fn add(&mut self, applied: &mut Applied) {
        self.jobs.append(&mut applied.others);
        self.upcoming.extend(applied.next.take());
    }

    pub(super) fn add_job(&mut self, job: Job) {
        self.jobs.push(Arc::new(job));
    }
}

impl Shared {
    /// Tells the scheduler of jobs that were stored, changed or taken out. What waits in a bucket that is not
    /// open yet is left out: it is in the store already, and found there when the bucket is opened.
    pub(super) fn tell_changed<'a, J: Borrow<Job> + Clone + Into<Arc<Job>> + 'a>(
        &self,
        jobs: impl IntoIterator<Item = &'a J>,
    ) -> Option<oneshot::Receiver<()>> {
        let opened_ms = self.opened_ms.load(Ordering::SeqCst);
        let is_news = |job: &&J| {
            let job: &Job = (*job).borrow();
            !is_waiting(job) || job.status.due_at.as_ms() < opened_ms
        };
        let jobs: Vec<Arc<Job>> = jobs.into_iter().filter(is_news).cloned().map(Into::into).collect();
        if jobs.is_empty() {
            return None;
        }
        let (done, seen) = oneshot::channel();
        self.tell(Message::Changed { jobs, done });
        Some(seen)
    }

    /// The same for what changed along with orders. Of what is to come only that becomes a job which is news.
    pub(super) fn tell_beside(&self, beside: Beside) {
        let Beside { mut jobs, upcoming } = beside;
        let opened_ms = self.opened_ms.load(Ordering::SeqCst);
        let is_near = |it: &&Upcoming| it.next().is_some_and(|next| next.run_at.as_ms() < opened_ms);
        jobs.extend(upcoming.iter().filter(is_near).filter_map(Upcoming::job).map(Arc::new));
        self.tell_changed(&jobs);
    }
}

impl Engine {
    /// Applies orders to schedules, then tells the scheduler about the jobs that changed with them.
    ///
    /// # Errors
    /// When the store fails; repeating the same orders is safe.
    pub async fn edit_schedules(
        &self,
        orders: Vec<ScheduleOrder>,
    ) -> Result<Vec<Result<Edited, ScheduleRefusal>>, Error> {
        let shared = &self.shared;
        let results = shared.store.edit_schedules(shared.clock.now(), orders).await;
        let results = results.inspect_err(|error| self.may_have_missed(error))?;
        let jobs = || results.iter().flatten().flat_map(|edited| &edited.jobs);
        // An acknowledged pause means no later start, so the scheduler must have heard of it.
        if let Some(seen) = shared.tell_changed(jobs())
            && jobs().any(|job| job.status.state.is_finished())
        {
            drop(seen.await);
        }
        Ok(results)
    }
}
