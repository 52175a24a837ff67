//! Calls about schedules: writes to the commit thread, reads to the blocking pool.

use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Edited, Error, LedgerCursor, LedgerPage, ScheduleOrder, SchedulePage, ScheduleQuery, ScheduleRefusal,
    Schedules,
};

use crate::commit::Request;
use crate::store::EmbeddedStore;

#[async_trait]
impl Schedules for EmbeddedStore {
    async fn edit_schedules(
        &self,
        now: Timestamp,
        orders: Vec<ScheduleOrder>,
    ) -> Result<Vec<Result<Edited, ScheduleRefusal>>, Error> {
        self.request(|reply| Request::EditSchedules { now, orders, reply }).await
    }

    async fn schedules(&self, tenant: &Tenant, ids: Vec<ScheduleId>) -> Result<Vec<Option<Schedule>>, Error> {
        let tenant = tenant.clone();
        self.read(move |reader| reader.schedules(&tenant, &ids)).await
    }

    async fn find_schedule(&self, tenant: &Tenant, name: &str) -> Result<Option<ScheduleId>, Error> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.read(move |reader| reader.find_schedule(&tenant, &name)).await
    }

    async fn list_schedules(&self, query: ScheduleQuery) -> Result<SchedulePage, Error> {
        self.read(move |reader| reader.list_schedules(&query)).await
    }

    async fn count_schedules(&self, tenant: &Tenant) -> Result<u64, Error> {
        drop(self.shared.kv()?);
        Ok(self.shared.schedule_counts().of(tenant))
    }

    async fn schedule_tenants(&self, after: Option<Tenant>, count_max: usize) -> Result<Vec<Tenant>, Error> {
        drop(self.shared.kv()?);
        Ok(self.shared.schedule_counts().tenants(after, count_max))
    }

    async fn ledger(
        &self,
        tenant: &Tenant,
        id: ScheduleId,
        before: Option<LedgerCursor>,
        count_max: usize,
    ) -> Result<LedgerPage, Error> {
        let tenant = tenant.clone();
        self.read(move |reader| reader.ledger(&tenant, id, before, count_max)).await
    }

    async fn put_calendar(&self, tenant: &Tenant, name: &str, dates: Option<Dates>) -> Result<(), Error> {
        let (tenant, name) = (tenant.clone(), Arc::from(name));
        self.request(|reply| Request::PutCalendar { tenant, name, dates, reply }).await
    }

    async fn calendar(&self, tenant: &Tenant, name: &str) -> Result<Option<Dates>, Error> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.read(move |reader| reader.calendar(&tenant, &name)).await
    }

    async fn calendars(&self, tenant: &Tenant) -> Result<Vec<Arc<str>>, Error> {
        let tenant = tenant.clone();
        self.read(move |reader| reader.calendars(&tenant)).await
    }

    async fn note_zones(&self, identity: Option<Arc<str>>) -> Result<(), Error> {
        self.request(|reply| Request::NoteZones { identity, reply }).await
    }

    async fn noted_zones(&self) -> Result<Option<Arc<str>>, Error> {
        self.read(|reader| reader.noted_zones()).await
    }
}
