//! Reading schedules, their ledgers and calendars.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::limits::LIST_SCAN_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId};
use tidewheel_store::{Error, LedgerCursor, LedgerPage, SchedulePage, ScheduleQuery};

use super::Reader;
use super::due::bad_key;
use crate::commit::{decode_calendar, decode_holder};
use crate::kv::{Direction, Keyspace, Kv, Snapshot};
use crate::open::scan_prefix;
use crate::place::ScheduleKey;
use crate::record::Unreadable;
use crate::schedule_record::{self, Stored};
use crate::shared::{Shared, read_error, unreadable};
use crate::{keys, ledger};

/// Reads schedules for the commit thread. One that cannot be read is left to it, which has somebody to tell.
pub(crate) fn read_ahead(shared: &Shared, kv: &dyn Kv, schedules: Vec<ScheduleKey>) {
    let reading = shared.view.begin();
    let looking = shared.ahead.begin();
    let snapshot = kv.snapshot();
    let mut wanted: Vec<_> =
        schedules.into_iter().map(|key| (keys::schedule(&key.tenant, key.id), key)).collect();
    wanted.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let mut found = Vec::with_capacity(wanted.len());
    let mut take = |key: &ScheduleKey, bytes: &Bytes| {
        let stored = Stored::decode(&shared.rules, &key.tenant, key.id, bytes);
        found.extend(stored.ok().map(|stored| (key.clone(), Arc::new(stored))));
    };
    let mut is_dense = true;
    for stretch in wanted.chunks(STRETCH_COUNT) {
        let mut left = stretch;
        if is_dense {
            left = scan_for(&*snapshot, stretch, &mut take);
            is_dense = left.len() < stretch.len() / 2;
        }
        for (on_disk, key) in left {
            if let Ok(Some(bytes)) = snapshot.get(Keyspace::Schedules, on_disk) {
                take(key, &bytes);
            }
        }
    }
    looking.keep(found.into_iter());
    drop(reading);
}

/// Schedules that are looked for in one scan.
const STRETCH_COUNT: usize = 64;
/// Others that are stepped over for each of them, before they are looked up one by one.
const STEPPED_OVER_MAX: usize = 3;

