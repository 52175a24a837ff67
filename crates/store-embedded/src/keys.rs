//! Keys on disk. All numbers are big-endian, so bytes sort as numbers do.
//!
//! ```text
//! job      bucket u32 | shard u16 | tenant | 00 | id (16 bytes: run_at 48 bits, tail 80 bits)
//! timer    bucket u32 | shard u16 | tenant | 00 | due_at 48 bits | id (16 bytes)
//! ```
//!
//! *job* is a job's natural key: the id begins with the time the job was first set for, so in `waiting` whole
//! jobs stand in the order of their times and need no other index. *timer* stands only in `waiting`, for a job
//! that waits for another time than its first; its record is in `parked` under the natural key. The two are told
//! apart by what follows the tenant: 16 bytes or 22. Tenants have no zero byte, so none is a prefix of another. The shard
//! follows from tenant and id.
//!
//! `claims` counts its records with a u64. `keys-…` has tenant | 00 | idempotency key. `names` and
//! `calendars` have tenant | 00 | name; `documents` has kind | 00 | tenant | 00 | name. `meta` is in [`meta`].
//!
//! ```text
//! schedule tenant | 00 | id (16 bytes)
//! ledger   tenant | 00 | id (16 bytes) | first instant 64 bits, as if 2^63 had been added | number u64
//! ```

use tidewheel_core::id::JobId;
use tidewheel_core::limits::RUN_AT_MS_MAX;
use tidewheel_core::names::Tenant;
use tidewheel_core::place::{Bucket, Position, Shard};
use tidewheel_core::schedule::ScheduleId;
use tidewheel_core::time::Timestamp;
use tidewheel_store::LedgerCursor;

use crate::kv::Slice;

const PLACE_BYTES: usize = 6;
const ID_BYTES: usize = 16;
const AT_BYTES: usize = 6;
const END_OF_TENANT: u8 = 0;
/// Room for most keys of jobs and timers.
const KEY_BYTES_USUAL: usize = PLACE_BYTES + 32 + 1 + AT_BYTES + ID_BYTES;

/// The natural key of a job.
pub(crate) fn job(shards: u16, tenant: &Tenant, id: JobId) -> Vec<u8> {
    job_in(Shard::of_job(tenant, id, shards), tenant, id)
}

/// The same, put together in `scratch`.
pub(crate) fn job_slice(shards: u16, tenant: &Tenant, id: JobId, scratch: &mut Vec<u8>) -> Slice {
    scratch.clear();
    append_job(scratch, Shard::of_job(tenant, id, shards), tenant, id);
    Slice::from(&**scratch)
}

/// What the natural key of a job would be in that shard.
pub(crate) fn job_in(shard: Shard, tenant: &Tenant, id: JobId) -> Vec<u8> {
    let mut key = Vec::with_capacity(KEY_BYTES_USUAL);
    append_job(&mut key, shard, tenant, id);
    key
}

fn append_job(key: &mut Vec<u8>, shard: Shard, tenant: &Tenant, id: JobId) {
    append_tenant_prefix(key, Bucket::of(id.run_at()), shard, tenant);
    key.extend_from_slice(id.as_bytes());
}

/// The key of the timer entry of a job that waits for `at`.
pub(crate) fn timer(shards: u16, tenant: &Tenant, at: Timestamp, id: JobId) -> Vec<u8> {
    timer_in(Shard::of_job(tenant, id, shards), tenant, at, id)
}

fn timer_in(shard: Shard, tenant: &Tenant, at: Timestamp, id: JobId) -> Vec<u8> {
    let at = within_range(at);
    let mut key = tenant_prefix(Bucket::of(at), shard, tenant);
    let [_, _, ms @ ..] = at.as_ms().to_be_bytes();
    key.extend_from_slice(&ms);
    key.extend_from_slice(id.as_bytes());
    key
}

/// Whether a job that waits for `at` stands at its natural place.
pub(crate) fn is_home(at: Timestamp, id: JobId) -> bool {
    at == id.run_at()
}

/// The key in `waiting` a position in a shard stands for.
pub(crate) fn position(shard: Shard, tenant: &Tenant, position: Position) -> Vec<u8> {
    if is_home(position.at, position.id) {
        job_in(shard, tenant, position.id)
    } else {
        timer_in(shard, tenant, position.at, position.id)
    }
}

/// What all keys of one shard in one bucket begin with.
pub(crate) fn shard_prefix(bucket: Bucket, shard: Shard) -> Vec<u8> {
    let mut key = Vec::with_capacity(KEY_BYTES_USUAL);
    append_shard_prefix(&mut key, bucket, shard);
    key
}

