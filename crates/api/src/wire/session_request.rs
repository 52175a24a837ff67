//! Signing in.

use super::fault::{At, Code, Faults};
use super::read;
use crate::known_fields;

/// A session as it is asked for.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// The key of whoever signs in.
    pub key: String,
}

/// A key is never printed.
impl std::fmt::Debug for SessionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionRequest(…)")
    }
}

known_fields!(SessionFields { key = "key", idempotency_key = "idempotency_key" });

impl SessionRequest {
    /// Reads who signs in.
    pub fn read(text: &str, faults: &mut Faults) -> Option<Self> {
        let at = &At::ROOT;
        let fields: SessionFields<'_> = read::body(text, at, faults)?;
        let Some(field) = fields.key else {
            faults.add(
                Code::MissingField,
                &at.field("key"),
                "give the key, here or as `Authorization: Bearer twk_…`",
            );
            return None;
        };
        field.text(at, faults).map(|key| Self { key: String::from(key) })
    }
}
