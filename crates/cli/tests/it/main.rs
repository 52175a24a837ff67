//! The command line against a stub, and the rules of the repository that no compiler checks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod api_reference;
mod client;
#[path = "../harness/mod.rs"]
mod harness;
mod observability;
#[path = "../pty/mod.rs"]
mod pty;
mod tidy;
