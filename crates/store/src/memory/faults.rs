//! How a simulator makes the model misbehave, within what the contract allows, and looks on.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, State, Token};
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;

use crate::{Applied, Error, Health, Held, Order};

/// Asked before every call what shall go wrong with it.
pub trait Faults: Send + Sync {
    /// What shall go wrong with this call; [`Fault::default`] for nothing.
    fn before(&self, call: Call) -> Fault;

    /// Whether something that this order goes by cannot be read.
    fn is_unreadable(&self, order: &Order) -> bool {
        let _ = order;
        false
    }

    /// Whether a look at this job finds that it cannot be read.
    fn is_damaged(&self, id: JobId) -> bool {
        let _ = id;
        false
    }

    /// How the store says it feels.
    fn health(&self) -> Health {
        Health::Ready
    }

    /// What becomes of news of another node, or of this one's own.
    fn passage(&self, from_node: u64) -> Passage {
        let _ = from_node;
        Passage::Free
    }

    /// This was done, whether or not the answer arrives. Told in the order in which it was done, by all nodes.
    fn witness(&self, deed: Written) {
        drop(deed);
    }
}

/// What becomes of news on their way.
pub enum Passage {
    /// They arrive.
    Free,
    /// They arrive later, and so do those behind them.
    Slow(Wait),
    /// They are lost, and nobody knows.
    Lost,
    /// They are lost, and whoever listens is told that something is.
    Missed,
}

impl fmt::Debug for Passage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "Free",
            Self::Slow(_) => "Slow",
            Self::Lost => "Lost",
            Self::Missed => "Missed",
        })
    }
}

/// Something a node did that others must not do at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It took a shard, or extended its lease.
    Leased {
        /// Which node, by its card.
        node: Arc<str>,
        /// What it has now.
        held: Held,
        /// Until when, by the store's clock.
        until: Timestamp,
    },
    /// It handed a shard back.
    Released {
        /// Which.
        shard: Shard,
    },
    /// It started an attempt.
    Claimed {
        /// Of which job.
        id: JobId,
        /// Where that is, and under which epoch it was claimed.
        held: Held,
        /// The attempt.
        token: Token,
    },
    /// It ended an attempt.
    Ended {
        /// Of which job.
        id: JobId,
        /// The attempt.
        token: Token,
    },
}

impl Written {
    /// What was done by an order that was granted.
    pub(super) fn of(order: &Order, applied: &Applied, shards: u16) -> Option<Self> {
        let id = order.id;
        match &order.command {
            Command::Claim { epoch, .. } => {
                let held = Held { shard: Shard::of_job(&order.tenant, id, shards), epoch: *epoch };
                let token = applied.job.status.token;
                (applied.job.status.state == State::Running).then_some(Self::Claimed { id, held, token })
            }
            Command::Succeed { token, .. }
            | Command::Fail { token, .. }
            | Command::Snooze { token, .. }
            | Command::Release { token }
            | Command::Abandon { token, .. }
            | Command::LeaseOver { token, .. }
            | Command::Lost { token }
            | Command::WorkerGone { token } => applied.changed.then_some(Self::Ended { id, token: *token }),
            Command::Heartbeat { .. }
            | Command::Detach { .. }
            | Command::Cancel
            | Command::RunNow
            | Command::Amend { .. }
            | Command::Rerun { .. }
            | Command::Replay { .. }
            | Command::Discard => None,
        }
    }
}

