//! Job types that were registered: what their payloads look like, who may submit them, and their defaults.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::value::RawValue;
use tidewheel_api::wire::fault::Faults;
use tidewheel_api::wire::job_request::TargetRules;
use tidewheel_api::wire::type_request::TypeRequest;
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::limits::TENANT_TYPES_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_store::{Document, DocumentKey, Error, IfVersion};

use super::Directory;

pub(super) const KIND: &str = "job-type";

/// A type that was registered.
#[derive(Debug)]
pub(crate) struct JobType {
    pub(crate) definition: TypeRequest,
    pub(crate) version: u64,
}

/// The types of one tenant, by name.
pub(crate) type TypeBook = BTreeMap<Arc<str>, Arc<JobType>>;

/// Why a type stays as it is.
#[derive(Debug)]
pub(crate) enum TypeRefusal {
    /// The tenant has as many as it may.
    TooMany,
    /// Something else is there than was meant.
    Stale,
    Store(Error),
}

impl From<Error> for TypeRefusal {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// The books of all tenants, from what is stored; what has not changed is taken over from before.
pub(super) fn books(
    documents: Vec<Document>,
    before: &FxHashMap<Tenant, Arc<TypeBook>>,
) -> FxHashMap<Tenant, Arc<TypeBook>> {
    let mut books: FxHashMap<Tenant, TypeBook> = FxHashMap::default();
    for document in documents {
        let DocumentKey { tenant, name, .. } = &document.key;
        let known = before.get(tenant).and_then(|book| book.get(name));
        let known = known.filter(|known| known.version == document.version).cloned();
        if let Some(job_type) = known.or_else(|| read(&document).map(Arc::new)) {
            books.entry(tenant.clone()).or_default().insert(Arc::clone(name), job_type);
        }
    }
    books.into_iter().map(|(tenant, book)| (tenant, Arc::new(book))).collect()
}

fn read(document: &Document) -> Option<JobType> {
    let mut faults = Faults::default();
    let text = std::str::from_utf8(&document.bytes).unwrap_or_default();
    let definition = TypeRequest::read(text, &Stored, &mut faults).filter(|_| faults.is_empty());
    if definition.is_none() {
        let (tenant, name) = (document.key.tenant.as_str(), &*document.key.name);
        tracing::error!(tenant, name, "a registered type cannot be read and does not count");
    }
    Some(JobType { definition: definition?, version: document.version })
}

/// Targets were judged when they were set, and are again when they are connected to.
struct Stored;

impl TargetRules for Stored {
    fn check_url(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn check_method(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn check_headers(&self, _: &[(Box<str>, Box<str>)]) -> Result<(), String> {
        Ok(())
    }
}

impl Directory {
    /// What is registered for a tenant; `None` if nothing is.
    pub(crate) fn types(&self, tenant: &Tenant) -> Option<Arc<TypeBook>> {
        self.snapshot().types.get(tenant).cloned()
    }

    /// Registers a type, or replaces what is registered.
    pub(crate) async fn put_type(
        &self,
        tenant: &Tenant,
        name: &str,
        definition: &TypeRequest,
        if_version: IfVersion,
    ) -> Result<Arc<JobType>, TypeRefusal> {
        let is_full = |book: Arc<TypeBook>| book.len() >= TENANT_TYPES_COUNT_MAX && !book.contains_key(name);
        if self.types(tenant).is_some_and(is_full) {
            return Err(TypeRefusal::TooMany);
        }
        let mut out = JsonWriter::with_capacity(1_024);
        definition.write(&mut out, name);
        let corrupt = |fault: String| Error::Corrupt(fault);
        let text = String::from_utf8(out.into_bytes()).map_err(|fault| corrupt(fault.to_string()))?;
        let json = RawValue::from_string(text).map_err(|fault| corrupt(fault.to_string()))?;
        if !self.put(key_of(tenant, name), Some(&json), if_version).await? {
            return Err(TypeRefusal::Stale);
        }
        let stored = self.types(tenant).and_then(|book| book.get(name).cloned());
        stored.ok_or(TypeRefusal::Stale)
    }

    /// Forgets a type.
    pub(crate) async fn delete_type(
        &self,
        tenant: &Tenant,
        name: &str,
        if_version: IfVersion,
    ) -> Result<(), TypeRefusal> {
        let is_gone = self.put::<()>(key_of(tenant, name), None, if_version).await?;
        if is_gone { Ok(()) } else { Err(TypeRefusal::Stale) }
    }
}

fn key_of(tenant: &Tenant, name: &str) -> DocumentKey {
    DocumentKey { kind: KIND, tenant: tenant.clone(), name: Arc::from(name) }
}
