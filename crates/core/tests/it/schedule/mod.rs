//! What fires when.

mod calendars;
mod faults;
mod history;
mod nominal;
mod policies;
mod set_back;
mod support;
mod year;
mod zones;
