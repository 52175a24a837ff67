//! Idempotency keys on disk: in the keyspace of the day they run out, so that they are dropped by the day.

use bytes::Bytes;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::Error;

use crate::commit::Pointer;
use crate::keys;
use crate::kv::{Day, Keyspace};
use crate::record::Unreadable;
use crate::shared::{Days, unreadable};
use crate::versioned;

/// What a key points at, if its time is not over.
pub(crate) fn find(
    get: impl Fn(Keyspace, &[u8]) -> Result<Option<Bytes>, Error>,
    days: &Days,
    now: Timestamp,
    tenant: &Tenant,
    key: &str,
) -> Result<Option<Pointer>, Error> {
    let name = keys::idempotency(tenant, key);
    for day in days.keys.range(Day::of(now)..) {
        let Some(bytes) = get(Keyspace::Keys(*day), &name)? else { continue };
        let pointer: Pointer =
            versioned::decode(&bytes, Unreadable::Nonsense("an idempotency key")).map_err(unreadable)?;
        if now < pointer.until() {
            return Ok(Some(pointer));
        }
    }
    Ok(None)
}

pub(crate) fn encode(pointer: &Pointer) -> Vec<u8> {
    versioned::encode(pointer)
}
