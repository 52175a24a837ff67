//! A look as lines of text: numbers of the whole server on top, then what waits by tenant and by place, then who works.

use std::time::Duration;

use indicatif::HumanCount;
use tidewheel_core::limits::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};
use tidewheel_core::time::format_duration;

use super::answers::{Lag, Rates};
use super::frame::{Frame, Jobs, LaneRow, NodeRow, TenantRow, WorkerRow};
use super::grid::{Column, Line, Table, Tone};
use crate::out::printable;

/// Room to draw on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// With fewer rows than this, blank lines go.
const ROWS_FOR_BLANKS: usize = 20;
const LABEL_COLUMNS: usize = 9;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const CHART_COLUMNS_MAX: usize = 60;
/// A lag people notice, and one they complain about.
const LAG_WARN_MS: f64 = 1_000.0;
const LAG_BAD_MS: f64 = 10_000.0;

const fn name(title: &'static str) -> Column {
    Column { title, columns_min: 22, is_number: false, rank: 0 }
}

const fn number(title: &'static str, columns_min: usize, rank: u8) -> Column {
    Column { title, columns_min, is_number: true, rank }
}

const fn text(title: &'static str, columns_min: usize, rank: u8) -> Column {
    Column { title, columns_min, is_number: false, rank }
}

const TENANTS: &[Column] = &[
    name("TENANT"),
    number("WAITING", 11, 0),
    number("RUNNING", 7, 1),
    number("RETRYING", 8, 3),
    number("DEAD", 7, 2),
    number("START/S", 7, 4),
    number("WEIGHT", 6, 5),
];
const LANES: &[Column] = &[
    name("QUEUE OR TARGET"),
    number("DUE", 11, 0),
    number("OLDEST", 7, 1),
    number("WORKERS", 7, 2),
    text("WAITS FOR", 9, 3),
];
const WORKERS: &[Column] = &[
    name("WORKER"),
    number("RUNNING", 11, 0),
    number("ROOM", 7, 2),
    number("HEARD", 7, 3),
    text("STATE", 9, 1),
    text("QUEUES", 9, 4),
];
const NODES: &[Column] = &[
    name("NODE"),
    number("SHARDS", 11, 0),
    number("EPOCH", 7, 2),
    number("LAG", 7, 1),
    text("STATE", 9, 0),
    text("VERSION", 7, 3),
];

/// The lines of a look, no more and no longer than there is room for.
pub(super) fn look(frame: &Frame, size: Size) -> Vec<Line> {
    let mut lines = vec![head(frame), lag(&frame.lag), rates(&frame.rates), chart(frame, size.columns)];
    lines.push(jobs(frame.jobs, frame.jobs_of.as_deref()));
    lines.push(memory(frame));
    let mut lines: Vec<Line> = lines.into_iter().map(|line| line.cut(size.columns)).collect();
    let tables: Vec<Table<'_>> = [tenants(frame), lanes(frame), workers(frame), nodes(frame)]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect();
    let notes = notes(frame);
    let blanks = if size.rows >= ROWS_FOR_BLANKS { tables.len() } else { 0 };
    let taken = lines.len() + tables.len() + blanks + notes.len();
    let shares = share(&tables, size.rows.saturating_sub(taken));
    for (table, share) in tables.iter().zip(shares) {
        if blanks > 0 {
            lines.push(Line::default());
        }
        lines.extend(table.lines(size.columns, share));
    }
    lines.extend(notes.into_iter().map(|line| line.cut(size.columns)));
    lines.truncate(size.rows);
    lines
}

/// The last line of the screen.
pub(super) fn foot(trouble: Option<&str>, interval: Duration, columns: usize) -> Line {
    match trouble {
        Some(trouble) => Line::of(format!("{}; still trying", printable(trouble)), Tone::Bad),
        None => {
            let ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
            Line::of(format!("every {}  ·  r again now  ·  q leave", format_duration(ms)), Tone::Quiet)
        }
    }
    .cut(columns)
}

