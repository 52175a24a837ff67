//! Remembers, beside the journal, the newest group that was synced, so that a journal whose end has gone missing
//! is noticed on opening instead of losing what was acknowledged.
//!
//! The file `synced` holds the group's number and a checksum of it. It is written after the sync and not itself
//! synced: when a process dies it is exact, after a power cut it may be older than the journal, never newer.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

const FILE: &str = "synced";

pub(crate) struct Mark {
    file: File,
    noted: u64,
    group: AtomicU64,
}

impl Mark {
    pub(crate) fn open(folder: &Path) -> std::io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(folder.join(FILE))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Self { file, noted: parse(&bytes), group: AtomicU64::new(0) })
    }

    /// Goes on from the newest group found in the journal.
    pub(crate) fn resume_at(&self, found: u64) -> Result<(), String> {
        if found < self.noted {
            return Err(format!(
                "group commits {} to {} were acknowledged and are missing: the journal is truncated, or the folder \
                 is an incomplete copy. Restore the folder from a backup; or, to go on without what is missing, \
                 remove the file {FILE:?} in it",
                found + 1,
                self.noted
            ));
        }
        self.group.store(found, Ordering::Relaxed);
        Ok(())
    }

    /// The number of the next group.
    pub(crate) fn next(&self) -> u64 {
        self.group.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a group was synced.
    pub(crate) fn note(&self, group: u64) -> std::io::Result<()> {
        self.file.write_all_at(&encode(group), 0)
    }
}

/// The newest group noted in a folder; 0 when there is none.
pub(crate) fn noted(folder: &Path) -> u64 {
    std::fs::read(folder.join(FILE)).map_or(0, |bytes| parse(&bytes))
}

fn encode(group: u64) -> [u8; 16] {
    let group = group.to_be_bytes();
    let check = xxh3_64(&group).to_be_bytes();
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(group.into_iter().chain(check)) {
        *to = from;
    }
    bytes
}

/// A torn mark counts as none: it is a second opinion, not the truth.
fn parse(bytes: &[u8]) -> u64 {
    let Some((group, _)) = bytes.split_first_chunk::<8>() else { return 0 };
    let group = u64::from_be_bytes(*group);
    if encode(group) == bytes { group } else { 0 }
}
