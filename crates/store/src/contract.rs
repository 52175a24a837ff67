//! The contract. Read [`Store`] first.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, Job, Rejection, State};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::schedule::Upcoming;
use tidewheel_core::time::Timestamp;

use crate::{
    Audit, Database, Documents, Error, HeldKey, KeyClaimed, KeyUse, Leases, ListQuery, Page, Schedules,
};

/// What is fixed when a store is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of shards.
    pub shards: u16,
}

/// A job to be taken in.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The job, with its id.
    pub job: Job,
    /// The key it is taken in under, if the caller gave one.
    pub key: Option<IdempotencyClaim>,
    /// The id was made for this call and never sent before, so that no store need look for it.
    pub fresh: bool,
}

/// A caller's idempotency key, per tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyClaim {
    /// The key.
    pub key: Arc<str>,
    /// A digest of the request, to tell a repeat from a different request under the same key.
    pub fingerprint: [u8; 16],
    /// Until when the key is taken.
    pub until: Timestamp,
}

/// What became of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// Taken in, durably.
    New,
    /// The key already points at this job, made by the same request.
    Duplicate(JobId),
    /// The key was used for this, by a different request.
    Conflict(KeyUse),
}

/// What a conflicting key means for the rest of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// The others are taken in.
    KeepOthers,
    /// Nothing of the batch is taken in.
    KeepNone,
}

/// A command for one job.
#[derive(Debug, Clone)]
pub struct Order {
    /// Whose job.
    pub tenant: Tenant,
    /// Which job.
    pub id: JobId,
    /// What to do.
    pub command: Command,
    /// The key it is given under, if the caller gave one. An order that is granted takes its key. Given again
    /// under it, the order is granted and does nothing; the job is answered as it is by then.
    pub key: Option<IdempotencyClaim>,
}

/// A granted order.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The job as it is now (for [`Command::Discard`]: as it was).
    pub job: Arc<Job>,
    /// Whether the order changed it; `false` for a repeat of what was so already.
    pub changed: bool,
    /// The next occurrence of its schedule, which was stored along with it.
    pub next: Option<Upcoming>,
    /// Other jobs that changed along with it, as they are now: earlier runs that were cancelled, one that waited for this to
    /// end, the next occurrence if this one has ended without being claimed.
    pub others: Vec<Arc<Job>>,
}

impl Applied {
    /// An order that did no more than this.
    #[must_use]
    pub const fn alone(job: Arc<Job>, changed: bool) -> Self {
        Self { job, changed, next: None, others: Vec::new() }
    }

    /// All jobs that changed along with it, as they are now.
    #[must_use]
    pub fn beside(&self) -> Vec<Arc<Job>> {
        let next = self.next.as_ref().and_then(Upcoming::job).map(Arc::new);
        next.into_iter().chain(self.others.iter().cloned()).collect()
    }
}

/// Why an order was not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such job of this tenant.
    #[error("there is no such job")]
    NotFound,
    /// The job does not allow it now.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The claim does not carry the epoch under which its shard is leased, or the lease is over
    /// ([`crate::Leases`]).
    #[error("another node has taken over this shard")]
    Fenced,
    /// The order was granted before under its key, and the job is gone by now.
    #[error("this was done before, under the same idempotency key; the job is gone by now")]
    Gone,
    /// The idempotency key was used by a different request.
    #[error("the idempotency key belongs to {0}; use another key for another request")]
    KeyConflict(KeyUse),
    /// The database it is for is away, while others of the batch were answered by theirs. As with [`Error::Unavailable`] it
    /// may have taken effect; repeating it is safe.
    #[error("the database it is in does not answer")]
    Away,
    /// The job, or something else that the order goes by, is stored but cannot be read: its record is damaged. The store's log
    /// says why. Nothing has changed.
    #[error("the job cannot be read")]
    Unreadable,
}

/// A tenant with work in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantDue {
    /// Who.
    pub tenant: Tenant,
    /// When its first job there is due.
    pub first_at: Timestamp,
}

