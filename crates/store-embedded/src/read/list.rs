//! Listing one tenant's jobs, latest first. The keyspaces that can hold wanted jobs are walked backwards side by
//! side and merged by id. Within a keyspace the tenant's jobs stand in one stretch per bucket; from one stretch
//! to the next it takes one step, whatever lies between.

use std::ops::{Bound, ControlFlow};

use tidewheel_core::id::JobId;
use tidewheel_core::job::State;
use tidewheel_core::limits::LIST_SCAN_COUNT_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Shard};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Error, Filter, ListQuery, Page, PageCursor};

use super::Reader;
use super::due::bad_key;
use crate::keys;
use crate::kv::{Direction, Keyspace};
use crate::place::JobTag;
use crate::record;
use crate::shared::{read_error, unreadable};

/// Records read at a time from one keyspace: few at first, more when more are needed.
const CHUNK_COUNT_MIN: usize = 8;
const CHUNK_COUNT_MAX: usize = 256;

/// One keyspace, walked backwards.
struct Source {
    keyspace: Keyspace,
    /// Records read and not yet taken, the latest last.
    ready: Vec<(JobId, Vec<u8>)>,
    /// Everything from this key on has been read.
    read_down_to: Vec<u8>,
    /// All ids above this have been read; a job below may still come.
    above: JobId,
    chunk: usize,
    exhausted: bool,
}

impl Reader<'_> {
    pub(crate) fn list(&self, query: &ListQuery) -> Result<Page, Error> {
        let shard = Shard::of(&query.tenant, self.shards);
        let top = JobId::from_bytes([u8::MAX; 16]);
        let below = query.after.map_or(top, |cursor| cursor.0);
        let below = query.filter.to.map_or(below, |to| below.min(JobId::new(to, 0)));
        let includes_top = query.after.is_none() && query.filter.to.is_none();
        let floor = query.filter.from.map_or(JobId::from_bytes([0; 16]), |from| JobId::new(from, 0));
        let mut read_down_to = keys::job(self.shards, &query.tenant, below);
        if includes_top {
            read_down_to.push(0);
        }
        let mut sources: Vec<_> = self
            .keyspaces_for(&query.tenant, &query.filter)
            .into_iter()
            .map(|keyspace| Source {
                keyspace,
                ready: Vec::new(),
                read_down_to: read_down_to.clone(),
                above: top,
                chunk: CHUNK_COUNT_MIN,
                exhausted: false,
            })
            .collect();
        let mut page = Page::default();
        let mut budget = LIST_SCAN_COUNT_MAX;
        let mut last_seen = None;
        loop {
            for source in &mut sources {
                while source.ready.is_empty() && !source.exhausted && budget > 0 {
                    self.fill(source, &query.tenant, shard, floor, &mut budget)?;
                }
            }
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
                    self.add(&mut page, query, id, &bytes)?;
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
        let job = record::decode(&query.tenant, id, bytes).map_err(unreadable)?;
        let job = self.running_or(JobTag::new(&query.tenant, id), job);
        if query.filter.matches(&job) {
            page.jobs.push(job);
        }
        Ok(())
    }

    /// The keyspaces in which jobs of wanted states can lie.
    fn keyspaces_for(&self, tenant: &Tenant, filter: &Filter) -> Vec<Keyspace> {
        let wants = |states: &[State]| states.iter().any(|state| filter.wants_state(*state));
        let mut keyspaces = Vec::new();
        if wants(&[State::Scheduled, State::Running, State::Retrying]) {
            keyspaces.extend([Keyspace::Waiting, Keyspace::Parked]);
        }
        if wants(&[State::Dead]) {
            keyspaces.push(Keyspace::Dead);
        }
        if wants(&[State::Succeeded, State::Cancelled, State::Skipped, State::Expired]) {
            let counters = self.shared.counters();
            let days = self.days.history.keys().filter(|day| counters.has_history(**day, tenant));
            keyspaces.extend(days.map(|day| Keyspace::History(*day)));
        }
        keyspaces
    }

    /// Reads the next records of a source, at most one chunk, at most what is left of the budget.
    fn fill(
        &self,
        source: &mut Source,
        tenant: &Tenant,
        shard: Shard,
        floor: JobId,
        budget: &mut usize,
    ) -> Result<(), Error> {
        let lowest = keys::job(self.shards, tenant, floor);
        let room = source.chunk.min(*budget);
        let mut outcome = Ok(());
        let mut jump = None;
        let range = (Bound::Included(&*lowest), Bound::Excluded(&*source.read_down_to.clone()));
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
            source.read_down_to = key.to_vec();
            if !parsed.is_timer {
                source.above = parsed.id;
                source.ready.push((parsed.id, value.to_vec()));
            }
            if looked >= room { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.snapshot.scan(source.keyspace, range, Direction::Down, visit).map_err(read_error)?;
        outcome?;
        source.ready.reverse();
        *budget = budget.saturating_sub(looked.max(1));
        source.chunk = (source.chunk * 2).min(CHUNK_COUNT_MAX);
        match jump {
            Some((key, bucket)) => source.jump(&key, bucket, shard, tenant),
            None if looked < room => source.exhausted = true,
            None => {}
        }
        Ok(())
    }
}

impl Source {
    /// Goes on at the tenant's next stretch below a neighbour's `key` in `bucket`.
    fn jump(&mut self, key: &[u8], bucket: Bucket, shard: Shard, tenant: &Tenant) {
        let here = keys::after_prefix(keys::tenant_prefix(bucket, shard, tenant));
        let target = if key >= &*here {
            Some((here, bucket))
        } else {
            bucket.0.checked_sub(1).map(|below| {
                (keys::after_prefix(keys::tenant_prefix(Bucket(below), shard, tenant)), Bucket(below))
            })
        };
        match target {
            Some((key, bucket)) => {
                self.read_down_to = key;
                // No id of a later bucket is left; the first of the next one is the bound.
                let bound = JobId::new(bucket.end().min(Timestamp::MAX), 0);
                self.above = self.above.min(bound);
            }
            None => self.exhausted = true,
        }
    }
}
