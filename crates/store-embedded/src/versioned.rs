//! Small records: a version byte, then postcard.

use serde::{Deserialize, Serialize};

use crate::record::Unreadable;

const VERSION: u8 = 1;

pub(crate) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    postcard::to_extend(record, vec![VERSION]).unwrap_or_default()
}

/// Reads a record; `nonsense` says what it was meant to be when it cannot be read.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8], nonsense: Unreadable) -> Result<T, Unreadable> {
    match bytes {
        [VERSION, rest @ ..] => postcard::from_bytes(rest).map_err(|_| nonsense),
        [version, ..] => Err(Unreadable::Version(*version)),
        [] => Err(nonsense),
    }
}
