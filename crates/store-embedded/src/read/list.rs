//! Listing one tenant's jobs, latest first. The keyspaces that can hold wanted jobs are walked backwards side by
//! side and merged by id. Within a keyspace the tenant's jobs stand in one stretch per bucket; from one stretch
//! to the next it takes one step, whatever lies between.
//!
//! `waiting` may hold many that never ran. Unless those are wanted it is not walked: which of it run, or are tried again
//! at the instant in their id, is known, and they are read one by one.
//!
//! Of a tenant that was ever spread, each keyspace is walked once for each shard that it ever had jobs in.

use std::ops::{Bound, ControlFlow};

use tidewheel_core::id::JobId;
use tidewheel_core::job::State;
use tidewheel_core::limits::{LIST_SCAN_COUNT_MAX, RUN_AT_MS_MAX};
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, ListQuery, Page, PageCursor};

use super::Reader;
use super::due::bad_key;
use crate::keys;
use crate::kv::{Direction, Keyspace};
use crate::lean::{self, Lean};
use crate::open::scan_prefix;
use crate::place::JobTag;
use crate::shared::{read_error, unreadable};
use crate::unreadable::Told;

/// Records read at a time from one keyspace: few at first, more when more are needed.
const CHUNK_COUNT_MIN: usize = 8;
const CHUNK_COUNT_MAX: usize = 256;

/// Where jobs are read from.
struct Source {
    origin: Origin,
    /// Records read and not yet taken, the latest last.
    ready: Vec<(JobId, Vec<u8>)>,
    /// All ids above this have been read; a job below may still come.
    above: JobId,
    chunk: usize,
    exhausted: bool,
}

enum Origin {
    /// One keyspace, walked backwards.
    Walk {
        keyspace: Keyspace,
        shard: Shard,
        /// Everything from this key on has been read.
        read_down_to: Vec<u8>,
    },
    /// Certain jobs, the latest last, each in the first of these keyspaces that has it.
    Points { ids: Vec<JobId>, keyspaces: &'static [Keyspace] },
}

/// Which ids are wanted.
struct Span {
    /// The first that is.
    floor: JobId,
    /// The first that is not; `None` when there is none.
    below: Option<JobId>,
}

impl Span {
    fn of(query: &ListQuery) -> Self {
        let floor = query.filter.from.map_or(JobId::from_bytes([0; 16]), |from| JobId::new(from, 0));
        let after = query.after.map(|cursor| cursor.0);
        let to = query.filter.to.map(|to| JobId::new(to, 0));
        Self { floor, below: after.into_iter().chain(to).min() }
    }

    /// Only what was set for `by` or earlier.
    fn until(&self, by: Timestamp) -> Self {
        let end = JobId::new(by.plus_ms(1), 0);
        Self { floor: self.floor, below: Some(self.below.map_or(end, |below| below.min(end))) }
    }

    fn has(&self, id: JobId) -> bool {
        self.floor <= id && self.below.is_none_or(|below| id < below)
    }
}

const TOP: JobId = JobId::from_bytes([u8::MAX; 16]);

impl Reader<'_> {
    pub(crate) fn list(&self, query: &ListQuery) -> Result<Page, Error> {
        let span = Span::of(query);
        let mut sources = self.sources(query, &span)?;
        let mut page = Page::default();
        let mut budget = LIST_SCAN_COUNT_MAX;
        let mut last_seen = None;
        let mut told = Told::default();
        loop {
            // Only what may hold a later job than those at hand: days of history that end before are not begun.
            let at_hand = sources.iter().filter_map(|source| Some(source.ready.last()?.0)).max();
            let may_be_later = |source: &Source| at_hand.is_none_or(|id| source.above > id);
            let unread = sources.iter_mut().filter(|source| source.ready.is_empty() && !source.exhausted);
            let next = unread.filter(|source| may_be_later(source)).max_by_key(|source| source.above);
            if let Some(source) = next.filter(|_| budget > 0) {
                self.fill(source, &query.tenant, span.floor, &mut budget)?;
                continue;
            }
            page.looked = LIST_SCAN_COUNT_MAX.saturating_sub(budget);
            // A source that still has to be read may hold later jobs than those at hand.
            let unread = sources.iter().filter(|source| source.ready.is_empty() && !source.exhausted);
            let horizon = unread.map(|source| source.above).max();
            let latest = sources.iter_mut().max_by_key(|source| source.ready.last().map(|(id, _)| *id));
            let next = latest.and_then(|source| {
                let id = source.ready.last()?.0;
                horizon.is_none_or(|horizon| id >= horizon).then_some(source)
            });
            match next.and_then(|source| source.ready.pop()) {
                Some((id, bytes)) => {
                    if page.jobs.len() >= query.count_max {
                        page.next = last_seen;
                        return Ok(page);
                    }
                    last_seen = Some(PageCursor(id));
                    match self.add(&mut page, query, id, &bytes) {
                        Err(Error::Corrupt(reason)) => told.tell(&query.tenant, id, &reason),
                        added => added?,
                    }
                }
                None => {
                    // Out of budget: go on below what is known to be read in all.
                    page.next = horizon.map(PageCursor);
                    return Ok(page);
                }
            }
        }
    }

