//! How a simulator makes the model misbehave, within what the contract allows, and looks on.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Command, State, Token};
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;

use tidewheel_store::{Applied, Error, Health, Held, Order};

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
    /// [`tidewheel_store::Store::open_epoch`].
    OpenEpoch,
    /// [`tidewheel_store::Store::submit`].
    Submit,
    /// [`tidewheel_store::Store::apply`].
    Apply,
    /// [`tidewheel_store::Store::next_bucket`].
    NextBucket,
    /// [`tidewheel_store::Store::due_tenants`].
    DueTenants,
    /// [`tidewheel_store::Store::due`].
    Due,
    /// [`tidewheel_store::Store::running`].
    Running,
    /// [`tidewheel_store::Store::get`].
    Get,
    /// [`tidewheel_store::Store::find_key`].
    FindKey,
    /// [`tidewheel_store::Store::claim_key`].
    ClaimKey,
    /// [`tidewheel_store::Store::list`].
    List,
    /// [`tidewheel_store::Store::counts`].
    Counts,
    /// [`tidewheel_store::Store::save_checkpoints`].
    SaveCheckpoints,
    /// [`tidewheel_store::Store::checkpoints`].
    Checkpoints,
    /// [`tidewheel_store::Store::drop_history`].
    DropHistory,
    /// [`tidewheel_store::Store::close`].
    Close,
    /// [`tidewheel_store::Schedules::edit_schedules`].
    EditSchedules,
    /// [`tidewheel_store::Schedules::schedules`].
    Schedules,
    /// [`tidewheel_store::Schedules::find_schedule`].
    FindSchedule,
    /// [`tidewheel_store::Schedules::list_schedules`].
    ListSchedules,
    /// [`tidewheel_store::Schedules::count_schedules`].
    CountSchedules,
    /// [`tidewheel_store::Schedules::schedule_tenants`].
    ScheduleTenants,
    /// [`tidewheel_store::Schedules::ledger`].
    Ledger,
    /// [`tidewheel_store::Schedules::put_calendar`].
    PutCalendar,
    /// [`tidewheel_store::Schedules::calendar`].
    Calendar,
    /// [`tidewheel_store::Schedules::calendars`].
    Calendars,
    /// [`tidewheel_store::Schedules::note_zones`].
    NoteZones,
    /// [`tidewheel_store::Schedules::noted_zones`].
    NotedZones,
    /// [`tidewheel_store::Leases::announce`].
    Announce,
    /// [`tidewheel_store::Leases::leave`].
    Leave,
    /// [`tidewheel_store::Leases::nodes`].
    Nodes,
    /// [`tidewheel_store::Leases::hold`].
    Hold,
    /// [`tidewheel_store::Leases::renew`].
    Renew,
    /// [`tidewheel_store::Leases::release`].
    Release,
    /// [`tidewheel_store::Leases::shard_leases`].
    ShardLeases,
    /// [`tidewheel_store::Leases::hold_named`].
    HoldNamed,
    /// [`tidewheel_store::Leases::tell`].
    Tell,
    /// [`tidewheel_store::Documents::put_document`].
    PutDocument,
    /// [`tidewheel_store::Documents::document`].
    Document,
    /// [`tidewheel_store::Documents::documents`].
    Documents,
    /// [`tidewheel_store::Documents::newest_document_change`].
    NewestDocumentChange,
    /// [`tidewheel_store::Audit::append_acts`].
    AppendActs,
    /// [`tidewheel_store::Audit::audit_records`].
    AuditRecords,
    /// [`tidewheel_store::Audit::audit_chains`].
    AuditChains,
    /// [`tidewheel_store::Audit::drop_audit`].
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
