//! Edits of schedules, and the news of jobs that change along with others.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidewheel_core::job::Job;
use tidewheel_store::{Edited, Error, ScheduleOrder, ScheduleRefusal};
use tokio::sync::oneshot;

use super::scheduler::Message;
use super::{Engine, Shared, is_waiting};

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
