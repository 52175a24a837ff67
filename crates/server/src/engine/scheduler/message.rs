//! What the scheduler hears of.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::{Job, Token};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{DuePage, Error};
use tokio::sync::oneshot;

use crate::engine::claims::{Claim, Granted};
use crate::engine::leases::Renewal;
use crate::engine::peers::PeerMessage;
use crate::engine::ready::{Allotment, Refill, TakeReply, Ticket};
use crate::engine::scan::{Look, Read, TenantShard};
use crate::engine::target_answers::Heard;
use crate::engine::workers::{Hold, WorkerMessage};
use crate::engine::{BreakerView, LaneView, Take, Whereabouts};

/// A message to the scheduler.
pub(in crate::engine) enum Message {
    /// Jobs were stored that are near.
    Waiting(Vec<Arc<Job>>),
    /// Jobs were changed from outside.
    Changed { jobs: Vec<Arc<Job>>, done: oneshot::Sender<()> },
    /// Running attempts were given another lease.
    Renewed(Vec<(Arc<Job>, Renewal)>),
    /// Reports were written: the jobs as they are now, those whose report was refused, and those that cannot be read.
    Reported {
        jobs: Vec<Arc<Job>>,
        refused: Vec<(Tenant, JobId, Option<Token>)>,
        unreadable: Vec<(JobId, Token)>,
    },
    /// Tenants with work, and when the first job of each is: in buckets that were opened, or as another node told, or in those
    /// that are looked through again.
    Listed(Look, Vec<(TenantShard, Timestamp)>),
    /// A job was read again.
    Rechecked(Arc<Job>),
    /// A listing came to its end.
    ListingDone { failed: Option<Look> },
    /// A read came back.
    Read { read: Read, page: Result<DuePage, Error> },
    /// A lot's read came back.
    Refilled { refill: Refill, page: Result<DuePage, Error> },
    /// Claims were written, or could not be.
    Claimed { claim: Claim, granted: Result<Vec<Granted>, Error> },
    /// Tenants were allotted other weights or caps.
    Allot(Vec<Allotment>),
    /// A worker wants jobs.
    Take { take: Take, reply: TakeReply },
    /// One who wants jobs has nearly waited long enough: other nodes are to start nothing more for it.
    Retract { ticket: Ticket },
    /// One who wanted jobs has waited long enough.
    Withdraw { ticket: Ticket },
    /// A connected worker says something, or somebody asks about them.
    Worker(WorkerMessage, Hold),
    /// Somebody asks where a job is.
    Whereabouts { job: Box<Job>, reply: oneshot::Sender<Whereabouts> },
    /// Shards are served from now on; these attempts are under way there.
    Gained { shards: Vec<Shard>, running: Vec<Job> },
    /// Shards are no longer served, as the territory has it; answer when nothing of them will be claimed any more.
    Lost { done: oneshot::Sender<()> },
    /// Somebody asks what of a tenant waits where.
    Lanes { tenant: Tenant, count_max: usize, reply: oneshot::Sender<Vec<LaneView>> },
    /// Pushes told something of their targets.
    Heard(Vec<Heard>),
    /// Somebody asks which targets of a tenant are not as they should be.
    Breakers { tenant: Tenant, reply: oneshot::Sender<Vec<BreakerView>> },
    /// Another node says something.
    Peer(PeerMessage),
    /// Stop promoting; answer when nothing is under way.
    Drain { reply: oneshot::Sender<usize> },
    /// Stop now; answer with what is still under way.
    Stop { reply: oneshot::Sender<usize> },
}

impl Message {
    /// How many jobs it brings, where that may be many.
    pub(super) fn jobs(&self) -> usize {
        match self {
            Self::Waiting(jobs) | Self::Reported { jobs, .. } => jobs.len(),
            Self::Read { page: Ok(page), .. } | Self::Refilled { page: Ok(page), .. } => page.jobs.len(),
            Self::Claimed { claim, .. } => claim.picks.len(),
            Self::Changed { .. }
            | Self::Renewed(_)
            | Self::Listed(..)
            | Self::Rechecked(_)
            | Self::ListingDone { .. }
            | Self::Read { .. }
            | Self::Refilled { .. }
            | Self::Allot(_)
            | Self::Take { .. }
            | Self::Retract { .. }
            | Self::Withdraw { .. }
            | Self::Worker(..)
            | Self::Whereabouts { .. }
            | Self::Gained { .. }
            | Self::Lost { .. }
            | Self::Lanes { .. }
            | Self::Heard(_)
            | Self::Breakers { .. }
            | Self::Peer(_)
            | Self::Drain { .. }
            | Self::Stop { .. } => 0,
        }
    }
}
