//! Reads that wait for nobody and change nothing.

pub(crate) mod due;
mod list;
mod schedules;
