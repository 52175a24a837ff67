//! Reading schedules and calendars.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::limits::LIST_SCAN_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId};
use tidewheel_store::{Error, SchedulePage, ScheduleQuery};

use super::Reader;
use super::due::bad_key;
use crate::commit::{decode_calendar, decode_holder};
use crate::definition::Decoder;
use crate::keys;
use crate::kv::{Direction, Keyspace};
use crate::open::scan_prefix;
use crate::record::Unreadable;
use crate::schedule_record::{self, Stored};
use crate::shared::{read_error, unreadable};

/// Schedules read at a time for a list: few at first, more when more are needed.
const CHUNK_COUNT_MIN: usize = 16;
const CHUNK_COUNT_MAX: usize = 256;

/// A schedule's records.
struct Records {
    id: ScheduleId,
    definition: Bytes,
    standing: Bytes,
}

/// The schedule, if it is wanted. One that cannot be read is left out.
fn wanted(query: &ScheduleQuery, decoder: &mut Decoder<'_>, records: &Records) -> Option<Schedule> {
    let Records { id, definition, standing } = records;
    match Stored::decode(decoder, &query.tenant, *id, definition, standing) {
        Ok(stored) => query.matches(&stored.schedule).then(|| Arc::unwrap_or_clone(stored.schedule)),
        Err(reason) => {
            tracing::error!(tenant = %query.tenant, schedule = %id, %reason, "a schedule cannot be read");
            None
        }
    }
}

impl Reader<'_> {
    pub(crate) fn schedules(
        &self,
        tenant: &Tenant,
        ids: &[ScheduleId],
    ) -> Result<Vec<Option<Schedule>>, Error> {
        ids.iter().map(|id| self.schedule(tenant, *id)).collect()
    }

    fn schedule(&self, tenant: &Tenant, id: ScheduleId) -> Result<Option<Schedule>, Error> {
        let get = |keyspace, key: &[u8]| self.snapshot.get(keyspace, key);
        let stored = schedule_record::read(get, &self.shared.rules, tenant, id)?;
        Ok(stored.map(|stored| Arc::unwrap_or_clone(stored.schedule)))
    }

    pub(crate) fn find_schedule(&self, tenant: &Tenant, name: &str) -> Result<Option<ScheduleId>, Error> {
        let bytes = self.snapshot.get(Keyspace::Names, &keys::named(tenant, name)).map_err(read_error)?;
        bytes.as_deref().map(decode_holder).transpose().map_err(unreadable)
    }

    pub(crate) fn list_schedules(&self, query: &ScheduleQuery) -> Result<SchedulePage, Error> {
        let mut page = SchedulePage::default();
        let mut decoder = Decoder::new(&self.shared.rules);
        let (mut scanned, mut last, mut chunk) = (0, query.after, CHUNK_COUNT_MIN);
        loop {
            let read = self.records(&query.tenant, last, chunk)?;
            let is_end = read.len() < chunk;
            for records in read {
                if page.schedules.len() >= query.count_max || scanned >= LIST_SCAN_COUNT_MAX {
                    page.next = last;
                    return Ok(page);
                }
                scanned += 1;
                last = Some(records.id);
                page.schedules.extend(wanted(query, &mut decoder, &records));
            }
            if is_end {
                return Ok(page);
            }
            chunk = (chunk * 2).min(CHUNK_COUNT_MAX);
        }
    }

    /// The records of a tenant's next schedules after one: both keyspaces are walked, one after the other.
    fn records(
        &self,
        tenant: &Tenant,
        after: Option<ScheduleId>,
        count_max: usize,
    ) -> Result<Vec<Records>, Error> {
        let prefix = keys::tenant_only(tenant);
        let after = after.map(|id| keys::schedule(tenant, id));
        let from = after.as_deref().map_or(Bound::Included(&*prefix), Bound::Excluded);
        let end = keys::after_prefix(prefix.clone());
        let (mut found, mut outcome) = (Vec::new(), Ok(()));
        let definitions = (from, Bound::Excluded(&*end));
        let walked =
            self.snapshot.scan(Keyspace::Schedules, definitions, Direction::Up, &mut |key, value| {
                let Some(id) = keys::schedule_id(key) else {
                    outcome = Err(bad_key());
                    return ControlFlow::Break(());
                };
                found.push(Records { id, definition: Bytes::copy_from_slice(value), standing: Bytes::new() });
                if found.len() < count_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        walked.map_err(read_error)?;
        outcome?;
        let Some(last) = found.last().map(|records| keys::schedule(tenant, records.id)) else {
            return Ok(found);
        };
        let mut left = found.iter_mut().peekable();
        let standings = (from, Bound::Included(&*last));
        let walked = self.snapshot.scan(Keyspace::Standings, standings, Direction::Up, &mut |key, value| {
            let id = keys::schedule_id(key);
            while left.next_if(|records| id.is_some_and(|id| records.id < id)).is_some() {}
            if let Some(records) = left.next_if(|records| id == Some(records.id)) {
                records.standing = Bytes::copy_from_slice(value);
            }
            ControlFlow::Continue(())
        });
        walked.map_err(read_error)?;
        Ok(found)
    }

    pub(crate) fn calendar(&self, tenant: &Tenant, name: &str) -> Result<Option<Dates>, Error> {
        let bytes = self.snapshot.get(Keyspace::Calendars, &keys::named(tenant, name)).map_err(read_error)?;
        bytes.as_deref().map(decode_calendar).transpose().map_err(unreadable)
    }

    pub(crate) fn calendars(&self, tenant: &Tenant) -> Result<Vec<Arc<str>>, Error> {
        let mut names = Vec::new();
        let prefix = keys::tenant_only(tenant);
        scan_prefix(&*self.snapshot, Keyspace::Calendars, &prefix, |key, _| {
            let name = key.get(prefix.len()..).and_then(|name| std::str::from_utf8(name).ok());
            names.push(name.ok_or(Unreadable::Nonsense("the name of a calendar"))?.into());
            Ok(())
        })
        .map_err(read_error)?;
        Ok(names)
    }
}
