//! Schedules, files of schedules, zones and clocks.

mod clock;
mod files;
mod firing;
mod zones;
