//! Lists and counts.

use std::sync::Arc;

use tidewheel_core::id::JobId;
use tidewheel_core::job::State;
use tidewheel_core::limits::{BUCKET_MS, LIST_SCAN_COUNT_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::Shard;
use tidewheel_store::{Counts, ListQuery, Page, PageCursor};

use crate::connections::Lane;
use crate::fault::Trouble;
use crate::load::{placed_job, shard_column};
use crate::sql;
use crate::store::Database;
use crate::uid::Uid;

/// Rows read at a time, at least and at most.
const ROWS_COUNT_MIN: usize = 100;
const ROWS_COUNT_MAX: usize = 1_000;

impl Database {
    pub(crate) async fn list_now(&self, query: &ListQuery) -> Result<Page, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::LIST_JOBS).await?;
        let shard = shard_column(Shard::of(&query.tenant, self.shards));
        let from = query.filter.from.map_or(0, |from| from.as_ms().max(0));
        // An id begins with its time, so nothing set for `to` or later is below the first id of that instant.
        let end = query.filter.to.map_or(Uid([u8::MAX; 16]), |to| JobId::new(to, 0).into());
        let mut below = query.after.map_or(end, |PageCursor(id)| end.min(id.into()));
        let mut page = Page::default();
        let mut scanned = 0;
        let mut last = None;
        loop {
            let wanted = (query.count_max - page.jobs.len()).saturating_add(1);
            let count = wanted.clamp(ROWS_COUNT_MIN, ROWS_COUNT_MAX).min(LIST_SCAN_COUNT_MAX - scanned + 1);
            let rows = client
                .query(
                    &statement,
                    &[
                        &query.tenant.as_str(),
                        &below.job().run_at().as_ms(),
                        &below,
                        &from,
                        &i64::try_from(count).unwrap_or(i64::MAX),
                        &shard,
                        &BUCKET_MS,
                    ],
                )
                .await?;
            for row in &rows {
                if page.jobs.len() >= query.count_max || scanned >= LIST_SCAN_COUNT_MAX {
                    page.next = last;
                    return Ok(page);
                }
                let id = row.try_get::<_, Uid>("id")?.job();
                (scanned, last) = (scanned + 1, Some(PageCursor(id)));
                below = id.into();
                let job = placed_job(&query.tenant, id, row)?.job;
                if query.filter.matches(&job) {
                    page.jobs.push(Arc::unwrap_or_clone(job));
                }
            }
            if rows.len() < count {
                return Ok(page);
            }
        }
    }

    pub(crate) async fn counts_now(&self, tenant: Option<&Tenant>) -> Result<Counts, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let rows = match tenant {
            Some(tenant) => {
                let statement = client.prepare_cached(sql::COUNT_TENANT).await?;
                client.query(&statement, &[&tenant.as_str()]).await?
            }
            None => {
                let statement = client.prepare_cached(sql::COUNT_ALL).await?;
                client.query(&statement, &[]).await?
            }
        };
        let mut counts = Counts::default();
        for row in &rows {
            let state = usize::try_from(row.try_get::<_, i16>(0)?).unwrap_or(State::ALL.len());
            if let Some(count) = counts.0.get_mut(state) {
                *count = u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0);
            }
        }
        Ok(counts)
    }
}
