//! Sessions of the web pages. One is signed and carries its own beginning, so that every node knows it without having
//! heard of it and none is stored; what is stored is which were ended before their time, one document for each key.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewheel_core::limits::{SESSION_ENDS_COUNT_MAX, SESSION_MS};
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{DocumentKey, Error, IfVersion};

use super::{ApiKey, Directory, TRIES_MAX, fresh_secret};

pub(super) const KIND: &str = "session-ends";
/// What sessions are signed with is made from the root secret under this name, which no tenant can have.
const SECRET_NAME: &str = "\0sessions";
const SECRET_CONTEXT: &str = "tidewheel 2026 sessions of the web pages";

/// A key, by its tenant and its id.
pub(super) type OfKey = (Tenant, Arc<str>);

/// The sessions of one key that were ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Ends {
    /// All that began then or before have ended.
    #[serde(default)]
    until_ms: i64,
    /// Others that have, and when they began; the longest ago first.
    #[serde(default)]
    ended: Vec<(String, i64)>,
}

impl Ends {
    fn has(&self, nonce: &str, began_ms: i64) -> bool {
        began_ms <= self.until_ms || self.ended.iter().any(|(ended, _)| ended == nonce)
    }

    fn add(&mut self, nonce: &str, began_ms: i64, now: Timestamp) {
        // What would be over by now need not be remembered.
        self.until_ms = self.until_ms.max(now.plus_ms(-SESSION_MS).as_ms());
        self.ended.push((nonce.to_owned(), began_ms));
        self.ended.sort_by_key(|(_, began_ms)| *began_ms);
        let beyond = self.ended.len().saturating_sub(SESSION_ENDS_COUNT_MAX);
        if let Some((_, began_ms)) = self.ended.drain(..beyond).next_back() {
            self.until_ms = self.until_ms.max(began_ms);
        }
        let until_ms = self.until_ms;
        self.ended.retain(|(_, began_ms)| *began_ms > until_ms);
    }
}

impl Directory {
    /// What sessions are signed with; all nodes have the same.
    pub(crate) fn session_secret(&self) -> [u8; 32] {
        blake3::derive_key(SECRET_CONTEXT, self.root.derive(SECRET_NAME).reveal().as_bytes())
    }

    /// What tells a new session from others.
    pub(crate) fn session_nonce() -> Result<u128, Error> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = fresh_secret()?;
        Ok(u128::from_be_bytes([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]))
    }

    /// Whether a session was ended before its time.
    pub(crate) fn is_session_ended(&self, key: &ApiKey, nonce: &str, began_ms: i64) -> bool {
        let of_key = (key.tenant.clone(), Arc::from(&*key.id));
        self.snapshot().session_ends.get(&of_key).is_some_and(|ends| ends.has(nonce, began_ms))
    }

    /// Ends a session before its time: here at once, at other nodes within seconds.
    pub(crate) async fn end_session(&self, key: &ApiKey, nonce: &str, began_ms: i64) -> Result<(), Error> {
        let name = Arc::from(&*key.id);
        let place = DocumentKey { kind: KIND, tenant: key.tenant.clone(), name };
        for _ in 0..TRIES_MAX {
            let document = self.store.document(&place).await?;
            let if_version =
                document.as_ref().map_or(IfVersion::Absent, |document| IfVersion::Is(document.version));
            let mut ends: Ends = document.as_ref().and_then(super::read).unwrap_or_default();
            if ends.has(nonce, began_ms) {
                return Ok(());
            }
            ends.add(nonce, began_ms, self.clock.now());
            if self.put(place.clone(), Some(&ends), if_version).await? {
                return Ok(());
            }
        }
        Err(Error::Unavailable("many sessions of this key are being ended; try again".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_ended_sessions_is_bounded_and_none_comes_back() {
        let now = Timestamp::from_ms(1_700_000_000_000);
        let mut ends = Ends::default();
        let began = |n: usize| now.as_ms() - 10_000 + i64::try_from(n).unwrap();
        for n in 0..3 * SESSION_ENDS_COUNT_MAX {
            ends.add(&n.to_string(), began(n), now);
            assert!(ends.ended.len() <= SESSION_ENDS_COUNT_MAX);
        }
        for n in 0..3 * SESSION_ENDS_COUNT_MAX {
            assert!(ends.has(&n.to_string(), began(n)), "{n}");
        }
        assert!(!ends.has("another", now.as_ms()));
        let later = now.plus_ms(2 * SESSION_MS);
        ends.add("last", later.as_ms(), later);
        assert_eq!(ends.ended.len(), 1, "those that are over by themselves are forgotten");
    }
}
