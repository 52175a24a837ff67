//! Who may submit a job type: keys by their ids, and roles. An admin always may, who could change the list as well.

use super::{Identity, forbidden};
use crate::http::Problem;

impl Identity {
    /// Whether it is among those who may submit jobs of this type.
    pub(crate) fn check_submitter(&self, kind: &str, submitters: &[Box<str>]) -> Result<(), Problem> {
        let is_named = match self {
            Self::Anyone => true,
            Self::Key(key) => submitters
                .iter()
                .any(|named| **named == *key.id || key.roles.iter().any(|role| role.as_str() == &**named)),
        };
        if is_named || self.is_admin() {
            return Ok(());
        }
        Err(forbidden(format!("the key is not among those that may submit jobs of type {kind:?}")))
    }
}
