//! The cron engine against a table of known answers: everyday expressions, ends of months, zone changes of
//! every kind, and what must be refused.

use jiff::Timestamp;
use serde::Deserialize;
use tidewheel_core::cron::{Cron, Dst, Gap, zone};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    expr: String,
    tz: String,
    from: At,
    /// The fires after `from`, in order.
    #[serde(default)]
    next: Vec<At>,
    /// The same with `gap: skip`, where that makes a difference.
    next_gap_skipped: Option<Vec<At>>,
    error: Option<Refused>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Refused {
    Expr,
    Zone,
}

/// An instant as the table writes it.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct At(Timestamp);

impl TryFrom<String> for At {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

fn cases() -> Vec<Case> {
    let table = include_str!("../data/cron.jsonl");
    table.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

#[test]
fn every_case_has_its_answer() {
    let mut wrong = Vec::new();
    for case in cases() {
        if let Err(why) = check(&case) {
            wrong.push(format!("{} ({} {}): {why}", case.id, case.expr, case.tz));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn check(case: &Case) -> Result<(), String> {
    let (cron, tz) = (Cron::parse(&case.expr), zone(&case.tz));
    match case.error {
        Some(Refused::Expr) => return cron.err().map(drop).ok_or("accepted".to_owned()),
        Some(Refused::Zone) => return tz.err().map(drop).ok_or("zone accepted".to_owned()),
        None => {}
    }
    let (cron, tz) = (cron.map_err(|e| e.to_string())?, tz.map_err(|e| e.to_string())?);
    let skip_gaps = Dst { gap: Gap::Skip, ..Dst::default() };
    let runs =
        [(Dst::default(), &case.next), (skip_gaps, case.next_gap_skipped.as_ref().unwrap_or(&case.next))];
    for (dst, expected) in runs {
        let mut at = case.from.0;
        for At(want) in expected {
            let got = cron.next_after(at, &tz, dst).ok_or("no further fire")?.at;
            if got != *want {
                return Err(format!("{dst:?}: {got} instead of {want} after {at}"));
            }
            let back = cron.prev_before(got, &tz, dst).ok_or("no earlier fire")?.at;
            if back > at || cron.next_after(back, &tz, dst).map(|fire| fire.at) != Some(got) {
                return Err(format!("{dst:?}: {back} is not the fire before {got}"));
            }
            at = got;
        }
    }
    Ok(())
}

#[test]
fn the_table_holds_all_kinds_of_cases() {
    let cases = cases();
    assert!(cases.len() > 400);
    assert!(cases.iter().filter(|case| case.next_gap_skipped.is_some()).count() > 30);
    assert!(cases.iter().filter(|case| case.error == Some(Refused::Expr)).count() > 20);
    assert!(cases.iter().all(|case| case.error.is_some() || !case.next.is_empty()));
}

/// `cargo test --release -p tidewheel-core --test it cron_vectors -- --ignored --nocapture`
#[test]
#[ignore = "measures, and asserts nothing: worth running in release mode only"]
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn how_long_a_search_takes() {
    let from: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let century: Timestamp = "2072-03-01T00:00:00Z".parse().unwrap();
    let skip_gaps = Dst { gap: Gap::Skip, ..Dst::default() };
    let cases = [
        ("* * * * *", "UTC", Dst::default(), from),
        ("30 2 * * *", "Europe/Berlin", Dst::default(), from),
        ("0 9 * * MON-FRI", "America/New_York", Dst::default(), from),
        ("0 0 29 2 *", "Africa/Casablanca", Dst::default(), from),
        ("0 0 * 2 1#5", "America/New_York", Dst::default(), century),
        ("30 0 * 4 5L", "Africa/Cairo", skip_gaps, from),
        ("30 0 * 4 5L", "Africa/Cairo", skip_gaps, century),
    ];
    for (expr, tz, dst, from) in cases {
        let (cron, zone) = (Cron::parse(expr).unwrap(), zone(tz).unwrap());
        let rounds = 10_000;
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(cron.next_after(std::hint::black_box(from), &zone, dst));
        }
        let next = start.elapsed() / rounds;
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(cron.prev_before(std::hint::black_box(from), &zone, dst));
        }
        let prev = start.elapsed() / rounds;
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(Cron::parse(std::hint::black_box(expr)).unwrap().min_gap_seconds());
        }
        println!(
            "{expr:16} {tz:18} next {next:?}, prev {prev:?}, parse and gap {:?}",
            start.elapsed() / rounds
        );
    }
}
