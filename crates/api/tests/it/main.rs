//! What the crate keeps that is made from something else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod generate;
mod generated;
