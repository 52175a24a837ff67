//! The seam between the store and its engine: sorted keyspaces, one atomic and durable write batch, reads of a
//! snapshot. Everything the store knows about disks goes through here, so this is where tests inject faults
//! ([`crate::faulty`]) and where another engine would be put.

use std::fmt;
use std::ops::{Bound, ControlFlow};

use bytes::Bytes;
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::time::Timestamp;

/// A UTC day, counted from 1970-01-01.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u32);

impl Day {
    /// The day `at` falls into.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        Self(u32::try_from(at.as_ms().max(0) / DAY_MS).unwrap_or(u32::MAX))
    }

    /// The first instant after it.
    #[must_use]
    pub fn end(self) -> Timestamp {
        Timestamp::from_ms((i64::from(self.0) + 1) * DAY_MS)
    }

    fn parse(text: &str) -> Option<Self> {
        let (year, rest) = text.split_at_checked(4)?;
        let (month, day) = rest.split_at_checked(2)?;
        format!("{year}-{month}-{day}T00:00:00Z").parse().ok().map(Self::of)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Timestamp::from_ms(i64::from(self.0) * DAY_MS).to_string();
        let date: String = text.chars().take_while(|c| *c != 'T').filter(char::is_ascii_digit).collect();
        f.write_str(&date)
    }
}

/// A sorted map of its own inside the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Keyspace {
    /// Jobs at their natural place, whole, and timer entries of those that were moved.
    Waiting,
    /// Records of jobs that were moved or are retried, under their natural key.
    Parked,
    /// Dead letters, under their natural key.
    Dead,
    /// Attempts under way, one record for many.
    Claims,
    /// What heartbeats changed about attempts under way.
    Leases,
    /// Format, epoch, counters, checkpoints.
    Meta,
    /// What was asked of schedules; changed by edits alone.
    Schedules,
    /// Where schedules stand; changed by every fire.
    Standings,
    /// Names of schedules.
    Names,
    /// Dates on which schedules that name them do not fire.
    Calendars,
    /// Small documents.
    Documents,
    /// Jobs that ended on this day, under their natural key.
    History(Day),
    /// Idempotency keys that run out on this day.
    Keys(Day),
    /// What was decided on this day about instants of schedules.
    Ledger(Day),
    /// The audit trail of this day.
    Audit(Day),
}

impl Keyspace {
    /// Those that are always there.
    pub const FIXED: [Self; 11] = [
        Self::Waiting,
        Self::Parked,
        Self::Dead,
        Self::Claims,
        Self::Leases,
        Self::Meta,
        Self::Schedules,
        Self::Standings,
        Self::Names,
        Self::Calendars,
        Self::Documents,
    ];

    /// Its name in the engine.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Waiting => "waiting".to_owned(),
            Self::Parked => "parked".to_owned(),
            Self::Dead => "dead".to_owned(),
            Self::Claims => "claims".to_owned(),
            Self::Leases => "leases".to_owned(),
            Self::Meta => "meta".to_owned(),
            Self::Schedules => "schedules".to_owned(),
            Self::Standings => "standings".to_owned(),
            Self::Names => "names".to_owned(),
            Self::Calendars => "calendars".to_owned(),
            Self::Documents => "documents".to_owned(),
            Self::History(day) => format!("history-{day}"),
            Self::Keys(day) => format!("keys-{day}"),
            Self::Ledger(day) => format!("ledger-{day}"),
            Self::Audit(day) => format!("audit-{day}"),
        }
    }

    /// The keyspace of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(day) = name.strip_prefix("history-") {
            return Day::parse(day).map(Self::History);
        }
        if let Some(day) = name.strip_prefix("keys-") {
            return Day::parse(day).map(Self::Keys);
        }
        if let Some(day) = name.strip_prefix("ledger-") {
            return Day::parse(day).map(Self::Ledger);
        }
        if let Some(day) = name.strip_prefix("audit-") {
            return Day::parse(day).map(Self::Audit);
        }
        Self::FIXED.into_iter().find(|keyspace| keyspace.name() == name)
    }
}

/// Bytes as the engine keeps them: what is made as such is not copied once more on its way there, and clones share it.
pub type Slice = fjall::Slice;

/// One put or delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub keyspace: Keyspace,
    /// Under which key.
    pub key: Slice,
    /// What; `None` deletes.
    pub value: Option<Slice>,
}

/// Writes that become visible and durable together. No key may occur twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch(pub Vec<Write>);