fn append_shard_prefix(key: &mut Vec<u8>, bucket: Bucket, shard: Shard) {
    key.extend_from_slice(&bucket.0.to_be_bytes());
    key.extend_from_slice(&shard.0.to_be_bytes());
}

/// What all keys of one tenant in one bucket begin with.
pub(crate) fn tenant_prefix(bucket: Bucket, shard: Shard, tenant: &Tenant) -> Vec<u8> {
    let mut key = Vec::with_capacity(KEY_BYTES_USUAL);
    append_tenant_prefix(&mut key, bucket, shard, tenant);
    key
}

fn append_tenant_prefix(key: &mut Vec<u8>, bucket: Bucket, shard: Shard, tenant: &Tenant) {
    append_shard_prefix(key, bucket, shard);
    key.extend_from_slice(tenant.as_str().as_bytes());
    key.push(END_OF_TENANT);
}

/// The first key after all that begin with `prefix`; empty when there is none.
pub(crate) fn after_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            break;
        }
    }
    prefix
}

/// The key of an idempotency key.
pub(crate) fn idempotency(tenant: &Tenant, key: &str) -> Vec<u8> {
    named(tenant, key)
}

/// The key of what has a name of its tenant's choice: a schedule, a calendar.
pub(crate) fn named(tenant: &Tenant, name: &str) -> Vec<u8> {
    of_tenant(tenant, name.as_bytes())
}

/// What the keys of everything begin with that a tenant has in a keyspace without buckets.
pub(crate) fn tenant_only(tenant: &Tenant) -> Vec<u8> {
    of_tenant(tenant, &[])
}

fn of_tenant(tenant: &Tenant, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(tenant.as_str().len() + 1 + rest.len());
    append_of_tenant(&mut bytes, tenant, rest);
    bytes
}

fn append_of_tenant(bytes: &mut Vec<u8>, tenant: &Tenant, rest: &[u8]) {
    bytes.extend_from_slice(tenant.as_str().as_bytes());
    bytes.push(END_OF_TENANT);
    bytes.extend_from_slice(rest);
}

/// The key of a schedule, with which the keys of its ledger begin.
pub(crate) fn schedule(tenant: &Tenant, id: ScheduleId) -> Vec<u8> {
    of_tenant(tenant, id.as_bytes())
}

/// The same, put together in `scratch`.
pub(crate) fn schedule_slice(tenant: &Tenant, id: ScheduleId, scratch: &mut Vec<u8>) -> Slice {
    scratch.clear();
    append_of_tenant(scratch, tenant, id.as_bytes());
    Slice::from(&**scratch)
}

/// The id in the key of a schedule.
pub(crate) fn schedule_id(key: &[u8]) -> Option<ScheduleId> {
    key.split_last_chunk::<ID_BYTES>().map(|(_, id)| ScheduleId::from_bytes(*id))
}

/// The tenant and the id in the key of a schedule.
pub(crate) fn parse_schedule(key: &[u8]) -> Option<(Tenant, ScheduleId)> {
    let (tenant, id) = key.split_last_chunk::<ID_BYTES>()?;
    let tenant = tenant.strip_suffix(&[END_OF_TENANT])?;
    let tenant = Tenant::new(std::str::from_utf8(tenant).ok()?).ok()?;
    Some((tenant, ScheduleId::from_bytes(*id)))
}

/// The key of an entry of a schedule's ledger.
pub(crate) fn ledger_entry(tenant: &Tenant, id: ScheduleId, cursor: LedgerCursor) -> Vec<u8> {
    let mut key = schedule(tenant, id);
    push_cursor(&mut key, cursor);
    key
}

/// The keys of sheets of a schedule's ledger begin with this: behind all of single entries, whose instants are before the
/// year 10,000.
pub(crate) fn ledger_sheets(tenant: &Tenant, id: ScheduleId) -> Vec<u8> {
    let mut key = schedule(tenant, id);
    key.push(0xff);
    key
}

/// The key of a sheet of a schedule's ledger whose first line stands there.
pub(crate) fn ledger_sheet(tenant: &Tenant, id: ScheduleId, first: LedgerCursor) -> Vec<u8> {
    let mut key = ledger_sheets(tenant, id);
    push_cursor(&mut key, first);
    key
}

fn push_cursor(key: &mut Vec<u8>, cursor: LedgerCursor) {
    key.extend_from_slice(&(cursor.from.as_ms() ^ i64::MIN).to_be_bytes());
    key.extend_from_slice(&cursor.number.to_be_bytes());
}

