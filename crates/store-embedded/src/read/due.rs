//! What is due: which buckets, which tenants, which jobs. Attempts under way still have their entry in `waiting`
//! and are stepped over.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use tidewheel_core::id::JobId;
use tidewheel_core::job::Job;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_store::{Due, DuePage, Error, TenantDue};

use super::Reader;
use crate::ahead::Looking;
use crate::gaps::Step;
use crate::keys::{self, Parsed};
use crate::kv::{Direction, Keyspace, KvError};
use crate::lean::Lean;
use crate::place::JobKey;
use crate::record::{self, Decoder};
use crate::shared::{read_error, unreadable};
use crate::stopwatch::Stopwatch;
use crate::unreadable::Told;

/// A step from one entry to the next that takes longer went over many deleted ones. In debug builds every step
/// counts as slow, so that the tests meet gaps everywhere.
const SLOW_STEP: Duration = if cfg!(debug_assertions) { Duration::ZERO } else { Duration::from_micros(100) };
/// After every key.
const LAST: [u8; 7] = [u8::MAX; 7];

/// Lean records that are resolved at a time.
const RESOLVED_COUNT: usize = 256;
/// A page that turns out to be longer makes more room.
const FOUND_COUNT_USUAL: usize = 2_048;

/// An entry of `waiting`.
enum Waiting {
    Whole(Arc<Job>),
    Lean(JobId, Lean),
}

impl Waiting {
    fn whole(job: Job) -> Self {
        Self::Whole(Arc::new(job))
    }

    /// About what the job takes; of a lean one, what its record does.
    fn size_bytes(&self) -> usize {
        match self {
            Self::Whole(job) => job.size_bytes(),
            Self::Lean(id, lean) => size_of_val(id) + size_of_val(lean),
        }
    }

    fn id(&self) -> JobId {
        match self {
            Self::Whole(job) => job.id,
            Self::Lean(id, _) => *id,
        }
    }

    fn position(&self) -> Position {
        match self {
            Self::Whole(job) => job.position(),
            Self::Lean(id, _) => Position { at: id.run_at(), id: *id },
        }
    }
}

/// What to do after an entry.
type Flow = Result<ControlFlow<()>, Error>;

