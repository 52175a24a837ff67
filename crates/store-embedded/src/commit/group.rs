//! A group: what the requests of one commit have done so far, job by job and key by key.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{ScheduleId, Upcoming};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, HeldKey, IdempotencyClaim, KeyUse, NewAct};

use super::documents::DocumentChanges;
use super::index::Index;
use super::plans::Plans;
use super::{Answer, Reply};
use crate::kv::{Day, Slice};
use crate::place::{JobKey, JobTag, LentKey, Place, ScheduleTag};
use crate::view::{UnderWay, View};
use crate::{lean, record};

/// What an idempotency key was used for, as it is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pointer {
    used_for: Use,
    fingerprint: [u8; 16],
    until_ms: i64,
}

/// [`KeyUse`] on disk: the order of the variants counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Use {
    Job([u8; 16]),
    NewSchedule([u8; 16]),
    Schedule([u8; 16]),
    Call,
}

impl Pointer {
    pub(crate) fn new(used_for: KeyUse, fingerprint: [u8; 16], until: Timestamp) -> Self {
        let used_for = match used_for {
            KeyUse::Job(id) => Use::Job(*id.as_bytes()),
            KeyUse::NewSchedule(id) => Use::NewSchedule(*id.as_bytes()),
            KeyUse::Schedule(id) => Use::Schedule(*id.as_bytes()),
            KeyUse::Call => Use::Call,
        };
        Self { used_for, fingerprint, until_ms: until.as_ms() }
    }

    pub(crate) fn held(&self) -> HeldKey {
        let used_for = match self.used_for {
            Use::Job(id) => KeyUse::Job(JobId::from_bytes(id)),
            Use::NewSchedule(id) => KeyUse::NewSchedule(ScheduleId::from_bytes(id)),
            Use::Schedule(id) => KeyUse::Schedule(ScheduleId::from_bytes(id)),
            Use::Call => KeyUse::Call,
        };
        HeldKey { used_for, fingerprint: self.fingerprint }
    }

    pub(crate) fn until(&self) -> Timestamp {
        Timestamp::from_ms(self.until_ms)
    }
}

/// Where an occurrence stands and lies that nothing has happened to.
const UPCOMING: (State, Place) = (State::Scheduled, Place::Home);

/// One job in the group.
pub(super) struct Slot {
    /// Which one it is, where there is no job to tell it.
    absent: Option<Box<JobKey>>,
    /// Where it stood and lay before the group.
    pub(super) start: Option<(State, Place)>,
    /// Its attempt before the group: number, record in `claims`, whether it has one in `leases`.
    pub(super) attempt: Option<(u32, u64, bool)>,
    /// As it is now; `None` when there is no such job, or it is an upcoming one.
    pub(super) job: Option<Arc<Job>>,
    /// The occurrence that was stored by the group and that nobody has asked for since.
    upcoming: Option<Upcoming>,
    /// What its record must become, if it changes: a place and the bytes, or gone.
    pub(super) rest: Option<Option<(Place, Slice)>>,
    /// Whether that record is a lean one.
    pub(super) is_lean: bool,
    /// Its record in full, for one that stays as it was but may be lean on disk.
    pub(super) in_full: Option<Box<Slice>>,
    /// The attempt under way has a lease or progress its claim does not know of.
    pub(super) lease_changed: bool,
}

impl Slot {
    pub(super) fn absent(key: JobKey) -> Self {
        Self { absent: Some(Box::new(key)), ..Self::empty() }
    }

    /// Of a job that is about to be put there.
    pub(super) fn empty() -> Self {
        Self {
            absent: None,
            start: None,
            attempt: None,
            job: None,
            upcoming: None,
            rest: None,
            is_lean: false,
            in_full: None,
            lease_changed: false,
        }
    }

    /// A job as it is, with the attempt that is under way.
    pub(super) fn stored(job: Arc<Job>, under_way: Option<&UnderWay>) -> Self {
        let start = Some((job.status.state, Place::of(&job)));
        let attempt = under_way.map(|it| (it.attempt(), it.claim, it.has_lease));
        Self { start, attempt, job: Some(job), ..Self::empty() }
    }

    /// Which job it is; of one that was there and is not any more, too.
    pub(super) fn key(&self) -> Option<LentKey<'_>> {
        let job = self.job.as_deref().map(LentKey::of);
        let job = job.or_else(|| self.upcoming.as_ref().and_then(LentKey::of_upcoming));
        job.or_else(|| self.absent.as_ref().map(|key| key.lent()))
    }

    /// Where it stands and lies now; `None` when there is no such job.
    pub(super) fn end(&self) -> Option<(State, Place)> {
        let job = self.job.as_ref().map(|job| (job.status.state, Place::of(job)));
        job.or_else(|| self.upcoming.as_ref().map(|_| UPCOMING))
    }
}

