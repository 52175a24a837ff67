//! What the store keeps in memory beside the engine, shared by the commit thread and the readers: the attempts
//! under way, and jobs that were just read and are about to be claimed.
//!
//! The engine's snapshot and this table cannot be read in one instant, and need not be. A reader registers here
//! *before* it takes its snapshot; from then on an attempt that ends, or a record that changes, leaves a trace
//! until the reader is done. So a reader whose snapshot still shows a job waiting can always tell that the job
//! was running, or that what it read is stale. An entry holds for a stored record only if its attempt is newer
//! than the record's.

use std::collections::{BTreeMap, VecDeque, hash_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tidewheel_core::glance::{self, HANDFUL};
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use xxhash_rust::xxh3::xxh3_64;

use crate::place::{JobTag, ScheduleKey, ScheduleTag};

/// Jobs kept after a due read, so that claiming them reads nothing; by [`Job::size_bytes`].
const RECENT_BYTES_MAX: usize = 48 * 1024 * 1024;

/// Payloads kept of attempts under way, so that their end reads nothing; beyond it they are read from disk again.
/// Hardly any in a debug build, so that tests meet both.
const PAYLOADS_BYTES_MAX: usize = if cfg!(debug_assertions) { 64 } else { 64 * 1024 * 1024 };

/// An attempt under way.
#[derive(Debug, Clone)]
pub(crate) struct UnderWay {
    job: Arc<Job>,
    /// Its record in `claims`.
    pub(crate) claim: u64,
    /// Whether `leases` has a record of it.
    pub(crate) has_lease: bool,
    payload: Payload,
}

/// Where the payload of an attempt under way is.
#[derive(Debug, Clone, Copy)]
enum Payload {
    /// With the job; so large.
    Kept(usize),
    /// In the record on disk alone; this is its digest.
    LeftOut(u64),
}

impl UnderWay {
    pub(crate) fn new(job: Arc<Job>, claim: u64, has_lease: bool) -> Self {
        let payload = Payload::Kept(job.spec.payload.len());
        Self { job, claim, has_lease, payload }
    }

    /// The same, to be kept without its payload.
    pub(crate) fn without_payload(self) -> Self {
        match self.payload {
            Payload::LeftOut(_) | Payload::Kept(0) => self,
            Payload::Kept(_) => Self {
                job: Arc::new(self.job.without_payload()),
                payload: Payload::LeftOut(xxh3_64(&self.job.spec.payload)),
                ..self
            },
        }
    }

    /// What its payload takes up here.
    const fn payload_bytes(&self) -> usize {
        match self.payload {
            Payload::Kept(bytes) => bytes,
            Payload::LeftOut(_) => 0,
        }
    }

    /// Whose it is.
    pub(crate) fn tag(&self) -> JobTag {
        JobTag::of(&self.job)
    }

    /// Which attempt it is.
    pub(crate) fn attempt(&self) -> u32 {
        self.job.status.attempt
    }

    /// The job as it is, if nothing is left out.
    pub(crate) fn whole(&self) -> Option<&Arc<Job>> {
        match self.payload {
            Payload::Kept(_) => Some(&self.job),
            Payload::LeftOut(_) => None,
        }
    }

    /// The job as it is; its record on disk has what may be left out here. Nothing if that record is of a time when the job
    /// had another payload.
    pub(crate) fn completed(&self, stored: &Job) -> Option<Arc<Job>> {
        match self.payload {
            Payload::Kept(_) => Some(Arc::clone(&self.job)),
            Payload::LeftOut(digest) if digest == xxh3_64(&stored.spec.payload) => {
                let mut job = Job::clone(&self.job);
                Arc::make_mut(&mut job.spec).payload = stored.spec.payload.clone();
                Some(Arc::new(job))
            }
            Payload::LeftOut(_) => None,
        }
    }
}

/// What one commit changes here.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Attempts that are under way now.
    pub(crate) running: Vec<(JobTag, UnderWay)>,
    /// Attempts that ended, and their jobs changed with it.
    pub(crate) ended: Vec<JobTag>,
    /// Other jobs whose stored record changed. Of new ones nobody has read anything.
    pub(crate) changed: Vec<JobTag>,
}