impl Reader<'_> {
    pub(crate) fn next_bucket(
        &self,
        shard: Shard,
        from: Bucket,
        until: Bucket,
    ) -> Result<Option<Bucket>, Error> {
        let end = keys::after_prefix(until.0.to_be_bytes().to_vec());
        let mut seek = from;
        while seek <= until {
            let start = keys::shard_prefix(seek, shard);
            let mut next = None;
            // One step: the first entry at or after this shard's place in the bucket, whosever it is.
            self.walk(&start, &end, |parsed, value| {
                if parsed.shard == shard && self.is_under_way(&parsed, value)? {
                    return Ok(ControlFlow::Continue(()));
                }
                next = Some((parsed.bucket, parsed.shard));
                Ok(ControlFlow::Break(()))
            })?;
            match next {
                None => return Ok(None),
                Some((bucket, found)) if found == shard => return Ok(Some(bucket)),
                Some((bucket, found)) if found < shard && bucket > seek => seek = bucket,
                Some((bucket, _)) => seek = bucket.next(),
            }
        }
        Ok(None)
    }

    pub(crate) fn due_tenants(
        &self,
        shard: Shard,
        bucket: Bucket,
        after: Option<&Tenant>,
        count_max: usize,
    ) -> Result<Vec<TenantDue>, Error> {
        let prefix = keys::shard_prefix(bucket, shard);
        let mut start = match after {
            None => prefix.clone(),
            Some(tenant) => keys::after_prefix(keys::tenant_prefix(bucket, shard, tenant)),
        };
        let end = keys::after_prefix(prefix);
        let mut tenants = Vec::new();
        while tenants.len() < count_max {
            let mut found = None;
            self.walk(&start, &end, |parsed, value| {
                if self.is_under_way(&parsed, value)? {
                    return Ok(ControlFlow::Continue(()));
                }
                found = Some(TenantDue { tenant: named(&parsed)?, first_at: parsed.at });
                Ok(ControlFlow::Break(()))
            })?;
            let Some(due) = found else { break };
            start = keys::after_prefix(keys::tenant_prefix(bucket, shard, &due.tenant));
            tenants.push(due);
        }
        Ok(tenants)
    }

    /// A page of what is due. `looking` began before the snapshot was taken.
    pub(crate) fn due(&self, due: &Due, looking: &Looking<'_>) -> Result<DuePage, Error> {
        let prefix = keys::tenant_prefix(due.bucket, due.shard, &due.tenant);
        let start = match due.after {
            None => prefix.clone(),
            // The smallest key after that of the position.
            Some(position) => {
                let mut key = keys::position(due.shard, &due.tenant, position);
                key.push(0);
                key.max(prefix.clone())
            }
        };
        let end = keys::after_prefix(prefix);
        let mut page = DuePage::default();
        let mut found: Vec<Waiting> = Vec::with_capacity(due.count_max.min(FOUND_COUNT_USUAL));
        let mut bytes = 0_usize;
        let mut last = due.after;
        // Each page has a name of its own: the jobs of the next are read while those of this one are claimed.
        let tenant = due.tenant.apart();
        let mut decoder = Decoder::new(&tenant);
        let mut told = Told::default();
        self.walk(&start, &end, |parsed, value| {
            if parsed.at > due.until || found.len() + page.unread >= due.count_max {
                if self.is_under_way(&parsed, value)? {
                    return Ok(ControlFlow::Continue(()));
                }
                if parsed.at > due.until {
                    page.next_at = Some(parsed.at);
                } else {
                    page.resume = last;
                }
                return Ok(ControlFlow::Break(()));
            }
            let waiting = match self.waiting(&due.tenant, &mut decoder, &parsed, value) {
                Err(Error::Corrupt(reason)) => {
                    told.tell(&due.tenant, parsed.id, &reason);
                    // It takes up a place, too: the page ends, and the next begins behind it.
                    page.unread += 1;
                    last = Some(Position { at: parsed.at, id: parsed.id });
                    return Ok(ControlFlow::Continue(()));
                }
                waiting => waiting?,
            };
            bytes = bytes.saturating_add(waiting.size_bytes());
            if bytes > due.bytes_max && !found.is_empty() {
                page.resume = last;
                return Ok(ControlFlow::Break(()));
            }
            last = Some(waiting.position());
            found.push(waiting);
            Ok(ControlFlow::Continue(()))
        })?;
        self.fill_page(&mut page, due, (&tenant, found), looking, &mut told)?;
        self.reading.keep_waiting(&mut page.jobs);
        Ok(page)
    }

    /// Puts what was found into the page, up to its bytes: only now it shows how large lean records are.
    fn fill_page(
        &self,
        page: &mut DuePage,
        due: &Due,
        (tenant, found): (&Tenant, Vec<Waiting>),
        looking: &Looking<'_>,
        told: &mut Told,
    ) -> Result<(), Error> {
        page.jobs.reserve(found.len());
        let mut bytes = 0_usize;
        let mut found = found.into_iter();
        while found.len() > 0 {
            let some = found.as_slice().iter().take(RESOLVED_COUNT);
            let lean: Vec<_> = some
                .filter_map(|waiting| match waiting {
                    Waiting::Lean(id, lean) => Some((*id, *lean)),
                    Waiting::Whole(_) => None,
                })
                .collect();
            let mut resolved = self.resolve(tenant, &lean, Some(looking))?.into_iter();
            for waiting in found.by_ref().take(RESOLVED_COUNT) {
                let id = waiting.id();
                let job = match waiting {
                    Waiting::Whole(job) => Some(Ok(job)),
                    Waiting::Lean(..) => resolved.next(),
                };
                let job = match job {
                    Some(Ok(job)) => job,
                    Some(Err(reason)) => {
                        told.tell(tenant, id, &reason.to_string());
                        page.unread += 1;
                        continue;
                    }
                    None => continue,
                };
                bytes = bytes.saturating_add(job.size_bytes());
                if bytes > due.bytes_max && !page.jobs.is_empty() {
                    page.resume = page.jobs.last().map(|job| job.position());
                    page.next_at = None;
                    return Ok(());
                }
                page.jobs.push(job);
            }
        }
        Ok(())
    }

    /// The job an entry of `waiting` stands for, which may be running.
    fn waiting(
        &self,
        tenant: &Tenant,
        decoder: &mut Decoder<'_>,
        parsed: &Parsed<'_>,
        value: &[u8],
    ) -> Result<Waiting, Error> {
        if !parsed.is_timer {
            if let Some(lean) = Lean::read(parsed.id, value).map_err(unreadable)? {
                return Ok(Waiting::Lean(parsed.id, lean));
            }
            return decoder.decode(parsed.id, value).map(Waiting::whole).map_err(unreadable);
        }
        let key = JobKey { id: parsed.id, tenant: tenant.clone() };
        let Some(bytes) = self.parked(&key)? else { return Err(lost_record(&key)) };
        decoder.decode(key.id, &bytes).map(Waiting::whole).map_err(unreadable)
    }

    fn is_under_way(&self, parsed: &Parsed<'_>, value: &[u8]) -> Result<bool, Error> {
        let key = JobKey { id: parsed.id, tenant: named(parsed)? };
        // Most jobs are not running, and their record need not be read to know it.
        if !self.reading.is_under_way(key.tag(), 0) {
            return Ok(false);
        }
        match self.attempt_of(&key, parsed, value) {
            Ok(attempt) => Ok(self.reading.is_under_way(key.tag(), attempt)),
            // One that cannot be read is under way as far as anybody can tell, and holds up nothing behind it.
            Err(Error::Corrupt(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The last attempt of a job, as its record says.
    fn attempt_of(&self, key: &JobKey, parsed: &Parsed<'_>, value: &[u8]) -> Result<u32, Error> {
        let attempt = if parsed.is_timer {
            let Some(bytes) = self.parked(key)? else { return Err(lost_record(key)) };
            record::attempt_of(&key.tenant, key.id, &bytes)
        } else {
            record::attempt_of(&key.tenant, key.id, value)
        };
        attempt.map_err(unreadable)
    }

    fn parked(&self, key: &JobKey) -> Result<Option<bytes::Bytes>, Error> {
        self.snapshot.get(Keyspace::Parked, &key.natural(self.shards)).map_err(read_error)
    }

    /// Walks `waiting` from `start` up to, not including, `end`, stepping over what is known to be empty.
    fn walk(
        &self,
        start: &[u8],
        end: &[u8],
        mut visit: impl FnMut(Parsed<'_>, &[u8]) -> Flow,
    ) -> Result<(), Error> {
        let end = if end.is_empty() { &LAST } else { end };
        let mut at = start.to_vec();
        while &*at < end {
            let Step { from, to } = self.shared.gaps.skip(&at);
            let to = to.filter(|to| &**to < end).unwrap_or_else(|| end.to_vec());
            if self.walk_stretch(from, &to, &mut visit)?.is_break() {
                break;
            }
            at = to;
        }
        Ok(())
    }

    /// Walks one stretch, and notes where in it the engine had to step over much that is deleted.
    fn walk_stretch(
        &self,
        mut start: Vec<u8>,
        end: &[u8],
        visit: &mut impl FnMut(Parsed<'_>, &[u8]) -> Flow,
    ) -> Flow {
        let mut outcome = Ok(ControlFlow::Continue(()));
        let mut stopwatch = Stopwatch::start();
        let range = (Bound::Included(&*start.clone()), Bound::Excluded(end));
        let scanned = self.snapshot.scan(Keyspace::Waiting, range, Direction::Up, &mut |key, value| {
            if stopwatch.lap() >= SLOW_STEP {
                self.shared.gaps.note(self.gaps_version, &start, key);
            }
            outcome = keys::parse(key).ok_or_else(bad_key).and_then(|parsed| visit(parsed, value));
            if !matches!(outcome, Ok(ControlFlow::Continue(()))) {
                return ControlFlow::Break(());
            }
            start.clear();
            start.extend_from_slice(key);
            start.push(0);
            ControlFlow::Continue(())
        });
        scanned.map_err(read_error)?;
        if matches!(outcome, Ok(ControlFlow::Continue(()))) && stopwatch.elapsed() >= SLOW_STEP {
            self.shared.gaps.note(self.gaps_version, &start, end);
        }
        outcome
    }
}

fn named(parsed: &Parsed<'_>) -> Result<Tenant, Error> {
    parsed.tenant_name().ok_or_else(bad_key)
}

pub(super) fn bad_key() -> Error {
    read_error(KvError::Corrupt("a key that is no job's".to_owned()))
}

fn lost_record(key: &JobKey) -> Error {
    Error::Corrupt(format!("the record of {} of tenant {} is missing", key.id, key.tenant))
}
