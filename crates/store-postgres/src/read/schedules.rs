//! Schedules, their ledgers, and calendars.

use std::sync::Arc;

use tidewheel_core::limits::LIST_SCAN_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Schedule, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{LedgerCursor, LedgerPage, SchedulePage, ScheduleQuery};

use crate::connections::Lane;
use crate::fault::Trouble;
use crate::load::ordinal;
use crate::record::rule::read_dates;
use crate::record::{Unreadable, entry, schedule};
use crate::sql;
use crate::store::Database;
use crate::uid::Uid;

/// Rows read at a time.
const ROWS_COUNT: usize = 500;

impl Database {
    pub(crate) async fn schedules_now(
        &self,
        tenant: &Tenant,
        ids: &[ScheduleId],
    ) -> Result<Vec<Option<Schedule>>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::FIND_SCHEDULES).await?;
        let tenants = vec![tenant.as_str(); ids.len()];
        let uids: Vec<Uid> = ids.iter().map(|id| (*id).into()).collect();
        let mut found = vec![None; ids.len()];
        for row in &client.query(&statement, &[&tenants, &uids]).await? {
            let number = ordinal(row)?;
            if let (Some(slot), Some(id)) = (found.get_mut(number), ids.get(number)) {
                *slot = Some(schedule::decode(&self.rules, tenant, *id, row.try_get("record")?)?);
            }
        }
        Ok(found)
    }

    pub(crate) async fn find_schedule_now(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<ScheduleId>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::FIND_NAMES).await?;
        let row = client.query_opt(&statement, &[&vec![tenant.as_str()], &vec![name]]).await?;
        Ok(row.map(|row| row.try_get::<_, Uid>("id")).transpose()?.map(Uid::schedule))
    }

    pub(crate) async fn list_schedules_now(&self, query: &ScheduleQuery) -> Result<SchedulePage, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::LIST_SCHEDULES).await?;
        let mut page = SchedulePage::default();
        let mut scanned = 0;
        let mut last = None;
        let mut after = query.after.map(Uid::from);
        loop {
            // Below every id stands none, so the first page begins with the lowest: ids are drawn, and not nought.
            let above = after.unwrap_or(Uid([0; 16]));
            let count = i64::try_from(ROWS_COUNT).unwrap_or(i64::MAX);
            let rows = client.query(&statement, &[&query.tenant.as_str(), &above, &count]).await?;
            for row in &rows {
                if page.schedules.len() >= query.count_max || scanned >= LIST_SCAN_COUNT_MAX {
                    page.next = last;
                    return Ok(page);
                }
                let id = row.try_get::<_, Uid>("id")?.schedule();
                (scanned, last, after) = (scanned + 1, Some(id), Some(id.into()));
                match schedule::decode(&self.rules, &query.tenant, id, row.try_get("record")?) {
                    Ok(schedule) if query.matches(&schedule) => page.schedules.push(schedule),
                    Ok(_) => {}
                    Err(reason) => {
                        tracing::warn!(tenant = %query.tenant, schedule = %id, %reason, "a schedule is left out");
                    }
                }
            }
            if rows.len() < ROWS_COUNT {
                return Ok(page);
            }
        }
    }

    pub(crate) async fn count_schedules_now(&self, tenant: &Tenant) -> Result<u64, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached("SELECT count(*) FROM schedules WHERE tenant = $1").await?;
        let count: i64 = client.query_one(&statement, &[&tenant.as_str()]).await?.try_get(0)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    pub(crate) async fn schedule_tenants_now(
        &self,
        after: Option<&Tenant>,
        count_max: usize,
    ) -> Result<Vec<Tenant>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::SCHEDULE_TENANTS).await?;
        let count = i64::try_from(count_max).unwrap_or(i64::MAX);
        let rows = client.query(&statement, &[&after.map_or("", Tenant::as_str), &count]).await?;
        let tenant = |row: &tokio_postgres::Row| {
            Ok(Tenant::new(row.try_get(0)?).map_err(|_| Unreadable::Nonsense("a tenant"))?)
        };
        rows.iter().map(tenant).collect()
    }

    pub(crate) async fn ledger_now(
        &self,
        tenant: &Tenant,
        id: ScheduleId,
        before: Option<LedgerCursor>,
        count_max: usize,
    ) -> Result<LedgerPage, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::LEDGER_PAGE).await?;
        let (from, number) = before.map_or((i64::MAX, i64::MAX), |cursor| {
            (cursor.from.as_ms(), i64::try_from(cursor.number).unwrap_or(i64::MAX))
        });
        let count = i64::try_from(count_max.saturating_add(1)).unwrap_or(i64::MAX);
        let rows =
            client.query(&statement, &[&tenant.as_str(), &Uid::from(id), &from, &number, &count]).await?;
        let mut page = LedgerPage::default();
        let mut last = None;
        for row in &rows {
            if page.entries.len() >= count_max {
                page.next = last;
                break;
            }
            let from = Timestamp::from_ms(row.try_get(0)?);
            let number = u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0);
            last = Some(LedgerCursor { from, number });
            page.entries.push(entry::decode(&self.rules, from, row.try_get(2)?)?);
        }
        Ok(page)
    }

    pub(crate) async fn calendar_now(&self, tenant: &Tenant, name: &str) -> Result<Option<Dates>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::FIND_CALENDARS).await?;
        let row = client.query_opt(&statement, &[&vec![tenant.as_str()], &vec![name]]).await?;
        let numbers: Option<Vec<i32>> = row.map(|row| row.try_get("dates")).transpose()?;
        Ok(numbers.map(|numbers| read_dates(&numbers)).transpose()?)
    }

    pub(crate) async fn calendars_now(&self, tenant: &Tenant) -> Result<Vec<Arc<str>>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client
            .prepare_cached("SELECT name FROM calendars WHERE tenant = $1 ORDER BY tenant, name")
            .await?;
        let rows = client.query(&statement, &[&tenant.as_str()]).await?;
        rows.iter().map(|row| Ok(Arc::from(row.try_get::<_, &str>(0)?))).collect()
    }
}
