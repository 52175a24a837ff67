//! What Tidewheel asks of a place to keep jobs: the contract ([`Store`]). An in-memory model of it and the suite that every
//! store must pass are in `tidewheel-store-testkit`, so that a change of a case rebuilds no server.
//!
//! The contract is small and made of batches: one call for many jobs, one answer per job in the same order.
//! Every change of a job goes through [`tidewheel_core::job::transition`], so all stores agree on what is
//! allowed; a store only decides how to keep the result. What a change means for a job's schedule, and an edit for
//! its jobs, is worked out in [`evaluate`].

mod audit;
mod contract;
mod databases;
mod documents;
mod error;
mod keys;
mod leases;
mod query;
mod schedules;

pub mod evaluate;

pub use audit::{Audit, AuditOrder, AuditQuery, NewAct};
pub use contract::{
    Applied, Checkpoint, Counts, Cursor, Due, DuePage, Health, IdempotencyClaim, Layout, OnConflict, Order,
    Refusal, Store, Submission, Submitted, TenantDue,
};
pub use databases::Database;
pub use documents::{Document, DocumentKey, DocumentQuery, Documents, IfVersion, StaleDocument};
pub use error::Error;
pub use keys::{HeldKey, KeyClaimed, KeyUse};
pub use leases::{Held, Leases, News, Node, NodeCard, Receipt, ShardLease, Want};
pub use query::{Filter, ListQuery, Page, PageCursor};
pub use schedules::{
    Edited, LedgerCursor, LedgerPage, ScheduleCommand, ScheduleOrder, SchedulePage, ScheduleQuery,
    ScheduleRefusal, Schedules,
};
