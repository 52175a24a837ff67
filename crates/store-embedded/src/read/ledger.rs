//! Reading ledgers: single entries and sheets of every day on which something was decided, and the sheet that is kept with
//! where the schedule stands, merged.

use std::ops::{Bound, ControlFlow};

use tidewheel_core::names::Tenant;
use tidewheel_core::schedule::{Entry, ScheduleId};
use tidewheel_store::{Error, LedgerCursor, LedgerPage};

use super::Reader;
use super::due::bad_key;
use crate::kv::{Day, Direction, Keyspace};
use crate::record::Unreadable;
use crate::shared::{read_error, unreadable};
use crate::sheet::Numbered;
use crate::{keys, ledger, schedule_record, sheet};

/// What is asked of one ledger.
struct Query<'a> {
    tenant: &'a Tenant,
    id: ScheduleId,
    before: Option<LedgerCursor>,
    /// One more than a page has, to see whether there is another.
    count_max: usize,
    /// Those before it belong to a schedule that was deleted.
    first_entry: u64,
}

/// What was found so far, newest first; at most as many as are asked for, so that whatever is below the last of them is
/// of no use.
#[derive(Default)]
struct Found(Vec<(LedgerCursor, Raw)>);

/// An entry that was read; most of those that stand by themselves are not needed in the end.
enum Raw {
    Record(Vec<u8>),
    Line(Entry),
}

impl Found {
    /// Whether an entry there, and all below it, cannot be among those that are asked for.
    fn is_beyond(&self, query: &Query<'_>, cursor: LedgerCursor) -> bool {
        self.0.get(query.count_max.saturating_sub(1)).is_some_and(|(last, _)| cursor < *last)
    }

    fn settle(&mut self, query: &Query<'_>) {
        self.0.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        self.0.truncate(query.count_max);
    }
}

impl Reader<'_> {
    /// A page of a ledger.
    pub(crate) fn ledger(
        &self,
        tenant: &Tenant,
        id: ScheduleId,
        before: Option<LedgerCursor>,
        count_max: usize,
    ) -> Result<LedgerPage, Error> {
        let standing = self.snapshot.get(Keyspace::Standings, &keys::schedule(tenant, id));
        let Some(standing) = standing.map_err(read_error)? else { return Ok(LedgerPage::default()) };
        let (first_entry, lines) = schedule_record::ledger(id, &standing).map_err(unreadable)?;
        let query = Query { tenant, id, before, count_max: count_max + 1, first_entry };
        let mut found = Found::default();
        found.0.extend(self.wanted_lines(&query, lines));
        for day in self.days.ledger.iter().rev() {
            found.settle(&query);
            let singles = self.singles(&query, *day, &found)?;
            let lines = self.sheets(&query, *day, &found)?;
            found.0.extend(singles);
            found.0.extend(lines);
        }
        found.settle(&query);
        let is_last = found.0.len() <= count_max;
        found.0.truncate(count_max);
        let next = found.0.last().map(|(cursor, _)| *cursor).filter(|_| !is_last);
        let entries = found.0.into_iter().map(|(cursor, raw)| match raw {
            Raw::Record(record) => ledger::decode(&self.shared.rules, cursor.from, &record),
            Raw::Line(entry) => Ok(entry),
        });
        Ok(LedgerPage { entries: entries.collect::<Result<_, Unreadable>>().map_err(unreadable)?, next })
    }

    /// Entries that stand by themselves, newest first.
    fn singles(&self, query: &Query<'_>, day: Day, found: &Found) -> Result<Vec<(LedgerCursor, Raw)>, Error> {
        let first = keys::schedule(query.tenant, query.id);
        let end = query.before.map_or_else(
            || keys::ledger_sheets(query.tenant, query.id),
            |before| keys::ledger_entry(query.tenant, query.id, before),
        );
        let (mut singles, mut outcome) = (Vec::new(), Ok(()));
        let range = (Bound::Included(&*first), Bound::Excluded(&*end));
        let walked = self.snapshot.scan(Keyspace::Ledger(day), range, Direction::Down, &mut |key, value| {
            let Some(cursor) = keys::ledger_cursor(key) else {
                outcome = Err(bad_key());
                return ControlFlow::Break(());
            };
            if singles.len() >= query.count_max || found.is_beyond(query, cursor) {
                return ControlFlow::Break(());
            }
            if cursor.number >= query.first_entry {
                singles.push((cursor, Raw::Record(value.to_vec())));
            }
            ControlFlow::Continue(())
        });
        walked.map_err(read_error)?;
        outcome?;
        Ok(singles)
    }

    /// Entries on full sheets. As no two sheets overlap, those of the newest sheets are the newest.
    fn sheets(&self, query: &Query<'_>, day: Day, found: &Found) -> Result<Vec<(LedgerCursor, Raw)>, Error> {
        let first = keys::ledger_sheets(query.tenant, query.id);
        let end = query.before.map_or_else(
            || keys::after_prefix(first.clone()),
            |before| keys::ledger_sheet(query.tenant, query.id, before),
        );
        let (mut entries, mut outcome) = (Vec::new(), Ok(()));
        let range = (Bound::Included(&*first), Bound::Excluded(&*end));
        let walked = self.snapshot.scan(Keyspace::Ledger(day), range, Direction::Down, &mut |_, value| {
            let lines = match sheet::decode(query.id, value) {
                Ok(lines) => lines,
                Err(error) => {
                    outcome = Err(unreadable(error));
                    return ControlFlow::Break(());
                }
            };
            let of_this_one = lines.last().filter(|(newest, _)| newest.number >= query.first_entry);
            let is_beyond = of_this_one.is_some_and(|(newest, _)| found.is_beyond(query, *newest));
            if entries.len() >= query.count_max || is_beyond {
                return ControlFlow::Break(());
            }
            entries.extend(self.wanted_lines(query, lines));
            ControlFlow::Continue(())
        });
        walked.map_err(read_error)?;
        outcome?;
        Ok(entries)
    }

    fn wanted_lines(
        &self,
        query: &Query<'_>,
        lines: Vec<Numbered>,
    ) -> impl Iterator<Item = (LedgerCursor, Raw)> {
        let (before, first_entry, kept_from) = (query.before, query.first_entry, self.days.ledger_from);
        let is_wanted = move |(cursor, entry): &Numbered| {
            cursor.number >= first_entry
                && before.is_none_or(|before| *cursor < before)
                && Day::of(entry.decided_at) >= kept_from
        };
        lines.into_iter().filter(is_wanted).map(|(cursor, entry)| (cursor, Raw::Line(entry)))
    }
}
