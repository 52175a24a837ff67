//! The figures as a table for people, or as one JSON object.

use serde::Serialize;

use super::database::shown as shown_url;
use super::figures::Figure;
use super::stopwatch::wall_now;
use tidewheel_cli::out::Format;
use tidewheel_cli::out::{Column, Out, Rows};

const COLUMNS: [Column; 5] = [
    Column::whole("WHAT", 0),
    Column::whole("RESULT", 0),
    Column::whole("UNIT", 0),
    Column::whole("RATIO", 0),
    Column::whole("CPU µs/JOB", 0),
];

#[derive(Serialize)]
struct Document<'a> {
    command: String,
    version: &'static str,
    build: &'static str,
    cores: usize,
    date: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'a str>,
    figures: &'a [Figure],
}

/// Prints the figures; `store` says what they were measured on, if that is not of our own.
pub(super) fn print(figures: &[Figure], store: Option<&str>, format: Format) -> anyhow::Result<()> {
    let out = Out::new(format);
    let document = document(figures, store);
    match format {
        Format::Json => out.line(&serde_json::to_string_pretty(&document)?)?,
        Format::Table => {
            out.note(&format!(
                "{}, version {} ({} build), {} cores, {}",
                document.command, document.version, document.build, document.cores, document.date
            ));
            if let Some(store) = document.store {
                out.note(store);
            }
            out.table(&COLUMNS, Rows { rows: figures.iter().map(row).collect(), titled: true })?;
        }
    }
    Ok(())
}

fn document<'a>(figures: &'a [Figure], store: Option<&'a str>) -> Document<'a> {
    Document {
        command: std::iter::once("tidewheel".to_owned())
            .chain(std::env::args().skip(1).map(|word| without_password(&word)))
            .collect::<Vec<_>>()
            .join(" "),
        version: env!("CARGO_PKG_VERSION"),
        build: if cfg!(debug_assertions) { "debug" } else { "release" },
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        date: wall_now().to_string(),
        store,
        figures,
    }
}

/// Reports are shown around.
fn without_password(word: &str) -> String {
    match word.find("postgres") {
        Some(at) if word.contains("://") => {
            let (flag, url) = word.split_at(at);
            format!("{flag}{}", shown_url(url))
        }
        Some(_) | None => word.to_owned(),
    }
}

fn row(figure: &Figure) -> Vec<Option<String>> {
    vec![
        Some(figure.what.clone()),
        Some(format!("{:>10}", shown(figure.value))),
        Some(figure.unit.to_owned()),
        figure.ratio.zip(figure.ratio_to).map(|(ratio, to)| format!("{ratio:.2} of {to}{}", rounds(figure))),
        figure.cpu_us_per_job.map(|us| format!("{us:.1}")),
    ]
}

/// What the ratio was in each round, in order.
fn rounds(figure: &Figure) -> String {
    if figure.ratio_rounds.len() < 2 {
        return String::new();
    }
    let all: Vec<String> = figure.ratio_rounds.iter().map(|ratio| format!("{ratio:.2}")).collect();
    format!(" ({})", all.join(" "))
}

/// Three digits that mean something.
fn shown(value: f64) -> String {
    match value.abs() {
        zero if zero < f64::EPSILON => "0".to_owned(),
        large if large >= 1_000.0 => grouped(&format!("{value:.0}")),
        middle if middle >= 100.0 => format!("{value:.0}"),
        small if small >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Commas between thousands.
fn grouped(digits: &str) -> String {
    let count = digits.trim_start_matches('-').len();
    let first = digits.len() - count;
    digits
        .chars()
        .enumerate()
        .flat_map(|(place, digit)| {
            let comma = place > first && (digits.len() - place).is_multiple_of(3);
            comma.then_some(',').into_iter().chain(std::iter::once(digit))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reported_command_has_no_password() {
        for (word, wanted) in [
            ("postgres://u:secret@h/db", "postgres://u@h/db"),
            ("--store=postgresql://u:secret@h/db", "--store=postgresql://u@h/db"),
            ("--only", "--only"),
        ] {
            assert_eq!(without_password(word), wanted);
        }
    }

    #[test]
    fn numbers_show_what_they_mean_and_no_more() {
        let all = [0.0, 0.123_4, 12.34, 123.4, 1_234.5, 1_234_567.8, -123_456.0].map(shown);
        assert_eq!(all, ["0", "0.12", "12.3", "123", "1,234", "1,234,568", "-123,456"]);
    }
}
