//! The tables of `bench/COST.md`: written, read, and compared.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::costs::{Column, Costs, shown};

/// A count may be larger by this part before it counts as grown.
const GROWTH_MAX: f64 = 0.05;
/// And by this much: a job in twenty that happens to take one more of something says nothing.
const GROWTH_COUNT_MAX: f64 = 0.1;

/// Entries and what they cost.
pub(crate) type Rows = Vec<(String, Costs)>;

/// What a table is of.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) profile: String,
    pub(crate) commit: String,
    pub(crate) rustc: String,
}

impl Origin {
    /// The line above the table. [`rustc_of`] reads it.
    fn line(&self) -> String {
        format!("Build `{}` of commit `{}`, by `{}`.", self.profile, self.commit, self.rustc)
    }
}

/// A table, with the columns that have a value somewhere.
pub(crate) fn rendered(rows: &Rows) -> String {
    let has = |column: &Column| rows.iter().any(|(_, costs)| costs.get(*column).is_some());
    let columns: Vec<Column> = Column::ALL.into_iter().filter(has).collect();
    let mut lines: Vec<Vec<String>> = vec![vec!["entry".to_owned()]];
    if let Some(head) = lines.first_mut() {
        head.extend(columns.iter().map(|column| column.name().to_owned()));
    }
    for (name, costs) in rows {
        let cell = |column: &Column| costs.get(*column).map_or_else(|| "–".to_owned(), shown);
        lines.push(std::iter::once(format!("`{name}`")).chain(columns.iter().map(cell)).collect());
    }
    let width = |at: usize| {
        lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..=columns.len()).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            let (before, after) = if at == 0 { ("", pad.as_str()) } else { (pad.as_str(), "") };
            text.push_str(&format!("| {before}{cell}{after} "));
        }
        text.push_str("|\n");
        if number == 0 {
            for (at, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(if at == 0 { width + 2 } else { width + 1 });
                text.push_str(&format!("|{dashes}{}", if at == 0 { "" } else { ":" }));
            }
            text.push_str("|\n");
        }
    }
    text
}

/// Reads a table as [`rendered`] writes it.
pub(crate) fn parse(text: &str) -> anyhow::Result<Rows> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = text.lines().filter(|line| line.starts_with('|'));
    let head = cells(lines.next().context("there is no table")?);
    let mut rows = Rows::new();
    for line in lines.skip(1) {
        let line = cells(line);
        let name = line.first().map(|name| name.trim_matches('`').to_owned()).unwrap_or_default();
        ensure!(!name.is_empty(), "a row without a name");
        let mut costs = Costs::default();
        for (head, cell) in head.iter().zip(&line).skip(1).filter(|(_, cell)| *cell != "–") {
            let column = Column::ALL.into_iter().find(|column| column.name() == head);
            let column = column.with_context(|| format!("there is no count of {head:?}"))?;
            let value = cell.replace(',', "");
            costs.set(column, value.parse().with_context(|| format!("{name}, {head}: {cell:?}"))?);
        }
        rows.push((name, costs));
    }
    Ok(rows)
}

/// What has grown beyond what is let pass, a line each.
pub(crate) fn grown(before: &Rows, now: &Rows) -> Vec<String> {
    changed(before, now, |old, new| new > old * (1.0 + GROWTH_MAX) && new - old > GROWTH_COUNT_MAX)
}

/// What has become less by as much.
pub(crate) fn shrunk(before: &Rows, now: &Rows) -> Vec<String> {
    changed(before, now, |old, new| new < old * (1.0 - GROWTH_MAX) && old - new > GROWTH_COUNT_MAX)
}

fn changed(before: &Rows, now: &Rows, counts: impl Fn(f64, f64) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, costs) in now {
        let Some((_, old)) = before.iter().find(|(known, _)| known == name) else { continue };
        for column in Column::ALL {
            let (Some(old), Some(new)) = (old.get(column), costs.get(column)) else { continue };
            if counts(old, new) {
                let (what, part) = (column.name(), (new / old - 1.0) * 100.0);
                lines.push(format!(
                    "{name}: {what} from {} to {} a job ({part:+.1} %)",
                    shown(old),
                    shown(new)
                ));
            }
        }
    }
    lines
}

