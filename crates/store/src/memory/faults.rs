//! How a simulator makes the model misbehave, within what the contract allows.

use std::fmt;
use std::pin::Pin;

use crate::Error;

/// Asked before every call what shall go wrong with it.
pub trait Faults: Send + Sync {
    /// What shall go wrong with this call; [`Fault::default`] for nothing.
    fn before(&self, call: Call) -> Fault;
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
            .finish()
    }
}