/// Which method of the store is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// [`crate::Store::open_epoch`].
    OpenEpoch,
    /// [`crate::Store::submit`].
    Submit,
    /// [`crate::Store::apply`].
    Apply,
    /// [`crate::Store::next_bucket`].
    NextBucket,
    /// [`crate::Store::due_tenants`].
    DueTenants,
    /// [`crate::Store::due`].
    Due,
    /// [`crate::Store::running`].
    Running,
    /// [`crate::Store::get`].
    Get,
    /// [`crate::Store::find_key`].
    FindKey,
    /// [`crate::Store::claim_key`].
    ClaimKey,
    /// [`crate::Store::list`].
    List,
    /// [`crate::Store::counts`].
    Counts,
    /// [`crate::Store::save_checkpoints`].
    SaveCheckpoints,
    /// [`crate::Store::checkpoints`].
    Checkpoints,
    /// [`crate::Store::drop_history`].
    DropHistory,
    /// [`crate::Store::close`].
    Close,
    /// [`crate::Schedules::edit_schedules`].
    EditSchedules,
    /// [`crate::Schedules::schedules`].
    Schedules,
    /// [`crate::Schedules::find_schedule`].
    FindSchedule,
    /// [`crate::Schedules::list_schedules`].
    ListSchedules,
    /// [`crate::Schedules::count_schedules`].
    CountSchedules,
    /// [`crate::Schedules::schedule_tenants`].
    ScheduleTenants,
    /// [`crate::Schedules::ledger`].
    Ledger,
    /// [`crate::Schedules::put_calendar`].
    PutCalendar,
    /// [`crate::Schedules::calendar`].
    Calendar,
    /// [`crate::Schedules::calendars`].
    Calendars,
    /// [`crate::Schedules::note_zones`].
    NoteZones,
    /// [`crate::Schedules::noted_zones`].
    NotedZones,
    /// [`crate::Leases::announce`].
    Announce,
    /// [`crate::Leases::leave`].
    Leave,
    /// [`crate::Leases::nodes`].
    Nodes,
    /// [`crate::Leases::hold`].
    Hold,
    /// [`crate::Leases::renew`].
    Renew,
    /// [`crate::Leases::release`].
    Release,
    /// [`crate::Leases::shard_leases`].
    ShardLeases,
    /// [`crate::Leases::hold_named`].
    HoldNamed,
    /// [`crate::Leases::tell`].
    Tell,
    /// [`crate::Documents::put_document`].
    PutDocument,
    /// [`crate::Documents::document`].
    Document,
    /// [`crate::Documents::documents`].
    Documents,
    /// [`crate::Documents::newest_document_change`].
    NewestDocumentChange,
    /// [`crate::Audit::append_acts`].
    AppendActs,
    /// [`crate::Audit::audit_records`].
    AuditRecords,
    /// [`crate::Audit::audit_chains`].
    AuditChains,
    /// [`crate::Audit::drop_audit`].
    DropAudit,
}

impl Call {
    /// Whether it can change what is stored.
    #[must_use]
    pub const fn is_write(self) -> bool {
        match self {
            Self::OpenEpoch
            | Self::Submit
            | Self::Apply
            | Self::ClaimKey
            | Self::SaveCheckpoints
            | Self::DropHistory
            | Self::Close
            | Self::EditSchedules
            | Self::PutCalendar
            | Self::NoteZones
            | Self::Announce
            | Self::Leave
            | Self::Hold
            | Self::Renew
            | Self::Release
            | Self::HoldNamed
            | Self::PutDocument
            | Self::AppendActs
            | Self::DropAudit => true,
            Self::NextBucket
            | Self::DueTenants
            | Self::Due
            | Self::Running
            | Self::Get
            | Self::FindKey
            | Self::List
            | Self::Counts
            | Self::Checkpoints
            | Self::Schedules
            | Self::FindSchedule
            | Self::ListSchedules
            | Self::CountSchedules
            | Self::ScheduleTenants
            | Self::Ledger
            | Self::Calendar
            | Self::Calendars
            | Self::NotedZones
            | Self::Nodes
            | Self::ShardLeases
            | Self::Tell
            | Self::Document
            | Self::Documents
            | Self::NewestDocumentChange
            | Self::AuditRecords
            | Self::AuditChains => false,
        }
    }
}

/// Time to pass, as the simulator's clock counts it.
pub type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What goes wrong with one call; nothing by default.
#[derive(Default)]
pub struct Fault {
    /// Passes before the call takes effect.
    pub wait_before: Option<Wait>,
    /// How it fails.
    pub failure: Option<Failure>,
    /// Passes between the effect and the answer.
    pub wait_after: Option<Wait>,
    /// Claims are granted whatever lease they are made under: against the contract, for a simulator to show that it
    /// would notice.
    pub unfenced: bool,
}

/// How a call fails.
#[derive(Debug, Clone)]
pub enum Failure {
    /// Without having done anything.
    Before(Error),
    /// Having done everything: only the answer is lost.
    After(Error),
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("wait_before", &self.wait_before.is_some())
            .field("failure", &self.failure)
            .field("wait_after", &self.wait_after.is_some())
            .field("unfenced", &self.unfenced)
            .finish()
    }
}