    fn add(&self, page: &mut Page, query: &ListQuery, id: JobId, bytes: &[u8]) -> Result<(), Error> {
        let lean = Lean::read(id, bytes).map_err(unreadable)?;
        let is_of_another = |wanted| lean.is_some_and(|lean| lean.occurrence.schedule_id != wanted);
        if query.filter.schedule.is_some_and(is_of_another) {
            return Ok(());
        }
        let get = |keyspace, key: &[u8]| self.snapshot.get(keyspace, key);
        let job = lean::read_job(get, &query.tenant, id, bytes).map_err(read_error)?;
        let job = self.running_or(JobTag::new(&query.tenant, id), job);
        if query.filter.matches(&job) {
            page.jobs.push(job);
        }
        Ok(())
    }

    /// Where jobs of wanted states can lie.
    fn sources(&self, query: &ListQuery, span: &Span) -> Result<Vec<Source>, Error> {
        let (tenant, filter) = (&query.tenant, &query.filter);
        let wants = |states: &[State]| states.iter().any(|state| filter.wants_state(*state));
        let shards = self.shared.spread.shards_of(tenant, self.shards);
        let walk = |keyspace| self.walks(keyspace, tenant, &shards, span);
        let mut sources = Vec::new();
        if wants(&[State::Scheduled]) {
            // What stands at its first time is not due before it.
            match filter.due_by {
                Some(by) => sources.extend(self.walks(Keyspace::Waiting, tenant, &shards, &span.until(by))),
                None => sources.extend(walk(Keyspace::Waiting)),
            }
            sources.extend(walk(Keyspace::Parked));
        } else if wants(&[State::Retrying]) {
            let mut ids = self.retrying_at_home(tenant)?;
            if wants(&[State::Running]) {
                ids.extend(self.shared.view.attempts_of(tenant));
            }
            sources.push(Source::points(ids, span, &[Keyspace::Waiting]));
            sources.extend(walk(Keyspace::Parked));
        } else if wants(&[State::Running]) {
            let ids = self.shared.view.attempts_of(tenant);
            sources.push(Source::points(ids, span, &[Keyspace::Waiting, Keyspace::Parked]));
        }
        if wants(&[State::Dead]) && filter.due_by.is_none() {
            sources.extend(walk(Keyspace::Dead));
        }
        let ended = [State::Succeeded, State::Cancelled, State::Skipped, State::Expired];
        if wants(&ended) && filter.due_by.is_none() {
            let counters = self.shared.counters();
            let days = self.days.history.iter().filter(|(day, _)| counters.has_history(**day, tenant));
            for (day, (_, last)) in days {
                let above = last.end();
                let above = if above.as_ms() > RUN_AT_MS_MAX { TOP } else { JobId::new(above, 0) };
                let of_day = walk(Keyspace::History(*day)).into_iter();
                sources.extend(of_day.map(|source| Source { above: above.min(source.above), ..source }));
            }
        }
        Ok(sources)
    }

    fn walks(&self, keyspace: Keyspace, tenant: &Tenant, shards: &[Shard], span: &Span) -> Vec<Source> {
        let walk = |shard: &Shard| {
            let mut read_down_to = keys::job_in(*shard, tenant, span.below.unwrap_or(TOP));
            if span.below.is_none() {
                read_down_to.push(0);
            }
            let walk = Source::of(Origin::Walk { keyspace, shard: *shard, read_down_to });
            Source { above: span.below.unwrap_or(TOP), ..walk }
        };
        shards.iter().map(walk).collect()
    }