/// Which of one tenant's waiting jobs to read.
#[derive(Debug, Clone)]
pub struct Due {
    /// Jobs in this shard …
    pub shard: Shard,
    /// … due in this bucket …
    pub bucket: Bucket,
    /// … of this tenant …
    pub tenant: Tenant,
    /// … after this position …
    pub after: Option<Position>,
    /// … and not later than this instant;
    pub until: Timestamp,
    /// at most so many,
    pub count_max: usize,
    /// and about so many bytes, but always at least one.
    pub bytes_max: usize,
}

/// What a due read found.
#[derive(Debug, Clone, Default)]
pub struct DuePage {
    /// The jobs, in order of [`Position::at`].
    pub jobs: Vec<Arc<Job>>,
    /// Where to read on after this page; `None` when the range up to `until` is exhausted.
    pub resume: Option<Position>,
    /// When the range is exhausted: the tenant's next job in this bucket after `until`, if there is one.
    pub next_at: Option<Timestamp>,
    /// Jobs that would be on the page, but cannot be read. Each takes up a place on it, so that there may be more behind a
    /// page without jobs.
    pub unread: usize,
}

/// How far the owner of a shard has come, so that its successor need not start from the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which shard.
    pub shard: Shard,
    /// The oldest bucket that may still hold waiting jobs.
    pub frontier: Bucket,
    /// Positions up to which nothing is waiting any more.
    pub cursors: Vec<Cursor>,
}

/// How far one tenant has been read in one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The bucket.
    pub bucket: Bucket,
    /// The tenant.
    pub tenant: Tenant,
    /// Everything up to here is done with.
    pub position: Position,
}

/// Jobs by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts(pub [u64; State::ALL.len()]);

impl Counts {
    /// How many are in `state`.
    #[must_use]
    pub fn of(&self, state: State) -> u64 {
        self.0.get(state.index()).copied().unwrap_or(0)
    }

    /// How many wait, for the first time or again.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.of(State::Scheduled).saturating_add(self.of(State::Retrying))
    }

    /// The tenants with the most jobs waiting, most first, then by name.
    #[must_use]
    pub fn busiest(all: impl Iterator<Item = (Tenant, Self)>, count_max: usize) -> Vec<(Tenant, Self)> {
        let mut busiest: Vec<_> = all.filter(|(_, counts)| counts.waiting() > 0).collect();
        busiest.sort_by(|(a, a_counts), (b, b_counts)| {
            b_counts.waiting().cmp(&a_counts.waiting()).then_with(|| a.cmp(b))
        });
        busiest.truncate(count_max);
        busiest
    }
}

/// How a store feels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Takes everything.
    Ready,
    /// Takes nothing new for want of room, for this reason. What is there may still be finished.
    Full(String),
    /// Takes no writes, for this reason.
    ReadOnly(String),
    /// Does not answer now, for this reason; it may do so again by itself.
    Away(String),
}

/// A place to keep jobs, the schedules they come from, the small documents the server goes by, and the audit trail.
///
/// # Contract for all calls
/// * Answers stand in the order of the questions.
/// * A call that answers has been synced to stable storage (reads excepted); a call that fails may or may not
///   have taken effect, and repeating it with the same ids and tokens is safe.
/// * Calls on one store see each other in some serial order: two orders for one job never both act on the
///   same old state.
/// * `now` is the caller's wall clock. A store with a clock of its own uses that for leases instead.
#[async_trait]
pub trait Store: Schedules + Documents + Audit {
    /// What kind of store it is, in a word: `embedded`.
    fn kind(&self) -> &'static str;

    /// What is fixed for this store.
    fn layout(&self) -> Layout;

    /// Whether jobs of these two shards can be taken in by one batch, all or nothing. The shards that one tenant is spread
    /// over are such.
    fn joins(&self, _: Shard, _: Shard) -> bool {
        true
    }

