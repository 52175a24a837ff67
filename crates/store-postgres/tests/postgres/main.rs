//! The PostgreSQL store on a real PostgreSQL: `scripts/with-postgres cargo test -p tidewheel-store-postgres`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod audit;
mod conformance;
mod database;
mod failover;
mod flight;
mod lanes;
mod migrate;
mod partitions;
mod settle;
mod specs;
mod trouble;
mod unreadable;