#[derive(Debug, Default)]
pub(crate) struct View(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Counts commits.
    version: u64,
    /// Readers under way, by the version they began at.
    readers: BTreeMap<u64, usize>,
    jobs: FxHashMap<JobTag, Entry>,
    ended: VecDeque<(u64, JobTag)>,
    changed: FxHashMap<JobTag, u64>,
    changed_order: VecDeque<(u64, JobTag)>,
    /// What is read now belongs to this generation of jobs that were just read.
    generation: u64,
    /// The bytes of this generation, and of the one before it.
    recent_bytes: [usize; 2],
    /// Of attempts under way.
    payloads_bytes: usize,
}

#[derive(Debug)]
enum Entry {
    /// Waits, and was read just now.
    Recent(Recent),
    /// Is running; or was, and is only a trace for readers older than this version.
    UnderWay(UnderWay, Option<u64>),
}

/// A job that was read just now.
#[derive(Debug)]
struct Recent {
    /// Nothing once the commit thread has it.
    job: Option<Arc<Job>>,
    generation: u64,
    /// [`Job::size_bytes`], which would have to look all over the job.
    bytes: usize,
}

/// A reader's registration; ends when dropped.
pub(crate) struct Reading<'a> {
    view: &'a View,
    version: u64,
}

impl View {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock leaves the tables half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a reader. Take the snapshot after this.
    pub(crate) fn begin(&self) -> Reading<'_> {
        Reading { view: self, version: self.register() }
    }

    /// Registers a reader by hand; answers the version it begins at, which [`Self::deregister`] wants back.
    pub(crate) fn register(&self) -> u64 {
        let mut inner = self.lock();
        let version = inner.version;
        *inner.readers.entry(version).or_default() += 1;
        version
    }

    pub(crate) fn deregister(&self, version: u64) {
        let mut inner = self.lock();
        if let Some(count) = inner.readers.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                inner.readers.remove(&version);
            }
        }
    }

    pub(crate) fn publish(&self, published: Published) {
        let mut inner = self.lock();
        inner.version += 1;
        let version = inner.version;
        let is_read = !inner.readers.is_empty();
        for tag in published.changed {
            inner.forget_recent(tag);
            if is_read {
                inner.changed.insert(tag, version);
                inner.changed_order.push_back((version, tag));
            }
        }
        for handful in published.ended.chunks(HANDFUL) {
            glance::over(handful.iter().map(|tag| inner.glance(tag)));
            for tag in handful {
                inner.end_attempt(*tag, version, is_read);
            }
        }
        let mut running = published.running.into_iter();
        while running.len() > 0 {
            glance::over(running.as_slice().iter().take(HANDFUL).map(|(tag, _)| inner.glance(tag)));
            for (tag, under_way) in running.by_ref().take(HANDFUL) {
                inner.begin_attempt(tag, under_way);
            }
        }
        inner.sweep();
    }

    /// The attempts under way, without their payloads.
    pub(crate) fn running(&self) -> Vec<Job> {
        let inner = self.lock();
        let mut jobs: Vec<_> = inner
            .jobs
            .values()
            .filter_map(|entry| match entry {
                Entry::UnderWay(under_way, None) => Some(under_way.job.without_payload()),
                Entry::UnderWay(_, Some(_)) | Entry::Recent(..) => None,
            })
            .collect();
        drop(inner);
        jobs.sort_unstable_by(|a, b| (a.id, &a.tenant).cmp(&(b.id, &b.tenant)));
        jobs
    }

    /// The jobs of a tenant with an attempt under way, or with one that ended while somebody reads.
    pub(crate) fn attempts_of(&self, tenant: &Tenant) -> Vec<JobId> {
        let inner = self.lock();
        let of_tenant = |entry: &Entry| match entry {
            Entry::UnderWay(under_way, _) if under_way.job.tenant == *tenant => Some(under_way.job.id),
            Entry::UnderWay(..) | Entry::Recent(..) => None,
        };
        inner.jobs.values().filter_map(of_tenant).collect()
    }

    /// The jobs of schedules whose first attempt is under way.
    pub(crate) fn first_attempts(&self) -> FxHashMap<ScheduleTag, Vec<JobId>> {
        let inner = self.lock();
        let mut found: FxHashMap<_, Vec<_>> = FxHashMap::default();
        let first = inner.jobs.values().filter_map(|entry| match entry {
            Entry::UnderWay(under_way, None) if under_way.attempt() == 1 => {
                Some((ScheduleTag::of(&under_way.job)?, under_way.job.id))
            }
            Entry::UnderWay(..) | Entry::Recent(..) => None,
        });
        for (key, id) in first {
            found.entry(key).or_default().push(id);
        }
        found
    }

    /// Whether a reader is under way.
    pub(crate) fn is_read(&self) -> bool {
        !self.lock().readers.is_empty()
    }

    /// For the commit thread: calls `found` with what is known of each job without reading from disk. What was read just
    /// now is handed over, not shared: to count one more holder of what another thread has made takes longer than to find it.
    pub(crate) fn look_up<T>(&self, jobs: Vec<(JobTag, T)>, mut found: impl FnMut(JobTag, T, Known<'_>)) {
        let mut inner = self.lock();
        let mut jobs = jobs.into_iter();
        while jobs.len() > 0 {
            glance::over(jobs.as_slice().iter().take(HANDFUL).map(|(tag, _)| inner.glance(tag)));
            for (tag, whose) in jobs.by_ref().take(HANDFUL) {
                let known = match inner.jobs.get_mut(&tag) {
                    Some(Entry::UnderWay(under_way, None)) => Known::UnderWay(under_way),
                    Some(Entry::Recent(recent)) => recent.job.take().map_or(Known::Nothing, Known::Waiting),
                    Some(Entry::UnderWay(_, Some(_))) | None => Known::Nothing,
                };
                found(tag, whose, known);
            }
        }
    }

    /// The schedules that waiting jobs came from, of those that were read just now.
    pub(crate) fn schedules_of(&self, tags: impl Iterator<Item = JobTag>) -> Vec<ScheduleKey> {
        let inner = self.lock();
        let schedule_of = |tag: JobTag| {
            let Some(Entry::Recent(Recent { job: Some(job), .. })) = inner.jobs.get(&tag) else {
                return None;
            };
            ScheduleKey::of(job)
        };
        tags.filter_map(schedule_of).collect()
    }
}

