//! Making tables fit the terminal. Text is cut by the table itself; before that goes too far, times lose what is usual
//! (the year, the milliseconds), and then columns are left out, the least needed first. `-o json` always has everything.

use std::collections::BTreeSet;

use crate::out::Column;

/// Less than this of a text says nothing.
const TEXT_COLUMNS_MIN: usize = 8;
/// What the table puts beside each cell.
const PADDING: usize = 2;
/// `2026-11-15T04:18:22.028Z`
const TIME_CHARS: usize = 24;
/// `11-15 04:18:22`
const SHORT_TIME_CHARS: usize = 14;

/// How a table is made to fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// The columns that are shown.
    pub(crate) shown: BTreeSet<usize>,
    /// Whether times are short.
    pub(crate) short_times: bool,
}

/// Finds out what of a table fits; all of it where nothing bounds it.
pub(crate) fn fit(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Fit {
    let mut shown: BTreeSet<usize> = (0..columns.len()).collect();
    let Some(width) = width else { return Fit { shown, short_times: false } };
    if needed(columns, rows, &shown, false) <= width {
        return Fit { shown, short_times: false };
    }
    while needed(columns, rows, &shown, true) > width {
        let rank = |index: &usize| columns.get(*index).map_or(0, |column| column.rank);
        match shown.iter().copied().max_by_key(rank).filter(|last| rank(last) > 0) {
            Some(last) => drop(shown.remove(&last)),
            None => break,
        }
    }
    Fit { shown, short_times: true }
}

fn needed(columns: &[Column], rows: &[Vec<String>], shown: &BTreeSet<usize>, short_times: bool) -> usize {
    let of = |(index, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| match is_time(cell) {
            true if short_times => SHORT_TIME_CHARS,
            _ => cell.chars().count(),
        });
        let least = if short_times { 0 } else { column.chars_min };
        let natural = cells.chain([column.title.len(), least]).max().unwrap_or(0);
        PADDING + if column.may_shrink { natural.min(TEXT_COLUMNS_MIN) } else { natural }
    };
    columns.iter().enumerate().filter(|(index, _)| shown.contains(index)).map(of).sum()
}

fn is_time(text: &str) -> bool {
    text.len() == TIME_CHARS && text.ends_with('Z') && text.get(10..11) == Some("T")
}

/// Takes year and milliseconds from a time; leaves everything else as it is.
pub(crate) fn shorten_time(cell: &mut String) {
    if is_time(cell)
        && let (Some(date), Some(time)) = (cell.get(5..10), cell.get(11..19))
    {
        *cell = format!("{date} {time}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::whole("ID", 30),
        Column::whole("STATE", 9),
        Column::whole("RUN AT", 24),
        Column::whole("ATTEMPT", 7).or_none(2),
        Column::text("TYPE"),
        Column::text("TO").or_none(1),
    ];

    fn rows() -> Vec<Vec<String>> {
        let row = [
            "job_01JDQ5M8ZK0000000000000000",
            "scheduled",
            "2026-11-15T04:18:22.028Z",
            "0/5",
            "send-email-to-everybody",
            "https://example.com/hooks/mail",
        ];
        vec![row.map(str::to_owned).to_vec()]
    }

    #[test]
    fn times_give_way_first_then_columns_by_their_rank() {
        let shown = |width| {
            let fit = fit(COLUMNS, &rows(), width);
            (fit.shown.len(), fit.short_times, fit.shown.contains(&3), fit.shown.contains(&5))
        };
        assert_eq!(shown(None), (6, false, true, true));
        assert_eq!(shown(Some(120)), (6, false, true, true));
        assert_eq!(shown(Some(90)), (6, true, true, true));
        assert_eq!(shown(Some(80)), (5, true, false, true));
        assert_eq!(shown(Some(70)), (4, true, false, false));
        assert_eq!(shown(Some(10)), (4, true, false, false));
    }

    #[test]
    fn only_times_are_shortened() {
        for (text, short) in [
            ("2026-11-15T04:18:22.028Z", "11-15 04:18:22"),
            ("job_01JDQ5M8ZK0000000000000000", "job_01JDQ5M8ZK0000000000000000"),
            ("-", "-"),
            ("ééééééééééT", "ééééééééééT"),
        ] {
            let mut cell = text.to_owned();
            shorten_time(&mut cell);
            assert_eq!(cell, short);
        }
    }
}
