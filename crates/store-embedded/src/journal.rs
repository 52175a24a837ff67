//! Looks at the engine's journals before the engine does. The engine cuts a journal off at the first place it
//! cannot read, which is right for a write that was torn by a crash and wrong for damage to what was
//! acknowledged. Groups are written one after the other, each only after the one before it was synced, so the
//! two can be told apart: damage is a torn write only if no intact group follows it and the group before it is
//! at least the newest one noted as synced ([`crate::mark`]). Everything else is refused, and nothing is changed.
//!
//! A journal is a row of batches: `01 | items u32 | seqno u64`, then per item
//! `02 | kind u8 | compression u8 | keyspace u64 | key length u16 | value length u32 | stored length u32 | key |
//! value` or `04 | keyspace u64`, then `03 | xxh3 of the items u64 | "FJL" 03`; numbers are little-endian. Zeros
//! fill the rest of the file.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::kv::KvError;
use crate::{keys, mark};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const END_MAGIC: &[u8] = b"FJL\x03";
const ITEM_HEAD_BYTES: usize = 21;

/// Refuses a folder in which opening would drop acknowledged groups.
pub(crate) fn check(folder: &Path) -> Result<(), KvError> {
    let noted = mark::noted(folder);
    let mut group = None;
    let journals = journals(folder)?;
    for (index, path) in journals.iter().enumerate() {
        let bytes = std::fs::read(path).map_err(|error| KvError::Io(error.to_string()))?;
        let (valid, newest) = read(&bytes, 0);
        group = newest.or(group);
        let rest = bytes.get(valid..).unwrap_or_default();
        if rest.iter().all(|byte| *byte == 0) {
            continue;
        }
        let is_last = index + 1 == journals.len();
        let acknowledged = !is_last || group.is_some_and(|group| group < noted) || follows(&bytes, valid);
        if acknowledged {
            return Err(KvError::Corrupt(format!(
                "{} is damaged at byte {valid}, in what was acknowledged. Nothing was changed: restore the folder \
                 from a backup, or cut the file off there by hand to give up what follows",
                path.display(),
            )));
        }
        tracing::warn!(
            journal = %path.display(), at_byte = valid, dropped_bytes = used(rest),
            "the last write before the stop was torn and never acknowledged; it is dropped"
        );
    }
    Ok(())
}

fn journals(folder: &Path) -> Result<Vec<PathBuf>, KvError> {
    let entries = std::fs::read_dir(folder).map_err(|error| KvError::Io(error.to_string()))?;
    let number = |path: &Path| {
        (path.extension()? == "jnl").then_some(())?;
        path.file_stem()?.to_str()?.parse::<u64>().ok()
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((number(&path)?, path))
        })
        .collect();
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Reads batches from `at` on: where the last intact one ends, and the newest group number among them.
fn read(bytes: &[u8], mut at: usize) -> (usize, Option<u64>) {
    let mut newest = None;
    while let Some((length, group)) = bytes.get(at..).and_then(batch) {
        at += length;
        newest = group.or(newest);
    }
    (at, newest)
}

/// Whether an intact batch stands somewhere after `at`.
fn follows(bytes: &[u8], at: usize) -> bool {
    let rest = bytes.get(at + 1..).unwrap_or_default();
    let rest = rest.get(..used(rest)).unwrap_or_default();
    let starts = rest.iter().enumerate().filter(|(_, byte)| **byte == START);
    starts.filter_map(|(start, _)| rest.get(start..)).any(|candidate| batch(candidate).is_some())
}

/// Bytes before the zeros at the end.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// The length of the batch `bytes` begin with, if it is intact, and its group number.
fn batch(bytes: &[u8]) -> Option<(usize, Option<u64>)> {
    let (head, mut rest) = bytes.split_at_checked(13)?;
    let [START, a, b, c, d, ..] = *head else { return None };
    let count = u32::from_le_bytes([a, b, c, d]);
    let items = rest;
    let mut group = None;
    for _ in 0..count {
        let length = match *rest.first()? {
            ITEM => {
                let (length, key, value) = item(rest)?;
                if key == keys::meta::GROUP {
                    group = <[u8; 8]>::try_from(value).ok().map(u64::from_be_bytes);
                }
                length
            }
            CLEAR => 9,
            _ => return None,
        };
        rest = rest.get(length..)?;
    }
    let items = items.get(..items.len() - rest.len())?;
    let (end, _) = rest.split_at_checked(9 + END_MAGIC.len())?;
    let (tag, end) = end.split_first()?;
    let (sum, magic) = end.split_first_chunk::<8>()?;
    let intact = *tag == END && magic == END_MAGIC && xxh3_64(items) == u64::from_le_bytes(*sum);
    intact.then_some((13 + items.len() + 9 + END_MAGIC.len(), group))
}

/// The length of the item `bytes` begin with, its key and its stored value.
fn item(bytes: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    // tag, kind, compression, keyspace
    let lengths = bytes.get(11..)?;
    let (key, lengths) = lengths.split_first_chunk::<2>()?;
    let (_, lengths) = lengths.split_first_chunk::<4>()?;
    let (stored, rest) = lengths.split_first_chunk::<4>()?;
    let key = usize::from(u16::from_le_bytes(*key));
    let stored = usize::try_from(u32::from_le_bytes(*stored)).ok()?;
    let (key_bytes, rest) = rest.split_at_checked(key)?;
    let (value, _) = rest.split_at_checked(stored)?;
    Some((ITEM_HEAD_BYTES + key + stored, key_bytes, value))
}