/// What the view knows of a job.
pub(crate) enum Known<'a> {
    /// It is running.
    UnderWay(&'a UnderWay),
    /// It waits, and was read just now.
    Waiting(Arc<Job>),
    /// Nothing; look on disk.
    Nothing,
}

impl Reading<'_> {
    /// The attempt under way that is newer than a stored record with `attempt` attempts.
    pub(crate) fn under_way(&self, tag: JobTag, attempt: u32) -> Option<UnderWay> {
        self.view.lock().under_way(tag, attempt).cloned()
    }

    /// Whether there is such an attempt.
    pub(crate) fn is_under_way(&self, tag: JobTag, attempt: u32) -> bool {
        self.view.lock().under_way(tag, attempt).is_some()
    }

    /// Takes out of what was read as waiting the attempts that are under way; keeps the rest for whoever claims
    /// them, except what changed meanwhile.
    pub(crate) fn keep_waiting(&self, jobs: &mut Vec<Arc<Job>>) {
        let mut inner = self.view.lock();
        // Nearly always nothing has changed meanwhile, and then it need not be looked for.
        let is_still = inner.changed.is_empty();
        jobs.retain(|job| {
            let tag = JobTag::of(job);
            let is_fresh = is_still || inner.changed.get(&tag).is_none_or(|changed| *changed <= self.version);
            inner.remember(tag, job, is_fresh)
        });
        inner.trim_recent();
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.view.deregister(self.version);
    }
}

impl Inner {
    /// The attempt that is newer than a record with `attempt` attempts.
    fn under_way(&self, tag: JobTag, attempt: u32) -> Option<&UnderWay> {
        match self.jobs.get(&tag)? {
            Entry::UnderWay(under_way, _) => Some(under_way).filter(|it| it.attempt() > attempt),
            Entry::Recent(..) => None,
        }
    }

    /// A look at a job, if it is known.
    fn glance(&self, tag: &JobTag) -> bool {
        self.jobs.get(tag).is_some_and(|entry| match entry {
            Entry::Recent(recent) => recent.job.as_ref().is_some_and(glance::job),
            Entry::UnderWay(under_way, _) => glance::job(&under_way.job),
        })
    }