#[derive(Default)]
pub(crate) struct Group {
    pub(super) slots: Vec<Slot>,
    index: Index,
    pub(super) pointers: FxHashMap<(Tenant, Arc<str>), PointerSlot>,
    /// Keys in the order they were set, to be written.
    pub(super) pointers_set: Vec<(Tenant, Arc<str>)>,
    /// Keys that run out on another day than they did, and when that was.
    moved_keys: Vec<((Tenant, Arc<str>), Day)>,
    pub(super) plans: Plans,
    /// First attempts under way before the group, by schedule; those that are in a slot by now may be missing.
    first_attempts: Option<FxHashMap<ScheduleTag, Vec<JobId>>>,
    pub(super) documents: DocumentChanges,
    /// What was asked for, for the audit trail.
    pub(super) acts: Vec<NewAct>,
    /// The newest time any of its requests goes by.
    pub(super) now: Timestamp,
    /// Records of `meta`; the last one of a key counts.
    pub(super) meta: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) answers: Vec<Answer>,
    /// About what will be written.
    pub(super) bytes: usize,
    /// Where records are put together.
    scratch: Vec<u8>,
}

/// One idempotency key in the group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PointerSlot {
    pub(super) pointer: Option<Pointer>,
    pub(super) is_set: bool,
}

impl Group {
    pub(super) fn jobs_count(&self) -> usize {
        self.slots.len()
    }

    /// Answers when the group is committed; one that failed is answered at once.
    pub(super) fn answer<T>(
        &mut self,
        reply: Reply<T>,
        outcome: Result<T, Error>,
        answer: impl FnOnce(Reply<T>, T) -> Answer,
    ) {
        match outcome {
            Ok(judged) => self.answers.push(answer(reply, judged)),
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    pub(super) fn knows(&self, tag: JobTag) -> bool {
        self.index.find(tag).is_some()
    }

    /// The slot of a job the group knows.
    pub(super) fn find(&mut self, tag: JobTag) -> Option<usize> {
        self.index.find(tag).inspect(|at| self.make_whole(*at))
    }

    /// The slot of a job the group may know already.
    pub(super) fn find_or_add(&mut self, tag: JobTag, slot: impl FnOnce() -> Slot) -> usize {
        let (at, is_new) = self.index.find_or_add(tag);
        if is_new {
            self.slots.push(slot());
        } else {
            self.make_whole(at);
        }
        at
    }

    /// Somebody asks for this job: if it is an upcoming occurrence, it is made.
    fn make_whole(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at)
            && let Some(upcoming) = slot.upcoming.take()
        {
            slot.job = upcoming.job().map(Arc::new);
        }
    }

    /// Makes the job of a slot what it is now, in the place of what it was if nobody else has that.
    pub(super) fn put(&mut self, at: usize, next: Job) -> Arc<Job> {
        let before = self.note_next(at, &next, None);
        let next = match before {
            Some(mut job) => {
                if let Some(place) = Arc::get_mut(&mut job) {
                    *place = next;
                    job
                } else {
                    Arc::new(next)
                }
            }
            None => Arc::new(next),
        };
        if let Some(slot) = self.slots.get_mut(at) {
            slot.job = Some(Arc::clone(&next));
        }
        next
    }

    /// Makes the job of a slot what it is now, with that lean record, if there is one.
    pub(super) fn put_as(&mut self, at: usize, next: Arc<Job>, lean: Option<Slice>) {
        self.note_next(at, &next, lean);
        if let Some(slot) = self.slots.get_mut(at) {
            slot.job = Some(next);
        }
    }

    /// Takes in an occurrence that was not there before, whose record is lean.
    pub(super) fn put_upcoming(&mut self, upcoming: Upcoming) {
        let schedule = upcoming.schedule();
        let Some(next) = schedule.next else { return };
        let record = lean::encode_upcoming(schedule, &next, upcoming.created_at());
        self.bytes += record.len() + 128;
        let tag = JobTag::new(&schedule.tenant, next.job_id);
        let is_asked_for = self.knows(tag);
        let at = self.find_or_add(tag, Slot::empty);
        if let Some(slot) = self.slots.get_mut(at) {
            slot.rest = Some(Some((UPCOMING.1, record)));
            slot.is_lean = true;
            slot.lease_changed = false;
            slot.job = None;
            slot.upcoming = Some(upcoming);
        }
        // An order behind the one being judged is for it.
        if is_asked_for {
            self.make_whole(at);
        }
    }

    /// Notes what the record of a job becomes; takes the job out as it was.
    fn note_next(&mut self, at: usize, next: &Job, lean: Option<Slice>) -> Option<Arc<Job>> {
        let slot = self.slots.get_mut(at)?;
        let before = slot.job.take();
        if next.status.state == State::Running {
            slot.lease_changed = before.as_ref().is_some_and(|job| job.status.state == State::Running);
            self.bytes += 96;
            // A claim leaves the record as it was, unless it found that the job makes up for a missed one.
            if let Some(before) = before.as_ref().filter(|it| it.spec.occurrence != next.spec.occurrence) {
                let waited = Job { spec: Arc::clone(&next.spec), ..Job::clone(before) };
                let record = record::encode_slice(&waited, &mut self.scratch);
                self.bytes += record.len() + 128;
                slot.rest = Some(Some((Place::of(&waited), record)));
                slot.is_lean = false;
            }
        } else {
            slot.is_lean = lean.is_some();
            let record = lean.unwrap_or_else(|| record::encode_slice(next, &mut self.scratch));
            self.bytes += record.len() + 128;
            slot.rest = Some(Some((Place::of(next), record)));
            slot.lease_changed = false;
        }
        before
    }

    /// What a key that the group knows was used for, if it is not free.
    pub(super) fn held(&self, now: Timestamp, name: &(Tenant, Arc<str>)) -> Option<HeldKey> {
        let pointer = self.pointers.get(name)?.pointer.filter(|pointer| now < pointer.until())?;
        let held = pointer.held();
        let is_free = match held.used_for {
            KeyUse::NewSchedule(id) => self.plans.is_gone(ScheduleTag::new(&name.0, id)),
            KeyUse::Job(_) | KeyUse::Schedule(_) | KeyUse::Call => false,
        };
        (!is_free).then_some(held)
    }

    /// Takes a key that is free; says what it was before.
    pub(super) fn take_key(
        &mut self,
        tenant: Tenant,
        claim: IdempotencyClaim,
        used_for: KeyUse,
    ) -> ((Tenant, Arc<str>), PointerSlot) {
        let IdempotencyClaim { key, fingerprint, until } = claim;
        let name = (tenant, key);
        let pointer = Some(Pointer::new(used_for, fingerprint, until));
        let before = self.pointers.insert(name.clone(), PointerSlot { pointer, is_set: true });
        let before = before.unwrap_or_default();
        // The key of a schedule that was deleted may still have time left on another day.
        if let Some(before) = before.pointer {
            self.moved_keys.push((name.clone(), Day::of(before.until())));
        }
        self.pointers_set.push(name.clone());
        self.bytes += name.1.len() + 64;
        (name, before)
    }

    /// The keys that ran out on other days, each once.
    pub(super) fn take_moved_keys(&mut self) -> Vec<((Tenant, Arc<str>), Day)> {
        let mut moved = std::mem::take(&mut self.moved_keys);
        moved.sort();
        moved.dedup();
        moved
    }

    /// Makes room for that many more jobs.
    pub(super) fn reserve(&mut self, count: usize) {
        self.slots.reserve(count);
        self.index.reserve(count);
    }

    /// Forgets everything but the room it took.
    pub(super) fn clear(&mut self) {
        let (mut slots, mut index) = (std::mem::take(&mut self.slots), std::mem::take(&mut self.index));
        slots.clear();
        index.clear();
        self.plans.clear();
        let (plans, scratch) = (std::mem::take(&mut self.plans), std::mem::take(&mut self.scratch));
        *self = Self { slots, index, plans, scratch, ..Self::default() };
    }

    /// Takes the job of a slot out.
    pub(super) fn remove(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.absent = slot.job.take().map(|job| Box::new(JobKey::of(&job))).or(slot.absent.take());
            slot.rest = Some(None);
            slot.is_lean = false;
        }
    }

