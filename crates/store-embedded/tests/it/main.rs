//! The embedded store: the store contract, crashes, damage, and what the contract leaves open.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod audit;
mod conformance;
mod crash;
mod damage;
mod opening;
mod schedules;
mod unreadable;
mod workload;
