//! The store: what the contract asks for schedules, each call handed to the file it belongs to.

use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Edited, Error, LedgerCursor, LedgerPage, ScheduleOrder, SchedulePage, ScheduleQuery, ScheduleRefusal,
    Schedules,
};

use crate::connections::Lane;
use crate::fault::Trouble;
use crate::record::rule::date_numbers;
use crate::sql;
use crate::store::{Database, PostgresStore};

impl Database {
    async fn put_calendar_now(
        &self,
        tenant: &Tenant,
        name: &str,
        dates: Option<&Dates>,
    ) -> Result<(), Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        match dates {
            Some(dates) => {
                let statement = client.prepare_cached(sql::PUT_CALENDAR).await?;
                client.execute(&statement, &[&tenant.as_str(), &name, &date_numbers(dates)]).await?;
            }
            None => {
                let sql = "DELETE FROM calendars WHERE tenant = $1 AND name = $2";
                client.execute(sql, &[&tenant.as_str(), &name]).await?;
            }
        }
        Ok(())
    }

    async fn note_zones_now(&self, identity: Option<&str>) -> Result<(), Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        client.execute("UPDATE settings SET zones = $1", &[&identity]).await?;
        Ok(())
    }

    async fn noted_zones_now(&self) -> Result<Option<Arc<str>>, Trouble> {
        let client = self.connections.get(Lane::Scheduler).await?;
        let row = client.query_one("SELECT zones FROM settings", &[]).await?;
        Ok(row.try_get::<_, Option<&str>>(0)?.map(Arc::from))
    }
}

#[async_trait]
impl Schedules for PostgresStore {
    async fn edit_schedules(
        &self,
        now: Timestamp,
        orders: Vec<ScheduleOrder>,
    ) -> Result<Vec<Result<Edited, ScheduleRefusal>>, Error> {
        self.database.connections.bounded(self.database.edit_batch(now, &orders)).await
    }

    async fn schedules(&self, tenant: &Tenant, ids: Vec<ScheduleId>) -> Result<Vec<Option<Schedule>>, Error> {
        self.database.connections.bounded(self.database.schedules_now(tenant, &ids)).await
    }

    async fn find_schedule(&self, tenant: &Tenant, name: &str) -> Result<Option<ScheduleId>, Error> {
        self.database.connections.bounded(self.database.find_schedule_now(tenant, name)).await
    }

    async fn list_schedules(&self, query: ScheduleQuery) -> Result<SchedulePage, Error> {
        self.database.connections.bounded(self.database.list_schedules_now(&query)).await
    }

    async fn count_schedules(&self, tenant: &Tenant) -> Result<u64, Error> {
        self.database.connections.bounded(self.database.count_schedules_now(tenant)).await
    }

    async fn schedule_tenants(&self, after: Option<Tenant>, count_max: usize) -> Result<Vec<Tenant>, Error> {
        let read = self.database.schedule_tenants_now(after.as_ref(), count_max);
        self.database.connections.bounded(read).await
    }

    async fn ledger(
        &self,
        tenant: &Tenant,
        id: ScheduleId,
        before: Option<LedgerCursor>,
        count_max: usize,
    ) -> Result<LedgerPage, Error> {
        let read = self.database.ledger_now(tenant, id, before, count_max);
        self.database.connections.bounded(read).await
    }

    async fn put_calendar(&self, tenant: &Tenant, name: &str, dates: Option<Dates>) -> Result<(), Error> {
        let write = self.database.put_calendar_now(tenant, name, dates.as_ref());
        self.database.connections.bounded(write).await
    }

    async fn calendar(&self, tenant: &Tenant, name: &str) -> Result<Option<Dates>, Error> {
        self.database.connections.bounded(self.database.calendar_now(tenant, name)).await
    }

    async fn calendars(&self, tenant: &Tenant) -> Result<Vec<Arc<str>>, Error> {
        self.database.connections.bounded(self.database.calendars_now(tenant)).await
    }

    async fn note_zones(&self, identity: Option<Arc<str>>) -> Result<(), Error> {
        let write = self.database.note_zones_now(identity.as_deref());
        self.database.connections.bounded(write).await
    }

    async fn noted_zones(&self) -> Result<Option<Arc<str>>, Error> {
        self.database.connections.bounded(self.database.noted_zones_now()).await
    }
}
