//! Reads. Each registers with the view, then takes a snapshot, then asks which dated keyspaces there are: in this
//! order nothing can be missed that happened before the read began.

mod bulk;
mod due;
mod ledger;
mod list;
mod schedules;

pub(crate) use bulk::read_ahead;

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Checkpoint, Error, HeldKey};

use crate::kv::{Keyspace, Kv, Snapshot};
use crate::open::scan_prefix;
use crate::place::{JobKey, JobTag};
use crate::shared::{Days, Shared, locate, read_error};
use crate::unreadable::unreadable_job;
use crate::view::Reading;
use crate::{checkpoints, keys, pointers};

/// At least so many jobs are looked up together.
const MANY_COUNT_MIN: usize = 16;

/// One read under way.
pub(crate) struct Reader<'a> {
    shards: u16,
    shared: &'a Shared,
    reading: Reading<'a>,
    gaps_version: u64,
    snapshot: Box<dyn Snapshot + 'a>,
    days: Arc<Days>,
}

impl<'a> Reader<'a> {
    pub(crate) fn begin(shared: &'a Shared, kv: &'a dyn Kv) -> Self {
        let reading = shared.view.begin();
        let gaps_version = shared.gaps.version();
        let snapshot = kv.snapshot();
        let days = shared.days();
        Self { shards: shared.shards, shared, reading, gaps_version, snapshot, days }
    }

    /// What was committed when the read began.
    pub(crate) fn snapshot(&self) -> &dyn Snapshot {
        &*self.snapshot
    }

    /// Which dated keyspaces there were.
    pub(crate) fn days(&self) -> &Days {
        &self.days
    }

    pub(crate) fn get(&self, tenant: &Tenant, ids: &[JobId]) -> Result<Vec<Option<Job>>, Error> {
        if ids.len() >= MANY_COUNT_MIN {
            return self.get_many(tenant, ids);
        }
        ids.iter().map(|id| self.get_one(JobKey { id: *id, tenant: tenant.clone() })).collect()
    }

    fn get_one(&self, key: JobKey) -> Result<Option<Job>, Error> {
        let get = |keyspace: Keyspace, key: &[u8]| self.snapshot.get(keyspace, key);
        let stored = match locate(get, self.shards, &self.days, &key) {
            Err(Error::Corrupt(reason)) => return Err(unreadable_job(&key.tenant, key.id, reason)),
            stored => stored?,
        };
        Ok(stored.map(|job| self.running_or(key.tag(), job)))
    }

    /// The job as it is running, if it is, or else as it was read. One whose payload has changed since, and is not in memory,
    /// is shown as it was read, too.
    fn running_or(&self, tag: JobTag, job: Job) -> Job {
        let running =
            self.reading.under_way(tag, job.status.attempt).and_then(|under_way| under_way.completed(&job));
        running.map_or(job, Arc::unwrap_or_clone)
    }

    pub(crate) fn find_key(
        &self,
        now: Timestamp,
        tenant: &Tenant,
        key: &str,
    ) -> Result<Option<HeldKey>, Error> {
        let get = |keyspace: Keyspace, key: &[u8]| self.snapshot.get(keyspace, key).map_err(read_error);
        Ok(pointers::find(get, &self.days, now, tenant, key)?.map(|pointer| pointer.held()))
    }

    pub(crate) fn checkpoints(&self) -> Result<Vec<Checkpoint>, Error> {
        let mut found = Vec::new();
        scan_prefix(&*self.snapshot, Keyspace::Meta, &[keys::meta::CHECKPOINTS], |_, value| {
            found.push(checkpoints::decode(value)?);
            Ok(())
        })
        .map_err(read_error)?;
        Ok(found)
    }

    pub(crate) fn noted_zones(&self) -> Result<Option<Arc<str>>, Error> {
        let noted = self.snapshot.get(Keyspace::Meta, keys::meta::ZONES).map_err(read_error)?;
        // What is no text is nobody's identity, and so recomputed.
        let text = noted.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok());
        Ok(text.filter(|text| !text.is_empty()).map(Arc::from))
    }
}
