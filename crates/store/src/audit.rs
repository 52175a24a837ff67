//! The audit trail: what was done and what became of jobs, in chains of records ([`tidewheel_core::audit`]), one to a
//! shard. Records are added and, when they are old, dropped by whole days; never changed.

use async_trait::async_trait;
use bytes::Bytes;
use tidewheel_core::audit::{ChainEnds, Kind, Place, Record};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;

use crate::Error;

/// Something somebody asked for, to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAct {
    /// Whom it concerns: it goes to the chain of that tenant's shard.
    pub tenant: Tenant,
    /// What was done, by whom; opaque to the store.
    pub content: Bytes,
}

/// Which records to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditQuery {
    /// Of this kind only.
    pub kind: Option<Kind>,
    /// Those at or after this instant …
    pub from: Timestamp,
    /// … and before this one.
    pub until: Timestamp,
    /// Those that come after this place, in the order asked for.
    pub after: Option<Place>,
    /// Which way.
    pub order: AuditOrder,
    /// At most so many.
    pub count_max: usize,
}

/// Which way records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditOrder {
    /// Oldest first.
    OldestFirst,
    /// Newest first.
    NewestFirst,
}

/// Keeps the audit trail.
///
/// # Contract
/// Changes of jobs are added by the store itself, if it was opened to do so: what a durable batch changed is in the
/// trail if and only if the batch is stored. A store may link them into their chains a moment later; only then are they
/// read. A job that is changed twice by one batch is in it once, with its first and its last state.
#[async_trait]
pub trait Audit: Send + Sync {
    /// Adds acts, each as one record.
    ///
    /// # Contract
    /// Durable when answered, like every write. Several nodes that add to one chain never make it fork: each record
    /// names the hash of the one before it. A call that fails may have taken effect; repeated, it adds the acts again.
    async fn append_acts(&self, now: Timestamp, acts: Vec<NewAct>) -> Result<(), Error>;

    /// Reads records of all chains by their place.
    ///
    /// # Contract
    /// Fewer than asked for means that there are no more.
    async fn audit_records(&self, query: AuditQuery) -> Result<Vec<Record>, Error>;

    /// The chains there are, with their ends, by number.
    ///
    /// # Contract
    /// Every record up to a head is read by calls that begin later, until it is dropped.
    async fn audit_chains(&self) -> Result<Vec<ChainEnds>, Error>;

    /// Drops records that are older than `before`, in whole days, and moves the anchors of their chains.
    ///
    /// # Contract
    /// Never drops what is not older; may keep up to a day more. Heads stay, of chains that are empty too.
    async fn drop_audit(&self, before: Timestamp) -> Result<(), Error>;
}
