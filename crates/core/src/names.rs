//! What tenants, queues, job types, workers and idempotency keys may look like. Names end up in keys, headers,
//! metrics and logs, so they are held to characters that are harmless in all of them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use xxhash_rust::xxh3::xxh3_64;

use crate::limits::{
    IDEMPOTENCY_KEY_CHARS_MAX, QUEUE_BYTES_MAX, TENANT_BYTES_MAX, TYPE_BYTES_MAX, WORKER_BYTES_MAX,
};

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Nothing there.
    #[error("{what} must not be empty")]
    Empty {
        /// What the name was for.
        what: &'static str,
    },
    /// Longer than its limit.
    #[error("{what} has {given} {unit}; at most {max} are allowed")]
    TooLong {
        /// What the name was for.
        what: &'static str,
        /// Its length.
        given: usize,
        /// Its limit.
        max: usize,
        /// What was counted.
        unit: &'static str,
    },
    /// A character outside the allowed set.
    #[error("{what} has the character {found:?} at position {position}; allowed are {allowed}")]
    Character {
        /// What the name was for.
        what: &'static str,
        /// The first offender.
        found: char,
        /// Where it stands, counted in characters from 0.
        position: usize,
        /// The allowed set, in words.
        allowed: &'static str,
    },
}

/// Who a job belongs to.
#[derive(Clone)]
pub struct Tenant {
    name: Arc<str>,
    digest: u64,
}

impl Tenant {
    /// The tenant of a server that runs without keys.
    pub const DEFAULT: &'static str = "default";

    /// A tenant of that name.
    ///
    /// # Errors
    /// When the name is empty, too long, or has a character outside letters, digits and `. _ : @ -`.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        plain_name("the tenant", name, TENANT_BYTES_MAX)?;
        Ok(Self::named(name))
    }

    fn named(name: &str) -> Self {
        Self { name: Arc::from(name), digest: xxh3_64(name.as_bytes()) }
    }

    /// A number that follows from the name. Stable for ever: shards go by it.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The same, in memory of its own. Clones count references to a name; threads that clone at the same time get in each
    /// other's way less when they do not all count the same one.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { name: Arc::from(&*self.name), digest: self.digest }
    }

    /// The name, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }
}

impl Default for Tenant {
    /// Nearly every call on a server without keys is for this one: its name is made once.
    fn default() -> Self {
        static TENANT: LazyLock<Tenant> = LazyLock::new(|| Tenant::named(Tenant::DEFAULT));
        TENANT.clone()
    }
}

impl PartialEq for Tenant {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.name == other.name
    }
}

impl Eq for Tenant {}

impl PartialOrd for Tenant {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Tenant {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl Hash for Tenant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Checks the name of a queue.
///
/// # Errors
/// As [`Tenant::new`], with the queue's own limit.
pub fn check_queue(name: &str) -> Result<(), InvalidName> {
    plain_name("the queue", name, QUEUE_BYTES_MAX)
}

/// Checks the name of a worker.
///
/// # Errors
/// As [`check_type`], with the worker's own limit.
pub fn check_worker(name: &str) -> Result<(), InvalidName> {
    visible_name("the worker", name, WORKER_BYTES_MAX)
}

/// Checks the name of a job type.
///
/// # Errors
/// When it is empty, too long, or has a character that is not visible ASCII.
pub fn check_type(name: &str) -> Result<(), InvalidName> {
    visible_name("the type", name, TYPE_BYTES_MAX)
}

/// Checks an idempotency key: any visible text.
///
/// # Errors
/// When it is empty, too long, or has a control character.
pub fn check_idempotency_key(key: &str) -> Result<(), InvalidName> {
    const WHAT: &str = "the idempotency key";
    if key.is_empty() {
        return Err(InvalidName::Empty { what: WHAT });
    }
    let given = key.chars().count();
    if given > IDEMPOTENCY_KEY_CHARS_MAX {
        return Err(InvalidName::TooLong {
            what: WHAT,
            given,
            max: IDEMPOTENCY_KEY_CHARS_MAX,
            unit: "characters",
        });
    }
    all_characters(WHAT, key, "any but control characters", |c| !c.is_control())
}

pub(crate) fn plain_name(what: &'static str, name: &str, max: usize) -> Result<(), InvalidName> {
    length(what, name, max)?;
    all_characters(what, name, "letters, digits and . _ : @ -", |c| {
        c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '@' | '-')
    })
}

fn visible_name(what: &'static str, name: &str, max: usize) -> Result<(), InvalidName> {
    length(what, name, max)?;
    all_characters(what, name, "visible ASCII characters", |c| c.is_ascii_graphic())
}

fn length(what: &'static str, name: &str, max: usize) -> Result<(), InvalidName> {
    match name.len() {
        0 => Err(InvalidName::Empty { what }),
        given if given > max => Err(InvalidName::TooLong { what, given, max, unit: "bytes" }),
        _ => Ok(()),
    }
}

fn all_characters(
    what: &'static str,
    name: &str,
    allowed: &'static str,
    ok: impl Fn(char) -> bool,
) -> Result<(), InvalidName> {
    match name.chars().enumerate().find(|(_, c)| !ok(*c)) {
        None => Ok(()),
        Some((position, found)) => Err(InvalidName::Character { what, found, position, allowed }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_their_limits() {
        assert!(Tenant::new(&"t".repeat(TENANT_BYTES_MAX)).is_ok());
        assert!(Tenant::new(&"t".repeat(TENANT_BYTES_MAX + 1)).is_err());
        assert!(check_type(&"t".repeat(TYPE_BYTES_MAX)).is_ok());
        assert!(check_type(&"t".repeat(TYPE_BYTES_MAX + 1)).is_err());
        assert!(check_idempotency_key(&"é".repeat(IDEMPOTENCY_KEY_CHARS_MAX)).is_ok());
        assert!(check_idempotency_key(&"é".repeat(IDEMPOTENCY_KEY_CHARS_MAX + 1)).is_err());
    }

    #[test]
    fn hostile_names_are_refused_with_the_place() {
        for name in ["", "a\0b", "a b", "a/b", "ü", "a\r\nX: y", "'; --"] {
            assert!(Tenant::new(name).is_err(), "{name:?}");
        }
        let error = check_type("mail\r\nX: y").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the type has the character '\\r' at position 4; allowed are visible ASCII characters"
        );
        assert!(check_idempotency_key("a\nb").is_err());
    }
}
