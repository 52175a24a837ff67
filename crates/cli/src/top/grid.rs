//! Lines of toned text, and tables of them that fit a width: names give way first, then whole columns.

/// How a piece of text is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    #[default]
    Plain,
    Title,
    Quiet,
    Good,
    Warn,
    Bad,
}

/// One line.
#[derive(Debug, Clone, Default)]
pub(super) struct Line(pub(super) Vec<(String, Tone)>);

impl Line {
    /// A line of one tone.
    pub(super) fn of(text: impl Into<String>, tone: Tone) -> Self {
        Self(vec![(text.into(), tone)])
    }

    /// Adds more to it.
    pub(super) fn add(&mut self, text: impl Into<String>, tone: Tone) {
        self.0.push((text.into(), tone));
    }

    /// The text alone.
    pub(super) fn plain(&self) -> String {
        self.0.iter().map(|(text, _)| text.as_str()).collect()
    }

    /// No longer than that.
    pub(super) fn cut(self, columns: usize) -> Self {
        let mut left = columns;
        let mut line = Self::default();
        for (text, tone) in self.0 {
            let text = fitted(&text, left);
            left -= text.chars().count();
            line.add(text, tone);
        }
        line
    }
}

/// A text no longer than that; one that is cut ends with an ellipsis.
fn fitted(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let Some(kept) = columns.checked_sub(1) else { return String::new() };
    text.chars().take(kept).chain(['…']).collect()
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Filled up to this, so that little moves while numbers change.
    pub(super) columns_min: usize,
    pub(super) is_number: bool,
    /// The highest goes first where there is no room; 0 stays.
    pub(super) rank: u8,
}

/// A table, whose first column gives way.
pub(super) struct Table<'a> {
    pub(super) columns: &'a [Column],
    pub(super) rows: Vec<Vec<(String, Tone)>>,
    /// Said after the first title where not all rows are shown.
    pub(super) total: String,
}

const BETWEEN: usize = 2;
const NAME_COLUMNS_MIN: usize = 14;

impl Table<'_> {
    /// The titles and the first `shown` rows.
    pub(super) fn lines(&self, width: usize, shown: usize) -> Vec<Line> {
        let rows: Vec<_> = self.rows.iter().take(shown).collect();
        let first = self.columns.first().map(|column| column.title).unwrap_or_default();
        let first = if rows.len() < self.rows.len() || self.total.ends_with('+') {
            format!("{first} ({} of {})", rows.len(), self.total)
        } else {
            first.to_owned()
        };
        let title = |index: usize, column: &Column| {
            if index == 0 { first.clone() } else { column.title.to_owned() }
        };
        let mut widths: Vec<(usize, usize)> = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let cells = rows.iter().filter_map(|row| row.get(index)).map(|(text, _)| text.chars().count());
            let widest = cells.chain([title(index, column).chars().count(), column.columns_min]).max();
            widths.push((index, widest.unwrap_or(0)));
        }
        fit(&mut widths, self.columns, width);
        let titles: Vec<(String, Tone)> =
            self.columns.iter().enumerate().map(|(i, column)| (title(i, column), Tone::Title)).collect();
        std::iter::once(&titles).chain(rows).map(|row| self.line(row, &widths).cut(width)).collect()
    }

    fn line(&self, row: &[(String, Tone)], widths: &[(usize, usize)]) -> Line {
        let mut line = Line::default();
        for (place, (index, width)) in widths.iter().enumerate() {
            let (Some((text, tone)), Some(column)) = (row.get(*index), self.columns.get(*index)) else {
                continue;
            };
            if place > 0 {
                line.add(" ".repeat(BETWEEN), Tone::Plain);
            }
            let text = fitted(text, *width);
            let is_last = place + 1 == widths.len();
            let padding = " ".repeat(width.saturating_sub(text.chars().count()));
            match (column.is_number, is_last) {
                (true, _) => line.add(format!("{padding}{text}"), *tone),
                (false, true) => line.add(text, *tone),
                (false, false) => line.add(format!("{text}{padding}"), *tone),
            }
        }
        line
    }
}

/// Takes columns away, and room from the first, until the rest fits.
fn fit(widths: &mut Vec<(usize, usize)>, columns: &[Column], width: usize) {
    loop {
        let total: usize =
            widths.iter().map(|(_, width)| width + BETWEEN).sum::<usize>().saturating_sub(BETWEEN);
        let over = total.saturating_sub(width);
        let Some((_, first)) = widths.first_mut() else { return };
        let spare = first.saturating_sub(NAME_COLUMNS_MIN);
        if over <= spare {
            *first -= over;
            return;
        }
        let rank = |index: usize| columns.get(index).map_or(0, |column| column.rank);
        let last = widths.iter().enumerate().max_by_key(|(_, (index, _))| rank(*index));
        match last.map(|(place, (index, _))| (place, rank(*index))) {
            Some((place, ranked)) if ranked > 0 => drop(widths.remove(place)),
            Some(_) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column { title: "NAME", columns_min: 0, is_number: false, rank: 0 },
        Column { title: "COUNT", columns_min: 0, is_number: true, rank: 0 },
        Column { title: "NOTE", columns_min: 10, is_number: false, rank: 1 },
    ];

    fn drawn(width: usize, shown: usize) -> Vec<String> {
        let row = |name: &str| [name, "7", "a note"].map(|text| (text.to_owned(), Tone::Plain)).to_vec();
        let rows = vec![row("a-name-that-is-quite-long"), row("b")];
        let table = Table { columns: COLUMNS, rows, total: "2".to_owned() };
        table.lines(width, shown).iter().map(Line::plain).collect()
    }

    #[test]
    fn names_give_way_first_then_columns() {
        assert_eq!(drawn(80, 9)[1], "a-name-that-is-quite-long      7  a note");
        assert_eq!(drawn(35, 9)[1], "a-name-that-is-…      7  a note");
        assert_eq!(drawn(25, 9)[0], "NAME                COUNT");
        assert_eq!(drawn(25, 9)[1], "a-name-that-is-qu…      7");
        for width in 0..60 {
            assert!(drawn(width, 9).iter().all(|line| line.chars().count() <= width), "{width}");
        }
    }

    #[test]
    fn what_is_left_out_is_counted() {
        assert_eq!(drawn(80, 1)[0], "NAME (1 of 2)              COUNT  NOTE");
        assert_eq!(drawn(80, 1).len(), 2);
    }
}
