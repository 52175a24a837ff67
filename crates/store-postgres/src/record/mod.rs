//! What is kept as bytes: the parts of jobs, schedules and ledgers that no statement looks into. Each is a version
//! byte, then postcard, in the order of the fields. A job that was submitted in a trace has that before the rest, under a
//! version of its own; all others are as they were before there were traces.

pub(crate) mod definition;
pub(crate) mod entry;
pub(crate) mod rule;
pub(crate) mod schedule;
pub(crate) mod spec;
pub(crate) mod status;

use serde::{Deserialize, Serialize};
use tidewheel_store::Error;

const VERSION: u8 = 1;
/// A record of the first version, with a part before it.
const VERSION_MORE: u8 = 2;

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("a record of version {0}; this program knows version {VERSION}, a newer one may know more")]
    Version(u8),
    #[error("a record that does not make sense ({0})")]
    Nonsense(&'static str),
    #[error("a schedule in the zone {0}, which the time zone database of this program does not have")]
    Zone(Box<str>),
}

impl From<Unreadable> for Error {
    fn from(unreadable: Unreadable) -> Self {
        Self::Corrupt(unreadable.to_string())
    }
}

/// Writing plain structs into memory cannot fail; an empty record would be refused on reading all the same.
pub(crate) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    postcard::to_extend(record, vec![VERSION]).unwrap_or_default()
}

/// Reads a record; `what` says what it was meant to be when it cannot be read.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8], what: &'static str) -> Result<T, Unreadable> {
    match bytes {
        [VERSION, rest @ ..] => postcard::from_bytes(rest).map_err(|_| Unreadable::Nonsense(what)),
        [version, ..] => Err(Unreadable::Version(*version)),
        [] => Err(Unreadable::Nonsense(what)),
    }
}

/// Writes a record that has more to say than those of the first version: that comes before the rest.
fn encode_more<M: Serialize, T: Serialize>(more: &M, record: &T) -> Vec<u8> {
    let bytes = postcard::to_extend(more, vec![VERSION_MORE]).unwrap_or_default();
    postcard::to_extend(record, bytes).unwrap_or_default()
}

/// Reads a record that may have more to say.
fn decode_more<'a, M: Deserialize<'a>, T: Deserialize<'a>>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<(Option<M>, T), Unreadable> {
    match bytes {
        [VERSION_MORE, rest @ ..] => {
            let (more, rest) = postcard::take_from_bytes(rest).map_err(|_| Unreadable::Nonsense(what))?;
            Ok((Some(more), postcard::from_bytes(rest).map_err(|_| Unreadable::Nonsense(what))?))
        }
        _ => decode(bytes, what).map(|record| (None, record)),
    }
}

/// The item with that number.
fn nth<T: Copy>(all: &[T], number: u8, what: &'static str) -> Result<T, Unreadable> {
    all.get(usize::from(number)).copied().ok_or(Unreadable::Nonsense(what))
}

fn borrowed(pairs: &[(Box<str>, Box<str>)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (&**name, &**value)).collect()
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(Box<str>, Box<str>)> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}
