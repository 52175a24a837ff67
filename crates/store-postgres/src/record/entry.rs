//! An entry of a ledger. Its first instant and its number have columns of their own.

use serde::{Deserialize, Serialize};
use tidewheel_core::id::JobId;
use tidewheel_core::schedule::{Entry, Outcome, Reason};
use tidewheel_core::time::Timestamp;

use super::Unreadable;
use super::rule::{self, Rules};

const NONSENSE: Unreadable = Unreadable::Nonsense("an entry of a ledger");

/// Instants are relative to the first one.
#[derive(Serialize, Deserialize)]
struct EntryRecord<'a> {
    outcome: OutcomeRecord,
    decided_at: i64,
    #[serde(borrow)]
    range: Option<Range<'a>>,
}

#[derive(Serialize, Deserialize)]
struct Range<'a> {
    to: i64,
    count: u32,
    rule: &'a [u8],
}

#[derive(Serialize, Deserialize)]
enum OutcomeRecord {
    Fired { job_id: [u8; 16], catch_up: bool },
    Coalesced { into: i64 },
    Skipped(u8),
    Missed,
    Triggered { job_id: [u8; 16] },
    Backfilled { job_id: [u8; 16] },
}

pub(crate) fn encode(entry: &Entry) -> Vec<u8> {
    let from = entry.from;
    let outcome = match entry.outcome {
        Outcome::Fired { job_id, catch_up } => OutcomeRecord::Fired { job_id: *job_id.as_bytes(), catch_up },
        Outcome::Coalesced { into } => OutcomeRecord::Coalesced { into: into.since_ms(from) },
        Outcome::Skipped(reason) => OutcomeRecord::Skipped(reason as u8),
        Outcome::Missed => OutcomeRecord::Missed,
        Outcome::Triggered { job_id } => OutcomeRecord::Triggered { job_id: *job_id.as_bytes() },
        Outcome::Backfilled { job_id } => OutcomeRecord::Backfilled { job_id: *job_id.as_bytes() },
    };
    let rule = entry.rule.as_deref().map(rule::encode);
    let range = rule.as_deref().map(|rule| Range { to: entry.to.since_ms(from), count: entry.count, rule });
    super::encode(&EntryRecord { outcome, decided_at: entry.decided_at.since_ms(from), range })
}

pub(crate) fn decode(rules: &Rules, from: Timestamp, bytes: &[u8]) -> Result<Entry, Unreadable> {
    let record: EntryRecord<'_> = super::decode(bytes, "an entry of a ledger")?;
    let outcome = match record.outcome {
        OutcomeRecord::Fired { job_id, catch_up } => {
            Outcome::Fired { job_id: JobId::from_bytes(job_id), catch_up }
        }
        OutcomeRecord::Coalesced { into } => Outcome::Coalesced { into: from.plus_ms(into) },
        OutcomeRecord::Skipped(reason) => {
            Outcome::Skipped(Reason::ALL.get(usize::from(reason)).copied().ok_or(NONSENSE)?)
        }
        OutcomeRecord::Missed => Outcome::Missed,
        OutcomeRecord::Triggered { job_id } => Outcome::Triggered { job_id: JobId::from_bytes(job_id) },
        OutcomeRecord::Backfilled { job_id } => Outcome::Backfilled { job_id: JobId::from_bytes(job_id) },
    };
    let decided_at = from.plus_ms(record.decided_at);
    Ok(match record.range {
        None => Entry::single(from, outcome, decided_at),
        Some(Range { to, count, rule }) => {
            Entry { from, to: from.plus_ms(to), count, outcome, decided_at, rule: Some(rules.decode(rule)?) }
        }
    })
}
