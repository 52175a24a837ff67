//! The newest lines of a schedule's ledger, kept with where it stands.
//!
//! Every fire writes the schedule's standing. Were the ledger's entry for it a record of its own, too, a herd would write
//! one more record for each; so plain entries (one instant that fired on time) wait on a sheet in the standing, and go to
//! the ledger by the sheet. All others are written at once, one by one.
//!
//! ```text
//! line   number | from | run_at - from | decided_at - from
//! ```
//!
//! All are postcard. The id of the job is not there: it is made of the schedule and the two instants. Instants rise from
//! line to line and from sheet to sheet, so no two sheets of a ledger overlap.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tidewheel_core::schedule::{Entry, Outcome, ScheduleId, occurrence_id};
use tidewheel_core::time::Timestamp;
use tidewheel_store::LedgerCursor;

use crate::record::Unreadable;
use crate::versioned;

/// Lines on a full sheet. The standing is written with every line, so the more, the longer it is.
const LINE_COUNT_MAX: u8 = 8;
/// A line of four numbers, none of which takes more than ten bytes.
const LINE_BYTES_MAX: usize = 4 * 10;
/// Room for the lines of most sheets.
const LINES_BYTES_USUAL: usize = 96;
/// About what a line takes.
pub(crate) const LINE_BYTES: usize = 16;
const NONSENSE: Unreadable = Unreadable::Nonsense("a sheet of a ledger");

#[derive(Debug, Clone, Default)]
pub(crate) struct Sheet {
    lines: SmallVec<[u8; LINES_BYTES_USUAL]>,
    count: u8,
    /// The last instant that was ever on one.
    until: Option<Timestamp>,
}

/// An entry, and where it stands in its ledger.
pub(crate) type Numbered = (LedgerCursor, Entry);

/// As it is in a standing.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct SheetRecord<'a> {
    count: u8,
    until: Option<i64>,
    lines: &'a [u8],
}

#[derive(Serialize, Deserialize)]
struct LineRecord {
    number: u64,
    from: i64,
    run_after: i64,
    decided_after: i64,
}

/// An entry that no sheet takes: it is to be written by itself.
pub(crate) struct NotPlain;

/// A sheet that is full, to be written under the place of its first line.
pub(crate) struct Full {
    pub(crate) first: LedgerCursor,
    pub(crate) record: Vec<u8>,
}

impl Sheet {
    /// Adds an entry, if it is a plain one that is later than all on sheets before; gives the sheet away when it is full.
    pub(crate) fn add(
        &mut self,
        id: ScheduleId,
        entry: &Entry,
        number: u64,
    ) -> Result<Option<Full>, NotPlain> {
        let line = plain(id, entry, number).filter(|_| self.until.is_none_or(|until| entry.from > until));
        let line = line.ok_or(NotPlain)?;
        let mut room = [0; LINE_BYTES_MAX];
        let line = postcard::to_slice(&line, &mut room).map_err(|_| NotPlain)?;
        let (until, count) = (Some(entry.from), self.count.saturating_add(1));
        let full = if count < LINE_COUNT_MAX {
            None
        } else {
            let (first, _): (LineRecord, _) = postcard::take_from_bytes(&self.lines).map_err(|_| NotPlain)?;
            Some(LedgerCursor { from: Timestamp::from_ms(first.from), number: first.number })
        };
        self.lines.extend_from_slice(line);
        (self.until, self.count) = (until, count);
        Ok(full.map(|first| {
            let Self { lines, .. } = std::mem::replace(self, Self { until, ..Self::default() });
            Full { first, record: versioned::encode(&&*lines) }
        }))
    }

    pub(crate) fn record(&self) -> SheetRecord<'_> {
        SheetRecord { count: self.count, until: self.until.map(Timestamp::as_ms), lines: &self.lines }
    }

    pub(crate) fn of(record: &SheetRecord<'_>) -> Self {
        Self { lines: record.lines.into(), count: record.count, until: record.until.map(Timestamp::from_ms) }
    }
}

fn plain(id: ScheduleId, entry: &Entry, number: u64) -> Option<LineRecord> {
    let Outcome::Fired { job_id, catch_up: false } = entry.outcome else { return None };
    let (from, run_at) = (entry.from, job_id.run_at());
    let is_derived = entry.rule.is_none() && job_id == occurrence_id(id, from, run_at);
    is_derived.then(|| LineRecord {
        number,
        from: from.as_ms(),
        run_after: run_at.since_ms(from),
        decided_after: entry.decided_at.since_ms(from),
    })
}

/// The entries on a full sheet, oldest first.
pub(crate) fn decode(id: ScheduleId, record: &[u8]) -> Result<Vec<Numbered>, Unreadable> {
    let lines: &[u8] = versioned::decode(record, NONSENSE)?;
    read_lines(id, lines)
}

