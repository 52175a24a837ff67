//! Lists and counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use tidewheel_core::id::JobId;
use tidewheel_core::job::State;
use tidewheel_core::limits::LIST_SCAN_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_store::{Counts, ListQuery, Page, PageCursor};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::connections::Lane;
use crate::desk::{Found, StoredJob};
use crate::fault::Trouble;
use crate::load::found_job;
use crate::sql;
use crate::store::Database;
use crate::uid::Uid;
use crate::unreadable::Told;

/// Rows read at a time, at least and at most.
const ROWS_COUNT_MIN: usize = 100;
const ROWS_COUNT_MAX: usize = 1_000;

/// Which rows are read, by ids.
#[derive(Clone, Copy)]
struct Stage {
    rows: Rows,
    /// In milliseconds, the first time in an id.
    from: i64,
    below: Uid,
}

#[derive(Clone, Copy)]
enum Rows {
    /// All jobs, however they stand.
    All,
    /// Those that something has happened to.
    Changed,
    /// Those that wait at a time of their own, run, are dead, are tried again.
    Placed([bool; 4]),
}

/// What must be read for a query, one after the other.
fn stages(query: &ListQuery) -> Vec<Stage> {
    let filter = &query.filter;
    let wants = |states: &[State]| states.iter().any(|state| filter.wants_state(*state));
    let from = filter.from.map_or(0, |from| from.as_ms().max(0));
    // An id begins with its time, so nothing set for `to` or later is below the first id of that instant.
    let end = filter.to.map_or(Uid([u8::MAX; 16]), |to| JobId::new(to, 0).into());
    let below = query.after.map_or(end, |PageCursor(id)| end.min(id.into()));
    if !wants(&[State::Scheduled]) {
        let [running, dead, again] =
            [State::Running, State::Dead, State::Retrying].map(|state| wants(&[state]));
        let ended = wants(&[State::Succeeded, State::Cancelled, State::Skipped, State::Expired]);
        let rows = if ended { Rows::Changed } else { Rows::Placed([false, running, dead, again]) };
        return vec![Stage { rows, from, below }];
    }
    let Some(by) = filter.due_by else { return vec![Stage { rows: Rows::All, from, below }] };
    // What stands at its first time is not due before it; of what was set for later, only some of those that wait again
    // can be due.
    let later = by.plus_ms(1);
    let first = Uid::from(JobId::new(later, 0));
    vec![
        Stage { rows: Rows::Placed([true, false, false, false]), from: from.max(later.as_ms()), below },
        Stage { rows: Rows::All, from, below: below.min(first) },
    ]
}

impl Database {
    pub(crate) async fn list_now(&self, query: &ListQuery) -> Result<Page, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let mut page = Page::default();
        let mut last = None;
        let mut told = Told::of_reads();
        for mut stage in stages(query) {
            loop {
                let wanted = (query.count_max - page.jobs.len()).saturating_add(1);
                let left = LIST_SCAN_COUNT_MAX - page.looked + 1;
                let count = wanted.clamp(ROWS_COUNT_MIN, ROWS_COUNT_MAX).min(left);
                let rows = list_rows(&client, &query.tenant, stage, count).await?;
                for row in &rows {
                    if page.jobs.len() >= query.count_max || page.looked >= LIST_SCAN_COUNT_MAX {
                        page.next = last;
                        return Ok(page);
                    }
                    let id = row.try_get::<_, Uid>("id")?.job();
                    (page.looked, last) = (page.looked + 1, Some(PageCursor(id)));
                    stage.below = id.into();
                    match found_job(&query.tenant, id, row)? {
                        Found::Stored(StoredJob { job, .. }) if query.filter.matches(&job) => {
                            page.jobs.push(Arc::unwrap_or_clone(job));
                        }
                        Found::Stored(_) | Found::Removed(_) => {}
                        Found::Unreadable(reason) => told.tell(query.tenant.as_str(), id, &reason),
                    }
                }
                if rows.len() < count {
                    break;
                }
            }
        }
        Ok(page)
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
            add(&mut counts, row)?;
        }
        Ok(counts)
    }

    pub(crate) async fn busiest_now(&self, count_max: usize) -> Result<Vec<(Tenant, Counts)>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::COUNT_EACH).await?;
        let mut tenants: BTreeMap<String, Counts> = BTreeMap::new();
        for row in &client.query(&statement, &[]).await? {
            add(tenants.entry(row.try_get(2)?).or_default(), row)?;
        }
        let tenants =
            tenants.into_iter().filter_map(|(name, counts)| Some((Tenant::new(&name).ok()?, counts)));
        Ok(Counts::busiest(tenants, count_max))
    }
}

async fn list_rows(
    client: &ClientWrapper,
    tenant: &Tenant,
    stage: Stage,
    count: usize,
) -> Result<Vec<Row>, Trouble> {
    let Stage { rows, from, below } = stage;
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let (name, until) = (tenant.as_str(), below.job().run_at().as_ms());
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&name, &until, &below, &from, &count];
    let sql = match &rows {
        Rows::All => sql::LIST_JOBS,
        Rows::Changed => sql::LIST_CHANGED,
        Rows::Placed([timers, running, dead, again]) => {
            values.extend([timers as &(dyn ToSql + Sync), running, dead, again]);
            sql::LIST_PLACED
        }
    };
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, &values).await?)
}

/// Adds a row with a state and how many are in it.
fn add(counts: &mut Counts, row: &Row) -> Result<(), Trouble> {
    let state = usize::try_from(row.try_get::<_, i16>(0)?).unwrap_or(State::ALL.len());
    if let Some(count) = counts.0.get_mut(state) {
        *count = u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0);
    }
    Ok(())
}
