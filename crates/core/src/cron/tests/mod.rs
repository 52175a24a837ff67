//! Tests of the cron engine that need no table: behaviour by name, refusals, and properties against an oracle
//! that is too simple to be wrong in the same way.

mod behaviour;
mod oracle;
mod properties;
mod refusals;

use std::cell::Cell;

use jiff::Timestamp;

use super::{Cron, Dst, Fire, zone};

thread_local! {
    /// The units of work done on this thread.
    pub(super) static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// The units of work that `search` takes.
fn steps_of<T>(search: impl FnOnce() -> T) -> (T, u64) {
    let before = STEPS.get();
    let found = search();
    (found, STEPS.get() - before)
}

fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The fires after `from`, up to and including `until`.
fn fires(cron: &Cron, tz: &str, dst: Dst, from: Timestamp, until: Timestamp) -> Vec<Fire> {
    let tz = zone(tz).unwrap();
    let next = |after| cron.next_after(after, &tz, dst).filter(|fire| fire.at <= until);
    std::iter::successors(next(from), |fire| next(fire.at)).collect()
}

/// The same fires, found from the end.
fn fires_backwards(cron: &Cron, tz: &str, dst: Dst, from: Timestamp, until: Timestamp) -> Vec<Fire> {
    let tz = zone(tz).unwrap();
    let prev = |before| cron.prev_before(before, &tz, dst).filter(|fire| fire.at > from);
    let just_after = until + jiff::SignedDuration::from_nanos(1);
    let mut found: Vec<Fire> = std::iter::successors(prev(just_after), |fire| prev(fire.at)).collect();
    found.reverse();
    found
}
