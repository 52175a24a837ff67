//! Reads that wait for nobody and change nothing.

mod due;
mod list;
mod schedules;
