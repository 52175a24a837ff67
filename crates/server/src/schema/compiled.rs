//! Compiled schemas, by the version of the document they are in. No two documents ever have the same version, so what
//! is kept is never out of date.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tidewheel_core::limits::SCHEMAS_COMPILED_COUNT_MAX;

use super::{Flaw, Schema};

/// Compiled schemas.
#[derive(Debug, Default)]
pub(crate) struct CompiledSchemas {
    by_version: Mutex<FxHashMap<u64, Arc<Schema>>>,
}

impl CompiledSchemas {
    /// The schema of a document's version, which says `text`.
    pub(crate) fn get(&self, version: u64, text: &str) -> Result<Arc<Schema>, Flaw> {
        let lock = || self.by_version.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = lock().get(&version) {
            return Ok(Arc::clone(schema));
        }
        let schema = Arc::new(Schema::compile(text)?);
        let mut by_version = lock();
        if by_version.len() >= SCHEMAS_COMPILED_COUNT_MAX {
            // Those in use are compiled again soon enough, and old versions never are.
            by_version.clear();
        }
        by_version.insert(version, Arc::clone(&schema));
        Ok(schema)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.by_version.lock().unwrap().len()
    }
}
