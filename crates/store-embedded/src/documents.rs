//! Small documents: their bytes on disk, and reading them.
//!
//! ```text
//! key      kind | 00 | tenant | 00 | name
//! value    01 | version u64, big-endian | what the document says
//! ```

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidewheel_core::names::Tenant;
use tidewheel_store::{Document, DocumentKey, DocumentQuery, Documents, Error, IfVersion, StaleDocument};

use crate::commit::Request;
use crate::keys;
use crate::kv::{Direction, Keyspace, Snapshot};
use crate::record::Unreadable;
use crate::shared::{read_error, unreadable};
use crate::store::EmbeddedStore;

const FORMAT: u8 = 1;
const END: u8 = 0;
const NONSENSE: Unreadable = Unreadable::Nonsense("a document");

/// A document as it is on disk.
pub(crate) struct Stored {
    pub(crate) version: u64,
    pub(crate) bytes: Bytes,
}

impl Stored {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&[FORMAT], self.version.to_be_bytes().as_slice(), &self.bytes].concat()
    }

    pub(crate) fn decode(record: &[u8]) -> Result<Self, Unreadable> {
        let (format, rest) = record.split_first().ok_or(NONSENSE)?;
        if *format != FORMAT {
            return Err(Unreadable::Version(*format));
        }
        let (version, bytes) = rest.split_first_chunk::<8>().ok_or(NONSENSE)?;
        Ok(Self { version: u64::from_be_bytes(*version), bytes: Bytes::copy_from_slice(bytes) })
    }
}

/// The key of a document.
pub(crate) fn key(key: &DocumentKey) -> Vec<u8> {
    let mut bytes = prefix(key.kind, Some(&key.tenant));
    bytes.extend_from_slice(key.name.as_bytes());
    bytes
}

fn prefix(kind: &str, tenant: Option<&Tenant>) -> Vec<u8> {
    let mut bytes = [kind.as_bytes(), &[END]].concat();
    if let Some(tenant) = tenant {
        bytes.extend_from_slice(tenant.as_str().as_bytes());
        bytes.push(END);
    }
    bytes
}

/// Tenant and name in what follows the kind.
fn read_key(rest: &[u8]) -> Option<(Tenant, Arc<str>)> {
    let end = rest.iter().position(|byte| *byte == END)?;
    let (tenant, name) = rest.split_at_checked(end)?;
    let tenant = Tenant::new(std::str::from_utf8(tenant).ok()?).ok()?;
    Some((tenant, std::str::from_utf8(name.get(1..)?).ok()?.into()))
}

/// The number of the newest change, from what is noted of it.
pub(crate) fn newest_change(snapshot: &dyn Snapshot) -> Result<u64, crate::kv::KvError> {
    let noted = snapshot.get(Keyspace::Meta, keys::meta::NEWEST_DOCUMENT)?;
    Ok(noted.and_then(|bytes| <[u8; 8]>::try_from(&*bytes).ok()).map_or(0, u64::from_be_bytes))
}

pub(crate) fn list(snapshot: &dyn Snapshot, query: &DocumentQuery) -> Result<Vec<Document>, Error> {
    let kind = prefix(query.kind, None);
    let first = prefix(query.kind, query.tenant.as_ref());
    let end = keys::after_prefix(first.clone());
    let after = query
        .after
        .as_ref()
        .map(|(tenant, name)| {
            key(&DocumentKey { kind: query.kind, tenant: tenant.clone(), name: Arc::clone(name) })
        })
        .filter(|after| *after >= first);
    let from = after.as_deref().map_or(Bound::Included(&*first), Bound::Excluded);
    let (mut found, mut fault) = (Vec::new(), None);
    if query.count_max == 0 {
        return Ok(found);
    }
    let range = (from, Bound::Excluded(&*end));
    let scanned = snapshot.scan(Keyspace::Documents, range, Direction::Up, &mut |on_disk, record| {
        let named = on_disk.get(kind.len()..).and_then(read_key).ok_or(NONSENSE);
        match named.and_then(|named| Ok((named, Stored::decode(record)?))) {
            Ok(((tenant, name), Stored { version, bytes })) => {
                let key = DocumentKey { kind: query.kind, tenant, name };
                found.push(Document { key, version, bytes });
            }
            Err(nonsense) => fault = Some(nonsense),
        }
        let is_over = fault.is_some() || found.len() >= query.count_max;
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    scanned.map_err(read_error)?;
    fault.map_or(Ok(found), |fault| Err(unreadable(fault)))
}

#[async_trait]
impl Documents for EmbeddedStore {
    async fn put_document(
        &self,
        key: DocumentKey,
        bytes: Option<Bytes>,
        if_version: IfVersion,
    ) -> Result<Result<u64, StaleDocument>, Error> {
        self.request(|reply| Request::PutDocument { key, bytes, if_version, reply }).await
    }

    async fn document(&self, key: &DocumentKey) -> Result<Option<Document>, Error> {
        let key = key.clone();
        self.read(move |reader| {
            let record = reader.snapshot().get(Keyspace::Documents, &self::key(&key)).map_err(read_error)?;
            let stored = record.map(|record| Stored::decode(&record)).transpose().map_err(unreadable)?;
            Ok(stored.map(|Stored { version, bytes }| Document { key, version, bytes }))
        })
        .await
    }

    async fn documents(&self, query: DocumentQuery) -> Result<Vec<Document>, Error> {
        self.read(move |reader| list(reader.snapshot(), &query)).await
    }

    async fn newest_document_change(&self) -> Result<u64, Error> {
        self.read(|reader| newest_change(reader.snapshot()).map_err(read_error)).await
    }
}
