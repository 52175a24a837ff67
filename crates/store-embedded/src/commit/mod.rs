//! The commit thread takes all requests that wait and judges them one after the other against what is stored and what
//! the requests before them did. What comes of them is one batch with one sync, which the [`writer`] writes; only then
//! does anybody see or hear of it. While one group is written and one lies ready to be written, the next is judged, and
//! while all are at it further requests gather, so the busier the store the more they share. A small group is written by the commit
//! thread itself: while few ask, a submission waits for one other thread and not for two.
//!
//! A group is judged beside others only as far as they have nothing in common: whatever a group that is not written yet has
//! touched is read after it has been written ([`Committer::settle`]).
//!
//! After a failed commit nobody knows what the disk holds, so nothing is written any more until a restart has
//! read it again.

mod audit;
mod documents;
mod group;
mod index;
mod judge;
mod known;
mod plans;
mod retention;
mod scheduling;
mod write;
mod writer;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::Dates;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Applied, Checkpoint, DocumentKey, Error, IdempotencyClaim, IfVersion, KeyClaimed, NewAct, OnConflict,
    Order, Refusal, ScheduleOrder, Submitted,
};
use tokio::sync::{mpsc, oneshot};

use crate::kv::Slice;
use crate::place::{JobKey, JobTag, ScheduleTag};
pub(crate) use audit::Trail;
pub(crate) use documents::Put;
pub(crate) use group::{Group, Pointer};
pub(crate) use known::Known;
pub(crate) use scheduling::{Edits, decode_calendar, decode_holder};
pub(crate) use writer::{Disk, Writer};

/// Calls that may wait for the commit thread; more wait at the door.
pub(crate) const QUEUE_COUNT_MAX: usize = 1024;
/// A group takes in no further request beyond these. Not so many that all who wait share one group: then nobody
/// would have work for the thread while the answers are looked at.
const GROUP_JOBS_COUNT_MAX: usize = 4_096;
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Groups handed over to be written: one at a time is, and the next is there when it is done.
const WRITING_COUNT_MAX: usize = 2;
/// A group of fewer waits for those before it to be written, and takes in who came meanwhile: the fewer groups, the
/// fewer syncs. So few in a debug build that tests meet groups that lie ready behind others.
const GROUP_JOBS_COUNT_MIN: usize = if cfg!(debug_assertions) { 2 } else { 512 };
/// A group of no more than these is written by the commit thread itself: judging the next one beside it would take less
/// than having another thread wake up, and then this one. So few in a debug build that tests meet both.
const WRITTEN_HERE_JOBS_COUNT_MAX: usize = if cfg!(debug_assertions) { 1 } else { 64 };
const READERS_POLL: Duration = Duration::from_millis(1);
/// A caller that never comes back for its read must not keep the store from closing.
const READERS_POLLS_MAX: usize = 5_000;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;
pub(crate) type Judgements = Vec<Result<Applied, Refusal>>;

/// A job to be taken in, encoded by the caller so that the commit thread need not.
pub(crate) struct Arrival {
    pub(crate) key: JobKey,
    pub(crate) job: tidewheel_core::job::Job,
    pub(crate) record: Slice,
    pub(crate) claim: Option<IdempotencyClaim>,
    /// Nobody has seen its id before.
    pub(crate) fresh: bool,
}

pub(crate) enum Request {
    Submit { now: Timestamp, arrivals: Vec<Arrival>, on_conflict: OnConflict, reply: Reply<Vec<Submitted>> },
    Apply { now: Timestamp, epoch: Option<u64>, orders: Vec<Order>, reply: Reply<Judgements> },
    OpenEpoch { reply: Reply<u64> },
    SaveCheckpoints { checkpoints: Vec<Checkpoint>, reply: Reply<()> },
    EditSchedules { now: Timestamp, orders: Vec<ScheduleOrder>, reply: Reply<Edits> },
    PutCalendar { tenant: Tenant, name: Arc<str>, dates: Option<Dates>, reply: Reply<()> },
    PutDocument { key: DocumentKey, bytes: Option<Bytes>, if_version: IfVersion, reply: Reply<Put> },
    ClaimKey { now: Timestamp, tenant: Tenant, claim: IdempotencyClaim, reply: Reply<KeyClaimed> },
    NoteZones { identity: Option<Arc<str>>, reply: Reply<()> },
    AppendActs { now: Timestamp, acts: Vec<NewAct>, reply: Reply<()> },
    DropHistory { now: Timestamp, before: Timestamp, reply: Reply<u64> },
    DropAudit { before: Timestamp, reply: Reply<()> },
    Close { reply: Reply<()> },
}

impl Request {
    /// The time it goes by, if it changes anything at one.
    const fn now(&self) -> Option<Timestamp> {
        match self {
            Self::Submit { now, .. }
            | Self::Apply { now, .. }
            | Self::EditSchedules { now, .. }
            | Self::ClaimKey { now, .. }
            | Self::AppendActs { now, .. }
            | Self::DropHistory { now, .. } => Some(*now),
            Self::OpenEpoch { .. }
            | Self::SaveCheckpoints { .. }
            | Self::PutCalendar { .. }
            | Self::PutDocument { .. }
            | Self::NoteZones { .. }
            | Self::DropAudit { .. }
            | Self::Close { .. } => None,
        }
    }
}

/// An answer that waits for the commit.
enum Answer {
    Submitted(Reply<Vec<Submitted>>, Vec<Submitted>),
    Applied(Reply<Judgements>, Judgements),
    Edited(Reply<Edits>, Edits),
    Epoch(Reply<u64>, u64),
    KeyClaimed(Reply<KeyClaimed>, KeyClaimed),
    Put(Reply<Put>, Put),
    Done(Reply<()>),
}

