//! What the model keeps of schedules: themselves, their ledgers, their names, and calendars.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tidewheel_core::limits::LIST_SCAN_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Entry, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;

use tidewheel_store::evaluate::ScheduleChange;
use tidewheel_store::{LedgerCursor, LedgerPage, SchedulePage, ScheduleQuery};

#[derive(Default)]
pub(super) struct Plans {
    schedules: BTreeMap<Tenant, BTreeMap<ScheduleId, Schedule>>,
    names: BTreeMap<Tenant, BTreeMap<Arc<str>, ScheduleId>>,
    ledgers: BTreeMap<Tenant, BTreeMap<ScheduleId, BTreeMap<LedgerCursor, Entry>>>,
    calendars: BTreeMap<Tenant, BTreeMap<Arc<str>, Arc<Dates>>>,
    /// Counts ledger entries.
    entries: u64,
    /// By which rules of time zones pending occurrences are computed.
    pub(super) zones: Option<Arc<str>>,
}

impl Plans {
    pub(super) fn schedule(&self, tenant: &Tenant, id: ScheduleId) -> Option<&Schedule> {
        self.schedules.get(tenant)?.get(&id)
    }

    pub(super) fn named(&self, tenant: &Tenant, name: &str) -> Option<ScheduleId> {
        self.names.get(tenant)?.get(name).copied()
    }

    pub(super) fn calendar(&self, tenant: &Tenant, name: &str) -> Option<&Arc<Dates>> {
        self.calendars.get(tenant)?.get(name)
    }

    /// The one place where schedules change.
    pub(super) fn carry_out(&mut self, tenant: &Tenant, change: Option<ScheduleChange>, entries: Vec<Entry>) {
        let id = match change {
            None => return,
            Some(ScheduleChange::Removed(id)) => return self.remove(tenant, id),
            Some(ScheduleChange::Put(schedule)) => self.put(Schedule::clone(&schedule)),
        };
        for entry in entries {
            self.entries += 1;
            let cursor = LedgerCursor { from: entry.from, number: self.entries };
            let ledgers = self.ledgers.entry(tenant.clone()).or_default();
            ledgers.entry(id).or_default().insert(cursor, entry);
        }
    }

    fn put(&mut self, schedule: Schedule) -> ScheduleId {
        let (tenant, id) = (schedule.tenant.clone(), schedule.id);
        self.forget_name(&tenant, id);
        if let Some(name) = schedule.name.clone() {
            self.names.entry(tenant.clone()).or_default().insert(name, id);
        }
        self.schedules.entry(tenant).or_default().insert(id, schedule);
        id
    }

    fn remove(&mut self, tenant: &Tenant, id: ScheduleId) {
        self.forget_name(tenant, id);
        if let Some(schedules) = self.schedules.get_mut(tenant) {
            schedules.remove(&id);
        }
        if let Some(ledgers) = self.ledgers.get_mut(tenant) {
            ledgers.remove(&id);
        }
    }

    fn forget_name(&mut self, tenant: &Tenant, id: ScheduleId) {
        let name = self.schedule(tenant, id).and_then(|schedule| schedule.name.clone());
        if let (Some(name), Some(names)) = (name, self.names.get_mut(tenant)) {
            names.remove(&name);
        }
    }

    pub(super) fn list(&self, query: &ScheduleQuery) -> SchedulePage {
        let mut page = SchedulePage::default();
        let mut last = None;
        let above = query.after.map_or(Bound::Unbounded, Bound::Excluded);
        let schedules = self.schedules.get(&query.tenant);
        let schedules = schedules.into_iter().flat_map(|all| all.range((above, Bound::Unbounded)));
        for (scanned, (id, schedule)) in schedules.enumerate() {
            if page.schedules.len() >= query.count_max || scanned >= LIST_SCAN_COUNT_MAX {
                page.next = last;
                break;
            }
            last = Some(*id);
            if query.matches(schedule) {
                page.schedules.push(schedule.clone());
            }
        }
        page
    }

    pub(super) fn count(&self, tenant: &Tenant) -> u64 {
        let count = self.schedules.get(tenant).map_or(0, BTreeMap::len);
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    pub(super) fn tenants(&self, after: Option<Tenant>, count_max: usize) -> Vec<Tenant> {
        let above = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tenants = self.schedules.range((above, Bound::Unbounded));
        let tenants = tenants.filter(|(_, schedules)| !schedules.is_empty());
        tenants.map(|(tenant, _)| tenant.clone()).take(count_max).collect()
    }

    pub(super) fn ledger(
        &self,
        tenant: &Tenant,
        id: ScheduleId,
        before: Option<LedgerCursor>,
        count_max: usize,
    ) -> LedgerPage {
        let mut page = LedgerPage::default();
        let mut last = None;
        let below = before.map_or(Bound::Unbounded, Bound::Excluded);
        let ledger = self.ledgers.get(tenant).and_then(|ledgers| ledgers.get(&id));
        let entries = ledger.into_iter().flat_map(|ledger| ledger.range((Bound::Unbounded, below)).rev());
        for (cursor, entry) in entries {
            if page.entries.len() >= count_max {
                page.next = last;
                break;
            }
            last = Some(*cursor);
            page.entries.push(entry.clone());
        }
        page
    }

    pub(super) fn put_calendar(&mut self, tenant: &Tenant, name: &str, dates: Option<Dates>) {
        let calendars = self.calendars.entry(tenant.clone()).or_default();
        match dates {
            Some(dates) => calendars.insert(Arc::from(name), Arc::new(dates)),
            None => calendars.remove(name),
        };
    }

    pub(super) fn calendars(&self, tenant: &Tenant) -> Vec<Arc<str>> {
        self.calendars.get(tenant).into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    pub(super) fn drop_history(&mut self, before: Timestamp) {
        for ledger in self.ledgers.values_mut().flat_map(BTreeMap::values_mut) {
            ledger.retain(|_, entry| entry.decided_at >= before);
        }
    }
}
