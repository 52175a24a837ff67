//! A schedule's ledger: one row for each nominal instant, newest first. Ranges are unfolded as far as the page
//! goes.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use tidewheel_api::wire::schedule_query;
use tidewheel_api::wire::schedule_write::{self, job_of};
use tidewheel_api::wire::write::JsonWriter;
use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Dates, Entry, ScheduleId};
use tidewheel_core::time::Timestamp;
use tidewheel_store::LedgerCursor;

use super::read::{bad_cursor, calendar_of, find, page_answer, read_query};
use crate::http::app::App;
use crate::http::caller::{Caller, SchedulePath};
use crate::http::problem::Problem;
use crate::http::retention::Retention;

/// `GET /v1/schedules/{id}/firings`
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SchedulePath(id): SchedulePath,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let query = read_query(text.as_deref(), schedule_query::PAGE)?;
    let cursor = query.cursor.map(|cursor| cursor.parse::<Cursor>()).transpose()?;
    let schedule = find(&app, &caller.tenant, id).await?;
    let calendar = calendar_of(&app, &schedule).await?;
    let walk = Walk { app: &app, tenant: &caller.tenant, id, calendar, limit: query.limit };
    let (rows, next) = walk.page(cursor.unwrap_or_default()).await?;

    let ids: Vec<JobId> = rows.iter().filter_map(|row| job_of(&row.entry)).collect();
    let found = app.engine.store().get(&caller.tenant, ids).await?;
    let retention = Retention::of(&app, &caller.tenant);
    let seen = found.into_iter().flatten().filter(|job| !retention.hides(job));
    let jobs: BTreeMap<JobId, Job> = seen.map(|job| (job.id, job)).collect();
    let now = app.now();
    let mut items = JsonWriter::with_capacity(256 * rows.len());
    for row in &rows {
        let job = job_of(&row.entry).and_then(|id| jobs.get(&id));
        schedule_write::firing(&mut items, row.at, &row.entry, job, now);
    }
    Ok(page_answer(items, next.map(|next| next.to_string()).as_deref()))
}

/// What became of one instant.
struct Row {
    at: Timestamp,
    entry: Arc<Entry>,
}

/// Where a page ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cursor {
    /// Entries below this one come next.
    before: Option<LedgerCursor>,
    /// Of the first range that reaches over this instant, the instants before it come next.
    inside: Option<Timestamp>,
}

struct Walk<'a> {
    app: &'a App,
    tenant: &'a Tenant,
    id: ScheduleId,
    calendar: Option<Dates>,
    limit: usize,
}

impl Walk<'_> {
    async fn page(&self, mut cursor: Cursor) -> Result<(Vec<Row>, Option<Cursor>), Problem> {
        let store = self.app.engine.store();
        let mut rows = Vec::new();
        loop {
            let count_max = self.limit - rows.len();
            let page = store.ledger(self.tenant, self.id, cursor.before, count_max).await?;
            for (index, entry) in page.entries.iter().enumerate() {
                let entry = Arc::new(entry.clone());
                let is_whole = self.unfold(&entry, &mut cursor.inside, &mut rows);
                let inside = rows.last().map(|row| row.at).filter(|_| !is_whole);
                if inside.is_none() && (rows.len() < self.limit || index + 1 == page.entries.len()) {
                    continue;
                }
                // The page ends here: behind the entries that are done with, perhaps inside the next.
                let done = if is_whole { index + 1 } else { index };
                let before = match done {
                    0 => cursor.before,
                    done => store.ledger(self.tenant, self.id, cursor.before, done).await?.next,
                };
                return Ok((rows, Some(Cursor { before, inside })));
            }
            cursor.before = page.next;
            if page.next.is_none() {
                return Ok((rows, None));
            }
            if rows.len() >= self.limit {
                return Ok((rows, Some(Cursor { inside: None, ..cursor })));
            }
        }
    }

    /// Adds the instants of an entry, as far as there is room; says whether all of them were added. `inside`
    /// leads into a range that an earlier page began with.
    fn unfold(&self, entry: &Arc<Entry>, inside: &mut Option<Timestamp>, rows: &mut Vec<Row>) -> bool {
        let below = match *inside {
            // Decided since, and newer than where the last page ended.
            Some(at) if entry.from > at => return true,
            Some(at) if entry.rule.is_some() && entry.covers(at) => inside.take(),
            Some(_) | None => None,
        };
        let instants = entry.instants_newest_first(self.calendar.as_ref());
        let mut instants = instants.filter(|at| below.is_none_or(|below| *at < below)).peekable();
        while rows.len() < self.limit
            && let Some(at) = instants.next()
        {
            rows.push(Row { at, entry: Arc::clone(entry) });
        }
        instants.peek().is_none()
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.before {
            Some(before) => write!(f, "{}.{}", before.from.as_ms(), before.number)?,
            None => f.write_str(".")?,
        }
        match self.inside {
            Some(inside) => write!(f, ".{}", inside.as_ms()),
            None => f.write_str("."),
        }
    }
}

impl FromStr for Cursor {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let [from, number, inside] = text.split('.').collect::<Vec<_>>()[..] else {
            return Err(bad_cursor());
        };
        let time = |text: &str| text.parse().map(Timestamp::from_ms).map_err(|_| bad_cursor());
        let before = match (from, number) {
            ("", "") => None,
            (from, number) => {
                Some(LedgerCursor { from: time(from)?, number: number.parse().map_err(|_| bad_cursor())? })
            }
        };
        let inside = if inside.is_empty() { None } else { Some(time(inside)?) };
        Ok(Self { before, inside })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_survive_the_round_trip() {
        let before = Some(LedgerCursor { from: Timestamp::from_ms(1_794_711_600_000), number: 7 });
        let inside = Some(Timestamp::from_ms(1_794_711_500_000));
        for cursor in [
            Cursor::default(),
            Cursor { before, inside: None },
            Cursor { before: None, inside },
            Cursor { before, inside },
        ] {
            assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }
        for text in ["", ".", "x", "1.2", "1..", "a.b.c", "1.2.3.4", "-1.-1."] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
