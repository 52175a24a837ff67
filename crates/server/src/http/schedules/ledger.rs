//! A ledger as one list of instants, newest first, page by page.
//!
//! The store keeps entries in the order of their first instants, and an entry may be a whole range of them. What was
//! asked for by hand lies aside of the chain, perhaps inside such a range, and then stands above it in the store: the
//! range is looked for ahead, and the instants of both are told in their order.

use std::str::FromStr;
use std::sync::Arc;

use tidewheel_core::schedule::{Dates, Entry, Outcome, Schedule, prev_nominal};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{LedgerCursor, LedgerPage};

use super::read::bad_cursor;
use crate::http::app::App;
use crate::http::problem::Problem;

/// Entries read at once by a look ahead.
const LOOK_COUNT: usize = 1_000;
/// Reads of a look ahead. Where more than that lies aside in one stretch, it is told before the range it is inside of.
const LOOKS_COUNT_MAX: usize = 20;

/// What became of one instant.
pub(super) struct Row {
    /// When.
    pub(super) at: Timestamp,
    /// The entry it is of.
    pub(super) entry: Arc<Entry>,
}

/// Where a page ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// Entries below this one come next.
    before: Option<LedgerCursor>,
    /// Of the first range that reaches over this instant, the instants before it come next.
    inside: Option<Timestamp>,
    /// Where that range is still to come in the store: the entry it is below of.
    above: Option<LedgerCursor>,
}

/// A walk through a ledger.
pub(super) struct Walk<'a> {
    pub(super) app: &'a App,
    pub(super) schedule: &'a Schedule,
    /// The dates of the calendar the schedule names.
    pub(super) calendar: Option<Dates>,
    /// Rows of a page.
    pub(super) limit: usize,
}

/// Entries in the order of the store.
struct Entries {
    /// They are those below this one.
    below: Option<LedgerCursor>,
    at_hand: Vec<Arc<Entry>>,
    /// How many of them are done with.
    done: usize,
    /// Where to read on; none at the end.
    next: Option<LedgerCursor>,
}

