//! The model's documents.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidewheel_core::names::Tenant;

use super::{Call, MemoryStore};
use tidewheel_store::{Document, DocumentKey, DocumentQuery, Documents, Error, IfVersion, StaleDocument};

/// The documents and the number of their newest change.
#[derive(Default)]
pub(super) struct Shelf {
    documents: BTreeMap<(&'static str, Tenant, Arc<str>), (u64, Bytes)>,
    newest: u64,
}

impl Shelf {
    fn put(
        &mut self,
        key: DocumentKey,
        bytes: Option<Bytes>,
        if_version: IfVersion,
    ) -> Result<u64, StaleDocument> {
        let key = (key.kind, key.tenant, key.name);
        let there = self.documents.get(&key).map(|(version, _)| *version);
        if !if_version.allows(there) {
            return Err(StaleDocument { version: there });
        }
        if there.is_some() || bytes.is_some() {
            self.newest += 1;
        }
        match bytes {
            Some(bytes) => drop(self.documents.insert(key, (self.newest, bytes))),
            None => drop(self.documents.remove(&key)),
        }
        Ok(self.newest)
    }

    fn get(&self, key: &DocumentKey) -> Option<Document> {
        let found = self.documents.get(&(key.kind, key.tenant.clone(), Arc::clone(&key.name)));
        found.map(|(version, bytes)| Document { key: key.clone(), version: *version, bytes: bytes.clone() })
    }

    fn list(&self, query: &DocumentQuery) -> Vec<Document> {
        let wanted = |(kind, tenant, name): &(&'static str, Tenant, Arc<str>)| {
            *kind == query.kind
                && query.tenant.as_ref().is_none_or(|only| only == tenant)
                && query.after.as_ref().is_none_or(|(after, last)| (tenant, name) > (after, last))
        };
        let found = self.documents.iter().filter(|(key, _)| wanted(key)).take(query.count_max);
        let whole = found.map(|((kind, tenant, name), (version, bytes))| Document {
            key: DocumentKey { kind, tenant: tenant.clone(), name: Arc::clone(name) },
            version: *version,
            bytes: bytes.clone(),
        });
        whole.collect()
    }
}

#[async_trait]
impl Documents for MemoryStore {
    async fn put_document(
        &self,
        key: DocumentKey,
        bytes: Option<Bytes>,
        if_version: IfVersion,
    ) -> Result<Result<u64, StaleDocument>, Error> {
        self.call(Call::PutDocument, |tables| Ok(tables.shelf.put(key, bytes, if_version))).await
    }

    async fn document(&self, key: &DocumentKey) -> Result<Option<Document>, Error> {
        self.call(Call::Document, |tables| Ok(tables.shelf.get(key))).await
    }

    async fn documents(&self, query: DocumentQuery) -> Result<Vec<Document>, Error> {
        self.call(Call::Documents, |tables| Ok(tables.shelf.list(&query))).await
    }

    async fn newest_document_change(&self) -> Result<u64, Error> {
        self.call(Call::NewestDocumentChange, |tables| Ok(tables.shelf.newest)).await
    }
}
