//! The part of the contract that is about recurring schedules. Read [`Schedules`] first.

use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Definition, Entry, NewSchedule, Schedule, ScheduleId, State, Zone};
use tidewheel_core::time::Timestamp;

use crate::{Error, IdempotencyClaim, KeyUse};

/// A change asked of one schedule.
#[derive(Debug, Clone)]
pub struct ScheduleOrder {
    /// Whose schedule.
    pub tenant: Tenant,
    /// Which schedule.
    pub id: ScheduleId,
    /// Granted only if the schedule has this version.
    pub if_version: Option<u64>,
    /// What to do.
    pub command: ScheduleCommand,
    /// The key it is given under, if the caller gave one. An order that is granted takes its key. Given again
    /// under it, the order is granted and does nothing; the answer is the schedule it was for, as it is by then,
    /// and the job of a trigger.
    pub key: Option<IdempotencyClaim>,
}

/// What can be asked of a schedule. Each is one of the pure functions of [`tidewheel_core::schedule`].
#[derive(Debug, Clone)]
pub enum ScheduleCommand {
    /// Make it. With an id that is there already, that schedule is the answer, unchanged. The key it is made under
    /// is free again once it is deleted.
    Create {
        /// What it is to be; its id and tenant are those of the order.
        new: Box<NewSchedule>,
        /// Its id was made for this order, which is given for the first time: nobody needs to look for it.
        fresh: bool,
    },
    /// Give it another definition and name, and have it pause or go on: all of it, or, refused, nothing.
    Update {
        /// The new definition.
        definition: Box<Definition>,
        /// The new name.
        name: Option<Arc<str>>,
        /// Whether it pauses or goes on; none leaves that as it is.
        paused: Option<bool>,
    },
    /// Stop firing until resumed.
    Pause,
    /// Go on.
    Resume,
    /// Remove it. Its jobs that have started go on; its ledger goes with it.
    Delete,
    /// Fire once, now, outside the chain. Asked for twice in a millisecond it is one job; the second answer has it
    /// as it is by then.
    Trigger,
    /// Store these jobs, made by [`tidewheel_core::schedule::backfill_job`], outside the chain. One that is there
    /// already is left as it is.
    Backfill(Vec<Job>),
    /// Its zone has other rules now.
    Retime(Zone),
    /// A calendar has other dates now; the store has them already. Nothing for a schedule that does not name it. What
    /// has passed keeps to the dates before.
    Redate {
        /// The calendar's name.
        name: Arc<str>,
        /// The dates it had before; none if it was not there.
        before: Option<Arc<Dates>>,
    },
    /// Mend a broken chain: an occurrence that is lost is stored again, one of an interval that was put off by a clock that
    /// was set back is brought forward. Where nothing is wrong, nothing is changed.
    Rearm {
        /// By how much the clock was set back, as far as is known.
        set_back_ms: i64,
    },
}

/// A granted order.
#[derive(Debug, Clone)]
pub struct Edited {
    /// The schedule as it is now (for [`ScheduleCommand::Delete`]: as it was).
    pub schedule: Schedule,
    /// Whether the order changed anything; `false` for a repeat under the same key, too.
    pub changed: bool,
    /// For such a repeat: what the key was used for.
    pub repeats: Option<KeyUse>,
    /// Jobs that were stored, changed or taken out along with it. One that was taken out is `cancelled` here.
    pub jobs: Vec<Job>,
}

/// Why an order was not granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleRefusal {
    /// No such schedule of this tenant.
    #[error("there is no such schedule")]
    NotFound,
    /// Another schedule of this tenant has the name.
    #[error("the name belongs to {0}")]
    NameTaken(ScheduleId),
    /// The schedule was changed since it was read.
    #[error("the schedule has version {current} by now; read it again")]
    StaleVersion {
        /// The version it has.
        current: u64,
    },
    /// The idempotency key was used by a different request.
    #[error("the idempotency key belongs to {0}; use another key for another request")]
    KeyConflict(KeyUse),
    /// The order was granted before under its key, and the schedule, or the job of a trigger, is gone by now.
    #[error("this was done before, under the same idempotency key; what it was done to is gone by now")]
    Gone,
    /// The definition names a calendar the tenant does not have.
    #[error("there is no calendar {0:?}")]
    NoCalendar(Arc<str>),
    /// It is stored, but cannot be read now: its zone is not in the time zone database, or its record is damaged. So it is with
    /// a job of it that the order goes by. Nothing has changed.
    #[error("the schedule cannot be read: {0}")]
    Unreadable(String),
}

/// Which schedules are wanted.
#[derive(Debug, Clone)]
pub struct ScheduleQuery {
    /// Whose.
    pub tenant: Tenant,
    /// In one of these states; none is all.
    pub states: Vec<State>,
    /// Of this type.
    pub kind: Option<Arc<str>>,
    /// Naming this calendar.
    pub calendar: Option<Arc<str>>,
    /// After this id.
    pub after: Option<ScheduleId>,
    /// How many at most.
    pub count_max: usize,
}