impl Batch {
    /// Adds a put.
    pub fn put(&mut self, keyspace: Keyspace, key: impl Into<Slice>, value: impl Into<Slice>) {
        self.0.push(Write { keyspace, key: key.into(), value: Some(value.into()) });
    }

    /// Adds a delete.
    pub fn delete(&mut self, keyspace: Keyspace, key: impl Into<Slice>) {
        self.0.push(Write { keyspace, key: key.into(), value: None });
    }

    /// Puts neighbours beside each other, as a commit wants them.
    pub fn sort(&mut self) {
        self.0.sort_by_key(|write| write.keyspace);
        // What one keyspace gets stands in order already, mostly, and then few keys are compared.
        for of_one in self.0.chunk_by_mut(|a, b| a.keyspace == b.keyspace) {
            of_one.sort_by(|a, b| a.key.cmp(&b.key));
        }
    }

    /// Keys and values together.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.0.iter().map(|write| write.key.len() + write.value.as_ref().map_or(0, |value| value.len())).sum()
    }
}

/// How much of a commit must be on the disk before it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// All of it.
    Synced,
    /// None of it: the operating system has it, a power cut loses it.
    Buffered,
}

/// Which way a scan walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Smallest key first.
    Up,
    /// Largest key first.
    Down,
}

/// Room on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// What went wrong in the engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// The device or the operating system said no.
    #[error("{0}")]
    Io(String),
    /// There is no room on the device.
    #[error("{0}")]
    Full(String),
    /// What was read does not match its checksum or makes no sense.
    #[error("{0}")]
    Corrupt(String),
    /// Another process has it open.
    #[error("another process has it open")]
    Locked,
}

/// Called for each entry of a scan with its key and value.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// An engine.
pub trait Kv: Send + Sync + 'static {
    /// Makes sure a keyspace exists.
    ///
    /// # Errors
    /// When the engine cannot make it.
    fn create(&self, keyspace: Keyspace) -> Result<(), KvError>;

    /// Drops a keyspace with all it holds; dropping one that is not there is no error.
    ///
    /// # Errors
    /// When the engine cannot drop it.
    fn remove(&self, keyspace: Keyspace) -> Result<(), KvError>;

    /// The keyspaces there are.
    fn keyspaces(&self) -> Vec<Keyspace>;

    /// Writes all of the batch or nothing. Readers see it only after it is as durable as asked.
    ///
    /// # Errors
    /// When it failed. Whether the batch is on the disk is then unknown, and so is what a later commit would do.
    fn commit(&self, batch: Batch, durability: Durability) -> Result<(), KvError>;

    /// The newest committed value of a key.
    ///
    /// # Errors
    /// When it cannot be read.
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError>;

    /// What is committed now, unmoved by later commits.
    fn snapshot(&self) -> Box<dyn Snapshot + '_>;

    /// Bytes taken on the device.
    ///
    /// # Errors
    /// When it cannot be measured.
    fn disk_bytes(&self) -> Result<u64, KvError>;

    /// Room on the device, if it can be known.
    fn space(&self) -> Option<Space>;

    /// Makes everything durable. Nothing is written after it.
    ///
    /// # Errors
    /// When the sync failed.
    fn close(&self) -> Result<(), KvError>;
}

/// A fixed view of an engine. Keyspaces that are not there are empty.
pub trait Snapshot {
    /// The value of a key.
    ///
    /// # Errors
    /// When it cannot be read.
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError>;

    /// Walks the keys between two bounds until `visit` breaks.
    ///
    /// # Errors
    /// When the engine cannot read on.
    fn scan(
        &self,
        keyspace: Keyspace,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), KvError>;
}

/// Whether nothing can lie between two bounds.
pub(crate) fn is_empty((from, to): (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_round_trip() {
        let day = Day::of(Timestamp::from_ms(1_796_118_896_000));
        assert_eq!(day.to_string(), "20261201");
        let dated =
            [Keyspace::History(day), Keyspace::Keys(Day(0)), Keyspace::Ledger(day), Keyspace::Audit(day)];
        for keyspace in Keyspace::FIXED.into_iter().chain(dated) {
            assert_eq!(Keyspace::from_name(&keyspace.name()), Some(keyspace));
        }
        for name in ["", "history-", "history-2026", "history-20261301", "keys-x", "other"] {
            assert_eq!(Keyspace::from_name(name), None, "{name}");
        }
    }
}
