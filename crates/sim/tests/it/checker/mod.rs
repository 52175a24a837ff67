//! The checker finds what is planted in a record.

mod clusters;
mod jobs;
mod schedules;
