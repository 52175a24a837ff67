//! The audit trail: its bytes on disk, and reading them. A day's records lie in a keyspace of their own, which is
//! dropped as a whole.
//!
//! ```text
//! key      kind u8 | time in ms 64 bits, as if 2^63 had been added | chain u16 | number u64
//! value    01 | previous hash (32) | hash (32) | content
//! ```
//!
//! In `meta`, the newest record of each chain, and how each chain stood when a day began, which is what the first
//! record kept is linked to once the days before are gone.

use std::ops::{Bound, ControlFlow};

use async_trait::async_trait;
use bytes::Bytes;
use tidewheel_core::audit::{Chain, ChainEnds, Digest, Kind, Link, Place, Record};
use tidewheel_core::limits::DAY_MS;
use tidewheel_core::time::Timestamp;
use tidewheel_store::{Audit, AuditOrder, AuditQuery, Error, NewAct};

use crate::commit::Request;
use crate::keys;
use crate::kv::{Day, Direction, Keyspace, KvError, Snapshot};
use crate::open::scan_prefix;
use crate::record::Unreadable;
use crate::shared::{Days, read_error, unreadable};
use crate::store::EmbeddedStore;

const FORMAT: u8 = 1;
const NONSENSE: Unreadable = Unreadable::Nonsense("a record of the audit trail");
const NO_LINK: Unreadable = Unreadable::Nonsense("the end of a chain of the audit trail");

/// The key of a record.
pub(crate) fn key(kind: Kind, place: Place) -> Vec<u8> {
    let mut key = Vec::with_capacity(19);
    key.push(kind.number());
    key.extend_from_slice(&(place.at.as_ms() ^ i64::MIN).to_be_bytes());
    key.extend_from_slice(&place.chain.to_be_bytes());
    key.extend_from_slice(&place.seq.to_be_bytes());
    key
}

pub(crate) fn value(record: &Record) -> Vec<u8> {
    [&[FORMAT], record.previous.0.as_slice(), &record.hash.0, &record.content].concat()
}

fn read(key: &[u8], value: &[u8]) -> Result<Record, Unreadable> {
    let ([kind], rest) = key.split_first_chunk::<1>().ok_or(NONSENSE)?;
    let (at, rest) = rest.split_first_chunk::<8>().ok_or(NONSENSE)?;
    let (chain, seq) = rest.split_first_chunk::<2>().ok_or(NONSENSE)?;
    let (format, value) = value.split_first().ok_or(NONSENSE)?;
    if *format != FORMAT {
        return Err(Unreadable::Version(*format));
    }
    let (previous, value) = value.split_first_chunk::<32>().ok_or(NONSENSE)?;
    let (hash, content) = value.split_first_chunk::<32>().ok_or(NONSENSE)?;
    Ok(Record {
        chain: Chain::from_be_bytes(*chain),
        seq: u64::from_be_bytes(seq.try_into().map_err(|_| NONSENSE)?),
        at: Timestamp::from_ms(i64::from_be_bytes(*at) ^ i64::MIN),
        kind: Kind::from_number(*kind).ok_or(NONSENSE)?,
        content: Bytes::copy_from_slice(content),
        previous: Digest(*previous),
        hash: Digest(*hash),
    })
}

/// A link as it stands in `meta`: number u64 | time in ms i64 | hash.
pub(crate) fn encode_link(link: &Link) -> Vec<u8> {
    [link.seq.to_be_bytes().as_slice(), &link.at.as_ms().to_be_bytes(), &link.hash.0].concat()
}

fn read_link(bytes: &[u8]) -> Result<Link, Unreadable> {
    let (seq, rest) = bytes.split_first_chunk::<8>().ok_or(NO_LINK)?;
    let (at, hash) = rest.split_first_chunk::<8>().ok_or(NO_LINK)?;
    Ok(Link {
        seq: u64::from_be_bytes(*seq),
        at: Timestamp::from_ms(i64::from_be_bytes(*at)),
        hash: Digest::from_slice(hash).ok_or(NO_LINK)?,
    })
}

/// The newest record of every chain.
pub(crate) fn heads(snapshot: &dyn Snapshot) -> Result<Vec<(Chain, Link)>, KvError> {
    let mut heads = Vec::new();
    scan_prefix(snapshot, Keyspace::Meta, &[keys::meta::AUDIT_HEADS], |key, value| {
        let chain = key.get(1..).and_then(|chain| chain.try_into().ok()).ok_or(NO_LINK)?;
        heads.push((Chain::from_be_bytes(chain), read_link(value)?));
        Ok(())
    })?;
    Ok(heads)
}