/// How many rows of each table are shown: one of each in turn while there is room.
fn share(tables: &[Table<'_>], mut room: usize) -> Vec<usize> {
    let mut shares = vec![0; tables.len()];
    loop {
        let before = room;
        for (share, table) in shares.iter_mut().zip(tables) {
            if *share < table.rows.len() && room > 0 {
                *share += 1;
                room -= 1;
            }
        }
        if room == before {
            return shares;
        }
    }
}

fn head(frame: &Frame) -> Line {
    let mut line = Line::of("tidewheel top", Tone::Title);
    let at = frame.at.get(11..19).map(|time| format!("  {time} UTC")).unwrap_or_default();
    line.add(format!("  {}{at}", printable(&frame.url)), Tone::Plain);
    if !frame.store.is_empty() {
        line.add(format!("  {} store, {} shards", printable(&frame.store), frame.shards), Tone::Quiet);
    }
    line
}

fn labelled(label: &str) -> Line {
    Line::of(format!("{label:<LABEL_COLUMNS$}"), Tone::Title)
}

fn lag(lag: &Lag) -> Line {
    let mut line = labelled("lag");
    for (label, ms) in [("p50", lag.p50_ms), ("p95", lag.p95_ms), ("p99", lag.p99_ms), ("p99.9", lag.p999_ms)]
    {
        line.add(format!("{label} "), Tone::Quiet);
        line.add(format!("{:<8}", ms.map_or_else(|| "-".to_owned(), millis)), lag_tone(ms));
    }
    if !lag.window.is_empty() {
        line.add(format!("of {} in {}", HumanCount(lag.count), lag.window), Tone::Quiet);
    }
    line
}

fn lag_tone(ms: Option<f64>) -> Tone {
    match ms {
        Some(ms) if ms >= LAG_BAD_MS => Tone::Bad,
        Some(ms) if ms >= LAG_WARN_MS => Tone::Warn,
        Some(_) => Tone::Good,
        None => Tone::Plain,
    }
}

fn rates(rates: &Rates) -> Line {
    let mut line = labelled("rates");
    let all = [
        ("submitted", rates.submitted, Tone::Plain),
        ("started", rates.started, Tone::Plain),
        ("succeeded", rates.succeeded, Tone::Plain),
        ("failed", rates.failed, if rates.failed > 0.0 { Tone::Bad } else { Tone::Plain }),
    ];
    for (label, per_s, tone) in all {
        line.add(format!("{label} "), Tone::Quiet);
        line.add(format!("{}/s  ", per_second(per_s)), tone);
    }
    line
}

/// Starts of the last minutes as bars, the newest at the right.
fn chart(frame: &Frame, columns: usize) -> Line {
    let mut line = labelled("starts");
    let room = columns.saturating_sub(LABEL_COLUMNS + 20).min(CHART_COLUMNS_MAX);
    let from = frame.started_history.len().saturating_sub(room);
    let recent = frame.started_history.get(from..).unwrap_or_default();
    let most = recent.iter().copied().fold(0.0, f64::max);
    if recent.is_empty() {
        line.add("-", Tone::Plain);
        return line;
    }
    let bar = |value: &f64| {
        let level = if most > 0.0 { value / most * 7.0 } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
        let level = level.round() as usize;
        BARS.get(level).copied().unwrap_or('█')
    };
    line.add(recent.iter().map(bar).collect::<String>(), Tone::Good);
    line.add(format!("  up to {}/s", per_second(most)), Tone::Quiet);
    line
}

fn jobs(jobs: Jobs, of: Option<&str>) -> Line {
    let mut line = labelled("jobs");
    let dead = if jobs.dead > 0 { Tone::Bad } else { Tone::Plain };
    for (label, count, tone) in [
        ("waiting", jobs.waiting(), Tone::Plain),
        ("running", jobs.running, Tone::Plain),
        ("retrying", jobs.retrying, Tone::Plain),
        ("dead", jobs.dead, dead),
    ] {
        line.add(format!("{label} "), Tone::Quiet);
        line.add(format!("{}  ", HumanCount(count)), tone);
    }
    let whose = of.map_or_else(|| "of all tenants".to_owned(), |name| format!("of {}", printable(name)));
    line.add(whose, Tone::Quiet);
    line
}

fn memory(frame: &Frame) -> Line {
    let mut line = labelled("memory");
    let memory = &frame.memory;
    for (label, count) in [("held", memory.held), ("in flight", memory.in_flight), ("leases", memory.leases)]
    {
        line.add(format!("{label} "), Tone::Quiet);
        line.add(format!("{}  ", HumanCount(count)), Tone::Plain);
    }
    let behind = i64::try_from(frame.backlog_age_ms).unwrap_or(i64::MAX);
    let tone = if behind > 0 { Tone::Warn } else { Tone::Plain };
    line.add("oldest without room ", Tone::Quiet);
    line.add(age(behind), tone);
    line
}

fn cell(text: impl Into<String>) -> (String, Tone) {
    (text.into(), Tone::Plain)
}

fn count(number: u64) -> (String, Tone) {
    cell(HumanCount(number).to_string())
}

fn or_dash(text: Option<String>) -> (String, Tone) {
    text.map_or_else(|| ("-".to_owned(), Tone::Quiet), cell)
}

fn tenants(frame: &Frame) -> Table<'_> {
    let row = |row: &TenantRow| {
        let dead = if row.jobs.dead > 0 { Tone::Bad } else { Tone::Plain };
        vec![
            cell(printable(&row.name)),
            count(row.jobs.waiting()),
            count(row.jobs.running),
            count(row.jobs.retrying),
            (HumanCount(row.jobs.dead).to_string(), dead),
            or_dash(row.started_per_s.map(per_second)),
            or_dash(row.weight.map(|weight| weight.to_string())),
        ]
    };
    let total = (frame.tenants.len() + frame.tenants_not_counted).to_string();
    let is_cut = frame.tenants_not_counted > 0 || frame.tenants_more;
    let total = if is_cut { format!("{total}+") } else { total };
    Table { columns: TENANTS, rows: frame.tenants.iter().map(row).collect(), total }
}