    /// The attempts under way of a schedule whose records may be lean.
    pub(super) fn first_attempts(&mut self, view: &View, of: ScheduleTag) -> Vec<JobId> {
        let attempts = self.first_attempts.get_or_insert_with(|| view.first_attempts());
        attempts.get(&of).cloned().unwrap_or_default()
    }

    /// Writes in full what leaves it to its schedule what it asks for, where that is not what the schedule has now.
    pub(super) fn spell_out(&mut self) {
        let Self { slots, plans, .. } = self;
        if !plans.has_redefined() {
            return;
        }
        for slot in slots {
            let Some(job) = &slot.job else { continue };
            let Some(schedule) = ScheduleTag::of(job) else { continue };
            let is_still_so = || {
                let now = plans.get(schedule);
                now.is_some_and(|now| lean::is_of(&now.schedule.definition, &job.spec))
            };
            if !plans.is_redefined(schedule) || is_still_so() {
                continue;
            }
            let in_full = || lean::as_it_waited(job).map(|waited| record::encode(&waited).into());
            match &mut slot.rest {
                Some(Some((_, record))) if slot.is_lean => {
                    if let Some(in_full) = in_full() {
                        *record = in_full;
                    }
                }
                None if slot.start.is_some_and(|(_, place)| place == Place::Home) => {
                    slot.in_full = in_full().map(Box::new);
                }
                Some(_) | None => {}
            }
        }
    }
}
