//! The model's answers to calls about schedules.

use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;

use super::{Call, MemoryStore};
use tidewheel_store::{
    Edited, Error, LedgerCursor, LedgerPage, ScheduleOrder, SchedulePage, ScheduleQuery, ScheduleRefusal,
    Schedules,
};

#[async_trait]
impl Schedules for MemoryStore {
    async fn edit_schedules(
        &self,
        now: Timestamp,
        orders: Vec<ScheduleOrder>,
    ) -> Result<Vec<Result<Edited, ScheduleRefusal>>, Error> {
        self.change(Call::EditSchedules, now, |tables, _| tables.edit_schedules(now, orders)).await
    }

    async fn schedules(&self, tenant: &Tenant, ids: Vec<ScheduleId>) -> Result<Vec<Option<Schedule>>, Error> {
        self.call(Call::Schedules, |tables| {
            Ok(ids.into_iter().map(|id| tables.plans.schedule(tenant, id).cloned()).collect())
        })
        .await
    }

    async fn find_schedule(&self, tenant: &Tenant, name: &str) -> Result<Option<ScheduleId>, Error> {
        self.call(Call::FindSchedule, |tables| Ok(tables.plans.named(tenant, name))).await
    }

    async fn list_schedules(&self, query: ScheduleQuery) -> Result<SchedulePage, Error> {
        self.call(Call::ListSchedules, |tables| Ok(tables.plans.list(&query))).await
    }

    async fn count_schedules(&self, tenant: &Tenant) -> Result<u64, Error> {
        self.call(Call::CountSchedules, |tables| Ok(tables.plans.count(tenant))).await
    }

    async fn schedule_tenants(&self, after: Option<Tenant>, count_max: usize) -> Result<Vec<Tenant>, Error> {
        self.call(Call::ScheduleTenants, |tables| Ok(tables.plans.tenants(after, count_max))).await
    }

    async fn ledger(
        &self,
        tenant: &Tenant,
        id: ScheduleId,
        before: Option<LedgerCursor>,
        count_max: usize,
    ) -> Result<LedgerPage, Error> {
        self.call(Call::Ledger, |tables| Ok(tables.plans.ledger(tenant, id, before, count_max))).await
    }

    async fn put_calendar(&self, tenant: &Tenant, name: &str, dates: Option<Dates>) -> Result<(), Error> {
        self.call(Call::PutCalendar, |tables| {
            tables.plans.put_calendar(tenant, name, dates);
            Ok(())
        })
        .await
    }

    async fn calendar(&self, tenant: &Tenant, name: &str) -> Result<Option<Dates>, Error> {
        self.call(Call::Calendar, |tables| {
            Ok(tables.plans.calendar(tenant, name).map(|dates| Dates::clone(dates)))
        })
        .await
    }

    async fn calendars(&self, tenant: &Tenant) -> Result<Vec<Arc<str>>, Error> {
        self.call(Call::Calendars, |tables| Ok(tables.plans.calendars(tenant))).await
    }

    async fn note_zones(&self, identity: Option<Arc<str>>) -> Result<(), Error> {
        self.call(Call::NoteZones, |tables| {
            tables.plans.zones = identity;
            Ok(())
        })
        .await
    }

    async fn noted_zones(&self) -> Result<Option<Arc<str>>, Error> {
        self.call(Call::NotedZones, |tables| Ok(tables.plans.zones.clone())).await
    }
}
