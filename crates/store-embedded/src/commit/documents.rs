//! Small documents in a group: what its requests have done to them so far.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidewheel_store::{DocumentKey, Error, IfVersion, StaleDocument};

use super::Committer;
use super::group::Group;
use crate::documents::{self, Stored};
use crate::keys;
use crate::kv::{Batch, Keyspace};
use crate::shared::{read_error, unreadable};

/// What becomes of a change.
pub(crate) type Put = Result<u64, StaleDocument>;

/// Documents a group has changed, under their keys on disk; `None` for those it deleted.
#[derive(Default)]
pub(super) struct DocumentChanges(BTreeMap<Vec<u8>, Option<Stored>>);

impl DocumentChanges {
    pub(super) fn write(self, batch: &mut Batch, newest: u64) {
        if self.0.is_empty() {
            return;
        }
        batch.put(Keyspace::Meta, keys::meta::NEWEST_DOCUMENT.to_vec(), newest.to_be_bytes().to_vec());
        for (key, stored) in self.0 {
            match stored {
                Some(stored) => batch.put(Keyspace::Documents, key, stored.encode()),
                None => batch.delete(Keyspace::Documents, key),
            }
        }
    }
}

impl Committer {
    pub(super) fn put_document(
        &mut self,
        group: &mut Group,
        key: &DocumentKey,
        bytes: Option<Bytes>,
        if_version: IfVersion,
    ) -> Result<Put, Error> {
        if bytes.is_some() {
            self.check_room()?;
        }
        self.settle();
        let on_disk = documents::key(key);
        let there = match group.documents.0.get(&on_disk) {
            Some(changed) => changed.as_ref().map(|stored| stored.version),
            None => match self.disk.kv.get(Keyspace::Documents, &on_disk).map_err(read_error)? {
                Some(bytes) => Some(Stored::decode(&bytes).map_err(unreadable)?.version),
                None => None,
            },
        };
        if !if_version.allows(there) {
            return Ok(Err(StaleDocument { version: there }));
        }
        if there.is_some() || bytes.is_some() {
            self.document_change += 1;
            let version = self.document_change;
            group.bytes += on_disk.len() + bytes.as_ref().map_or(0, Bytes::len) + 64;
            group.documents.0.insert(on_disk, bytes.map(|bytes| Stored { version, bytes }));
        }
        Ok(Ok(self.document_change))
    }
}