/// How far the counts of two runs lie apart at most, in percent.
pub(crate) fn spread(one: &Rows, two: &Rows) -> Vec<(String, &'static str, f64)> {
    let mut all = Vec::new();
    for (name, costs) in two {
        let Some((_, old)) = one.iter().find(|(known, _)| known == name) else { continue };
        for column in Column::ALL {
            if let (Some(old), Some(new)) = (old.get(column), costs.get(column)) {
                let apart = if old == new { 0.0 } else { (new / old - 1.0) * 100.0 };
                all.push((name.clone(), column.name(), apart));
            }
        }
    }
    all
}

/// A part of the page, between its marks.
pub(crate) fn part<'a>(page: &'a str, name: &str) -> anyhow::Result<&'a str> {
    let (begin, end) = marks(name);
    let (_, rest) = page.split_once(&begin).with_context(|| format!("the page has no {begin}"))?;
    let (part, _) = rest.split_once(&end).with_context(|| format!("the page has no {end}"))?;
    Ok(part)
}

fn marks(name: &str) -> (String, String) {
    (format!("<!-- {name}: written by scripts/cost -->\n"), format!("<!-- end of {name} -->"))
}

/// The compiler whose build a part is of.
pub(crate) fn rustc_of(part: &str) -> Option<&str> {
    part.split_once(", by `")?.1.split('`').next()
}

/// Puts tables into the page, in the place of what was there.
pub(crate) fn replace(
    path: &Path,
    name: &str,
    origin: &Origin,
    tables: &[(&str, &Rows)],
) -> anyhow::Result<()> {
    let page = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut text = format!("{}\n", origin.line());
    for (title, rows) in tables {
        write!(text, "\n{title}:\n\n{}", rendered(rows))?;
    }
    let (begin, end) = marks(name);
    let old = part(&page, name)?;
    let page = page.replace(&format!("{begin}{old}{end}"), &format!("{begin}{text}{end}"));
    fs::write(path, page).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, instructions: f64, syncs: f64) -> (String, Costs) {
        let mut costs = Costs::default();
        costs.set(Column::Instructions, instructions);
        costs.set(Column::Syncs, syncs);
        (name.to_owned(), costs)
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let mut rows = vec![row("submit.http", 123_456.0, 1.0), row("job.read", 99.25, 0.0)];
        rows[0].1.set(Column::WalBytes, 520.0);
        let text = rendered(&rows);
        assert_eq!(
            text,
            "| entry         | instructions | syncs | WAL bytes |\n\
             |---------------|-------------:|------:|----------:|\n\
             | `submit.http` |      123,456 |  1.00 |       520 |\n\
             | `job.read`    |        99.25 |  0.00 |         – |\n"
        );
        assert_eq!(parse(&text).unwrap(), rows);
    }

    #[test]
    fn five_percent_more_are_let_pass() {
        let before = vec![row("a", 100_000.0, 1.0)];
        assert!(grown(&before, &vec![row("a", 105_000.0, 1.04), row("new", 1.0, 1.0)]).is_empty());
        let lines = grown(&before, &vec![row("a", 106_000.0, 2.0)]);
        assert_eq!(
            lines,
            [
                "a: instructions from 100,000 to 106,000 a job (+6.0 %)",
                "a: syncs from 1.00 to 2.00 a job (+100.0 %)"
            ]
        );
        assert_eq!(shrunk(&before, &vec![row("a", 94_000.0, 1.0)]).len(), 1);
    }

    #[test]
    fn a_part_of_the_page_is_replaced_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("COST.md");
        let (begin, end) = marks("small");
        fs::write(&path, format!("before\n{begin}{end}\nafter\n")).unwrap();
        let origin = Origin { profile: "dev".into(), commit: "abc".into(), rustc: "rustc 1.2.3 (x)".into() };
        let rows = vec![row("a", 7.0, 1.0)];
        replace(&path, "small", &origin, &[("Embedded store", &rows)]).unwrap();
        replace(&path, "small", &origin, &[("Embedded store", &rows)]).unwrap();
        let page = fs::read_to_string(&path).unwrap();
        assert!(page.starts_with("before\n") && page.ends_with("\nafter\n"), "{page}");
        let part = part(&page, "small").unwrap();
        assert_eq!((rustc_of(part), parse(part).unwrap()), (Some("rustc 1.2.3 (x)"), rows));
    }
}