impl Answer {
    /// Nobody may be listening any more; what was written stays written.
    fn give(self, outcome: Result<(), Error>) {
        match self {
            Self::Submitted(reply, answer) => drop(reply.send(outcome.map(|()| answer))),
            Self::Applied(reply, answer) => drop(reply.send(outcome.map(|()| answer))),
            Self::Edited(reply, answer) => drop(reply.send(outcome.map(|()| answer))),
            Self::Epoch(reply, answer) => drop(reply.send(outcome.map(|()| answer))),
            Self::KeyClaimed(reply, answer) => drop(reply.send(outcome.map(|()| answer))),
            Self::Put(reply, answer) => drop(reply.send(outcome.map(|()| answer))),
            Self::Done(reply) => drop(reply.send(outcome)),
        }
    }
}

pub(crate) struct Committer {
    pub(crate) disk: Disk,
    pub(crate) writer: Writer,
    /// The groups being written, oldest first.
    pub(crate) writing: VecDeque<Group>,
    pub(crate) epoch: u64,
    /// The last groups, emptied: their room is worth keeping.
    pub(crate) spare: Vec<Group>,
    /// Where keys are put together.
    pub(crate) scratch: Vec<u8>,
    /// The number of the next record in `claims`.
    pub(crate) next_claim: u64,
    /// Attempts still under way, by record in `claims`.
    pub(crate) claims: FxHashMap<u64, usize>,
    /// Jobs that are tried again at the very instant in their id, as `meta` has them.
    pub(crate) retrying_at_home: FxHashSet<JobTag>,
    /// Schedules with an occurrence that waits for the end of another, as `meta` has them.
    pub(crate) holding: FxHashSet<ScheduleTag>,
    /// The number of the next entry in a ledger.
    pub(crate) next_entry: u64,
    /// The number of the newest change of a document.
    pub(crate) document_change: u64,
    /// Where the chains of the audit trail end.
    pub(crate) trail: Trail,
    /// Schedules read or written lately.
    pub(crate) known: Known,
    /// Calendars read lately.
    pub(crate) calendars: FxHashMap<(Tenant, Arc<str>), Arc<Dates>>,
}

impl Committer {
    /// Serves requests until told to close, or until nobody can send any.
    pub(crate) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut waiting = None;
        while let Some(request) = waiting.take().or_else(|| requests.blocking_recv()) {
            match request {
                Request::Close { reply } => {
                    // Those who still wait are told by the loss of their reply.
                    drop(requests);
                    let outcome = self.close();
                    drop(reply.send(outcome));
                    return;
                }
                Request::DropHistory { now, before, reply } => {
                    self.settle();
                    let outcome = self.drop_history(now, before);
                    drop(reply.send(outcome));
                }
                Request::DropAudit { before, reply } => {
                    self.settle();
                    let outcome = self.drop_audit(before);
                    drop(reply.send(outcome));
                }
                first @ (Request::Submit { .. }
                | Request::Apply { .. }
                | Request::OpenEpoch { .. }
                | Request::SaveCheckpoints { .. }
                | Request::EditSchedules { .. }
                | Request::PutCalendar { .. }
                | Request::PutDocument { .. }
                | Request::ClaimKey { .. }
                | Request::AppendActs { .. }
                | Request::NoteZones { .. }) => waiting = self.serve_group(first, &mut requests),
            }
        }
    }

    /// Serves `first` and all that wait behind it, up to one that cannot share a commit, which is handed back.
    fn serve_group(&mut self, first: Request, requests: &mut mpsc::Receiver<Request>) -> Option<Request> {
        let mut group = self.spare.pop().unwrap_or_default();
        let mut next = Some(first);
        while let Some(request) = next.take() {
            if matches!(
                request,
                Request::Close { .. } | Request::DropHistory { .. } | Request::DropAudit { .. }
            ) {
                next = Some(request);
                break;
            }
            self.judge(&mut group, request);
            if group.jobs_count() < GROUP_JOBS_COUNT_MAX && group.bytes < GROUP_BYTES_MAX {
                next = requests.try_recv().ok();
            }
            if next.is_none() && !self.writing.is_empty() && group.jobs_count() < GROUP_JOBS_COUNT_MIN {
                self.settle();
                next = requests.try_recv().ok();
            }
        }
        self.write_group(group);
        next
    }

    /// Waits until the groups that are being written are written. What they have touched must not be read before.
    fn settle(&mut self) {
        self.settle_down_to(0);
    }

    /// Waits until no more groups than these are being written.
    fn settle_down_to(&mut self, count: usize) {
        while self.writing.len() > count
            && let Some(mut written) = self.writing.pop_front()
        {
            if !self.writer.wait() {
                self.disk.shared.poison("the writing thread has stopped");
            }
            written.clear();
            self.spare.push(written);
        }
    }

    /// Waits for them if one has touched what `is_touched` asks for.
    fn settle_if(&mut self, is_touched: impl FnMut(&Group) -> bool) {
        if self.writing.iter().any(is_touched) {
            self.settle();
        }
    }

    fn close(mut self) -> Result<(), Error> {
        self.settle();
        let Self { disk: Disk { shared, kv, .. }, writer, .. } = self;
        drop(writer);
        let poisoned = shared.poisoned();
        shared.close();
        let outcome = if poisoned.is_some() { Ok(()) } else { kv.close() };
        // Readers that are under way still use the engine; the folder is free only after the last of them.
        for _ in 0..READERS_POLLS_MAX {
            if !shared.view.is_read() {
                break;
            }
            std::thread::park_timeout(READERS_POLL);
        }
        drop(kv);
        outcome.map_err(|error| Error::Poisoned(error.to_string()))
    }
}
