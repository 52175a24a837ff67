//! The simulator and its checker. What runs hundreds of seeds is in `slow`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod allotments;
mod checker;
mod fairness;
mod nodes;
mod slow;
mod spread;
mod takes;
mod unreadable;