/// The days of which it is known how chains stood when they began.
pub(crate) fn begun_days(snapshot: &dyn Snapshot) -> Result<Vec<Day>, KvError> {
    let mut days = Vec::new();
    scan_prefix(snapshot, Keyspace::Meta, &[keys::meta::AUDIT_DAYS], |key, _| {
        if let [_, a, b, c, d] = *key {
            days.push(Day(u32::from_be_bytes([a, b, c, d])));
        }
        Ok(())
    })?;
    Ok(days)
}

fn chains(snapshot: &dyn Snapshot, days: &Days) -> Result<Vec<ChainEnds>, KvError> {
    let heads = heads(snapshot)?;
    let begun = begun_days(snapshot)?;
    let Some(oldest) = begun.into_iter().find(|day| days.audit.contains(day)) else {
        return Ok(heads.into_iter().map(|(chain, head)| ChainEnds { chain, anchor: head, head }).collect());
    };
    let mut found = Vec::with_capacity(heads.len());
    for (chain, head) in heads {
        let noted = snapshot.get(Keyspace::Meta, &keys::meta::audit_start(oldest, chain))?;
        let anchor = noted.map(|bytes| read_link(&bytes)).transpose();
        let anchor = anchor.map_err(|fault| KvError::Corrupt(fault.to_string()))?.unwrap_or(Link::START);
        found.push(ChainEnds { chain, anchor, head });
    }
    Ok(found)
}

fn records(snapshot: &dyn Snapshot, days: &Days, query: &AuditQuery) -> Result<Vec<Record>, Error> {
    let in_range = |day: &&Day| day.end() > query.from && day.end().plus_ms(-DAY_MS) < query.until;
    let mut wanted: Vec<Day> = days.audit.iter().filter(in_range).copied().collect();
    if query.order == AuditOrder::NewestFirst {
        wanted.reverse();
    }
    let mut found = Vec::new();
    for day in wanted {
        let left = query.count_max.saturating_sub(found.len());
        if left == 0 {
            break;
        }
        let mut of_day = Vec::new();
        for kind in Kind::ALL.into_iter().filter(|kind| query.kind.is_none_or(|only| only == *kind)) {
            of_kind(snapshot, day, kind, query, left, &mut of_day)?;
        }
        of_day.sort_by_key(Record::place);
        if query.order == AuditOrder::NewestFirst {
            of_day.reverse();
        }
        of_day.truncate(left);
        found.append(&mut of_day);
    }
    Ok(found)
}

fn of_kind(
    snapshot: &dyn Snapshot,
    day: Day,
    kind: Kind,
    query: &AuditQuery,
    count_max: usize,
    found: &mut Vec<Record>,
) -> Result<(), Error> {
    let edge = |at: Timestamp| key(kind, Place { at, chain: 0, seq: 0 });
    let (from, until) = (edge(query.from), edge(query.until));
    let after = query.after.map(|place| key(kind, place));
    let (range, direction) = match (query.order, &after) {
        (AuditOrder::OldestFirst, Some(after)) if *after >= from => {
            ((Bound::Excluded(&**after), Bound::Excluded(&*until)), Direction::Up)
        }
        (AuditOrder::OldestFirst, _) => ((Bound::Included(&*from), Bound::Excluded(&*until)), Direction::Up),
        (AuditOrder::NewestFirst, Some(after)) if *after < until => {
            ((Bound::Included(&*from), Bound::Excluded(&**after)), Direction::Down)
        }
        (AuditOrder::NewestFirst, _) => {
            ((Bound::Included(&*from), Bound::Excluded(&*until)), Direction::Down)
        }
    };
    let (mut count, mut fault) = (0, None);
    let scanned = snapshot.scan(Keyspace::Audit(day), range, direction, &mut |key, value| {
        match read(key, value) {
            Ok(record) => found.push(record),
            Err(nonsense) => fault = Some(nonsense),
        }
        count += 1;
        let is_over = fault.is_some() || count >= count_max;
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    scanned.map_err(read_error)?;
    fault.map_or(Ok(()), |fault| Err(unreadable(fault)))
}

#[async_trait]
impl Audit for EmbeddedStore {
    async fn append_acts(&self, now: Timestamp, acts: Vec<NewAct>) -> Result<(), Error> {
        self.request(|reply| Request::AppendActs { now, acts, reply }).await
    }

    async fn audit_records(&self, query: AuditQuery) -> Result<Vec<Record>, Error> {
        self.read(move |reader| records(reader.snapshot(), reader.days(), &query)).await
    }

    async fn audit_chains(&self) -> Result<Vec<ChainEnds>, Error> {
        self.read(|reader| chains(reader.snapshot(), reader.days()).map_err(read_error)).await
    }

    async fn drop_audit(&self, before: Timestamp) -> Result<(), Error> {
        self.request(|reply| Request::DropAudit { before, reply }).await
    }
}