/// Looks for schedules that stand close together, as those of a herd do; hands back those it did not get to.
fn scan_for<'w>(
    snapshot: &dyn Snapshot,
    wanted: &'w [(Vec<u8>, ScheduleKey)],
    take: &mut impl FnMut(&ScheduleKey, &Bytes),
) -> &'w [(Vec<u8>, ScheduleKey)] {
    let (Some((first, _)), Some((last, _))) = (wanted.first(), wanted.last()) else { return wanted };
    let range = (Bound::Included(&**first), Bound::Included(&**last));
    let mut left = wanted;
    let mut steps = 0;
    let scanned = snapshot.scan(Keyspace::Schedules, range, Direction::Up, &mut |key, value| {
        steps += 1;
        while let Some(((on_disk, schedule), rest)) = left.split_first() {
            match (**on_disk).cmp(key) {
                Ordering::Greater => break,
                Ordering::Equal => take(schedule, &Bytes::copy_from_slice(value)),
                Ordering::Less => {}
            }
            left = rest;
        }
        let is_over = left.is_empty() || steps > wanted.len() * (1 + STEPPED_OVER_MAX);
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if scanned.is_err() { wanted } else { left }
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
        let bytes =
            self.snapshot.get(Keyspace::Schedules, &keys::schedule(tenant, id)).map_err(read_error)?;
        let stored = bytes.map(|bytes| Stored::decode(&self.shared.rules, tenant, id, &bytes));
        Ok(stored.transpose().map_err(unreadable)?.map(|stored| Arc::unwrap_or_clone(stored.schedule)))
    }

    pub(crate) fn find_schedule(&self, tenant: &Tenant, name: &str) -> Result<Option<ScheduleId>, Error> {
        let bytes = self.snapshot.get(Keyspace::Names, &keys::named(tenant, name)).map_err(read_error)?;
        bytes.as_deref().map(decode_holder).transpose().map_err(unreadable)
    }

    pub(crate) fn list_schedules(&self, query: &ScheduleQuery) -> Result<SchedulePage, Error> {
        let prefix = keys::tenant_only(&query.tenant);
        let after = query.after.map(|id| keys::schedule(&query.tenant, id));
        let from = after.as_deref().map_or(Bound::Included(&*prefix), Bound::Excluded);
        let end = keys::after_prefix(prefix.clone());
        let mut page = SchedulePage::default();
        let (mut scanned, mut last, mut outcome) = (0, None, Ok(()));
        let range = (from, Bound::Excluded(&*end));
        let walked = self.snapshot.scan(Keyspace::Schedules, range, Direction::Up, &mut |key, value| {
            if page.schedules.len() >= query.count_max || scanned >= LIST_SCAN_COUNT_MAX {
                page.next = last;
                return ControlFlow::Break(());
            }
            let Some(id) = keys::schedule_id(key) else {
                outcome = Err(bad_key());
                return ControlFlow::Break(());
            };
            scanned += 1;
            last = Some(id);
            match Stored::decode(&self.shared.rules, &query.tenant, id, &Bytes::copy_from_slice(value)) {
                Ok(stored) if query.matches(&stored.schedule) => {
                    page.schedules.push(Arc::unwrap_or_clone(stored.schedule));
                }
                Ok(_) => {}
                Err(reason) => {
                    tracing::error!(tenant = %query.tenant, schedule = %id, %reason, "a schedule cannot be read");
                }
            }
            ControlFlow::Continue(())
        });
        walked.map_err(read_error)?;
        outcome.map(|()| page)
    }

    /// A page of a ledger, merged from the days on which its entries were decided.
    pub(crate) fn ledger(
        &self,
        tenant: &Tenant,
        id: ScheduleId,
        before: Option<LedgerCursor>,
        count_max: usize,
    ) -> Result<LedgerPage, Error> {
        let prefix = keys::schedule(tenant, id);
        let bytes = self.snapshot.get(Keyspace::Schedules, &prefix).map_err(read_error)?;
        let Some(bytes) = bytes else { return Ok(LedgerPage::default()) };
        let first_entry = schedule_record::first_entry(&bytes).map_err(unreadable)?;
        let end = match before {
            Some(cursor) => keys::ledger_entry(tenant, id, cursor),
            None => keys::after_prefix(prefix.clone()),
        };
        let mut found: Vec<(LedgerCursor, Vec<u8>)> = Vec::new();
        for day in self.days.ledger.iter().rev() {
            // Whatever is below the last of a full page is of no use.
            let floor = found.get(count_max).map(|(cursor, _)| *cursor);
            let (mut count, mut outcome) = (0, Ok(()));
            let range = (Bound::Included(&*prefix), Bound::Excluded(&*end));
            let walked =
                self.snapshot.scan(Keyspace::Ledger(*day), range, Direction::Down, &mut |key, value| {
                    let Some(cursor) = keys::ledger_cursor(key) else {
                        outcome = Err(bad_key());
                        return ControlFlow::Break(());
                    };
                    if count > count_max || floor.is_some_and(|floor| cursor < floor) {
                        return ControlFlow::Break(());
                    }
                    if cursor.number >= first_entry {
                        found.push((cursor, value.to_vec()));
                        count += 1;
                    }
                    ControlFlow::Continue(())
                });
            walked.map_err(read_error)?;
            outcome?;
            found.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
            found.truncate(count_max + 1);
        }
        let is_last = found.len() <= count_max;
        found.truncate(count_max);
        let next = found.last().map(|(cursor, _)| *cursor).filter(|_| !is_last);
        let entries =
            found.iter().map(|(cursor, value)| ledger::decode(&self.shared.rules, cursor.from, value));
        Ok(LedgerPage { entries: entries.collect::<Result<_, Unreadable>>().map_err(unreadable)?, next })
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