    /// The tenant's jobs that are tried again at the instant in their id: a handful.
    fn retrying_at_home(&self, tenant: &Tenant) -> Result<Vec<JobId>, Error> {
        let mut ids = Vec::new();
        scan_prefix(&*self.snapshot, Keyspace::Meta, &[keys::meta::RETRYING], |key, _| {
            let parsed = key.split_first().and_then(|(_, natural)| keys::parse(natural));
            let of_tenant = |parsed: &keys::Parsed<'_>| parsed.tenant == tenant.as_str().as_bytes();
            ids.extend(parsed.filter(of_tenant).map(|parsed| parsed.id));
            Ok(())
        })
        .map_err(read_error)?;
        Ok(ids)
    }

    /// Reads the next records of a source, at most one chunk, at most what is left of the budget.
    fn fill(
        &self,
        source: &mut Source,
        tenant: &Tenant,
        floor: JobId,
        budget: &mut usize,
    ) -> Result<(), Error> {
        let room = source.chunk.min(*budget);
        source.chunk = (source.chunk * 2).min(CHUNK_COUNT_MAX);
        let Source { origin, ready, above, exhausted, .. } = source;
        let (keyspace, shard, read_down_to) = match origin {
            Origin::Walk { keyspace, shard, read_down_to } => (*keyspace, *shard, read_down_to),
            Origin::Points { ids, keyspaces } => {
                let from = ids.len().saturating_sub(room);
                *budget = budget.saturating_sub(ids.len() - from);
                for id in ids.drain(from..) {
                    *above = (*above).min(id);
                    ready.extend(self.point(tenant, id, keyspaces)?.map(|bytes| (id, bytes)));
                }
                *exhausted = ids.is_empty();
                return Ok(());
            }
        };
        let lowest = keys::job_in(shard, tenant, floor);
        let mut outcome = Ok(());
        let mut jump = None;
        let range = (Bound::Included(&*lowest), Bound::Excluded(&*read_down_to.clone()));
        let mut looked = 0;
        let visit = &mut |key: &[u8], value: &[u8]| {
            looked += 1;
            let Some(parsed) = keys::parse(key) else {
                outcome = Err(bad_key());
                return ControlFlow::Break(());
            };
            if parsed.tenant != tenant.as_str().as_bytes() || parsed.shard != shard {
                jump = Some((key.to_vec(), parsed.bucket));
                return ControlFlow::Break(());
            }
            *read_down_to = key.to_vec();
            if !parsed.is_timer {
                *above = parsed.id;
                ready.push((parsed.id, value.to_vec()));
            }
            if looked >= room { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.snapshot.scan(keyspace, range, Direction::Down, visit).map_err(read_error)?;
        outcome?;
        ready.reverse();
        *budget = budget.saturating_sub(looked.max(1));
        match jump {
            Some((key, bucket)) => match target(&key, bucket, shard, tenant) {
                Some((key, bucket)) => {
                    *read_down_to = key;
                    // No id of a later bucket is left; the first of the next one is the bound.
                    *above = (*above).min(JobId::new(bucket.end().min(Timestamp::MAX), 0));
                }
                None => *exhausted = true,
            },
            None if looked < room => *exhausted = true,
            None => {}
        }
        Ok(())
    }

    fn point(&self, tenant: &Tenant, id: JobId, keyspaces: &[Keyspace]) -> Result<Option<Vec<u8>>, Error> {
        let natural = keys::job(self.shards, tenant, id);
        for keyspace in keyspaces {
            if let Some(bytes) = self.snapshot.get(*keyspace, &natural).map_err(read_error)? {
                return Ok(Some(bytes.to_vec()));
            }
        }
        Ok(None)
    }
}

/// Where to go on at the tenant's next stretch below a neighbour's `key` in `bucket`.
fn target(key: &[u8], bucket: Bucket, shard: Shard, tenant: &Tenant) -> Option<(Vec<u8>, Bucket)> {
    let here = keys::after_prefix(keys::tenant_prefix(bucket, shard, tenant));
    if key >= &*here {
        return Some((here, bucket));
    }
    let below = Bucket(bucket.0.checked_sub(1)?);
    Some((keys::after_prefix(keys::tenant_prefix(below, shard, tenant)), below))
}

impl Source {
    const fn of(origin: Origin) -> Self {
        Self { origin, ready: Vec::new(), above: TOP, chunk: CHUNK_COUNT_MIN, exhausted: false }
    }

    fn points(mut ids: Vec<JobId>, span: &Span, keyspaces: &'static [Keyspace]) -> Self {
        ids.retain(|id| span.has(*id));
        ids.sort_unstable();
        ids.dedup();
        Self::of(Origin::Points { ids, keyspaces })
    }
}
