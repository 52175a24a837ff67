//! The audit trail: records in chains, one chain to a shard. Each record names the hash of the one before it, so none
//! can be changed, taken out or put in without breaking the chain from there on.
//!
//! | file | what it holds |
//! |---|---|
//! | `changes` | the changes of many jobs, packed into one record |
//! | `digest` | hashes, as bytes and as text |
//! | `walk` | going along chains and finding where one is broken |
//!
//! A record's hash is SHA-256 over these bytes, numbers big-endian:
//!
//! ```text
//! previous hash (32) | chain u16 | number u64 | time in ms i64 | kind u8 (0 act, 1 changes) | content
//! ```

mod changes;
mod digest;
mod walk;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

pub use changes::{Change, Changes, Packed, Step, Unpackable};
pub use digest::{Digest, NoDigest};
pub use walk::{Broken, Walk};

use crate::names::Tenant;
use crate::place::Shard;
use crate::time::Timestamp;

/// Which chain: the number of a shard.
pub type Chain = u16;

/// The chain that what concerns a tenant goes to.
#[must_use]
pub fn chain_of(tenant: &Tenant, shards: u16) -> Chain {
    Shard::of(tenant, shards).0
}

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Something somebody asked for.
    Act,
    /// Changes of jobs, as they were stored.
    Changes,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Act, Self::Changes];

    /// Its number in a record.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The kind of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Act => "act",
            Self::Changes => "changes",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// A link of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its chain.
    pub chain: Chain,
    /// Its number in the chain, from 1.
    pub seq: u64,
    /// When; never earlier than the record before it.
    pub at: Timestamp,
    /// What it is about.
    pub kind: Kind,
    /// What it says.
    pub content: Bytes,
    /// The hash of the record before it.
    pub previous: Digest,
    /// Its own hash, as it is stored.
    pub hash: Digest,
}

impl Record {
    /// Where it stands among all records.
    #[must_use]
    pub const fn place(&self) -> Place {
        Place { at: self.at, chain: self.chain, seq: self.seq }
    }

    /// Whether its hash is that of what it says.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let Self { chain, seq, at, kind, content, previous, hash } = self;
        digest(*previous, *chain, *seq, *at, *kind, content) == *hash
    }
}

/// Where a record stands among those of all chains: by time, then by chain, then by number. Within a chain this is
/// the order of its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When.
    pub at: Timestamp,
    /// In which chain.
    pub chain: Chain,
    /// Its number there.
    pub seq: u64,
}

/// One end of a chain: a record, or the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The record's number; 0 before the first.
    pub seq: u64,
    /// Its time.
    pub at: Timestamp,
    /// Its hash.
    pub hash: Digest,
}

impl Link {
    /// Before the first record.
    pub const START: Self = Self { seq: 0, at: Timestamp::from_ms(0), hash: Digest::ZERO };

    /// Adds a record behind this one, and moves on to it. A clock that went back does not take the chain back.
    #[must_use]
    pub fn append(&mut self, chain: Chain, now: Timestamp, kind: Kind, content: Bytes) -> Record {
        let (previous, seq, at) = (self.hash, self.seq + 1, self.at.max(now));
        let hash = digest(previous, chain, seq, at, kind, &content);
        *self = Self { seq, at, hash };
        Record { chain, seq, at, kind, content, previous, hash }
    }
}

/// A chain's two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainEnds {
    /// Which.
    pub chain: Chain,
    /// The last record that was dropped for its age, or the beginning: what the first one kept is linked to.
    pub anchor: Link,
    /// The newest record.
    pub head: Link,
}

fn digest(previous: Digest, chain: Chain, seq: u64, at: Timestamp, kind: Kind, content: &[u8]) -> Digest {
    let mut sha = Sha256::new();
    sha.update(previous.0);
    sha.update(chain.to_be_bytes());
    sha.update(seq.to_be_bytes());
    sha.update(at.as_ms().to_be_bytes());
    sha.update([kind.number()]);
    sha.update(content);
    Digest(sha.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_sound_until_anything_of_it_changes() {
        let mut head = Link::START;
        let first = head.append(3, Timestamp::from_ms(10), Kind::Act, Bytes::from_static(b"a"));
        let second = head.append(3, Timestamp::from_ms(5), Kind::Changes, Bytes::from_static(b"b"));
        assert!(first.is_sound() && second.is_sound());
        assert_eq!(
            (second.seq, second.previous, second.at),
            (2, first.hash, first.at),
            "time does not go back"
        );
        assert_eq!((head.seq, head.hash), (2, second.hash));
        let altered = [
            Record { chain: 4, ..second.clone() },
            Record { seq: 3, ..second.clone() },
            Record { at: Timestamp::from_ms(11), ..second.clone() },
            Record { kind: Kind::Act, ..second.clone() },
            Record { content: Bytes::from_static(b"c"), ..second.clone() },
            Record { previous: Digest::ZERO, ..second.clone() },
        ];
        assert!(altered.iter().all(|record| !record.is_sound()));
    }

    /// Stored chains outlive the program: what a hash is made of must not change.
    #[test]
    fn the_hash_of_a_record_stays_what_it_is() {
        let mut head = Link::START;
        let record =
            head.append(1, Timestamp::from_ms(1_796_118_896_000), Kind::Act, Bytes::from_static(b"{}"));
        assert_eq!(
            record.hash.to_string(),
            "5ff7f8645b37726263e83e03b46146d80b2dc9b6c8ce7df0f8cc8cf0d52a87e1"
        );
    }
}