    /// Forgets an attempt that ended with that commit, or leaves the trace of it that readers need.
    fn end_attempt(&mut self, tag: JobTag, version: u64, is_read: bool) {
        if !is_read {
            self.remove(tag);
        } else if let Some(Entry::UnderWay(_, ended_at)) = self.jobs.get_mut(&tag) {
            *ended_at = Some(version);
            self.ended.push_back((version, tag));
        }
    }

    /// Takes note of an attempt; of its payload only if there is room.
    fn begin_attempt(&mut self, tag: JobTag, mut under_way: UnderWay) {
        if self.payloads_bytes + under_way.payload_bytes() > PAYLOADS_BYTES_MAX {
            // It may be there already, with its payload.
            self.remove(tag);
            if self.payloads_bytes + under_way.payload_bytes() > PAYLOADS_BYTES_MAX {
                under_way = under_way.without_payload();
            }
        }
        self.payloads_bytes += under_way.payload_bytes();
        let before = self.jobs.insert(tag, Entry::UnderWay(under_way, None));
        self.let_go(before);
    }

    fn remove(&mut self, tag: JobTag) {
        let gone = self.jobs.remove(&tag);
        self.let_go(gone);
    }

    /// What is no longer kept takes no room.
    fn let_go(&mut self, gone: Option<Entry>) {
        match gone {
            Some(Entry::UnderWay(gone, _)) => self.payloads_bytes -= gone.payload_bytes(),
            Some(Entry::Recent(gone)) => self.one_less_recent(&gone),
            None => {}
        }
    }

    /// Takes note of a job that was read as waiting, if what was read is fresh. Says whether it waits.
    fn remember(&mut self, tag: JobTag, job: &Arc<Job>, is_fresh: bool) -> bool {
        let recent =
            || Recent { job: Some(Arc::clone(job)), generation: self.generation, bytes: job.size_bytes() };
        let bytes = match self.jobs.entry(tag) {
            hash_map::Entry::Vacant(place) => {
                if !is_fresh {
                    return true;
                }
                let recent = recent();
                let bytes = recent.bytes;
                place.insert(Entry::Recent(recent));
                bytes
            }
            hash_map::Entry::Occupied(mut place) => match place.get_mut() {
                Entry::UnderWay(under_way, _) => return under_way.attempt() <= job.status.attempt,
                Entry::Recent(old) => {
                    if !is_fresh {
                        return true;
                    }
                    let recent = recent();
                    let bytes = recent.bytes;
                    let old = std::mem::replace(old, recent);
                    self.one_less_recent(&old);
                    bytes
                }
            },
        };
        let [now, _] = &mut self.recent_bytes;
        *now += bytes;
        true
    }

    /// Begins a new generation when this one is large, and forgets what is left of the one before.
    fn trim_recent(&mut self) {
        let [now, before] = self.recent_bytes;
        if now < RECENT_BYTES_MAX / 2 {
            return;
        }
        if before > 0 {
            let generation = self.generation;
            self.jobs
                .retain(|_, entry| !matches!(entry, Entry::Recent(recent) if recent.generation < generation));
        }
        self.generation += 1;
        self.recent_bytes = [0, now];
    }

    fn forget_recent(&mut self, tag: JobTag) {
        if let hash_map::Entry::Occupied(place) = self.jobs.entry(tag)
            && let Entry::Recent(..) = place.get()
        {
            let gone = place.remove();
            self.let_go(Some(gone));
        }
    }

    fn one_less_recent(&mut self, recent: &Recent) {
        let [now, before] = &mut self.recent_bytes;
        *(if recent.generation == self.generation { now } else { before }) -= recent.bytes;
    }

    /// Removes traces no reader needs any more.
    fn sweep(&mut self) {
        let oldest = self.readers.first_key_value().map_or(u64::MAX, |(version, _)| *version);
        while self.ended.front().is_some_and(|(version, _)| *version <= oldest) {
            let Some((version, tag)) = self.ended.pop_front() else { break };
            if matches!(self.jobs.get(&tag), Some(Entry::UnderWay(_, Some(ended_at))) if *ended_at == version)
            {
                self.remove(tag);
            }
        }
        while self.changed_order.front().is_some_and(|(version, _)| *version <= oldest) {
            let Some((version, tag)) = self.changed_order.pop_front() else { break };
            if self.changed.get(&tag) == Some(&version) {
                self.changed.remove(&tag);
            }
        }
    }
}

#[cfg(test)]
mod tests;
