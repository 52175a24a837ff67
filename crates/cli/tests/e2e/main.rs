//! Real servers in processes of their own, on the embedded store and on PostgreSQL, from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod audit;
mod backlog;
mod cluster;
mod crash;
mod crowd;
mod delivery;
mod docs;
mod fairness;
#[path = "../harness/mod.rs"]
mod harness;
mod hostile;
mod injection;
mod inside;
mod notifications;
mod otlp;
mod postgres;
#[path = "../pty/mod.rs"]
mod pty;
mod schedules;
mod security;
mod slow;
mod targets;
mod tls;
mod tokens;
mod top;
mod traces;
mod workers;