impl SheetRecord<'_> {
    /// The entries on it, oldest first.
    pub(crate) fn entries(&self, id: ScheduleId) -> Result<Vec<Numbered>, Unreadable> {
        read_lines(id, self.lines)
    }
}

fn read_lines(id: ScheduleId, mut lines: &[u8]) -> Result<Vec<Numbered>, Unreadable> {
    let mut entries = Vec::with_capacity(usize::from(LINE_COUNT_MAX));
    while !lines.is_empty() {
        let (line, rest): (LineRecord, _) = postcard::take_from_bytes(lines).map_err(|_| NONSENSE)?;
        lines = rest;
        let from = Timestamp::from_ms(line.from);
        let job_id = occurrence_id(id, from, from.plus_ms(line.run_after));
        let outcome = Outcome::Fired { job_id, catch_up: false };
        let cursor = LedgerCursor { from, number: line.number };
        entries.push((cursor, Entry::single(from, outcome, from.plus_ms(line.decided_after))));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;

    use tidewheel_core::schedule::Reason;

    const HOUR_MS: i64 = 3_600_000;

    fn id() -> ScheduleId {
        ScheduleId::from_bytes([7; 16])
    }

    /// Fired at that hour, by a window of an hour at most.
    fn fired(hour: i64) -> Entry {
        let from = Timestamp::from_ms(1_800_000_000_000 + hour * HOUR_MS);
        let run_at = from.plus_ms(hour * 1_000);
        let outcome = Outcome::Fired { job_id: occurrence_id(id(), from, run_at), catch_up: false };
        Entry::single(from, outcome, run_at.plus_ms(3))
    }

    fn add(sheet: &mut Sheet, entry: &Entry, number: u64) -> Option<Full> {
        sheet.add(id(), entry, number).unwrap_or_else(|NotPlain| panic!("{entry:?} is plain"))
    }

    /// Written to a standing and read again.
    fn kept(sheet: &Sheet) -> (Sheet, Vec<Numbered>) {
        let bytes = postcard::to_allocvec(&sheet.record()).unwrap();
        let record: SheetRecord<'_> = postcard::from_bytes(&bytes).unwrap();
        (Sheet::of(&record), record.entries(id()).unwrap())
    }

    #[test]
    fn lines_go_to_the_ledger_by_the_sheet() {
        let (mut sheet, mut given_away, mut numbered) = (Sheet::default(), Vec::new(), Vec::new());
        for hour in 1..=20 {
            let (entry, number) = (fired(hour), 100 * u64::try_from(hour).unwrap());
            numbered.push((LedgerCursor { from: entry.from, number }, entry.clone()));
            if let Some(full) = add(&mut sheet, &entry, number) {
                let lines = decode(id(), &full.record).unwrap();
                assert_eq!(full.first, lines.first().unwrap().0);
                given_away.extend(lines);
            }
            let (again, lines) = kept(&sheet);
            assert_eq!([given_away.clone(), lines].concat(), numbered);
            sheet = again;
        }
        assert_eq!(given_away.len(), 16);
    }

    #[test]
    fn a_sheet_takes_only_what_it_can_tell_again() {
        let mut sheet = Sheet::default();
        let refuses = |sheet: &mut Sheet, entry: &Entry| sheet.add(id(), entry, 9).is_err();
        let plain = fired(1);
        let Outcome::Fired { job_id, .. } = plain.outcome else { panic!("{plain:?}") };
        let late = Outcome::Fired { job_id, catch_up: true };
        for outcome in
            [late, Outcome::Triggered { job_id }, Outcome::Skipped(Reason::Overlap), Outcome::Missed]
        {
            assert!(refuses(&mut sheet, &Entry { outcome, ..plain.clone() }), "{outcome:?}");
        }
        let other = occurrence_id(ScheduleId::from_bytes([8; 16]), plain.from, job_id.run_at());
        let outcome = Outcome::Fired { job_id: other, catch_up: false };
        assert!(refuses(&mut sheet, &Entry { outcome, ..plain.clone() }), "the job of another schedule");
        assert!(add(&mut sheet, &fired(3), 1).is_none());
        for earlier in [fired(3), fired(2)] {
            assert!(refuses(&mut sheet, &earlier), "no two sheets overlap");
        }
        for hour in 4..=10 {
            add(&mut sheet, &fired(hour), 2);
        }
        let (mut sheet, lines) = kept(&sheet);
        assert_eq!(lines, []);
        assert!(refuses(&mut sheet, &fired(10)), "also when the other one is in the ledger");
    }

    #[test]
    fn what_is_no_sheet_is_refused() {
        let mut sheet = Sheet::default();
        let full = (1..=8).find_map(|hour| add(&mut sheet, &fired(hour), 1)).unwrap();
        let cut = full.record.get(..full.record.len() - 1).unwrap();
        assert!(decode(id(), cut).is_err());
        assert!(matches!(decode(id(), &[9]), Err(Unreadable::Version(9))));
        assert!(decode(id(), &[]).is_err());
    }
}