fn lanes(frame: &Frame) -> Table<'_> {
    let row = |row: &LaneRow| {
        let name = if row.kind == "push" { format!("→ {}", row.name) } else { row.name.clone() };
        let due = format!("{}{}", HumanCount(row.due), if row.more { "+" } else { "" });
        let without = row.workers == Some(0) && row.due > 0;
        let workers = or_dash(row.workers.map(|workers| workers.to_string()));
        vec![
            cell(printable(&name)),
            cell(due),
            or_dash(row.oldest_ms.map(age)),
            if without { (workers.0, Tone::Bad) } else { workers },
            (row.waits_for.clone().map(|why| printable(&why)).unwrap_or_default(), Tone::Warn),
        ]
    };
    Table {
        columns: LANES,
        rows: frame.lanes.iter().map(row).collect(),
        total: frame.lanes.len().to_string(),
    }
}

fn workers(frame: &Frame) -> Table<'_> {
    let row = |row: &WorkerRow| {
        let tone = if row.state == "connected" { Tone::Good } else { Tone::Warn };
        vec![
            cell(printable(&row.name)),
            count(row.running),
            count(row.room),
            or_dash(row.heard_ms.map(age)),
            (row.state.to_owned(), tone),
            cell(printable(&row.queues.join(","))),
        ]
    };
    let more = if frame.workers_more { "+" } else { "" };
    let total = format!("{}{more}", frame.workers.len());
    Table { columns: WORKERS, rows: frame.workers.iter().map(row).collect(), total }
}

fn nodes(frame: &Frame) -> Table<'_> {
    let row = |row: &NodeRow| {
        let tone = match row.state.as_str() {
            "serving" => Tone::Good,
            "silent" => Tone::Bad,
            _ => Tone::Warn,
        };
        vec![
            cell(printable(&row.id)),
            count(row.shards),
            or_dash(row.epoch.map(|epoch| epoch.to_string())),
            or_dash(row.lag_ms.map(|ms| age(i64::try_from(ms).unwrap_or(i64::MAX)))),
            (printable(&row.state), tone),
            cell(printable(&row.version)),
        ]
    };
    Table {
        columns: NODES,
        rows: frame.nodes.iter().map(row).collect(),
        total: frame.nodes.len().to_string(),
    }
}

fn notes(frame: &Frame) -> Vec<Line> {
    if frame.not_shown.is_empty() {
        return Vec::new();
    }
    let text = format!("Not shown for lack of a role: {}", frame.not_shown.join("; "));
    vec![Line::of(text, Tone::Warn)]
}

fn per_second(rate: f64) -> String {
    if rate >= 100.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, far below 2^53")]
        let whole = rate.round() as u64;
        return HumanCount(whole).to_string();
    }
    format!("{rate:.1}")
}

fn millis(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1}ms"),
        ms if ms < 1_000.0 => format!("{ms:.0}ms"),
        ms if ms < 60_000.0 => format!("{:.1}s", ms / 1_000.0),
        ms => format!("{:.1}m", ms / 60_000.0),
    }
}

/// An age in its two largest units.
fn age(ms: i64) -> String {
    let coarse = match ms {
        ms if ms < SECOND_MS => ms,
        ms if ms < HOUR_MS => ms - ms % SECOND_MS,
        ms if ms < DAY_MS => ms - ms % MINUTE_MS,
        ms => ms - ms % HOUR_MS,
    };
    format_duration(coarse)
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