/// Where the entry of that key stands in its ledger.
pub(crate) fn ledger_cursor(key: &[u8]) -> Option<LedgerCursor> {
    let (rest, number) = key.split_last_chunk::<8>()?;
    let (_, from) = rest.split_last_chunk::<8>()?;
    let from = Timestamp::from_ms(i64::from_be_bytes(*from) ^ i64::MIN);
    Some(LedgerCursor { from, number: u64::from_be_bytes(*number) })
}

/// A key of `waiting` (or of any keyspace with natural keys), taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parsed<'a> {
    pub(crate) bucket: Bucket,
    pub(crate) shard: Shard,
    pub(crate) tenant: &'a [u8],
    /// The time of the entry; for a timer not that of the id.
    pub(crate) at: Timestamp,
    pub(crate) id: JobId,
    pub(crate) is_timer: bool,
}

impl Parsed<'_> {
    pub(crate) fn tenant_name(&self) -> Option<Tenant> {
        std::str::from_utf8(self.tenant).ok().and_then(|name| Tenant::new(name).ok())
    }
}

/// Takes a key apart; `None` when it is none of the two kinds.
pub(crate) fn parse(key: &[u8]) -> Option<Parsed<'_>> {
    let (bucket, rest) = key.split_first_chunk::<4>()?;
    let (shard, rest) = rest.split_first_chunk::<2>()?;
    let end = rest.iter().position(|byte| *byte == END_OF_TENANT)?;
    let (tenant, rest) = rest.split_at_checked(end)?;
    let rest = rest.get(1..)?;
    let (_, id) = rest.split_last_chunk::<ID_BYTES>()?;
    let is_timer = match rest.len() {
        ID_BYTES => false,
        22 => true,
        _ => return None,
    };
    let (at, _) = rest.split_first_chunk::<AT_BYTES>()?;
    let [a, b, c, d, e, f] = *at;
    Some(Parsed {
        bucket: Bucket(u32::from_be_bytes(*bucket)),
        shard: Shard(u16::from_be_bytes(*shard)),
        tenant,
        at: Timestamp::from_ms(i64::from_be_bytes([0, 0, a, b, c, d, e, f])),
        id: JobId::from_bytes(*id),
        is_timer,
    })
}

fn within_range(at: Timestamp) -> Timestamp {
    Timestamp::from_ms(at.as_ms().clamp(0, RUN_AT_MS_MAX))
}

/// Keys of the `meta` keyspace.
pub(crate) mod meta {
    use tidewheel_core::names::Tenant;
    use tidewheel_core::place::Shard;

    use crate::kv::Day;

    /// What the store was made with.
    pub(crate) const FORMAT: &[u8] = b"format";
    /// The newest epoch, u64.
    pub(crate) const EPOCH: &[u8] = b"epoch";
    /// The number of the newest group commit, u64. In every batch, so a lost one is noticed.
    pub(crate) const GROUP: &[u8] = b"group";
    /// Empty; written after a start to have something written ([`crate::recovered`]), in a batch without a group's number: it
    /// is no loss. No name may begin with a prefix below.
    pub(crate) const OPENED: &[u8] = b"opened";
    /// The number of the next entry in any ledger, u64.
    pub(crate) const NEXT_ENTRY: &[u8] = b"next_entry";
    /// The first day of which ledgers are kept, u32.
    pub(crate) const LEDGER_FROM: &[u8] = b"ledger_from";
    /// By which rules of time zones pending occurrences are computed: a text, empty while they are recomputed.
    pub(crate) const ZONES: &[u8] = b"zones";
    /// The number of the newest change of a document, u64.
    pub(crate) const NEWEST_DOCUMENT: &[u8] = b"newest_document";
    /// Prefix: the number of one tenant's schedules.
    pub(crate) const SCHEDULES: u8 = b's';
    /// Prefix: counts of one tenant's jobs by state.
    pub(crate) const TENANTS: u8 = b't';
    /// Prefix: which sub-shards one tenant ever had jobs in, a bit each, u16; only of tenants that were spread.
    pub(crate) const SUB_SHARDS: u8 = b'u';
    /// Prefix: counts of one tenant's jobs in one day's history.
    pub(crate) const DAYS: u8 = b'd';
    /// Prefix: checkpoints of one shard.
    pub(crate) const CHECKPOINTS: u8 = b'c';
    /// Prefix: the newest record of one chain of the audit trail.
    pub(crate) const AUDIT_HEADS: u8 = b'h';
    /// Prefix: days that the audit trail has something of; below each, how chains stood when it began.
    pub(crate) const AUDIT_DAYS: u8 = b'a';
    /// Prefix: a job that is tried again at the very instant in its id, under its natural key. Every other that is stands
    /// in `parked`; so those that are can be listed without those that never ran.
    pub(crate) const RETRYING: u8 = b'r';
    /// Prefix: a schedule with an occurrence that waits for the end of another, under its key. The end of a job is
    /// nothing to all others, which then need not be read.
    pub(crate) const HOLDING: u8 = b'w';
    /// Prefix: days whose history is being dropped.
    pub(crate) const DROPPING: u8 = b'x';

