//! Schedules: the handlers, one file for each thing that is done with them.

pub(super) mod backfill;
pub(super) mod batch;
pub(super) mod change;
pub(super) mod check;
pub(super) mod create;
pub(super) mod firings;
mod ledger;
pub(super) mod preview;
pub(super) mod read;
pub(super) mod room;
pub(crate) mod version;