impl Walk<'_> {
    /// The rows of a page, and where the next one begins.
    pub(super) async fn page(&self, cursor: Cursor) -> Result<(Vec<Row>, Option<Cursor>), Problem> {
        let mut rows = Vec::new();
        let mut open = self.reopened(cursor).await?;
        let mut entries = self.read(cursor.before, self.limit).await?;
        let mut has_looked = false;
        while rows.len() < self.limit {
            let Some(entry) = self.first(&mut entries, self.limit - rows.len()).await? else {
                return Ok((rows, None));
            };
            // Decided since, and newer than where the last page ended.
            if cursor.inside.is_some_and(|inside| entry.from > inside) {
                entries.done += 1;
                continue;
            }
            if is_aside(&entry) {
                if open.is_none() && !has_looked {
                    open = self.range_ahead(&entries, cursor.inside).await?;
                    has_looked = true;
                }
                match open.as_mut().and_then(|range| range.step_before(&entry, self.calendar.as_ref())) {
                    Some(row) => rows.push(row),
                    None => {
                        rows.push(Row { at: entry.from, entry });
                        entries.done += 1;
                    }
                }
                continue;
            }
            has_looked = false;
            let begun = open.take().filter(|range| range.entry == entry);
            let mut unfolding =
                begun.unwrap_or_else(|| Unfolding::of(entry, cursor.inside, self.calendar.as_ref()));
            while rows.len() < self.limit
                && let Some(row) = unfolding.step(self.calendar.as_ref())
            {
                rows.push(row);
            }
            if unfolding.next.is_some() {
                open = Some(unfolding);
            } else {
                entries.done += 1;
            }
        }
        let next = self.end_of_page(entries, open).await?;
        Ok((rows, next))
    }

    /// Where the next page begins; none if nothing is left.
    async fn end_of_page(
        &self,
        mut entries: Entries,
        open: Option<Unfolding>,
    ) -> Result<Option<Cursor>, Problem> {
        let Some(first) = self.first(&mut entries, 1).await? else { return Ok(None) };
        let before = self.place(&entries, entries.done).await?;
        if before.is_none() && entries.done > 0 {
            // What was left has been dropped with history meanwhile.
            return Ok(None);
        }
        let inside = open.as_ref().and_then(|range| range.told);
        let above = open.filter(|range| range.entry != first).and_then(|range| range.above);
        Ok(Some(Cursor { before, inside, above: above.filter(|_| inside.is_some()) }))
    }

    /// The range that an earlier page began with ahead of its place.
    async fn reopened(&self, cursor: Cursor) -> Result<Option<Unfolding>, Problem> {
        if cursor.above.is_none() {
            return Ok(None);
        }
        let below = self.read(cursor.above, 1).await?;
        self.range_ahead(&below, cursor.inside).await
    }

    /// The range that what lies aside may be inside of: the first entry of the chain, if that is one.
    async fn range_ahead(
        &self,
        entries: &Entries,
        inside: Option<Timestamp>,
    ) -> Result<Option<Unfolding>, Problem> {
        // The chain is younger than the schedule, so no range lies below what is older.
        let is_last = |entry: &Entry| !is_aside(entry) || entry.from <= self.schedule.created_at;
        let mut read: Entries;
        let mut ahead = entries;
        for _ in 0..LOOKS_COUNT_MAX {
            let found = ahead.at_hand.iter().enumerate().skip(ahead.done).find(|(_, entry)| is_last(entry));
            if let Some((index, entry)) = found {
                if entry.rule.is_none() {
                    return Ok(None);
                }
                let above = self.place(ahead, index).await?;
                let range = Unfolding::of(Arc::clone(entry), inside, self.calendar.as_ref());
                return Ok(Some(Unfolding { above, ..range }));
            }
            if ahead.next.is_none() {
                return Ok(None);
            }
            read = self.read(ahead.next, LOOK_COUNT).await?;
            ahead = &read;
        }
        Ok(None)
    }

    /// The first entry that is not done with.
    async fn first(&self, entries: &mut Entries, count_max: usize) -> Result<Option<Arc<Entry>>, Problem> {
        if entries.done == entries.at_hand.len() && entries.next.is_some() {
            *entries = self.read(entries.next, count_max).await?;
        }
        Ok(entries.at_hand.get(entries.done).cloned())
    }

    /// The place right above an entry at hand; none above all.
    async fn place(&self, entries: &Entries, index: usize) -> Result<Option<LedgerCursor>, Problem> {
        let Some(last) = index.checked_sub(1).and_then(|last| entries.at_hand.get(last)) else {
            return Ok(entries.below);
        };
        let mut page = self.ledger(entries.below, index).await?;
        // What was decided meanwhile stands above, and is counted in.
        for more in 1..LOOKS_COUNT_MAX {
            if page.next.is_none() || page.entries.last() == Some(&**last) {
                break;
            }
            page = self.ledger(entries.below, index + more).await?;
        }
        Ok(page.next)
    }

    async fn read(&self, below: Option<LedgerCursor>, count_max: usize) -> Result<Entries, Problem> {
        let LedgerPage { entries, next } = self.ledger(below, count_max).await?;
        Ok(Entries { below, at_hand: entries.into_iter().map(Arc::new).collect(), done: 0, next })
    }

    async fn ledger(&self, below: Option<LedgerCursor>, count_max: usize) -> Result<LedgerPage, Problem> {
        let Schedule { tenant, id, .. } = self.schedule;
        Ok(self.app.engine.store().ledger(tenant, *id, below, count_max).await?)
    }
}

/// Whether it is about a job outside the chain.
const fn is_aside(entry: &Entry) -> bool {
    matches!(entry.outcome, Outcome::Triggered { .. } | Outcome::Backfilled { .. })
}