    /// `key` is that of a schedule.
    pub(crate) fn holding(key: &[u8]) -> Vec<u8> {
        [&[HOLDING], key].concat()
    }

    pub(crate) fn schedules(tenant: &Tenant) -> Vec<u8> {
        [&[SCHEDULES], tenant.as_str().as_bytes()].concat()
    }

    pub(crate) fn tenant(tenant: &Tenant) -> Vec<u8> {
        [&[TENANTS], tenant.as_str().as_bytes()].concat()
    }

    pub(crate) fn sub_shards(tenant: &Tenant) -> Vec<u8> {
        [&[SUB_SHARDS], tenant.as_str().as_bytes()].concat()
    }

    pub(crate) fn day(day: Day, tenant: &Tenant) -> Vec<u8> {
        [&[DAYS], day.0.to_be_bytes().as_slice(), tenant.as_str().as_bytes()].concat()
    }

    pub(crate) fn checkpoint(shard: Shard) -> Vec<u8> {
        [&[CHECKPOINTS], shard.0.to_be_bytes().as_slice()].concat()
    }

    pub(crate) fn audit_head(chain: u16) -> Vec<u8> {
        [&[AUDIT_HEADS], chain.to_be_bytes().as_slice()].concat()
    }

    pub(crate) fn audit_day(day: Day) -> Vec<u8> {
        [&[AUDIT_DAYS], day.0.to_be_bytes().as_slice()].concat()
    }

    pub(crate) fn audit_start(day: Day, chain: u16) -> Vec<u8> {
        [&[AUDIT_DAYS], day.0.to_be_bytes().as_slice(), &chain.to_be_bytes()].concat()
    }

    pub(crate) fn retrying(natural: &[u8]) -> Vec<u8> {
        [&[RETRYING], natural].concat()
    }

    pub(crate) fn dropping(day: Day) -> Vec<u8> {
        [&[DROPPING], day.0.to_be_bytes().as_slice()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    proptest! {
        #[test]
        fn keys_can_be_taken_apart_and_sort_by_time(
            name in "[a-zA-Z0-9._:@-]{1,64}", a in 0..=RUN_AT_MS_MAX, b in 0..=RUN_AT_MS_MAX, tail in any::<u128>(),
        ) {
            let tenant = tenant(&name);
            let id = JobId::new(Timestamp::from_ms(a), tail);
            let natural = job(64, &tenant, id);
            let moved = timer(64, &tenant, Timestamp::from_ms(b), id);
            let natural_parsed = parse(&natural).unwrap();
            prop_assert_eq!((natural_parsed.at, natural_parsed.id, natural_parsed.is_timer), (id.run_at(), id, false));
            prop_assert_eq!(natural_parsed.tenant_name(), Some(tenant.clone()));
            let moved_parsed = parse(&moved).unwrap();
            prop_assert_eq!((moved_parsed.at.as_ms(), moved_parsed.id, moved_parsed.is_timer), (b, id, true));
            prop_assert_eq!(moved_parsed.bucket, Bucket::of(Timestamp::from_ms(b)));
            if a < b {
                prop_assert!(natural < moved);
            }
            let shard = Shard::of(&tenant, 64);
            prop_assert_eq!(position(shard, &tenant, Position { at: id.run_at(), id }), natural);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(parse(&bytes).is_none_or(|parsed| parsed.tenant.len() < bytes.len()));
        }
    }

    #[test]
    fn a_tenant_is_never_mistaken_for_another_it_begins_with() {
        let (short, long) = (tenant("a"), tenant("ab"));
        let prefix = tenant_prefix(Bucket(1), Shard(1), &short);
        assert!(!tenant_prefix(Bucket(1), Shard(1), &long).starts_with(&prefix));
        assert!(after_prefix(prefix) <= tenant_prefix(Bucket(1), Shard(1), &long));
    }

    #[test]
    fn the_key_after_a_prefix() {
        assert_eq!(after_prefix(vec![1, 2]), [1, 3]);
        assert_eq!(after_prefix(vec![1, 255]), [2]);
        assert_eq!(after_prefix(vec![255, 255]), [0_u8; 0]);
    }
}
