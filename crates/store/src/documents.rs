//! Small documents: what an operator sets and many requests go by, such as tenants, keys and secrets. There are
//! thousands of them, not millions, they are read far more often than written, and readers keep them in memory.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidewheel_core::names::Tenant;

use crate::Error;

/// What a document is found under.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey {
    /// What kind of thing it is about, such as `tenant`. Lower case letters and dashes.
    pub kind: &'static str,
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name among those of its kind and tenant, 1 to 255 bytes.
    pub name: Arc<str>,
}

/// A document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// What it is found under.
    pub key: DocumentKey,
    /// The number of the change that made it what it is.
    pub version: u64,
    /// What it says; opaque to the store.
    pub bytes: Bytes,
}

/// What must be there for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfVersion {
    /// Anything, or nothing.
    Any,
    /// Nothing.
    Absent,
    /// The document of this version.
    Is(u64),
}

impl IfVersion {
    /// Whether a change may be made to what is there: the version of the document, or `None`.
    #[must_use]
    pub fn allows(self, there: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => there.is_none(),
            Self::Is(version) => there == Some(version),
        }
    }
}

/// Why a change was not made: something else is there than was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the document was changed meanwhile")]
pub struct StaleDocument {
    /// The version that is there; `None` when there is no document.
    pub version: Option<u64>,
}

/// Which documents are wanted.
#[derive(Debug, Clone)]
pub struct DocumentQuery {
    /// Of this kind …
    pub kind: &'static str,
    /// … of this tenant, or of all …
    pub tenant: Option<Tenant>,
    /// … after this tenant and name …
    pub after: Option<(Tenant, Arc<str>)>,
    /// … and at most so many.
    pub count_max: usize,
}

/// A place to keep small documents.
///
/// # Contract
/// * Changes are numbered, one number for all documents of the store, rising with every change and never used twice,
///   also over restarts. A document's version is the number of its last change, so a document that was deleted and
///   made again never has a version it had before.
/// * Every change is judged and made against the newest state, in one serial order, and is durable when answered.
/// * A call that fails may or may not have taken effect.
#[async_trait]
pub trait Documents: Send + Sync + 'static {
    /// Stores a document, or deletes it with `None`. Answers with the number of the change; deleting what is not there
    /// changes nothing, and answers with the number of the newest change.
    async fn put_document(
        &self,
        key: DocumentKey,
        bytes: Option<Bytes>,
        if_version: IfVersion,
    ) -> Result<Result<u64, StaleDocument>, Error>;

    /// The document under a key.
    async fn document(&self, key: &DocumentKey) -> Result<Option<Document>, Error>;

    /// Documents by tenant and name, in the order of their bytes. Fewer than asked for means that there are no more.
    async fn documents(&self, query: DocumentQuery) -> Result<Vec<Document>, Error>;

    /// The number of the newest change, 0 in a new store. Cheap: nodes ask for it again and again, to learn that
    /// another node has changed something.
    async fn newest_document_change(&self) -> Result<u64, Error>;
}
