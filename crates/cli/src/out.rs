//! The one door to stdout and stderr. Data goes to stdout, everything else to stderr; colours and drawing only to
//! terminals, and no colours with `NO_COLOR`.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use clap::ValueEnum;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Row, Table, presets};
use owo_colors::{OwoColorize, Stream};
use tidewheel_core::job::State;

use crate::document::{Document, text_of};
use crate::fit::{self, Fit};
use crate::json;

/// The column whose cells are coloured like the state they name.
const STATE_COLUMN: &str = "STATE";
/// How much of an error or an answer a line shows.
const EXCERPT_CHARS_MAX: usize = 120;
/// What stands for an absent value.
const ABSENT: &str = "-";

/// How to print data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "a text per value would spread every verb's help over three times the lines")]
pub enum Format {
    // For people.
    Table,
    // For programs: the server's own documents.
    Json,
}

/// How to print.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    format: Format,
    /// Where it goes instead of stdout.
    frame: Option<Frame>,
}

/// What is gathered, to be drawn at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame(&'static Mutex<String>);

impl Frame {
    /// What was gathered since the last time.
    pub(crate) fn take(self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(self, text: &str) {
        let mut frame = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        frame.push_str(text);
        frame.push('\n');
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// What stands above it.
    pub title: &'static str,
    /// Cells are filled up to this, so that the pages of one list stand in line.
    pub chars_min: usize,
    /// Whether it may be cut short when the terminal is narrow.
    pub may_shrink: bool,
    /// Whether it may be left out then, the highest first; 0 stays.
    pub rank: u8,
}

impl Column {
    /// A column that stays whole: ids, states, times, numbers.
    pub const fn whole(title: &'static str, chars_min: usize) -> Self {
        Self { title, chars_min, may_shrink: false, rank: 0 }
    }

    /// A column of running text.
    pub const fn text(title: &'static str) -> Self {
        Self { title, chars_min: 0, may_shrink: true, rank: 0 }
    }

    /// The same, left out where there is no room; those of the highest rank first.
    pub const fn or_none(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

/// The rows of a table, or of its next page.
#[derive(Debug)]
pub struct Rows {
    /// A cell per column; `None` is shown as a dash.
    pub rows: Vec<Vec<Option<String>>>,
    /// Whether the columns' titles stand above.
    pub titled: bool,
}

impl Out {
    /// Prints in that format.
    pub const fn new(format: Format) -> Self {
        Self { format, frame: None }
    }

    /// The same, but gathered into a frame.
    pub(crate) fn framed(self) -> (Self, Frame) {
        // One for the whole run of the program, so that this can be copied about like any other.
        let frame = Frame(Box::leak(Box::default()));
        (Self { frame: Some(frame), ..self }, frame)
    }

    /// Whether programs read the output.
    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// A line of data.
    pub fn line(self, text: &str) -> io::Result<()> {
        if let Some(frame) = self.frame {
            frame.add(text);
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}")?;
        stdout.flush()
    }

    /// A line that is not data: progress, advice.
    pub fn note(self, text: &str) {
        if let Some(frame) = self.frame {
            // On a screen that is drawn over, it must be part of the picture; programs want data alone.
            if !self.is_json() {
                frame.add(&printable(text));
            }
            return;
        }
        // Without a stderr there is nobody left to tell.
        drop(writeln!(io::stderr().lock(), "{}", printable(text)));
    }

    /// Why it did not work.
    pub fn error(self, text: &str) {
        let label = "error:".if_supports_color(Stream::Stderr, |label| label.red());
        drop(writeln!(io::stderr().lock(), "{label} {}", printable(text)));
    }

    /// A document of the server's as JSON, spread over lines.
    pub fn json(self, body: &[u8]) -> io::Result<()> {
        self.line(&json::pretty(&String::from_utf8_lossy(body)))
    }

    /// A document of the server's: as JSON, or one field per line.
    pub(crate) fn document(self, body: &[u8]) -> io::Result<()> {
        match serde_json::from_slice::<Document>(body) {
            Ok(document) if !self.is_json() => self.fields(&document),
            Ok(_) | Err(_) => self.json(body),
        }
    }

    /// An object's fields, one per line.
    pub(crate) fn fields(self, document: &Document) -> io::Result<()> {
        let mut table = bare_table();
        for (name, value) in document.fields() {
            let Some(text) = text_of(value).filter(|text| !matches!(text.as_str(), "{}" | "[]")) else {
                continue;
            };
            let name = name.replace('_', " ");
            let value = Cell::new(printable(text.trim_end()));
            let value = if name == "state" { in_color_of(value, &text) } else { value };
            table.add_row([Cell::new(printable(&name)), value]);
        }
        if let Some(names) = table.column_mut(0) {
            names.set_constraint(ColumnConstraint::ContentWidth);
        }
        self.print(&table)
    }

    /// Rows under titles, a line each; what the terminal has no room for is cut off.
    pub fn table(self, columns: &[Column], rows: Rows) -> io::Result<()> {
        let cell = |value: Option<String>| printable(value.as_deref().unwrap_or(ABSENT)).replace('\n', " ");
        let mut cells: Vec<Vec<String>> =
            rows.rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect();
        let Fit { shown, short_times } = fit::fit(columns, &cells, terminal_columns());
        if short_times {
            cells.iter_mut().flatten().for_each(fit::shorten_time);
        }
        let chosen = || columns.iter().enumerate().filter(|(index, _)| shown.contains(index));
        let mut table = bare_table();
        if rows.titled {
            table.set_header(chosen().map(|(_, column)| Cell::new(column.title)));
        }
        for row in &cells {
            let drawn = chosen().filter_map(|(index, column)| Some((column, row.get(index)?))).map(
                |(column, text)| {
                    let width = if short_times { 0 } else { column.chars_min };
                    let cell = Cell::new(format!("{text:<width$}"));
                    if column.title == STATE_COLUMN { in_color_of(cell, text) } else { cell }
                },
            );
            let mut row = Row::from(drawn);
            row.max_height(1);
            table.add_row(row);
        }
        for ((_, column), drawn) in chosen().zip(table.column_iter_mut()) {
            if !column.may_shrink {
                drawn.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        self.print(&table)
    }

    fn print(self, table: &Table) -> io::Result<()> {
        if table.row_count() == 0 {
            return Ok(());
        }
        self.line(&table.trim_fmt())
    }

    /// A state, coloured if stdout is a terminal that shows colours.
    pub(crate) fn state(self, name: &str) -> String {
        let name = printable(name);
        match state_color(&name) {
            Some(Color::Green) => name.if_supports_color(Stream::Stdout, |name| name.green()).to_string(),
            Some(Color::Red) => name.if_supports_color(Stream::Stdout, |name| name.red()).to_string(),
            Some(Color::Yellow) => name.if_supports_color(Stream::Stdout, |name| name.yellow()).to_string(),
            Some(Color::Cyan) => name.if_supports_color(Stream::Stdout, |name| name.cyan()).to_string(),
            Some(_) | None => name,
        }
    }
}

/// A table without lines, two spaces between columns, as wide as the terminal; unbounded where there is none.
fn bare_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !io::stdout().is_terminal() {
        table.force_no_tty().set_content_arrangement(ContentArrangement::Disabled);
    }
    table
}

/// How wide the terminal is, if stdout is one.
pub(crate) fn terminal_columns() -> Option<usize> {
    let is_terminal = io::stdout().is_terminal();
    let (columns, _) = is_terminal.then(crossterm::terminal::size)?.ok()?;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// The cell in the colour of that state.
fn in_color_of(cell: Cell, state: &str) -> Cell {
    match state_color(state) {
        Some(color) if colours_wanted() => cell.fg(color),
        Some(_) | None => cell,
    }
}

/// Whether stdout shows colours, and they are wanted there.
pub(crate) fn colours_wanted() -> bool {
    // The same test that stands before every other coloured text.
    !"".if_supports_color(Stream::Stdout, |text| text.red()).to_string().is_empty()
}

fn state_color(name: &str) -> Option<Color> {
    match State::from_name(name) {
        Some(State::Succeeded) => Some(Color::Green),
        Some(State::Dead | State::Expired) => Some(Color::Red),
        Some(State::Retrying) => Some(Color::Yellow),
        Some(State::Running) => Some(Color::Cyan),
        Some(State::Scheduled | State::Cancelled | State::Skipped) => None,
        // Of attempts, schedules and nodes.
        None => match name {
            "failed" | "timed_out" | "lease_expired" | "lost" | "silent" => Some(Color::Red),
            "paused" | "draining" => Some(Color::Yellow),
            "active" | "serving" => Some(Color::Green),
            _ => None,
        },
    }
}

/// Text without what could move the cursor or rewrite what stands before it: it may come from anyone.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// The beginning of a text, on one line: an answer may be a whole page.
pub(crate) fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_fits_a_line() {
        assert_eq!(excerpt("HTTP 500:\n  oops\n"), "HTTP 500: oops");
        assert_eq!(excerpt(&"é".repeat(EXCERPT_CHARS_MAX)).chars().count(), EXCERPT_CHARS_MAX);
        assert_eq!(excerpt(&"é".repeat(500)).chars().count(), EXCERPT_CHARS_MAX + 1);
    }

    #[test]
    fn hostile_text_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\rc\u{9b}d\ne"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\ne");
    }

    #[test]
    fn every_state_but_the_quiet_ones_has_a_colour() {
        let plain: Vec<_> = State::ALL.iter().filter(|state| state_color(state.as_str()).is_none()).collect();
        assert_eq!(plain, [&State::Scheduled, &State::Cancelled, &State::Skipped]);
        assert_eq!(state_color("ready"), None);
    }
}
