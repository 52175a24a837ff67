//! Small records: a version byte, then postcard.

use serde::{Deserialize, Serialize};

use crate::append::append;
use crate::record::Unreadable;

const VERSION: u8 = 1;

pub(crate) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    append(record, vec![VERSION])
}

/// Adds one of many to what is to be a record of them ([`encode_many`]).
pub(crate) fn append_one<T: Serialize>(one: &T, bytes: &mut Vec<u8>) {
    *bytes = append(one, std::mem::take(bytes));
}

/// A record of so many, as of a vector of them.
pub(crate) fn encode_many(count: usize, each: &[u8]) -> Vec<u8> {
    const HEAD_BYTES_MAX: usize = 16;
    let mut bytes = Vec::with_capacity(HEAD_BYTES_MAX + each.len());
    bytes.push(VERSION);
    let mut bytes = append(&count, bytes);
    bytes.extend_from_slice(each);
    bytes
}

/// Reads a record; `nonsense` says what it was meant to be when it cannot be read.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8], nonsense: Unreadable) -> Result<T, Unreadable> {
    match bytes {
        [VERSION, rest @ ..] => postcard::from_bytes(rest).map_err(|_| nonsense),
        [version, ..] => Err(Unreadable::Version(*version)),
        [] => Err(nonsense),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_that_were_added_one_by_one_are_a_record_of_a_vector() {
        for count in [0_usize, 1, 127, 128, 300] {
            let all: Vec<(u64, String)> = (0_u64..).map(|n| (n * n, n.to_string())).take(count).collect();
            let mut bytes = Vec::new();
            all.iter().for_each(|one| append_one(one, &mut bytes));
            assert_eq!(encode_many(count, &bytes), encode(&all));
        }
    }
}