/// An entry whose instants are told one by one.
struct Unfolding {
    entry: Arc<Entry>,
    /// The instant that comes next.
    next: Option<Timestamp>,
    /// The one that was told last.
    told: Option<Timestamp>,
    /// The entry it is below of, where it is told ahead of its place.
    above: Option<LedgerCursor>,
}

impl Unfolding {
    /// `inside` leads into a range that an earlier page began with.
    fn of(entry: Arc<Entry>, inside: Option<Timestamp>, calendar: Option<&Dates>) -> Self {
        let told = inside.filter(|inside| entry.rule.is_some() && entry.covers(*inside));
        let next = match told {
            Some(told) => older(&entry, calendar, told),
            None => Some(entry.to),
        };
        Self { entry, next, told, above: None }
    }

    fn step(&mut self, calendar: Option<&Dates>) -> Option<Row> {
        let at = self.next?;
        self.told = Some(at);
        self.next = older(&self.entry, calendar, at);
        Some(Row { at, entry: Arc::clone(&self.entry) })
    }

    /// The next instant, if it comes before the other entry. Of one instant, what was decided last comes first.
    fn step_before(&mut self, other: &Entry, calendar: Option<&Dates>) -> Option<Row> {
        let is_newer = (self.next?, self.entry.decided_at) > (other.from, other.decided_at);
        if is_newer { self.step(calendar) } else { None }
    }
}

/// The instant of a range before this one.
fn older(entry: &Entry, calendar: Option<&Dates>, at: Timestamp) -> Option<Timestamp> {
    let found = prev_nominal(entry.rule.as_deref()?, calendar, at)?.fire_at;
    (found >= entry.from).then_some(found)
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.before {
            Some(before) => write!(f, "{}.{}", before.from.as_ms(), before.number)?,
            None => f.write_str(".")?,
        }
        match self.inside {
            Some(inside) => write!(f, ".{}", inside.as_ms())?,
            None => f.write_str(".")?,
        }
        match self.above {
            Some(above) => write!(f, ".{}.{}", above.from.as_ms(), above.number),
            None => Ok(()),
        }
    }
}

impl FromStr for Cursor {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let parts: Vec<&str> = text.split('.').collect();
        let (from, number, inside, above) = match parts[..] {
            [from, number, inside] => (from, number, inside, None),
            [from, number, inside, above_from, above_number] => {
                (from, number, inside, Some(place(above_from, above_number)?))
            }
            _ => return Err(bad_cursor()),
        };
        let before = match (from, number) {
            ("", "") => None,
            (from, number) => Some(place(from, number)?),
        };
        let inside = if inside.is_empty() { None } else { Some(time(inside)?) };
        Ok(Self { before, inside, above })
    }
}

fn place(from: &str, number: &str) -> Result<LedgerCursor, Problem> {
    Ok(LedgerCursor { from: time(from)?, number: number.parse().map_err(|_| bad_cursor())? })
}

fn time(text: &str) -> Result<Timestamp, Problem> {
    text.parse().map(Timestamp::from_ms).map_err(|_| bad_cursor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_survive_the_round_trip() {
        let before = Some(LedgerCursor { from: Timestamp::from_ms(1_794_711_600_000), number: 7 });
        let above = Some(LedgerCursor { from: Timestamp::from_ms(1_794_711_400_000), number: 6 });
        let inside = Some(Timestamp::from_ms(1_794_711_500_000));
        for cursor in [
            Cursor::default(),
            Cursor { before, ..Cursor::default() },
            Cursor { inside, ..Cursor::default() },
            Cursor { before, inside, above: None },
            Cursor { before: None, inside, above },
            Cursor { before, inside, above },
        ] {
            assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }
        for text in
            ["", ".", "x", "1.2", "1..", "a.b.c", "1.2.3.4", "-1.-1.", "1.2.3..", "1.2.3.4.", "1.2.3.4.5.6"]
        {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
