//! The pure heart as its users call it: cron, schedules, the states of a job, webhook signatures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod cron_vectors;
mod schedule;
mod state;
mod webhook_vectors;
