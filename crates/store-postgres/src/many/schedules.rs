//! What the contract asks for schedules. A tenant's schedules, their ledgers and calendars are in one database, its home.

use std::sync::Arc;

use async_trait::async_trait;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Edited, Error, LedgerCursor, LedgerPage, ScheduleOrder, SchedulePage, ScheduleQuery, ScheduleRefusal,
    Schedules,
};

use super::{Spread, merge};

#[async_trait]
impl Schedules for Spread {
    async fn edit_schedules(
        &self,
        now: Timestamp,
        orders: Vec<ScheduleOrder>,
    ) -> Result<Vec<Result<Edited, ScheduleRefusal>>, Error> {
        let home = |order: &ScheduleOrder| self.home(&order.tenant);
        self.split_whole(orders, home, |part, orders| {
            part.ask(move |store| store.edit_schedules(now, orders))
        })
        .await
    }

    async fn schedules(&self, tenant: &Tenant, ids: Vec<ScheduleId>) -> Result<Vec<Option<Schedule>>, Error> {
        self.part(self.home(tenant))?.ask(|store| store.schedules(tenant, ids)).await
    }

    async fn find_schedule(&self, tenant: &Tenant, name: &str) -> Result<Option<ScheduleId>, Error> {
        self.part(self.home(tenant))?.ask(|store| store.find_schedule(tenant, name)).await
    }

    async fn list_schedules(&self, query: ScheduleQuery) -> Result<SchedulePage, Error> {
        let query = &query;
        let homes = self.homes(&query.tenant);
        let pages = self.ask_whole(homes, |part| part.ask(move |store| store.list_schedules(query.clone())));
        let pages = pages.await?;
        Ok(merge::schedules(pages, query.count_max))
    }

    async fn count_schedules(&self, tenant: &Tenant) -> Result<u64, Error> {
        let homes = self.homes(tenant);
        let counts =
            self.ask_whole(homes, |part| part.ask(move |store| store.count_schedules(tenant))).await?;
        Ok(counts.into_iter().sum())
    }

    /// Of those databases that answer: whoever looks through all schedules does it again.
    async fn schedule_tenants(&self, after: Option<Tenant>, count_max: usize) -> Result<Vec<Tenant>, Error> {
        let after = &after;
        let lists = self
            .ask_those_there(|part| part.ask(move |store| store.schedule_tenants(after.clone(), count_max)))
            .await?;
        Ok(merge::names(lists, count_max))
    }

    async fn ledger(
        &self,
        tenant: &Tenant,
        id: ScheduleId,
        before: Option<LedgerCursor>,
        count_max: usize,
    ) -> Result<LedgerPage, Error> {
        self.part(self.home(tenant))?.ask(|store| store.ledger(tenant, id, before, count_max)).await
    }

    async fn put_calendar(&self, tenant: &Tenant, name: &str, dates: Option<Dates>) -> Result<(), Error> {
        self.part(self.home(tenant))?.ask(|store| store.put_calendar(tenant, name, dates)).await
    }

    async fn calendar(&self, tenant: &Tenant, name: &str) -> Result<Option<Dates>, Error> {
        self.part(self.home(tenant))?.ask(|store| store.calendar(tenant, name)).await
    }

    async fn calendars(&self, tenant: &Tenant) -> Result<Vec<Arc<str>>, Error> {
        self.part(self.home(tenant))?.ask(|store| store.calendars(tenant)).await
    }

    /// In each database that answers, of its own schedules. One that does not keeps its old note, and is brought in line
    /// once it is back.
    async fn note_zones(&self, identity: Option<Arc<str>>) -> Result<(), Error> {
        let identity = &identity;
        let noted = self.ask_those_there(|part| part.ask(move |store| store.note_zones(identity.clone())));
        noted.await.map(drop)
    }

    /// What is noted in all that answer.
    async fn noted_zones(&self) -> Result<Option<Arc<str>>, Error> {
        let noted = self.ask_those_there(|part| part.ask(|store| store.noted_zones())).await?;
        let first = noted.first().cloned().flatten();
        Ok(first.filter(|_| noted.windows(2).all(|pair| pair.first() == pair.last())))
    }
}
