//! Writing a group. When it is on disk everybody is let see it and its answers are given. A large group is written by a
//! thread of its own while the next is judged; a small one by the commit thread, where it was judged.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tidewheel_store::Error;

use super::{Answer, WRITING_COUNT_MAX};
use crate::counters::Changes;
use crate::kv::{Batch, Durability, Kv, KvError, Slice};
use crate::options::{CommitReport, OnCommit};
use crate::place::ScheduleTag;
use crate::schedule_counts::ScheduleDeltas;
use crate::shared::Shared;
use crate::stopwatch::Stopwatch;
use crate::view::Published;

/// What is written to.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) shared: Arc<Shared>,
    pub(crate) kv: Arc<dyn Kv>,
    pub(crate) durability: Durability,
    pub(crate) on_commit: Option<OnCommit>,
}

/// A group to be written.
pub(super) struct Work {
    pub(super) writes: Writes,
    pub(super) answers: Vec<Answer>,
    /// How many jobs it concerns.
    pub(super) jobs: usize,
}

/// What becomes of a group, on disk and in memory.
#[derive(Default)]
pub(super) struct Writes {
    pub(super) batch: Batch,
    pub(super) counts: Changes,
    pub(super) published: Published,
    /// New entries in `waiting`.
    pub(super) armed: Vec<Slice>,
    pub(super) schedules: ScheduleDeltas,
    pub(super) schedules_changed: Vec<ScheduleTag>,
}

/// The thread, from the outside.
pub(crate) struct Writer {
    work: Option<SyncSender<Work>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(disk: Disk) -> std::io::Result<Self> {
        let (work, todo) = sync_channel::<Work>(WRITING_COUNT_MAX);
        let (finished, done) = sync_channel(WRITING_COUNT_MAX);
        let thread = std::thread::Builder::new().name("tidewheel-write".to_owned()).spawn(move || {
            while let Ok(work) = todo.recv() {
                disk.carry_out(work);
                if finished.send(()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { work: Some(work), done, thread: Some(thread) })
    }

    /// Hands over a group; of those before it fewer than [`WRITING_COUNT_MAX`] may not have been waited for. If the thread is gone, whoever waits for an answer
    /// is told by the loss of it.
    pub(super) fn write(&self, work: Work) {
        if let Some(sender) = &self.work {
            drop(sender.send(work));
        }
    }

    /// Waits until the oldest group that was handed over is written, or has failed; says whether the thread is still there.
    pub(super) fn wait(&self) -> bool {
        self.done.recv().is_ok()
    }
}

impl Drop for Writer {
    /// Waits for the thread, which has the engine open.
    fn drop(&mut self) {
        self.work.take();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the writing thread panicked");
        }
    }
}

impl Disk {
    /// Writes a group, lets everybody see it and gives its answers.
    pub(super) fn carry_out(&self, work: Work) {
        let Work { writes, answers, jobs } = work;
        let outcome = self.write(writes, answers.len(), jobs);
        for answer in answers {
            answer.give(outcome.clone());
        }
    }

    fn write(&self, writes: Writes, calls: usize, jobs: usize) -> Result<(), Error> {
        let Writes { mut batch, counts, published, armed, schedules, schedules_changed } = writes;
        self.shared.counters().write(&counts, &mut batch);
        self.shared.schedule_counts().write(&schedules, &mut batch);
        if batch.0.is_empty() {
            return self.shared.poisoned().map_or(Ok(()), Err);
        }
        let bytes = batch.size_bytes();
        let stopwatch = Stopwatch::start();
        self.commit(batch)?;
        let sync_duration = stopwatch.elapsed();
        self.shared.gaps.fill(&armed);
        self.shared.view.publish(published);
        self.shared.counters().apply(counts);
        self.shared.schedule_counts().apply(schedules);
        if !schedules_changed.is_empty() {
            self.shared.ahead.publish(schedules_changed.into_iter());
        }
        if let Some(on_commit) = &self.on_commit {
            on_commit(CommitReport { calls, jobs, bytes, sync_duration });
        }
        Ok(())
    }

    /// Commits a batch, or gives up writing for good.
    pub(super) fn commit(&self, batch: Batch) -> Result<(), Error> {
        if let Some(error) = self.shared.poisoned() {
            return Err(error);
        }
        self.kv.commit(batch, self.durability).map_err(|error| self.poison(&error))
    }

    pub(super) fn poison(&self, error: &KvError) -> Error {
        let reason = error.to_string();
        tracing::error!(reason, "the store refuses writes from now on: a commit failed");
        self.shared.poison(&reason);
        Error::Poisoned(reason)
    }
}