    /// How several nodes share it; none for a store that one process has to itself.
    fn leases(&self) -> Option<&dyn Leases> {
        None
    }

    /// The databases it is spread over, by index; none for a store that is no database.
    fn databases(&self) -> Vec<Database> {
        Vec::new()
    }

    /// The same as [`Self::leases`], for the shards of one database and by its word alone: it neither waits for the others
    /// nor fails with them.
    fn leases_in(&self, _index: u16) -> Option<&dyn Leases> {
        self.leases()
    }

    /// Starts a new ownership of all shards and returns its epoch.
    ///
    /// # Contract
    /// Higher than every epoch returned before, also over restarts. Orders given with an older one fail with
    /// [`Error::Fenced`].
    async fn open_epoch(&self) -> Result<u64, Error>;

    /// Takes jobs in.
    ///
    /// # Contract
    /// A failure stores none of the batch. A duplicate or a conflict is an answer for its own item; what a
    /// conflict means for the others is the caller's choice ([`OnConflict`]). A key used twice in one batch
    /// behaves as in two calls. An id that is already there is left as it is and answers `New`, so that a
    /// batch whose answer was lost can be sent again; not if it is said to be fresh.
    async fn submit(
        &self,
        now: Timestamp,
        jobs: Vec<Submission>,
        on_conflict: OnConflict,
    ) -> Result<Vec<Submitted>, Error>;