impl ScheduleQuery {
    /// Whether `schedule` is wanted, wherever the page begins.
    #[must_use]
    pub fn matches(&self, schedule: &Schedule) -> bool {
        let definition = &schedule.definition;
        (self.states.is_empty() || self.states.contains(&schedule.state))
            && self.kind.as_ref().is_none_or(|kind| *kind == definition.template.kind)
            && self
                .calendar
                .as_ref()
                .is_none_or(|name| definition.rule.exclude.calendar.as_ref() == Some(name))
    }
}

/// A page of schedules.
#[derive(Debug, Clone, Default)]
pub struct SchedulePage {
    /// In order of their ids. May be short of the asked number, with an id to go on from.
    pub schedules: Vec<Schedule>,
    /// Where to go on; `None` at the end.
    pub next: Option<ScheduleId>,
}

/// Where a page of a ledger ended: entries below this one come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerCursor {
    /// The entry's first instant.
    pub from: Timestamp,
    /// Tells entries of one instant apart.
    pub number: u64,
}

/// A page of a ledger.
#[derive(Debug, Clone, Default)]
pub struct LedgerPage {
    /// Latest first, by their first instant, then by when they were decided.
    pub entries: Vec<Entry>,
    /// Where to go on; `None` at the end.
    pub next: Option<LedgerCursor>,
}

/// A place to keep schedules, their ledgers and calendars, beside the jobs they make.
///
/// # Contract beyond that of [`crate::Store`]
/// * A schedule and its jobs change together or not at all, in the same serial order as everything else: an
///   edit and a claim of its occurrence never both act on the same old state.
/// * `apply` consults the schedule. A [`tidewheel_core::job::Command::Claim`] of a job with an occurrence asks
///   [`tidewheel_core::schedule::on_claim`] first (unless the claim would be refused anyway: wrong state, not due)
///   and does what it decides: `Fire` applies the claim to the job it gives, `Hold` stores the job and refuses
///   the claim as not due, `Drop` stores the job as ended and answers with it. Whenever a job with an occurrence
///   ends, [`tidewheel_core::schedule::on_finish`] is asked. What they store, cancel or release besides is in
///   [`crate::Applied::others`]; all of it, ledger entries and the schedule included, is in the same durable
///   batch. A job whose schedule is gone is claimed like any other; one whose schedule cannot be read is put off
///   for a while, as if held.
/// * A schedule that cannot be read (its zone is unknown to this program's time zone database) fails the calls
///   that ask for it, is left out of lists, and does no harm to others.
/// * Ledger entries are kept as long as history is, and dropped with it.
#[async_trait]
pub trait Schedules: Send + Sync + 'static {
    /// Applies orders, each by itself, against the state left by the ones before it.
    ///
    /// # Contract
    /// Those that meet something unreadable are refused alone ([`ScheduleRefusal::Unreadable`]).
    async fn edit_schedules(
        &self,
        now: Timestamp,
        orders: Vec<ScheduleOrder>,
    ) -> Result<Vec<Result<Edited, ScheduleRefusal>>, Error>;

    /// Schedules by id.
    async fn schedules(&self, tenant: &Tenant, ids: Vec<ScheduleId>) -> Result<Vec<Option<Schedule>>, Error>;

    /// The schedule of that name.
    async fn find_schedule(&self, tenant: &Tenant, name: &str) -> Result<Option<ScheduleId>, Error>;

    /// A page of one tenant's schedules, by id; stable while they change.
    async fn list_schedules(&self, query: ScheduleQuery) -> Result<SchedulePage, Error>;

    /// How many schedules a tenant has.
    async fn count_schedules(&self, tenant: &Tenant) -> Result<u64, Error>;

    /// Tenants that have schedules, those after `after`, at most `count_max`, by name.
    async fn schedule_tenants(&self, after: Option<Tenant>, count_max: usize) -> Result<Vec<Tenant>, Error>;

    /// A page of a schedule's ledger, latest first.
    async fn ledger(
        &self,
        tenant: &Tenant,
        id: ScheduleId,
        before: Option<LedgerCursor>,
        count_max: usize,
    ) -> Result<LedgerPage, Error>;

    /// Stores a calendar, or removes it with `None`. Schedules that name it keep their pending occurrence until
    /// they are told of it: [`ScheduleCommand::Redate`].
    async fn put_calendar(&self, tenant: &Tenant, name: &str, dates: Option<Dates>) -> Result<(), Error>;

    /// A calendar's dates.
    async fn calendar(&self, tenant: &Tenant, name: &str) -> Result<Option<Dates>, Error>;

    /// Names of a tenant's calendars, in order.
    async fn calendars(&self, tenant: &Tenant) -> Result<Vec<Arc<str>>, Error>;

    /// Notes by which rules of time zones all pending occurrences are computed: the
    /// [`identity`](tidewheel_core::zones::Zones::identity) of a database. `None` while they are being recomputed,
    /// when some are by one and some by another.
    async fn note_zones(&self, identity: Option<Arc<str>>) -> Result<(), Error>;

    /// What was noted last; `None` in a new store.
    async fn noted_zones(&self) -> Result<Option<Arc<str>>, Error>;
}