    /// Applies orders through [`tidewheel_core::job::transition`].
    ///
    /// # Contract
    /// Each order is granted or refused by itself, against the state left by the ones before it. Fails as a
    /// whole with [`Error::Fenced`] when `epoch` is given and no longer the newest. The key of an order is judged
    /// before anything else and stored in the same durable batch as what the order changes. Spread over several databases,
    /// it refuses the orders for those that are away ([`Refusal::Away`]), and fails only if none of them answered. A store that
    /// can tell which orders meet something unreadable refuses those alone ([`Refusal::Unreadable`]); another fails with
    /// [`Error::Corrupt`].
    async fn apply(
        &self,
        now: Timestamp,
        epoch: Option<u64>,
        orders: Vec<Order>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Error>;

    /// The oldest bucket between `from` and `until`, both included, in which this shard has waiting jobs.
    ///
    /// # Contract
    /// Passes none in which a job waits. It may name one in which many have just begun and none waits any more.
    async fn next_bucket(&self, shard: Shard, from: Bucket, until: Bucket) -> Result<Option<Bucket>, Error>;

    /// Tenants with waiting jobs in a bucket, in order of their names, those after `after`, at most `count_max`.
    ///
    /// # Contract
    /// Costs about one step per tenant named, however many jobs each has.
    async fn due_tenants(
        &self,
        shard: Shard,
        bucket: Bucket,
        after: Option<Tenant>,
        count_max: usize,
    ) -> Result<Vec<TenantDue>, Error>;

    /// One tenant's waiting jobs in one bucket.
    ///
    /// # Contract
    /// Jobs that wait ([`Job::armed_at`]) and only those, each at the time it is armed for, in an order that
    /// rises with that time and is the same for every read; a job that is running, moved away or finished is
    /// not there. Reads nothing beyond the page. One that cannot be read is passed over ([`DuePage::unread`]), and the store's
    /// log says why; it is there again once it can be read.
    async fn due(&self, due: Due) -> Result<DuePage, Error>;

    /// Jobs with an attempt under way, of all shards, without their payloads.
    ///
    /// # Contract
    /// Reads what is running, not what is waiting. One that cannot be read is passed over, and the store's log says why.
    async fn running(&self) -> Result<Vec<Job>, Error>;

    /// Jobs with an attempt under way, of these shards at least.
    ///
    /// # Contract
    /// As [`Self::running`]. Asks only the databases that have the shards.
    async fn running_in(&self, _shards: &[Shard]) -> Result<Vec<Job>, Error> {
        self.running().await
    }

    /// Jobs by id.
    ///
    /// # Contract
    /// Fails with [`Error::Corrupt`], which names the job, if one of them is there and cannot be read.
    async fn get(&self, tenant: &Tenant, ids: Vec<JobId>) -> Result<Vec<Option<Job>>, Error>;

    /// Jobs of several tenants by id, all or none. The caller may be about to report on them, so that what is running is
    /// worth keeping in mind.
    async fn get_each(&self, _now: Timestamp, jobs: Vec<(Tenant, JobId)>) -> Result<Vec<Option<Job>>, Error> {
        let mut found = vec![None; jobs.len()];
        let mut by_tenant: BTreeMap<Tenant, Vec<(usize, JobId)>> = BTreeMap::new();
        for (place, (tenant, id)) in jobs.into_iter().enumerate() {
            by_tenant.entry(tenant).or_default().push((place, id));
        }
        for (tenant, wanted) in by_tenant {
            let ids = wanted.iter().map(|(_, id)| *id).collect();
            for ((place, _), job) in wanted.into_iter().zip(self.get(&tenant, ids).await?) {
                found.iter_mut().skip(place).take(1).for_each(|slot| slot.clone_from(&job));
            }
        }
        Ok(found)
    }

    /// What an idempotency key was used for, while its time is not over. A schedule that was made under it may be
    /// gone, which frees it.
    async fn find_key(&self, now: Timestamp, tenant: &Tenant, key: &str) -> Result<Option<HeldKey>, Error>;

    /// Takes a key for a call that is no single order.
    ///
    /// # Contract
    /// The same keys as those of submissions and orders, judged the same way. What the call does besides must be
    /// safe to do again: the key says that it was begun, not that it was done.
    async fn claim_key(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        claim: IdempotencyClaim,
    ) -> Result<KeyClaimed, Error>;

    /// A page of one tenant's jobs.
    ///
    /// # Contract
    /// Latest first, by the time in the job's id, then by id; every job that exists throughout the walk and
    /// matches is on exactly one page, whatever happens to others meanwhile. Looks at no more than
    /// [`tidewheel_core::limits::LIST_SCAN_COUNT_MAX`] records before it hands back a cursor, and says at how many.
    /// Jobs that wait and have never run may be many: unless [`State::Scheduled`] is wanted, none of them is looked at,
    /// and where only those are wanted that are due, none that stands at a later time. One that cannot be read is left out, and
    /// the store's log says why.
    async fn list(&self, query: ListQuery) -> Result<Page, Error>;

    /// Exact counts of one tenant's jobs by state, or of all tenants' together.
    ///
    /// # Contract
    /// Costs the same however many jobs there are. Finished jobs count until their history is dropped.
    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error>;

    /// The tenants with the most jobs waiting, with their counts, at most so many; most first, then by name.
    ///
    /// # Contract
    /// Costs about a step per tenant, however many jobs each has.
    async fn busiest(&self, count_max: usize) -> Result<Vec<(Tenant, Counts)>, Error>;

    /// Notes how far the owner has come. Need not be durable at once; losing it costs time, not jobs.
    async fn save_checkpoints(&self, checkpoints: Vec<Checkpoint>) -> Result<(), Error>;

    /// The checkpoints last saved.
    async fn checkpoints(&self) -> Result<Vec<Checkpoint>, Error>;

    /// Drops finished jobs (dead ones excepted) that ended before `before`, ledger entries decided before it, and
    /// idempotency keys whose time is over, in whole ranges; returns how many jobs went.
    ///
    /// # Contract
    /// Never drops what ended or was decided at or after `before`; may keep up to a day more.
    async fn drop_history(&self, now: Timestamp, before: Timestamp) -> Result<u64, Error>;

    /// Whether it takes writes.
    fn health(&self) -> Health;

    /// Syncs and lets go. Calls after it fail with [`Error::Closed`].
    async fn close(&self) -> Result<(), Error>;
}
